//! Reports executed tasks, except internal ones, to the watcher that `Runtime::watch_tasks` set.
//!
//! On host kinds the reported time starts when the consumer first reads the task at the head of the
//! queue, and ends when the task is done. For a wait this is the time that the stream was blocked.
//! On driver kinds the device measures the time. The consumer synchronises with the device after
//! each task, as verbose libraries do on GPUs. Without this wait, tasks would overlap, and their
//! reports would come late and out of order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::contract::owned::OwnedMark;
use crate::base::blocking::while_blocked;
use crate::base::device::Device;
use crate::engine::stream::context::TaskContext;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::drain::Stop;
use crate::engine::stream::operation::{Details, OperationKind};
use crate::queue::{Class, Entry};

/// The report about one executed task.
#[derive(Clone, Debug)]
pub(crate) struct TaskReport {
    pub(crate) device: Device,
    pub(crate) stream_id: u64,
    pub(crate) operation: OperationKind,
    pub(crate) details: Details,
    pub(crate) time: Duration,
}

/// The consumer's first read of a task: the number of earlier retired tasks, and the time.
pub(crate) type FirstRead = Option<(u64, Instant)>;

impl StreamCore {
    /// As `execute`, for a stream that is watched or cancelled.
    #[cold]
    #[inline(never)]
    pub(super) fn execute_watched_or_cancelled(
        &self,
        mut entry: Entry<'_, TaskContext>,
        context: &mut TaskContext,
        is_helping: bool,
    ) -> Option<Stop> {
        let is_cancelled = self.lifecycle.is_cancelled();
        let operation = entry.operation();
        let is_skipped = entry.class() != Class::Internal && context.error.is_some();
        let is_reported = operation.name().is_some() && self.lifecycle.is_watched();
        // `Lifecycle::cancel` also clears the watch bit, so no cancelled task is reported.
        if !is_reported || is_skipped {
            return self.execute_as(entry, context, is_helping, is_cancelled);
        }
        let details = entry.details();
        let number = self.progress.retired();
        let known = context.since.filter(|(of, _)| *of == number);
        let (_, since) = *context.since.insert(known.unwrap_or_else(|| (number, Instant::now())));
        let start = self.place_mark();
        let stop = self.execute_as(entry, context, is_helping, is_cancelled);
        // The watcher may have been removed while the task ran.
        if stop.is_none() && self.lifecycle.is_watched() {
            let time = self.time_since(start.as_ref()).unwrap_or_else(|| since.elapsed());
            let (device, stream_id) = (context.device, context.stream_id);
            self.lifecycle.report(&TaskReport { device, stream_id, operation, details, time });
        }
        stop
    }

    /// Places a timed mark on a driver stream. `None` on a host kind, and when the driver refuses
    /// the mark. The caller then reads the host's clock.
    fn place_mark(&self) -> Option<Arc<OwnedMark>> {
        if self.on_host {
            return None;
        }
        self.handle.mark(true).ok()
    }

    /// The device's time from `start` until all work submitted so far is done. Blocks until then.
    fn time_since(&self, start: Option<&Arc<OwnedMark>>) -> Option<Duration> {
        let end = start.and_then(|_| self.place_mark())?;
        while_blocked(|| end.wait()).ok()?;
        let elapsed = start?.elapsed_ns(&end).ok()?;
        u64::try_from(elapsed).ok().map(Duration::from_nanos)
    }
}
