//! Work that a worker leaves to host threads: it keeps the entries, and polls each periodically.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::contract::Work;

/// The entries of one worker.
#[derive(Debug, Default)]
pub(super) struct LeftWork(Vec<Left>);

#[derive(Debug)]
struct Left {
    due: Instant,
    level: usize,
    work: Arc<dyn Work>,
}

impl LeftWork {
    /// Keeps work of a level for `period`.
    pub(super) fn keep(&mut self, level: usize, work: Arc<dyn Work>, period: Duration) {
        self.0.push(Left { due: Instant::now() + period, level, work });
    }

    /// When the first entry is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.0.iter().map(|left| left.due).min()
    }

    /// An entry that is due now, with its level.
    pub(super) fn take_due(&mut self) -> Option<(usize, Arc<dyn Work>)> {
        if self.0.is_empty() {
            return None; // without a look at the clock
        }
        let now = Instant::now();
        let place = self.0.iter().position(|left| left.due <= now)?;
        let Left { level, work, .. } = self.0.swap_remove(place);
        Some((level, work))
    }

    /// All of them, with their levels.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (usize, Arc<dyn Work>)> {
        self.0.drain(..).map(|Left { level, work, .. }| (level, work))
    }
}
