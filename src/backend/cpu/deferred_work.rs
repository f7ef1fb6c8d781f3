//! Work that a worker defers for a time, so that waiting host threads can execute it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::contract::Work;

#[derive(Debug, Default)]
pub(super) struct DeferredWork(Vec<Deferred>);

#[derive(Debug)]
struct Deferred {
    due: Instant,
    level: usize,
    work: Arc<dyn Work>,
}

impl DeferredWork {
    pub(super) fn defer(&mut self, level: usize, work: Arc<dyn Work>, period: Duration) {
        self.0.push(Deferred { due: Instant::now() + period, level, work });
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.0.iter().map(|entry| entry.due).min()
    }

    /// Removes work whose deferral is over. Returns the work and its level in the run queue.
    pub(super) fn take_due(&mut self) -> Option<(usize, Arc<dyn Work>)> {
        if self.0.is_empty() {
            return None; // saves a clock reading
        }
        let now = Instant::now();
        let place = self.0.iter().position(|entry| entry.due <= now)?;
        let Deferred { level, work, .. } = self.0.swap_remove(place);
        Some((level, work))
    }

    /// Removes all deferred work, each with its level in the run queue.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (usize, Arc<dyn Work>)> {
        self.0.drain(..).map(|Deferred { level, work, .. }| (level, work))
    }
}
