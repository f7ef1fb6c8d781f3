//! How a thread finds its cache of an allocator.
#![expect(unsafe_code, reason = "the cache used last is found through a pointer")]

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::{Arc, Weak};

use crate::allocator::native::caches::Caches;
use crate::allocator::native::thread_cache::{Inside, Owner, ThreadCache};
use crate::fork;

/// A thread's cache of one allocator.
#[derive(Debug)]
struct Own {
    id: u64,
    caches: Weak<Caches>,
    owner: Owner,
}

/// The caches of a thread. They go back when the thread ends.
#[derive(Debug, Default)]
struct OwnCaches(RefCell<Vec<Own>>);

/// The one that was used last, if any.
#[derive(Clone, Copy, Debug)]
pub(in crate::allocator) struct Front(*const ThreadCache);

thread_local! {
    static OWN: OwnCaches = const { OwnCaches(RefCell::new(Vec::new())) };
    /// The cache of one of the entries of this thread's `OWN`, or null: `bring_to_front` sets it,
    /// and it is cleared before an entry goes.
    ///
    /// Needs no drop: it is there as long as the thread is, found in a step.
    static FRONT: Cell<Front> = const { Cell::new(Front(ptr::null())) };
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

    /// `front` is that of this thread; `id` that of these caches, or one that nobody has.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    #[expect(clippy::unused_self, reason = "what is returned is gone before these caches are")]
    fn enter_if(&self, front: Front, id: u64) -> Option<Inside<'_>> {
        // SAFETY: by the invariant of `FRONT` an entry of this thread has it, if there is one: what
        // was copied from there may not leave the thread. Entries go in `bring_to_front` and at the
        // thread's end alone, neither of which happens between the copy and here.
        let cache = unsafe { front.0.as_ref() }?;
        // SAFETY: the entry is the owner, and of this thread. When the id is that of these caches,
        // they are there, so it stays until the thread ends, which what is returned does not see.
        unsafe { cache.enter(id) }
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
        let mut own = self.0.try_borrow_mut().ok()?;
        FRONT.set(Front(ptr::null()));
        // Of allocators that are gone: nobody asks for their ids again.
        own.retain(|own| own.caches.strong_count() > 0);
        let position = own.iter().position(|own| own.id == id).unwrap_or_else(|| {
            let owner = Owner::new(id);
            caches.add(owner.cache());
            own.push(Own { id, caches: Arc::downgrade(caches), owner });
            own.len() - 1
        });
        FRONT.set(Front(Arc::as_ptr(own[position].owner.cache())));
        Some(())
    }
}

impl Drop for OwnCaches {
    fn drop(&mut self) {
        FRONT.set(Front(ptr::null()));
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
