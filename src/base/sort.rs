//! Sorting with little code.
//!
//! The library compiles its sort once for each type and each order, some 8 KB of code a time. The
//! functions here share one copy for all types: it sorts the indices of the items, through a call
//! for each comparison, and the items are put in that order then. Where the time of a sort is
//! felt, the library's is called.

use std::cmp::Ordering;

/// Sorts items by keys. Items of the same key keep their order. Needs a word for each item.
pub(crate) fn sort_by_key<T, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    sort_by(items, |one, next| key(one).cmp(&key(next)));
}

/// Sorts items. Items that compare as equal keep their order. Needs a word for each item.
pub(crate) fn sort_by<T>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let mut sources: Vec<usize> = (0..items.len()).collect();
    sort_indices(&mut sources, &|one, next| compare(&items[one], &items[next]));
    for first in 0..items.len() {
        let mut place = first;
        loop {
            let source = std::mem::replace(&mut sources[place], place); // done
            if source == first {
                break;
            }
            items.swap(place, source);
            place = source;
        }
    }
}

/// Sorts indices by what they stand for. Those of equal items keep their order.
pub(crate) fn sort_indices(indices: &mut [usize], compare: &dyn Fn(usize, usize) -> Ordering) {
    indices.sort_by(|one, next| compare(*one, *next));
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn items_stand_in_the_order_of_their_keys_and_equal_ones_in_their_own() {
        let mut random = 1_u64;
        for count in 0..200 {
            let mut items: Vec<(u64, usize)> = (0..count)
                .map(|number| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    ((random >> 60), number)
                })
                .collect();
            let mut expected = items.clone();
            expected.sort_by_key(|item| item.0);
            sort_by_key(&mut items, |item| item.0);
            assert_eq!(items, expected, "{count} items");
        }
    }
}
