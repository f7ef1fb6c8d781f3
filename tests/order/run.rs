//! Runs a program, asking the model at every answer of the runtime and once more at the end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use accelrt::Runtime;
use accelrt_testing::null::NullBackend;

use crate::model::{Candidates, Model, Trace};
use crate::program::{Op, Parameters, Program};
use crate::world::{Body, Outcome, Slot, World, must, possible, raised};

/// Polls after which a null device must have reached what was submitted: more than any program has.
const POLLS: usize = 100_000;

/// Runs the program; why it failed, if it did.
pub(crate) fn run(program: &Program) -> Outcome {
    let (runtime, null, world) = World::build(&program.parameters)?;
    let host = |ops: &[Op]| ops.iter().try_for_each(|op| world.step(&runtime, op));
    let outcomes: Vec<Outcome> = thread::scope(|scope| {
        let threads: Vec<_> = program.hosts.iter().map(|ops| scope.spawn(|| host(ops))).collect();
        let panicked = |_| Err("a host thread panicked".to_owned());
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    });
    outcomes.into_iter().collect::<Outcome>()?;
    world.settle(&runtime)?;
    world.check_everything_is_done()?;
    let report = runtime.shutdown();
    if report.num_cancelled_tasks > 0 {
        return Err(format!("a settled runtime left something: {report:?}"));
    }
    world.check_order()?;
    // A thread that got no processor to end on may still hold a stream with its counts.
    let is_exact = report.num_busy_threads == 0;
    world.check_counts(&runtime, is_exact)?;
    drop((runtime, world));
    null.map_or(Ok(()), |null| check_nothing_is_left(&null))
}

impl World {
    fn step(self: &Arc<Self>, runtime: &Runtime, op: &Op) -> Outcome {
        match *op {
            Op::Task { slot, fails, is_large, spins } => {
                let slot = self.slot(slot);
                self.enqueue(&slot, Body::Plain { fails, spins }, is_large).map(drop)
            }
            Op::Burst { slot, count } => {
                let slot = self.slot(slot);
                let plain = || Body::Plain { fails: false, spins: 0 };
                (0..count).try_for_each(|_| self.enqueue(&slot, plain(), false).map(drop))
            }
            Op::Spawn { slot, onto } => {
                let (slot, world) = (self.slot(slot), Arc::clone(self));
                self.enqueue(&slot, Body::Spawn { world, onto }, false).map(drop)
            }
            Op::BlockingTask { slot, on } => self.enqueue_blocking(slot, on),
            Op::Record { event, slot } => self.record(event, slot),
            Op::Wait { event, slot } => self.wait(event, slot),
            Op::RacyWait { event, slot } => self.wait_in_a_race(event, slot),
            Op::WaitStream { slot, other } => self.wait_stream(slot, other),
            Op::AskOrdered { event, slot } => self.ask_ordered(event, slot),
            Op::QueryEvent { event } => self.query_event(event),
            Op::QueryStream { slot } => self.query_stream(slot),
            Op::SynchronizeStream { slot } => self.synchronize_stream(slot),
            Op::SynchronizeEvent { event } => self.synchronize_event(event),
            Op::SynchronizeDevice { device } => self.synchronize_device(runtime, device),
            Op::ReplaceStream { slot, priority } => self.replace(runtime, slot, priority),
        }
    }

    fn enqueue_blocking(&self, slot: usize, on: usize) -> Outcome {
        let [slot, on] = self.two_slots(slot, on);
        // An event of its own: what the task waits for is what was queued before the task.
        let record = self.model().record_once(on.model);
        let event = must(on.stream.record_event(), "record_event")?;
        let task = self.enqueue(&slot, Body::Wait { event }, false)?;
        self.model().waited_inside.push((record, task));
        Ok(())
    }

    fn record(&self, event: usize, slot: usize) -> Outcome {
        let events = &self.events[event];
        let (_turn, slot) = (events.turn.lock().unwrap(), self.slot(slot));
        self.model().begin_record(event, slot.model);
        must(slot.stream.record(&events.event), "record")?;
        self.model().end_record(event);
        Ok(())
    }

    fn wait(&self, event: usize, slot: usize) -> Outcome {
        let events = &self.events[event];
        let (_turn, slot) = (events.turn.lock().unwrap(), self.slot(slot));
        must(slot.stream.wait_event(&events.event), "wait_event")?;
        self.model().wait_event(slot.model, event);
        Ok(())
    }

    fn wait_in_a_race(&self, event: usize, slot: usize) -> Outcome {
        if self.parameters.is_predictable() {
            return self.wait(event, slot);
        }
        let slot = self.slot(slot);
        let candidates = self.model().begin_race(event);
        must(slot.stream.wait_event(&self.events[event].event), "wait_event")?;
        self.model().wait_in_a_race(slot.model, event, candidates);
        Ok(())
    }

    fn wait_stream(&self, slot: usize, other: usize) -> Outcome {
        if slot == other {
            let slot = self.slot(slot);
            return must(slot.stream.wait_stream(&slot.stream), "wait_stream for itself");
        }
        let [slot, other] = self.two_slots(slot, other);
        must(slot.stream.wait_stream(&other.stream), "wait_stream")?;
        self.model().wait_stream(slot.model, other.model);
        Ok(())
    }

    fn ask_ordered(&self, event: usize, slot: usize) -> Outcome {
        let events = &self.events[event];
        let (_turn, slot) = (events.turn.lock().unwrap(), self.slot(slot));
        let is_ordered = slot.stream.is_ordered_after(&events.event);
        let model = self.model();
        let loose = model.latest_record(event).and_then(|one| model.unordered(slot.model, one));
        match loose.filter(|_| is_ordered) {
            None => Ok(()),
            Some(task) => Err(format!("is_ordered_after ran ahead: task {task} is not ordered")),
        }
    }

    fn query_event(&self, event: usize) -> Outcome {
        let candidates = self.model().begin_race(event);
        let is_done = self.events[event].event.is_done();
        self.check_event(event, candidates, is_done, "query")
    }

    /// What an event said, which may have been of any record during the call.
    fn check_event(
        &self,
        event: usize,
        candidates: Candidates,
        is_done: bool,
        what: &str,
    ) -> Outcome {
        let model = self.model();
        let records = model.end_race(event, candidates);
        let unfinished = |record: &usize| model.unfinished(Some(*record)).is_some();
        if is_done && !records.is_empty() && records.iter().all(unfinished) {
            return Err(format!("event {event}: {what} before its tasks were over"));
        }
        Ok(())
    }

    fn query_stream(&self, slot: usize) -> Outcome {
        let (slot, last) = self.read(slot);
        if slot.stream.is_done()
            && let Some(task) = self.model().unfinished(last)
        {
            return Err(format!("a stream's query says done, task {task} is not"));
        }
        Ok(())
    }

    /// A slot, and what was enqueued there last.
    fn read(&self, slot: usize) -> (Slot, Option<usize>) {
        // Both while the slot is held: a task is entered in the model just before it is enqueued.
        let slot = self.slot(slot);
        let last = self.model().last(slot.model);
        (slot.clone(), last)
    }

    fn synchronize_stream(&self, slot: usize) -> Outcome {
        let (slot, last) = self.read(slot);
        let raised = raised(slot.stream.synchronize(), "a stream's synchronise")?;
        let mut model = self.model();
        if let Some(task) = model.unfinished(last) {
            return Err(format!("a stream is synchronised, task {task} is not over"));
        }
        self.compare(model.clear_error(slot.model), raised, "a stream's synchronise")
    }

    fn synchronize_event(&self, event: usize) -> Outcome {
        let candidates = self.model().begin_race(event);
        let result = self.events[event].event.synchronize();
        let raised = raised(result, "an event's synchronise")?;
        self.check_event(event, candidates, true, "synchronised")?;
        let model = self.model();
        let record = model.latest_record(event);
        let expected = record.is_some_and(|record| model.enqueued[record].is_failed);
        self.compare(expected, raised, "an event's synchronise")
    }

    fn synchronize_device(&self, runtime: &Runtime, device: usize) -> Outcome {
        let on_device = |slot: &usize| slot % self.parameters.devices == device;
        let slots: Vec<_> = (0..self.slots.len()).filter(on_device).collect();
        let read: Vec<_> = slots.into_iter().map(|slot| self.read(slot)).collect();
        let result = runtime.synchronize(self.parameters.device(device));
        let raised = raised(result, "a device's synchronise")?;
        let mut model = self.model();
        let mut expected = false;
        for (slot, last) in read {
            if let Some(task) = model.unfinished(last) {
                return Err(format!("device {device} is synchronised, task {task} is not over"));
            }
            expected |= model.clear_error(slot.model);
        }
        // A stream that is gone may have taken its error along, or not yet.
        let is_known = !model.dropped_errors.contains(&device);
        if is_known { self.compare(expected, raised, "a device's synchronise") } else { Ok(()) }
    }

    fn compare(&self, expected: bool, raised: bool, what: &str) -> Outcome {
        if self.parameters.is_predictable() && expected != raised {
            return Err(format!("{what} raised an error: {raised}, expected {expected}"));
        }
        if raised && !self.parameters.has_failures {
            return Err(format!("{what} raised an error, and no task fails"));
        }
        Ok(())
    }

    fn replace(&self, runtime: &Runtime, number: usize, priority: i32) -> Outcome {
        let device = self.parameters.device(number);
        let priority = possible(runtime, device, priority);
        let stream = must(runtime.stream_with_priority(device, priority), "a dedicated stream")?;
        let mut slot = self.slot(number);
        let mut model = self.model();
        if model.has_error(slot.model) {
            model.dropped_errors.push(device.index());
        }
        let model_number = model.add_stream(number % self.parameters.devices);
        drop(model);
        let replaced = std::mem::replace(&mut *slot, Slot { stream, model: model_number });
        drop((slot, replaced));
        Ok(())
    }

    /// Waits for everything, twice: the first time, tasks may still enqueue.
    fn settle(&self, runtime: &Runtime) -> Outcome {
        for device in (0..self.parameters.devices).cycle().take(2 * self.parameters.devices) {
            let result = runtime.synchronize(self.parameters.device(device));
            raised(result, "the last synchronise")?;
        }
        for (number, slot) in self.events.iter().enumerate() {
            // Of a stream that is gone a real device may be busy with what it has: no number of
            // questions is enough.
            if !self.parameters.counts_polls() {
                raised(slot.event.synchronize(), "an event's last synchronise")?;
            }
            if !(0..POLLS).any(|_| slot.event.is_done()) {
                return Err(format!("event {number} is never done"));
            }
        }
        Ok(())
    }

    fn check_everything_is_done(&self) -> Outcome {
        for number in 0..self.slots.len() {
            let (slot, last) = self.read(number);
            if !slot.stream.is_done() {
                return Err(format!("slot {number} is settled and not done"));
            }
            if let Some(task) = self.model().unfinished(last) {
                return Err(format!("slot {number} is settled, task {task} is not over"));
            }
            for event in 0..self.events.len() {
                if !slot.stream.is_ordered_after(&self.events[event].event) {
                    return Err(format!("event {event} is done, slot {number} not ordered after"));
                }
            }
        }
        Ok(())
    }
}

fn check_nothing_is_left(null: &NullBackend) -> Outcome {
    let live = null.resource_counts();
    let is_clean = live.streams == 0 && live.marks == 0;
    if is_clean { Ok(()) } else { Err(format!("the null device is left with {live:?}")) }
}

impl World {
    /// Law 4: everything runs behind what is before it.
    fn check_order(&self) -> Outcome {
        let model = self.model();
        let latest = model.latest_ends();
        let (ran, trace) = (|n: usize| trace_of(&model, n).did_run(), |n| trace_of(&model, n));
        for (number, node) in model.enqueued.iter().enumerate() {
            let Some(task) = &node.task else { continue };
            let began = if task.did_run() { &task.start } else { &task.end };
            let (end, before) = latest[number];
            if began.load(Ordering::SeqCst) < end {
                return Err(format!("task {number} began before task {before} was over"));
            }
        }
        for &(parent, child) in &model.spawned {
            let child_start = trace(child).start.load(Ordering::SeqCst);
            if ran(child) && child_start < trace(parent).start.load(Ordering::SeqCst) {
                return Err(format!("task {child} began before {parent}, which enqueued it"));
            }
        }
        for &(record, task) in model.waited_inside.iter().filter(|pair| ran(pair.1)) {
            let (end, before) = latest[record];
            if trace(task).end.load(Ordering::SeqCst) < end {
                return Err(format!("task {task} waited for {before} and was over before it"));
            }
            let said = trace(task).waited.load(Ordering::SeqCst);
            self.compare(model.enqueued[record].is_failed, said == 2, "a wait inside a task")?;
        }
        Ok(())
    }

    /// Law 5: every task ran once or is counted as skipped, and none is neither or both.
    fn check_counts(&self, runtime: &Runtime, is_exact: bool) -> Outcome {
        let model = self.model();
        let mut skipped = 0;
        for (number, node) in model.enqueued.iter().enumerate() {
            let Some(task) = &node.task else { continue };
            let (runs, drops) = (&task.runs, &task.drops);
            let (runs, drops) = (runs.load(Ordering::SeqCst), drops.load(Ordering::SeqCst));
            if runs > 1 || drops != 1 {
                return Err(format!("task {number} ran {runs} times, was dropped {drops} times"));
            }
            if self.parameters.is_predictable() && (runs == 0) != node.is_failed {
                return Err(format!("task {number} ran {runs} times; skip: {}", node.is_failed));
            }
            skipped += 1 - runs;
        }
        let counted = runtime.counters().num_skipped_tasks;
        let is_right = if is_exact { counted == skipped } else { counted <= skipped };
        if !is_right || (skipped > 0 && !self.parameters.has_failures) {
            return Err(format!("{skipped} tasks did not run, {counted} are counted as skipped"));
        }
        Ok(())
    }
}

fn trace_of(model: &Model, task: usize) -> &Trace {
    model.enqueued[task].task.as_ref().expect("a task")
}

impl Parameters {
    /// How to run this again.
    pub(crate) fn advice(&self) -> String {
        format!("ACCELRT_TEST_SEED={} repeats this program: {self:?}", self.seed)
    }
}
