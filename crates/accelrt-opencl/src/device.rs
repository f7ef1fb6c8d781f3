//! One device: its properties, memory accounting and loss.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use accelrt::backend::contract::{DeviceProperties, PriorityRange};
use accelrt::internal::Capacity;
use accelrt::size::to_usize;
use accelrt::{Device, DeviceKind, DriverError, Error, Result};

use crate::driver::{CallError, CallResult, Driver};
use crate::sys::{self, DeviceId};

const USM_EXTENSION: &str = "cl_intel_unified_shared_memory";
const BFLOAT16_EXTENSION: &str = "cl_intel_bfloat16_conversions";
const PRIORITY_EXTENSION: &str = "cl_khr_priority_hints";

/// Stream priorities of a device with priority hints: those of torch's XPU streams.
const HINTED: PriorityRange = PriorityRange { least: 1, greatest: -1 };
const ONE_LEVEL: PriorityRange = PriorityRange { least: 0, greatest: 0 };

/// The driver's description of a device.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent capabilities")]
pub(crate) struct DeviceInfo {
    pub(crate) id: DeviceId,
    pub(crate) name: String,
    pub(crate) is_gpu: bool,
    memory_bytes: usize,
    /// Largest size of one allocation; 0 when unknown.
    pub(crate) largest_bytes: usize,
    core_count: usize,
    cache_bytes: usize,
    has_priorities: bool,
    /// True when the driver can allocate memory that the host and this device share.
    pub(crate) has_shared_memory: bool,
    /// True when the device has no memory of its own and uses the host's.
    pub(crate) is_host_memory: bool,
    has_bfloat16_conversions: bool,
}

impl DeviceInfo {
    /// Asks the driver for the description. The error says why the device is unusable.
    pub(crate) fn of(driver: &Driver, id: DeviceId, name: String) -> Result<Self, String> {
        Self::query(driver, id, name).unwrap_or_else(|refusal| Err(refusal.to_string()))
    }

    fn query(driver: &Driver, id: DeviceId, name: String) -> CallResult<Result<Self, String>> {
        let extensions = driver.device_text(id, sys::DEVICE_EXTENSIONS)?;
        let has = |extension| extensions.split_ascii_whitespace().any(|name| name == extension);
        if !has(USM_EXTENSION) {
            return Ok(Err(format!("it has no unified shared memory ({USM_EXTENSION})")));
        }
        let number = |what| driver.device_info::<u64>(id, what).map(to_usize);
        let memory_bytes = number(sys::DEVICE_GLOBAL_MEM_SIZE)?;
        if memory_bytes == 0 {
            return Ok(Err("it says that it has no memory".to_owned()));
        }
        // If one of these two queries fails, the device counts as one without the capability.
        let shared =
            driver.device_info(id, sys::DEVICE_SINGLE_DEVICE_SHARED_MEM_CAPABILITIES_INTEL);
        let unified = driver.device_info::<u32>(id, sys::DEVICE_HOST_UNIFIED_MEMORY);
        let core_count = driver.device_info::<u32>(id, sys::DEVICE_MAX_COMPUTE_UNITS)?;
        let device_type: u64 = driver.device_info(id, sys::DEVICE_TYPE)?;
        Ok(Ok(Self {
            id,
            name,
            is_gpu: device_type & sys::DEVICE_TYPE_GPU != 0,
            memory_bytes,
            largest_bytes: number(sys::DEVICE_MAX_MEM_ALLOC_SIZE)?,
            core_count: core_count.max(1) as usize,
            cache_bytes: number(sys::DEVICE_GLOBAL_MEM_CACHE_SIZE)?,
            has_priorities: has(PRIORITY_EXTENSION),
            has_shared_memory: shared
                .is_ok_and(|bits: u64| bits & sys::UNIFIED_SHARED_MEMORY_ACCESS_INTEL != 0),
            has_bfloat16_conversions: has(BFLOAT16_EXTENSION),
            is_host_memory: unified.is_ok_and(|answer| answer != 0),
        }))
    }
}

#[derive(Debug)]
pub(crate) struct XpuDevice {
    pub(crate) device: Device,
    pub(crate) capacity: Arc<Capacity>,
    pub(crate) info: DeviceInfo,
    /// Set by the first call that finds the device lost; never reset.
    is_lost: AtomicBool,
}

impl XpuDevice {
    /// Creates a device. `memory_bytes` replaces the capacity that the driver reports.
    pub(crate) fn new(index: usize, info: DeviceInfo, memory_bytes: Option<usize>) -> Self {
        let device = Device::new(DeviceKind::XPU, index).expect("128 devices at most");
        let capacity = Capacity::new(device, memory_bytes.unwrap_or(info.memory_bytes));
        Self { device, capacity: Arc::new(capacity), info, is_lost: AtomicBool::new(false) }
    }

    pub(crate) fn properties(&self) -> DeviceProperties {
        let DeviceInfo { name, cache_bytes, core_count, is_gpu, .. } = &self.info;
        let mut properties = DeviceProperties::new(name, self.capacity.info().total_bytes);
        properties.core_count = *core_count;
        properties.cache_bytes.extend((*cache_bytes > 0).then_some(*cache_bytes));
        properties.is_gpu = *is_gpu;
        properties.has_shared_memory = self.info.has_shared_memory;
        properties.has_bfloat16_conversions = self.info.has_bfloat16_conversions;
        properties
    }

    pub(crate) fn priority_range(&self) -> PriorityRange {
        if self.info.has_priorities { HINTED } else { ONE_LEVEL }
    }

    pub(crate) fn queue_properties(&self, priority: i32) -> Vec<u64> {
        assert!(self.priority_range().contains(priority), "a priority of {priority}");
        let mut properties = vec![u64::from(sys::QUEUE_PROPERTIES), sys::QUEUE_PROFILING_ENABLE];
        if self.info.has_priorities {
            let level = match priority {
                ..0 => sys::QUEUE_PRIORITY_HIGH_KHR,
                0 => sys::QUEUE_PRIORITY_MED_KHR,
                1.. => sys::QUEUE_PRIORITY_LOW_KHR,
            };
            properties.extend([sys::QUEUE_PRIORITY_KHR, level]);
        }
        properties.push(0);
        properties
    }

    /// Fails when the device is lost. A loss is permanent.
    pub(crate) fn check(&self) -> Result<()> {
        // Relaxed: a thread that does not see the store yet gets the error from the driver.
        if self.is_lost.load(Ordering::Relaxed) {
            return Err(self.lost("an earlier call found it gone".to_owned()));
        }
        Ok(())
    }

    /// Converts a refused call on this device into an error. Marks the device as lost when the
    /// driver reports it as unavailable, by the refusal's code or in answer to a query. No other
    /// code is evidence of a loss, because each of them also has other causes.
    pub(crate) fn lost_or_refused(&self, driver: &Driver, refusal: CallError) -> Error {
        if refusal.code == sys::DEVICE_NOT_AVAILABLE || self.is_unavailable(driver) {
            // Relaxed: publishes nothing. A thread that does not see the store asks the driver.
            self.is_lost.store(true, Ordering::Relaxed);
            return self.lost(refusal.to_string());
        }
        driver_error(refusal)
    }

    /// Asks the driver whether the device is gone. A device whose query fails counts as available.
    pub(crate) fn is_unavailable(&self, driver: &Driver) -> bool {
        driver.device_info::<u32>(self.info.id, sys::DEVICE_AVAILABLE) == Ok(0)
    }

    fn lost(&self, reason: String) -> Error {
        Error::Driver(DriverError::DeviceLost { device: self.device, reason })
    }
}

/// Converts a refused call, whose device is unknown, into an error.
pub(crate) fn driver_error(CallError { call, code }: CallError) -> Error {
    Error::refused(DeviceKind::XPU, call, code, sys::code_name(code))
}
