//! Typed wrappers of OpenCL's functions: all of their unsafe code is here.
//!
//! The `SAFETY` comments below call a handle "live" if it comes from this driver and is not yet
//! released. [`Session`](crate::session::Session) ensures that for the context,
//! [`XpuStream`](crate::stream::XpuStream) for its queue, and the contract of marks for events.
#![expect(unsafe_code, reason = "calls OpenCL")]
use std::ffi::{CString, c_void};
use std::fmt;
use std::ptr::{self, NonNull};

use accelrt::backend::contract::{DoneCallback, MemoryKind};
use accelrt::internal::contain;
use accelrt::internal::dylib::Library;
use accelrt::size::to_usize;

use crate::sys::{
    self, Compiler, Context, Core, DeviceId, Event, Platform, Queue, SetMemPointer, Usm,
};

/// A call that failed, and its error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallError {
    pub(crate) call: &'static str,
    pub(crate) code: i32,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, code } = self;
        write!(f, "{call} answered {} ({code})", sys::code_name(*code))
    }
}

pub(crate) type CallResult<T = ()> = Result<T, CallError>;

pub(crate) fn check(call: &'static str, code: i32) -> CallResult {
    if code == sys::SUCCESS { Ok(()) } else { Err(CallError { call, code }) }
}

/// A type for which every bit pattern is valid, so that a driver may write its values as bytes.
pub(crate) trait Plain: Copy {
    const ZERO: Self;
}

macro_rules! plain {
    ($($type:ty = $zero:expr),*) => { $(impl Plain for $type { const ZERO: Self = $zero; })* };
}
plain!(
    u32 = 0,
    u64 = 0,
    i32 = 0,
    DeviceId = DeviceId::NULL,
    Context = Context::NULL,
    Queue = Queue::NULL,
    *mut c_void = ptr::null_mut()
);

/// The functions of the ICD loader. The first call loads the vendors' libraries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Driver {
    core: Core,
    /// `None` for a loader that lacks one of the functions.
    pub(crate) compiler: Option<Compiler>,
}

impl Driver {
    /// Resolves the functions of a loaded library. The error is the name of a missing function.
    pub(crate) fn of(library: Library) -> Result<Self, &'static str> {
        let compiler = Compiler::resolve(|name| library.symbol(name)).ok();
        Core::resolve(|name| library.symbol(name)).map(|core| Self { core, compiler })
    }

    pub(crate) fn platforms(&self) -> CallResult<Vec<Platform>> {
        listed("clGetPlatformIDs", Platform::NULL, |room, places, count| {
            // SAFETY: `places` has capacity for `room` handles, or is null with a room of 0.
            unsafe { (self.core.get_platform_ids)(room, places, count) }
        })
    }

    /// The devices of a platform; empty when the platform has none.
    pub(crate) fn devices(&self, platform: Platform) -> CallResult<Vec<DeviceId>> {
        let all = sys::DEVICE_TYPE_ALL;
        let found = listed("clGetDeviceIDs", DeviceId::NULL, |room, places, count| {
            // SAFETY: the handle is live (head of this file); `places` has capacity for `room`, or
            // is null with a room of 0.
            unsafe { (self.core.get_device_ids)(platform, all, room, places, count) }
        });
        match found {
            Err(refusal) if refusal.code == sys::DEVICE_NOT_FOUND => Ok(Vec::new()),
            found => found,
        }
    }

    pub(crate) fn platform_text(&self, platform: Platform, what: u32) -> CallResult<String> {
        text("clGetPlatformInfo", |room, place, size| {
            // SAFETY: the handle is live (head of this file); `place` has `room` bytes, or is null
            // with a room of 0.
            unsafe { (self.core.get_platform_info)(platform, what, room, place, size) }
        })
    }

    pub(crate) fn device_text(&self, device: DeviceId, what: u32) -> CallResult<String> {
        text("clGetDeviceInfo", |room, place, size| {
            // SAFETY: the handle is live (head of this file); `place` has `room` bytes, or is null
            // with a room of 0.
            unsafe { (self.core.get_device_info)(device, what, room, place, size) }
        })
    }

    pub(crate) fn device_info<T: Plain>(&self, device: DeviceId, what: u32) -> CallResult<T> {
        value("clGetDeviceInfo", |room, place| {
            // SAFETY: the handle is live (head of this file); `place` has `room` bytes.
            unsafe { (self.core.get_device_info)(device, what, room, place, ptr::null_mut()) }
        })
    }

    /// Resolves the functions of unified shared memory. The error names a missing function.
    pub(crate) fn usm(&self, platform: Platform) -> Result<Usm, &'static str> {
        Usm::resolve(|name| self.extension_function(platform, name))
    }

    /// The function that sets a pointer argument; `None` where the platform lacks it.
    pub(crate) fn set_mem_pointer(&self, platform: Platform) -> Option<SetMemPointer> {
        SetMemPointer::resolve(|name| self.extension_function(platform, name)).ok()
    }

    /// Resolves a function of an extension. Only the platform exports it, not the loader.
    pub(crate) fn extension_function(
        &self,
        platform: Platform,
        name: &str,
    ) -> Option<NonNull<c_void>> {
        let name = CString::new(name).ok()?;
        // SAFETY: the handle is live (head of this file); the name ends with a zero.
        let found = unsafe { (self.core.get_extension_function)(platform, name.as_ptr()) };
        NonNull::new(found)
    }

    pub(crate) fn create_context(
        &self,
        platform: Platform,
        devices: &[DeviceId],
    ) -> CallResult<Context> {
        let properties = [sys::CONTEXT_PLATFORM, platform.0.addr().cast_signed(), 0];
        let count = u32::try_from(devices.len()).expect("128 devices at most");
        let mut code = sys::SUCCESS;
        // SAFETY: the list has `count` live handles; the properties end with a zero; there is no
        // callback, so its data may be null.
        let context = unsafe {
            (self.core.create_context)(
                properties.as_ptr(),
                count,
                devices.as_ptr(),
                None,
                ptr::null_mut(),
                &raw mut code,
            )
        };
        check("clCreateContext", code).map(|()| context)
    }

    pub(crate) fn release_context(&self, context: Context) -> CallResult {
        // SAFETY: the handle is live (head of this file). Its owner no longer uses it.
        check("clReleaseContext", unsafe { (self.core.release_context)(context) })
    }

    /// Creates an in-order queue. The properties must end with a zero.
    pub(crate) fn create_queue(
        &self,
        context: Context,
        device: DeviceId,
        properties: &[u64],
    ) -> CallResult<Queue> {
        assert_eq!(properties.last(), Some(&0), "properties end with a zero");
        let mut code = sys::SUCCESS;
        // SAFETY: the handles are live (head of this file); the properties end with a zero.
        let queue = unsafe {
            (self.core.create_queue)(context, device, properties.as_ptr(), &raw mut code)
        };
        check("clCreateCommandQueueWithProperties", code).map(|()| queue)
    }

    /// Retains a queue that other code created. The caller must release it once.
    pub(crate) fn retain_queue(&self, queue: Queue) -> CallResult {
        // SAFETY: the caller of `stream_wrap` upholds that the handle is a live queue.
        check("clRetainCommandQueue", unsafe { (self.core.retain_queue)(queue) })
    }

    pub(crate) fn release_queue(&self, queue: Queue) -> CallResult {
        // SAFETY: the handle is live (head of this file). Its owner no longer uses it.
        check("clReleaseCommandQueue", unsafe { (self.core.release_queue)(queue) })
    }

    pub(crate) fn queue_info<T: Plain>(&self, queue: Queue, what: u32) -> CallResult<T> {
        value("clGetCommandQueueInfo", |room, place| {
            // SAFETY: the handle is live (head of this file); `place` has `room` bytes.
            unsafe { (self.core.get_queue_info)(queue, what, room, place, ptr::null_mut()) }
        })
    }

    pub(crate) fn flush(&self, queue: Queue) -> CallResult {
        // SAFETY: the handle is live (head of this file).
        check("clFlush", unsafe { (self.core.flush)(queue) })
    }

    pub(crate) fn finish(&self, queue: Queue) -> CallResult {
        // SAFETY: the handle is live (head of this file).
        check("clFinish", unsafe { (self.core.finish)(queue) })
    }

    pub(crate) fn enqueue_marker(&self, queue: Queue) -> CallResult<Event> {
        let mut event = Event::NULL;
        // SAFETY: the handle is live (head of this file); the wait list is empty.
        let code = unsafe { (self.core.enqueue_marker)(queue, 0, ptr::null(), &raw mut event) };
        check("clEnqueueMarkerWithWaitList", code).map(|()| event)
    }

    /// Makes later commands of the queue wait for `event`. Returns the event of the wait itself.
    pub(crate) fn enqueue_wait(&self, queue: Queue, event: Event) -> CallResult<Event> {
        let mut wait = Event::NULL;
        // SAFETY: the handles are live (head of this file); the list has one event. The queue
        // retains the event.
        let code =
            unsafe { (self.core.enqueue_barrier)(queue, 1, &raw const event, &raw mut wait) };
        check("clEnqueueBarrierWithWaitList", code).map(|()| wait)
    }

    pub(crate) fn event_info<T: Plain>(&self, event: Event, what: u32) -> CallResult<T> {
        value("clGetEventInfo", |room, place| {
            // SAFETY: the handle is live (head of this file); `place` has `room` bytes.
            unsafe { (self.core.get_event_info)(event, what, room, place, ptr::null_mut()) }
        })
    }

    pub(crate) fn wait_for_event(&self, event: Event) -> CallResult {
        // SAFETY: the handle is live (head of this file); the list has one event.
        check("clWaitForEvents", unsafe { (self.core.wait_for_events)(1, &raw const event) })
    }

    /// The time, in nanoseconds of the device's clock, at which the event's command ended.
    pub(crate) fn event_end_ns(&self, event: Event) -> CallResult<u64> {
        let what = sys::PROFILING_COMMAND_END;
        value("clGetEventProfilingInfo", |room, place| {
            let ask = self.core.get_event_profiling_info;
            // SAFETY: the handle is live (head of this file); `place` has `room` bytes.
            unsafe { ask(event, what, room, place, ptr::null_mut()) }
        })
    }

    /// Registers a callback for the event's completion or failure. The driver calls it on one of
    /// its threads or on this thread. A failed registration drops the callback.
    pub(crate) fn set_event_callback(&self, event: Event, callback: DoneCallback) -> CallResult {
        let data = Box::into_raw(Box::new(callback));
        // SAFETY: the handle is live (head of this file); `data` has the type that `event_callback`
        // expects, and the driver passes `data` to it once.
        let code = unsafe {
            (self.core.set_event_callback)(event, sys::COMPLETE, event_callback, data.cast())
        };
        check("clSetEventCallback", code).inspect_err(|_| {
            // SAFETY: `data` came from a box just above, and the failed call did not store it.
            drop(unsafe { Box::from_raw(data) });
        })
    }

    pub(crate) fn release_event(&self, event: Event) -> CallResult {
        // SAFETY: the handle is live (head of this file). Its owner no longer uses it.
        check("clReleaseEvent", unsafe { (self.core.release_event)(event) })
    }
}

/// The driver calls this on its own thread. The callback only posts work; no panic may escape.
///
/// # Safety
/// `data` is the raw pointer of a boxed [`DoneCallback`], owned by this call.
unsafe extern "C" fn event_callback(_event: Event, _status: i32, data: *mut c_void) {
    // SAFETY: `set_event_callback` created `data` from a box of this type; this is its only use.
    let callback = unsafe { Box::from_raw(data.cast::<DoneCallback>()) };
    contain(callback);
}

impl Usm {
    /// Allocates memory of a device, shared memory, or memory of the host. With an `align_bytes` of
    /// 0, the driver chooses the alignment.
    pub(crate) fn allocate(
        &self,
        context: Context,
        device: DeviceId,
        kind: MemoryKind,
        bytes: usize,
        align_bytes: u32,
    ) -> CallResult<u64> {
        let (mut code, none) = (sys::SUCCESS, ptr::null());
        let code_place = &raw mut code;
        let (call, memory) = match kind {
            MemoryKind::Device => ("clDeviceMemAllocINTEL", {
                // SAFETY: the handles are live (head of this file), and there are no properties.
                unsafe {
                    (self.device_alloc)(context, device, none, bytes, align_bytes, code_place)
                }
            }),
            MemoryKind::Shared => ("clSharedMemAllocINTEL", {
                // SAFETY: the handles are live (head of this file), and there are no properties.
                unsafe {
                    (self.shared_alloc)(context, device, none, bytes, align_bytes, code_place)
                }
            }),
            MemoryKind::Host => ("clHostMemAllocINTEL", {
                // SAFETY: the handle is live (head of this file), and there are no properties.
                unsafe { (self.host_alloc)(context, none, bytes, align_bytes, code_place) }
            }),
        };
        check(call, code)?;
        if memory.is_null() {
            // The driver reported success without memory. The caller gets a lack of memory instead.
            return Err(CallError { call, code: sys::MEM_OBJECT_ALLOCATION_FAILURE });
        }
        Ok(memory.expose_provenance() as u64)
    }

    /// Frees memory that no queued command uses any more.
    pub(crate) fn free_memory(&self, context: Context, address: u64) -> CallResult {
        // SAFETY: the handle is live (head of this file); `memory.rs` has recorded the address as
        // allocated, and the contract excludes commands that use the memory.
        check("clMemFreeINTEL", unsafe { (self.free)(context, pointer(address)) })
    }

    /// Queries a property of the allocation at an address. `address` may be any number.
    pub(crate) fn alloc_info<T: Plain>(
        &self,
        context: Context,
        address: u64,
        what: u32,
    ) -> CallResult<T> {
        value("clGetMemAllocInfoINTEL", |room, place| {
            let address = pointer(address).cast_const();
            // SAFETY: the handle is live (head of this file); the address is not dereferenced;
            // `place` has `room` bytes.
            unsafe { (self.alloc_info)(context, address, what, room, place, ptr::null_mut()) }
        })
    }

    /// Enqueues a copy, without waiting for it.
    pub(crate) fn enqueue_copy(
        &self,
        queue: Queue,
        to: u64,
        from: u64,
        bytes: usize,
    ) -> CallResult {
        let (to, from) = (pointer(to), pointer(from).cast_const());
        // SAFETY: the handle is live (head of this file); the callers of `copy` uphold that both
        // ranges are valid until the queue has executed the copy.
        let code = unsafe {
            (self.enqueue_memcpy)(queue, 0, to, from, bytes, 0, ptr::null(), ptr::null_mut())
        };
        check("clEnqueueMemcpyINTEL", code)
    }

    pub(crate) fn enqueue_fill(&self, queue: Queue, to: u64, byte: u8, bytes: usize) -> CallResult {
        let (to, pattern) = (pointer(to), (&raw const byte).cast::<c_void>());
        // SAFETY: the handle is live (head of this file); the driver copies the pattern of one
        // byte; the callers of `fill` uphold that the range is valid until the queue has executed
        // the fill.
        let code = unsafe {
            (self.enqueue_fill)(queue, to, pattern, 1, bytes, 0, ptr::null(), ptr::null_mut())
        };
        check("clEnqueueMemFillINTEL", code)
    }
}

pub(crate) fn pointer(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(to_usize(address))
}

/// Queries a list in two calls: first its length, then its elements.
fn listed<T: Copy>(
    call: &'static str,
    empty: T,
    ask: impl Fn(u32, *mut T, *mut u32) -> i32,
) -> CallResult<Vec<T>> {
    let mut count = 0;
    check(call, ask(0, ptr::null_mut(), &raw mut count))?;
    let mut list = vec![empty; count as usize];
    if count > 0 {
        check(call, ask(count, list.as_mut_ptr(), &raw mut count))?;
        list.truncate(count as usize);
    }
    Ok(list)
}

/// Queries a text in two calls: first its length, then the text up to its zero.
pub(crate) fn text(
    call: &'static str,
    ask: impl Fn(usize, *mut c_void, *mut usize) -> i32,
) -> CallResult<String> {
    let mut size = 0;
    check(call, ask(0, ptr::null_mut(), &raw mut size))?;
    let mut bytes = vec![0u8; size];
    if size > 0 {
        check(call, ask(size, bytes.as_mut_ptr().cast(), ptr::null_mut()))?;
    }
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(size);
    Ok(String::from_utf8_lossy(&bytes[..end]).trim().to_owned())
}

/// Queries a value that has exactly the size of `T`.
pub(crate) fn value<T: Plain>(
    call: &'static str,
    ask: impl Fn(usize, *mut c_void) -> i32,
) -> CallResult<T> {
    let mut value = T::ZERO;
    check(call, ask(size_of::<T>(), (&raw mut value).cast()))?;
    Ok(value)
}
