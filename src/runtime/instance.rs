//! The runtime: its devices and streams, created at their first use, its allocators and counters.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::AllocatorSettings;
use crate::backend::contract::{
    Backend, DeviceProperties, LeftOutDevice, MemoryInfo, PriorityRange,
};
use crate::backend::registry::Registry;
use crate::base::config::Config;
use crate::base::device::{Device, DeviceKind};
use crate::base::error::{DeviceError, Error, Result, StreamError};
use crate::base::fork::{self, Inherited};
use crate::base::sync::unmodelled::AtomicU64;
use crate::base::sync::{LockRank, Mutex, Ordering};
use crate::engine::log::immediate::Immediate;
use crate::engine::stream::Stream;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::interrupt::Interrupt;
use crate::engine::stream::lifecycle::{Lifecycle, StreamCounts};
#[cfg(not(loom))]
use crate::engine::stream::lifecycle::{TaskReport, TaskWatch};
use crate::engine::stream::order_watch::{self, Told};
use crate::engine::stream::synchronize::{raise_counted, synchronize_all};
use crate::engine::stream::table::StreamTable;
use crate::memory::allocator::CachingAllocator;

/// The devices of this machine, with their streams and allocators.
///
/// A runtime initialises each part at its first use: queries about devices may load drivers, but
/// start no thread of this crate and initialise no device. A process usually has one runtime,
/// [`Runtime::global`]. Independent runtimes, with their own settings, are for tests and for
/// libraries that share no state. `Runtime` is a handle that is cheap to clone; the drop of the
/// last handle shuts the runtime down.
///
/// ```
/// use std::time::Duration;
/// use accelrt::{Config, Device, DeviceKind, Runtime};
/// let runtime = Runtime::new(Config::builder().cpu_devices(2).build()?)?;
///
/// // What exists. Asking initialises nothing.
/// let (kind, device) = (runtime.accelerator()?, Device::cpu(1));
/// assert_eq!(runtime.device_count(DeviceKind::CPU)?, 2);
/// assert!(runtime.left_out_devices(DeviceKind::CPU).is_empty());
/// println!("{}: {:?}", kind, runtime.properties(device)?.name);
/// assert!(runtime.memory_info(device)?.total_bytes > 0 && !runtime.is_initialized());
///
/// // What is current on this thread; guards restore it.
/// runtime.set_device(device)?;
/// assert_eq!(runtime.current_device_of(DeviceKind::CPU)?, runtime.current_device()?);
/// assert_eq!(runtime.exchange_device(Device::cpu(0))?, device);
/// let stream = runtime.stream_with_priority(device, runtime.priority_range(device)?.greatest)?;
/// let previous = runtime.exchange_stream(&stream)?;
/// assert_eq!(runtime.current_stream_of(device)?, stream);
/// assert_eq!(previous, runtime.default_stream(device)?);
/// runtime.set_stream(&previous)?;
/// assert_eq!(runtime.current_stream()?, previous);
/// assert_eq!(runtime.stream_by_id(device, stream.id())?, stream);
/// let urgent = runtime.pooled_stream_with_priority(device, -1)?;
///
/// // Memory.
/// let buffer = runtime.zeros(1000, device)?;
/// let allocator = runtime.allocator(device)?;
/// assert!(runtime.allocators_of(DeviceKind::CPU)?.len() >= 1);
/// assert_eq!(runtime.memory_statistics(device)?.requested_bytes.all.current, 1000);
/// assert_eq!(runtime.shared_memory_statistics(device)?.requested_bytes.all.current, 0);
/// assert_eq!(runtime.memory_segments(DeviceKind::CPU)?.len(), 1);
/// let (pinned, shared) = (runtime.pinned_allocator(device)?, runtime.shared_allocator(device)?);
/// println!("{:?}, {:?}", runtime.current_pool(device), runtime.allocator_settings());
///
/// // Waits and the end.
/// runtime.synchronize_timeout(device, Duration::from_secs(60))?;
/// runtime.synchronize_unless(device, &mut || false)?;
/// println!("{:?}", runtime.counters());
/// assert!(runtime.shutdown().is_clean());
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Clone)]
pub struct Runtime {
    pub(super) inner: Inherited<Arc<Inner>>,
}

pub(super) struct Inner {
    /// True for the process's runtime, which is never dropped, and for a candidate that lost the
    /// race in [`Runtime::of_process`].
    pub(super) is_of_process: bool,
    pub(super) config: Config,
    pub(super) registry: Registry,
    pub(super) lifecycle: Arc<Lifecycle>,
    accelerator: OnceLock<DeviceKind>,
    tables: Mutex<BTreeMap<Device, Arc<StreamTable>>>,
    pub(super) allocators: Mutex<Allocators>,
    extensions: Extensions,
}

/// Counters of tasks and workers since the runtime's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Tasks executed by threads that waited for their stream.
    pub num_helped_tasks: u64,
    /// Wake-ups of sleeping workers.
    pub num_worker_wakes: u64,
    /// Tasks retired without running because their stream had failed.
    pub num_skipped_tasks: u64,
    /// Tasks retired without running because the runtime was shut down.
    pub num_cancelled_tasks: u64,
    /// Workers started because other workers blocked inside tasks.
    pub num_spare_workers: u64,
}

impl Runtime {
    /// Creates an independent runtime. Fails when a setting is out of range, or when a
    /// [registered](crate::backend::registry::register_backend) constructor fails.
    pub fn new(config: Config) -> Result<Self> {
        Self::with_backends(config, [])
    }

    /// Creates a runtime with additional backends, each for a new kind or in place of the built-in
    /// backend of its kind. For authors of backends and for tests.
    ///
    /// The runtime owns the backends and shuts them down. Two runtimes cannot share a backend,
    /// because the shutdown of one runtime also ends the backend for the other.
    pub fn with_backends(
        config: Config,
        backends: impl IntoIterator<Item = Arc<dyn Backend>>,
    ) -> Result<Self> {
        Self::build(config, backends, false)
    }

    pub(super) fn build(
        config: Config,
        backends: impl IntoIterator<Item = Arc<dyn Backend>>,
        is_of_process: bool,
    ) -> Result<Self> {
        static IDS: AtomicU64 = AtomicU64::new(0);
        config.validate()?;
        let allocators = Allocators::new(config.allocator.clone());
        let built_in = Registry::from_config(&config)?;
        let registry = backends.into_iter().fold(built_in, Registry::with_backend);
        // Relaxed: only uniqueness matters.
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let inner = Inner {
            is_of_process,
            lifecycle: Lifecycle::new(id, config.stream_task_limit),
            config,
            registry,
            accelerator: OnceLock::new(),
            tables: Mutex::new(LockRank::Runtime, BTreeMap::new()),
            allocators: Mutex::new(LockRank::Runtime, allocators),
            extensions: Extensions::default(),
        };
        Ok(Self { inner: Inherited::new(Arc::new(inner)) })
    }

    /// The id of this runtime, unique in this process and never reused. It identifies the runtime
    /// in each thread's state, and in errors about handles of another runtime.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.inner.lifecycle.runtime
    }

    /// The settings that this runtime was created with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// The kind for device-agnostic calls, chosen at the first call: the configured kind, else the
    /// first of cuda and xpu with a GPU, else cpu. Fails when the configured kind is not available.
    pub fn accelerator(&self) -> Result<DeviceKind> {
        if let Some(kind) = self.inner.accelerator.get() {
            return Ok(*kind);
        }
        let kind = self.inner.registry.accelerator(self.inner.config.accelerator)?;
        Ok(*self.inner.accelerator.get_or_init(|| kind))
    }

    /// The number of devices of a kind; 0 for a kind that this build or machine lacks. For xpu the
    /// first call loads the vendors' libraries.
    pub fn device_count(&self, kind: DeviceKind) -> Result<usize> {
        let backend = self.inner.registry.backend(kind);
        match backend.and_then(|backend| backend.device_count()) {
            // A build without the kind, and a machine without the kind's driver, have no devices.
            Err(Error::Device(DeviceError::KindUnavailable { .. })) => Ok(0),
            count => count,
        }
    }

    /// The unusable devices of a kind, with the reasons. Empty for a kind that this build lacks.
    #[must_use]
    pub fn left_out_devices(&self, kind: DeviceKind) -> Vec<LeftOutDevice> {
        let backend = self.inner.registry.backend(kind);
        backend.map_or_else(|_| Vec::new(), |backend| backend.left_out_devices())
    }

    /// The name, memory, caches and features of a device. Fails when the device does not exist.
    pub fn properties(&self, device: Device) -> Result<DeviceProperties> {
        self.backend(device)?.properties(device.index())
    }

    /// The current free and total memory of a device, in bytes. For a device that uses the
    /// machine's memory, free memory is at most the available memory of the machine or of this
    /// process's container. The total is the configured number, else the device's or the machine's
    /// memory. A memory fraction changes neither number.
    pub fn memory_info(&self, device: Device) -> Result<MemoryInfo> {
        let (backend, index) = (self.backend(device)?, device.index());
        let MemoryInfo { free_bytes, total_bytes } = backend.memory_info(index)?;
        let available_bytes = backend.available_bytes(index).unwrap_or(free_bytes);
        Ok(MemoryInfo { free_bytes: free_bytes.min(available_bytes), total_bytes })
    }

    /// The priorities that streams of a device may have; a smaller number runs first.
    pub fn priority_range(&self, device: Device) -> Result<PriorityRange> {
        Ok(self.backend(device)?.priority_range(device.index()))
    }

    /// True after this runtime has initialised a device. Always false in a forked child.
    #[must_use]
    pub fn is_initialized(&self) -> bool {
        !fork::is_child() && !self.inner.tables.lock().is_empty()
    }

    /// Tells `subscriber` of this runtime's tasks, except internal ones, after they ran, on their
    /// threads and without a lock, until the drop of what is returned.
    #[cfg(not(loom))]
    pub fn watch_tasks(
        &self,
        subscriber: impl Fn(&TaskReport) + Send + Sync + 'static,
    ) -> TaskWatch {
        let lifecycle = &self.inner.lifecycle;
        lifecycle.watch(Some(lifecycle.task_reports.subscribe(subscriber)))
    }

    /// Lets this runtime's streams write records of their tasks and waits to the log, until the
    /// drop of what is returned.
    #[doc(hidden)]
    #[cfg(not(loom))]
    pub fn log_tasks(&self) -> TaskWatch {
        self.inner.lifecycle.watch(None)
    }

    /// Blocks until all work enqueued on the device's streams before this call is done. Clears the
    /// errors of these streams, and those of dropped ones, and fails with them, combined into one
    /// error. Returns at once for a device without streams. Fails inside a task of one of them.
    pub fn synchronize(&self, device: Device) -> Result<()> {
        self.synchronize_within(device, &mut Interrupt::default())
    }

    /// As [`Runtime::synchronize`]. Fails when `is_interrupted`, called every 50 ms, returns true.
    pub fn synchronize_unless(
        &self,
        device: Device,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        self.synchronize_within(device, &mut Interrupt::by(is_interrupted))
    }

    /// As [`Runtime::synchronize`], for at most `timeout`. Then the wait fails with
    /// [`TimedOut`](crate::RuntimeError::TimedOut); the work continues, and the streams keep their
    /// errors. This thread executes no tasks, because their length is unknown.
    pub fn synchronize_timeout(&self, device: Device, timeout: Duration) -> Result<()> {
        self.synchronize_within(device, &mut Interrupt::after(timeout))
    }

    /// True when a synchronise of the device would not block. Does not block.
    #[doc(hidden)]
    pub fn is_passed(&self, device: Device) -> bool {
        let table = self.inner.tables.lock().get(&device).cloned();
        let mut streams = table.iter().flat_map(|table| table.all()).map(Stream::from_core);
        streams.all(|stream| stream.is_passed())
    }

    /// Waits for the device's streams, and notifies the allocators when all work is done.
    #[doc(hidden)]
    pub fn synchronize_within(&self, device: Device, interrupt: &mut Interrupt<'_>) -> Result<()> {
        let waited = self.told_wait(device, || self.synchronize_streams(device, interrupt));
        if matches!(
            waited,
            Ok(()) | Err(Error::Stream(StreamError::Failed(_) | StreamError::SeveralFailed { .. }))
        ) {
            self.forget_received(device);
            for allocator in self.inner.all_allocators() {
                allocator.device_was_synchronized(device);
            }
        }
        waited
    }

    /// Forgets the errors that calls have received through handles, as a synchronise does.
    fn forget_received(&self, device: Device) {
        let table = self.inner.tables.lock().get(&device).cloned();
        let streams = table.iter().flat_map(|table| table.all());
        streams.for_each(|stream| stream.failures.forget_received(0));
    }

    fn synchronize_streams(&self, device: Device, interrupt: &mut Interrupt<'_>) -> Result<()> {
        self.backend(device)?;
        fork::check()?;
        let table = self.inner.tables.lock().get(&device).cloned();
        let Some(table) = table else { return Ok(()) };
        let streams = table.all();
        if order_watch::is_on() {
            order_watch::tell(Told::HostWaitForEnded(self.id(), device));
        }
        let unseen = self.inner.lifecycle.take_unseen(device);
        let mut busy = streams.iter().filter(|stream| !stream.is_quiet(0));
        if let (Some(stream), None, true) = (busy.next(), busy.next(), unseen.is_empty()) {
            return stream.synchronize(0, interrupt);
        }
        match synchronize_all(&streams, interrupt) {
            Ok(taken) => raise_counted(unseen.before(taken)),
            Err(obstacle) => {
                self.inner.lifecycle.put_back(device, unseen);
                Err(obstacle.unwrap_or_else(|panic| resume_unwind(panic)))
            }
        }
    }

    /// Counters of tasks and workers since the runtime's start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        if fork::is_child() {
            return Counters::default(); // a thread that does not exist in the child may hold a lock
        }
        // Reads the streams first: a stream that ends meanwhile is counted twice instead of never.
        let streams = self.inner.streams();
        let mut counts: StreamCounts = self.inner.lifecycle.retired_counts();
        for stream in streams {
            let own = stream.batch_state.counters.read();
            counts.helped += own.helped;
            counts.skipped += own.skipped;
            counts.cancelled += own.cancelled;
        }
        let mut counters = Counters {
            num_helped_tasks: counts.helped,
            num_skipped_tasks: counts.skipped,
            num_cancelled_tasks: counts.cancelled,
            ..Counters::default()
        };
        for backend in self.inner.registry.backends() {
            let own = backend.counters();
            counters.num_worker_wakes += own.num_worker_wakes;
            counters.num_spare_workers += own.num_spare_workers;
        }
        counters
    }

    pub(super) fn is_of_process(&self) -> bool {
        self.inner.is_of_process
    }

    /// The backend of a device's kind. Fails when the device does not exist; initialises no device.
    #[doc(hidden)]
    pub fn backend(&self, device: Device) -> Result<&Arc<dyn Backend>> {
        let backend = self.inner.registry.backend(device.kind())?;
        let count = backend.device_count()?;
        if device.index() < count {
            Ok(backend)
        } else {
            Err(Error::Device(DeviceError::NotFound { device, count }))
        }
    }

    /// As [`Runtime::backend`], and initialises the device.
    pub(super) fn initialized(&self, device: Device) -> Result<&Arc<dyn Backend>> {
        self.table(device)?;
        self.backend(device)
    }

    pub(crate) fn table(&self, device: Device) -> Result<Arc<StreamTable>> {
        let backend = self.backend(device)?;
        self.inner.lifecycle.check()?;
        fork::watch();
        let make =
            || StreamTable::new(device, Arc::clone(backend), Arc::clone(&self.inner.lifecycle));
        Ok(Arc::clone(self.inner.tables.lock().entry(device).or_insert_with(make)))
    }
}

impl Inner {
    pub(super) fn streams(&self) -> Vec<Arc<StreamCore>> {
        let tables: Vec<_> = self.tables.lock().values().cloned().collect();
        tables.iter().flat_map(|table| table.all()).collect()
    }

    pub(super) fn all_allocators(&self) -> Vec<Arc<CachingAllocator>> {
        self.allocators.lock().all()
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut runtime, inner) = (f.debug_struct("Runtime"), &self.inner);
        runtime.field("config", &inner.config).finish_non_exhaustive()
    }
}

/// The table of a runtime's allocators. The first request for an allocator creates it.
#[derive(Debug)]
pub(super) struct Allocators {
    pub(super) settings: AllocatorSettings,
    /// Told of the shortages of all of them but the heap.
    pub(super) shortages: Arc<Immediate<Error>>,
    /// Asked for memory by the same.
    pub(super) reclaimers: Arc<Immediate<Error, bool>>,
    pub(super) by_device: BTreeMap<Device, Arc<CachingAllocator>>,
    /// For memory that the device shares with the host.
    pub(super) shared: BTreeMap<Device, Arc<CachingAllocator>>,
    pub(super) pinned: BTreeMap<DeviceKind, Arc<CachingAllocator>>,
    pub(super) heap: Option<Arc<CachingAllocator>>,
    /// The watches that are there.
    pub(super) watch_count: usize,
}

impl Allocators {
    pub(super) fn new(settings: AllocatorSettings) -> Self {
        Self {
            settings,
            shortages: Arc::new(Immediate::new()),
            reclaimers: Arc::new(Immediate::new()),
            by_device: BTreeMap::new(),
            shared: BTreeMap::new(),
            pinned: BTreeMap::new(),
            heap: None,
            watch_count: 0,
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<CachingAllocator>> {
        self.of_buffers().chain(&self.heap).cloned().collect()
    }

    pub(super) fn of_buffers(&self) -> impl Iterator<Item = &Arc<CachingAllocator>> {
        self.by_device.values().chain(self.shared.values()).chain(self.pinned.values())
    }
}

/// One value for each type, in the order of their first use.
#[derive(Debug, Default)]
struct Extensions([OnceLock<Arc<dyn Any + Send + Sync>>; 4]);

impl Runtime {
    /// The runtime's value of type `T`. The first call creates it from the runtime's number.
    ///
    /// The runtime drops the value at its end. Values of at most four types can be kept. In a
    /// forked child that has inherited no such value, each call creates one.
    ///
    /// # Panics
    /// When the places are taken by values of other types.
    #[doc(hidden)]
    pub fn extension<T: Any + Send + Sync>(&self, create: impl FnOnce(u64) -> T) -> Arc<T> {
        let places = &self.inner.extensions.0;
        let of_type = |place: &OnceLock<Arc<dyn Any + Send + Sync>>| {
            Arc::clone(place.get()?).downcast::<T>().ok()
        };
        if let Some(found) = places.iter().find_map(of_type) {
            return found;
        }
        let created = Arc::new(create(self.id()));
        if fork::is_child() {
            return created; // a thread of the parent may have held a place at the fork
        }
        for place in places {
            if place.set(Arc::<T>::clone(&created) as Arc<dyn Any + Send + Sync>).is_ok() {
                return created;
            }
            if let Some(found) = of_type(place) {
                return found; // of a thread that was faster
            }
        }
        panic!("a runtime keeps values of at most {} types", places.len());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::config::Config;

    #[test]
    fn each_type_has_one_value_for_each_runtime() {
        let runtimes = [(); 2].map(|()| Runtime::new(Config::default()).unwrap());
        let text = runtimes[0].extension(|_| String::from("first"));
        assert!(Arc::ptr_eq(&text, &runtimes[0].extension(|_| String::from("second"))));
        for runtime in &runtimes {
            assert_eq!(*runtime.extension(|id| id), runtime.id());
        }
        assert_eq!(*runtimes[1].extension(|_| String::from("third")), "third");
    }

    #[test]
    fn threads_that_create_a_value_at_once_get_the_same() {
        for _ in 0..100 {
            let runtime = Runtime::new(Config::default()).unwrap();
            let values = std::thread::scope(|scope| {
                let threads = [0, 1, 2].map(|number| {
                    let runtime = &runtime;
                    scope.spawn(move || runtime.extension(|_| number))
                });
                threads.map(|thread| thread.join().unwrap())
            });
            assert!(values.iter().all(|value| Arc::ptr_eq(value, &values[0])));
        }
    }

    #[test]
    fn values_are_dropped_with_the_runtime() {
        let runtime = Runtime::new(Config::default()).unwrap();
        let value = Arc::downgrade(&runtime.extension(|_| vec![1]));
        assert!(value.upgrade().is_some());
        drop(runtime);
        assert!(value.upgrade().is_none());
    }
}
