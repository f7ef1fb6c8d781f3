//! Devices: names, what exists, the choice of the accelerator, what is current in a thread.

use std::sync::Arc;

use accelrt::backend::contract::Backend;
use accelrt::backend::cpu::CpuBackend;
use accelrt::{Config, ConfigError, Device, DeviceError, DeviceKind, Error, Runtime};
use accelrt_testing::fault::{FaultBackend, Method};
use accelrt_testing::null::{NullBackend, NullConfig};

use crate::gate::Gate;
use crate::scheduled::scheduled;
use crate::support::{CPU, devices, enqueue_notice, finishes, streams, workers};

fn stand_in(kind: DeviceKind, is_gpu: bool) -> Arc<dyn Backend> {
    NullBackend::new(NullConfig { kind, is_gpu, ..NullConfig::default() })
}

fn with(backends: impl IntoIterator<Item = Arc<dyn Backend>>) -> Runtime {
    Runtime::with_backends(Config::default(), backends).unwrap()
}

#[test]
fn a_name_is_checked_from_0_to_127_and_existence_at_use() {
    let far: Device = "cpu:127".parse().unwrap();
    assert!("cpu:128".parse::<Device>().is_err());
    let refused = workers(1).stream(far).unwrap_err();
    let Error::Device(DeviceError::NotFound { device, count: 1 }) = refused else {
        panic!("{refused}")
    };
    assert_eq!(device, far);
    assert!(refused.to_string().contains("cpu:127"), "{refused}");
}

#[test]
fn type_codes_are_torchs() {
    let codes = [DeviceKind::CPU, DeviceKind::CUDA, DeviceKind::XPU].map(DeviceKind::type_code);
    assert_eq!(codes, [0, 1, 12]);
}

#[test]
fn the_accelerator_is_the_first_of_cuda_and_xpu_that_has_a_gpu_else_cpu() {
    let (cuda, xpu) = (DeviceKind::CUDA, DeviceKind::XPU);
    let chosen = |runtime: Runtime| runtime.accelerator().unwrap();
    assert_eq!(chosen(with([])), DeviceKind::CPU);
    assert_eq!(chosen(with([stand_in(xpu, true)])), xpu);
    assert_eq!(chosen(with([stand_in(xpu, true), stand_in(cuda, true)])), cuda);
    assert_eq!(chosen(with([stand_in(xpu, false)])), DeviceKind::CPU);
}

#[test]
fn a_device_that_is_no_gpu_is_the_accelerator_when_it_is_asked_for_by_name() {
    let config = Config::builder().accelerator(DeviceKind::XPU).build().unwrap();
    let backends = [stand_in(DeviceKind::XPU, false), stand_in(DeviceKind::CUDA, true)];
    let runtime = Runtime::with_backends(config, backends).unwrap();
    assert_eq!(runtime.accelerator().unwrap(), DeviceKind::XPU);
    assert_eq!(runtime.current_device().unwrap().kind(), DeviceKind::XPU);
}

#[test]
fn a_named_accelerator_that_is_not_there_is_an_error_that_names_it() {
    let config = Config::builder().accelerator(DeviceKind::CUDA).build().unwrap();
    let refused = Runtime::new(config).unwrap().current_device().unwrap_err();
    assert!(matches!(
        refused,
        Error::Device(DeviceError::KindUnavailable { kind: DeviceKind::CUDA, .. })
    ));
}

#[test]
fn a_kind_that_is_missing_has_no_devices_and_its_use_is_an_error() {
    let runtime = workers(1);
    assert_eq!(runtime.device_count(DeviceKind::CUDA).unwrap(), 0);
    let refused = runtime.stream("cuda:0".parse().unwrap()).unwrap_err();
    assert!(matches!(
        refused,
        Error::Device(DeviceError::KindUnavailable { kind: DeviceKind::CUDA, .. })
    ));
}

#[test]
fn asking_what_exists_initialises_nothing() {
    // Goal: no context is made by a question. Method: a backend that counts its calls.
    let probed = FaultBackend::new(stand_in(DeviceKind::CUDA, true));
    let runtime = with([Arc::clone(&probed) as Arc<dyn Backend>]);
    let device = runtime.current_device().unwrap();
    assert_eq!(device.to_string(), "cuda:0");
    runtime.device_count(device.kind()).unwrap();
    runtime.properties(device).unwrap();
    runtime.memory_info(device).unwrap();
    runtime.priority_range(device).unwrap();
    runtime.set_device(device).unwrap();
    runtime.synchronize(device).unwrap();
    assert!(!runtime.is_initialized());
    let questions = [Method::DeviceCount, Method::Properties, Method::MemoryInfo];
    for method in Method::ALL.into_iter().filter(|method| !questions.contains(method)) {
        assert_eq!(probed.calls(method), 0, "{method}");
    }
    runtime.stream(device).unwrap();
    assert!(runtime.is_initialized());
}

#[test]
fn a_device_synchronise_returns_at_once_when_the_device_was_never_used() {
    let runtime = devices(2, 1);
    runtime.synchronize(Device::cpu(1)).unwrap();
    assert!(!runtime.is_initialized());
    assert!(matches!(
        runtime.synchronize(Device::cpu(2)),
        Err(Error::Device(DeviceError::NotFound { .. }))
    ));
}

#[test]
fn as_many_cpu_devices_as_asked_for_each_with_workers_of_its_own() {
    finishes(|| {
        let runtime = devices(3, 1);
        assert_eq!(runtime.device_count(DeviceKind::CPU).unwrap(), 3);
        let _busy = Gate::shut(&runtime.stream(CPU).unwrap());
        for index in [1, 2] {
            let elsewhere = runtime.stream(Device::cpu(index)).unwrap();
            enqueue_notice(&elsewhere).recv().unwrap();
        }
    });
}

/// Asserts that a device has exactly so many workers: all are held by gates, and what is enqueued
/// then is run by one of them after its gate opened.
fn assert_workers(config: Config, expected: usize) {
    let runtime = scheduled(Runtime::new(config).unwrap());
    let held = streams(&runtime, expected);
    let gates: Vec<_> = held.iter().map(Gate::enqueue).collect();
    let known: Vec<_> = gates.iter().map(Gate::wait_until_inside).collect();
    let more = streams(&runtime, 2 * expected);
    let behind: Vec<_> = more.iter().map(Gate::enqueue).collect();
    drop(gates);
    for gate in behind {
        assert!(known.contains(&gate.wait_until_inside()), "{expected} workers");
        gate.open();
    }
}

#[test]
fn a_device_has_as_many_workers_as_set_or_two_or_a_fair_share_of_the_cores() {
    // Goal: max(2, cores / devices) by default. Method: as many gates are entered at once, no more.
    finishes(|| {
        let cores = workers(1).properties(CPU).unwrap().core_count;
        assert_workers(Config::default(), cores.max(2));
        let many = Config::builder().cpu_devices(128).build().unwrap();
        assert_workers(many, (cores / 128).max(2));
        assert_workers(Config::builder().cpu_threads(5).build().unwrap(), 5);
    });
}

#[test]
fn the_capacity_of_a_device_is_what_was_set() {
    let config = Config::builder().cpu_memory_bytes(1 << 20).cpu_devices(2).build().unwrap();
    let runtime = scheduled(Runtime::new(config).unwrap());
    for index in [0, 1] {
        let info = runtime.memory_info(Device::cpu(index)).unwrap();
        assert_eq!((info.total_bytes, info.free_bytes), (1 << 20, 1 << 20));
    }
}

#[test]
fn settings_out_of_range_are_refused_with_what_is_allowed() {
    let builder = Config::builder;
    let mut changed = Config::default();
    changed.cpu_threads = Some(0);
    let wrong = [
        builder().cpu_devices(0).build(),
        builder().cpu_devices(129).build(),
        builder().cpu_threads(0).build(),
        builder().cpu_memory_bytes(0).build(),
        Ok(changed),
    ];
    for config in wrong {
        let refused = config.and_then(Runtime::new).unwrap_err();
        assert!(matches!(refused, Error::Config(ConfigError::InvalidSetting { .. })), "{refused}");
        assert!(refused.to_string().contains("allowed"), "{refused}");
    }
}

#[test]
fn a_cpu_backend_made_alone_refuses_settings_out_of_range() {
    let (mut devices, mut threads) = (Config::default(), Config::default());
    devices.cpu_devices = 0;
    threads.cpu_threads = Some(0);
    for (config, name) in [(devices, "cpu_devices"), (threads, "cpu_threads")] {
        let refused = CpuBackend::new(&config).unwrap_err();
        assert!(matches!(refused, Error::Config(ConfigError::InvalidSetting { .. })), "{refused}");
        assert!(refused.to_string().contains(name), "{refused}");
    }
}

#[test]
fn settings_of_allocators_that_are_malformed_are_refused_before_there_is_a_runtime() {
    let refused = Config::builder().allocator_settings("policy:best").cpu_devices(2).build();
    let refused = refused.unwrap_err();
    let Error::Config(ConfigError::InvalidAllocatorSetting { key, value, .. }) = &refused else {
        panic!("{refused}")
    };
    assert_eq!((key.as_str(), value.as_str()), ("policy", "best"));
    let right = Config::builder().allocator_settings("policy:torch").build().unwrap();
    assert_eq!(Runtime::new(right).unwrap().allocator_settings(), "policy:torch");
}

#[test]
fn the_current_device_and_stream_are_per_thread_and_nothing_is_inherited() {
    let runtime = devices(2, 1);
    let other = runtime.stream(Device::cpu(1)).unwrap();
    runtime.set_stream(&other).unwrap();
    assert_eq!(runtime.current_device().unwrap(), Device::cpu(1));
    std::thread::scope(|scope| {
        let in_new_thread = scope.spawn(|| {
            assert_eq!(runtime.current_device().unwrap(), CPU);
            assert_eq!(runtime.current_stream().unwrap().id(), 0);
            assert_eq!(runtime.current_stream_of(Device::cpu(1)).unwrap().id(), 0);
        });
        in_new_thread.join().unwrap();
    });
    assert_eq!(runtime.current_stream().unwrap(), other);
}

#[test]
fn setting_a_stream_switches_the_device_and_exchanging_one_does_not() {
    let runtime = devices(2, 1);
    let elsewhere = runtime.stream(Device::cpu(1)).unwrap();
    let before = runtime.exchange_stream(&elsewhere).unwrap();
    assert_eq!((before.id(), before.device()), (0, Device::cpu(1)));
    assert_eq!(runtime.current_device().unwrap(), CPU);
    assert_eq!(runtime.current_stream().unwrap().device(), CPU);
    assert_eq!(runtime.current_stream_of(Device::cpu(1)).unwrap(), elsewhere);
    runtime.set_stream(&elsewhere).unwrap();
    assert_eq!(runtime.current_stream().unwrap(), elsewhere);
}

#[test]
fn a_device_that_does_not_exist_does_not_become_current() {
    let runtime = devices(2, 1);
    assert_eq!(runtime.exchange_device(Device::cpu(1)).unwrap(), CPU);
    assert!(matches!(
        runtime.set_device(Device::cpu(2)),
        Err(Error::Device(DeviceError::NotFound { .. }))
    ));
    assert_eq!(runtime.current_device().unwrap(), Device::cpu(1));
}

#[test]
fn two_runtimes_share_nothing_that_is_current() {
    let (one, other) = (devices(2, 1), devices(2, 1));
    one.set_stream(&one.stream(Device::cpu(1)).unwrap()).unwrap();
    assert_eq!(other.current_device().unwrap(), CPU);
    assert!(!other.is_initialized());
    assert_eq!(other.current_stream_of(Device::cpu(1)).unwrap().id(), 0);
}
