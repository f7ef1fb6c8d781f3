//! Calls through C: what each takes beyond the same call in Rust (F1).
//!
//! A program in C reaches the functions by addresses, of a library or of the capsule's table, and
//! so does this: nothing is in line. Both sides use the process's runtime and the same stream.
#![expect(unsafe_code, reason = "calls the functions of include/accelrt.h")]

use std::ffi::{c_char, c_void};
use std::hint::black_box;
use std::io;
use std::ptr;

use accelrt::{Device, Event, Runtime, Stream};
use accelrt_capi as _; // has the functions

use crate::measure::{Pair, in_pairs, warm_ns_per_round};
use crate::peers::{Gate, Lane};
use crate::table::Table;

const PAIRS: usize = 9;
const BURST: usize = 4_096;
const ROUNDS: usize = 50_000;
const BYTES: usize = 512;
const PEER: &str = "in Rust";

type Handle = *mut c_void;
type Task = unsafe extern "C" fn(*mut c_void, *mut c_char, usize) -> i32;

/// As the header's `accelrt_device`.
#[repr(C)]
#[derive(Clone, Copy)]
struct CpuDevice {
    kind: i32,
    index: i32,
}

const CPU: CpuDevice = CpuDevice { kind: 0, index: 0 };

type Launch = unsafe extern "C" fn(
    Handle,
    Task,
    *mut c_void,
    Option<unsafe extern "C" fn(*mut c_void)>,
    *const c_void,
    usize,
) -> i32;

unsafe extern "C" {
    fn accelrt_stream_find(device: CpuDevice, id: u64, stream: *mut Handle) -> i32;
    fn accelrt_stream_launch(
        stream: Handle,
        run: Task,
        data: *mut c_void,
        drop: Option<unsafe extern "C" fn(*mut c_void)>,
        uses: *const c_void,
        use_count: usize,
    ) -> i32;
    fn accelrt_stream_query(stream: Handle, is_done: *mut i32) -> i32;
    fn accelrt_event_create(is_timed: i32, event: *mut Handle) -> i32;
    fn accelrt_event_record(event: Handle, stream: Handle) -> i32;
    fn accelrt_event_query(event: Handle, is_done: *mut i32) -> i32;
    fn accelrt_buffer_create(device: CpuDevice, bytes: usize, buffer: *mut Handle) -> i32;
    fn accelrt_buffer_destroy(buffer: Handle) -> i32;
    fn accelrt_memory_allocate(stream: Handle, bytes: usize, address: *mut u64) -> i32;
    fn accelrt_memory_free(address: u64) -> i32;
}

unsafe extern "C" fn nothing(_: *mut c_void, _: *mut c_char, _: usize) -> i32 {
    0
}

/// The data of a task, which Rust's closure has as well.
struct Data(*mut c_void);

// SAFETY: a null pointer, which nothing reads.
unsafe impl Send for Data {}

/// A stream with its handle in C.
struct Both {
    runtime: Runtime,
    stream: Stream,
    handle: Handle,
}

pub(crate) fn measure(table: &mut Table) -> io::Result<()> {
    let runtime = Runtime::global().expect("the environment is right");
    let stream = runtime.stream(Device::cpu(0)).expect("a stream");
    let mut handle = ptr::null_mut();
    // SAFETY: the place is one of a handle.
    assert_eq!(unsafe { accelrt_stream_find(CPU, stream.id(), &raw mut handle) }, 0);
    let both = Both { runtime, stream, handle };
    table.pair("F1.enqueue", PEER, both.enqueue())?;
    table.pair("F1.record", PEER, both.record())?;
    table.pair("F1.buffer", PEER, both.buffer())?;
    table.pair("F1.memory", PEER, both.memory())?;
    table.pair("F1.event_query", PEER, both.event_query())?;
    table.pair("F1.stream_query", PEER, both.stream_query())
}

impl Both {
    /// Per task, onto a stream whose consumer stands still.
    fn burst_ns(&self, count: usize, put: impl FnMut()) -> f64 {
        let gate = Gate::shut(&self.stream);
        let ns = warm_ns_per_round(count, put);
        gate.open();
        self.stream.finish();
        ns
    }

    fn enqueue(&self) -> Pair {
        let (launch, run) = black_box((accelrt_stream_launch as Launch, nothing as Task));
        let ours = |count| {
            self.burst_ns(count, || {
                // SAFETY: the stream is there; the task uses nothing.
                let status =
                    unsafe { launch(self.handle, run, ptr::null_mut(), None, ptr::null(), 0) };
                assert_eq!(status, 0);
            })
        };
        let rusts = |count| {
            self.burst_ns(count, || {
                let data = Data(ptr::null_mut());
                let task = move || {
                    let data = data;
                    // SAFETY: the function uses nothing.
                    let status = unsafe { run(data.0, ptr::null_mut(), 0) };
                    if status == 0 { Ok(()) } else { Err("it failed") }
                };
                self.stream.enqueue(task).expect("the runtime runs");
            })
        };
        in_pairs(PAIRS, BURST, ours, rusts)
    }

    fn record(&self) -> Pair {
        let (event, rusts_event) = (new_event(), Event::new());
        let record = black_box(accelrt_event_record as unsafe extern "C" fn(_, _) -> _);
        let ours = |count| {
            // SAFETY: event and stream are there.
            self.burst_ns(count, || assert_eq!(unsafe { record(event, self.handle) }, 0))
        };
        let rusts = |count| {
            self.burst_ns(count, || self.stream.record(&rusts_event).expect("an event of it"))
        };
        in_pairs(PAIRS, BURST, ours, rusts)
    }

    fn buffer(&self) -> Pair {
        let create = black_box(accelrt_buffer_create as unsafe extern "C" fn(_, usize, _) -> _);
        let destroy = black_box(accelrt_buffer_destroy as unsafe extern "C" fn(_) -> _);
        let ours = |count| {
            warm_ns_per_round(count, || {
                let mut buffer = ptr::null_mut();
                // SAFETY: the place is one of a handle.
                assert_eq!(unsafe { create(CPU, BYTES, &raw mut buffer) }, 0);
                // SAFETY: the buffer is there.
                assert_eq!(unsafe { destroy(black_box(buffer)) }, 0);
            })
        };
        let rusts = |count| {
            warm_ns_per_round(count, || {
                drop(black_box(self.runtime.empty(BYTES, Device::cpu(0)).expect("memory")));
            })
        };
        in_pairs(PAIRS, ROUNDS, ours, rusts)
    }

    fn memory(&self) -> Pair {
        let allocate =
            black_box(accelrt_memory_allocate as unsafe extern "C" fn(_, usize, *mut u64) -> _);
        let free = black_box(accelrt_memory_free as unsafe extern "C" fn(u64) -> _);
        let ours = |count| {
            warm_ns_per_round(count, || {
                let mut address = 0;
                // SAFETY: the place is one of a number.
                assert_eq!(unsafe { allocate(self.handle, BYTES, &raw mut address) }, 0);
                // SAFETY: the address is that of the allocation.
                assert_eq!(unsafe { free(black_box(address)) }, 0);
            })
        };
        let rusts = |count| {
            warm_ns_per_round(count, || {
                drop(black_box(self.runtime.empty(BYTES, Device::cpu(0)).expect("memory")));
            })
        };
        in_pairs(PAIRS, ROUNDS, ours, rusts)
    }

    fn event_query(&self) -> Pair {
        let (event, rusts_event) = (new_event(), Event::new());
        // SAFETY: event and stream are there.
        assert_eq!(unsafe { accelrt_event_record(event, self.handle) }, 0);
        self.stream.record(&rusts_event).expect("an event of it");
        self.stream.finish();
        let query = black_box(accelrt_event_query as unsafe extern "C" fn(_, _) -> _);
        in_pairs(
            PAIRS,
            ROUNDS,
            |count| warm_ns_per_round(count, || assert!(is_done(query, event))),
            |count| warm_ns_per_round(count, || assert!(black_box(&rusts_event).is_done())),
        )
    }

    fn stream_query(&self) -> Pair {
        let query = black_box(accelrt_stream_query as unsafe extern "C" fn(_, _) -> _);
        in_pairs(
            PAIRS,
            ROUNDS,
            |count| warm_ns_per_round(count, || assert!(is_done(query, self.handle))),
            |count| warm_ns_per_round(count, || assert!(black_box(&self.stream).is_done())),
        )
    }
}

fn new_event() -> Handle {
    let mut event = ptr::null_mut();
    // SAFETY: the place is one of a handle.
    assert_eq!(unsafe { accelrt_event_create(0, &raw mut event) }, 0);
    event
}

#[inline]
fn is_done(query: unsafe extern "C" fn(Handle, *mut i32) -> i32, handle: Handle) -> bool {
    let mut is_done = 0;
    // SAFETY: the handle is there, and the place is one of a number.
    assert_eq!(unsafe { query(handle, &raw mut is_done) }, 0);
    is_done == 1
}
