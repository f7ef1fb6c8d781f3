//! Handles: numbers of slots with a generation, so that a handle of what was destroyed is an error.
//!
//! A handle contains the place of its slot (bits 0 to 31), the tag of its noun (bits 32 to 35) and
//! the generation of the slot (bits 36 to 62). It is never 0, and bit 63 is never set: that bit
//! marks the word of a slot without a value. A lookup refuses numbers with bit 63 before it
//! compares them with the slot's word, takes no lock and writes nothing. Slots are never freed.
//!
//! | slot | word | value | written by |
//! |---|---|---|---|
//! | vacant | `VACANT` and the next handle | none | the thread that took the place off the vacant ones |
//! | live | the handle | present | the thread whose exchange removes the value |
//! | retired, after its last generation | `RETIRED` | none | no thread |
//!
//! A lookup reads the value by a shared reference. A program that destroys a handle on one thread
//! while another thread's call uses it breaks the rule that docs/c.md states; the
//! generation shows uses that come later.
#![expect(
    unsafe_code,
    reason = "slots are shared by address; their words say who may use the value"
)]

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::thread::LocalKey;

use accelrt::internal::{LockRank, Mutex, fork};

use crate::status::{Outcome, Refused, Status};

/// The first chunk has this many slots, each later one twice as many.
const FIRST_SLOTS: usize = 64;
const CHUNK_BITS: u32 = 5;
/// 64 * 2^23 slots in the last one: places fit in 32 bits.
const CHUNKS: usize = 24;
const TAG_SHIFT: u32 = 32;
const GENERATION: u64 = 1 << 36;
/// Reserved: no handle contains this bit.
const VACANT: u64 = 1 << 63;
/// The word of a slot without a next generation. Its place is not used again, so that no handle
/// names two values.
const RETIRED: u64 = VACANT;

/// How many vacant places a thread has for itself.
const LOCAL_PLACES: usize = 32;

struct Slot<T> {
    /// The handle, or `VACANT`. Release and Acquire: a lookup that sees the handle sees the value.
    word: AtomicU64,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// The slots of one kind of handle.
pub(super) struct Slots<T: 'static> {
    chunks: [AtomicPtr<Slot<T>>; 1 << CHUNK_BITS],
    /// Vacant places that no thread has for itself.
    vacant: Mutex<VacantPlaces>,
    tag: u64,
    what: &'static str,
    /// `None` for kinds that seldom come and go.
    local: Option<&'static LocalKey<LocalPlaces>>,
}

struct VacantPlaces {
    places: Vec<u32>,
    /// The chunks that were made.
    num_chunks: usize,
}

/// The vacant places of one thread, so that most handles come and go without a lock.
pub(super) struct LocalPlaces {
    places: [Cell<u32>; LOCAL_PLACES],
    count: Cell<usize>,
    /// Gets the places when the thread ends.
    home: fn(&[u32]),
}

// SAFETY: a value is written by the thread that owns its place and read through shared references
// by every thread, and dropped or moved by one: `T` is shared and sent.
unsafe impl<T: Send + Sync> Sync for Slots<T> {}

impl LocalPlaces {
    pub(super) const fn new(home: fn(&[u32])) -> Self {
        Self { places: [const { Cell::new(0) }; LOCAL_PLACES], count: Cell::new(0), home }
    }

    #[inline]
    fn pop(&self) -> Option<u32> {
        let count = self.count.get().checked_sub(1)?;
        self.count.set(count);
        Some(self.places[count].get())
    }

    /// False when there is no room.
    #[inline]
    fn push(&self, place: u32) -> bool {
        let count = self.count.get();
        let Some(room) = self.places.get(count) else { return false };
        room.set(place);
        self.count.set(count + 1);
        true
    }
}

impl Drop for LocalPlaces {
    fn drop(&mut self) {
        let places: Vec<_> = std::iter::from_fn(|| self.pop()).collect();
        (self.home)(&places);
    }
}

impl<T: Send + Sync> Slots<T> {
    /// `tag` is the kind's own number from 1 to 15, `what` its name in errors.
    pub(super) const fn new(
        tag: u64,
        what: &'static str,
        local: Option<&'static LocalKey<LocalPlaces>>,
    ) -> Self {
        assert!(0 < tag && tag < 16, "a kind has four bits of a handle");
        Self {
            chunks: [const { AtomicPtr::new(ptr::null_mut()) }; 1 << CHUNK_BITS],
            vacant: Mutex::new(
                LockRank::Bindings,
                VacantPlaces { places: Vec::new(), num_chunks: 0 },
            ),
            tag,
            what,
            local,
        }
    }

    /// The slot that a handle of a program names. `None` for a number that is no handle: the word
    /// of a vacant slot equals such a number.
    #[inline(always)]
    fn slot_of(&self, handle: u64) -> Option<&Slot<T>> {
        if handle & VACANT != 0 {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "the place is the lower half")]
        self.slot(handle as u32)
    }

    /// The slot that a place names, if its chunk was made.
    #[inline(always)]
    fn slot(&self, place: u32) -> Option<&Slot<T>> {
        let chunk = (place & ((1 << CHUNK_BITS) - 1)) as usize;
        // Acquire: pairs with the release in `grow`, which initialised the slots.
        let first = self.chunks[chunk].load(Ordering::Acquire);
        let offset = (place >> CHUNK_BITS) as usize & ((FIRST_SLOTS << chunk) - 1);
        if first.is_null() {
            return None;
        }
        // SAFETY: the chunk has `FIRST_SLOTS << chunk` slots, which the mask stays below.
        let slot = unsafe { first.add(offset) };
        // SAFETY: slots are initialised before their chunk is published, and never freed.
        Some(unsafe { &*slot })
    }

    /// The value that a handle names.
    #[inline(always)]
    pub(super) fn get(&self, handle: u64) -> Outcome<&T> {
        match self.slot_of(handle) {
            // Acquire: pairs with the release in `insert`.
            Some(slot) if slot.word.load(Ordering::Acquire) == handle => {
                // SAFETY: the word is the handle, so the value was written before. It is moved out
                // only by `remove`, which a program does not call while this handle is in use.
                let value = unsafe { &*slot.value.get() };
                // SAFETY: as above.
                Ok(unsafe { value.assume_init_ref() })
            }
            _ => Err(self.stale(handle)),
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn stale(&self, handle: u64) -> Refused {
        let what = self.what;
        if handle == 0 {
            return Refused::argument(format!("The {what} is NULL"));
        }
        let text = format!("The {what} {handle:#x} was destroyed, or is none");
        Refused::new(Status::StaleHandle, text)
    }

    /// Gives a value a handle. Fails in a forked child when the thread has no vacant place, because
    /// a thread that the child lacks may hold the lock.
    #[inline]
    pub(super) fn insert(&self, value: T) -> Outcome<u64> {
        let place = match self.with_local(LocalPlaces::pop).flatten() {
            Some(place) => place,
            None => self.take_places()?,
        };
        let slot = self.slot(place).expect("a vacant place has its slot");
        // Relaxed: only the thread that took the place writes the word now.
        let handle = slot.word.load(Ordering::Relaxed) & !VACANT;
        // SAFETY: the slot is vacant and its place was taken by this thread, so no other thread
        // writes the value, and none reads it before the word is the handle.
        unsafe { (*slot.value.get()).write(value) };
        // Release: pairs with the acquire in `get`.
        slot.word.store(handle, Ordering::Release);
        Ok(handle)
    }

    /// Makes a handle stale, and returns what it named.
    #[inline]
    pub(super) fn remove(&self, handle: u64) -> Outcome<T> {
        let Some(slot) = self.slot_of(handle) else { return Err(self.stale(handle)) };
        let next = next_word(handle);
        // Acquire: pairs with `insert`, whose value is moved out. Of two threads that destroy a
        // handle one exchanges the word. Relaxed: a failed exchange reads no value.
        let exchanged =
            slot.word.compare_exchange(handle, next, Ordering::Acquire, Ordering::Relaxed);
        if exchanged.is_err() {
            return Err(self.stale(handle));
        }
        // SAFETY: this thread made the slot vacant, so it alone moves the value, once.
        let value = unsafe { slot.value.get().read() };
        // SAFETY: as above; `insert` has written it.
        let value = unsafe { value.assume_init() };
        if next != RETIRED {
            self.reuse(handle);
        }
        Ok(value)
    }

    /// Makes the place of a handle available to later values.
    #[inline]
    fn reuse(&self, handle: u64) {
        #[expect(clippy::cast_possible_truncation, reason = "the place is the lower half")]
        let place = handle as u32;
        let is_local = self.with_local(|local| local.push(place)).unwrap_or(false);
        if !is_local {
            self.give_places_back(place);
        }
    }

    /// Takes places for this thread, and returns one of them.
    #[cold]
    #[inline(never)]
    fn take_places(&self) -> Outcome<u32> {
        fork::check()?;
        let mut vacant = self.vacant.lock();
        if vacant.places.is_empty() {
            self.grow(&mut vacant);
        }
        self.with_local(|local| {
            while vacant.places.len() > 1 && local.count.get() < LOCAL_PLACES / 2 {
                local.push(vacant.places.pop().expect("there are some"));
            }
        });
        Ok(vacant.places.pop().expect("a chunk has places"))
    }

    /// Makes the next chunk.
    fn grow(&self, vacant: &mut VacantPlaces) {
        let chunk = vacant.num_chunks;
        assert!(chunk < CHUNKS, "a billion of {} are in use", self.what);
        let count = FIRST_SLOTS << chunk;
        let place = |offset: usize| {
            u32::try_from(offset << CHUNK_BITS | chunk).expect("offsets of chunks have 27 bits")
        };
        let slots = (0..count).map(|offset| Slot {
            word: AtomicU64::new(
                VACANT | GENERATION | self.tag << TAG_SHIFT | u64::from(place(offset)),
            ),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        });
        let slots: Box<[_]> = slots.collect();
        // Release: pairs with the acquire in `slot`.
        self.chunks[chunk].store(Box::leak(slots).as_mut_ptr(), Ordering::Release);
        vacant.places.extend((0..count).rev().map(place));
        vacant.num_chunks += 1;
    }

    /// `None` without places for threads, and on a thread whose variables were destroyed.
    #[inline]
    fn with_local<R>(&self, act: impl FnOnce(&LocalPlaces) -> R) -> Option<R> {
        self.local?.try_with(act).ok()
    }

    #[cold]
    #[inline(never)]
    fn give_places_back(&self, place: u32) {
        if fork::is_child() {
            return; // a thread that the child lacks may hold the lock
        }
        let mut vacant = self.vacant.lock();
        vacant.places.push(place);
        self.with_local(|local| {
            let half = std::iter::from_fn(|| local.pop()).take(LOCAL_PLACES / 2);
            vacant.places.extend(half);
        });
    }

    /// Takes the places of a thread that ends.
    pub(super) fn take_back(&self, places: &[u32]) {
        if !fork::is_child() {
            self.vacant.lock().places.extend(places);
        }
    }
}

/// A handle as programs in C have it: a number in the place of an address.
#[inline(always)]
pub(super) fn to_pointer<H>(handle: u64) -> *mut H {
    #[expect(clippy::cast_possible_truncation, reason = "addresses have 64 bits: see `lib.rs`")]
    ptr::without_provenance_mut(handle as usize)
}

#[inline(always)]
pub(super) fn of_pointer<H>(pointer: *mut H) -> u64 {
    pointer.addr() as u64
}

/// The word of a slot after the value of this handle was removed.
fn next_word(handle: u64) -> u64 {
    let next = handle + GENERATION;
    if next & VACANT == 0 { VACANT | next } else { RETIRED }
}

#[cfg(test)]
mod tests {
    // Which numbers find a value: exactly the handles of live slots.

    use std::collections::HashSet;
    use std::sync::Arc;

    use super::*;

    thread_local! {
        static PLACES: LocalPlaces = const { LocalPlaces::new(|places| LOCAL.take_back(places)) };
    }

    static LOCAL: Slots<u64> = Slots::new(5, "number", Some(&PLACES));

    /// The last generation of a slot.
    const LAST: u64 = VACANT - GENERATION;

    fn slot_of(slots: &Slots<u64>, handle: u64) -> &Slot<u64> {
        slots.slot_of(handle).expect("the handle has a slot")
    }

    /// Moves a live slot to its last generation. Returns the handle that names its value now.
    fn aged(slots: &Slots<u64>, handle: u64) -> u64 {
        let last = handle | LAST;
        slot_of(slots, handle).word.store(last, Ordering::Release);
        last
    }

    /// Numbers next to a word: the word itself, generations up to 2 away, each flip of one bit and
    /// of two bits, each with and without the reserved bit.
    fn neighbours(word: u64) -> impl Iterator<Item = u64> {
        let generations = (-2_i64..=2)
            .map(move |step| word.wrapping_add_signed(step.wrapping_mul(GENERATION.cast_signed())));
        let flips = (0..64).flat_map(move |a| (a..64).map(move |b| word ^ 1 << a ^ 1 << b));
        let single = (0..64).map(move |bit| word ^ 1 << bit);
        let all = generations.chain(flips).chain(single);
        all.flat_map(|number| [number, number ^ VACANT])
    }

    /// Live, vacant, retired and never used slots: their words, and the values of the live ones.
    fn every_state(slots: &Slots<u64>) -> (Vec<u64>, Vec<(u64, u64)>) {
        let handles: Vec<u64> = (0..40).map(|value| slots.insert(value).unwrap()).collect();
        let mut live = Vec::new();
        for (value, &handle) in (0..).zip(&handles) {
            match value % 5 {
                0 => live.push((handle, value)),
                1 => live.push((aged(slots, handle), value)),
                2 => assert_eq!(slots.remove(handle).unwrap(), value),
                3 => assert_eq!(slots.remove(aged(slots, handle)).unwrap(), value),
                _ => {
                    slot_of(slots, handle).word.store(handle + 3 * GENERATION, Ordering::Release);
                    assert_eq!(slots.remove(handle + 3 * GENERATION).unwrap(), value);
                }
            }
        }
        // Of the 64 slots of the first chunk, the last ones were never used.
        let never = (60..64_u64).map(|offset| offset << CHUNK_BITS);
        let never = never.map(|place| slot_of(slots, place).word.load(Ordering::Acquire));
        let words =
            handles.iter().map(|&handle| slot_of(slots, handle).word.load(Ordering::Acquire));
        (words.chain(never).chain(handles.iter().copied()).collect(), live)
    }

    fn check_only_live_handles_are_found(slots: &Slots<u64>) {
        let (words, live) = every_state(slots);
        let is_live: HashSet<u64> = live.iter().map(|(handle, _)| *handle).collect();
        for number in words.into_iter().flat_map(neighbours) {
            if !is_live.contains(&number) {
                assert!(slots.get(number).is_err(), "{number:#x} names a value");
                assert!(slots.remove(number).is_err(), "{number:#x} was removed");
            }
        }
        for (handle, value) in live {
            assert_eq!(*slots.get(handle).unwrap(), value, "{handle:#x}");
            assert_eq!(slots.remove(handle).unwrap(), value, "{handle:#x}");
            assert!(slots.remove(handle).is_err(), "{handle:#x} was removed twice");
        }
    }

    #[test]
    fn only_live_handles_are_found() {
        static SHARED: Slots<u64> = Slots::new(15, "number", None);
        check_only_live_handles_are_found(&LOCAL);
        check_only_live_handles_are_found(&SHARED);
    }

    #[test]
    fn a_retired_slot_is_not_reused() {
        static SLOTS: Slots<u64> = Slots::new(1, "number", None);
        let first = SLOTS.insert(0).unwrap();
        assert_eq!(SLOTS.remove(aged(&SLOTS, first)).unwrap(), 0);
        let place = |handle: u64| handle & u64::from(u32::MAX);
        let later: HashSet<u64> =
            (0..500).map(|value| place(SLOTS.insert(value).unwrap())).collect();
        assert_eq!(later.len(), 500);
        assert!(!later.contains(&place(first)));
    }

    #[test]
    fn dropped_values_are_not_dropped_again() {
        static SLOTS: Slots<Arc<()>> = Slots::new(2, "value", None);
        let value = Arc::new(());
        let handle = SLOTS.insert(Arc::clone(&value)).unwrap();
        drop(SLOTS.remove(handle).unwrap());
        for number in neighbours(handle) {
            assert!(SLOTS.remove(number).is_err(), "{number:#x}");
        }
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
