//! Devices by kind and index: what exists, what is current, memory, and the wait for all streams.
#![expect(unsafe_code, reason = "exports functions by name, and reads texts from C")]

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::time::Duration;

use accelrt::Device;

use crate::arguments::{Growing, place, text, write_sized, write_text};
use crate::runtime::{find_with_kinds, kind_of, runtime};
use crate::status::guard;
use crate::status::{Outcome, Refused, Status};

/// A device: one of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CDevice {
    /// The number of the kind: `ACCELRT_CPU`, `ACCELRT_CUDA`, `ACCELRT_XPU`, that of a registered
    /// kind, or `ACCELRT_ACCELERATOR`.
    pub kind: i32,
    /// The index among the kind's devices from 0, or `ACCELRT_CURRENT` for the thread's current
    /// device of the kind.
    pub index: i32,
}

/// The kind `cpu`: the machine's own cores, always there.
pub const CPU: i32 = 0;
/// The kind `cuda`: NVIDIA GPUs.
pub const CUDA: i32 = 1;
/// The kind `xpu`: Intel GPUs and other OpenCL devices with unified shared memory.
pub const XPU: i32 = 12;
/// As the kind of a device: that of `accelrt_kind_get_accelerator`.
pub const ACCELERATOR: i32 = -1;
/// As the index of a device: the calling thread's current one.
pub const CURRENT: i32 = -1;
/// As a number of milliseconds: a wait without a limit.
pub const NO_LIMIT: i64 = -1;

// Only the header uses them.
const _: [i32; 5] = [CPU, CUDA, XPU, ACCELERATOR, CURRENT];
const _: i64 = NO_LIMIT;

impl CDevice {
    pub(super) fn of(device: Device) -> Self {
        let index = i32::try_from(device.index()).unwrap_or(i32::MAX); // at most 127
        Self { kind: device.kind().type_code().into(), index }
    }

    /// The device that is meant. Whether it exists is seen at its use.
    #[inline]
    pub(super) fn device(self) -> Outcome<Device> {
        if self.kind == 0 && (0..128).contains(&self.index) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "checked"
            )]
            return Ok(Device::cpu(self.index as u8));
        }
        self.named()
    }

    fn named(self) -> Outcome<Device> {
        let kind = kind_of(self.kind)?;
        if self.index == -1 {
            return Ok(runtime()?.current_device_of(kind)?);
        }
        let Ok(index) = usize::try_from(self.index) else {
            return Err(Refused::argument(format!("There is no device index {}", self.index)));
        };
        Ok(Device::new(kind, index)?)
    }
}

/// The limit of a wait; `None` for one without.
pub(super) fn limit(timeout_ms: i64) -> Option<Duration> {
    u64::try_from(timeout_ms).ok().map(Duration::from_millis)
}

/// Writes the device of a text such as "cpu:1" or "cpu", which means index 0. Whether it exists is
/// seen at its use. Does not block.
///
/// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT`.
///
/// # Safety
/// `name` is a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_device_parse(
    name: *const c_char,
    device: Option<&mut MaybeUninit<CDevice>>,
) -> Status {
    guard(|| {
        let to = place(device, "device")?;
        // SAFETY: the caller passes a text that ends with a zero, as the header says.
        let name = unsafe { text(name, "name") }?;
        let parsed: Option<Device> = find_with_kinds(|| name.parse().ok())?;
        to.write(CDevice::of(parsed.map_or_else(|| name.parse(), Ok)?));
        Ok(())
    })
}

/// Writes the number of devices of a kind: 0 for one that this build or machine lacks. Initialises
/// none. For xpu the first call loads the vendors' libraries.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_device_get_count(
    kind: i32,
    count: Option<&mut MaybeUninit<i32>>,
) -> Status {
    guard(|| {
        let to = place(count, "count")?;
        let count = runtime()?.device_count(kind_of(kind)?)?;
        to.write(i32::try_from(count).unwrap_or(i32::MAX));
        Ok(())
    })
}

/// Writes the calling thread's current device of a kind; index 0 when the thread has set none. Does
/// not block.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_device_get_current(
    kind: i32,
    device: Option<&mut MaybeUninit<CDevice>>,
) -> Status {
    guard(|| {
        let to = place(device, "device")?;
        to.write(CDevice::of(runtime()?.current_device_of(kind_of(kind)?)?));
        Ok(())
    })
}

/// Makes a device current for its kind on the calling thread, and writes the previous one unless
/// `previous` is NULL. Does not block.
///
/// Fails with `ACCELRT_STATUS_NOT_FOUND`.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_device_exchange(
    device: CDevice,
    previous: Option<&mut MaybeUninit<CDevice>>,
) -> Status {
    guard(|| {
        let before = runtime()?.exchange_device(device.device()?)?;
        if let Some(to) = previous {
            to.write(CDevice::of(before));
        }
        Ok(())
    })
}

/// Writes the vendor's name of a device to `text`, as a string that ends with a zero byte. A name
/// that does not fit into `capacity` bytes with its zero byte is cut off. Unless `length` is NULL,
/// it receives the length of the whole name in bytes, without the zero byte. To get only the
/// length, pass NULL as `text` and 0 as `capacity`.
///
/// Fails with `ACCELRT_STATUS_NOT_FOUND`.
///
/// # Safety
/// `text` has room for `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_device_get_name(
    device: CDevice,
    text: *mut c_char,
    capacity: usize,
    length: Option<&mut MaybeUninit<usize>>,
) -> Status {
    guard(|| {
        let properties = runtime()?.properties(device.device()?)?;
        // SAFETY: the caller passes room for `capacity` bytes.
        unsafe { write_text(&properties.name, text, capacity, length) }
    })
}

/// What a device is.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CDeviceProperties {
    /// The size of this struct in bytes, set by the caller.
    pub size: usize,
    /// The capacity.
    pub total_memory_bytes: u64,
    /// Cores that the process may use; multiprocessors of a GPU.
    pub core_count: u64,
    /// The size of a page.
    pub page_bytes: u64,
    /// The size of a huge page; 0 where there is none.
    pub huge_page_bytes: u64,
    /// 1 for a GPU.
    pub is_gpu: i32,
    /// 1 when the device and the host can share memory.
    pub has_shared_memory: i32,
    /// The lowest urgency of a stream, the largest number.
    pub least_priority: i32,
    /// The highest urgency of a stream, the smallest number.
    pub greatest_priority: i32,
}

// SAFETY: numbers without gaps, the first of them the size.
unsafe impl Growing for CDeviceProperties {
    const FIRST_VERSION_BYTES: usize = 56;
}

/// Writes what a device is. May load a driver, initialises no device.
///
/// Fails with `ACCELRT_STATUS_NOT_FOUND`.
///
/// # Safety
/// `properties` begins with the size of the memory that it names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_device_get_properties(
    device: CDevice,
    properties: *mut CDeviceProperties,
) -> Status {
    guard(|| {
        let (runtime, device) = (runtime()?, device.device()?);
        let known = runtime.properties(device)?;
        let priorities = runtime.priority_range(device)?;
        let value = CDeviceProperties {
            size: size_of::<CDeviceProperties>(),
            total_memory_bytes: known.total_memory_bytes as u64,
            core_count: known.core_count as u64,
            page_bytes: known.page_bytes as u64,
            huge_page_bytes: known.huge_page_bytes.unwrap_or(0) as u64,
            is_gpu: known.is_gpu.into(),
            has_shared_memory: known.has_shared_memory.into(),
            least_priority: priorities.least,
            greatest_priority: priorities.greatest,
        };
        // SAFETY: the caller passes a struct that begins with its size.
        unsafe { write_sized(&value, properties, "properties") }
    })
}

/// Writes the free and the total bytes of a device's memory; either place may be NULL. May ask the
/// driver.
///
/// Fails with `ACCELRT_STATUS_NOT_FOUND`.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_device_get_memory(
    device: CDevice,
    free_bytes: Option<&mut MaybeUninit<u64>>,
    total_bytes: Option<&mut MaybeUninit<u64>>,
) -> Status {
    guard(|| {
        let info = runtime()?.memory_info(device.device()?)?;
        if let Some(to) = free_bytes {
            to.write(info.free_bytes as u64);
        }
        if let Some(to) = total_bytes {
            to.write(info.total_bytes as u64);
        }
        Ok(())
    })
}

/// Blocks until all work that was enqueued on the device's streams before this call is done, for at
/// most `timeout_ms` milliseconds unless that is `ACCELRT_NO_LIMIT`. Without a limit the thread may
/// execute tasks of the streams. Ends the errors of the streams and fails with them.
///
/// Fails with `ACCELRT_STATUS_STREAM_FAILED`, `ACCELRT_STATUS_DEVICE_LOST`, with
/// `ACCELRT_STATUS_TIMED_OUT`, which ends no error, and with `ACCELRT_STATUS_WOULD_DEADLOCK` inside
/// of a task of the device.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_device_synchronize(device: CDevice, timeout_ms: i64) -> Status {
    guard(|| {
        let (runtime, device) = (runtime()?, device.device()?);
        match limit(timeout_ms) {
            None => runtime.synchronize(device)?,
            Some(timeout) => runtime.synchronize_timeout(device, timeout)?,
        }
        Ok(())
    })
}
