//! Numbers programs over several streams and threads, compared with plain vectors.
//!
//! Each thread has buffers of its own and enqueues on streams that all threads share; where two
//! operations on a buffer are on different streams, the second stream waits for the first, as a
//! program has to. What the thread expects stands in vectors that are changed at once. Contents are
//! compared now and then and at the end, and then all memory is back.
#![expect(unsafe_code, reason = "functions write through addresses, as native code does")]

use std::ops::Range;
use std::sync::Arc;

use accelrt::{Buffer, Config, Device, Error, MemoryError, Stream};

use crate::numbers::Numbers;
use crate::seed::seed;
use crate::support::{Machine, finishes};

const THREADS: u64 = 3;
const STEPS: usize = 250;
const STREAMS: usize = 5;

/// A buffer, what it should hold, and where it was used last.
struct Modelled {
    buffer: Buffer,
    expected: Vec<u8>,
    last: Option<Stream>,
}

/// One thread's program.
struct Program {
    machine: Arc<Machine>,
    streams: Vec<Stream>,
    buffers: Vec<Modelled>,
    random: Numbers,
}

impl Program {
    fn step(&mut self) {
        match self.random.below(12) {
            0 | 1 => self.allocate(),
            2 | 3 => self.copy(),
            4 => self.fill(),
            5 => self.launch(),
            6 => self.copy_from_host(),
            7 => self.copy_to_host(),
            8 => self.compare(),
            9 => self.copy_inside(),
            10 => self.release(),
            _ => self.forget(),
        }
    }

    fn allocate(&mut self) {
        let bytes = [0, 1, 63, 700, 5_000][self.random.below(5)];
        let stream = self.stream();
        self.machine.runtime.exchange_stream(&stream).unwrap();
        let buffer = self.machine.runtime.zeros(bytes, stream.device()).unwrap();
        self.buffers.push(Modelled { buffer, expected: vec![0; bytes], last: Some(stream) });
    }

    fn stream(&mut self) -> Stream {
        let place = self.random.below(self.streams.len());
        self.streams[place].clone()
    }

    fn range(&mut self, bytes: usize) -> Range<usize> {
        let (a, b) = (self.random.below(bytes + 1), self.random.below(bytes + 1));
        a.min(b)..a.max(b)
    }

    /// A buffer, and a stream of its device that is ordered behind its last use.
    fn choose(&mut self) -> Option<(usize, Stream)> {
        let place = self.random.below(self.buffers.len().max(1));
        let device = self.buffers.get(place)?.buffer.device();
        let stream = self.stream_of(device);
        self.order(place, &stream);
        Some((place, stream))
    }

    fn stream_of(&mut self, device: Device) -> Stream {
        loop {
            let stream = self.stream();
            if stream.device() == device {
                return stream;
            }
        }
    }

    fn order(&mut self, place: usize, stream: &Stream) {
        let modelled = &mut self.buffers[place];
        if let Some(last) = modelled.last.replace(stream.clone())
            && last != *stream
        {
            stream.wait_stream(&last).unwrap();
        }
    }

    fn copy(&mut self) {
        let Some((target, stream)) = self.choose() else { return };
        let source = self.random.below(self.buffers.len());
        if source == target {
            return;
        }
        self.order(source, &stream);
        let [to, from] = [target, source].map(|place| self.buffers[place].expected.len());
        let range = self.range(to.min(from));
        let place = self.random.below(from.min(to) - range.len() + 1);
        let place = place..place + range.len();
        let part = self.buffers[source].buffer.slice(range.clone()).unwrap();
        let into = self.buffers[target].buffer.slice(place.clone()).unwrap();
        let copy = into.copy_from(&part, &stream).unwrap();
        let bytes = self.buffers[source].expected[range].to_vec();
        self.buffers[target].expected[place].copy_from_slice(&bytes);
        if self.random.below(8) == 0 {
            copy.wait().unwrap();
        }
    }

    fn copy_inside(&mut self) {
        let Some((place, stream)) = self.choose() else { return };
        let Modelled { buffer, expected, .. } = &mut self.buffers[place];
        let half = expected.len() / 2;
        let (low, high) = (buffer.slice(..half).unwrap(), buffer.slice(half..2 * half).unwrap());
        low.copy_from(&high, &stream).unwrap();
        expected.copy_within(half..2 * half, 0);
    }

    fn fill(&mut self) {
        let Some((place, stream)) = self.choose() else { return };
        let byte = self.random.next().to_le_bytes()[0];
        let range = self.range(self.buffers[place].expected.len());
        let Modelled { buffer, expected, .. } = &mut self.buffers[place];
        buffer.slice(range.clone()).unwrap().fill(byte, &stream).unwrap();
        expected[range].fill(byte);
    }

    /// A function of the user writes through the address; its use is told through a view.
    fn launch(&mut self) {
        let Some((place, stream)) = self.choose() else { return };
        let range = self.range(self.buffers[place].expected.len());
        let Modelled { buffer, expected, .. } = &mut self.buffers[place];
        let (view, bytes) = (buffer.slice(range.clone()).unwrap(), range.len());
        let address = usize::try_from(view.address().unwrap()).unwrap();
        let task = move || {
            let begin: *mut u8 = std::ptr::with_exposed_provenance_mut(address);
            // SAFETY: the view's bytes are there until this use of them is done, were initialised
            // by the fill at the creation, and the streams' order keeps everybody else away.
            let bytes = unsafe { std::slice::from_raw_parts_mut(begin, bytes) };
            for byte in bytes {
                *byte = byte.wrapping_add(1);
            }
        };
        if bytes > 0 {
            stream.enqueue(task).unwrap();
        }
        view.record_use(&stream).unwrap();
        expected[range].iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
    }

    fn copy_from_host(&mut self) {
        let Some((place, stream)) = self.choose() else { return };
        let range = self.range(self.buffers[place].expected.len());
        let bytes: Vec<u8> = range.clone().map(|_| self.random.next().to_le_bytes()[0]).collect();
        let Modelled { buffer, expected, .. } = &mut self.buffers[place];
        expected[range.clone()].copy_from_slice(&bytes);
        let view = buffer.slice(range).unwrap();
        if bytes.len().is_multiple_of(2) {
            view.copy_from_host(bytes, &stream).unwrap();
        } else {
            view.copy_from_slice(&bytes, &stream).unwrap();
        }
    }

    fn copy_to_host(&mut self) {
        let Some((place, stream)) = self.choose() else { return };
        let range = self.range(self.buffers[place].expected.len());
        let Modelled { buffer, expected, .. } = &self.buffers[place];
        let view = buffer.slice(range.clone()).unwrap();
        let copy = view.copy_to_host(vec![0; range.len()], &stream).unwrap();
        if expected.len().is_multiple_of(3) {
            drop(copy);
        } else {
            assert_eq!(copy.wait().unwrap(), expected[range]);
        }
    }

    fn compare(&mut self) {
        let Some((place, _)) = self.choose() else { return };
        let modelled = &self.buffers[place];
        assert_eq!(modelled.buffer.read_to_vec().unwrap(), modelled.expected);
    }

    fn release(&mut self) {
        let Some((place, stream)) = self.choose() else { return };
        let Modelled { buffer, .. } = self.buffers.swap_remove(place);
        let view = buffer.clone();
        buffer.release().unwrap();
        assert!(matches!(view.fill(0, &stream), Err(Error::Memory(MemoryError::Released { .. }))));
    }

    fn forget(&mut self) {
        if !self.buffers.is_empty() {
            let place = self.random.below(self.buffers.len());
            self.buffers.swap_remove(place);
        }
    }
}

fn run(cpu_devices: usize, settings: &str, seed: u64) {
    let config =
        Config::builder().cpu_devices(cpu_devices).allocator_settings(settings).build().unwrap();
    let machine = Arc::new(Machine::cpu_with(&config));
    let on = |number: usize| machine.devices[number % cpu_devices];
    let streams: Vec<Stream> = (0..STREAMS).map(|number| machine.stream_on(on(number))).collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (machine, streams) = (Arc::clone(&machine), streams.clone());
            let random = Numbers::new(seed.wrapping_add(thread));
            scope.spawn(move || {
                let mut program = Program { machine, streams, buffers: Vec::new(), random };
                for _ in 0..STEPS {
                    program.step();
                }
                for modelled in &program.buffers {
                    assert_eq!(modelled.buffer.read_to_vec().unwrap(), modelled.expected);
                }
            });
        }
    });
    machine.assert_nothing_taken();
}

#[test]
fn random_programs_end_with_the_bytes_of_a_plain_model() {
    for cpu_devices in [1, 3] {
        finishes(move || {
            let seed = seed();
            let policies = ["policy:native", "policy:torch"].into_iter().cycle();
            for (round, settings) in (0..12).zip(policies) {
                run(cpu_devices, settings, seed.wrapping_add(round * 1_000));
            }
        });
    }
}
