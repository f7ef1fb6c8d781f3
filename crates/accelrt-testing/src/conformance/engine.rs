//! A runtime over the kind under test, for the tests that drive the engine instead of the contract.

use std::error::Error as _;
use std::sync::Arc;

use accelrt::backend::contract::Backend;
use accelrt::{Buffer, Config, Device, Error, Event, MemoryError, Result, Runtime, Stream};

use crate::conformance::support::Subject;
use crate::fault::{Fault, FaultBackend, FaultError, Method};

/// Streams of each program.
const STREAMS: usize = 4;

/// A runtime with the kind, its devices, and streams over them.
pub(crate) struct Machine {
    pub(crate) runtime: Runtime,
    pub(crate) devices: Vec<Device>,
    pub(crate) streams: Vec<Stream>,
    /// False where copies move no bytes.
    pub(crate) has_bytes: bool,
}

impl Machine {
    pub(crate) fn new(subject: &Subject) -> Self {
        Self::over(Arc::clone(&subject.backend().0), subject.host_bytes().is_some())
    }

    /// Over this backend, which may be one around the subject's.
    pub(crate) fn over(backend: Arc<dyn Backend>, has_bytes: bool) -> Self {
        let kind = backend.kind();
        let config = Config::builder().accelerator(kind).build().unwrap();
        let runtime = Runtime::with_backends(config, [backend]).unwrap();
        let count = runtime.device_count(kind).unwrap();
        let devices: Vec<Device> =
            (0..count).map(|index| Device::new(kind, index).unwrap()).collect();
        let stream = |number: usize| runtime.stream(devices[number % count]).unwrap();
        let streams = (0..STREAMS).map(stream).collect();
        Self { runtime, devices, streams, has_bytes }
    }

    /// Brings a buffer's bytes to the host, behind what uses it, and compares them.
    pub(crate) fn assert_holds(&self, buffer: &Buffer, expected: &[u8], what: &str) {
        let stream = self.streams.iter().find(|stream| stream.device() == buffer.device());
        let default = || self.runtime.default_stream(buffer.device()).unwrap();
        let stream = stream.cloned().unwrap_or_else(default);
        let found = buffer.copy_to_host(vec![0; buffer.nbytes()], &stream).unwrap().wait().unwrap();
        if self.has_bytes && found != expected {
            let place = found.iter().zip(expected).position(|(found, expected)| found != expected);
            panic!("{what}: the first other byte is at {place:?} of {}", expected.len());
        }
    }

    /// Ends the runtime, which leaves nothing undone, and gives back what it has.
    pub(crate) fn end(self) {
        let Self { runtime, streams, .. } = self;
        drop(streams);
        let report = runtime.shutdown();
        assert!(report.is_clean(), "{report:?}");
    }
}

/// Choices of a program, from a seed: `SplitMix64`, by Steele, Lea and Flood.
pub(crate) struct Draws(u64);

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// One of `0..end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).expect("below a usize")
    }

    /// A byte.
    pub(crate) fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).expect("below 256")
    }
}

// Order: random programs of fills, copies, events and waits beside a model of the bytes.
//
// The engine orders uses of a buffer behind each other across streams, by marks and waits of the
// kind; so the bytes are those of the program's text, whatever the devices do at once. A wait that
// orders nothing, a mark that is early, or a copy out of turn leaves other bytes.

const PROGRAMS: u64 = 12;
const PROGRAM_STEPS: usize = 80;
const BUFFERS: usize = 5;
const PLACE_BYTES: usize = 96 << 10;

/// A buffer, and the bytes that the program's text leaves in it.
struct Place {
    buffer: Buffer,
    model: Vec<u8>,
}

impl Place {
    fn new(machine: &Machine, number: usize) -> Self {
        let device = machine.devices[number % machine.devices.len()];
        let buffer = machine.runtime.zeros(PLACE_BYTES, device).unwrap();
        Self { buffer, model: vec![0; PLACE_BYTES] }
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
        let (place, start) = (draws.below(BUFFERS), draws.below(PLACE_BYTES));
        let range = start..start + 1 + draws.below(PLACE_BYTES - start);
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
        for _ in 0..PROGRAM_STEPS {
            program.step();
        }
        for Place { buffer, model } in &program.places {
            machine.assert_holds(buffer, model, &format!("program {seed}"));
        }
    }
    machine.end();
}

// The allocator's laws on the kind: buffers share no byte, statistics are sums, all goes back.

/// A buffer, with the byte that all of it is.
struct FilledBuffer {
    buffer: Buffer,
    byte: u8,
}

fn random_lives(subject: &Subject, settings: &str) {
    const STEPS: usize = 300;
    const MOST_LIVE: usize = 40;
    let machine = Machine::new(subject);
    let device = machine.devices[machine.devices.len() - 1];
    machine.runtime.set_allocator_settings(settings).unwrap();
    let allocator = machine.runtime.allocator(device).unwrap();
    let before = machine.runtime.memory_info(device).unwrap();
    // Also a device of a few MiB has room for all that live.
    let largest = (3 << 20).min(before.total_bytes / 64);
    let streams: Vec<_> =
        machine.streams.iter().filter(|stream| stream.device() == device).collect();
    let (mut draws, mut live) = (Draws::new(5), Vec::<FilledBuffer>::new());
    for step in 0..STEPS {
        let stream = streams[draws.below(streams.len())];
        if live.len() == MOST_LIVE || !live.is_empty() && draws.below(5) < 2 {
            let FilledBuffer { buffer, byte } = live.swap_remove(draws.below(live.len()));
            let copied = machine.runtime.empty(buffer.nbytes(), device).unwrap();
            copied.copy_from(&buffer, stream).unwrap(); // a use that the free has to wait for
            drop(buffer);
            live.push(FilledBuffer { buffer: copied, byte });
            drop(live.swap_remove(draws.below(live.len())));
        } else {
            let most_bytes = [100, 5_000, 70_000, largest][draws.below(4)];
            let bytes = 1 + draws.below(most_bytes);
            machine.runtime.exchange_stream(stream).unwrap();
            let (buffer, byte) = (machine.runtime.empty(bytes, device).unwrap(), draws.byte());
            buffer.fill(byte, stream).unwrap();
            live.push(FilledBuffer { buffer, byte });
        }
        let statistics = allocator.statistics();
        assert_eq!(statistics.allocation.all.current, live.len() as u64, "in step {step}");
        let least: usize = live.iter().map(|live| live.buffer.nbytes()).sum();
        assert!(statistics.allocated_bytes.all.current >= least as u64, "in step {step}");
        if step % 50 == 49 {
            allocator.check_all();
            for FilledBuffer { buffer, byte } in &live {
                let expected = vec![*byte; buffer.nbytes()];
                machine.assert_holds(buffer, &expected, &format!("{settings}, step {step}"));
            }
        }
    }
    live.clear();
    machine.runtime.synchronize(device).unwrap();
    allocator.empty_cache();
    allocator.check_all();
    assert_eq!(allocator.statistics().reserved_bytes.all.current, 0);
    assert_eq!(machine.runtime.memory_info(device).unwrap(), before, "everything is back");
    machine.end();
}

pub(crate) fn buffers_of_policy_native_share_no_byte_and_go_back(subject: &Subject) {
    random_lives(subject, "policy:native");
}

pub(crate) fn buffers_of_policy_torch_share_no_byte_and_go_back(subject: &Subject) {
    random_lives(subject, "policy:torch");
}

pub(crate) fn a_full_device_serves_a_buffer_again_when_others_are_freed(subject: &Subject) {
    // Goal: what is cached or only enqueued is no reason to refuse. Method: buffers of a quarter
    // each, dropped while tasks use them, several times more than fit.
    let machine = Machine::new(subject);
    let (device, stream) = (machine.devices[0], &machine.streams[0]);
    let bytes = machine.runtime.memory_info(device).unwrap().total_bytes / 4;
    for byte in 0..12 {
        let buffer = machine.runtime.empty(bytes, device).unwrap();
        buffer.fill(byte, stream).unwrap();
    }
    let refused = machine.runtime.empty(5 * bytes, device).unwrap_err();
    assert!(matches!(refused, Error::Memory(MemoryError::OutOfMemory { .. })), "{refused}");
    machine.end();
}

// Faults: each call that a program makes of the kind fails in turn, and the engine recovers.
//
// The kind is behind a fault layer. After a program that met a failure, whatever it did, the same
// program without one has the right bytes; at the end everything was given back. So a failure at
// any single call of this kind breaks no law and leaks nothing.

/// The most calls of one method that fail in turn.
const MOST_CALLS: u64 = 6;

/// What takes something and what gives it back, each as often.
const PAIRS: [(Method, Method); 3] = [
    (Method::StreamCreate, Method::StreamDestroy),
    (Method::Mark, Method::MarkRelease),
    (Method::AllocateHost, Method::ReleaseHost),
];

/// A bit of everything: streams, events, copies, fills, host memory, frees while work is queued.
fn program(machine: &Machine) -> Result<()> {
    const BYTES: usize = 64 << 10;
    let (runtime, device) = (&machine.runtime, machine.devices[0]);
    let [first, second] = [runtime.stream(device)?, runtime.stream(device)?];
    let source = runtime.empty_pinned(BYTES)?;
    let [one, other] = [runtime.empty(BYTES, device)?, runtime.empty(BYTES, device)?];
    one.fill(7, &first)?;
    let filled = first.record_event()?;
    second.wait_event(&filled)?;
    other.copy_from(&one, &second)?;
    source.copy_from(&other, &second)?;
    drop(one);
    let seen = other.copy_to_host(vec![0; BYTES], &second)?.wait()?;
    assert!(!machine.has_bytes || seen == vec![7; BYTES], "the bytes of a program that succeeded");
    let done = second.record_event()?;
    done.synchronize()?;
    filled.synchronize()?;
    first.synchronize()?;
    second.synchronize()
}

/// Everything is idle again, with the errors that are left on streams taken.
fn settle(machine: &Machine) {
    for device in &machine.devices {
        let _ = machine.runtime.synchronize(*device);
        machine.runtime.allocator(*device).unwrap().empty_cache();
    }
    if let Ok(pinned) = machine.runtime.pinned_allocator(machine.devices[0]) {
        pinned.empty_cache();
    }
}

/// True when an error tells of the fault that was planned, or of too little memory.
fn is_explained(error: &Error) -> bool {
    if matches!(error, Error::Memory(MemoryError::OutOfMemory { .. })) {
        return true;
    }
    let mut texts = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        texts += &inner.to_string();
        cause = inner.source();
    }
    texts.contains("999")
}

pub(crate) fn a_failure_of_any_call_is_told_and_the_next_program_succeeds(subject: &Subject) {
    let faults = FaultBackend::new(Arc::clone(&subject.backend().0));
    let backend: Arc<dyn Backend> = Arc::<FaultBackend>::clone(&faults);
    let machine = Machine::over(backend, subject.host_bytes().is_some());
    let free =
        || machine.devices.iter().map(|device| machine.runtime.memory_info(*device).unwrap());
    let before: Vec<_> = free().collect();
    program(&machine).expect("nothing fails yet");
    settle(&machine);
    let mut met = 0;
    for method in Method::ALL {
        let errors: &[FaultError] = if method.takes_memory() {
            &[FaultError::Driver, FaultError::OutOfMemory]
        } else {
            &[FaultError::Driver]
        };
        for (call, error) in
            (1..=MOST_CALLS).flat_map(|call| errors.iter().map(move |it| (call, *it)))
        {
            let failures = faults.failures(method);
            faults.plan(Fault::nth(method, call, error));
            let outcome = program(&machine);
            settle(&machine);
            faults.clear();
            let is_met = faults.failures(method) > failures;
            met += u64::from(is_met);
            if let Err(told) = outcome {
                assert!(is_met && is_explained(&told), "{method} {call}: {told}");
            }
            let again = program(&machine);
            assert!(again.is_ok(), "behind {method} {call} {error:?}: {again:?}");
            settle(&machine);
            let now: Vec<_> = free().collect();
            assert_eq!(now, before, "behind {method} {call} {error:?} memory is not back");
        }
    }
    assert!(met >= 15, "only {met} calls failed");
    machine.end();
    for (takes, gives) in PAIRS {
        let taken = faults.calls(takes) - faults.failures(takes);
        assert_eq!(taken, faults.calls(gives), "{takes} and {gives}");
    }
}
