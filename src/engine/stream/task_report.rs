//! Tells of tasks while they are watched: records for the log, and reports at once.
//!
//! On host kinds a task's time starts when the consumer first reads the task at the head of the
//! queue, and ends when the task is done. For a wait this is the time that the stream was blocked.
//! On driver kinds the device measures the time, by a mark before and a mark behind the task. The
//! log reads these marks later. An immediate subscription is told in order, as verbose libraries do
//! on GPUs: for it the consumer waits for the device behind each task.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::contract::owned::OwnedMark;
use crate::base::clock::Clock;
use crate::base::thread::while_blocked;
use crate::engine::log::collector::{Wants, now, shortened};
use crate::engine::log::device_times::TimedTask;
use crate::engine::log::process;
use crate::engine::log::record::{Label, LogRecord, RecordKind};
use crate::engine::stream::core::{Stop, StreamCore, TaskContext};
use crate::engine::stream::lifecycle::TaskReport;
use crate::engine::stream::task::{Details, OperationKind};
use crate::queue::{Class, Entry};

impl StreamCore {
    /// As `execute`, for a stream that is watched or cancelled.
    #[inline(never)]
    pub(super) fn execute_watched_or_cancelled(
        &self,
        mut entry: Entry<'_, TaskContext>,
        context: &mut TaskContext,
        is_helping: bool,
    ) -> Option<Stop> {
        // `Lifecycle::cancel` also ends the watches, so no cancelled task is told of.
        if !self.lifecycle.is_watched() {
            let is_cancelled = self.lifecycle.is_cancelled();
            return self.execute_as(entry, context, is_helping, is_cancelled);
        }
        self.fail_if_cancelled(&mut entry, context); // a cancel watches too, until it is over
        let operation = entry.operation();
        let details = entry.details();
        if operation.name().is_none() && details.source.is_none() {
            return self.execute_as(entry, context, is_helping, false);
        }
        let ticket = self.progress.retired() + 1;
        let is_user = entry.class() != Class::Internal;
        if is_user && context.error.is_some() {
            let stop = self.execute_as(entry, context, is_helping, false);
            log(&LogRecord { end: now(), ..self.record(RecordKind::Skipped, operation, ticket) });
            return stop;
        }
        let known = context.since.filter(|(of, _)| *of == ticket);
        let start = known.map_or_else(now, |(_, start)| start);
        let begin = self.place_mark();
        let stop = self.execute_as(entry, context, is_helping, false);
        if stop.is_some() {
            context.since = Some((ticket, start));
            return stop;
        }
        if is_user
            && self.on_host
            && let Some(scheduler) = self.lifecycle.scheduler()
        {
            scheduler.end_task(operation, details.bytes);
        }
        // The watch may have ended while the task ran.
        if self.lifecycle.is_watched() {
            let kind = match (context.effects.failure.is_some(), is_helping) {
                (true, _) => RecordKind::Failed,
                (false, true) if self.on_host => RecordKind::EndedByHelper,
                (false, _) => RecordKind::Ended,
            };
            let mut record =
                LogRecord { start, end: now(), ..self.record(kind, operation, ticket) };
            set_details(&mut record, &details);
            if begin.is_some() || self.lifecycle.task_reports.has_any() {
                self.tell_end(record, &details, begin);
            } else if let Some(writer) = process::writer(Wants::TASKS) {
                writer.write(&record);
            }
        }
        None
    }

    /// Tells immediate subscriptions and the log of a task that ran. `begin` is the mark before the
    /// task, on driver kinds.
    #[inline(never)]
    fn tell_end(&self, record: LogRecord, details: &Details, begin: Option<Arc<OwnedMark>>) {
        let end = begin.as_ref().and_then(|_| self.place_mark());
        let marks = begin.zip(end);
        let subscribers = &self.lifecycle.task_reports;
        if record.operation.name().is_some() && subscribers.has_any() {
            let on_device = marks.as_ref().and_then(|(begin, end)| wait_elapsed(begin, end));
            let time = on_device.unwrap_or_else(|| between(record.start, record.end));
            subscribers.tell(&TaskReport { record, details: details.clone(), time });
        }
        match marks {
            Some((begin, end)) if record.kind == RecordKind::Ended => {
                if process::is_wanted(Wants::TASKS) {
                    let record = LogRecord { kind: RecordKind::EndedOnDevice, ..record };
                    let device = self.identity.device;
                    process::add_device_task(TimedTask { record, device, begin, end });
                }
            }
            _ => log(&record),
        }
    }

    /// The time for [`Self::log_enqueued`]; `None` when no subscription asks for the task.
    #[inline(never)]
    pub(super) fn enqueue_start(&self, operation: OperationKind) -> Option<u64> {
        let is_watched = operation.name().is_some() && self.lifecycle.is_watched();
        (is_watched && process::is_wanted(Wants::TASKS)).then(now)
    }

    /// Writes a record of a task that got its ticket just now.
    #[inline]
    pub(super) fn log_enqueued(&self, operation: OperationKind, ticket: u64, start: Option<u64>) {
        if let (Some(start), Some(writer)) = (start, process::writer(Wants::TASKS)) {
            let record = self.record(RecordKind::Enqueued, operation, ticket);
            writer.write(&LogRecord { start, end: now(), ..record });
        }
    }

    /// The time for [`Self::log_wait`]; `None` when no subscription asks for waits.
    pub(super) fn wait_start(&self) -> Option<u64> {
        (self.lifecycle.is_watched() && process::is_wanted(Wants::WAITS)).then(now)
    }

    /// Writes a record of this thread's wait for the task `ticket`, which began at `start`.
    pub(super) fn log_wait(&self, kind: RecordKind, ticket: u64, start: Option<u64>) {
        if let Some(start) = start {
            let record = self.record(kind, OperationKind::Internal, ticket);
            process::write(&LogRecord { start, end: now(), ..record });
        }
    }

    /// Calls `wait`, which blocks this thread until the task `ticket` has an outcome, and writes a
    /// record of the wait.
    pub fn record_wait<R>(&self, ticket: u64, wait: impl FnOnce() -> R) -> R {
        let start = self.wait_start();
        let outcome = wait();
        self.log_wait(RecordKind::Slept, ticket, start);
        outcome
    }

    #[inline]
    fn record(&self, kind: RecordKind, operation: OperationKind, ticket: u64) -> LogRecord {
        LogRecord {
            device: Some(self.identity.device),
            stream_id: self.identity.id,
            runtime: shortened(self.lifecycle.runtime),
            ticket,
            ..LogRecord::new(kind, operation)
        }
    }

    /// Places a timed mark on a driver stream. `None` on a host kind, and when the driver refuses
    /// the mark. The caller then has the host's times.
    fn place_mark(&self) -> Option<Arc<OwnedMark>> {
        if self.on_host {
            return None;
        }
        self.handle.mark(true).ok()
    }
}

/// Writes a record about a task, if some subscription asks for tasks.
#[cold]
fn log(record: &LogRecord) {
    if let Some(writer) = process::writer(Wants::TASKS) {
        writer.write(record);
    }
}

#[inline]
fn set_details(record: &mut LogRecord, details: &Details) {
    record.label = Label::of(details.name);
    if let Some(source) = &details.source {
        return record.set_source(source);
    }
    let written = details.accesses.iter().find(|access| access.writes != Some(false));
    let access = written.or_else(|| details.accesses.first());
    record.address = access.map_or(details.function as u64, |access| access.address.0);
    record.bytes = details.bytes as u64;
}

/// The device's time between two marks. Blocks until the device has reached the second one.
fn wait_elapsed(begin: &OwnedMark, end: &OwnedMark) -> Option<Duration> {
    while_blocked(|| end.wait()).ok()?;
    let elapsed = begin.elapsed_ns(end).ok()?;
    u64::try_from(elapsed).ok().map(Duration::from_nanos)
}

fn between(start: u64, end: u64) -> Duration {
    Duration::from_nanos(Clock::get().ticks_between_ns(start, end).max(0).cast_unsigned())
}
