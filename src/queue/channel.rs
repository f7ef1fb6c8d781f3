//! The protocol of a queue's threads, which help each other to new segments.
//!
//! Words (`index` and `segment` share a cache line):
//!
//! * `index`: the next free index; advancing it claims the index and its slot. Only grows.
//! * `segment`: the segment of the *lap* `index / SLOTS`. The pointer's low six bits are those of
//!   the lap. `segment` may be one lap behind while `index` is at the boundary of two laps.
//! * `installing`: the number of threads that may be reading a segment in which they have no slot:
//!   producers through `segment` at a segment boundary, and threads that count queued commands
//!   through `oldest`.
//!
//! Producer: (1) read `index`, (2) read `segment`; a wrong lap: install, start again; (3) advance
//! `index` from the value read; (4) write the command, (5) publish it by the slot's sequence
//! number. `index` did not move between 1 and 3, and `segment` changes only while `index` is at
//! a boundary. So at 3 the segment read at 2 contains the claimed slot. This segment cannot be
//! retired before step 5.
//!
//! Install: (1) increment `installing`, (2) read `segment`, (3) link a new segment behind it unless
//! a segment is linked already, (4) swing `segment` to the linked segment, (5) decrement
//! `installing`. Each producer that finds a wrong lap installs, so none waits for another.
//!
//! Retire (the consumer leaves a segment): (1) move `oldest`, (2) read `installing`. At zero, no
//! thread can reach the old segment, and the consumer recycles it. Otherwise the segment waits in a
//! list until a later retirement reads zero. The consumer leaves `segment` to the producers, whose
//! claims need that cache line.
//!
//! A thread that counts commands increments `installing`, then reads `oldest`. This is a Dekker
//! pair with steps 1 and 2: if step 2 misses the increment, the count reads the moved `oldest`. An
//! install needs no such pair. The thread that linked the next segment incremented `installing`
//! before, and decrements it only after it has seen the swing. So a consumer that finds the link
//! and reads zero comes after that decrement, which each later install acquires.
#![expect(unsafe_code, reason = "slots are claimed by a counter, which no borrow can express")]

use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::base::size::to_usize;
use crate::base::sync::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, UnsafeCell};
use crate::queue::command::{Class, Command, CommandContext, Packed};
use crate::queue::segment::{self, SLOTS_PER_SEGMENT, Segment, Slot, is_published, sequence_of};

/// The low bits of a tagged segment pointer, which hold the low bits of the lap.
const TAG_MASK: u64 = 63;

#[inline]
fn lap_of(index: u64) -> u64 {
    index / SLOTS_PER_SEGMENT
}

/// Puts the lap into the low six bits of a pointer, which the segment's alignment leaves zero.
#[inline]
fn tagged<C: CommandContext>(segment: *mut Segment<C>, lap: u64) -> *mut Segment<C> {
    segment.map_addr(|address| address | to_usize(lap & TAG_MASK))
}

#[inline]
fn tag_of<C: CommandContext>(tagged: *mut Segment<C>) -> u64 {
    tagged.addr() as u64 & TAG_MASK
}

#[inline]
fn untagged<C: CommandContext>(tagged: *mut Segment<C>) -> *mut Segment<C> {
    tagged.map_addr(|address| address & !to_usize(TAG_MASK))
}

struct Tail<C: CommandContext> {
    index: AtomicU64,
    segment: AtomicPtr<Segment<C>>,
}

struct Shared<C: CommandContext> {
    tail: CachePadded<Tail<C>>,
    installing: AtomicUsize,
    /// Null before lap 0 is linked; then the segment of lap 0; later the segment of the consumer.
    oldest: AtomicPtr<Segment<C>>,
    /// One unused segment for the next installation, or null.
    spare: AtomicPtr<Segment<C>>,
    /// Identifies this queue to the pool of segments; never used again.
    id: u64,
    /// The consumer's final position. The receiver's drop stores it, and the queue's drop discards
    /// the commands from there on.
    consumer: UnsafeCell<Option<Position<C>>>,
}

struct Position<C: CommandContext> {
    /// The index to consume next.
    head: u64,
    /// The first index behind `segment`.
    segment_end: u64,
    /// The current segment; null before the first.
    segment: *mut Segment<C>,
    /// Segments that the consumer has left and not recycled yet, linked by `next_retired`.
    retired: *mut Segment<C>,
}

// SAFETY: commands are `Send`; segments are shared under the protocol at the head of this file.
unsafe impl<C: CommandContext> Send for Shared<C> {}
// SAFETY: segments are shared under the protocol at the head of this file. Only the drop of the one
// receiver and the later drop of `Shared` access `consumer`.
unsafe impl<C: CommandContext> Sync for Shared<C> {}

/// The producers' end. Any thread may push through a shared reference to it.
pub(crate) struct Sender<C: CommandContext>(Arc<Shared<C>>);

/// The consumer's end, which one thread at a time uses.
pub(crate) struct Receiver<C: CommandContext> {
    shared: Arc<Shared<C>>,
    position: Position<C>,
}

// SAFETY: the raw pointers are to segments of the shared queue, whose commands are `Send`.
unsafe impl<C: CommandContext> Send for Receiver<C> {}

/// The place in the queue that a push gave to its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// The command's number in the queue, from 1.
    pub ticket: u64,
    /// The command's place in its segment. At place 0 callers make checks that are too expensive
    /// for each push.
    pub(crate) place_in_segment: u64,
}

pub(crate) enum Head<'a, C: CommandContext> {
    /// Every claimed slot was consumed.
    Empty,
    /// A producer has claimed the slot and not published its command yet.
    Unpublished,
    Ready(Entry<'a, C>),
}

/// The command at the head of a queue. Dropping the entry leaves the command queued.
pub(crate) struct Entry<'a, C: CommandContext> {
    position: &'a mut Position<C>,
    slot: NonNull<Slot<C>>,
}

/// Creates a queue. The first push allocates the first segment.
pub(crate) fn channel<C: CommandContext>() -> (Sender<C>, Receiver<C>) {
    let before_first = ptr::without_provenance_mut(to_usize(TAG_MASK));
    let shared = Arc::new(Shared {
        tail: CachePadded::new(Tail {
            index: AtomicU64::new(0),
            segment: AtomicPtr::new(before_first),
        }),
        installing: AtomicUsize::new(0),
        oldest: AtomicPtr::new(ptr::null_mut()),
        spare: AtomicPtr::new(ptr::null_mut()),
        id: new_id(),
        consumer: UnsafeCell::new(None),
    });
    let position =
        Position { head: 0, segment_end: 0, segment: ptr::null_mut(), retired: ptr::null_mut() };
    (Sender(Arc::clone(&shared)), Receiver { shared, position })
}

/// An id that no other queue of this process has or had.
fn new_id() -> u64 {
    use crate::base::sync::unmodelled::AtomicU64;
    static IDS: AtomicU64 = AtomicU64::new(0);
    // Relaxed: only uniqueness matters.
    IDS.fetch_add(1, Ordering::Relaxed)
}

impl<C: CommandContext> Sender<C> {
    /// Appends a command. Never blocks. May allocate a segment, and boxes commands over 40 bytes.
    ///
    /// The claim is `SeqCst`: it is the producer's half of the Dekker pair with a consumer that
    /// leaves and then reads [`Sender::pushed`].
    #[inline]
    pub(crate) fn push<T: Command<C>>(&self, command: T) -> Pushed {
        let packed = Packed::new(command); // before the claim, because packing may allocate
        let shared = &*self.0;
        let tail = &shared.tail;
        // Acquire, here and at each retry: pairs with the release of the claim that wrote the
        // index, which makes the swing to this lap's segment visible to the next load. No model: an
        // older segment has another tag, unless it is 64 laps older.
        let mut index = tail.index.load(Ordering::Acquire);
        let segment = loop {
            // Acquire: pairs with the release of the swing, which publishes a linked segment.
            let segment = tail.segment.load(Ordering::Acquire);
            if tag_of(segment) != lap_of(index) & TAG_MASK {
                shared.install();
                index = tail.index.load(Ordering::Acquire); // No model: as at the first load
                continue;
            }
            // SeqCst: claimed before the caller reads the consumer lock; partner: `pushed`, read by
            // a consumer that has left. The release half pairs with the loads of `index` above.
            // Acquire on failure: as these loads. No model: as at the first load.
            let claim = tail.index.compare_exchange_weak(
                index,
                index + 1,
                Ordering::SeqCst,
                Ordering::Acquire,
            );
            match claim {
                Ok(_) => break untagged(segment),
                Err(now) => index = now,
            }
        };
        // SAFETY: the segment contains the claimed slot (head of this file) and is not retired
        // before the slot is published below.
        let slot = unsafe { &*segment }.slot(index);
        // SAFETY: only this call has claimed the slot, and the consumer does not read it before it
        // is published.
        slot.packed.with_mut(|cell| unsafe { cell.write(MaybeUninit::new(packed)) });
        // SAFETY: the segment is not retired before the slot is published below.
        unsafe { &*segment }.prefetch_ahead_of(index, &shared.installing);
        // Release: publishes the command; pairs with the acquire in `Receiver::head`.
        let is_internal = matches!(T::CLASS, Class::Internal);
        slot.sequence.store(sequence_of(index, is_internal), Ordering::Release);
        Pushed { ticket: index + 1, place_in_segment: index % SLOTS_PER_SEGMENT }
    }

    /// The number of commands pushed, which is the ticket of the latest command.
    #[inline]
    pub(crate) fn pushed(&self) -> u64 {
        // SeqCst: the reader may be one half of a Dekker pair; partner: the claim in `push`.
        self.0.tail.index.load(Ordering::SeqCst)
    }
}

impl<C: CommandContext> Sender<C> {
    /// Counts the users' commands behind the first `consumed` commands. An unpublished command
    /// counts as a user's, so the result is exact only while no thread pushes. Reads every queued
    /// slot, so that a push need not count.
    pub(crate) fn users_behind(&self, consumed: u64) -> u64 {
        let shared = &*self.0;
        // SeqCst: incremented before `oldest` is read; partner: `Receiver::retire`, which moves
        // `oldest` before it reads `installing`.
        shared.installing.fetch_add(1, Ordering::SeqCst);
        let mut next = shared.oldest.load(Ordering::SeqCst);
        let mut internal = 0;
        while let Some(segment) = NonNull::new(next) {
            // SAFETY: the consumer had not left the segment when `installing` was incremented, so
            // it is not reclaimed before the decrement (head of this file).
            let segment = unsafe { segment.as_ref() };
            #[cfg(loom)]
            segment.note_reached();
            internal += segment.internal_from(consumed) as u64;
            // Acquire: pairs with the release in `get_or_link`, which publishes the segment.
            next = segment.next().load(Ordering::Acquire);
        }
        // Release: orders the segment reads before the decrement; pairs with `retire`'s load.
        shared.installing.fetch_sub(1, Ordering::Release);
        self.pushed().saturating_sub(consumed + internal)
    }
}

impl<C: CommandContext> Shared<C> {
    /// Swings `tail.segment` to the lap of `tail.index`, unless another thread has done so.
    #[cold]
    #[inline(never)]
    fn install(&self) {
        // Acquire: pairs with the decrement below, by the thread whose swing installed the
        // consumer's current segment (head of this file).
        self.installing.fetch_add(1, Ordering::Acquire);
        // Acquire: pairs with the release of the swing.
        let current = self.tail.segment.load(Ordering::Acquire);
        // Relaxed: an outdated index has the lap of `current` or an earlier lap, and then this call
        // has no effect. No thread reclaims `current` during this call.
        let lap = lap_of(self.tail.index.load(Ordering::Relaxed));
        if tag_of(current) == lap.wrapping_sub(1) & TAG_MASK {
            let segment = untagged(current);
            let link = if segment.is_null() {
                &self.oldest // if lap 0 is over, the swing below fails
            } else {
                // SAFETY: the segment was current after `installing` was incremented, so it is not
                // reclaimed before the decrement (head of this file).
                let segment = unsafe { &*segment };
                #[cfg(loom)]
                segment.note_reached();
                segment.next()
            };
            let next = self.get_or_link(link);
            // Release: publishes the linked segment to the loads in `push`. Relaxed on failure:
            // another thread has succeeded, and the value is not used.
            let _ = self.tail.segment.compare_exchange(
                current,
                tagged(next, lap),
                Ordering::Release,
                Ordering::Relaxed,
            );
        }
        // Release: orders the reads of the segment and the swing before the decrement; pairs with
        // `retire`'s load, and with the increment of the next installation.
        self.installing.fetch_sub(1, Ordering::Release);
    }

    /// The segment that `link` points to. Links the spare or a new segment if `link` is null.
    fn get_or_link(&self, link: &AtomicPtr<Segment<C>>) -> *mut Segment<C> {
        // Acquire: pairs with the release below, by which another installer published the segment.
        let present = link.load(Ordering::Acquire);
        if !present.is_null() {
            return present;
        }
        // Acquire: pairs with the release in `recycle`, which publishes the spare's null links.
        let spare = NonNull::new(self.spare.swap(ptr::null_mut(), Ordering::Acquire));
        let fresh = spare.unwrap_or_else(|| segment::take(self.id));
        // Release: publishes the fresh segment's cleared state to the consumer and other
        // installers. Acquire on failure: pairs with the release of the other installer.
        let linking = link.compare_exchange(
            ptr::null_mut(),
            fresh.as_ptr(),
            Ordering::Release,
            Ordering::Acquire,
        );
        match linking {
            Ok(_) => {
                // SAFETY: only a consumer that has followed the link could retire the segment, and
                // it reads `installing`, which this thread has incremented.
                unsafe { fresh.as_ref() }.prefetch_first();
                fresh.as_ptr()
            }
            Err(present) => {
                self.recycle(fresh);
                present
            }
        }
    }

    /// Stores an unused segment as the spare, or releases the segment if there is a spare.
    fn recycle(&self, segment: NonNull<Segment<C>>) {
        // Release: pairs with the swap in `get_or_link`. Relaxed on failure: the value is not used.
        let keeping = self.spare.compare_exchange(
            ptr::null_mut(),
            segment.as_ptr(),
            Ordering::Release,
            Ordering::Relaxed,
        );
        if keeping.is_err() {
            // SAFETY: the segment came from `take` and is unused; no other thread has its address.
            unsafe { segment::release(segment, self.id) };
        }
    }
}

impl<C: CommandContext> Receiver<C> {
    #[inline]
    pub(crate) fn consumed(&self) -> u64 {
        self.position.head
    }

    /// True when every claimed slot was consumed.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: a consumer that finds no command leaves, then reads `Sender::pushed`.
        self.shared.tail.index.load(Ordering::Relaxed) == self.position.head
    }

    /// A hint: true when the next command is published, or, at a segment boundary, when the next
    /// segment is linked. Reads only the cache line that the next producer writes.
    #[inline]
    pub(crate) fn is_published(&self) -> bool {
        let Position { head, segment_end, segment, .. } = self.position;
        if segment.is_null() {
            return false;
        }
        // SAFETY: `segment` is not null, and only this consumer retires it.
        let segment = unsafe { &*segment };
        if head == segment_end {
            // Relaxed, here and below: a hint, which `head` verifies.
            return !segment.next().load(Ordering::Relaxed).is_null();
        }
        is_published(segment.slot(head).sequence.load(Ordering::Relaxed), head)
    }

    #[inline]
    pub(crate) fn head(&mut self) -> Head<'_, C> {
        if self.position.head == self.position.segment_end && !self.advance() {
            return Head::Empty;
        }
        let head = self.position.head;
        // SAFETY: `segment` is the head's segment, and only this consumer retires it.
        let slot = unsafe { &*self.position.segment }.slot(head);
        // Acquire: pairs with the release by which `push` published the command.
        if is_published(slot.sequence.load(Ordering::Acquire), head) {
            Head::Ready(Entry { slot: NonNull::from(slot), position: &mut self.position })
        } else if self.is_empty() {
            Head::Empty
        } else {
            Head::Unpublished
        }
    }

    /// Claims the next slot as a producer does, consumes it without a command, and returns its
    /// ticket. `None` when a command is queued, and at a segment boundary, where only producers
    /// install a segment.
    #[inline]
    pub(crate) fn take_ticket(&mut self) -> Option<u64> {
        let Position { head, segment_end, .. } = self.position;
        if head == segment_end {
            return None;
        }
        // Relaxed: the consumer publishes no data by this exchange, which continues the release
        // sequence of the last producer's claim for the next claimer. The value of a failed
        // exchange is not used.
        let index = &self.shared.tail.index;
        index.compare_exchange(head, head + 1, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        self.position.head = head + 1;
        Some(head + 1)
    }

    /// Steps into the next segment and retires the current one. False when no segment is linked.
    #[cold]
    fn advance(&mut self) -> bool {
        let old = self.position.segment;
        let link = if old.is_null() {
            &self.shared.oldest
        } else {
            // SAFETY: only this consumer retires the segment, and does so below.
            unsafe { &*old }.next()
        };
        // Acquire: pairs with the release in `get_or_link`, which publishes the segment.
        let next = link.load(Ordering::Acquire);
        if next.is_null() {
            return false;
        }
        if let Some(old) = NonNull::new(old) {
            self.retire(old, next);
        }
        self.position.segment = next;
        self.position.segment_end += SLOTS_PER_SEGMENT;
        true
    }

    /// Retires `old`, whose commands are all consumed. Reclaims the retired segments if no other
    /// thread can reach them.
    fn retire(&mut self, old: NonNull<Segment<C>>, next: *mut Segment<C>) {
        // SeqCst: moved before `installing` is read; partner: `users_behind`.
        self.shared.oldest.store(next, Ordering::SeqCst);
        // SAFETY: only this consumer reclaims the segment, and does so below.
        let link = unsafe { old.as_ref() }.next_retired();
        // Relaxed: only this consumer uses the list of retired segments.
        link.store(self.position.retired, Ordering::Relaxed);
        self.position.retired = old.as_ptr();
        if self.shared.installing.load(Ordering::SeqCst) == 0 {
            self.reclaim();
        }
    }

    /// Recycles the retired segments. The caller has made sure that no other thread can reach them.
    fn reclaim(&mut self) {
        while let Some(segment) = NonNull::new(self.position.retired) {
            // SAFETY: only this consumer can reach retired segments once it has read `installing`
            // as zero.
            let links = unsafe { segment.as_ref() };
            #[cfg(loom)]
            links.note_reclaimed();
            // Relaxed, three times: no other thread has the segment; recycling publishes the links.
            self.position.retired = links.next_retired().load(Ordering::Relaxed);
            links.next_retired().store(ptr::null_mut(), Ordering::Relaxed);
            links.next().store(ptr::null_mut(), Ordering::Relaxed);
            self.shared.recycle(segment);
        }
    }
}

impl<C: CommandContext> Entry<'_, C> {
    /// Calls `access` with the command in its slot.
    #[inline]
    fn with<R>(&mut self, access: impl FnOnce(&mut Packed<C>) -> R) -> R {
        // SAFETY: the slot's segment is retired only by this consumer, which the entry borrows.
        let slot = unsafe { self.slot.as_ref() };
        // SAFETY: the command was published, no producer claims the slot again before it is
        // consumed, and the entry borrows the consumer exclusively.
        let packed = |packed: *mut MaybeUninit<Packed<C>>| unsafe { &mut *packed };
        slot.packed.with_mut(|cell| {
            // SAFETY: the command was published, so it is initialised.
            access(unsafe { packed(cell).assume_init_mut() })
        })
    }

    #[inline]
    pub(crate) fn class(&mut self) -> Class {
        self.with(|packed| packed.class())
    }

    pub(crate) fn operation(&mut self) -> C::Operation {
        self.with(|packed| packed.operation())
    }

    pub(crate) fn details(&mut self) -> C::Details {
        // SAFETY: the command at the head was neither run nor discarded: both consume the slot.
        self.with(|packed| unsafe { packed.details() })
    }

    /// Polls the command. False when it must stay at the head of the queue for now.
    #[inline]
    pub(crate) fn is_ready(&mut self, context: &mut C) -> bool {
        // SAFETY: the command at the head was neither run nor discarded: both consume the slot.
        self.with(|packed| unsafe { packed.is_ready(context) })
    }

    /// Consumes the slot and executes the command.
    #[inline]
    pub(crate) fn run(mut self, context: &mut C) {
        self.position.head += 1;
        // SAFETY: the command was neither run nor discarded, and its slot was just consumed.
        self.with(|packed| unsafe { packed.run(context) });
    }

    /// Consumes the slot and drops the command without executing it.
    pub(crate) fn discard(mut self) {
        self.position.head += 1;
        // SAFETY: the command was neither run nor discarded, and its slot was just consumed.
        self.with(|packed| unsafe { packed.discard() });
    }
}

impl<C: CommandContext> Drop for Receiver<C> {
    fn drop(&mut self) {
        let Position { head, segment_end, segment, retired } = self.position;
        let position = Some(Position { head, segment_end, segment, retired });
        // SAFETY: there is one receiver, and `Shared` is dropped after both ends.
        self.shared.consumer.with_mut(|consumer| unsafe { *consumer = position });
    }
}

impl<C: CommandContext> Drop for Shared<C> {
    /// Discards the remaining commands and releases every segment.
    fn drop(&mut self) {
        // SAFETY: `&mut self` means that no other thread uses the queue.
        let position = self.consumer.with_mut(|consumer| unsafe { (*consumer).take() });
        let Some(mut position) = position else { return };
        // Relaxed, at each load in this function: no other thread has the queue.
        let end = self.tail.index.load(Ordering::Relaxed);
        loop {
            if position.head == position.segment_end {
                let next = match NonNull::new(position.segment) {
                    None => self.oldest.load(Ordering::Relaxed),
                    // SAFETY: the segment was linked and not released yet.
                    Some(old) => unsafe { old.as_ref() }.next().load(Ordering::Relaxed),
                };
                if let Some(old) = NonNull::new(position.segment) {
                    // SAFETY: `old` has no command left, and no other thread uses the queue.
                    unsafe { segment::release(old, self.id) };
                }
                let Some(next) = NonNull::new(next) else { break };
                position.segment = next.as_ptr();
                position.segment_end += SLOTS_PER_SEGMENT;
            } else if position.head < end {
                // SAFETY: the segment was linked and not released yet.
                let slot = NonNull::from(unsafe { &*position.segment }.slot(position.head));
                Entry { position: &mut position, slot }.discard();
            } else {
                position.head = position.segment_end;
            }
        }
        let mut retired = position.retired;
        while let Some(segment) = NonNull::new(retired) {
            // SAFETY: retired segments were not released yet.
            retired = unsafe { segment.as_ref() }.next_retired().load(Ordering::Relaxed);
            // SAFETY: the segment holds no command, and no other thread uses the queue.
            unsafe { segment::release(segment, self.id) };
        }
        if let Some(spare) = NonNull::new(self.spare.load(Ordering::Relaxed)) {
            // SAFETY: the spare holds no command, and no other thread uses the queue.
            unsafe { segment::release(spare, self.id) };
        }
    }
}

impl<C: CommandContext> fmt::Debug for Sender<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("pushed", &self.pushed()).finish()
    }
}

impl<C: CommandContext> fmt::Debug for Receiver<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("consumed", &self.consumed()).finish()
    }
}
