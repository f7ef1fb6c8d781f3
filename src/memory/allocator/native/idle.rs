//! Idle pages: those that have memory which no block in use touches, longest idle first.

use std::collections::VecDeque;
use std::ops::Range;

use crate::memory::allocator::native::area::{AreaId, Areas};

/// When which pages became idle. A run stays listed when pages of it are used again: whether a page
/// is still idle since then, the page itself says. So using pages again costs nothing here.
#[derive(Debug, Default)]
pub(super) struct IdlePages {
    runs: VecDeque<Run>,
    clock: u64,
    /// How many runs there may be before those without an idle page are looked for.
    sweep_at: usize,
}

/// Pages of one area that became idle together.
#[derive(Clone, Debug)]
struct Run {
    area: AreaId,
    pages: Range<usize>,
    since: u64,
}

/// An idle page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdlePage {
    pub(super) area: AreaId,
    pub(super) page: usize,
}

/// Runs below which none is forgotten.
const LEAST_SWEEP: usize = 1024;

impl IdlePages {
    /// Pages of an area that no block in use touches any more; those without memory are not meant.
    pub(super) fn rest(&mut self, area: AreaId, pages: Range<usize>, areas: &mut Areas) {
        let table = areas[area].pages.as_mut().expect("an area with pages");
        let mut left = pages;
        while !left.is_empty() {
            let mapped = table.first_mapped(left.clone());
            left.start = mapped.end;
            if !mapped.is_empty() {
                self.clock += 1;
                table.rest(mapped.clone(), self.clock);
                self.runs.push_back(Run { area, pages: mapped, since: self.clock });
            }
        }
        if self.runs.len() > self.sweep_at.max(LEAST_SWEEP) {
            self.runs.retain(|run| run.is_idle(areas));
            self.sweep_at = 2 * self.runs.len();
        }
    }

    /// Idle pages, longest idle first.
    pub(super) fn iter(&self, areas: &Areas) -> impl Iterator<Item = IdlePage> {
        self.runs
            .iter()
            .flat_map(move |run| run.idle(areas).map(|page| IdlePage { area: run.area, page }))
    }

    /// Forgets what is not idle at the front.
    pub(super) fn forget_used(&mut self, areas: &Areas) {
        while self.runs.front().is_some_and(|run| !run.is_idle(areas)) {
            self.runs.pop_front();
        }
    }

    /// Nothing is idle in areas that are gone, before others have their places.
    pub(super) fn forget_gone_areas(&mut self, areas: &Areas) {
        self.runs.retain(|run| areas.get(run.area).is_some());
    }
}

impl Run {
    /// True when a page of it is idle since then.
    fn is_idle(&self, areas: &Areas) -> bool {
        let table = areas.get(self.area).and_then(|area| area.pages.as_ref());
        table.is_some_and(|table| table.is_any_idle_since(self.pages.clone(), self.since))
    }

    fn idle(&self, areas: &Areas) -> impl Iterator<Item = usize> {
        let table = areas.get(self.area).and_then(|area| area.pages.as_ref());
        let pages = table.map_or(0..0, |_| self.pages.clone());
        pages.filter(move |page| table.is_some_and(|table| table.idle_since(*page) == self.since))
    }
}
