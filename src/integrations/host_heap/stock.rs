//! The slabs of one size class, and which of their objects are free.

use crate::base::size::to_usize;
use crate::integrations::host_heap::owners::Owner;
use crate::integrations::host_heap::size_class::{MOST_KEPT_COUNT, object_bytes, slab_bytes};
use crate::memory::allocator::Allocated;

/// Objects of one class on their way between a thread and its slabs.
#[derive(Debug)]
pub(super) struct Batch {
    addresses: [usize; MOST_KEPT_COUNT],
    count: usize,
}

impl Batch {
    pub(super) fn new() -> Self {
        Self { addresses: [0; MOST_KEPT_COUNT], count: 0 }
    }

    pub(super) fn push(&mut self, address: usize) {
        self.addresses[self.count] = address;
        self.count += 1;
    }

    pub(super) fn addresses(&self) -> &[usize] {
        &self.addresses[..self.count]
    }
}

/// A piece of the host cache that is cut into objects of one size.
#[derive(Debug)]
struct Slab {
    block: Allocated,
    /// Numbers of its free objects.
    free: Vec<u16>,
    /// Its place in `Stock::open`, while it has free objects.
    place: usize,
}

/// The slabs of one class.
///
/// Law: `open` has the ids of exactly those slabs that have a free object, each at its `place`;
/// `whole_count` of them have nothing but free ones.
#[derive(Debug)]
pub(super) struct Stock {
    class: usize,
    slabs: Vec<Option<Slab>>,
    unused_ids: Vec<usize>,
    open: Vec<usize>,
    whole_count: usize,
}

impl Stock {
    pub(super) fn new(class: usize) -> Self {
        let (slabs, unused_ids, open) = (Vec::new(), Vec::new(), Vec::new());
        Self { class, slabs, unused_ids, open, whole_count: 0 }
    }

    fn count(&self) -> usize {
        slab_bytes(self.class) / object_bytes(self.class)
    }

    /// Adds a slab, all free: its id.
    pub(super) fn add(&mut self, block: Allocated) -> usize {
        let count = u16::try_from(self.count()).expect("slabs have fewer objects");
        let slab = Slab { block, free: (0..count).rev().collect(), place: self.open.len() };
        let id = self.unused_ids.pop().unwrap_or_else(|| {
            self.slabs.push(None);
            self.slabs.len() - 1
        });
        self.slabs[id] = Some(slab);
        self.open.push(id);
        self.whole_count += 1;
        id
    }

    /// Takes up to `count` free objects.
    pub(super) fn take(&mut self, count: usize, batch: &mut Batch) {
        let all = self.count();
        for _ in 0..count {
            let Some(id) = self.open.last().copied() else { return };
            let slab = self.slabs[id].as_mut().expect("an open slab is there");
            self.whole_count -= usize::from(slab.free.len() == all);
            let number = slab.free.pop().expect("an open slab has a free object");
            if slab.free.is_empty() {
                self.open.pop();
            }
            let base = to_usize(slab.block.address());
            batch.push(base + usize::from(number) * object_bytes(self.class));
        }
    }

    /// True where an object of this class begins.
    pub(super) fn has(&self, owner: Owner, address: usize) -> bool {
        let Owner::Slab { class, id } = owner else { return false };
        let slab = self.slabs.get(id).and_then(Option::as_ref).filter(|_| class == self.class);
        slab.is_some_and(|slab| {
            let offset = address.checked_sub(to_usize(slab.block.address()));
            offset.is_some_and(|offset| offset.is_multiple_of(object_bytes(class)))
        })
    }

    /// Puts a free object back into its slab. The slab, when all of it is free and another one is
    /// so already: the caller gives it back.
    pub(super) fn put(&mut self, id: usize, address: usize) -> Option<Allocated> {
        let all = self.count();
        let slab = self.slabs[id].as_mut().expect("the slab of an object is there");
        let base = to_usize(slab.block.address());
        let number = (address - base) / object_bytes(self.class);
        slab.free.push(u16::try_from(number).expect("slabs have fewer objects"));
        if slab.free.len() == 1 {
            slab.place = self.open.len();
            self.open.push(id);
        }
        if slab.free.len() < all {
            return None;
        }
        self.whole_count += 1;
        (self.whole_count > 1).then(|| self.remove(id))
    }

    /// A slab that is all free, if there is one: the caller gives it back.
    pub(super) fn remove_whole(&mut self) -> Option<Allocated> {
        let all = self.count();
        let is_whole = |id: &usize| self.slabs[*id].as_ref().is_some_and(|s| s.free.len() == all);
        let id = self.open.iter().copied().find(is_whole).filter(|_| self.whole_count > 0)?;
        Some(self.remove(id))
    }

    fn remove(&mut self, id: usize) -> Allocated {
        let slab = self.slabs[id].take().expect("a slab that is there");
        self.open.swap_remove(slab.place);
        if let Some(moved) = self.open.get(slab.place) {
            self.slabs[*moved].as_mut().expect("an open slab is there").place = slab.place;
        }
        self.unused_ids.push(id);
        self.whole_count -= 1;
        slab.block
    }

    /// Asserts the law of this type.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let all = self.count();
        let slabs = self.slabs.iter().enumerate();
        let there: Vec<_> = slabs.filter_map(|(id, slab)| Some((id, slab.as_ref()?))).collect();
        let open = there.iter().filter(|(_, slab)| !slab.free.is_empty());
        assert_eq!(open.clone().count(), self.open.len());
        assert!(open.clone().all(|(id, slab)| self.open[slab.place] == *id), "{self:?}");
        assert_eq!(open.filter(|(_, slab)| slab.free.len() == all).count(), self.whole_count);
        assert_eq!(there.len() + self.unused_ids.len(), self.slabs.len());
    }
}
