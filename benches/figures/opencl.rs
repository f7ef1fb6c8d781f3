//! An OpenCL device of the host as a peer: an in-order queue without anything between it and us.
#![expect(unsafe_code, reason = "calls a C library that may not be there")]

use std::ffi::{CStr, c_char, c_void};
use std::mem;
use std::ptr;

use crate::measure::ns_per_round;

const MARKERS: usize = 2_000;
const CPU: u64 = 1 << 1;
const SUCCESS: i32 = 0;

type Handle = *mut c_void;
type GetPlatforms = unsafe extern "C" fn(u32, *mut Handle, *mut u32) -> i32;
type GetDevices = unsafe extern "C" fn(Handle, u64, u32, *mut Handle, *mut u32) -> i32;
type CreateContext =
    unsafe extern "C" fn(*const isize, u32, *const Handle, Handle, Handle, *mut i32) -> Handle;
type CreateQueue = unsafe extern "C" fn(Handle, Handle, u64, *mut i32) -> Handle;
type EnqueueMarker = unsafe extern "C" fn(Handle, u32, *const Handle, *mut Handle) -> i32;
type OfHandle = unsafe extern "C" fn(Handle) -> i32;
type WaitForEvents = unsafe extern "C" fn(u32, *const Handle) -> i32;
type FindExtension = unsafe extern "C" fn(Handle, *const c_char) -> Handle;
type Allocate = unsafe extern "C" fn(Handle, Handle, *const u64, usize, u32, *mut i32) -> Handle;
type EnqueueCopy = unsafe extern "C" fn(
    Handle,
    u32,
    Handle,
    Handle,
    usize,
    u32,
    *const Handle,
    *mut Handle,
) -> i32;

/// A queue on the first device of type CPU.
pub(crate) struct Opencl {
    queue: Handle,
    enqueue_marker: EnqueueMarker,
    flush: OfHandle,
    finish: OfHandle,
    wait_for_events: WaitForEvents,
    release_event: OfHandle,
    shared_memory: Option<SharedMemory>,
}

/// Two places in the device's memory and the copy between them, where the device has unified shared
/// memory.
struct SharedMemory {
    enqueue_copy: EnqueueCopy,
    from: Handle,
    to: Handle,
}

impl Opencl {
    /// `None` where there is no such library or no such device. Neither is closed again.
    pub(crate) fn open() -> Option<Self> {
        // SAFETY: a name that ends with a zero; the library's constructors are its own.
        let library = unsafe { libc::dlopen(c"libOpenCL.so.1".as_ptr(), libc::RTLD_NOW) };
        let find = |name: &CStr| {
            // SAFETY: an open library and a name that ends with a zero.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!library.is_null() && !symbol.is_null()).then_some(symbol)
        };
        // SAFETY, of the ten: the types are those of the OpenCL 1.2 header.
        // SAFETY: as said.
        let platforms: GetPlatforms = unsafe { mem::transmute(find(c"clGetPlatformIDs")?) };
        // SAFETY: as said.
        let devices: GetDevices = unsafe { mem::transmute(find(c"clGetDeviceIDs")?) };
        // SAFETY: as said.
        let create_context: CreateContext = unsafe { mem::transmute(find(c"clCreateContext")?) };
        // SAFETY: as said.
        let create_queue: CreateQueue = unsafe { mem::transmute(find(c"clCreateCommandQueue")?) };
        let marker = find(c"clEnqueueMarkerWithWaitList")?;
        // SAFETY: as said.
        let enqueue_marker: EnqueueMarker = unsafe { mem::transmute(marker) };
        // SAFETY: as said.
        let finish: OfHandle = unsafe { mem::transmute(find(c"clFinish")?) };
        // SAFETY: as said.
        let release_event: OfHandle = unsafe { mem::transmute(find(c"clReleaseEvent")?) };
        // SAFETY: as said.
        let flush: OfHandle = unsafe { mem::transmute(find(c"clFlush")?) };
        let wait = find(c"clWaitForEvents")?;
        // SAFETY: as said.
        let wait_for_events: WaitForEvents = unsafe { mem::transmute(wait) };
        let extensions = find(c"clGetExtensionFunctionAddressForPlatform")?;
        // SAFETY: as said.
        let find_extension: FindExtension = unsafe { mem::transmute(extensions) };

        let mut found = [ptr::null_mut(); 8];
        let mut count = 0;
        // SAFETY: room for as many as is said.
        if unsafe { platforms(8, found.as_mut_ptr(), &raw mut count) } != SUCCESS {
            return None;
        }
        let (platform, device) = found.iter().take(count as usize).find_map(|platform| {
            let mut device = ptr::null_mut();
            // SAFETY: a platform that was just found, and room for one device.
            let status = unsafe { devices(*platform, CPU, 1, &raw mut device, ptr::null_mut()) };
            (status == SUCCESS).then_some((*platform, device))
        })?;
        let mut status = SUCCESS;
        let none = ptr::null_mut();
        // SAFETY: one device, no properties, no callback.
        let context = unsafe {
            create_context(ptr::null(), 1, &raw const device, none, none, &raw mut status)
        };
        if status != SUCCESS {
            return None;
        }
        // SAFETY: a context of this device; no properties, so in order.
        let queue = unsafe { create_queue(context, device, 0, &raw mut status) };
        let find = |name: &CStr| {
            // SAFETY: a platform that was found above and a name that ends with a zero.
            let function = unsafe { find_extension(platform, name.as_ptr()) };
            (!function.is_null()).then_some(function)
        };
        let shared_memory = SharedMemory::of((context, device), find);
        (status == SUCCESS).then_some(Self {
            queue,
            enqueue_marker,
            flush,
            finish,
            wait_for_events,
            release_event,
            shared_memory,
        })
    }

    /// Per marker, of having the device told of it.
    pub(crate) fn submit_marker_ns(&self, markers: usize) -> f64 {
        let ns = ns_per_round(markers, || {
            self.enqueue_marker();
            self.flush();
        });
        self.wait();
        ns
    }

    /// Per marker whose event is waited for.
    pub(crate) fn marker_event_ns(&self, markers: usize) -> f64 {
        ns_per_round(markers, || {
            let mut event = ptr::null_mut();
            // SAFETY: the queue lives for ever; an empty list of waits.
            let status =
                unsafe { (self.enqueue_marker)(self.queue, 0, ptr::null(), &raw mut event) };
            assert_eq!(status, SUCCESS, "the peer takes a marker");
            self.flush();
            // SAFETY: one event, which was just made.
            let status = unsafe { (self.wait_for_events)(1, &raw const event) };
            assert_eq!(status, SUCCESS, "the peer reaches a marker");
            // SAFETY: the event is used by nobody else.
            unsafe { (self.release_event)(event) };
        })
    }

    /// Per copy inside the device, of having the device told of it; `None` without such memory.
    pub(crate) fn submit_copy_ns(&self, bytes: usize, copies: usize) -> Option<f64> {
        let memory = self.shared_memory.as_ref()?;
        let ns = ns_per_round(copies, || {
            memory.enqueue_copy(self.queue, bytes);
            self.flush();
        });
        self.wait();
        Some(ns)
    }

    /// Per copy that is waited for; `None` without such memory.
    pub(crate) fn copy_ns(&self, bytes: usize, copies: usize) -> Option<f64> {
        let memory = self.shared_memory.as_ref()?;
        Some(ns_per_round(copies, || {
            memory.enqueue_copy(self.queue, bytes);
            self.wait();
        }))
    }

    fn flush(&self) {
        // SAFETY: the queue lives for ever.
        let status = unsafe { (self.flush)(self.queue) };
        assert_eq!(status, SUCCESS, "the peer tells its device");
    }

    /// Per marker, of enqueueing alone.
    pub(crate) fn enqueue_marker_ns(&self) -> f64 {
        let ns = ns_per_round(MARKERS, || self.enqueue_marker());
        self.wait();
        ns
    }

    /// Per marker that is waited for.
    pub(crate) fn round_trip_ns(&self) -> f64 {
        ns_per_round(MARKERS, || {
            self.enqueue_marker();
            self.wait();
        })
    }

    fn enqueue_marker(&self) {
        let mut event = ptr::null_mut();
        // SAFETY: the queue lives for ever; an empty list of waits.
        let status = unsafe { (self.enqueue_marker)(self.queue, 0, ptr::null(), &raw mut event) };
        assert_eq!(status, SUCCESS, "the peer takes a marker");
        // SAFETY: the event was just made and is used by nobody else.
        unsafe { (self.release_event)(event) };
    }

    fn wait(&self) {
        // SAFETY: the queue lives for ever.
        let status = unsafe { (self.finish)(self.queue) };
        assert_eq!(status, SUCCESS, "the peer finishes");
    }
}

impl SharedMemory {
    /// The most that is copied.
    const BYTES: usize = 64 << 20;

    fn of(
        (context, device): (Handle, Handle),
        find: impl Fn(&CStr) -> Option<Handle>,
    ) -> Option<Self> {
        // SAFETY: the type is that of revision 1.0 of the extension.
        let allocate: Allocate = unsafe { mem::transmute(find(c"clDeviceMemAllocINTEL")?) };
        // SAFETY: as above.
        let enqueue_copy: EnqueueCopy = unsafe { mem::transmute(find(c"clEnqueueMemcpyINTEL")?) };
        let mut status = SUCCESS;
        let [from, to] = [(); 2].map(|()| {
            // SAFETY: a context of this device; no properties; any alignment.
            unsafe { allocate(context, device, ptr::null(), Self::BYTES, 0, &raw mut status) }
        });
        let is_there = status == SUCCESS && !from.is_null() && !to.is_null();
        is_there.then_some(Self { enqueue_copy, from, to })
    }

    fn enqueue_copy(&self, queue: Handle, bytes: usize) {
        assert!(bytes <= Self::BYTES, "{bytes} bytes of {}", Self::BYTES);
        let (none, no_event) = (ptr::null(), ptr::null_mut());
        // SAFETY: two places of the queue's device with room for that, which live for ever.
        let status =
            unsafe { (self.enqueue_copy)(queue, 0, self.to, self.from, bytes, 0, none, no_event) };
        assert_eq!(status, SUCCESS, "the peer takes a copy");
    }
}
