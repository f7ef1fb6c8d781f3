//! Loom models of a thread's cache: its thread and one that claims it are never in it at once.

use std::sync::Arc;

use loom::thread;

use crate::base::sync::models::{EVERY, model_without_fences};
use crate::base::sync::{LockRank, Mutex, yield_now};
use crate::memory::allocator::allocated::{Allocated, Handle};
use crate::memory::allocator::bins::{Bins, Bound, Key};
use crate::memory::allocator::block_ref::BlockRef;
use crate::memory::allocator::ids::BlockId;
use crate::memory::allocator::live_table::{LiveTable, Tag};
use crate::memory::allocator::snapshot::PoolClass;
use crate::memory::allocator::thread_cache::{Claims, ID_STEP, Owner, ThreadCache, claim};
use crate::memory::allocator::thread_counters::{BlockSize, Quantity};

/// Of the allocator.
const ID: u64 = ID_STEP;
const BYTES: usize = 512;
const KEY: Key = Key { stream: 0, bytes: BYTES };
const COUNTED: BlockSize =
    BlockSize { class: PoolClass::Small, bytes: BYTES, requested_bytes: BYTES };
const NO_BOUND: Bound = Bound { most_bytes: u64::MAX, is_counted: true };

fn current(kept: &mut Bins) -> i64 {
    kept.cell().sums(Quantity::Count).all.current
}

/// What a claimer does with a cache, as soon as its thread is outside.
fn when_claimed<T>(cache: &Arc<ThreadCache>, with: impl FnOnce(&mut Bins) -> T) -> T {
    loop {
        let Claims { mut claimed, is_whole } = claim([cache]);
        if is_whole {
            return claimed[0].with(with);
        }
        drop(claimed);
        yield_now(); // in truth it sleeps
    }
}

/// Goal: what one counts the other sees whole. Method: the thread counts twice while another one
/// claims and looks; loom reports two at once in the cache, and the sum says what was lost.
#[test]
fn loom_the_thread_and_a_claimer_are_never_inside_at_once() {
    model_without_fences(EVERY, || {
        let owner = Owner::new(ID, Tag::TEST);
        let cache = Arc::clone(owner.cache());
        let thread = thread::spawn(move || {
            let count = || owner.enter(ID).map(|inside| inside.bins.count_begin(COUNTED)).is_some();
            i64::from(count()) + i64::from(count())
        });
        let look = || when_claimed(&cache, current);
        let early = look();
        let counted = thread.join().unwrap();
        assert!(early <= counted);
        assert_eq!(look(), counted);
    });
}

/// Goal: a piece is taken once. Method: the thread keeps a piece and takes it again while another
/// one empties the cache: one of both has it.
#[test]
fn loom_a_piece_is_the_threads_or_the_claimers() {
    model_without_fences(EVERY, || {
        let live = Arc::new(LiveTable::default());
        let owner = Owner::new(ID, Tag::TEST);
        let cache = Arc::clone(owner.cache());
        let thread = thread::spawn(move || {
            let mark = live.mark_of(BlockRef::block(BlockId::from_number(1)));
            let block = Allocated::of_piece(Handle::of_mark(mark, Tag::TEST), 0, BYTES, 0, 0);
            let put = |inside: super::thread_cache::OwnerGuard<'_>| {
                inside.bins.make_room(KEY, PoolClass::Small, NO_BOUND, &mut |_| ());
                inside.bins.stock(&block, 0)
            };
            let is_kept = owner.enter(ID).is_some_and(put);
            let taken =
                owner.enter(ID).is_some_and(|inside| inside.bins.take(KEY, BYTES).is_some());
            (is_kept, taken)
        });
        let mut drained = Vec::new();
        let mut drain =
            || when_claimed(&cache, |kept| kept.drain(&mut |piece| drained.push(piece)));
        drain();
        let (is_kept, taken) = thread.join().unwrap();
        drain();
        assert_eq!(usize::from(taken) + drained.len(), usize::from(is_kept));
    });
}

/// Goal: nothing is in a closed cache. Method: its thread keeps a piece where it finds the cache
/// open, while another one empties the cache and closes it.
#[test]
fn loom_a_cache_that_is_closed_has_nothing() {
    model_without_fences(EVERY, || {
        let live = Arc::new(LiveTable::default());
        let owner = Owner::new(ID, Tag::TEST);
        owner.enter(ID).expect("nobody has claimed it").open();
        let cache = Arc::clone(owner.cache());
        let thread = thread::spawn(move || {
            let mark = live.mark_of(BlockRef::block(BlockId::from_number(1)));
            let block = Allocated::of_piece(Handle::of_mark(mark, Tag::TEST), 0, BYTES, 0, 0);
            let open = owner.enter(ID).filter(|inside| !inside.is_closed());
            open.is_some_and(|inside| {
                inside.bins.make_room(KEY, PoolClass::Small, NO_BOUND, &mut |_| ());
                inside.bins.stock(&block, 0)
            })
        });
        let mut drained = 0;
        let Claims { mut claimed, .. } = claim([&cache]);
        for one in &mut claimed {
            one.with(|kept| kept.drain(&mut |_| drained += 1));
            one.close();
        }
        drop(claimed);
        let is_kept = thread.join().unwrap();
        if cache.is_closed() {
            assert_eq!(drained, usize::from(is_kept), "what it keeps is in a closed cache");
        }
    });
}

/// Goal: a thread that has had the lock since another opened its cache sees that it may have
/// something. Method: one thread opens and keeps, the other one looks behind the lock.
#[test]
fn loom_a_cache_that_was_opened_is_seen_behind_the_lock() {
    model_without_fences(EVERY, || {
        let live = Arc::new(LiveTable::default());
        let lock = Arc::new(Mutex::new(LockRank::Allocator, false));
        let owner = Owner::new(ID, Tag::TEST);
        let (cache, theirs) = (Arc::clone(owner.cache()), Arc::clone(&lock));
        let thread = thread::spawn(move || {
            let mark = live.mark_of(BlockRef::block(BlockId::from_number(1)));
            let block = Allocated::of_piece(Handle::of_mark(mark, Tag::TEST), 0, BYTES, 0, 0);
            let Some(mut inside) = owner.enter(ID) else { return false };
            {
                let mut is_open = theirs.lock();
                inside.open();
                *is_open = true;
            }
            inside.bins.make_room(KEY, PoolClass::Small, NO_BOUND, &mut |_| ());
            inside.bins.stock(&block, 0)
        });
        let was_open = *lock.lock();
        assert!(!was_open || !cache.is_closed());
        let is_kept = thread.join().unwrap();
        assert!(!is_kept || !cache.is_closed());
    });
}
