//! How a thread finds its cache of an allocator.
#![expect(unsafe_code, reason = "the cache used last is found through a pointer")]

use std::cell::{Cell, RefCell};
use std::ptr;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use crate::allocator::native::caches::Caches;
use crate::allocator::native::thread_cache::{Inside, Owner};
use crate::fork;

/// The id of no allocator.
const NOBODY: u64 = 0;

/// A thread's cache of one allocator.
#[derive(Debug)]
struct Own {
    id: u64,
    caches: Weak<Caches>,
    owner: Rc<Owner>,
}

/// The caches of a thread. They go back when the thread ends.
#[derive(Debug, Default)]
struct OwnCaches(RefCell<Vec<Own>>);

/// The one that was used last: the id of its allocator, and where it is.
#[derive(Clone, Copy, Debug)]
pub(in crate::allocator) struct Front {
    id: u64,
    owner: *const Owner,
}

thread_local! {
    static OWN: OwnCaches = const { OwnCaches(RefCell::new(Vec::new())) };
    /// When the id is that of an allocator that is there, the owner is that of its entry in this
    /// thread's `OWN`: `bring_to_front` sets it, entries of allocators that are there stay until
    /// the thread ends, and it is cleared before they go.
    ///
    /// Needs no drop: it is there as long as the thread is, found in a step.
    static FRONT: Cell<Front> = const { Cell::new(Front { id: NOBODY, owner: ptr::null() }) };
}

impl Front {
    /// Of this thread. Where libraries are loaded late it is a call, and best the first thing that
    /// is done.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(in crate::allocator) fn get() -> Self {
        FRONT.get()
    }
}

impl Caches {
    /// This thread goes into its cache. `None` where another allocator's is in front (`prepare`),
    /// and while somebody else has claimed it.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn enter(&self) -> Option<Inside<'_>> {
        self.enter_if(Front::get(), self.id())
    }

    /// As [`Caches::enter`]; `None` too while threads are to keep nothing.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    pub(in crate::allocator) fn enter_when_on(&self, front: Front) -> Option<Inside<'_>> {
        self.enter_if(front, self.id_when_on())
    }

    /// `id` is that of these caches, or one that nobody has.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    #[expect(clippy::unused_self, reason = "tells that these caches are there")]
    fn enter_if(&self, front: Front, id: u64) -> Option<Inside<'_>> {
        if front.id != id {
            return None;
        }
        // SAFETY: these caches are there, `self` is one of them, so by the invariant of `FRONT` the
        // pointer is to the owner in this thread's entry: what was copied from there may not leave
        // the thread. The entry stays until the thread ends, which nothing that has what is
        // returned outlives: it may not leave the thread either.
        let owner = unsafe { &*front.owner };
        owner.enter()
    }

    /// Has this thread find its cache at the next use, which is made when there is none. Not while
    /// the thread ends.
    #[cold]
    pub(super) fn prepare(self: &Arc<Self>) {
        let _ = OWN.try_with(|own| own.bring_to_front(self));
    }
}

impl OwnCaches {
    /// The cache of an allocator, which is made when there is none.
    fn bring_to_front(&self, caches: &Arc<Caches>) -> Option<()> {
        let id = caches.id();
        if Front::get().id == id {
            return Some(());
        }
        let mut own = self.0.try_borrow_mut().ok()?;
        // Of allocators that are gone: nobody asks for their ids again.
        own.retain(|own| own.caches.strong_count() > 0);
        let position = own.iter().position(|own| own.id == id).unwrap_or_else(|| {
            let owner = Rc::new(Owner::new());
            caches.add(owner.cache());
            own.push(Own { id, caches: Arc::downgrade(caches), owner });
            own.len() - 1
        });
        let owner = Rc::as_ptr(&own[position].owner);
        FRONT.set(Front { id, owner });
        Some(())
    }
}

impl Drop for OwnCaches {
    fn drop(&mut self) {
        FRONT.set(Front { id: NOBODY, owner: ptr::null() });
        if fork::is_child() {
            return; // the parent has what they keep
        }
        for Own { caches, owner, .. } in self.0.take() {
            if let Some(caches) = caches.upgrade() {
                caches.retire(owner.cache());
            }
        }
    }
}
