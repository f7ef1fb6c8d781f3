//! A host thread that waits for a stream first helps, then spins, then sleeps.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::backend::contract::owned::OwnedMark;
use crate::base::error::{Error, Result, StreamError};
use crate::base::sync::{Ordering, Sleeper, assert_no_lock_held, park, spin_hint};
use crate::base::thread::{longest_park, while_blocked};
use crate::engine::log::record::RecordKind;
use crate::engine::stream::core::{Stop, StreamCore};
use crate::engine::stream::frames;
use crate::engine::stream::interrupt::Interrupt;
use crate::engine::stream::task::catch_panic;
use crate::engine::stream::waiters::Waiter;

/// How long a waiting thread spins before it sleeps.
const SPIN: Duration = Duration::from_micros(4);

/// Spins between two readings of the clock.
const SPINS_PER_READING: u32 = 32;

/// The polling period of a producer above the task limit, and of `wait_done_despite_errors`.
const THROTTLE_PERIOD: Duration = Duration::from_micros(200);

/// The polling period of a thread that waits for a task other than a marker. The marker pushed to
/// wake the thread may be queued behind a long task.
const UNMARKED_PERIOD: Duration = Duration::from_millis(1);

impl StreamCore {
    /// Fails when this thread must not wait for the stream: in a forked child, and inside the
    /// stream's own tasks.
    pub(crate) fn check_wait(&self) -> Result<()> {
        crate::base::fork::check()?;
        assert_no_lock_held();
        if frames::is_inside(self.key()) {
            let (device, stream_id) = (self.identity.device, self.identity.id);
            return Err(Error::Stream(StreamError::WaitInsideTask { device, stream_id }));
        }
        Ok(())
    }

    /// Blocks until the marker `ticket` is retired.
    pub(crate) fn wait_retired(
        self: &Arc<Self>,
        ticket: u64,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<()> {
        if self.progress.retired() >= ticket {
            return Ok(());
        }
        self.check_wait()?;
        if self.help(ticket, interrupt)? {
            return Ok(());
        }
        self.spin_or_sleep(ticket, true, interrupt)
    }

    /// Spins, then sleeps until the task `ticket` is retired.
    fn spin_or_sleep(
        self: &Arc<Self>,
        ticket: u64,
        is_marker: bool,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<()> {
        if self.follow_schedule(ticket, interrupt)? {
            return Ok(());
        }
        let start = self.wait_start();
        if self.spin(ticket, interrupt)? {
            self.log_wait(RecordKind::Spun, ticket, start);
            return Ok(());
        }
        if !is_marker {
            self.push_marker();
        }
        let waited = while_blocked(|| self.sleep(ticket, is_marker, interrupt));
        self.log_wait(RecordKind::Slept, ticket, start);
        waited
    }

    /// Blocks until the task `ticket` is done. On a driver kind, the wait may include later tasks.
    /// The consumer of a marker wakes this thread. For any other task this thread pushes a marker
    /// and polls the counter. The wait raises and clears no error.
    pub fn wait_ticket(
        self: &Arc<Self>,
        ticket: u64,
        is_marker: bool,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<()> {
        if self.progress.done() >= ticket {
            return Ok(());
        }
        if self.progress.retired() < ticket {
            self.check_wait()?;
            if !self.help(ticket, interrupt)? {
                self.spin_or_sleep(ticket, is_marker, interrupt)?;
            }
        }
        if self.on_host { Ok(()) } else { self.wait_reached(ticket, interrupt) }
    }

    /// Blocks until the device has done the task `ticket`, which the consumer must have submitted.
    pub(super) fn wait_reached(&self, ticket: u64, interrupt: &mut Interrupt<'_>) -> Result<()> {
        assert_no_lock_held();
        let start = self.wait_start();
        let marked = self.marks.at(ticket).map_or_else(|| self.mark_now(), Ok);
        let waited = match marked {
            Ok(mark) => wait_for_mark(&mark, interrupt),
            Err(refusal) if interrupt.has_limit() => Err(refusal),
            // Without a mark, this thread can only wait for the driver's whole stream.
            Err(_) => while_blocked(|| self.handle.synchronize()),
        };
        self.log_wait(RecordKind::Slept, ticket, start); // also of a wait that reached its limit
        waited?;
        self.marks.reached(ticket);
        Ok(())
    }

    /// Blocks until the device has reached the mark of the task `ticket`, and records the wait.
    pub(crate) fn wait_at_mark(
        &self,
        ticket: u64,
        mark: &OwnedMark,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<()> {
        let start = self.wait_start();
        let waited = wait_for_mark(mark, interrupt);
        self.log_wait(RecordKind::Slept, ticket, start);
        waited
    }

    /// Blocks until the task `ticket` no longer accesses memory that the caller has lent to it.
    /// Retries when the device refuses a wait or the backend panics.
    pub(crate) fn wait_done_despite_errors(self: &Arc<Self>, ticket: u64) {
        // The result is ignored: what follows waits for the rest.
        let _ = catch_panic(|| self.follow_schedule(ticket, &mut Interrupt::default()));
        while self.progress.retired() < ticket && !crate::base::fork::is_child() {
            park(Some(THROTTLE_PERIOD));
        }
        let is_over =
            || self.on_host || self.progress.done() >= ticket || crate::base::fork::is_child();
        // Retries: a device that refuses the wait may still use the memory, unless it is lost.
        // Catches panics: this function may run while another panic unwinds.
        while !is_over() && !matches!(catch_panic(|| self.wait_idle()), Ok(Ok(()))) {
            park(Some(THROTTLE_PERIOD));
        }
    }

    /// Follows the runtime's schedule until `ticket` is retired. False without a schedule.
    fn follow_schedule(&self, ticket: u64, interrupt: &mut Interrupt<'_>) -> Result<bool> {
        let Some(scheduler) = self.lifecycle.scheduler() else { return Ok(false) };
        let is_over = || self.progress.retired() >= ticket;
        scheduler.follow(self.key(), &is_over, interrupt).map(|()| true)
    }

    /// Executes the stream's tasks up to `ticket`, if this thread may help. True when `ticket` is
    /// retired.
    pub(super) fn help(
        self: &Arc<Self>,
        ticket: u64,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<bool> {
        while !interrupt.has_limit() && self.announce_helper() {
            let Some(mut guard) = self.consumer_lock.enter_to_help() else { break };
            let stop = self.drain_helping(&mut guard, ticket);
            self.leave_and_submit(guard, stop);
            if self.progress.retired() >= ticket {
                return Ok(true);
            }
            match stop {
                Stop::Finished => {}
                // Called outside of the stream, because the check may run a user's signal handler.
                Stop::TimeIsUp => interrupt.check_now()?,
                Stop::Yield | Stop::Blocked => break,
            }
        }
        Ok(self.progress.retired() >= ticket)
    }

    /// Spins for up to [`SPIN`]; helps when the stream becomes idle. True when `ticket` is retired.
    fn spin(self: &Arc<Self>, ticket: u64, interrupt: &mut Interrupt<'_>) -> Result<bool> {
        if is_single_cpu() {
            return Ok(false);
        }
        let started = Instant::now();
        while started.elapsed() < SPIN {
            for _ in 0..SPINS_PER_READING {
                if self.progress.retired() >= ticket {
                    return Ok(true);
                }
                spin_hint();
            }
            if self.consumer_lock.is_idle() && self.help(ticket, interrupt)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sleeps until the task `ticket` is retired. The consumer of a marker wakes this thread; for
    /// any other task this thread polls the counter.
    fn sleep(
        self: &Arc<Self>,
        ticket: u64,
        is_marker: bool,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<()> {
        let sleeper = Sleeper::new();
        let waiter = Waiter::Thread(Arc::clone(&sleeper));
        let Ok(registration) = self.waiters.register(ticket, waiter, &self.progress) else {
            return Ok(());
        };
        let is_over =
            || if is_marker { sleeper.is_woken() } else { self.progress.retired() >= ticket };
        let mut last_check = Instant::now();
        let mut outcome = Ok(());
        while outcome.is_ok() && !is_over() {
            let retry = longest_park();
            park(interrupt.longest_sleep(if is_marker { retry } else { Some(UNMARKED_PERIOD) }));
            if !is_over() {
                outcome = interrupt.check(&mut last_check);
            }
        }
        if !sleeper.is_woken() {
            self.waiters.withdraw(registration);
        }
        outcome
    }

    /// Blocks a producer while its stream has more queued tasks than the limit. A push from inside
    /// a task of any stream never blocks, because the queued tasks may wait for that task.
    #[cold]
    pub(crate) fn throttle(self: &Arc<Self>, pushed: u64) {
        let limit = self.lifecycle.stream_task_limit;
        if let Some(enough) = pushed.checked_sub(limit)
            && !frames::is_inside_task()
        {
            // A task may drop the caller's handle meanwhile: programs in C destroy theirs.
            let held = Arc::clone(self);
            // The result is ignored: only a shutdown fails the wait, and the next call reports it.
            let _ = held.throttle_until(enough, &mut Interrupt::default());
        }
    }

    #[inline]
    pub(crate) fn is_below_limit(&self) -> bool {
        self.required_ticket() == 0
    }

    /// Helps or waits until the next enqueue will not be throttled.
    pub(crate) fn wait_below_limit(self: &Arc<Self>, interrupt: &mut Interrupt<'_>) -> Result<()> {
        self.throttle_until(self.required_ticket(), interrupt)
    }

    /// The ticket that has to be retired before the next enqueue. 0 when the enqueue need not wait.
    #[inline]
    fn required_ticket(&self) -> u64 {
        let next = self.pushed() + 1;
        // Relaxed, here and below: a stale value is too low and only costs a reading of `retired`.
        if next <= self.below_limit_until.load(Ordering::Relaxed) {
            return 0;
        }
        let (retired, limit) = (self.progress.retired(), self.lifecycle.stream_task_limit);
        self.below_limit_until.store(retired.saturating_add(limit), Ordering::Relaxed);
        let enough = next.saturating_sub(limit);
        if retired < enough { enough } else { 0 }
    }

    /// Helps or waits until `enough` tasks are retired. Fails after a shutdown.
    fn throttle_until(self: &Arc<Self>, enough: u64, interrupt: &mut Interrupt<'_>) -> Result<()> {
        let (mut last_check, start) = (Instant::now(), self.wait_start());
        let mut has_slept = false;
        let mut wait = || {
            while self.progress.retired() < enough {
                self.lifecycle.check()?;
                if self.help(enough, interrupt)? || self.follow_schedule(enough, interrupt)? {
                    break;
                }
                has_slept = true;
                park(Some(THROTTLE_PERIOD));
                interrupt.check(&mut last_check)?;
            }
            Ok(())
        };
        let waited = wait();
        if has_slept {
            self.log_wait(RecordKind::Slept, enough, start);
        }
        waited
    }
}

/// Blocks until the device has reached a mark. Drivers wait without a limit, so a wait with one
/// sleeps until the driver's callback.
fn wait_for_mark(mark: &OwnedMark, interrupt: &mut Interrupt<'_>) -> Result<()> {
    if !interrupt.has_limit() {
        return while_blocked(|| mark.wait());
    }
    let sleeper = Sleeper::new();
    if !mark.is_done()? {
        let reached = Arc::clone(&sleeper);
        mark.when_done(Box::new(move || reached.wake()))?;
    }
    let mut last_check = Instant::now();
    while_blocked(|| {
        while !mark.is_done()? {
            interrupt.check(&mut last_check)?;
            // Woken, the mark is done: without a period the next check finds it.
            park(interrupt.longest_sleep(longest_park()));
        }
        Ok(())
    })
}

/// True on a single processor, where spinning only delays the awaited thread, and in models.
pub(crate) fn is_single_cpu() -> bool {
    static IS_SINGLE_CPU: OnceLock<bool> = OnceLock::new();
    let is_single = || std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
    cfg!(loom) || *IS_SINGLE_CPU.get_or_init(is_single)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::base::config::Config;
    use crate::base::device::Device;
    use crate::base::error::RuntimeError;
    use crate::runtime::Runtime;

    #[test]
    fn interrupted_waits_leave_no_waiter_registered() {
        // Goal: interrupted waits leak no waiters. Method: the test interrupts each form of wait
        // for a busy stream, then counts the registered waiters.
        let runtime = Runtime::new(Config { cpu_threads: Some(1), ..Config::default() }).unwrap();
        let stream = runtime.stream(Device::cpu(0)).unwrap();
        let ((enter, entered), (open, opened)) = (channel(), channel::<()>());
        let task = move || {
            enter.send(()).unwrap();
            opened.recv().unwrap_or_default();
        };
        stream.enqueue(task).unwrap();
        entered.recv().unwrap(); // a worker executes the task: no thread helps
        let event = stream.record_event().unwrap();
        let mut always = || true;
        for _ in 0..2 {
            let given_up = [
                stream.synchronize_unless(&mut always),
                event.synchronize_unless(&mut always),
                stream.core().wait_ticket(1, true, &mut Interrupt::by(&mut always)),
                stream.core().wait_ticket(1, false, &mut Interrupt::by(&mut always)),
                stream.synchronize_timeout(Duration::ZERO),
                event.synchronize_timeout(Duration::ZERO),
            ];
            assert!(given_up.iter().all(|outcome| matches!(
                outcome,
                Err(Error::Runtime(RuntimeError::Interrupted | RuntimeError::TimedOut { .. }))
            )));
        }
        assert_eq!(stream.core().waiters.count(), 0);
        drop(open);
        stream.synchronize().unwrap();
    }

    #[test]
    fn a_queued_marker_does_not_count_as_work() {
        // Goal: a marker does not count as work. Method: another stream keeps the only worker busy,
        // so that two markers stay queued. Then a task and a third marker are queued.
        let runtime = Runtime::new(Config { cpu_threads: Some(1), ..Config::default() }).unwrap();
        let [stream, other] = [(); 2].map(|()| runtime.stream(Device::cpu(0)).unwrap());
        stream.enqueue(|| ()).unwrap();
        stream.synchronize().unwrap();
        let ((enter, entered), (open, opened)) = (channel(), channel::<()>());
        let task = move || {
            enter.send(()).unwrap();
            opened.recv().unwrap_or_default();
        };
        other.enqueue(task).unwrap();
        entered.recv().unwrap();
        stream.core().push_marker();
        stream.core().push_marker();
        assert!(stream.core().pushed() > stream.core().progress.retired() + 1 && stream.is_done());
        stream.enqueue(|| ()).unwrap();
        assert!(!stream.is_done());
        stream.core().push_marker();
        assert!(!stream.is_done());
        drop(open);
        stream.synchronize().unwrap();
        assert!(stream.is_done());
    }
}
