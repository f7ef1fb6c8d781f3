//! Which pages are a heap's, found from an address without a lock: three tables, each one step.
//!
//! A pointer that the heap did not give is known by its page having no entry: nothing in front of
//! it is read, and nothing is guessed.

use std::sync::OnceLock;

use crate::base::sync::Ordering;
use crate::base::sync::unmodelled::AtomicU64;
use crate::integrations::host_heap::size_class::PAGE_BYTES;

/// Each table has this many entries: together they cover addresses of 48 bits.
const ENTRIES: usize = 1 << ENTRY_BITS;
const ENTRY_BITS: u32 = 12;
const PAGE_BITS: u32 = PAGE_BYTES.trailing_zeros();

/// What is at a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A slab, by its class and its number there: objects begin and end anywhere in it.
    Slab { class: usize, id: usize },
    /// The first page of a large block of so many pages.
    Large { pages: usize },
    /// The same, freed: no program has it.
    Spare { pages: usize },
}

impl Owner {
    fn to_bits(self) -> u64 {
        match self {
            Self::Slab { class, id } => 1 | (class as u64) << 2 | (id as u64) << 8,
            Self::Large { pages } => 2 | (pages as u64) << 2,
            Self::Spare { pages } => 3 | (pages as u64) << 2,
        }
    }

    #[inline]
    fn from_bits(bits: u64) -> Option<Self> {
        match bits & 3 {
            1 => Some(Self::Slab { class: (bits >> 2 & 63) as usize, id: (bits >> 8) as usize }),
            2 => Some(Self::Large { pages: (bits >> 2) as usize }),
            3 => Some(Self::Spare { pages: (bits >> 2) as usize }),
            _ => None,
        }
    }
}

type Table<T> = Box<[T; ENTRIES]>;

/// The pages of a heap.
#[derive(Debug)]
pub(super) struct Owners(Table<OnceLock<Table<OnceLock<Table<AtomicU64>>>>>);

impl Owners {
    pub(super) fn new() -> Self {
        Self(table())
    }

    /// What is at the page of an address.
    #[inline]
    pub(super) fn at(&self, address: usize) -> Option<Owner> {
        let [first, second, third] = places(address)?;
        let entry = &self.0[first].get()?[second].get()?[third];
        // Relaxed: whoever has an address that is the heap's has it from the thread that set the
        // entry; for others the entry is zero before the page is theirs, and they have the page
        // from where the heap gave it back.
        Owner::from_bits(entry.load(Ordering::Relaxed))
    }

    /// A program has freed a large block; false when another free of it came first.
    pub(super) fn end_large(&self, address: usize, pages: usize) -> bool {
        let places = places(address);
        let [first, second, third] = places.expect("addresses have 48 bits");
        let entry = &self.0[first].get_or_init(table)[second].get_or_init(table)[third];
        let [in_use, spare] = [Owner::Large { pages }, Owner::Spare { pages }].map(Owner::to_bits);
        // Relaxed: one step decides between frees; else as in `at`.
        entry.compare_exchange(in_use, spare, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Notes what is at a page of this heap; `None` when it is not its any more.
    pub(super) fn set(&self, address: usize, owner: Option<Owner>) {
        let places = places(address);
        let [first, second, third] = places.expect("addresses have 48 bits");
        let entry = &self.0[first].get_or_init(table)[second].get_or_init(table)[third];
        // Relaxed: as in `at`.
        entry.store(owner.map_or(0, Owner::to_bits), Ordering::Relaxed);
    }
}

/// Entries of the three tables; `None` for addresses beyond them.
#[inline]
fn places(address: usize) -> Option<[usize; 3]> {
    let page = address >> PAGE_BITS;
    let place = |level: u32| page >> (level * ENTRY_BITS) & (ENTRIES - 1);
    (page >> (3 * ENTRY_BITS) == 0).then(|| [place(2), place(1), place(0)])
}

#[expect(clippy::unnecessary_box_returns, reason = "too large for a stack")]
fn table<T: Default>() -> Table<T> {
    let entries: Box<[T]> = (0..ENTRIES).map(|_| T::default()).collect();
    entries.try_into().unwrap_or_else(|_| unreachable!("it has as many"))
}

#[cfg(test)]
mod tests {
    //! Goal: an entry is found from every address of its page, and from no other. Method: pages at
    //! the ends of the tables.

    use super::*;

    #[test]
    fn an_owner_is_found_from_its_page_alone() {
        let owners = Owners::new();
        let slab = Owner::Slab { class: 35, id: 1 << 30 };
        let large = Owner::Large { pages: 1 << 36 };
        let last = (1 << 48) - PAGE_BYTES;
        for (page, owner) in [(PAGE_BYTES, slab), (1 << 24, large), (last, slab)] {
            assert_eq!(owners.at(page), None);
            owners.set(page, Some(owner));
            for address in [page, page + PAGE_BYTES - 1] {
                assert_eq!(owners.at(address), Some(owner));
            }
            assert_eq!([page - 1, page + PAGE_BYTES].map(|address| owners.at(address)), [None; 2]);
            owners.set(page, None);
            assert_eq!(owners.at(page), None);
        }
        assert_eq!(owners.at(usize::MAX), None);
    }
}
