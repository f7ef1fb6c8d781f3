//! The place of a thread's next buffer in the process's runtime: it is never that of before.
//!
//! Each place is used twice: the first buffer finds it, the second is made at what was remembered.

use std::sync::Arc;
use std::thread;

use accelrt::backend::contract::Backend;
use accelrt::backend::registry::register_backend;
use accelrt::{
    Device, DeviceError, DeviceGuard, DeviceKind, Error, MemPool, PoolId, PoolOptions, Runtime,
    RuntimeError, StreamGuard,
};
use accelrt_testing::fault::{FaultBackend, Method};
use accelrt_testing::null::{CompletionMode, NullBackend, NullConfig};

use crate::child::{End, in_child};
use crate::process;
use crate::support::{CPU, finishes, stream, workers};

const BYTES: usize = 512;

/// The home of a buffer, which is the same for the one after it.
#[track_caller]
fn home(runtime: &Runtime, device: Device) -> (Device, u64) {
    let homes = [(); 2].map(|()| {
        let home = runtime.empty(BYTES, device).unwrap().stream();
        (home.device(), home.id())
    });
    assert_eq!(homes[0], homes[1]);
    homes[0]
}

fn run(name: &str, variables: &[(&str, &str)]) {
    let output = process::run("places::program", name, variables);
    assert_eq!(process::stderr_of_success(&output), "");
}

#[test]
#[ignore = "run by others, in a process of its own"]
fn program() {
    match process::program().as_deref() {
        Some("devices") => devices(),
        Some("ends") => ends(),
        Some("driver") => driver(),
        Some("changes") => changes(),
        other => panic!("{other:?} is no program"),
    }
}

#[test]
fn a_buffer_is_made_on_the_stream_that_is_current() {
    finishes(|| {
        let runtime = Runtime::global().unwrap();
        let (one, other) = (stream(&runtime), runtime.stream(CPU).unwrap());
        assert_eq!(home(&runtime, CPU).1, 0);
        runtime.set_stream(&one).unwrap();
        assert_eq!(home(&runtime, CPU).1, one.id());
        let guard = StreamGuard::new(&runtime, &other).unwrap();
        assert_eq!(home(&runtime, CPU).1, other.id());
        let inner = thread::scope(|scope| scope.spawn(|| home(&runtime, CPU).1).join());
        assert_eq!(inner.unwrap(), 0, "another thread has its own");
        drop(guard);
        assert_eq!(home(&runtime, CPU).1, one.id());
        let previous = runtime.exchange_stream(&other).unwrap();
        assert_eq!((previous.id(), home(&runtime, CPU).1), (one.id(), other.id()));
    });
}

#[test]
fn a_buffer_is_of_the_pool_that_is_current() {
    finishes(|| {
        let runtime = Runtime::global().unwrap();
        let pool = MemPool::new(&runtime, CPU, PoolOptions::default()).unwrap();
        let pool_of = || {
            let buffers = [(); 2].map(|()| runtime.empty(BYTES, CPU).unwrap());
            let segments = runtime.memory_segments(DeviceKind::CPU).unwrap();
            let pools = buffers.map(|buffer| {
                let address = buffer.address().unwrap();
                let has = |begin: u64, bytes: usize| address.wrapping_sub(begin) < bytes as u64;
                let holder = segments.iter().find(|part| has(part.address, part.total_bytes));
                holder.expect("a segment has it").pool
            });
            assert_eq!(pools[0], pools[1]);
            pools[0]
        };
        assert_eq!(pool_of(), PoolId::DEFAULT);
        let inside = pool.enter();
        assert_eq!(pool_of(), pool.id());
        drop(inside);
        assert_eq!(pool_of(), PoolId::DEFAULT);
    });
}

#[test]
fn a_buffer_is_of_the_runtime_that_was_asked() {
    finishes(|| {
        let (global, other) = (Runtime::global().unwrap(), workers(1));
        let current = || other.memory_statistics(CPU).unwrap().requested_bytes.all.current;
        let _one = global.empty(BYTES, CPU).unwrap();
        let theirs = [(); 2].map(|()| other.empty(BYTES, CPU).unwrap());
        assert_eq!(current(), 2 * BYTES as u64);
        let _ours = [(); 2].map(|()| global.empty(BYTES, CPU).unwrap());
        assert_eq!(current(), 2 * BYTES as u64);
        drop(theirs);
        assert_eq!(current(), 0);
    });
}

#[test]
fn a_buffer_is_on_the_device_that_was_asked() {
    run("devices", &[("ACCELRT_CPU_DEVICES", "2")]);
}

fn devices() {
    let (runtime, second) = (Runtime::global().unwrap(), Device::cpu(1));
    assert_eq!(home(&runtime, CPU).0, CPU);
    let guard = DeviceGuard::new(&runtime, second).unwrap();
    assert_eq!([home(&runtime, second).0, home(&runtime, CPU).0], [second, CPU]);
    drop(guard);
    let absent = runtime.empty(BYTES, Device::cpu(2)).unwrap_err();
    assert!(matches!(absent, Error::Device(DeviceError::NotFound { .. })), "{absent}");
    assert_eq!([home(&runtime, second).0, home(&runtime, CPU).0], [second, CPU]);
}

#[test]
fn no_buffer_is_made_in_a_forked_child_or_after_the_shutdown() {
    run("ends", &[]);
}

fn ends() {
    let runtime = Runtime::global().unwrap();
    home(&runtime, CPU);
    in_child(End { runs_handlers: false }, || {
        let refused = runtime.empty(BYTES, CPU).unwrap_err();
        assert!(matches!(refused, Error::Runtime(RuntimeError::BadFork)), "{refused}");
    });
    home(&runtime, CPU);
    runtime.shutdown();
    let refused = runtime.empty(BYTES, CPU).unwrap_err();
    assert!(matches!(refused, Error::Runtime(RuntimeError::ShutDown)), "{refused}");
}

#[test]
fn what_a_driver_gives_back_while_a_buffer_is_made_may_be_a_buffer() {
    // Goal: the state of the thread is not in use while a driver's stream drops what it held.
    // Method: the owner of a copied vector has a buffer; the request for another one sees the copy
    // done, drops the owner, and with it the buffer.
    run("driver", &[]);
}

/// Bytes for a copy, and what goes with them.
struct Owner<T>(Vec<u8>, T);

impl<T> AsRef<[u8]> for Owner<T> {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn driver() {
    let kind = DeviceKind::register("outside_places", 103).unwrap();
    let completion = CompletionMode::WhenAsked { polls: 2 };
    let config = NullConfig { kind, completion, ..NullConfig::default() };
    register_backend(kind, move |_config| Ok(NullBackend::new(config))).unwrap();
    let (runtime, device) = (Runtime::global().unwrap(), Device::new(kind, 0).unwrap());
    let (target, held) = (runtime.empty(8, device).unwrap(), runtime.empty(8, device).unwrap());
    let (stream, witness) = (runtime.current_stream_of(device).unwrap(), Arc::new(()));
    let owner = Owner(vec![1; 8], (held, Arc::clone(&witness)));
    target.copy_from_host(owner, &stream).unwrap();
    assert_eq!(Arc::strong_count(&witness), 2, "the device has not been asked");
    let mut requests = 0;
    while Arc::strong_count(&witness) == 2 {
        runtime.empty(8, device).unwrap();
        requests += 1;
        assert!(requests < 100, "the device says that it is done");
    }
}

#[test]
fn a_stream_that_becomes_current_while_a_buffer_is_made_is_the_home_of_the_next() {
    // Goal: what runs on this thread inside a request, as a task does that it helps with while it
    // waits for memory, has its effect. Method: the device's own call changes the stream.
    run("changes", &[]);
}

fn changes() {
    let kind = DeviceKind::register("outside_places", 103).unwrap();
    let driver = FaultBackend::new(NullBackend::new(NullConfig { kind, ..NullConfig::default() }));
    let backend = Arc::clone(&driver);
    register_backend(kind, move |_config| Ok(Arc::clone(&backend) as Arc<dyn Backend>)).unwrap();
    let (runtime, device) = (Runtime::global().unwrap(), Device::new(kind, 0).unwrap());
    let later = runtime.stream(device).unwrap();
    let (inner, stream) = (runtime.clone(), later.clone());
    driver.plan_callback(Method::VmCreate, 1, move || inner.set_stream(&stream).unwrap());
    let first = runtime.empty(BYTES, device).unwrap().stream();
    assert_eq!((first.id(), driver.calls(Method::VmCreate)), (0, 1));
    assert_eq!(home(&runtime, device).1, later.id());
}
