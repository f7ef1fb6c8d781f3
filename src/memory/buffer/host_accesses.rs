//! Host threads that use the bytes of an allocation, and those that wait until they may.
//!
//! An access that meets no conflict is *counted*; it lasts as long as a copy takes. One that meets
//! a conflict takes a *place*: it waits for the tasks and accesses that were there before, and
//! later conflicting uses wait behind it, a task by a latch in its stream and an access by a place
//! of its own. A task that meets counted accesses is *announced* until it is enqueued: an access
//! that comes meanwhile takes a place, so the task waits only for those that it met.
//!
//! So later arrivals delay no thread, however many they are.

use std::sync::Arc;

use crate::base::stream_map::StreamMap;
use crate::engine::stream::commands::drop_quietly;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::latch::Latch;
use crate::engine::stream::latched::{self, WaitForLatch};
use crate::memory::buffer::allocation::{Access, Allocation, Refusal};
use crate::memory::buffer::uses::{Touch, Use};

/// The uses behind a place: one latch a stream.
type Latches = StreamMap<Arc<Latch<StreamCore>>>;

/// The host's part of an allocation's state.
#[derive(Debug, Default)]
pub(super) struct HostAccesses {
    /// The sum of all entries below: nearly always it is zero.
    count: usize,
    /// Counted accesses that read.
    readers: usize,
    /// True while a counted access writes.
    is_writing: bool,
    /// Tasks that wait for counted accesses before they are enqueued.
    announced: usize,
    /// In the order in which they were taken.
    places: Vec<Place>,
    last_place: u64,
}

#[derive(Debug)]
struct Place {
    number: u64,
    touch: Touch,
    latches: Latches,
}

impl HostAccesses {
    /// False when no host thread uses or waits for the bytes.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.count != 0
    }

    /// True when counted accesses conflict with a new task or access.
    pub(super) fn conflict_with(&self, writes: bool) -> bool {
        self.is_writing || writes && self.readers > 0
    }

    /// True when a use has to wait behind a place.
    pub(super) fn have_place_before(&self, touch: &Touch) -> bool {
        self.places.iter().any(|place| place.touch.conflicts(touch))
    }

    /// A task waits for counted accesses.
    pub(super) fn announce(&mut self) {
        self.announced += 1;
        self.count += 1;
    }

    /// The task does not wait any more.
    pub(super) fn withdraw(&mut self) {
        self.announced -= 1;
        self.count -= 1;
    }

    /// Calls `found` with the wait for each place that a stream, with a next task of this touch,
    /// does not wait for already.
    pub(super) fn each_wait(
        &mut self,
        core: &StreamCore,
        touch: &Touch,
        found: &mut dyn FnMut(WaitForLatch),
    ) {
        for place in self.places.iter_mut().filter(|place| place.touch.conflicts(touch)) {
            let mut is_new = false;
            let latch = place.latches.get_or_insert_with(core.key(), || {
                is_new = true;
                Latch::new()
            });
            // The opener of a latch removes its place: a latch that is open here has lost its wait.
            if !is_new && latch.is_open() {
                *latch = Latch::new();
                is_new = true;
            }
            if is_new {
                found(WaitForLatch::new(Arc::clone(latch)));
            }
        }
    }

    fn enter(&mut self, writes: bool) {
        self.count += 1;
        self.is_writing |= writes;
        self.readers += usize::from(!writes);
    }

    fn leave(&mut self, writes: bool) {
        self.count -= 1;
        if writes {
            self.is_writing = false;
        } else {
            self.readers -= 1;
        }
    }

    fn take_place(&mut self, touch: Touch) -> u64 {
        self.count += 1;
        self.last_place += 1;
        self.places.push(Place { number: self.last_place, touch, latches: Latches::default() });
        self.last_place
    }

    /// True when the access at a place waits for no other access.
    fn is_next(&self, number: u64, touch: &Touch) -> bool {
        let mut before = self.places.iter().take_while(|place| place.number < number);
        !self.conflict_with(touch.writes) && !before.any(|place| place.touch.conflicts(touch))
    }

    fn give_place_back(&mut self, number: u64) -> Latches {
        let index = self.places.iter().position(|place| place.number == number);
        self.count -= 1;
        self.places.remove(index.expect("a place is given back once")).latches
    }
}

/// The host's own use of the bytes, or its place in line for that: conflicting uses wait until this
/// is dropped.
#[derive(Debug)]
pub(super) struct HostAccess<'a> {
    allocation: &'a Allocation,
    touch: Touch,
    /// 0 for an access that is counted.
    place: u64,
    /// Keeps the memory; dropped behind the place.
    _access: Access<'a>,
}

impl Allocation {
    /// Begins a use of the bytes by the host itself. When it meets a conflict, it returns the tasks
    /// to wait for first; other accesses come after those.
    pub(super) fn enter_host(
        &self,
        touch: Touch,
    ) -> Result<(HostAccess<'_>, Option<Vec<Use>>), Refusal> {
        let mut state = self.lock().ok_or(Refusal::Released)?;
        let host_accesses = &state.host_accesses;
        let is_met = host_accesses.is_any()
            && (host_accesses.announced > 0
                || host_accesses.conflict_with(touch.writes)
                || host_accesses.have_place_before(&touch));
        let has_met = is_met || self.conflicts(&state, None, &touch).next().is_some();
        let uses = has_met.then(|| self.uses_in(&state));
        let place = if has_met {
            state.host_accesses.take_place(touch.clone())
        } else {
            state.host_accesses.enter(touch.writes);
            0
        };
        let access = self.access_in(&mut state);
        Ok((HostAccess { allocation: self, touch, place, _access: access }, uses))
    }
}

impl HostAccess<'_> {
    /// True when no other access has to end first.
    pub(super) fn is_next(&self) -> bool {
        self.place == 0
            || self.allocation.state.lock().host_accesses.is_next(self.place, &self.touch)
    }
}

impl Drop for HostAccess<'_> {
    fn drop(&mut self) {
        let mut state = self.allocation.state.lock();
        if self.place == 0 {
            return state.host_accesses.leave(self.touch.writes);
        }
        let latches = state.host_accesses.give_place_back(self.place);
        drop(state); // streams are resumed, which may be their last references
        for latch in latches.into_values() {
            // Quietly: a backend that panics for one stream must not keep another one waiting.
            drop_quietly(|| latched::open(&latch, Ok(())));
        }
    }
}
