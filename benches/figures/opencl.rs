//! An OpenCL device of the host as a peer: an in-order queue without anything between it and us.
#![expect(unsafe_code, reason = "calls a C library that may not be there")]

use std::ffi::{CStr, c_void};
use std::mem;
use std::ptr;

use crate::measure::{ns_per_round, warm_ns_per_round};
use crate::quiet::Watch;

const MARKERS: usize = 2_000;
const TRIPS: usize = 100;
const TRIP_BLOCKS: usize = 20;
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

/// A queue on the first device of type CPU.
pub(crate) struct Opencl {
    queue: Handle,
    enqueue_marker: EnqueueMarker,
    finish: OfHandle,
    release_event: OfHandle,
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
        // SAFETY, of the seven: the types are those of the OpenCL 1.2 header.
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

        let mut found = [ptr::null_mut(); 8];
        let mut count = 0;
        // SAFETY: room for as many as is said.
        if unsafe { platforms(8, found.as_mut_ptr(), &raw mut count) } != SUCCESS {
            return None;
        }
        let device = found.iter().take(count as usize).find_map(|platform| {
            let mut device = ptr::null_mut();
            // SAFETY: a platform that was just found, and room for one device.
            let status = unsafe { devices(*platform, CPU, 1, &raw mut device, ptr::null_mut()) };
            (status == SUCCESS).then_some(device)
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
        (status == SUCCESS).then_some(Self { queue, enqueue_marker, finish, release_event })
    }

    /// Per marker, of enqueueing alone.
    pub(crate) fn enqueue_marker_ns(&self) -> f64 {
        let ns = ns_per_round(MARKERS, || self.enqueue_marker());
        self.wait();
        ns
    }

    /// Per marker that is waited for.
    pub(crate) fn round_trip_ns(&self, watch: &mut Watch<'_>) -> f64 {
        let round_trip = || {
            self.enqueue_marker();
            self.wait();
        };
        watch.blocks(TRIP_BLOCKS, TRIPS, |count| warm_ns_per_round(count, round_trip))
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
