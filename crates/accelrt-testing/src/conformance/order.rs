//! Order: random programs of fills, copies, events and waits beside a model of the bytes.
//!
//! The engine orders uses of a buffer behind each other across streams, by marks and waits of the
//! kind; so the bytes are those of the program's text, whatever the devices do at once. A wait that
//! orders nothing, a mark that is early, or a copy out of turn leaves other bytes.

use accelrt::{Buffer, Event};

use crate::conformance::engine::{Draws, Machine};
use crate::conformance::support::Subject;

const PROGRAMS: u64 = 12;
const STEPS: usize = 80;
const BUFFERS: usize = 5;
const BYTES: usize = 96 << 10;

/// A buffer, and the bytes that the program's text leaves in it.
struct Place {
    buffer: Buffer,
    model: Vec<u8>,
}

impl Place {
    fn new(machine: &Machine, number: usize) -> Self {
        let device = machine.devices[number % machine.devices.len()];
        let buffer = machine.runtime.zeros(BYTES, device).unwrap();
        Self { buffer, model: vec![0; BYTES] }
    }
}

struct Program<'a> {
    machine: &'a Machine,
    draws: Draws,
    places: Vec<Place>,
    events: Vec<Event>,
}

impl Program<'_> {
    fn step(&mut self) {
        let Self { machine, draws, places, events } = self;
        let stream = &machine.streams[draws.below(machine.streams.len())];
        let (place, start) = (draws.below(BUFFERS), draws.below(BYTES));
        let range = start..start + 1 + draws.below(BYTES - start);
        let is_near = |place: &Place| place.buffer.device() == stream.device();
        match draws.below(10) {
            0..3 => {
                let (byte, place) = (draws.byte(), &mut places[place]);
                if is_near(place) {
                    place.buffer.slice(range.clone()).unwrap().fill(byte, stream).unwrap();
                    place.model[range].fill(byte);
                }
            }
            3..7 => {
                let from = (place + 1 + draws.below(BUFFERS - 1)) % BUFFERS;
                if is_near(&places[place]) || is_near(&places[from]) {
                    let source = places[from].buffer.slice(range.clone()).unwrap();
                    let target = places[place].buffer.slice(range.clone()).unwrap();
                    target.copy_from(&source, stream).unwrap();
                    let bytes = places[from].model[range.clone()].to_vec();
                    places[place].model[range].copy_from_slice(&bytes);
                }
            }
            7 => events.push(stream.record_event().unwrap()),
            8 => {
                if let Some(event) = events.pop() {
                    stream.wait_event(&event).unwrap();
                    if draws.below(2) == 0 {
                        event.synchronize().unwrap();
                        assert!(event.is_done(), "an event is done when it was waited for");
                    }
                }
            }
            _ => {
                // The memory may be used by what was enqueued before, and serves the next buffer.
                places[place] = Place::new(machine, draws.below(BUFFERS));
            }
        }
    }
}

pub(crate) fn random_programs_leave_the_bytes_of_their_text(subject: &Subject) {
    let machine = Machine::new(subject);
    for seed in 0..PROGRAMS {
        let places = (0..BUFFERS).map(|number| Place::new(&machine, number)).collect();
        let draws = Draws::new(seed);
        let mut program = Program { machine: &machine, draws, places, events: Vec::new() };
        for _ in 0..STEPS {
            program.step();
        }
        for Place { buffer, model } in &program.places {
            machine.assert_holds(buffer, model, &format!("program {seed}"));
        }
    }
    machine.end();
}
