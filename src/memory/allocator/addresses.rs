//! The page map of the host heap: a radix tree of three tables, read without a lock.
//!
//! A page without an entry is not the heap's, so a foreign pointer is recognised without a read in
//! front of it. Slabs and larger pieces have whole pages of their own.

use std::sync::OnceLock;

use crate::base::size::to_usize;
use crate::base::sync::Ordering;
use crate::base::sync::unmodelled::AtomicU64;
use crate::memory::allocator::block_ref::BlockRef;
use crate::memory::allocator::ids::{BlockId, SlabId};
use crate::memory::allocator::slab::{HEAP_PAGE_BYTES as PAGE_BYTES, SizeClass};
/// The entries of one table. Three tables cover addresses of 48 bits.
const ENTRIES: usize = 1 << ENTRY_BITS;
const ENTRY_BITS: u32 = 12;
const PAGE_BITS: u32 = PAGE_BYTES.trailing_zeros();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A slab, with the number of its pages before this one.
    Slab { id: SlabId, class: SizeClass, pages_before: usize },
    /// The first page of a larger piece in use, with the number of its pages.
    Large { id: BlockId, pages: usize },
    /// The first page of a larger piece that is not in use.
    Spare { id: BlockId, pages: usize },
}

/// An entry is its kind in two bits, and the number of a slab or block in the upper half.
const SLAB: u64 = 1;
const LARGE: u64 = 2;
const SPARE: u64 = 3;
const NUMBER_BIT: u32 = 32;

impl Owner {
    fn to_bits(self) -> u64 {
        let with = |sort: u64, rest: usize, number: u32| {
            let rest = (rest as u64) << 2;
            debug_assert!(rest >> NUMBER_BIT == 0, "{self:?}");
            sort | rest | u64::from(number) << NUMBER_BIT
        };
        match self {
            Self::Slab { id, class, pages_before } => {
                with(SLAB, class.number() | pages_before << 6, id.number())
            }
            Self::Large { id, pages } => with(LARGE, pages, id.number()),
            Self::Spare { id, pages } => with(SPARE, pages, id.number()),
        }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "parts of a word")]
    fn from_bits(bits: u64) -> Option<Self> {
        let (number, rest) = ((bits >> NUMBER_BIT) as u32, bits as u32 as usize >> 2);
        Some(match bits & 3 {
            SLAB => {
                let class = SizeClass::of_heap(rest as u8 & 63);
                Self::Slab { id: SlabId::from_number(number), class, pages_before: rest >> 6 }
            }
            LARGE => Self::Large { id: BlockId::from_number(number), pages: rest },
            SPARE => Self::Spare { id: BlockId::from_number(number), pages: rest },
            _ => return None,
        })
    }

    /// Returns the piece that begins at an address of the page, and its bytes.
    #[inline]
    pub(super) fn piece(self, address: usize) -> Option<(BlockRef, usize)> {
        match self {
            Self::Slab { id, class, pages_before } => {
                let offset = pages_before * PAGE_BYTES + address % PAGE_BYTES;
                let (slot, rest) = (offset / class.bytes(), offset % class.bytes());
                let slot =
                    u8::try_from(slot).ok().filter(|slot| u32::from(*slot) < class.slab_blocks());
                Some((BlockRef::small(id, slot.filter(|_| rest == 0)?), class.bytes()))
            }
            Self::Large { id, pages } | Self::Spare { id, pages } => {
                let begins = address.is_multiple_of(PAGE_BYTES);
                begins.then_some((BlockRef::block(id), pages * PAGE_BYTES))
            }
        }
    }
}

type Table<T> = Box<[T; ENTRIES]>;

#[derive(Debug)]
pub(super) struct Addresses(Table<OnceLock<Table<OnceLock<Table<AtomicU64>>>>>);

impl Addresses {
    pub(super) fn new() -> Self {
        Self(table())
    }

    /// Returns the owner of the page at an address.
    #[inline]
    pub(super) fn at(&self, address: usize) -> Option<Owner> {
        let [first, second, third] = places(address)?;
        let entry = &self.0[first].get()?[second].get()?[third];
        // Relaxed: a thread gets an address of the heap from the thread that set the entry. The
        // heap clears a page's entry before it gives the page back, and the next owner gets it
        // after that.
        Owner::from_bits(entry.load(Ordering::Relaxed))
    }

    /// Marks a larger piece as in use.
    pub(super) fn begin(&self, address: usize) {
        if let Some(Owner::Spare { id, pages }) = self.at(address) {
            self.set(address, Some(Owner::Large { id, pages }));
        }
    }

    /// Marks a larger piece as not in use; false when another free of it came first.
    pub(super) fn end(&self, address: usize, id: BlockId, pages: usize) -> bool {
        let (in_use, spare) = (Owner::Large { id, pages }, Owner::Spare { id, pages });
        let (in_use, spare) = (in_use.to_bits(), spare.to_bits());
        let entry = self.entry(address);
        // Relaxed: the exchange alone decides between frees; else as in `at`.
        entry.compare_exchange(in_use, spare, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Sets the entries of a slab's pages; `None` clears them.
    pub(super) fn set_slab(&self, address: u64, bytes: usize, slab: Option<(SlabId, SizeClass)>) {
        for pages_before in 0..bytes / PAGE_BYTES {
            let owner = slab.map(|(id, class)| Owner::Slab { id, class, pages_before });
            self.set(to_usize(address) + pages_before * PAGE_BYTES, owner);
        }
    }

    /// Sets the entry of a page; `None` clears it.
    pub(super) fn set(&self, address: usize, owner: Option<Owner>) {
        // Relaxed: as in `at`.
        self.entry(address).store(owner.map_or(0, Owner::to_bits), Ordering::Relaxed);
    }

    fn entry(&self, address: usize) -> &AtomicU64 {
        let places = places(address);
        let [first, second, third] = places.expect("addresses have 48 bits");
        &self.0[first].get_or_init(table)[second].get_or_init(table)[third]
    }
}

/// Returns the indices into the three tables; `None` for addresses of more than 48 bits.
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
    //! the ends of the tables, slabs of every class.

    use super::*;
    use crate::memory::allocator::block_ref::Part;
    use crate::memory::allocator::slab::CLASS_COUNT;

    #[test]
    fn an_owner_is_found_from_its_page_alone() {
        let addresses = Addresses::new();
        let id = BlockId::from_number(u32::MAX);
        let (large, spare) = (Owner::Large { id, pages: 1 }, Owner::Spare { id, pages: 1 << 29 });
        let last = (1 << 48) - PAGE_BYTES;
        for (page, owner) in [(PAGE_BYTES, large), (1 << 24, spare), (last, large)] {
            assert_eq!(addresses.at(page), None);
            addresses.set(page, Some(owner));
            for address in [page, page + PAGE_BYTES - 1] {
                assert_eq!(addresses.at(address), Some(owner));
            }
            let beside = [page - 1, page + PAGE_BYTES];
            assert_eq!(beside.map(|address| addresses.at(address)), [None; 2]);
            addresses.set(page, None);
            assert_eq!(addresses.at(page), None);
        }
        assert_eq!(addresses.at(usize::MAX), None);
    }

    #[test]
    fn of_two_frees_of_a_larger_piece_one_counts() {
        let (addresses, id, pages) = (Addresses::new(), BlockId::from_number(7), 3);
        addresses.set(PAGE_BYTES, Some(Owner::Spare { id, pages }));
        assert!(!addresses.end(PAGE_BYTES, id, pages), "no program has it");
        addresses.begin(PAGE_BYTES);
        assert_eq!([(); 2].map(|()| addresses.end(PAGE_BYTES, id, pages)), [true, false]);
    }

    #[test]
    fn each_object_of_a_slab_is_found_where_it_begins_alone() {
        let (addresses, base) = (Addresses::new(), 77 * PAGE_BYTES);
        let id = SlabId::from_number(1 << 26);
        for number in 0..u8::try_from(CLASS_COUNT).unwrap() {
            let class = SizeClass::of_heap(number);
            let bytes = class.slab_bytes();
            addresses.set_slab(base as u64, bytes, Some((id, class)));
            let found = |address: usize| addresses.at(address)?.piece(address);
            for slot in 0..u8::try_from(class.slab_blocks()).unwrap() {
                let address = base + usize::from(slot) * class.bytes();
                let (piece, bytes) = found(address).unwrap();
                assert_eq!((piece.part(), bytes), (Part::Small(id, slot), class.bytes()));
                assert_eq!([1, 63].map(|inside| found(address + inside)), [None; 2]);
            }
            assert_eq!(found(base + bytes), None, "behind the last");
            addresses.set_slab(base as u64, bytes, None);
            assert_eq!(addresses.at(base), None);
        }
    }
}
