//! Segments: blocks of 4 KiB with 64 slots, each on its own cache line, and their pool.
#![expect(
    unsafe_code,
    reason = "segments are raw blocks that producers reach through tagged pointers"
)]

use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use crate::base::size::to_usize;
use crate::base::sync::{AtomicPtr, AtomicU64, Ordering, UnsafeCell};
use crate::queue::command::{CommandContext, Packed};

/// Slots of a segment. Two under loom, so that a model crosses segment boundaries.
#[cfg(not(loom))]
pub(crate) const SLOTS: usize = 64;
#[cfg(loom)]
pub(crate) const SLOTS: usize = 2;

/// [`SLOTS`] as an index, which is 64 bits wide.
pub(super) const SLOTS_PER_SEGMENT: u64 = SLOTS as u64;

/// The prefetch distance in slots: about the number of pushes that a producer makes during the
/// transfer of a cache line between two processors.
const SLOTS_AHEAD: u64 = 8;

/// The cell of one command, at the start of a cache line.
///
/// `sequence` has the index of the command published here, and a bit that marks a command of the
/// runtime ([`sequence_of`]). While `sequence` has another index, the command is not published yet.
/// The indices of one queue only grow, so a reused slot needs no reset within its queue.
#[repr(C)]
pub(super) struct Slot<C: CommandContext> {
    pub(super) sequence: AtomicU64,
    pub(super) packed: UnsafeCell<MaybeUninit<Packed<C>>>,
}

/// A slot and a link, together one cache line.
#[repr(C)]
struct Line<C: CommandContext> {
    slot: Slot<C>,
    /// In line 0 the next segment of the queue, in line 1 the next retired segment; else unused.
    link: AtomicPtr<Segment<C>>,
}

#[cfg(loom)]
impl<C: CommandContext> Line<C> {
    fn empty() -> Self {
        let packed = UnsafeCell::new(MaybeUninit::uninit());
        let slot = Slot { sequence: AtomicU64::new(UNPUBLISHED), packed };
        Self { slot, link: AtomicPtr::new(ptr::null_mut()) }
    }
}

/// The sequence number of a slot that publishes no command: [`sequence_of`] is never 0.
const UNPUBLISHED: u64 = 0;

/// The value of `sequence` that publishes the command of an index; never 0.
#[inline]
pub(super) fn sequence_of(index: u64, is_internal: bool) -> u64 {
    (index + 1) << 1 | u64::from(is_internal)
}

/// True when `sequence` publishes the command at `index`, a user's or the runtime's.
#[inline]
pub(super) fn is_published(sequence: u64, index: u64) -> bool {
    sequence >> 1 == index + 1
}

/// An array of slots. The last slot has no link, so that the block has 4 KiB including the 8-byte
/// header of the C library's allocator. With a link the block would have 16 bytes more.
#[cfg_attr(not(loom), repr(C))]
#[cfg_attr(loom, repr(C, align(64)))] // aligns the box; else `LAYOUT` does
pub(super) struct Segment<C: CommandContext> {
    lines: [Line<C>; LINES],
    #[cfg(not(loom))]
    last: Slot<C>,
    /// Each thread that accesses the segment reads this cell, and the consumer that reclaims the
    /// segment writes it. So loom reports a reclamation that is not ordered after every access.
    #[cfg(loom)]
    reach: UnsafeCell<()>,
}

#[cfg(not(loom))]
const LINES: usize = SLOTS - 1;
#[cfg(loom)] // without `last`, because line 1 needs its link
const LINES: usize = SLOTS;

/// Aligned to a cache line, so that no slot crosses lines.
#[cfg(not(loom))]
const LAYOUT: std::alloc::Layout =
    match std::alloc::Layout::from_size_align(size_of::<Segment<()>>(), 64) {
        Ok(layout) => layout,
        Err(_) => panic!("the alignment is a power of two"),
    };

#[cfg(not(loom))]
const _: () = assert!(size_of::<Line<()>>() == 64 && LAYOUT.size() == 4096 - 8);

impl<C: CommandContext> Segment<C> {
    #[inline]
    pub(super) fn slot(&self, index: u64) -> &Slot<C> {
        let lines = ptr::from_ref(self).cast::<Line<C>>();
        let line = lines.wrapping_add(to_usize(index % SLOTS_PER_SEGMENT));
        // SAFETY: the layouts are C's, so a slot begins at every 64 bytes of a segment: in each
        // line, and as `last`. The remainder above is an index of one of these slots.
        unsafe { &*line.cast::<Slot<C>>() }
    }

    /// Prefetches the line of a later slot, which the consumer's processor accessed last. Without
    /// the prefetch, the write to that slot would miss the cache, and the next claim, a locked
    /// instruction, would wait for the write. Behind the last slots comes the installation of the
    /// next segment, which writes to `boundary`.
    #[inline]
    pub(super) fn prefetch_ahead_of<T>(&self, index: u64, boundary: &T) {
        let ahead = index % SLOTS_PER_SEGMENT + SLOTS_AHEAD;
        if ahead < SLOTS_PER_SEGMENT {
            prefetch_to_write(self.slot(ahead));
        } else {
            prefetch_to_write(boundary);
        }
    }

    /// Prefetches the first slots, ahead of which no push is.
    pub(super) fn prefetch_first(&self) {
        let ahead = SLOTS_AHEAD.min(SLOTS_PER_SEGMENT);
        (0..ahead).for_each(|index| prefetch_to_write(self.slot(index)));
    }

    /// The link to the next segment of the queue; null until a thread links one.
    #[inline]
    pub(super) fn next(&self) -> &AtomicPtr<Self> {
        &self.lines[0].link
    }

    /// Counts the runtime's own commands that are published in this segment at `index` or later.
    pub(super) fn internal_from(&self, index: u64) -> usize {
        let is_internal = |slot: &u64| {
            // Relaxed: the count reads sequence numbers and no commands.
            let sequence = self.slot(*slot).sequence.load(Ordering::Relaxed);
            sequence & 1 != 0 && sequence >= sequence_of(index, true)
        };
        (0..SLOTS_PER_SEGMENT).filter(is_internal).count()
    }

    /// Tells loom that a thread accesses this segment. The thread has incremented `installing`, and
    /// so prevents a reclamation.
    #[cfg(loom)]
    pub(super) fn note_reached(&self) {
        self.reach.with(|_| ());
    }

    /// Tells loom that the consumer reclaims this segment.
    #[cfg(loom)]
    pub(super) fn note_reclaimed(&self) {
        self.reach.with_mut(|_| ());
    }

    /// The link to the segment that the consumer retired before this one.
    pub(super) fn next_retired(&self) -> &AtomicPtr<Self> {
        &self.lines[1].link
    }
}

/// Prefetches a line in exclusive state. A prefetch for a read would get the line in shared state,
/// and the write would fetch the line again.
#[cfg(all(target_arch = "x86_64", not(loom)))]
#[inline]
fn prefetch_to_write<T>(target: &T) {
    // SAFETY: the instruction is a hint, which changes no memory and no register; processors
    // without it ignore it. The compiler's own intrinsic becomes the hint for a read.
    unsafe {
        std::arch::asm!(
            "prefetchw [{}]",
            in(reg) target,
            options(nostack, preserves_flags, readonly)
        );
    };
}

#[cfg(not(all(target_arch = "x86_64", not(loom))))]
fn prefetch_to_write<T>(_target: &T) {}

/// Takes a segment for the queue `queue_id` from the pool, else allocates one. No slot of it
/// publishes a command of this queue's later indices, and its links are null.
pub(super) fn take<C: CommandContext>(queue_id: u64) -> NonNull<Segment<C>> {
    #[cfg(loom)]
    let _ = queue_id;
    #[cfg(not(loom))]
    if let Some(segment) = pool::take(queue_id) {
        return segment;
    }
    new()
}

/// Returns a segment of the queue `queue_id` to the pool, or frees it when the pool is full or
/// locked.
///
/// # Safety
/// The segment came from [`take`] with this id, holds no command, and no producer can reach it any
/// more.
pub(super) unsafe fn release<C: CommandContext>(segment: NonNull<Segment<C>>, queue_id: u64) {
    #[cfg(loom)]
    let _ = queue_id;
    #[cfg(not(loom))]
    let Some(segment) = pool::put(segment, queue_id) else { return };
    // SAFETY: the segment came from `take`, hence from `new`, and the caller does not use it again.
    unsafe { free(segment) };
}

#[cfg(not(loom))]
fn new<C: CommandContext>() -> NonNull<Segment<C>> {
    // SAFETY: the layout is not of size zero: a segment has 4 KiB.
    let block = unsafe { std::alloc::alloc(LAYOUT) };
    let block = NonNull::new(block).unwrap_or_else(|| std::alloc::handle_alloc_error(LAYOUT));
    let segment = block.cast::<Segment<C>>();
    // Word by word, because a line as a whole would be copied with its unused bytes.
    // SAFETY: no other thread has the block; it is large and aligned enough, and may be
    // uninitialised.
    let lines = unsafe { segment.cast::<[MaybeUninit<Line<C>>; LINES]>().as_mut() };
    for line in lines {
        let fields = line.as_mut_ptr();
        // SAFETY: the field is inside the block.
        let sequence = unsafe { &raw mut (*fields).slot.sequence };
        // SAFETY: no other thread has the block, and the field is inside it.
        unsafe { sequence.write(AtomicU64::new(UNPUBLISHED)) };
        // SAFETY: the field is inside the block.
        let link = unsafe { &raw mut (*fields).link };
        // SAFETY: no other thread has the block, and the field is inside it.
        unsafe { link.write(AtomicPtr::new(ptr::null_mut())) };
    }
    // SAFETY: the field is inside the block.
    let last = unsafe { &raw mut (*segment.as_ptr()).last.sequence };
    // SAFETY: no other thread has the block, and the field is inside it.
    unsafe { last.write(AtomicU64::new(UNPUBLISHED)) };
    segment
}

/// # Safety
/// The segment came from [`new`] and is not used again.
#[cfg(not(loom))]
unsafe fn free<C: CommandContext>(segment: NonNull<Segment<C>>) {
    // SAFETY: the caller guarantees that `new` allocated the segment, with this layout.
    unsafe { std::alloc::dealloc(segment.as_ptr().cast(), LAYOUT) };
}

/// Builds the segment by value, because loom's types are not plain memory.
#[cfg(loom)]
fn new<C: CommandContext>() -> NonNull<Segment<C>> {
    NonNull::from(Box::leak(Box::new(Segment {
        lines: std::array::from_fn(|_| Line::empty()),
        reach: UnsafeCell::new(()),
    })))
}

/// # Safety
/// The segment came from [`new`] and is not used again.
#[cfg(loom)]
unsafe fn free<C: CommandContext>(segment: NonNull<Segment<C>>) {
    // SAFETY: the caller got the segment from `new`, which leaked a box of this type.
    drop(unsafe { Box::from_raw(segment.as_ptr()) });
}

/// The pool of unused segments, shared by all queues. A queue that grows takes segments that
/// another queue has drained, without a call of the system's allocator. The pool is bounded, so
/// that the memory of a long queue returns to the system after the queue is drained.
///
/// Last in, first out: the segment used last is still in a cache. A first-in, first-out pool would
/// cycle through all its segments, most of which are no longer in a cache.
///
/// A queue that takes one of its own segments back need not clear the slots: they have indices that
/// were consumed, and the indices of one queue only grow. Clearing would write to 64 cache lines
/// that the consumer's processor still has, and the next claim, a locked instruction, would wait
/// for all of them.
#[cfg(not(loom))]
mod pool {
    use std::mem::MaybeUninit;

    use super::{CommandContext, NonNull, Ordering, Segment};
    use super::{UNPUBLISHED, ptr};
    use crate::base::spin::SpinMutex;

    /// The maximum number of pooled segments: 4 MiB of memory.
    const CAPACITY: usize = 1024;

    /// An unused segment, and the queue that used it last.
    struct Idle {
        segment: NonNull<Segment<()>>,
        queue_id: u64,
    }
    // SAFETY: an idle segment is reachable only through the pool and holds no command.
    unsafe impl Send for Idle {}

    /// A stack. Its entries stand here and not in the segments, whose lines another processor has.
    struct Stack {
        entries: [MaybeUninit<Idle>; CAPACITY],
        count: usize,
    }

    // Threads only try this lock: its holder may be preempted or be a thread of the forked parent.
    static IDLE: SpinMutex<Stack> =
        SpinMutex::new(Stack { entries: [const { MaybeUninit::uninit() }; CAPACITY], count: 0 });

    /// Takes a segment, with cleared links. `None` if the pool is empty or another thread locks it.
    pub(super) fn take<C: CommandContext>(queue_id: u64) -> Option<NonNull<Segment<C>>> {
        let mut idle = IDLE.try_lock()?;
        let top = idle.count.checked_sub(1)?;
        idle.count = top;
        // SAFETY: the entries below `count` are initialised, and this one is no longer below it.
        let entry = unsafe { idle.entries[top].assume_init_read() };
        let Idle { segment, queue_id: last_user } = entry;
        drop(idle);
        // SAFETY: the segment was in the pool and is not any more, so it is allocated and no other
        // thread uses it.
        let unused = unsafe { segment.as_ref() };
        // Relaxed, twice: no other thread has the segment; linking it into a queue
        // publishes these stores.
        unused.next().store(ptr::null_mut(), Ordering::Relaxed);
        unused.next_retired().store(ptr::null_mut(), Ordering::Relaxed);
        if last_user != queue_id {
            clear(unused);
        }
        // Segments of all context types have the same layout: they store only pointers and words.
        Some(segment.cast())
    }

    /// Makes the slots publish nothing.
    fn clear(segment: &Segment<()>) {
        let slots = segment.lines.iter().map(|line| &line.slot).chain([&segment.last]);
        // Relaxed: as in `take`.
        slots.for_each(|slot| slot.sequence.store(UNPUBLISHED, Ordering::Relaxed));
    }

    /// Puts the segment into the pool. Returns the segment when the pool is full or another thread
    /// holds the lock.
    pub(super) fn put<C: CommandContext>(
        segment: NonNull<Segment<C>>,
        queue_id: u64,
    ) -> Option<NonNull<Segment<C>>> {
        let Some(mut idle) = IDLE.try_lock().filter(|idle| idle.count < CAPACITY) else {
            return Some(segment);
        };
        let top = idle.count;
        idle.entries[top].write(Idle { segment: segment.cast(), queue_id });
        idle.count = top + 1;
        None
    }
}
