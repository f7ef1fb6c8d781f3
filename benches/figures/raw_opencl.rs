//! Raw OpenCL as a peer of the xpu kind: the calls that we make as well, and nothing around them.
//!
//! The queue is of the same context and device as ours, so both copy between the same buffers.
#![expect(unsafe_code, reason = "calls OpenCL by addresses")]

use std::ffi::{CStr, c_char, c_void};
use std::mem;
use std::ptr;

const SUCCESS: i32 = 0;
const QUEUE_CONTEXT: u32 = 0x1090;
const QUEUE_DEVICE: u32 = 0x1091;
const DEVICE_PLATFORM: u32 = 0x1031;
/// As ours are made.
const PROFILING: u64 = 1 << 1;

type Handle = *mut c_void;
type GetInfo = unsafe extern "C" fn(Handle, u32, usize, *mut Handle, *mut usize) -> i32;
type CreateQueue = unsafe extern "C" fn(Handle, Handle, u64, *mut i32) -> Handle;
type CreateUserEvent = unsafe extern "C" fn(Handle, *mut i32) -> Handle;
type SetStatus = unsafe extern "C" fn(Handle, i32) -> i32;
type Enqueue = unsafe extern "C" fn(Handle, u32, *const Handle, *mut Handle) -> i32;
type WaitForEvents = unsafe extern "C" fn(u32, *const Handle) -> i32;
type OfHandle = unsafe extern "C" fn(Handle) -> i32;
type GetExtension = unsafe extern "C" fn(Handle, *const c_char) -> *mut c_void;
type Copy = unsafe extern "C" fn(
    Handle,
    u32,
    *mut c_void,
    *const c_void,
    usize,
    u32,
    *const Handle,
    *mut Handle,
) -> i32;

macro_rules! calls {
    ($($field:ident: $type:ty = $name:literal;)*) => {
        /// What the loader exports.
        struct Calls { $($field: $type,)* }

        impl Calls {
            /// `None` where there is no loader, or one that lacks a function. It stays open.
            fn resolve() -> Option<Self> {
                // SAFETY: a name that ends with a zero; the library's constructors are its own.
                let library = unsafe { libc::dlopen(c"libOpenCL.so.1".as_ptr(), libc::RTLD_NOW) };
                let find = |name: &CStr| {
                    // SAFETY: an open library and a name that ends with a zero.
                    let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
                    (!library.is_null() && !symbol.is_null()).then_some(symbol)
                };
                Some(Self { $(
                    // SAFETY: the type is that of the OpenCL header.
                    $field: unsafe { mem::transmute::<*mut c_void, $type>(find($name)?) },
                )* })
            }
        }
    };
}
calls! {
    queue_info: GetInfo = c"clGetCommandQueueInfo";
    device_info: GetInfo = c"clGetDeviceInfo";
    create_queue: CreateQueue = c"clCreateCommandQueue";
    create_user_event: CreateUserEvent = c"clCreateUserEvent";
    set_user_event_status: SetStatus = c"clSetUserEventStatus";
    enqueue_marker: Enqueue = c"clEnqueueMarkerWithWaitList";
    enqueue_barrier: Enqueue = c"clEnqueueBarrierWithWaitList";
    wait_for_events: WaitForEvents = c"clWaitForEvents";
    release_event: OfHandle = c"clReleaseEvent";
    flush: OfHandle = c"clFlush";
    finish: OfHandle = c"clFinish";
    extension: GetExtension = c"clGetExtensionFunctionAddressForPlatform";
}

/// A queue beside one of ours.
pub(crate) struct Raw {
    queue: Handle,
    ours: Handle,
    context: Handle,
    calls: Calls,
    copy: Copy,
}

/// Keeps both queues from going on.
#[must_use]
pub(crate) struct Gate<'a>(&'a Raw, Handle);

/// A marker that nobody released.
pub(crate) struct Marker(Handle);

fn check(status: i32) {
    assert_eq!(status, SUCCESS, "the peer does what ours does");
}

impl Raw {
    /// `None` where the loader is not the one that ours uses.
    pub(crate) fn beside(native: u64) -> Option<Self> {
        let calls = Calls::resolve()?;
        let address = usize::try_from(native).expect("an address");
        let ours: Handle = ptr::with_exposed_provenance_mut(address);
        let info = |ask: GetInfo, of: Handle, what: u32| {
            let mut value = ptr::null_mut();
            // SAFETY: a live handle, and room for one handle.
            check(unsafe { ask(of, what, size_of::<Handle>(), &raw mut value, ptr::null_mut()) });
            value
        };
        let context = info(calls.queue_info, ours, QUEUE_CONTEXT);
        let device = info(calls.queue_info, ours, QUEUE_DEVICE);
        let platform = info(calls.device_info, device, DEVICE_PLATFORM);
        // SAFETY: a live platform and a name that ends with a zero.
        let copy = unsafe { (calls.extension)(platform, c"clEnqueueMemcpyINTEL".as_ptr()) };
        if copy.is_null() {
            return None;
        }
        // SAFETY: the type is that of the extension's header.
        let copy = unsafe { mem::transmute::<*mut c_void, Copy>(copy) };
        let mut status = SUCCESS;
        // SAFETY: a device of this context.
        let queue = unsafe { (calls.create_queue)(context, device, PROFILING, &raw mut status) };
        check(status);
        Some(Self { queue, ours, context, calls, copy })
    }

    /// What is enqueued on both queues from now on waits.
    pub(crate) fn hold(&self) -> Gate<'_> {
        let mut status = SUCCESS;
        // SAFETY: a live context.
        let event = unsafe { (self.calls.create_user_event)(self.context, &raw mut status) };
        check(status);
        for queue in [self.queue, self.ours] {
            let none = ptr::null_mut();
            // SAFETY: live handles, and a list of one.
            check(unsafe { (self.calls.enqueue_barrier)(queue, 1, &raw const event, none) });
        }
        Gate(self, event)
    }

    pub(crate) fn marker(&self) -> Marker {
        let mut event = ptr::null_mut();
        let (queue, marker) = (self.queue, self.calls.enqueue_marker);
        // SAFETY: a live queue, and an empty list.
        check(unsafe { marker(queue, 0, ptr::null(), &raw mut event) });
        Marker(event)
    }

    pub(crate) fn wait_for(&self, marker: &Marker) {
        // SAFETY: a list of one live event.
        check(unsafe { (self.calls.wait_for_events)(1, &raw const marker.0) });
    }

    #[expect(clippy::needless_pass_by_value, reason = "a marker ends here")]
    pub(crate) fn release(&self, marker: Marker) {
        // SAFETY: a live event, which its owner gives up.
        check(unsafe { (self.calls.release_event)(marker.0) });
    }

    /// Copies between addresses of our buffers, which live longer than this.
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: usize) {
        let [to, from] = [to, from].map(|address| {
            let address = usize::try_from(address).expect("an address");
            ptr::with_exposed_provenance_mut::<c_void>(address)
        });
        let none = ptr::null_mut();
        // SAFETY: a live queue; two buffers of this size, apart from each other.
        check(unsafe { (self.copy)(self.queue, 0, to, from, bytes, 0, ptr::null(), none) });
    }

    pub(crate) fn flush(&self) {
        // SAFETY: a live queue.
        check(unsafe { (self.calls.flush)(self.queue) });
    }

    pub(crate) fn finish(&self) {
        // SAFETY: a live queue.
        check(unsafe { (self.calls.finish)(self.queue) });
    }
}

impl Gate<'_> {
    pub(crate) fn open(self) {
        let Self(Raw { calls, .. }, event) = self;
        // SAFETY: a live user event that was not set.
        check(unsafe { (calls.set_user_event_status)(event, SUCCESS) });
        // SAFETY: its one owner gives it up; the barriers have shares of their own.
        check(unsafe { (calls.release_event)(event) });
    }
}
