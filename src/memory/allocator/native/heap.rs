//! Heaps: what one stream has in one pool, as two arenas and the slabs in one of them.
//!
//! A heap outlives its stream. When that is gone and what it used is done, the next stream that
//! needs a heap has this one, with its memory, its addresses and what others have of it: so there
//! are not more heaps, by much, than streams that were there at a time. The end of a stream tells
//! which heaps were its own, so none is searched for.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use crate::base::steps::step;
use crate::base::stream_map::Mixer;
use crate::base::table::{Id, Table};
use crate::engine::frontier::{Ended, Point};
use crate::engine::stream::core::StreamCore;
use crate::memory::allocator::known_stream::KnownStream;
use crate::memory::allocator::native::area::AreaId;
use crate::memory::allocator::native::block::{Block, Blocks};
use crate::memory::allocator::native::free_blocks::{FreeBlocks, FreeId, Listing};
use crate::memory::allocator::native::index::{Index, list_of};
use crate::memory::allocator::native::size_class::CLASS_COUNT;
use crate::memory::allocator::native::slab::SlabId;
use crate::memory::allocator::pool::PoolId;
use crate::memory::allocator::snapshot::PoolClass;

/// How many ends of streams are heard of when a heap is needed; and how many heaps of those streams
/// are looked at for one of the same pool.
const MOST_HEARD: usize = 4;
const MOST_GONE_LOOKS: usize = 8;
/// Heaps that are listed because free memory came to them, the last ones.
const MOST_ROOMY: usize = 16;

/// A heap's place in the table.
pub(in crate::memory::allocator) type HeapId = Id<Heap>;

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
    pub(super) const fn class(self) -> PoolClass {
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
    /// By [`Listing`].
    indices: [Index; 3],
    pub(super) areas: Vec<AreaId>,
}

impl Arena {
    pub(super) fn index(&self, listing: Listing) -> &Index {
        &self.indices[listing as usize]
    }

    pub(super) fn index_mut(&mut self, listing: Listing) -> &mut Index {
        &mut self.indices[listing as usize]
    }

    /// Has an entry found by what its block is now.
    pub(super) fn place(
        &mut self,
        id: FreeId,
        listing: Listing,
        units: u32,
        free: &mut FreeBlocks,
    ) {
        let list = list_of(units);
        let entry = &mut free[id];
        let before = std::mem::replace(&mut entry.listing, listing);
        if before != listing || entry.list != list {
            self.index_mut(before).remove(id, free);
            self.index_mut(listing).insert(id, list, free);
        }
    }

    /// What is beside a block has changed: if it is listed, it is found by that from now on.
    pub(super) fn relist(&mut self, block: &Block, blocks: &Blocks, free: &mut FreeBlocks) {
        if let Some(entry) = block.entry() {
            let (listing, units) = blocks.listing_of(block);
            self.place(entry, listing, units, free);
        }
    }
}

/// What one stream has in one pool.
#[derive(Debug)]
pub(super) struct Heap {
    pub(super) owner: Owner,
    /// How far its stream is; `None` for a stream that is only a number, which never uses
    /// anything after a free.
    pub(super) stream: Option<KnownStream>,
    /// How many tasks the streams had that it was of before. Numbers of tasks in blocks, slabs,
    /// pages and what awaits its free count on from there; 0 stands for none.
    pub(super) earlier_tasks: u64,
    /// True while it is listed as having got free memory.
    is_roomy: bool,
    /// True while it stands among those whose stream is known to be gone.
    is_known_gone: bool,
    middle: Arena,
    large: Arena,
    /// Slabs that have a free block: the first of a list for each class.
    pub(super) slabs: [Option<SlabId>; CLASS_COUNT],
}

impl Heap {
    fn new(owner: Owner) -> Self {
        Self {
            owner,
            stream: None,
            earlier_tasks: 0,
            is_roomy: false,
            is_known_gone: false,
            middle: Arena::default(),
            large: Arena::default(),
            slabs: [None; CLASS_COUNT],
        }
    }

    /// A task of its stream as the heap counts it.
    pub(super) fn count_of(&self, ticket: u64) -> u64 {
        if ticket == 0 { 0 } else { self.earlier_tasks + ticket }
    }

    /// The task of its stream that the heap counts as this; 0 for those of earlier streams, which
    /// are done.
    pub(super) fn ticket_of(&self, count: u64) -> u64 {
        count.saturating_sub(self.earlier_tasks)
    }

    /// True when its stream has not passed a task, as the heap counts it.
    pub(super) fn is_using(&self, count: u64) -> bool {
        let ticket = self.ticket_of(count);
        ticket > 0 && self.stream.as_ref().is_some_and(|stream| stream.progress.done() < ticket)
    }

    /// One of its stream's tasks, as the heap counts it.
    pub(super) fn point(&self, count: u64) -> Option<Point> {
        let stream = self.stream.as_ref()?;
        Some(Point { progress: Arc::clone(&stream.progress), ticket: self.ticket_of(count) })
    }

    /// True when another stream may have it: its own is gone, and nothing that was freed behind
    /// that one's tasks is used any more.
    pub(super) fn is_over(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.progress.is_over())
    }

    fn pass_on(&mut self, owner: Owner) {
        let before = self.stream.take();
        self.earlier_tasks += before.map_or(0, |stream| stream.progress.retired());
        self.owner = owner;
        self.is_known_gone = false;
    }

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
    table: Table<Heap>,
    by_owner: HashMap<Owner, HeapId, BuildHasherDefault<Mixer>>,
    /// The one that was asked for last: the next request is of the same owner, as a rule.
    last: Option<(Owner, HeapId)>,
    /// Those that got free memory last, the last of them first, once each.
    roomy: VecDeque<HeapId>,
    /// What the ends of streams tell: their heaps, some of which may have gone meanwhile.
    ended: Arc<Ended>,
    /// Those whose stream is known to be gone.
    gone: Vec<HeapId>,
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

    /// The heap of an owner, if it has one.
    pub(super) fn known(&mut self, owner: Owner) -> Option<HeapId> {
        match self.last {
            Some((last, id)) if last == owner => Some(id),
            _ => {
                let id = self.by_owner.get(&owner).copied()?;
                self.last = Some((owner, id));
                Some(id)
            }
        }
    }

    fn look_up(&mut self, owner: Owner) -> HeapId {
        let id = self.by_owner.get(&owner).copied();
        let id = id.or_else(|| self.take_over(owner)).unwrap_or_else(|| self.add(owner));
        self.last = Some((owner, id));
        id
    }

    /// A heap of the same pool whose stream is gone, if one is known. More ends are heard of than
    /// heaps are made, so what is told and not heard of is less than the heaps that are there.
    fn take_over(&mut self, owner: Owner) -> Option<HeapId> {
        for _ in 0..MOST_HEARD {
            let Some(number) = self.ended.pop() else { break };
            step();
            let id = HeapId::from_number(number);
            // It may have gone, and another one be in its place.
            let is_news = |heap: &Heap| heap.is_over() && !heap.is_known_gone;
            if self.table.get(id).is_some_and(is_news) {
                self[id].is_known_gone = true;
                self.gone.push(id);
            }
        }
        let is_fit = |id: &HeapId| {
            step();
            let heap = &self[*id];
            heap.owner.pool == owner.pool || heap.is_empty() // what has nothing is of no pool
        };
        let found = self.gone.iter().rev().take(MOST_GONE_LOOKS).position(is_fit)?;
        let id = self.gone.swap_remove(self.gone.len() - 1 - found);
        let heap = &mut self[id];
        let before = heap.owner;
        heap.pass_on(owner);
        self.by_owner.remove(&before);
        self.by_owner.insert(owner, id);
        Some(id)
    }

    fn add(&mut self, owner: Owner) -> HeapId {
        let id = self.table.insert(Heap::new(owner));
        self.by_owner.insert(owner, id);
        id
    }

    /// A heap knows its stream, whose end tells of it.
    pub(super) fn note_stream(&mut self, id: HeapId, stream: &Arc<StreamCore>) {
        let heap = &mut self[id];
        if heap.stream.is_none() {
            heap.stream = Some(KnownStream::of(stream));
            stream.progress.subscribe(&self.ended, id.number());
        }
    }

    /// Forgets a heap that has nothing.
    pub(super) fn remove(&mut self, id: HeapId) {
        let heap = self.table.remove(id);
        debug_assert!(heap.is_empty(), "{heap:?}");
        self.by_owner.remove(&heap.owner);
        self.last = None;
        if heap.is_roomy {
            self.roomy.retain(|listed| *listed != id);
        }
        if heap.is_known_gone {
            self.gone.retain(|known| *known != id);
        }
    }

    /// Free memory has come to a heap: others look there for some.
    pub(super) fn note_room(&mut self, id: HeapId) {
        if std::mem::replace(&mut self[id].is_roomy, true) {
            return;
        }
        self.roomy.push_front(id);
        if self.roomy.len() > MOST_ROOMY
            && let Some(last) = self.roomy.pop_back()
        {
            self[last].is_roomy = false;
        }
    }

    /// The heaps that got free memory last, the last of them first.
    pub(super) fn roomy(&self) -> impl Iterator<Item = (HeapId, &Heap)> {
        self.roomy.iter().map(|id| (*id, &self[*id]))
    }

    /// Asserts that heaps are listed as they say.
    pub(super) fn check_roomy(&self) {
        let listed = |id: HeapId| self.roomy.iter().filter(|roomy| **roomy == id).count();
        for (id, heap) in self.iter() {
            assert_eq!(listed(id), usize::from(heap.is_roomy), "{id:?} is listed");
        }
        assert!(self.roomy().count() <= MOST_ROOMY, "{:?}", self.roomy);
        let known = self.gone.iter().filter(|id| self[**id].is_known_gone && self[**id].is_over());
        assert_eq!(known.count(), self.gone.len(), "{:?}", self.gone);
    }

    /// Of how many heaps it was told, and not heard yet, that their stream is gone.
    #[cfg(all(test, not(loom)))]
    pub(super) fn count_told_ends(&self) -> usize {
        self.ended.len()
    }

    /// By how many owners heaps are found.
    #[cfg(all(test, not(loom)))]
    pub(super) fn count_owners(&self) -> usize {
        self.by_owner.len()
    }

    /// The stream with a key, if a heap is known to be of it.
    pub(super) fn stream(&self, key: u64) -> Option<Arc<StreamCore>> {
        let mut of_stream = self.iter().filter(|(_, heap)| heap.owner.stream == key);
        of_stream.find_map(|(_, heap)| heap.stream.as_ref()?.core.upgrade())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (HeapId, &Heap)> {
        self.table.iter()
    }
}

impl std::ops::Index<HeapId> for Heaps {
    type Output = Heap;

    fn index(&self, id: HeapId) -> &Heap {
        &self.table[id]
    }
}

impl std::ops::IndexMut<HeapId> for Heaps {
    fn index_mut(&mut self, id: HeapId) -> &mut Heap {
        &mut self.table[id]
    }
}
