//! Heaps: what one stream has in one pool, as two arenas and the slabs in one of them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Weak};

use crate::allocator::native::area::AreaId;
use crate::allocator::native::index::Index;
use crate::allocator::native::size_class::CLASS_COUNT;
use crate::allocator::native::slab::SlabId;
use crate::allocator::pool::PoolId;
use crate::allocator::snapshot::PoolClass;
use crate::frontier::{Point, Progress};
use crate::stream::core::StreamCore;

/// A heap's place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::allocator) struct HeapId(pub(super) u32);

/// Which of a heap's arenas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Blocks of any number of units, which share pages; slabs among them.
    Middle,
    /// Blocks of whole pages.
    Large,
}

impl Kind {
    /// As what statistics and snapshots count it.
    #[inline]
    pub(super) fn class(self) -> PoolClass {
        match self {
            Self::Middle => PoolClass::Small,
            Self::Large => PoolClass::Large,
        }
    }
}

/// Whose requests a heap serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    pub(super) stream: u64,
    pub(super) pool: PoolId,
}

/// Addresses of one kind, and the free blocks in them.
#[derive(Debug, Default)]
pub(super) struct Arena {
    pub(super) index: Index,
    pub(super) areas: Vec<AreaId>,
}

/// The stream of a heap. It may be gone before its heap is.
#[derive(Debug)]
pub(super) struct HeapStream {
    progress: Arc<Progress>,
    core: Weak<StreamCore>,
}

impl HeapStream {
    pub(super) fn new(stream: &Arc<StreamCore>) -> Self {
        Self { progress: Arc::clone(&stream.progress), core: Arc::downgrade(stream) }
    }

    /// Tasks that are known to be done.
    pub(super) fn done(&self) -> u64 {
        self.progress.done()
    }

    /// One of its tasks.
    pub(super) fn point(&self, ticket: u64) -> Point {
        Point { progress: Arc::clone(&self.progress), ticket }
    }

    /// The stream, to be waited for.
    pub(super) fn core(&self) -> Option<Arc<StreamCore>> {
        self.core.upgrade()
    }
}

/// What one stream has in one pool.
#[derive(Debug)]
pub(super) struct Heap {
    pub(super) owner: Owner,
    /// How far its stream is; `None` for a stream that is only a number, which never uses
    /// anything after a free.
    pub(super) stream: Option<HeapStream>,
    middle: Arena,
    large: Arena,
    /// Slabs that have a free block: the first of a list for each class.
    pub(super) slabs: [Option<SlabId>; CLASS_COUNT],
}

impl Heap {
    pub(super) fn arena(&self, kind: Kind) -> &Arena {
        match kind {
            Kind::Middle => &self.middle,
            Kind::Large => &self.large,
        }
    }

    pub(super) fn arena_mut(&mut self, kind: Kind) -> &mut Arena {
        match kind {
            Kind::Middle => &mut self.middle,
            Kind::Large => &mut self.large,
        }
    }

    /// True when it has nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.middle.areas.is_empty() && self.large.areas.is_empty()
    }
}

/// All heaps of an allocator.
#[derive(Debug, Default)]
pub(super) struct Heaps {
    places: Vec<Option<Heap>>,
    vacant: Vec<HeapId>,
    by_owner: HashMap<Owner, HeapId, BuildHasherDefault<Mixer>>,
    /// The one that was asked for last: the next request is of the same owner, as a rule.
    last: Option<(Owner, HeapId)>,
}

impl Heaps {
    /// The heap of an owner, which is made when there is none.
    #[inline]
    pub(super) fn of(&mut self, owner: Owner) -> HeapId {
        match self.last {
            Some((last, id)) if last == owner => id,
            _ => self.look_up(owner),
        }
    }

    fn look_up(&mut self, owner: Owner) -> HeapId {
        let id = self.by_owner.get(&owner).copied();
        let id = id.unwrap_or_else(|| self.add(owner));
        self.last = Some((owner, id));
        id
    }

    fn add(&mut self, owner: Owner) -> HeapId {
        let (middle, large) = (Arena::default(), Arena::default());
        let heap = Heap { owner, stream: None, middle, large, slabs: [None; CLASS_COUNT] };
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.places.push(None);
            HeapId(u32::try_from(self.places.len() - 1).expect("fewer than 2^32 heaps"))
        });
        self.places[id.0 as usize] = Some(heap);
        self.by_owner.insert(owner, id);
        id
    }

    /// Forgets a heap that has nothing.
    pub(super) fn remove(&mut self, id: HeapId) {
        let heap = self.places[id.0 as usize].take().expect("a heap that is there");
        debug_assert!(heap.is_empty(), "{heap:?}");
        self.by_owner.remove(&heap.owner);
        self.last = None;
        self.vacant.push(id);
    }

    /// The stream with a key, if a heap is known to be of it.
    pub(super) fn stream(&self, key: u64) -> Option<Arc<StreamCore>> {
        let mut of_stream = self.iter().filter(|(_, heap)| heap.owner.stream == key);
        of_stream.find_map(|(_, heap)| heap.stream.as_ref()?.core())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (HeapId, &Heap)> {
        let id = |place: usize| HeapId(u32::try_from(place).expect("fewer than 2^32 heaps"));
        let places = self.places.iter().enumerate();
        places.filter_map(move |(place, heap)| Some((id(place), heap.as_ref()?)))
    }
}

impl std::ops::Index<HeapId> for Heaps {
    type Output = Heap;

    fn index(&self, id: HeapId) -> &Heap {
        self.places[id.0 as usize].as_ref().expect("a heap that is there")
    }
}

impl std::ops::IndexMut<HeapId> for Heaps {
    fn index_mut(&mut self, id: HeapId) -> &mut Heap {
        self.places[id.0 as usize].as_mut().expect("a heap that is there")
    }
}

/// A hash of a few numbers that nobody chooses to collide: streams are numbered by us.
#[derive(Debug, Default)]
struct Mixer(u64);

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
        // The odd number next to 2^64 over the golden ratio: it spreads consecutive numbers.
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}
