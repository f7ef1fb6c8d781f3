//! A schedule that is followed: runnable streams, whose turn it is, and the virtual clock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ThreadId, yield_now};
use std::time::{Duration, Instant};

use accelrt::backend::contract::Turn;
use accelrt::internal::{
    Clock, Interrupt, Lifecycle, LockRank, Mutex, OperationKind, ScheduledStream, Scheduler,
    TaskWatch, frames, park,
};
use accelrt::{ConfigError, Error, Result, Runtime};

use crate::schedule::Schedule;
use crate::strategy::{Candidate, Chooser};

/// How long a thread's step keeps others from theirs. A task that blocks until another thread has
/// gone on does not hang the program: from here on the order is no longer the seed's alone. Inside
/// a task a thread is more patient where nothing that it needs can run: others could need its own.
const PATIENCE: Duration = Duration::from_millis(200);

/// How often a thread looks again that waits while no stream is runnable.
const PERIOD: Duration = Duration::from_micros(200);

/// No stream has this key.
const ANY: u64 = 0;

/// True while a schedule is followed: the process has one clock.
static IS_FOLLOWED: AtomicBool = AtomicBool::new(false);

struct SeededScheduler {
    state: Mutex<State>,
    /// The number of users' tasks that have run.
    ended: AtomicU64,
    /// The number of streams that the commands of a step have made runnable.
    woken: AtomicU64,
}

struct State {
    chooser: Chooser,
    runnable: Vec<Arc<dyn ScheduledStream>>,
    now_ns: u64,
    stepping: Option<Step>,
}

/// The thread inside a step, and since when.
type Step = (ThreadId, Instant);

impl SeededScheduler {
    fn new(schedule: Schedule) -> Arc<Self> {
        let chooser = Chooser::new(schedule);
        let state = State { chooser, runnable: Vec::new(), now_ns: 0, stepping: None };
        let state = Mutex::new(LockRank::RunQueue, state);
        Arc::new(Self { state, ended: AtomicU64::new(0), woken: AtomicU64::new(0) })
    }

    /// Inside a task, the key of a runnable stream that is the awaited stream, or that the awaited
    /// stream waits for, directly or through other streams.
    fn needed(&self, awaited: u64) -> Option<u64> {
        let runnable = frames::is_inside_task().then(|| self.state.lock().runnable.clone());
        runnable?.iter().find(|stream| is_needed_by(stream, awaited)).map(|stream| stream.key())
    }

    /// Begins a step of this thread. Returns the stream to run, and the outer step if this thread
    /// is inside one. The stream is `needed` if that is runnable, else the strategy's choice.
    /// Returns `None` while another thread makes a step, and when no stream is runnable.
    fn begin(&self, needed: Option<u64>) -> Option<(Arc<dyn ScheduledStream>, Option<Step>)> {
        let own = thread::current().id();
        let is_lost = needed.is_none() && frames::is_inside_task();
        let patience = if is_lost { PATIENCE * 10 } else { PATIENCE };
        loop {
            let mut state = self.state.lock();
            let outer = state.stepping.filter(|(thread, _)| *thread == own);
            let is_other = |(_, since): &Step| since.elapsed() < patience;
            if outer.is_none() && state.stepping.as_ref().is_some_and(is_other) {
                return None;
            }
            let done = state.runnable.iter().position(|stream| !stream.is_needed());
            if let Some(place) = done {
                let stream = state.runnable.remove(place);
                drop(state); // it may come back at once
                stream.give_up();
                continue;
            }
            let candidate = |stream: &Arc<dyn ScheduledStream>| Candidate {
                key: stream.key(),
                priority: stream.priority(),
            };
            let candidates: Vec<Candidate> = state.runnable.iter().map(candidate).collect();
            if candidates.is_empty() {
                return None;
            }
            let place = candidates.iter().position(|it| Some(it.key) == needed);
            let place = place.unwrap_or_else(|| state.chooser.choose(&candidates));
            state.stepping = Some((own, Instant::now()));
            return Some((state.runnable.remove(place), outer));
        }
    }

    /// Makes one step: runs the commands of one stream up to and including the next user's task.
    /// The step ends earlier after a command that makes another stream runnable, because the
    /// scheduler may choose that stream before the task.
    ///
    /// Inside a task, the step runs only one command, of a stream that the awaited stream needs if
    /// one is runnable. A task of another stream could wait for the task that this thread is inside
    /// of, and so never return.
    fn step_towards(&self, awaited: u64) -> bool {
        let needed = self.needed(awaited);
        let Some((stream, outer)) = self.begin(needed) else { return false };
        // Relaxed: tasks of this thread's turn are counted by this thread.
        let count = || (self.ended.load(Ordering::Relaxed), self.woken.load(Ordering::Relaxed));
        let before = count();
        let is_inside = frames::is_inside_task();
        let is_over = || is_inside || count() != before;
        stream.run(&Turn::new(&is_over, &is_over)); // never panics
        self.end(outer);
        true
    }

    fn end(&self, outer: Option<Step>) {
        let mut state = self.state.lock();
        if state.stepping.is_some_and(|(thread, _)| thread == thread::current().id()) {
            state.stepping = outer;
        }
    }
}

/// True for the awaited stream, and for streams that it waits for, directly or through others.
fn is_needed_by(stream: &Arc<dyn ScheduledStream>, awaited: u64) -> bool {
    let (mut seen, mut left) = (Vec::new(), vec![Arc::clone(stream)]);
    while let Some(next) = left.pop() {
        if next.key() == awaited {
            return true;
        }
        if !seen.contains(&next.key()) {
            seen.push(next.key());
            left.extend(next.parked_behind());
        }
    }
    false
}

impl Scheduler for SeededScheduler {
    fn add(&self, stream: Arc<dyn ScheduledStream>) {
        // Else a step could run several tasks, and a waiting thread could run the stream without a
        // step.
        stream.request_single_steps();
        let mut state = self.state.lock();
        state.runnable.push(stream);
        // Streams that other threads make runnable do not end the step: their timing is not the
        // schedule's.
        if state.stepping.is_some_and(|(thread, _)| thread == thread::current().id()) {
            self.woken.fetch_add(1, Ordering::Relaxed); // Relaxed: as in `step_towards`
        }
    }

    fn step(&self) -> bool {
        self.step_towards(ANY)
    }

    fn follow(
        &self,
        awaited: u64,
        is_over: &dyn Fn() -> bool,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<()> {
        let mut last_check = Instant::now();
        while !is_over() {
            if !self.step_towards(awaited) {
                park(interrupt.longest_sleep(Some(PERIOD)));
            }
            interrupt.check(&mut last_check)?;
        }
        Ok(())
    }

    fn end_task(&self, operation: OperationKind, bytes: usize) {
        self.ended.fetch_add(1, Ordering::Relaxed); // Relaxed: as in `step_towards`
        let mut state = self.state.lock();
        state.now_ns = state.now_ns.saturating_add(state.chooser.duration_ns(operation, bytes));
        Clock::get().set_virtual(Some(state.now_ns));
    }
}

/// A schedule that a runtime follows, until the drop or the runtime's end, which it does not delay.
/// The drop first runs what is runnable; the workers run what becomes runnable later.
#[must_use = "the drop ends the schedule"]
pub struct Scheduled {
    lifecycle: Arc<Lifecycle>,
    scheduler: Arc<SeededScheduler>,
    _watch: TaskWatch,
}

impl Schedule {
    /// Lets the streams of cpu devices follow the schedule until the drop of what is returned.
    /// First waits for all work. Fails while another schedule is followed in this process, because
    /// the process has one clock.
    ///
    /// No worker thread runs tasks meanwhile. A thread that waits runs them, one after the other,
    /// and a query such as [`Event::is_done`](accelrt::Event::is_done) runs one. If one thread
    /// enqueues, the same seed gives the same order, times and memory offsets in every process. If
    /// several do, each of them sees its own work in the order of the seed, but the order between
    /// their tasks can differ.
    pub fn start(self, runtime: &Runtime) -> Result<Scheduled> {
        Scheduled::start(self, runtime)
    }
}

impl Scheduled {
    pub(crate) fn start(schedule: Schedule, runtime: &Runtime) -> Result<Self> {
        // Acquire: pairs with the release in the drop; the clock is this schedule's now.
        if IS_FOLLOWED.swap(true, Ordering::Acquire) {
            let (name, value) = ("a schedule's seed", schedule.seed.to_string());
            let allowed = "one schedule at a time in a process, and another one is followed";
            return Err(Error::Config(ConfigError::InvalidSetting { name, value, allowed }));
        }
        let lifecycle = runtime.lifecycle();
        let scheduled = Self {
            lifecycle: Arc::clone(lifecycle),
            scheduler: SeededScheduler::new(schedule),
            _watch: lifecycle.watch(None),
        };
        for stream in runtime.all_streams() {
            stream.wait_ticket(stream.pushed(), false, &mut Interrupt::default())?;
            while !stream.is_idle() {
                yield_now(); // a worker lingers, or has still to find that nothing is left
            }
        }
        Clock::get().set_virtual(Some(0));
        lifecycle.set_scheduler(Some(Arc::clone(&scheduled.scheduler) as _));
        Ok(scheduled)
    }

    /// How many times a runnable stream went.
    #[must_use]
    pub fn num_steps(&self) -> u64 {
        self.scheduler.state.lock().chooser.num_steps()
    }

    /// At how many of these steps several streams were runnable. Where it is 0, every seed and the
    /// workers have the same order: the run has shown nothing.
    #[must_use]
    pub fn num_choices(&self) -> u64 {
        self.scheduler.state.lock().chooser.num_choices()
    }

    /// Runs what is runnable.
    pub(crate) fn finish(&self) {
        while self.lifecycle.step() {}
    }
}

impl Drop for Scheduled {
    fn drop(&mut self) {
        self.finish();
        self.lifecycle.set_scheduler(None);
        let left = std::mem::take(&mut self.scheduler.state.lock().runnable);
        for stream in left {
            stream.submit();
        }
        Clock::get().set_virtual(None);
        IS_FOLLOWED.store(false, Ordering::Release); // Release: pairs with the start
    }
}

impl fmt::Debug for Scheduled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduled").field("num_steps", &self.num_steps()).finish_non_exhaustive()
    }
}
