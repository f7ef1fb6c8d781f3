//! The streams of one device: the default one, pools of 32 per priority, and dedicated ones.
//!
//! The pools follow torch's stream pools. The first request for a stream creates it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::backend::contract::Backend;
use crate::backend::contract::owned::OwnedStream;
use crate::base::device::Device;
use crate::base::error::{Error, Result, StreamError};
use crate::base::fork;
use crate::base::steps::step;
use crate::base::sync::{LockRank, Mutex, park};
use crate::engine::frontier::Progress;
use crate::engine::stream::core::{Identity, StreamCore};
use crate::engine::stream::lifecycle::Lifecycle;

/// Streams per priority, issued round robin: the 33rd request gets the first stream again.
pub(crate) const POOL_STREAMS: usize = 32;

pub(crate) const DEFAULT_ID: u64 = 0;

/// The polling period while another thread drops a stream. A drop takes nanoseconds.
const ENDING_PERIOD: Duration = Duration::from_micros(20);

#[derive(Debug)]
pub(crate) struct StreamTable {
    device: Device,
    backend: Arc<dyn Backend>,
    lifecycle: Arc<Lifecycle>,
    streams: Mutex<Streams>,
}

#[derive(Debug)]
struct Streams {
    default: Option<Arc<StreamCore>>,
    pools: Vec<Pool>,
    /// Sorted by id.
    dedicated: Vec<Dedicated>,
    /// The length of `dedicated` from which on an insertion also removes the streams that ended.
    sweep_at: usize,
    /// The next id. Each id is issued once.
    next_id: u64,
}

/// The table's entry for a dedicated stream. The stream ends when its last handle is dropped and
/// its last task is done.
#[derive(Debug)]
struct Dedicated {
    id: u64,
    stream: Weak<StreamCore>,
    progress: Arc<Progress>,
}

#[derive(Debug)]
struct Pool {
    priority: i32,
    streams: Vec<Option<Arc<StreamCore>>>,
    next: usize,
}

impl StreamTable {
    pub(crate) fn new(
        device: Device,
        backend: Arc<dyn Backend>,
        lifecycle: Arc<Lifecycle>,
    ) -> Arc<Self> {
        let streams = Streams {
            default: None,
            pools: Vec::new(),
            dedicated: Vec::new(),
            sweep_at: 64,
            next_id: DEFAULT_ID + 1,
        };
        let streams = Mutex::new(LockRank::StreamTable, streams);
        Arc::new(Self { device, backend, lifecycle, streams })
    }

    /// The default stream, id 0: shared by all threads, and not ordered with other streams.
    pub(crate) fn default_stream(&self) -> Result<Arc<StreamCore>> {
        if let Some(stream) = &self.streams.lock().default {
            return Ok(Arc::clone(stream));
        }
        // Created without the lock, because `create` calls the backend. Racing threads get the same
        // stream.
        let new = self.create(DEFAULT_ID, 0)?;
        let first = Arc::clone(self.streams.lock().default.get_or_insert_with(|| Arc::clone(&new)));
        Ok(first)
    }

    /// The next stream of a pool, and the last ticket of its earlier holders.
    pub(crate) fn pooled_stream(&self, priority: i32) -> Result<(Arc<StreamCore>, u64)> {
        let priority = self.nearest_priority(priority);
        let (index, present) = {
            let mut streams = self.streams.lock();
            let pool = streams.pool(priority);
            let index = pool.next;
            pool.next = (index + 1) % POOL_STREAMS;
            (index, pool.streams[index].clone())
        };
        if let Some(stream) = present {
            let issued_after = stream.reissue();
            return Ok((stream, issued_after));
        }
        let id = self.streams.lock().take_id();
        let new = self.create(id, priority)?;
        let mut streams = self.streams.lock();
        let first = streams.pool(priority).streams[index].get_or_insert_with(|| Arc::clone(&new));
        Ok((Arc::clone(first), 0)) // a stream that lost the race is dropped after the lock
    }

    pub(crate) fn dedicated_stream(&self, priority: i32) -> Result<Arc<StreamCore>> {
        let priority = self.nearest_priority(priority);
        self.lifecycle.check()?;
        let handle = OwnedStream::create(&self.backend, self.device.index(), priority)?;
        Ok(self.dedicate(handle, priority))
    }

    /// Makes a stream of the backend a dedicated one.
    pub(crate) fn dedicate(&self, handle: Arc<OwnedStream>, priority: i32) -> Arc<StreamCore> {
        let id = self.streams.lock().take_id();
        let new = self.stream(handle, id, priority, true);
        let mut streams = self.streams.lock();
        if streams.dedicated.len() >= streams.sweep_at {
            streams.dedicated.retain(|dedicated| !dedicated.progress.has_ended());
            streams.sweep_at = 64.max(2 * streams.dedicated.len());
        }
        let (stream, progress) = (Arc::downgrade(&new), Arc::clone(&new.progress));
        // Not always the end of the list: a thread with a later id may have inserted before.
        let index = streams.index_of(id);
        streams.dedicated.insert(index, Dedicated { id, stream, progress });
        new
    }

    /// The stream with this id. Fails for ids that were never issued and for streams that ended.
    pub(crate) fn stream_by_id(&self, stream_id: u64) -> Result<Arc<StreamCore>> {
        if stream_id == DEFAULT_ID {
            return self.default_stream();
        }
        let found = self.streams.lock().find(stream_id);
        found.ok_or(Error::Stream(StreamError::NotFound { device: self.device, stream_id }))
    }

    /// Returns every stream that has not ended. Blocks until streams that another thread is
    /// dropping have added their counts and errors to the lifecycle, so a caller that reads both
    /// misses none.
    pub(crate) fn all(&self) -> Vec<Arc<StreamCore>> {
        let mut ending = Vec::new();
        let streams = self.streams.lock();
        let pooled = streams.pools.iter().flat_map(|pool| pool.streams.iter().flatten());
        let mut all: Vec<_> = streams.default.iter().chain(pooled).cloned().collect();
        for Dedicated { stream, progress, .. } in &streams.dedicated {
            match stream.upgrade() {
                Some(stream) => all.push(stream),
                None if progress.has_ended() => {}
                None => ending.push(Arc::clone(progress)),
            }
        }
        drop(streams); // `all` may hold a last reference, dropped by the caller without the lock
        // A forked child must not wait: the dropping thread exists only in the parent.
        let is_ending = |progress: &Arc<Progress>| !progress.has_ended() && !fork::is_child();
        while ending.iter().any(is_ending) {
            park(Some(ENDING_PERIOD)); // the dropping thread may need this thread's processor
        }
        all
    }

    /// Creates a stream that the device keeps.
    fn create(&self, id: u64, priority: i32) -> Result<Arc<StreamCore>> {
        self.lifecycle.check()?;
        let handle = OwnedStream::create(&self.backend, self.device.index(), priority)?;
        Ok(self.stream(handle, id, priority, false))
    }

    fn stream(
        &self,
        handle: Arc<OwnedStream>,
        id: u64,
        priority: i32,
        is_dedicated: bool,
    ) -> Arc<StreamCore> {
        let identity = Identity { device: self.device, id, priority, is_dedicated };
        let (backend, lifecycle) = (Arc::clone(&self.backend), Arc::clone(&self.lifecycle));
        StreamCore::new(identity, backend, handle, lifecycle)
    }

    /// The nearest priority that the device supports.
    fn nearest_priority(&self, priority: i32) -> i32 {
        let range = self.backend.priority_range(self.device.index());
        priority.clamp(range.greatest, range.least)
    }
}

impl Streams {
    fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// The index of the dedicated stream with an id, or the index to insert it at.
    fn index_of(&self, id: u64) -> usize {
        self.dedicated.partition_point(|dedicated| {
            step();
            dedicated.id < id
        })
    }

    /// The pooled or dedicated stream with an id, unless it has ended.
    fn find(&self, id: u64) -> Option<Arc<StreamCore>> {
        if let Some(dedicated) = self.dedicated.get(self.index_of(id)).filter(|it| it.id == id) {
            return dedicated.stream.upgrade();
        }
        let mut pooled = self.pools.iter().flat_map(|pool| pool.streams.iter().flatten());
        pooled.find(|stream| stream.identity.id == id).cloned()
    }

    fn pool(&mut self, priority: i32) -> &mut Pool {
        let index = self.pools.iter().position(|pool| pool.priority == priority);
        let index = index.unwrap_or_else(|| {
            self.pools.push(Pool { priority, streams: vec![None; POOL_STREAMS], next: 0 });
            self.pools.len() - 1
        });
        &mut self.pools[index]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::base::config::Config;
    use crate::base::device::Device;
    use crate::base::error::{Error, StreamError};
    use crate::base::steps::steps_of;
    use crate::runtime::Runtime;

    const CPU: Device = Device::cpu(0);

    #[test]
    fn a_live_stream_is_found_by_its_id_in_a_few_steps_among_many() {
        let runtime = Runtime::new(Config::default()).unwrap();
        let pooled = runtime.pooled_stream(CPU).unwrap();
        let mut streams: Vec<_> = (0..3000).map(|_| runtime.stream(CPU).unwrap()).collect();
        let gone = streams.remove(1500).id();
        for stream in [&pooled, &streams[0], &streams[1499], &streams[2998]] {
            let (found, steps) = steps_of(|| runtime.stream_by_id(CPU, stream.id()).unwrap());
            assert_eq!(found.id(), stream.id());
            assert!(steps <= 13, "{steps} steps among 3000");
        }
        for id in [gone, 1_000_000] {
            let found = runtime.stream_by_id(CPU, id);
            let Err(Error::Stream(StreamError::NotFound { stream_id, .. })) = found else {
                panic!("{found:?}")
            };
            assert_eq!(stream_id, id);
        }
    }
}
