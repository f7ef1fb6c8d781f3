//! The caching allocator of one device: what a program asks, and in which steps it is answered.

use std::sync::Arc;

use crate::allocator::block::{Block, BlockId, State};
use crate::allocator::books::{Books, Plan, Request};
use crate::allocator::config::AllocatorConfig;
use crate::allocator::host::Meter;
use crate::allocator::native::caches::Caches;
use crate::allocator::native::own::Front;
use crate::allocator::native::piece::Piece;
use crate::allocator::out_of_memory::Observers;
use crate::allocator::pending::UsePoint;
use crate::allocator::pool::{PoolId, PoolOptions};
use crate::allocator::segment::Owner;
use crate::allocator::shared::Sibling;
use crate::allocator::snapshot::PoolClass;
use crate::allocator::source::Source;
use crate::allocator::stats::Statistics;
use crate::backend::contract::{Backend, VirtualMemory};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::size::MIB;
use crate::stream::core::StreamCore;
use crate::stream::wait::Interrupt;
use crate::sync::{LockRank, Mutex};

/// Memory of one device, kept when it is freed and handed out again.
///
/// A stream is a number here; what one frees it may have again at once, others may not. Any thread
/// may call anything. One lock guards the books; it is given back before the device is called or
/// waited for. Under policy `native`, the default, a thread keeps some of what it freed, and has it
/// again without the lock.
///
/// ```
/// use accelrt::allocator::{CachingAllocator, Request};
/// use accelrt::backend::null::{NullBackend, NullConfig};
/// use accelrt::{AllocatorConfig, Device, DeviceKind};
///
/// let device = Device::new(DeviceKind::Null, 0)?;
/// let null = NullBackend::new(NullConfig::default());
/// let allocator = CachingAllocator::new(null, device, AllocatorConfig::default())?;
/// let block = allocator.allocate(Request::new(1000, 0))?;
/// assert_eq!(block.bytes(), 1024);
/// allocator.free(block);
/// assert_eq!(allocator.statistics().reserved_bytes.all.current, 2 << 20);
/// allocator.empty_cache();
/// assert_eq!(allocator.statistics().reserved_bytes.all.current, 0);
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Debug)]
pub struct CachingAllocator {
    pub(super) source: Source,
    pub(super) books: Arc<Mutex<Books>>,
    pub(super) caches: Arc<Caches>,
    pub(super) observers: Observers,
    pub(super) sibling: Sibling,
}

/// A block that was handed out. A request for nothing gets one of no bytes at address 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocated {
    address: u64,
    bytes: usize,
    handle: Handle,
    /// The task of its stream after which nothing from its earlier life uses it.
    busy_until: u64,
    /// Which handing out it is; of a piece the stream of the heap that it goes back to.
    handout: u64,
}

/// What was handed out, and by which policy, in one word: the name of a piece, the number of a
/// block with a mark, and zero for no bytes. Only what threads may keep is the name of a known
/// piece as it stands.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Handle(u64);

/// What a handle stands for.
#[derive(Debug)]
enum Held {
    Nothing,
    Block(BlockId),
    Piece,
}

/// Set in handles of blocks.
const BLOCK: u64 = 1 << 62 | Piece::BEYOND;

impl Handle {
    fn of_block(id: BlockId) -> Self {
        Self(BLOCK | u64::from(id.number()))
    }

    fn held(self) -> Held {
        match self {
            Self(0) => Held::Nothing,
            #[expect(clippy::cast_possible_truncation, reason = "as it was made")]
            Self(bits) if bits & BLOCK == BLOCK => Held::Block(BlockId::from_number(bits as u32)),
            Self(_) => Held::Piece,
        }
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.held() {
            Held::Nothing => f.write_str("Nothing"),
            Held::Block(id) => write!(f, "{id:?}"),
            Held::Piece => write!(f, "{:?}", Piece::from_bits(self.0 & !Piece::BEYOND)),
        }
    }
}

impl Allocated {
    /// Its first byte.
    #[must_use]
    #[inline]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its size: at least what was asked for.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The task of its stream after which nothing from its earlier life uses it.
    #[inline]
    pub(crate) fn busy_until(&self) -> u64 {
        self.busy_until
    }

    /// It is in use up to a task of its stream.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn use_until(&mut self, ticket: u64) {
        if ticket > self.busy_until {
            self.busy_until = ticket;
        }
    }

    pub(super) fn of(id: BlockId, books: &Books) -> Self {
        let block = &books.blocks[id];
        let Block { address, bytes, busy_until, handout, .. } = *block;
        Self { address, bytes, handle: Handle::of_block(id), busy_until, handout }
    }

    #[inline]
    pub(super) fn of_piece(
        piece: Piece,
        address: u64,
        bytes: usize,
        busy_until: u64,
        stream: u64,
    ) -> Self {
        Self { address, bytes, handle: Handle(piece.to_bits()), busy_until, handout: stream }
    }

    /// Not to be kept by threads.
    pub(super) fn unkept(self) -> Self {
        Self { handle: Handle(self.handle.0 | Piece::BEYOND), ..self }
    }

    pub(super) fn is_unkept(&self) -> bool {
        self.handle.0 & Piece::BEYOND != 0
    }

    /// Of a piece: the stream whose cache keeps it.
    #[inline]
    pub(super) fn stream(&self) -> u64 {
        self.handout
    }

    /// The piece that it is.
    pub(super) fn piece(&self) -> Piece {
        Piece::from_bits(self.handle.0 & !Piece::BEYOND)
    }

    /// The piece that it is, if threads may keep it. Of anything else a name that no piece has.
    #[inline]
    pub(super) fn kept_piece(&self) -> Piece {
        Piece::from_bits(self.handle.0)
    }
}

impl CachingAllocator {
    /// The allocator of a device, with nothing in it. Asks the device for its capacity.
    pub fn new(backend: Arc<dyn Backend>, device: Device, config: AllocatorConfig) -> Result<Self> {
        let total_bytes = backend.memory_info(device.index())?.total_bytes;
        let source = Source { backend, device, host: None, is_shared: false };
        let config = source.in_force(config);
        let page_bytes = source.virtual_memory().map(VirtualMemory::granularity_bytes);
        Ok(Self::of_source(source, Books::new(config, total_bytes, false, page_bytes)))
    }

    /// The allocator of pinned host memory that the devices of a kind reach; its errors name
    /// `device`. Its segments are as large as `pinned_reserve_segment_size_mb` says, or as a larger
    /// request; its blocks split, and no request is rounded to a power of two.
    #[must_use]
    pub fn pinned(backend: Arc<dyn Backend>, device: Device, config: AllocatorConfig) -> Self {
        let source = Source { backend, device, host: Some(Meter::new()), is_shared: false };
        let config = source.in_force(config);
        Self::of_source(source, Books::new(config, usize::MAX, true, None))
    }

    pub(super) fn of_source(source: Source, books: Books) -> Self {
        let is_cached = books.keeps_caches();
        let books = Arc::new(Mutex::new(LockRank::Allocator, books));
        let caches = Caches::new(Arc::clone(&books));
        caches.switch(is_cached);
        let (observers, sibling) = (Observers::new(), Sibling::default());
        Self { source, books, caches, observers, sibling }
    }

    /// The device whose memory it hands out.
    #[must_use]
    pub fn device(&self) -> Device {
        self.source.device
    }

    /// Memory for a request. Waits for no stream as long as there is free memory or the device has
    /// more. Fails with `OutOfMemory` when neither is so after everything free went back to the
    /// device and its observers were told; nothing has changed then but what was given back.
    ///
    /// # Panics
    /// When the request names a pool that was not made, or an alignment that is no power of two.
    #[inline]
    pub fn allocate(&self, request: Request) -> Result<Allocated> {
        let front = Front::get();
        if let Some(mut inside) = self.caches.enter_for(front, &request)
            && let Some(block) = self.caches.take(&mut inside, &request)
        {
            return Ok(*block);
        }
        self.allocate_uninterrupted(&request)
    }

    /// As [`CachingAllocator::allocate`], where waits may be given up. `home` is the stream that
    /// the request names, where it is more than a number.
    #[inline]
    pub(crate) fn allocate_unless(
        &self,
        request: Request,
        home: Option<&Arc<StreamCore>>,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<Allocated> {
        let front = Front::get();
        if let Some(mut inside) = self.caches.enter_for(front, &request)
            && let Some(block) = self.caches.take(&mut inside, &request)
        {
            return Ok(*block);
        }
        self.allocate_shared(&request, home, interrupt)
    }

    #[cold]
    #[inline(never)]
    fn allocate_uninterrupted(&self, request: &Request) -> Result<Allocated> {
        self.allocate_shared(request, None, &mut None)
    }

    #[cold]
    #[inline(never)]
    fn allocate_shared(
        &self,
        request: &Request,
        home: Option<&Arc<StreamCore>>,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<Allocated> {
        if request.bytes == 0 {
            return Ok(Allocated::default());
        }
        let plan = {
            let books = self.books.lock();
            if books.serves_natively() {
                drop(books); // it goes in steps of its own
                return self.allocate_native(request, home, interrupt);
            }
            books.plan(request)
        };
        let Some(plan) = plan else {
            let Request { stream, pool, .. } = *request;
            let owner = Owner { stream, class: PoolClass::Large, pool };
            return Err(self.out_of_memory(request.bytes, &owner, None));
        };
        let id = match self.search(&plan) {
            Some(id) => id,
            None => self.take_or_reclaim(&plan, interrupt)?,
        };
        Ok(Allocated::of(id, &self.books.lock()))
    }

    /// A free block for a request, handed out.
    pub(super) fn search(&self, plan: &Plan) -> Option<BlockId> {
        self.poll_waited_for();
        let mut books = self.books.lock();
        books.complete_passed();
        let id = books.find(plan).map(|id| books.hand_out(id, plan));
        let victims = books.release_beyond_cache();
        drop(books); // the device takes them next
        self.give_back(victims);
        id
    }

    /// Gives a block back, which no task uses any more, of its own stream either: that one may have
    /// it again at once.
    ///
    /// # Panics
    /// When it was given back before. Under policy `native` that is not seen once somebody else was
    /// given the same place.
    #[inline]
    pub fn free(&self, block: Allocated) {
        if !self.caches.keep(Front::get(), &block, 0) {
            self.free_shared(&block, None, &[]);
        }
    }

    /// Gives a block back behind its uses: those on its own stream up to a task there, and those on
    /// others.
    #[inline]
    pub(crate) fn free_behind(
        &self,
        block: Allocated,
        home: Option<&UsePoint>,
        others: &[UsePoint],
    ) {
        let front = Front::get();
        let is_own = home.is_none_or(|home| home.stream.key() == block.stream());
        let ticket = home.map_or(0, |home| home.ticket);
        if !is_own || !others.is_empty() || !self.caches.keep(front, &block, ticket) {
            self.free_shared(&block, home, others);
        }
    }

    #[cold]
    #[inline(never)]
    fn free_shared(&self, block: &Allocated, home: Option<&UsePoint>, others: &[UsePoint]) {
        match block.handle.held() {
            Held::Nothing => {}
            Held::Piece => {
                let is_freed = self.free_native(block, home, others);
                assert!(is_freed, "{block:?} is a block of this allocator that was given back");
            }
            Held::Block(id) => self.free_block(block, id, home, others),
        }
    }

    #[cold]
    fn free_block(
        &self,
        block: &Allocated,
        id: BlockId,
        home: Option<&UsePoint>,
        others: &[UsePoint],
    ) {
        let mut books = self.books.lock();
        let known = books.blocks.get(id);
        assert!(
            known.is_some_and(|known| known.handout == block.handout),
            "{block:?} is a block of this allocator that was not given back: {known:?}"
        );
        books.free(id, home, others);
        let victims = books.release_beyond_cache();
        drop(books); // the device takes them next
        self.give_back(victims);
    }

    /// The block in use that an address is in, at its beginning or further on.
    #[must_use]
    pub fn block_at(&self, address: u64) -> Option<Allocated> {
        let books = self.books.lock();
        if let Some(piece) = books.piece_at(address) {
            return Some(piece);
        }
        let id = books.map.containing(address, &books.blocks)?;
        let is_in_use = books.blocks[id].state == State::Allocated;
        is_in_use.then(|| Allocated::of(id, &books))
    }

    /// Waits until no stream uses free memory, and gives all of it back to the device, but that of
    /// private pools with users.
    pub fn empty_cache(&self) {
        let waited = self.empty_cache_unless(&mut None);
        debug_assert!(waited.is_ok(), "nobody interrupts it: {waited:?}");
    }

    /// As [`CachingAllocator::empty_cache`], where waits may be given up; what is not in use has
    /// gone back then.
    pub(crate) fn empty_cache_unless(&self, interrupt: &mut Interrupt<'_>) -> Result<()> {
        self.caches.empty(); // what threads keep may be in use as well
        let waited = self.wait_for_users(interrupt);
        self.trim();
        waited
    }

    /// True when no stream has to be waited for to give all free memory back.
    #[cfg(feature = "python")]
    pub(crate) fn is_idle(&self) -> bool {
        self.caches.empty();
        self.poll_waited_for();
        let mut books = self.books.lock();
        books.complete_passed();
        books.holders().is_empty()
    }

    /// Keeps nothing from now on: what is free goes back, now or when no stream uses it.
    pub(crate) fn close(&self) {
        self.caches.switch(false);
        self.books.lock().is_closed = true;
        self.trim();
    }

    /// The settings in force: `expandable_segments` is not where there is no virtual memory.
    #[must_use]
    pub fn config(&self) -> AllocatorConfig {
        self.books.lock().config.clone()
    }

    /// Serves the next requests by other settings; what was handed out stays as it is.
    pub fn set_config(&self, config: AllocatorConfig) {
        let config = self.source.in_force(config);
        let mut books = self.books.lock();
        books.set_config(config);
        let is_cached = books.keeps_caches();
        drop(books); // threads' caches are reached without it
        self.caches.switch(is_cached);
        self.caches.empty();
    }

    /// The part of the device's memory that may be reserved; 1 leaves it to the device.
    #[must_use]
    pub fn memory_fraction(&self) -> f64 {
        self.books.lock().limits.fraction
    }

    /// Limits what may be reserved from now on to a part of the device's memory. Fails when that is
    /// not from 0 to 1.
    pub fn set_memory_fraction(&self, fraction: f64) -> Result<()> {
        if !(0.0..=1.0).contains(&fraction) {
            let value = fraction.to_string();
            let (name, allowed) = ("memory fraction", "a number from 0 to 1");
            return Err(Error::InvalidSetting { name, value, allowed });
        }
        self.books.lock().limits.fraction = fraction;
        Ok(())
    }

    /// What it counts, with frees taken in whose streams have passed them.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.poll_waited_for();
        self.books.lock().complete_passed_if_free();
        self.statistics_so_far()
    }

    /// The same without a look at the streams.
    pub(super) fn statistics_so_far(&self) -> Statistics {
        let mut statistics = self.books.lock().statistics;
        self.caches.add_to(&mut statistics);
        statistics
    }

    /// Size of the pages that page operations are counted in.
    pub(crate) fn page_bytes(&self) -> usize {
        self.source.virtual_memory().map_or(2 * MIB, VirtualMemory::granularity_bytes)
    }

    /// Every peak becomes the current value.
    pub fn reset_peak_statistics(&self) {
        self.books.lock().statistics.reset_peaks();
        self.caches.reset_peaks();
    }

    /// Every sum and every count becomes zero.
    pub fn reset_accumulated_statistics(&self) {
        self.books.lock().statistics.reset_accumulated();
        self.caches.reset_accumulated();
        if let Some(host) = &self.source.host {
            host.reset();
        }
    }

    /// Makes a private pool, or counts one more user of it.
    ///
    /// # Panics
    /// For the default pool, which needs no users.
    pub fn retain_pool(&self, id: PoolId, options: PoolOptions) {
        assert_ne!(id, PoolId::DEFAULT, "the default pool is nobody's own");
        self.books.lock().pools.retain(id, options);
    }

    /// Counts one user less of a private pool. Without users, the memory that is free in it goes
    /// back when the cache is emptied or memory is short.
    ///
    /// # Panics
    /// When it has no users.
    pub fn release_pool(&self, id: PoolId) {
        self.books.lock().pools.release(id);
    }
}

impl Drop for CachingAllocator {
    /// Everything goes back that no stream uses: whoever has a block keeps the allocator alive.
    /// What a stream that does not end still uses stays with the device.
    fn drop(&mut self) {
        if crate::fork::is_child() {
            return; // the parent has it
        }
        self.books.lock().pools.end_all();
        self.trim();
    }
}
