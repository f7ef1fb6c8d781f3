//! The memory that a buffer's views share: uses, exports, reference count and the single free.
//!
//! # Hints of a thread
//!
//! A *hint* is the stream and the allocator that served a request. A thread has one hint for
//! requests without a device and one for the last named device. Both depend on the thread's current
//! device, stream, pool and mode, so a change of any of these clears the hints. *Vacant*
//! allocations have no memory. They retain their stream and allocator, so a request for the same
//! stream and allocator changes no reference count.
//!
//! Hints extend no lifetime: they refer to the process's runtime, which is never dropped. A vacant
//! allocation is cached only when its stream and allocator live as long as that runtime.

#![expect(unsafe_code, reason = "frees a block once, as the state under the lock decides")]

use std::cell::RefCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::Arc;

use crate::backend::contract::MemoryKind;
use crate::base::error::{Error, Result};
use crate::base::spin::{SpinGuard, SpinMutex};
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::interrupt::Interrupt;
use crate::engine::stream::order_watch;
use crate::engine::stream::order_watch::Told;
use crate::memory::allocator::allocate::Unfinished;
use crate::memory::allocator::{Allocated, CachingAllocator, PoolId, Request};
use crate::memory::buffer::counted::{Counted, LastHandle, OnLastHandle};
use crate::memory::buffer::host_accesses::HostAccesses;
use crate::memory::buffer::uses::{
    AccessedBytes, CHECK_ALL, CHECKS_PER_USE, Memory, Task, Use, Uses, free,
};
use crate::{Device, Stream};

/// A block of an allocator, shared by views. A release, or else the drop of the last view, frees
/// the block in stream order.
pub(crate) struct Allocation {
    pub(super) memory: Memory,
    /// The stream that was current when the buffer was created.
    pub(super) home: Arc<StreamCore>,
    pub(super) state: SpinMutex<State>,
    /// True when the allocator and the home stream live as long as the process.
    is_lasting: bool,
}

/// Accesses, uses and exports of an allocation.
///
/// The memory is freed once. Without a release, the drop of the last handle frees it. A release
/// frees the memory when `accesses` is zero; otherwise the end of the last access frees it. A
/// release requires `exports` to be zero, and after a release neither counter grows.
#[derive(Debug, Default)]
pub(super) struct State {
    uses: Uses,
    /// The number of threads that are enqueuing uses or are accessing the bytes on the host.
    accesses: usize,
    pub(super) exports: usize,
    is_released: bool,
    pub(super) host_accesses: HostAccesses,
}

/// The allocator and the pool that serve a request, with the kind and alignment of its memory.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The allocator of the memory.
    pub allocator: Arc<CachingAllocator>,
    /// The pool of the request.
    pub pool: PoolId,
    /// Device, pinned or shared memory.
    pub kind: MemoryKind,
    /// A power of two; 1 for the default alignment.
    pub align_bytes: usize,
    /// True when the allocator and the streams of its pools live as long as the process.
    pub is_of_process: bool,
}

/// Why a request without waits was not served.
#[derive(Debug)]
pub enum NotServed {
    /// It fails.
    Failed(Error),
    /// It may have to wait.
    Later(UnfinishedBuffer),
    /// The thread has no hint for it.
    Unknown,
}

/// A request that goes on where it would have had to wait.
#[derive(Debug)]
pub struct UnfinishedBuffer {
    home: Arc<StreamCore>,
    request: Request,
    origin: Origin,
    /// `None` before the first step, and when it has gone on.
    rest: Option<Unfinished>,
}

impl NotServed {
    #[cold]
    #[inline(never)]
    fn later(
        home: &Arc<StreamCore>,
        request: Request,
        origin: &Origin,
        rest: Option<Unfinished>,
    ) -> Box<Self> {
        let (home, origin) = (Arc::clone(home), origin.clone());
        Box::new(Self::Later(UnfinishedBuffer { home, request, origin, rest }))
    }

    #[cold]
    #[inline(never)]
    fn failed(error: Error) -> Box<Self> {
        Box::new(Self::Failed(error))
    }

    #[cold]
    #[inline(never)]
    fn unknown() -> Box<Self> {
        Box::new(Self::Unknown)
    }
}

impl UnfinishedBuffer {
    /// Goes on with the request, and waits as [`Allocation::new`].
    pub(super) fn finish(mut self, interrupt: &mut Interrupt<'_>) -> Result<Counted<Allocation>> {
        let Some(rest) = self.rest.take() else {
            let Self { home, request, origin, .. } = &self;
            return Allocation::new(home, request.bytes, origin, interrupt);
        };
        let Self { home, request, origin, .. } = &self;
        let block = origin.allocator.finish(rest, request, home, interrupt)?;
        Ok(Allocation::of(block, home, request.bytes, origin, take_vacant))
    }
}

impl Drop for UnfinishedBuffer {
    fn drop(&mut self) {
        if let Some(rest) = self.rest.take() {
            self.origin.allocator.abandon(rest);
        }
    }
}

/// The stream id for requests of pinned memory, which belongs to no stream.
const NO_STREAM: u64 = 0;

/// The reason for which an allocation refuses an access, an export or a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Released,
    Exported(usize),
    SliceOfExported(usize),
}

impl Allocation {
    /// Allocates memory for a home stream. Zero bytes need no memory; their address is 0.
    ///
    /// When memory is short, the call waits for streams that use freed memory, if that memory would
    /// suffice. A failed call may have returned cached memory to the device.
    pub(super) fn new(
        home: &Arc<StreamCore>,
        bytes: usize,
        origin: &Origin,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<Counted<Self>> {
        let request = Self::request(home, bytes, origin)?;
        let block = origin.allocator.allocate_unless(request, Some(home), interrupt)?;
        let allocation = Self::of(block, home, bytes, origin, take_vacant);
        if order_watch::is_on() && bytes > 0 {
            order_watch::tell(Told::Allocation(allocation.memory.all_bytes(home)));
        }
        Ok(allocation)
    }

    /// As [`Allocation::new`], without waits. Reuses the vacant allocation that `take_vacant`
    /// returns. Free memory that does not suffice leaves the request unfinished.
    #[inline(always)]
    pub(super) fn at_once(
        home: &Arc<StreamCore>,
        bytes: usize,
        origin: &Origin,
        take_vacant: impl FnOnce() -> Option<LastHandle<Self>>,
    ) -> Result<Counted<Self>, Box<NotServed>> {
        let request = Self::request(home, bytes, origin).map_err(NotServed::failed)?;
        if order_watch::is_on() {
            return Err(NotServed::later(home, request, origin, None));
        }
        match origin.allocator.allocate_at_once(request, home) {
            Ok(block) => Ok(Self::of(block, home, bytes, origin, take_vacant)),
            Err(rest) => Err(NotServed::later(home, request, origin, Some(*rest))),
        }
    }

    #[inline(always)]
    fn request(home: &Arc<StreamCore>, bytes: usize, origin: &Origin) -> Result<Request> {
        home.lifecycle.check()?;
        if !home.on_host {
            home.poll_held();
        }
        let is_pinned = origin.kind == MemoryKind::Host;
        let stream = if is_pinned { NO_STREAM } else { home.key() };
        let request = Request::new(bytes, stream).from_pool(origin.pool);
        Ok(request.aligned_to(origin.align_bytes))
    }

    #[inline(always)]
    fn of(
        block: Allocated,
        home: &Arc<StreamCore>,
        bytes: usize,
        origin: &Origin,
        take_vacant: impl FnOnce() -> Option<LastHandle<Self>>,
    ) -> Counted<Self> {
        let is_lasting = origin.is_of_process && !home.identity.is_dedicated;
        if let Some(vacant) = is_lasting.then(take_vacant).flatten() {
            return vacant.refill(block, home, bytes, origin);
        }
        let memory = Memory {
            allocator: Arc::clone(&origin.allocator),
            block,
            device: home.identity.device,
            kind: origin.kind,
            bytes,
        };
        let (home, state) = (Arc::clone(home), SpinMutex::new(State::default()));
        LastHandle::new(Self { memory, home, state, is_lasting }).share()
    }

    /// Delays a free until the caller has enqueued uses of the memory. `None` after a release.
    #[inline]
    pub(super) fn access(&self) -> Option<Access<'_>> {
        Some(self.access_in(&mut *self.lock()?))
    }

    /// As [`Allocation::access`], with the lock held. The caller has checked that no release came.
    #[inline]
    pub(super) fn access_in(&self, state: &mut State) -> Access<'_> {
        state.accesses += 1;
        Access(self)
    }

    /// Locks the state, for a caller that reads or records uses. `None` after a release.
    #[inline]
    pub(super) fn lock(&self) -> Option<SpinGuard<'_, State>> {
        let state = self.state.lock();
        (!state.is_released).then_some(state)
    }

    /// Records a use by a stream whose tasks up to ticket `done` are done. Checks up to `checks`
    /// other uses, and removes and returns those that are done. The caller unlocks the state before
    /// it drops them, because a use may hold the last reference to a stream.
    #[inline]
    pub(super) fn note(
        &self,
        state: &mut State,
        stream: &Arc<StreamCore>,
        task: Task,
        accessed: &AccessedBytes,
        done: u64,
        checks: usize,
    ) -> Option<Vec<Use>> {
        if Arc::ptr_eq(&self.home, stream) {
            return state.uses.record_home(task, accessed, done, checks);
        }
        state.uses.record(stream, task, accessed, done, checks)
    }

    /// The home stream's last task that used the memory for an earlier allocation, if a task of
    /// `own` has to wait for it: on the home stream the queue gives the order.
    #[inline]
    pub(super) fn earlier_life(&self, own: &Arc<StreamCore>) -> Option<(&Arc<StreamCore>, Task)> {
        let last = Task::any(self.busy_until());
        let is_loose = !Arc::ptr_eq(&self.home, own) && self.home.progress.done() < last.ticket;
        is_loose.then_some((&self.home, last))
    }

    /// Yields the unfinished tasks of streams other than `own` that a use must follow. These are
    /// the tasks with conflicting uses, and the home stream's last task that used the memory for an
    /// earlier allocation.
    #[inline]
    pub(super) fn conflicts<'a>(
        &'a self,
        state: &'a State,
        own: Option<&'a Arc<StreamCore>>,
        accessed: &'a AccessedBytes,
    ) -> impl Iterator<Item = (&'a Arc<StreamCore>, Task)> {
        let earlier = (&self.home, Task::any(self.busy_until()));
        let at_home = (&self.home, state.uses.at_home.conflict(accessed));
        let others = state.uses.others();
        let others = others.map(|other| (&other.stream, other.last.conflict(accessed)));
        let all = [earlier, at_home].into_iter().chain(others);
        all.filter(move |(stream, task)| {
            let is_own = own.is_some_and(|own| Arc::ptr_eq(own, stream));
            !is_own && stream.progress.done() < task.ticket
        })
    }

    #[inline]
    fn end_access(&self, mut state: SpinGuard<'_, State>) {
        state.accesses -= 1;
        if state.is_released {
            self.free_unless_accessed(state);
        }
    }

    /// Frees the memory of a released allocation. If an access remains, its end frees the memory.
    fn free_unless_accessed(&self, mut state: SpinGuard<'_, State>) {
        if state.accesses == 0 {
            let mut uses = std::mem::take(&mut state.uses);
            drop(state); // before the free, which may call a backend
            // SAFETY: `free` must be called once for a block. `is_released` becomes true once, and
            // the accesses reach zero once after that; see `State`.
            unsafe { free(&self.memory, &self.home, &mut uses) };
        }
    }

    /// Counts one more export. `None` after a release.
    pub(super) fn export(&self) -> Option<()> {
        self.lock()?.exports += 1;
        Some(())
    }

    pub(super) fn end_export(&self) {
        self.state.lock().exports -= 1;
    }

    /// Frees the memory after its uses. Refused while exports exist. A second release has no
    /// effect.
    pub(super) fn release(&self) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        if state.is_released {
            return Ok(());
        }
        if state.exports > 0 {
            return Err(Refusal::Exported(state.exports));
        }
        state.is_released = true;
        self.free_unless_accessed(state);
        Ok(())
    }

    pub(super) fn is_released(&self) -> bool {
        self.state.lock().is_released
    }

    /// Returns the recorded uses. They include every use that is not done, and uses that may have
    /// failed: all of them, unless more than 64 streams failed.
    pub(super) fn uses(&self) -> Vec<Use> {
        let mut state = self.state.lock();
        let forgotten = state.uses.forget_finished(CHECK_ALL);
        let uses = self.uses_in(&state);
        drop(state); // before `forgotten`, which may hold the last reference to a stream
        drop(forgotten);
        uses
    }

    /// As [`Allocation::uses`], with the lock held.
    pub(super) fn uses_in(&self, state: &State) -> Vec<Use> {
        let last = state.uses.at_home.clone();
        let is_used = last.task.ticket > 0;
        let at_home = is_used.then(|| Use { stream: Arc::clone(&self.home), last });
        at_home.into_iter().chain(state.uses.others().cloned()).collect()
    }

    /// The ticket of the home stream's last task that may still use the memory for an earlier
    /// allocation; 0 if there is none.
    pub(super) fn busy_until(&self) -> u64 {
        self.memory.block.busy_until()
    }
}

impl LastHandle<Allocation> {
    /// Assigns memory to a vacant allocation.
    #[inline(always)]
    fn refill(
        mut self,
        block: Allocated,
        home: &Arc<StreamCore>,
        bytes: usize,
        origin: &Origin,
    ) -> Counted<Allocation> {
        if !Arc::ptr_eq(&self.home, home) {
            self.home = Arc::clone(home);
        }
        let memory = &mut self.memory;
        if !Arc::ptr_eq(&memory.allocator, &origin.allocator) {
            memory.allocator = Arc::clone(&origin.allocator);
        }
        (memory.block, memory.bytes) = (block, bytes);
        (memory.device, memory.kind) = (home.identity.device, origin.kind);
        self.state.with_mut(|state| state.is_released = false);
        self.share()
    }
}

impl OnLastHandle for Allocation {
    #[inline]
    fn end(mut last: LastHandle<Self>) {
        let Self { memory, home, state, .. } = &mut *last;
        state.with_mut(|state| {
            debug_assert_eq!((state.accesses, state.exports), (0, 0), "these keep it alive");
            if !std::mem::replace(&mut state.is_released, true) {
                // SAFETY: `free` must be called once for a block. No other handle exists, and
                // `is_released` was false until now.
                unsafe { free(memory, home, &mut state.uses) };
            }
        });
        if last.is_lasting {
            cache(last);
        }
    }
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = &self.memory;
        f.debug_struct("Allocation")
            .field("device", &format_args!("{}", memory.device))
            .field("address", &format_args!("{:#x}", memory.address().0))
            .field("bytes", &memory.bytes)
            .field("kind", &memory.kind)
            .finish_non_exhaustive()
    }
}

/// The right to enqueue uses of the memory. If a release happens during an access, the drop of the
/// last access frees the memory, after all uses recorded until then.
#[derive(Debug)]
pub(crate) struct Access<'a>(&'a Allocation);

impl Access<'_> {
    /// Records that `task`, the stream's last task, may read and write all of the memory, as the
    /// program tells. Ends the access under the same lock.
    #[inline]
    pub(crate) fn record(self, stream: &Arc<StreamCore>, task: Task) {
        self.record_access(stream, task, &AccessedBytes::TOLD);
    }

    /// Records a task that writes (`Some(true)`) or only reads (`Some(false)`) these bytes.
    /// `None` stands for a task that may read and write all of the memory.
    pub(crate) fn record_use(
        self,
        stream: &Arc<StreamCore>,
        task: Task,
        bytes: Range<usize>,
        writes: Option<bool>,
    ) {
        let accessed = match writes {
            Some(writes) => AccessedBytes::new(bytes, writes),
            None => AccessedBytes::UNKNOWN,
        };
        self.record_access(stream, task, &accessed);
    }

    #[inline]
    fn record_access(self, stream: &Arc<StreamCore>, task: Task, accessed: &AccessedBytes) {
        let Self(allocation) = *ManuallyDrop::new(self);
        let mut state = allocation.state.lock();
        let forgotten = allocation.note(&mut state, stream, task, accessed, 0, CHECKS_PER_USE);
        allocation.end_access(state);
        drop(forgotten); // after the lock: a use may hold the last reference to a stream
    }
}

impl Drop for Access<'_> {
    #[inline]
    fn drop(&mut self) {
        let Self(allocation) = self;
        allocation.end_access(allocation.state.lock());
    }
}

const MAX_VACANT: usize = 64;

type Hint = (Stream, Origin);

struct ThreadHints {
    /// For requests that name no device.
    default: Option<Hint>,
    /// For the last device that a request named.
    named: Option<Hint>,
    vacant: Vec<LastHandle<Allocation>>,
}

thread_local! {
    static HINTS: RefCell<ThreadHints> = const {
        RefCell::new(ThreadHints {
            default: None,
            named: None,
            vacant: Vec::new(),
        })
    };
}

/// Takes a vacant allocation of this thread.
pub(super) fn take_vacant() -> Option<LastHandle<Allocation>> {
    // `try_with`, here and below, because buffers may be created or dropped while the thread's
    // locals are destroyed.
    HINTS.try_with(|hints| hints.borrow_mut().vacant.pop()).ok().flatten()
}

/// Caches an allocation for this thread; drops it when the cache is full or destroyed.
#[inline]
fn cache(allocation: LastHandle<Allocation>) {
    let _ = HINTS.try_with(|hints| {
        let vacant = &mut hints.borrow_mut().vacant;
        if vacant.len() < MAX_VACANT {
            vacant.push(allocation);
        }
    });
}

/// Allocates without waits, with this thread's hint for the device, or with the hint for requests
/// without a device.
#[inline(always)]
pub(super) fn allocate_hinted(
    bytes: usize,
    device: Option<Device>,
) -> Result<Counted<Allocation>, Box<NotServed>> {
    let served = HINTS.try_with(|hints| {
        let mut borrowed = hints.borrow_mut();
        let ThreadHints { default, named, vacant } = &mut *borrowed;
        let hint = match device {
            None => default.as_ref(),
            Some(device) => named.as_ref().filter(|(home, _)| home.device() == device),
        };
        let Some((home, origin)) = hint else { return Err(NotServed::unknown()) };
        if home.core().on_host {
            return Allocation::at_once(home.core(), bytes, origin, || vacant.pop());
        }
        // Copied before the borrow ends: a driver's poll may drop buffers, which borrow the hints.
        let (home, origin) = (home.clone(), origin.clone());
        drop(borrowed);
        Allocation::at_once(home.core(), bytes, &origin, take_vacant)
    });
    served.unwrap_or_else(|_| Err(NotServed::unknown()))
}

/// Sets a hint of this thread, until [`forget_hints`]: with `is_default` the hint for requests
/// without a device, else the hint for the stream's device. The allocator must live as long as the
/// process. The stream must live as long, or be current on this thread.
pub(crate) fn remember_hint(home: Stream, origin: Origin, is_default: bool) {
    let replaced = HINTS.try_with(|hints| {
        let ThreadHints { default, named, .. } = &mut *hints.borrow_mut();
        if is_default { default } else { named }.replace((home, origin))
    });
    drop(replaced); // outside the borrow: a hint may hold the last handle of a stream
}

/// Clears the hints; called when the thread's current device, stream, pool or mode changes.
pub fn forget_hints() {
    let forgotten = HINTS.try_with(|hints| {
        let ThreadHints { default, named, .. } = &mut *hints.borrow_mut();
        (default.take(), named.take())
    });
    drop(forgotten); // outside the borrow: a hint may hold the last handle of a stream
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::runtime::Runtime;

    #[test]
    fn a_thread_keeps_a_limited_number_of_vacant_allocations() {
        let runtime = Runtime::global().unwrap();
        let request = |_| runtime.empty(512, Device::cpu(0)).unwrap();
        drop((0..2 * MAX_VACANT).map(request).collect::<Vec<_>>());
        assert_eq!(HINTS.with_borrow(|hints| hints.vacant.len()), MAX_VACANT);
    }
}
