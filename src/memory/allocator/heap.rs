//! Heaps: the memory of one stream in one pool, as two arenas and the slabs in the middle one.
//!
//! A heap outlives its stream. When the stream is dropped and its uses are done, the next stream
//! that needs a heap takes over this one, with its memory and addresses. So there are hardly more
//! heaps than streams at a time. The end of a stream names its heaps, so none is searched for.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use crate::base::steps::step;
use crate::base::stream_map::Mixer;
use crate::base::table::Table;
use crate::engine::frontier::{Ended, Point};
use crate::engine::stream::core::StreamCore;
use crate::memory::allocator::free_blocks::{FreeBlock, FreeList, Index, list_of};
use crate::memory::allocator::ids::{AreaId, FreeId, HeapId, HeapKey, Kind, SlabId};
use crate::memory::allocator::request::{KnownStream, PoolId};
use crate::memory::allocator::slab::CLASS_COUNT;
/// The most ends of streams that are read for a new heap.
const MOST_HEARD: usize = 4;
/// The most heaps of ended streams that are examined for a new heap.
const MOST_GONE_LOOKS: usize = 8;
/// The most heaps that are listed because they got free memory.
const MOST_ROOMY: usize = 16;

/// The stream and pool that a heap serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    pub(super) stream: u64,
    pub(super) pool: PoolId,
}

#[derive(Debug, Default)]
pub(super) struct Arena {
    /// By [`FreeList`].
    indices: [Index; 3],
    pub(super) areas: Vec<AreaId>,
}

impl Arena {
    pub(super) fn index(&self, listing: FreeList) -> &Index {
        &self.indices[listing as usize]
    }

    pub(super) fn index_mut(&mut self, listing: FreeList) -> &mut Index {
        &mut self.indices[listing as usize]
    }

    /// Moves an entry to an index, and to the list for its block's units or for those of its gap.
    #[inline(always)]
    pub(super) fn place(
        &mut self,
        id: FreeId,
        listing: FreeList,
        units: u32,
        free: &mut [FreeBlock],
    ) {
        let list = list_of(units);
        let entry = &mut free[id.index()];
        entry.units = units;
        let before = std::mem::replace(&mut entry.listing, listing);
        if before != listing || entry.list != list {
            if before != FreeList::None {
                self.index_mut(before).remove(id, free);
            }
            self.index_mut(listing).insert(id, list, free);
        }
    }
}

#[derive(Debug)]
pub(super) struct Heap {
    pub(super) owner: Owner,
    /// `None` for a stream that is only a number, which uses no memory after a free.
    pub(super) stream: Option<KnownStream>,
    /// The number of tasks of the heap's earlier streams. Blocks, slabs, pages and pending frees
    /// store a *count*, a ticket plus this number; 0 stands for no task.
    pub(super) earlier_tasks: u64,
    /// True while `Heaps::roomy` lists the heap.
    is_roomy: bool,
    /// True while `Heaps::gone` lists the heap.
    is_known_gone: bool,
    middle: Arena,
    large: Arena,
    /// For each class the first slab in the list of slabs with a free block.
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

    /// Converts a ticket of the heap's stream into a count.
    pub(super) fn count_of(&self, ticket: u64) -> u64 {
        if ticket == 0 { 0 } else { self.earlier_tasks + ticket }
    }

    /// Converts a count into a ticket; 0 for tasks of earlier streams, which are done.
    pub(super) fn ticket_of(&self, count: u64) -> u64 {
        count.saturating_sub(self.earlier_tasks)
    }

    /// True when the heap's stream has not passed the task with this count.
    pub(super) fn is_using(&self, count: u64) -> bool {
        let ticket = self.ticket_of(count);
        ticket > 0 && self.stream.as_ref().is_some_and(|stream| stream.progress.done() < ticket)
    }

    pub(super) fn point(&self, count: u64) -> Option<Point> {
        let stream = self.stream.as_ref()?;
        Some(Point { progress: Arc::clone(&stream.progress), ticket: self.ticket_of(count) })
    }

    /// True when another stream may take over the heap: its stream was dropped, and the device no
    /// longer uses memory freed behind that stream's tasks.
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

    /// True while the heap is listed as one that got free memory.
    pub(super) fn is_roomy(&self) -> bool {
        self.is_roomy
    }

    /// True when no arena has an area.
    pub(super) fn is_empty(&self) -> bool {
        self.middle.areas.is_empty() && self.large.areas.is_empty()
    }
}

#[derive(Debug, Default)]
pub(super) struct Heaps {
    table: Table<Heap, HeapKey>,
    by_owner: HashMap<Owner, HeapId, BuildHasherDefault<Mixer>>,
    /// The last lookup, because most requests repeat the owner of the one before.
    last: Option<(Owner, HeapId)>,
    /// The last heaps that were listed because they got free memory, latest first, each once.
    roomy: VecDeque<HeapId>,
    /// The heaps whose streams have ended, some of which may be removed by now.
    ended: Arc<Ended>,
    /// The heaps of ended streams, as read from `ended`, which other streams may take over.
    gone: Vec<HeapId>,
}

impl Heaps {
    /// Returns the owner's heap; takes one over or adds one if there is none.
    #[inline]
    pub(super) fn of(&mut self, owner: Owner) -> HeapId {
        match self.last {
            Some((last, id)) if last == owner => id,
            _ => self.look_up(owner),
        }
    }

    #[inline]
    pub(super) fn known(&mut self, owner: Owner) -> Option<HeapId> {
        match self.last {
            Some((last, id)) if last == owner => Some(id),
            _ => self.known_before(owner),
        }
    }

    #[inline(never)]
    fn known_before(&mut self, owner: Owner) -> Option<HeapId> {
        let id = self.by_owner.get(&owner).copied()?;
        self.last = Some((owner, id));
        Some(id)
    }

    fn look_up(&mut self, owner: Owner) -> HeapId {
        let id = self.by_owner.get(&owner).copied();
        let id = id.or_else(|| self.take_over(owner)).unwrap_or_else(|| self.add(owner));
        self.last = Some((owner, id));
        id
    }

    /// Takes over a heap of the same pool whose stream has ended, if one is known. Each new heap
    /// reads several ends, so the unread ends stay fewer than the heaps.
    fn take_over(&mut self, owner: Owner) -> Option<HeapId> {
        for _ in 0..MOST_HEARD {
            let Some(number) = self.ended.pop() else { break };
            step();
            let id = HeapId::from_number(number);
            // The heap may be removed, and its id reused.
            let is_news = |heap: &Heap| heap.is_over() && !heap.is_known_gone;
            if self.table.get(id).is_some_and(is_news) {
                self[id].is_known_gone = true;
                self.gone.push(id);
            }
        }
        let is_fit = |id: &HeapId| {
            step();
            let heap = &self[*id];
            heap.owner.pool == owner.pool || heap.is_empty() // an empty heap fits any pool
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

    /// Sets a heap's stream if it has none, and subscribes to the stream's end.
    pub(super) fn note_stream(&mut self, id: HeapId, stream: &Arc<StreamCore>) {
        let heap = &mut self[id];
        if heap.stream.is_none() {
            heap.stream = Some(KnownStream::of(stream));
            stream.progress.subscribe(&self.ended, id.number());
        }
    }

    /// Removes an empty heap.
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

    /// Lists a heap, unless it is listed, as one that got free memory.
    pub(super) fn note_room(&mut self, id: HeapId) {
        if !self[id].is_roomy {
            self.list_roomy(id);
        }
    }

    /// Lists a heap that is not listed as one that got free memory.
    #[cold]
    pub(super) fn list_roomy(&mut self, id: HeapId) {
        self[id].is_roomy = true;
        self.roomy.push_front(id);
        if self.roomy.len() > MOST_ROOMY
            && let Some(last) = self.roomy.pop_back()
        {
            self[last].is_roomy = false;
        }
    }

    pub(super) fn roomy(&self) -> impl Iterator<Item = (HeapId, &Heap)> {
        self.roomy.iter().map(|id| (*id, &self[*id]))
    }

    /// Asserts that `roomy` lists exactly the heaps marked so, and `gone` only marked ones.
    pub(super) fn check_roomy(&self) {
        let listed = |id: HeapId| self.roomy.iter().filter(|roomy| **roomy == id).count();
        for (id, heap) in self.iter() {
            assert_eq!(listed(id), usize::from(heap.is_roomy), "{id:?} is listed");
        }
        assert!(self.roomy().count() <= MOST_ROOMY, "{:?}", self.roomy);
        let known = self.gone.iter().filter(|id| self[**id].is_known_gone && self[**id].is_over());
        assert_eq!(known.count(), self.gone.len(), "{:?}", self.gone);
    }

    /// Returns the number of unread ends.
    #[cfg(all(test, not(loom)))]
    pub(super) fn count_told_ends(&self) -> usize {
        self.ended.len()
    }

    /// Returns the number of owners in the map.
    #[cfg(all(test, not(loom)))]
    pub(super) fn count_owners(&self) -> usize {
        self.by_owner.len()
    }

    /// Returns the stream with a key, if it still exists and a heap knows it.
    pub(super) fn known_stream(&self, key: u64) -> Option<&KnownStream> {
        let mut of_stream = self.iter().filter(|(_, heap)| heap.owner.stream == key);
        of_stream.find_map(|(_, heap)| heap.stream.as_ref())
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
