//! A runtime's caching allocators: for devices, shared and pinned memory and the host heap.

use std::sync::Arc;

use crate::backend::contract::{MemoryKind, no_shared_memory};
use crate::base::device::{Device, DeviceKind};
use crate::base::error::Result;
use crate::base::fork;
use crate::base::sync::MutexGuard;
use crate::memory::allocator::snapshot::{BlockState, SegmentInfo};
use crate::memory::allocator::{AllocatorConfig, CachingAllocator, PoolId, Statistics};
use crate::memory::buffer::allocation::Origin;
use crate::runtime::Runtime;
use crate::runtime::instance::Allocators;

impl Runtime {
    /// The allocator of a device's buffers. The first call creates it and initialises the device.
    ///
    /// Fails when the device does not exist, after a shutdown and in a forked child.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let device = accelrt::Device::cpu(0);
    /// let buffer = runtime.empty(1000, device)?;
    /// let statistics = runtime.allocator(device)?.statistics();
    /// assert_eq!(statistics.requested_bytes.all.current, 1000);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn allocator(&self, device: Device) -> Result<Arc<CachingAllocator>> {
        fork::check()?;
        if let Some(known) = self.inner.allocators.lock().by_device.get(&device) {
            return Ok(Arc::clone(known));
        }
        let backend = Arc::clone(self.initialized(device)?);
        let (allocator, mut allocators) =
            self.create_observed(|config| CachingAllocator::new(backend, device, config))?;
        let known = Arc::clone(
            allocators.by_device.entry(device).or_insert_with(|| Arc::clone(&allocator)),
        );
        self.record(&known, device, &allocators);
        Ok(known)
    }

    /// Creates an allocator that calls this runtime's observers. Returns it with the table, locked,
    /// which callers drop first: where another thread's was faster, the allocator's end calls the
    /// device.
    fn create_observed(
        &self,
        create: impl FnOnce(AllocatorConfig) -> Result<CachingAllocator>,
    ) -> Result<(Arc<CachingAllocator>, MutexGuard<'_, Allocators>)> {
        let (shortages, reclaimers, config) = {
            let Allocators { shortages, reclaimers, settings, .. } = &*self.inner.allocators.lock();
            (Arc::clone(shortages), Arc::clone(reclaimers), settings.config().clone())
        };
        let allocator = Arc::new(create(config)?); // without the lock: `create` may call a backend
        allocator.add_oom_observer(move |error| shortages.tell(error));
        allocator.add_reclaimers(reclaimers);
        let allocators = self.inner.allocators.lock();
        // Another thread may have changed the settings while `create` ran.
        allocator.switch_config(allocators.settings.config().clone());
        Ok((allocator, allocators))
    }

    /// Creates another allocator of a device. Buffers do not use it, and it shares no memory with
    /// the device's other allocators. Fails as [`Runtime::allocator`].
    pub fn separate_allocator(
        &self,
        device: Device,
        config: AllocatorConfig,
    ) -> Result<CachingAllocator> {
        fork::check()?;
        CachingAllocator::new(Arc::clone(self.initialized(device)?), device, config)
    }

    /// The allocator of memory that a device shares with the host. It shares the device's capacity
    /// with the allocator of the device's own memory: when one of them runs short, the other frees
    /// its cache. Fails as [`Runtime::allocator`], and with `Unsupported` on a device without such
    /// memory.
    pub fn shared_allocator(&self, device: Device) -> Result<Arc<CachingAllocator>> {
        fork::check()?;
        if let Some(known) = self.inner.allocators.lock().shared.get(&device) {
            return Ok(Arc::clone(known));
        }
        let beside = self.allocator(device)?;
        if !self.properties(device)?.has_shared_memory {
            return Err(no_shared_memory(device.kind()));
        }
        let (allocator, mut allocators) =
            self.create_observed(|config| CachingAllocator::shared(&beside, config))?;
        let shared =
            Arc::clone(allocators.shared.entry(device).or_insert_with(|| Arc::clone(&allocator)));
        beside.begin_sharing(&shared);
        Ok(shared)
    }

    /// The allocator of pinned host memory that the devices of a kind can access. Fails as
    /// [`Runtime::allocator`].
    pub fn pinned_allocator(&self, device: Device) -> Result<Arc<CachingAllocator>> {
        fork::check()?;
        if let Some(known) = self.inner.allocators.lock().pinned.get(&device.kind()) {
            return Ok(Arc::clone(known));
        }
        let backend = Arc::clone(self.initialized(device)?);
        let (allocator, mut allocators) =
            self.create_observed(|config| Ok(CachingAllocator::pinned(backend, device, config)))?;
        let known = allocators.pinned.entry(device.kind());
        Ok(Arc::clone(known.or_insert_with(|| Arc::clone(&allocator))))
    }

    /// The allocator of the host heap: pinned memory that the devices of a kind can access and that
    /// no stream uses. It calls no observers of failed requests: the requesting thread may hold the
    /// GIL, or block the thread that holds it. Fails as [`Runtime::allocator`].
    #[cfg(not(loom))]
    pub fn heap_allocator(&self, device: Device) -> Result<Arc<CachingAllocator>> {
        fork::check()?;
        let backend = Arc::clone(self.initialized(device)?);
        let mut allocators = self.inner.allocators.lock();
        let config = allocators.settings.config().clone();
        let allocator = || Arc::new(CachingAllocator::heap(backend, device, config));
        Ok(Arc::clone(allocators.heap.get_or_insert_with(allocator)))
    }

    /// The source of this thread's next buffer: the device's allocator and the thread's pool.
    #[doc(hidden)]
    pub fn origin(&self, device: Device) -> Result<Origin> {
        let pool = self.current_pool(device);
        Ok(Origin { pool, ..self.origin_of(self.allocator(device)?, MemoryKind::Device) })
    }

    #[doc(hidden)]
    pub fn pinned_origin(&self, device: Device) -> Result<Origin> {
        Ok(self.origin_of(self.pinned_allocator(device)?, MemoryKind::Host))
    }

    #[doc(hidden)]
    pub fn shared_origin(&self, device: Device) -> Result<Origin> {
        Ok(self.origin_of(self.shared_allocator(device)?, MemoryKind::Shared))
    }

    fn origin_of(&self, allocator: Arc<CachingAllocator>, kind: MemoryKind) -> Origin {
        let is_of_process = self.is_of_process();
        Origin { allocator, pool: PoolId::DEFAULT, kind, align_bytes: 1, is_of_process }
    }

    /// The existing allocators of a kind's devices, by device index, without those of shared
    /// memory.
    pub fn allocators_of(&self, kind: DeviceKind) -> Result<Vec<Arc<CachingAllocator>>> {
        fork::check()?;
        let allocators = self.inner.allocators.lock();
        let of_kind = allocators.by_device.iter().filter(|(device, _)| device.kind() == kind);
        Ok(of_kind.map(|(_, allocator)| Arc::clone(allocator)).collect())
    }

    /// The allocator of a device; `None` if no call has created it. Initialises no device.
    #[doc(hidden)]
    pub fn existing_allocator(&self, device: Device) -> Result<Option<Arc<CachingAllocator>>> {
        fork::check()?;
        self.properties(device)?; // fails for a missing device
        Ok(self.inner.allocators.lock().by_device.get(&device).cloned())
    }

    #[doc(hidden)]
    pub fn existing_allocators(&self, device: Device) -> Result<Vec<Arc<CachingAllocator>>> {
        self.properties(device)?; // fails for a missing device
        let mut known = self.existing_allocators_of(device.kind())?;
        known.retain(|allocator| allocator.device() == device);
        Ok(known)
    }

    #[doc(hidden)]
    pub fn existing_allocators_of(&self, kind: DeviceKind) -> Result<Vec<Arc<CachingAllocator>>> {
        fork::check()?;
        let allocators = self.inner.allocators.lock();
        let all = allocators.by_device.iter().chain(&allocators.shared);
        let of_kind = all.filter(|(device, _)| device.kind() == kind);
        Ok(of_kind.map(|(_, allocator)| Arc::clone(allocator)).collect())
    }

    /// The allocator of a kind's pinned memory; `None` if no call has created it.
    #[doc(hidden)]
    pub fn existing_pinned_allocator(
        &self,
        kind: DeviceKind,
    ) -> Result<Option<Arc<CachingAllocator>>> {
        fork::check().map(|()| self.inner.allocators.lock().pinned.get(&kind).cloned())
    }

    /// The statistics of a device's allocator, after threads have returned their cached memory
    /// ([`CachingAllocator::statistics_at_rest`]). All counts are zero before the device's first
    /// use. Initialises no device.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let device = accelrt::Device::cpu(0);
    /// assert_eq!(runtime.memory_statistics(device)?.allocation.all.current, 0);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn memory_statistics(&self, device: Device) -> Result<Statistics> {
        Ok(self.statistics_of(self.existing_allocator(device)?))
    }

    /// As [`Runtime::memory_statistics`], for memory that the device shares with the host.
    pub fn shared_memory_statistics(&self, device: Device) -> Result<Statistics> {
        fork::check()?;
        self.properties(device)?; // fails for a missing device
        let known = self.inner.allocators.lock().shared.get(&device).cloned();
        Ok(self.statistics_of(known))
    }

    fn statistics_of(&self, known: Option<Arc<CachingAllocator>>) -> Statistics {
        let nothing = || Statistics::of_nothing(self.inner.allocators.lock().settings.config());
        known.map_or_else(nothing, |allocator| allocator.statistics_at_rest())
    }

    /// The segments of a kind's devices, without shared and pinned memory. Initialises no device.
    pub fn memory_segments(&self, kind: DeviceKind) -> Result<Vec<SegmentInfo>> {
        let allocators = self.allocators_of(kind)?;
        Ok(allocators.iter().flat_map(|allocator| allocator.snapshot().segments).collect())
    }

    /// The addresses and requested bytes of the buffers that are there, without those of separate
    /// allocators.
    #[must_use]
    pub fn allocated_buffers(&self) -> Vec<(u64, usize)> {
        let known: Vec<_> = self.inner.allocators.lock().of_buffers().cloned().collect();
        let segments = known.iter().flat_map(|allocator| allocator.snapshot().segments);
        let blocks = segments.flat_map(|segment| segment.blocks);
        let allocated = blocks.filter(|block| block.state == BlockState::Allocated);
        allocated.map(|block| (block.address, block.requested_bytes)).collect()
    }

    /// The text of the current settings, which apply to all allocators except separate ones. Empty
    /// in a forked child.
    #[must_use]
    pub fn allocator_settings(&self) -> String {
        if fork::is_child() {
            return String::new(); // a thread that the child lacks may hold the lock
        }
        self.inner.allocators.lock().settings.text().to_owned()
    }

    /// Applies new settings to later requests of all allocators except
    /// [separate](Runtime::separate_allocator) ones. A setting that the text does not name gets its
    /// default or stays unchanged: see [`AllocatorConfig::followed_by`]. A malformed text is an
    /// error and changes no setting. Fails in a forked child.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// runtime.set_allocator_settings("max_split_size_mb:64")?;
    /// assert!(runtime.set_allocator_settings("max_split_size_mb:64k").is_err());
    /// assert_eq!(runtime.allocator_settings(), "max_split_size_mb:64");
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn set_allocator_settings(&self, settings: &str) -> Result<()> {
        fork::check()?;
        let known = {
            let mut allocators = self.inner.allocators.lock();
            allocators.settings = allocators.settings.followed_by(settings)?;
            let known = allocators.all();
            for allocator in &known {
                allocator.switch_config(allocators.settings.config().clone());
            }
            known
        };
        for allocator in known {
            allocator.empty_thread_caches(); // which may sleep
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::Config;
    use crate::backend::contract::Backend;
    use crate::fault::{FaultBackend, Method};
    use crate::null::{NullBackend, NullConfig};

    #[test]
    fn new_settings_wait_for_no_thread_under_the_runtimes_lock() {
        // Goal: other threads get at their allocators meanwhile. Method: debug builds check that a
        // thread that may wait for another one to leave its cache has no lock.
        let runtime = Runtime::new(Config::default()).unwrap();
        drop(runtime.empty(512, Device::cpu(0)).unwrap());
        for settings in ["policy:torch", "policy:native"] {
            runtime.set_allocator_settings(settings).unwrap();
        }
    }

    #[test]
    fn an_allocator_that_came_second_ends_without_the_runtimes_lock() {
        // As above: its end empties caches, and gives memory back to the device.
        let faults = FaultBackend::new(NullBackend::new(NullConfig::default()));
        let config = Config::builder().accelerator(DeviceKind::NULL).build().unwrap();
        let backend: Arc<dyn Backend> = Arc::<FaultBackend>::clone(&faults);
        let runtime = Runtime::with_backends(config, [backend]).unwrap();
        let device = Device::new(DeviceKind::NULL, 0).unwrap();
        runtime.properties(device).unwrap();
        let (faster, (tell, told)) = (runtime.clone(), mpsc::channel());
        faults.plan_callback(Method::MemoryInfo, 1, move || {
            tell.send(faster.allocator(device).unwrap()).unwrap();
        });
        let second = runtime.allocator(device).unwrap();
        assert!(Arc::ptr_eq(&second, &told.recv().unwrap()));
    }

    #[test]
    fn an_allocator_is_known_once_its_device_was_used_and_asking_creates_none() {
        let runtime = Runtime::new(Config::builder().cpu_devices(2).build().unwrap()).unwrap();
        let [first, second] = [Device::cpu(0), Device::cpu(1)];
        let known = || {
            let of_each =
                [first, second].map(|device| runtime.existing_allocators(device).unwrap());
            of_each.map(|known| known.iter().map(|one| one.device()).collect::<Vec<_>>())
        };
        assert_eq!(known(), [vec![], vec![]]);
        assert!(runtime.existing_pinned_allocator(DeviceKind::CPU).unwrap().is_none());
        drop(runtime.empty(512, second).unwrap());
        assert_eq!(known(), [vec![], vec![second]]);
        assert_eq!(runtime.existing_allocators_of(DeviceKind::CPU).unwrap().len(), 1);
        drop(runtime.empty_pinned(512).unwrap());
        assert!(runtime.existing_pinned_allocator(DeviceKind::CPU).unwrap().is_some());
        assert_eq!(known(), [vec![], vec![second]], "pinned memory is no device's");
        assert!(runtime.existing_allocators(Device::cpu(2)).is_err());
    }
}
