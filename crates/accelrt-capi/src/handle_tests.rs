//! Which numbers find a value: exactly the handles of live slots.

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

/// Numbers next to a word: the word itself, generations up to 2 away, each flip of one bit and of
/// two bits, each with and without the reserved bit.
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
    let words = handles.iter().map(|&handle| slot_of(slots, handle).word.load(Ordering::Acquire));
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
    let later: HashSet<u64> = (0..500).map(|value| place(SLOTS.insert(value).unwrap())).collect();
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
