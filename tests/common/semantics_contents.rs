//! What each unit of memory holds while programs of the semantics run, and when their tasks do.
//!
//! Each task numbers its start and end; accesses write and compare numbers in the first word of
//! each unit.
#![expect(unsafe_code, reason = "tasks access memory by its address, as native code does")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use accelrt::{Buffer, Config, FfiCall, Runtime, Stream};

use crate::numbers::Numbers;
use crate::semantics::machine::{Access, Node};
use crate::semantics::program::Shape;
use crate::semantics_run::{Body, Probe, Run, World};

/// When a task began and ended, in numbers of one sequence.
#[derive(Debug, Default)]
struct Times {
    start: AtomicU64,
    end: AtomicU64,
}

/// What the tasks of a run share.
#[derive(Debug, Default)]
struct Shared {
    clock: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

/// An access as a task makes it: where, and the numbers that it writes or expects.
#[derive(Debug)]
struct Words {
    addresses: Vec<u64>,
    writes: bool,
    numbers: Vec<u64>,
    is_compared: bool,
}

impl Words {
    /// Writes the numbers; or reads, and says which differ.
    fn touch(&self) -> Option<String> {
        let mut wrong = None;
        for (&address, &number) in self.addresses.iter().zip(&self.numbers) {
            // SAFETY: the unit lies in an allocation whose free comes behind this recorded use, and
            // starts at a multiple of 64 bytes. Whatever else accesses it meanwhile is atomic too:
            // programs with copies have no races.
            let word =
                unsafe { &*std::ptr::with_exposed_provenance::<AtomicU64>(as_usize(address)) };
            if self.writes {
                word.store(number, Ordering::Relaxed);
            } else {
                let read = word.load(Ordering::Relaxed);
                if self.is_compared && read != number {
                    wrong = Some(format!("read {read} at {address:#x}, expected {number}"));
                }
            }
        }
        wrong
    }
}

/// What each unit holds once everything so far has run, and when tasks did.
pub(crate) struct Contents {
    /// By life, the number that each unit has.
    units: Vec<Vec<u64>>,
    is_compared: bool,
    /// By node.
    times: BTreeMap<Node, Arc<Times>>,
    shared: Arc<Shared>,
}

impl Contents {
    /// A task that numbers its start and its end.
    fn stamped<F>(&mut self, node: Node, body: F) -> Body
    where
        F: FnOnce() -> Option<String> + Send + 'static,
    {
        let (times, shared) = (Arc::new(Times::default()), Arc::clone(&self.shared));
        self.times.insert(node, Arc::clone(&times));
        Box::new(move || {
            let now = || 1 + shared.clock.fetch_add(1, Ordering::SeqCst);
            times.start.store(now(), Ordering::SeqCst);
            if let Some(wrong) = body() {
                shared.wrong.lock().unwrap().push(format!("task {node} {wrong}"));
            }
            times.end.store(now(), Ordering::SeqCst);
        })
    }

    /// The access with its addresses and numbers; a write changes the contents.
    fn words(&mut self, world: &World, access: &Access, node: Node) -> Words {
        let Access { life, range, writes, .. } = access;
        if *writes {
            self.units[*life][range.clone()].fill(node as u64);
        }
        let begin = world.slice(access).address().unwrap();
        let unit = |place: usize| begin + (place * world.unit_bytes) as u64;
        Words {
            addresses: (0..range.len()).map(unit).collect(),
            numbers: self.units[*life][range.clone()].to_vec(),
            writes: *writes,
            is_compared: self.is_compared,
        }
    }
}

impl Probe for Contents {
    fn task(&mut self, world: &World, stream: usize, accesses: &[Access], node: Node) -> Body {
        let words = accesses.iter().map(|access| self.words(world, access, node));
        let words: Vec<Words> = words.collect();
        let used: Vec<Buffer> = accesses.iter().map(|access| world.slice(access)).collect();
        let stream = world.stream(stream).clone();
        let task = self.stamped(node, move || words.iter().find_map(Words::touch));
        Box::new(move || launch(&stream, task, &used))
    }

    fn callable(&mut self, body: Body, node: Node) -> Body {
        self.stamped(node, || {
            body();
            None
        })
    }

    fn copied(&mut self, _: &World, _: usize, [from, to]: &[Access; 2], _: Node) {
        let copied = self.units[from.life][from.range.clone()].to_vec();
        self.units[to.life][to.range.clone()].copy_from_slice(&copied);
    }

    fn host_access(&mut self, world: &World, access: &Access, node: Node) {
        let (words, buffer) = (self.words(world, access, node), world.slice(access));
        buffer.wait_for_host().unwrap();
        if let Some(wrong) = words.touch() {
            self.shared.wrong.lock().unwrap().push(format!("the host's access {node} {wrong}"));
        }
    }

    fn allocated(&mut self, world: &World) {
        let buffer = world.buffers.last().and_then(Option::as_ref).expect("a new one");
        self.units.push(vec![0; buffer.nbytes() / world.unit_bytes]);
    }
}

impl Run<Contents> {
    pub(crate) fn new(shape: &Shape, is_compared: bool, numbers: &mut Numbers) -> Self {
        let config = Config::builder().cpu_devices(shape.devices).cpu_threads(1 + numbers.below(3));
        let runtime = Runtime::new(config.build().unwrap()).unwrap();
        let (units, times, shared) = (Vec::new(), BTreeMap::new(), Arc::default());
        let contents = Contents { units, is_compared, times, shared };
        Self::on(runtime, shape, [64, 4096, 256 << 10][numbers.below(3)], contents)
    }

    /// Waits for everything; then nothing was read that should not have been, and each task began
    /// behind the end of all that is before it.
    pub(crate) fn finish(&self) -> Result<(), String> {
        self.world.wait_for_everything();
        let Contents { times, shared, .. } = &self.probe;
        if let Some(wrong) = shared.wrong.lock().unwrap().first() {
            return Err(wrong.clone());
        }
        for (second, later) in times {
            let start = later.start.load(Ordering::SeqCst);
            for (first, earlier) in times.range(..second) {
                let end = earlier.end.load(Ordering::SeqCst);
                if self.world.truth.is_before(*first, *second) && end >= start {
                    return Err(format!("task {second} began before task {first} had ended"));
                }
            }
        }
        Ok(())
    }
}

/// Launches a C function that runs the task, as Python's native functions are launched: with the
/// buffers that it uses.
fn launch(stream: &Stream, task: Body, used: &[Buffer]) {
    extern "C" fn run(task: *mut Body) {
        // SAFETY: made by `into_raw` below, for this call alone.
        let task = unsafe { Box::from_raw(task) };
        task();
    }
    let argument = Box::into_raw(Box::new(task));
    let call = FfiCall::new(run as *const _, &[(argument.expose_provenance() as u64).into()]);
    let used: Vec<&Buffer> = used.iter().collect();
    // SAFETY: `run` takes one pointer, to a task that is there until it runs; no task here fails or
    // is cancelled, so each runs once.
    unsafe { stream.launch_with_buffers(call.unwrap(), &used) }.unwrap();
}

fn as_usize(address: u64) -> usize {
    usize::try_from(address).expect("an address")
}
