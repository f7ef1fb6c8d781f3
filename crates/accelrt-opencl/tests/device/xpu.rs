//! The engine on a real driver kind: the OpenCL runtime of this machine.
//!
//! Goal: what the null kind stands for holds on a device that is really late: bytes, order, frees,
//! forks, the end of a process. Method: what needs the runtime is ignored, and run by
//! `make test-xpu`, which fails where there is none. Its device may be of any type: nothing here
//! reads its memory directly.

use std::sync::Arc;
use std::time::Duration;

use accelrt::backend::contract::Backend;
use accelrt::{
    Buffer, Config, Device, DeviceKind, Error, Event, MemoryError, Result, Runtime, RuntimeError,
    Stream,
};
use accelrt_opencl::XpuBackend;
use accelrt_testing::fault::{Fault, FaultBackend, FaultError, Method, Repeat};

use crate::child::{End, in_child};
use crate::process;
use crate::watchdog::finishes_within;

const XPU: DeviceKind = DeviceKind::XPU;
const BYTES: usize = 1 << 20;

fn device() -> Device {
    Device::new(XPU, 0).unwrap()
}

/// Far beyond what any test takes: only a hang lasts as long.
const HANG: Duration = Duration::from_secs(20);

fn finishes(test: impl FnOnce() + Send + 'static) {
    finishes_within(HANG, test);
}

const AS_A_PROCESS: End = End { runs_handlers: true };

fn config() -> Config {
    accelrt_opencl::register().unwrap();
    let opencl_library = std::env::var("ACCELRT_OPENCL_LIBRARY").ok();
    Config::builder().accelerator(XPU).opencl_library(opencl_library).build().unwrap()
}

fn runtime() -> Runtime {
    Runtime::new(config()).unwrap()
}

#[test]
#[ignore = "needs an OpenCL runtime: make test-xpu"]
fn xpu_is_the_accelerator_when_named_and_else_only_where_it_is_a_gpu() {
    let runtime = runtime();
    assert_eq!(runtime.current_device().unwrap(), device());
    let count = runtime.device_count(XPU).unwrap();
    let mut all = (0..count).map(|index| Device::new(XPU, index).unwrap());
    let has_gpu = all.any(|device| runtime.properties(device).unwrap().is_gpu);
    let unnamed = Runtime::new(config().into_builder().accelerator(None).build().unwrap()).unwrap();
    assert_eq!(unnamed.accelerator().unwrap() == XPU, has_gpu);
}

#[test]
#[ignore = "needs an OpenCL runtime: make test-xpu"]
fn xpu_buffers_carry_bytes_through_streams_that_wait_for_each_other() {
    // Goal: order by events alone. Method: each of ten streams fills its part behind the one
    // before, over all that comes behind; only the last is waited for.
    finishes(|| {
        let runtime = runtime();
        let buffer = runtime.zeros(BYTES, device()).unwrap();
        let mut last = runtime.current_stream().unwrap();
        for turn in 0..10u8 {
            let stream = runtime.stream(device()).unwrap();
            stream.wait_stream(&last).unwrap();
            let rest = buffer.slice(usize::from(turn) * 1_000..).unwrap();
            rest.fill(turn + 1, &stream).unwrap();
            last = stream;
        }
        let mut bytes = vec![0; BYTES];
        buffer.copy_to_slice(&mut bytes, &last).unwrap();
        let expected = |place: usize| u8::try_from((place / 1_000).min(9) + 1).unwrap();
        assert!(bytes.iter().enumerate().all(|(place, byte)| *byte == expected(place)));
    });
}

#[test]
#[ignore = "needs an OpenCL runtime: make test-xpu"]
fn xpu_memory_is_freed_in_stream_order_and_comes_back() {
    // Goal: a drop waits for nothing, and nothing is lost. Method: more is filled and dropped than
    // the capacity holds, without a synchronise in between; then the cache is emptied.
    finishes(|| {
        let capacity = 24 * BYTES;
        let runtime =
            Runtime::new(config().into_builder().xpu_memory_bytes(capacity).build().unwrap())
                .unwrap();
        let stream = runtime.current_stream().unwrap();
        for turn in 0..100 {
            let buffer = runtime.empty(2 * BYTES, device()).unwrap();
            buffer.fill(turn, &stream).unwrap();
        }
        runtime.allocator(device()).unwrap().empty_cache();
        let info = runtime.memory_info(device()).unwrap();
        assert_eq!((info.free_bytes, info.total_bytes), (capacity, capacity));
    });
}

#[test]
#[ignore = "needs an OpenCL runtime: make test-xpu"]
fn xpu_refuses_too_much_with_the_numbers_of_the_device() {
    // Goal: a size that the driver refuses is out of memory too. Method: a capacity far beyond the
    // machine's, so that only the driver can refuse.
    let capacity = 1 << 50;
    let runtime =
        Runtime::new(config().into_builder().xpu_memory_bytes(capacity).build().unwrap()).unwrap();
    let asked = 1 << 49;
    let refused = runtime.empty(asked, device()).unwrap_err();
    let Error::Memory(MemoryError::OutOfMemory {
        device: named,
        requested_bytes,
        free_bytes,
        total_bytes,
        ..
    }) = refused
    else {
        panic!("{refused}");
    };
    assert_eq!((named, requested_bytes, total_bytes), (device(), asked, capacity));
    assert!(free_bytes < asked, "{free_bytes} bytes are not free at once");
    // An integrated device shares the machine's memory, which has less.
    assert!(runtime.memory_info(device()).unwrap().free_bytes <= capacity);
    let refused = runtime.empty(asked, device()).unwrap_err();
    let Error::Memory(MemoryError::OutOfMemory { free_bytes: again, .. }) = refused else {
        panic!("{refused}")
    };
    assert_eq!(again, free_bytes, "nothing is taken by a refusal");
}

#[test]
#[ignore = "needs an OpenCL runtime: make test-xpu"]
fn streams_of_xpu_and_the_host_run_one_behind_the_other_on_memory_of_the_host() {
    finishes(|| {
        let runtime = runtime();
        let [own, cpu] = [device(), Device::cpu(0)].map(|device| runtime.stream(device).unwrap());
        let there = runtime.zeros(BYTES, device()).unwrap();
        let on_host = runtime.zeros(BYTES, Device::cpu(0)).unwrap();
        for turn in 0..20 {
            on_host.fill(turn, &cpu).unwrap();
            there.copy_from(&on_host, &own).unwrap();
        }
        let mut bytes = vec![0; BYTES];
        there.copy_to_slice(&mut bytes, &own).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 19));
    });
}

#[test]
#[ignore = "needs an OpenCL runtime: make test-xpu"]
fn xpu_events_measure_the_device() {
    let runtime = runtime();
    let stream = runtime.current_stream().unwrap();
    let buffer = runtime.empty(64 * BYTES, device()).unwrap();
    let [start, end] = [Event::timed(), Event::timed()];
    stream.record(&start).unwrap();
    buffer.fill(1, &stream).unwrap();
    stream.record(&end).unwrap();
    end.synchronize().unwrap();
    // 64 MiB take longer than 64 us on any device below a terabyte a second.
    assert!(start.elapsed_ms(&end).unwrap() > 0.064);
    assert!(end.elapsed_ms(&start).unwrap() < 0.0);
}

/// More than any cache keeps, so that the device is asked.
const MUCH: usize = 64 * BYTES;

/// What a program does with a device, a call of the driver's each; the first that is refused ends
/// it. A step that submits work on memory comes when those that only look were not refused: who
/// is told that the device is lost gives memory back at once, and this one would go on.
fn use_device(runtime: &Runtime, stream: &Stream, buffer: &Buffer) -> Result<()> {
    let event = stream.record_event()?;
    event.synchronize()?;
    stream.synchronize()?;
    runtime.stream(device())?;
    runtime.empty(MUCH, device())?;
    runtime.empty_shared(MUCH, device())?;
    buffer.fill(1, stream)?.wait()?;
    buffer.copy_from_slice(&vec![2; buffer.nbytes()], stream)
}

#[track_caller]
fn assert_lost(outcome: Result<()>, when: &str) {
    let error = outcome.expect_err(when).to_string();
    assert!(error.contains("Device xpu:0 is lost"), "{when}: {error}");
}

#[test]
#[ignore = "needs an OpenCL runtime: make test-xpu"]
fn xpu_that_is_lost_at_any_call_is_lost_for_good_and_holds_nobody_up() {
    // Goal: what the fake device shows of a loss holds over a driver's own threads, callbacks and
    // memory. Method: a layer says lost at the next call of one method, and of all from then on.
    let methods = [
        Method::Mark,
        Method::WaitMark,
        Method::StreamSynchronize,
        Method::StreamCreate,
        Method::Allocate,
        Method::AllocateShared,
        Method::Fill,
        Method::Copy,
    ];
    for method in methods {
        finishes(move || lose_at(method));
    }
}

fn lose_at(method: Method) {
    let backend = FaultBackend::new(XpuBackend::new(&config()));
    let wrapped: [Arc<dyn Backend>; 1] = [Arc::<FaultBackend>::clone(&backend)];
    let runtime = Runtime::with_backends(config(), wrapped).unwrap();
    let free = || backend.inner().memory_info(0).unwrap().free_bytes;
    let before = free();
    let stream = runtime.current_stream().unwrap();
    let buffer = runtime.zeros(BYTES, device()).unwrap();
    let there = runtime.empty_shared(BYTES, device()).unwrap();
    use_device(&runtime, &stream, &buffer).unwrap();
    runtime.allocator(device()).unwrap().empty_cache();
    runtime.shared_allocator(device()).unwrap().empty_cache();
    runtime.synchronize(device()).unwrap();

    backend.plan(Fault::always(method, FaultError::DeviceLost));
    assert_lost(use_device(&runtime, &stream, &buffer), method.name());
    let any = Fault::nth_of_any(1, FaultError::DeviceLost);
    backend.plan(Fault { repeat: Repeat::FromThenOn, ..any });
    for round in 0..3 {
        let when = format!("{method}, round {round}");
        assert_lost(runtime.synchronize(device()), &when);
        assert_lost(stream.synchronize(), &when);
        assert_lost(runtime.empty(MUCH, device()).map(drop), &when);
        assert_lost(runtime.empty_shared(MUCH, device()).map(drop), &when);
        assert_lost(runtime.stream(device()).map(drop), &when);
        assert_lost(buffer.copy_to_slice(&mut vec![0; BYTES], &stream), &when);
    }
    drop((buffer, there, stream)); // nothing waits for a device that is gone
    let report = runtime.shutdown();
    assert_eq!(report.num_busy_threads, 0, "{method}: {report}");
    drop(runtime);
    assert_eq!(free(), before, "{method}: memory that was not given back");
}

#[test]
fn no_driver_is_loaded_for_a_choice_where_no_gpu_is_in_sight() {
    // Goal: who does not ask for xpu pays nothing for it. Method: a program that chooses its
    // accelerator looks which libraries it has; on a machine with a GPU's node it may have one.
    let output = process::run("xpu::programs", "choose", &[]);
    process::stderr_of_success(&output);
}

fn choose() {
    let runtime = Runtime::global().unwrap();
    runtime.current_device().unwrap();
    let nodes = std::fs::read_dir("/dev/dri").into_iter().flatten().flatten();
    let mut names = nodes.map(|node| node.file_name().to_string_lossy().into_owned());
    let has_gpu = names.any(|name| name.starts_with("renderD"));
    if !has_gpu && !std::path::Path::new("/dev/dxg").exists() {
        let libraries = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!libraries.contains("libOpenCL"), "the loader is there:\n{libraries}");
        assert_eq!(runtime.accelerator().unwrap(), DeviceKind::CPU);
    }
}

#[test]
#[ignore = "started as a program"]
fn programs() {
    accelrt_opencl::register().unwrap();
    match process::program().as_deref() {
        Some("choose") => choose(),
        Some("exit") => exit(),
        Some("probe and fork") => probe_and_fork(),
        Some("use and fork") => use_and_fork(),
        _ => {}
    }
}

fn assert_succeeds(program: &str) {
    let library = std::env::var("ACCELRT_OPENCL_LIBRARY").ok();
    let mut variables = vec![("ACCELRT_ACCELERATOR", "xpu")];
    variables.extend(library.as_deref().map(|library| ("ACCELRT_OPENCL_LIBRARY", library)));
    let output = process::run("xpu::programs", program, &variables);
    let stderr = process::stderr_of_success(&output);
    assert!(!stderr.contains("accelrt:"), "{stderr}");
}

#[test]
#[ignore = "needs an OpenCL runtime: make test-xpu"]
fn xpu_work_that_is_queued_at_the_exit_is_finished_silently() {
    assert_succeeds("exit");
}

fn exit() {
    let runtime = Runtime::global().unwrap();
    let stream = runtime.current_stream().unwrap();
    let buffer = runtime.empty(64 * BYTES, device()).unwrap();
    for byte in 0..20 {
        buffer.fill(byte, &stream).unwrap();
    }
    std::mem::forget(stream.record_event().unwrap());
}

#[test]
#[ignore = "needs an OpenCL runtime: make test-xpu"]
fn xpu_that_was_only_asked_for_is_used_or_refused_in_a_forked_child_and_never_hangs() {
    assert_succeeds("probe and fork");
}

fn probe_and_fork() {
    let runtime = Runtime::global().unwrap();
    let count = runtime.device_count(XPU).unwrap();
    let properties = runtime.properties(device()).unwrap();
    in_child(AS_A_PROCESS, || {
        assert_eq!(runtime.device_count(XPU).unwrap(), count);
        assert_eq!(runtime.properties(device()).unwrap(), properties);
        match runtime.zeros(100, device()) {
            Ok(buffer) => buffer.wait_for_host().unwrap(),
            Err(refused) => {
                assert!(matches!(refused, Error::Runtime(RuntimeError::BadFork)), "{refused}");
            }
        }
    });
}

#[test]
#[ignore = "needs an OpenCL runtime: make test-xpu"]
fn xpu_that_was_used_is_refused_in_a_forked_child_and_drops_do_nothing() {
    assert_succeeds("use and fork");
}

fn use_and_fork() {
    let runtime = Runtime::global().unwrap();
    let stream = runtime.stream(device()).unwrap();
    let buffer = runtime.zeros(BYTES, device()).unwrap();
    buffer.fill(3, &stream).unwrap();
    let event = stream.record_event().unwrap();
    // The driver's own handler at the exit of the child would wait for what is on its way now, and
    // which no thread of the child's finishes.
    runtime.synchronize(device()).unwrap();
    in_child(AS_A_PROCESS, || {
        assert!(matches!(runtime.zeros(100, device()), Err(Error::Runtime(RuntimeError::BadFork))));
        assert!(matches!(runtime.stream(device()), Err(Error::Runtime(RuntimeError::BadFork))));
        assert_eq!(runtime.memory_info(device()).unwrap().total_bytes, {
            runtime.properties(device()).unwrap().total_memory_bytes
        });
        drop((buffer, event, stream));
    });
}
