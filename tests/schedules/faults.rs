//! The whole runtime under schedules with calls that fail: no hang, no leak, no task lost or twice.
//!
//! Goal: laws 2, 4, 5 and 6 whatever order a seed chooses and whichever calls fail. Method: random
//! actions on several streams and devices, over a cpu kind that fails some calls which the same
//! seed chooses. Every outcome is a success or an error; at the end nothing fails any more, and all
//! memory is back. `ACCELRT_TEST_SEED` and `ACCELRT_TEST_PROGRAMS` as in `programs`.

use std::sync::{Arc, Mutex};

use accelrt::backend::cpu::CpuBackend;
use accelrt::{Buffer, Config, Device, Event, Runtime, Stream};
use accelrt_testing::fault::{Fault, FaultBackend, FaultError, Method};
use accelrt_testing::{FaultPlan, Schedule, heed_faults};

use crate::asked::asked;
use crate::hang::Watchdog;
use crate::numbers::Numbers;
use crate::programs::strategy;
use crate::support::turn;

const NUM_DEVICES: usize = 2;
const NUM_STREAMS: usize = 5;
const NUM_EVENTS: usize = 3;
const LARGEST_BYTES: usize = 4 << 20;
/// So little that programs run out of it without a fault, too.
const CAPACITY_BYTES: usize = 16 << 20;
const REPEATED: u64 = 20;

/// The methods that fail.
const METHODS: [Method; 5] =
    [Method::Allocate, Method::VmCreate, Method::VmMap, Method::Copy, Method::Fill];

struct Run {
    numbers: Numbers,
    runtime: Runtime,
    streams: Vec<Stream>,
    events: Vec<Event>,
    buffers: Vec<Buffer>,
    /// By stream, the numbers of the tasks that ran.
    ran: Arc<Mutex<Vec<Vec<u64>>>>,
    num_tasks: u64,
    /// What the program saw, one line an action.
    seen: Vec<String>,
}

impl Run {
    fn stream(&mut self) -> usize {
        self.numbers.below(NUM_STREAMS)
    }

    fn buffer(&mut self) -> Option<Buffer> {
        let place = self.numbers.below(self.buffers.len().max(1));
        self.buffers.get(place).cloned()
    }

    /// Notes what came of an action, without addresses.
    fn see<T>(&mut self, what: &str, outcome: accelrt::Result<T>) -> Option<T> {
        let said = outcome
            .as_ref()
            .err()
            .map_or("passes".to_owned(), |error| format!("{:?}", error.kind()));
        self.seen.push(format!("{what} {said}"));
        outcome.ok()
    }

    fn act(&mut self) {
        let (stream, event) = (self.stream(), self.numbers.below(NUM_EVENTS));
        let (own, other) = (self.streams[stream].clone(), self.stream());
        let event = self.events[event].clone();
        match self.numbers.below(14) {
            0..4 => {
                let (ran, number) = (Arc::clone(&self.ran), self.num_tasks);
                self.num_tasks += 1;
                let task = move || ran.lock().unwrap()[stream].push(number);
                self.see("task", own.enqueue(task));
            }
            4 => _ = self.see("record", own.record(&event)),
            5 => _ = self.see("wait", own.wait_event(&event)),
            6 => {
                let other = self.streams[other].clone();
                self.see("wait stream", own.wait_stream(&other));
            }
            7..9 => {
                let bytes = 1 + self.numbers.below(LARGEST_BYTES);
                let made = self.runtime.zeros(bytes, own.device());
                let made = self.see("allocate", made);
                self.buffers.extend(made);
            }
            9 => {
                if !self.buffers.is_empty() {
                    let place = self.numbers.below(self.buffers.len());
                    drop(self.buffers.swap_remove(place));
                }
            }
            10 => {
                if let Some(buffer) = self.buffer().filter(|it| it.device() == own.device()) {
                    self.see("fill", buffer.fill(7, &own));
                }
            }
            11 => {
                if let (Some(from), Some(to)) = (self.buffer(), self.buffer()) {
                    let bytes = from.nbytes().min(to.nbytes());
                    let (from, to) = (from.slice(0..bytes), to.slice(0..bytes));
                    let (from, to) = (from.unwrap(), to.unwrap());
                    if from.address().unwrap() != to.address().unwrap() {
                        self.see("copy", to.copy_from(&from, &own));
                    }
                }
            }
            12 => {
                let is_done = event.is_done();
                self.seen.push(format!("poll {is_done}"));
            }
            _ => _ = self.see("synchronize", own.synchronize()),
        }
    }

    /// Nothing fails any more: errors that are left are raised, then all is well.
    fn end(mut self, backend: &FaultBackend) -> Result<Vec<String>, String> {
        backend.clear();
        for device in 0..NUM_DEVICES {
            let waited = self.runtime.synchronize(cpu(device));
            self.see("end", waited);
        }
        self.buffers.clear();
        for device in 0..NUM_DEVICES {
            self.runtime.synchronize(cpu(device)).map_err(|error| format!("still: {error}"))?;
            let allocator =
                self.runtime.allocator(cpu(device)).map_err(|error| error.to_string())?;
            allocator.empty_cache();
            let left = self.runtime.memory_statistics(cpu(device)).unwrap();
            let left = (left.allocated_bytes.all.current, left.active_bytes.all.current);
            if left != (0, 0) {
                return Err(format!("{left:?} bytes of cpu:{device} are not back"));
            }
        }
        for ran in self.ran.lock().unwrap().iter() {
            if !ran.is_sorted() || ran.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err(format!("tasks of a stream ran as {ran:?}"));
            }
        }
        let num_ran: usize = self.ran.lock().unwrap().iter().map(Vec::len).sum();
        let num_failed: u64 = METHODS.map(|method| backend.failures(method)).iter().sum();
        self.seen.push(format!("{num_failed} calls failed"));
        self.seen.push(format!("{num_ran} tasks of {}", self.num_tasks));
        Ok(self.seen)
    }
}

fn cpu(index: usize) -> Device {
    Device::cpu(u8::try_from(index).expect("a few devices"))
}

fn run(seed: u64) -> Result<Vec<String>, String> {
    let mut numbers = Numbers::new(seed);
    let policy = ["native", "torch"][numbers.below(2)];
    let config = Config::builder()
        .cpu_devices(NUM_DEVICES)
        .cpu_memory_bytes(CAPACITY_BYTES)
        .allocator_settings(&format!("policy:{policy}"))
        .build()
        .unwrap();
    let backend = FaultBackend::new(CpuBackend::new(&config).unwrap());
    let runtime = Runtime::with_backends(config, [Arc::<FaultBackend>::clone(&backend) as _]);
    let runtime = runtime.unwrap();
    let schedule = Schedule::new(seed).strategy(strategy(seed)).start(&runtime).unwrap();
    let stream = |stream| runtime.stream(cpu(stream % NUM_DEVICES)).unwrap();
    let streams = (0..NUM_STREAMS).map(stream).collect();
    for _ in 0..numbers.below(4) {
        let method = METHODS[numbers.below(METHODS.len())];
        let out_of_memory = method.takes_memory() && numbers.below(2) == 0;
        let error = if out_of_memory { FaultError::OutOfMemory } else { FaultError::Driver };
        backend.plan(Fault::nth(method, 1 + numbers.below(12) as u64, error));
    }
    let num_actions = 20 + numbers.below(100);
    let mut run = Run {
        numbers,
        streams,
        events: (0..NUM_EVENTS).map(|_| Event::new()).collect(),
        buffers: Vec::new(),
        ran: Arc::new(Mutex::new(vec![Vec::new(); NUM_STREAMS])),
        num_tasks: 0,
        seen: Vec::new(),
        runtime,
    };
    (0..num_actions).for_each(|_| run.act());
    let outcome = run.end(&backend);
    drop(schedule);
    outcome
}

#[test]
fn whatever_fails_nothing_is_lost_leaked_or_run_twice_under_every_schedule() {
    let _turn = turn();
    let watchdog = Watchdog::new("faults under schedules");
    let seed = asked("ACCELRT_TEST_SEED");
    let programs = if seed.is_some() { 1 } else { asked("ACCELRT_TEST_PROGRAMS").unwrap_or(2_000) };
    let mut num_failed = 0;
    for number in 0..programs {
        let seed = seed.unwrap_or(number);
        let advice = format!("ACCELRT_TEST_SEED={seed} repeats this program and its schedule");
        watchdog.step(advice.clone());
        let outcome = run(seed);
        let lines = outcome.as_ref().unwrap_or_else(|wrong| panic!("{wrong}\n{advice}"));
        num_failed += u64::from(
            lines.iter().any(|line| line.ends_with("calls failed") && !line.starts_with("0 ")),
        );
        if seed.is_multiple_of(REPEATED) {
            assert_eq!(run(seed), outcome, "{advice}");
        }
    }
    assert!(programs < 100 || num_failed > programs / 4, "{num_failed} programs met a fault");
}

#[test]
fn a_plan_fails_the_calls_of_one_device_and_none_of_others() {
    let _turn = turn(); // plans are the process's, too
    assert!(heed_faults());
    let config = Config::builder().cpu_devices(NUM_DEVICES).build().unwrap();
    let runtime = Runtime::new(config).unwrap();
    let buffers = [0, 1].map(|index| runtime.zeros(1000, cpu(index)).unwrap());
    let streams = [0, 1].map(|index| runtime.stream(cpu(index)).unwrap());
    let faults = "fill@cpu:1:2".parse::<FaultPlan>().unwrap().start().unwrap();
    let refused = "fill:1".parse::<FaultPlan>().unwrap().start().unwrap_err().to_string();
    assert!(refused.contains("one plan at a time"), "{refused}");
    for (buffer, stream) in buffers.iter().zip(&streams) {
        (0..5).for_each(|number| drop(buffer.fill(number, stream).unwrap()));
    }
    streams[0].synchronize().unwrap();
    let failed = streams[1].synchronize().unwrap_err().to_string();
    assert!(failed.contains("a planned fault of fill"), "{failed}");
    assert_eq!(faults.num_failed(), 1);
    drop(faults);
    buffers[1].fill(1, &streams[1]).unwrap();
    streams[1].synchronize().unwrap();
}

#[test]
fn each_part_of_a_plan_counts_all_of_its_calls_and_those_that_another_part_fails() {
    let _turn = turn();
    assert!(heed_faults());
    let runtime = Runtime::new(Config::default()).unwrap();
    let faults = "fill@cpu:0:1; fill:2; fill:every 4".parse::<FaultPlan>().unwrap();
    let faults = faults.start().unwrap();
    let is_failed = [(); 4].map(|()| {
        let stream = runtime.stream(cpu(0)).unwrap();
        runtime.empty(1000, cpu(0)).unwrap().fill(1, &stream).unwrap();
        stream.synchronize().is_err()
    });
    assert_eq!((is_failed, faults.num_failed()), ([true, true, false, true], 3));
}

#[test]
fn a_call_that_several_parts_of_a_plan_fail_fails_once_and_as_the_first_says() {
    let _turn = turn();
    assert!(heed_faults());
    let runtime = Runtime::new(Config::default()).unwrap();
    let (buffer, stream) = (runtime.zeros(1000, cpu(0)).unwrap(), runtime.stream(cpu(0)).unwrap());
    runtime.synchronize(cpu(0)).unwrap();
    let failed = |plan: &str| {
        let faults = plan.parse::<FaultPlan>().unwrap().start().unwrap();
        buffer.fill(1, &stream).unwrap();
        (stream.synchronize().unwrap_err().to_string(), faults.num_failed())
    };
    let (said, num_failed) = failed("fill:1; fill:from 1; any:from 1");
    assert!(said.contains("code 999") && num_failed == 1, "{said}: {num_failed}");
    let (said, _) = failed("fill:1; lose cpu:0 after 0");
    assert!(said.contains("code 999"), "{said}");
    let (said, _) = failed("lose cpu:0 after 0; fill:1");
    assert!(said.contains("cpu:0 is lost"), "{said}");
}
