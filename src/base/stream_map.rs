//! A map by stream: linear search for few entries, a hash table for many, incremental cleanup.
//!
//! A cleanup removes entries that its caller no longer needs. It checks a bounded number of
//! entries, and starts behind the entries that the last cleanup checked. A number of cleanups
//! proportional to the number of entries therefore checks every entry.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::base::steps::step;

/// The maximum number of entries in a map without a hash table.
const MAX_LINEAR: usize = 8;

/// Values by stream key. Iterators have no particular order.
#[derive(Debug)]
pub(crate) struct StreamMap<V> {
    entries: Vec<(u64, V)>,
    /// Maps each key to its entry's index. `insert` builds the table above `MAX_LINEAR` entries;
    /// removing the last entry drops the table.
    indices: Option<HashMap<u64, usize, BuildHasherDefault<Mixer>>>,
    /// The index of the entry that the next cleanup checks first.
    next_check: usize,
}

impl<V> Default for StreamMap<V> {
    fn default() -> Self {
        Self { entries: Vec::new(), indices: None, next_check: 0 }
    }
}

impl<V> StreamMap<V> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn index_of(&self, key: u64) -> Option<usize> {
        if let Some(indices) = &self.indices {
            step();
            return indices.get(&key).copied();
        }
        self.entries.iter().position(|(known, _)| {
            step();
            *known == key
        })
    }

    pub(crate) fn get(&self, key: u64) -> Option<&V> {
        self.index_of(key).map(|index| &self.entries[index].1)
    }

    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        self.index_of(key).map(|index| &mut self.entries[index].1)
    }

    /// The value of stream `key`. Inserts the value of `make` if the stream has none.
    pub(crate) fn get_or_insert_with(&mut self, key: u64, make: impl FnOnce() -> V) -> &mut V {
        let index = self.index_of(key).unwrap_or_else(|| {
            self.insert(key, make());
            self.entries.len() - 1
        });
        &mut self.entries[index].1
    }

    /// Adds the value of a stream. The stream must have none.
    pub(crate) fn insert(&mut self, key: u64, value: V) {
        debug_assert!(self.index_of(key).is_none(), "stream {key} has a value");
        self.entries.push((key, value));
        if let Some(indices) = &mut self.indices {
            indices.insert(key, self.entries.len() - 1);
        } else if self.entries.len() > MAX_LINEAR {
            let keys = self.entries.iter().map(|(key, _)| *key);
            self.indices = Some(keys.zip(0..).collect());
        }
    }

    fn remove_at(&mut self, index: usize) -> V {
        let (key, value) = self.entries.swap_remove(index);
        if let Some(indices) = &mut self.indices {
            indices.remove(&key);
            if let Some((moved, _)) = self.entries.get(index) {
                indices.insert(*moved, index);
            }
        }
        self.shrink();
        value
    }

    /// True when the next insertion reallocates.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() == self.entries.capacity()
    }

    /// Reserves capacity for twice the current number of entries.
    pub(crate) fn make_room(&mut self) {
        self.entries.reserve(self.entries.len());
    }

    /// Frees unused capacity when a map of more than `MAX_LINEAR` entries uses less than a quarter
    /// of it, and all of it when the map is empty. The removals since the last reallocation
    /// amortise the copy.
    fn shrink(&mut self) {
        let count = self.entries.len();
        if count == 0 {
            *self = Self::default();
        } else if count * 4 < self.entries.capacity() && count > MAX_LINEAR {
            self.entries.shrink_to(count * 2);
            if let Some(indices) = &mut self.indices {
                indices.shrink_to(count * 2);
            }
        }
    }

    /// Checks the next `most` entries, or all if there are fewer. Removes and returns the values
    /// for which `is_over` is true. The next call continues behind the last checked entry.
    pub(crate) fn extract_if(
        &mut self,
        most: usize,
        mut is_over: impl FnMut(u64, &mut V) -> bool,
    ) -> Vec<V> {
        let mut over = Vec::new();
        if most >= self.entries.len() {
            self.next_check = 0; // after a removal, another start could skip an entry
        }
        for _ in 0..most.min(self.entries.len()) {
            step();
            if self.next_check >= self.entries.len() {
                self.next_check = 0;
            }
            let (key, value) = &mut self.entries[self.next_check];
            if !is_over(*key, value) {
                self.next_check += 1;
                continue;
            }
            let next_check = self.next_check; // `remove_at` moves the last entry here
            over.push(self.remove_at(next_check));
        }
        over
    }

    /// The next `most` entries that [`StreamMap::extract_if`] checks if it removes none of them.
    pub(crate) fn next(&self, most: usize) -> impl Iterator<Item = (u64, &V)> {
        let (behind, first) = self.entries.split_at(self.next_check.min(self.entries.len()));
        let next = first.iter().chain(behind).take(most);
        next.inspect(|_| step()).map(|(key, value)| (*key, value))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        self.entries.iter().map(|(key, value)| (*key, value))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|(_, value)| value)
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = V> {
        self.entries.into_iter().map(|(_, value)| value)
    }
}

/// A hasher of numbers. It need not resist chosen collisions: the runtime numbers the streams.
#[derive(Debug, Default)]
pub struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The odd factor next to 2^64 over the golden ratio spreads consecutive numbers.
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::base::steps::steps_of;

    fn filled(count: u64) -> StreamMap<u64> {
        let mut map = StreamMap::default();
        (0..count).for_each(|key| map.insert(key, 10 * key));
        map
    }

    #[test]
    fn a_search_takes_as_many_steps_among_many_as_among_a_few() {
        for count in [1, MAX_LINEAR as u64, MAX_LINEAR as u64 + 1, 16_000] {
            let mut map = filled(count);
            let (found, steps) = steps_of(|| map.get(count - 1).copied());
            assert_eq!(found, Some(10 * (count - 1)));
            assert!(steps <= MAX_LINEAR as u64, "{steps} among {count}");
            let (over, steps) = steps_of(|| map.extract_if(4, |_, _| false));
            assert!(over.is_empty() && steps <= 4, "{steps} among {count}");
        }
    }

    #[test]
    fn repeated_cleanups_find_every_ended_entry() {
        for count in [3, 20, 1000] {
            let mut map = filled(count);
            let mut looks = 0;
            while map.len() > 1 {
                let over = map.extract_if(4, |key, _| key != 2);
                assert!(over.iter().all(|value| *value != 20));
                looks += 1;
            }
            assert!(looks <= count.div_ceil(4) + 1, "{looks} for {count}");
            assert_eq!(map.values().copied().collect::<Vec<_>>(), [20]);
        }
    }

    #[test]
    fn a_full_cleanup_finds_every_ended_entry_from_any_start() {
        for (count, first) in [(3, 2), (20, 7), (1000, 999)] {
            let mut map = filled(count);
            map.extract_if(first, |_, _| false);
            let over = map.extract_if(usize::MAX, |key, _| key < count - 1);
            assert_eq!(
                over.len(),
                usize::try_from(count).unwrap() - 1,
                "of {count} behind {first}"
            );
            assert_eq!(map.len(), 1);
        }
    }

    #[test]
    fn next_lists_the_entries_of_the_next_cleanup() {
        let mut map = filled(30);
        for _ in 0..50 {
            let said: Vec<u64> = map.next(4).map(|(key, _)| key).collect();
            let mut seen = Vec::new();
            map.extract_if(4, |key, _| {
                seen.push(key);
                false
            });
            assert_eq!(said, seen);
        }
    }

    #[test]
    fn the_map_agrees_with_a_model_and_returns_its_memory() {
        let mut map = StreamMap::default();
        let mut model = BTreeMap::new();
        let mut number = 1_u64;
        for round in 0..20_000_u64 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
            let key = (number >> 33) % 300;
            *map.get_or_insert_with(key, || 0) += round;
            *model.entry(key).or_insert(0) += round;
            // Cleanups remove few entries in some rounds, many in others.
            let part = if round / 2000 % 2 == 0 { 50 } else { 2 };
            map.extract_if(3, |key, value| {
                let is_over = (*value + key) % part == 0;
                if is_over {
                    assert_eq!(model.remove(&key), Some(*value));
                }
                is_over
            });
            let known: BTreeMap<u64, u64> = map.iter().map(|(key, value)| (key, *value)).collect();
            assert_eq!(known, model);
            assert!(map.iter().all(|(key, value)| map.get(key) == Some(value)));
        }
        map.extract_if(usize::MAX, |key, _| key > 9);
        assert!(map.entries.capacity() <= 64, "{}", map.entries.capacity());
        map.extract_if(usize::MAX, |_, _| true);
        assert!(map.is_empty() && map.indices.is_none());
    }
}
