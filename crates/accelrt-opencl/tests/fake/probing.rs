//! Probing: what exists, what does not and why, and what asking leaves untouched.

use accelrt::backend::contract::Backend;
use accelrt::{Config, DeviceError, DeviceKind, Error, Runtime};
use accelrt_opencl::XpuBackend;

use crate::fake::Fake;
use crate::library;
use crate::support::{assert_nothing_left, config, config_with, over, runtime, xpu};

/// Asserts that there is no xpu device, that everybody is told why, and that the rest goes on.
#[track_caller]
fn assert_unavailable(config: &Config, reasons: &[&str]) {
    let runtime = Runtime::new(config.clone()).unwrap();
    let backend = XpuBackend::new(config);
    assert_eq!(runtime.device_count(DeviceKind::XPU).unwrap(), 0, "a query does not fail");
    let told = [
        backend.device_count().unwrap_err(),
        backend.stream_create(0, 0).unwrap_err(),
        backend.allocate_host(64, 1).unwrap_err(),
        runtime.accelerator().unwrap_err(),
        runtime.stream(xpu(0)).unwrap_err(),
        runtime.empty(1, xpu(0)).unwrap_err(),
        runtime.synchronize(xpu(0)).unwrap_err(),
    ];
    for error in told {
        assert!(
            matches!(
                error,
                Error::Device(DeviceError::KindUnavailable { kind: DeviceKind::XPU, .. })
            ),
            "{error}"
        );
        let text = error.to_string();
        assert!(reasons.iter().all(|reason| text.contains(reason)), "{reasons:?} in: {text}");
    }
    let unnamed = config.clone().into_builder().accelerator(None).build().unwrap();
    assert_eq!(Runtime::new(unnamed).unwrap().accelerator().unwrap(), DeviceKind::CPU);
}

#[track_caller]
fn assert_fake_unavailable(settings: &str, reasons: &[&str]) {
    let fake = Fake::new(settings);
    assert_unavailable(&config(&fake), reasons);
    assert_nothing_left(&fake);
}

#[test]
fn a_loader_that_is_not_there_is_named() {
    let library = "/nothing/libOpenCL.so.1".to_owned();
    assert_unavailable(&config_with(library), &["/nothing/libOpenCL.so.1"]);
}

#[test]
fn a_file_that_is_no_library_is_named() {
    let library = env!("CARGO_MANIFEST_DIR").to_owned() + "/Cargo.toml";
    assert_unavailable(&config_with(library), &["Cargo.toml"]);
}

#[test]
fn a_loader_that_lacks_a_function_is_told_by_its_name() {
    let name = "clEnqueueMarkerWithWaitList";
    let define = format!("-D{name}=absent_{name}");
    let fake = Fake::of(&library::build("without_marker", &[&define]), "");
    assert_unavailable(&config(&fake), &[name]);
}

#[test]
fn a_platform_that_lacks_a_function_of_shared_memory_is_told_by_its_name() {
    let name = "clEnqueueMemFillINTEL";
    assert_fake_unavailable("missing=clEnqueueMemFillINTEL", &["Fake device 0", name]);
}

#[test]
fn no_platform_is_a_reason() {
    assert_fake_unavailable("platforms=0", &["CL_PLATFORM_NOT_FOUND_KHR"]);
}

#[test]
fn no_device_is_a_reason() {
    assert_fake_unavailable("devices=0", &["no device"]);
}

#[test]
fn devices_without_shared_memory_are_a_reason_that_names_them() {
    let reasons = ["Fake device 0", "Fake device 1", "cl_intel_unified_shared_memory"];
    assert_fake_unavailable("usm=0,devices=2", &reasons);
}

#[test]
fn a_vendor_that_refuses_questions_is_a_reason() {
    for (settings, reasons) in [
        ("fail=clGetPlatformIDs:1+:-6", ["clGetPlatformIDs", "CL_OUT_OF_HOST_MEMORY"]),
        ("fail=clGetDeviceIDs:1+:-6", ["clGetDeviceIDs", "CL_OUT_OF_HOST_MEMORY"]),
        ("fail=clGetDeviceInfo:1+:-6", ["clGetDeviceInfo", "CL_OUT_OF_HOST_MEMORY"]),
        ("fail=clGetPlatformInfo:1+:-6,usm=0", ["Fake device 0", "no unified shared memory"]),
    ] {
        assert_fake_unavailable(settings, &reasons);
    }
}

#[test]
fn one_question_that_is_refused_leaves_out_one_device() {
    // Goal: no refusal of a query reaches the user as more than a device that is left out. Method:
    // every single question of a probe is refused in turn.
    let fake = Fake::new("devices=2");
    XpuBackend::new(&config(&fake)).device_count().unwrap();
    let questions = fake.live("calls:clGetDeviceInfo");
    assert!(questions > 4, "{questions}");
    for nth in 1..=questions {
        let fake = Fake::new(&format!("devices=2,fail=clGetDeviceInfo:{nth}:-6"));
        let backend = XpuBackend::new(&config(&fake));
        let count = backend.device_count().unwrap();
        assert!((1..=2).contains(&count), "{count} devices after question {nth}");
        assert!(count == 2 || backend.left_out_devices().len() == 1, "question {nth}");
        assert_nothing_left(&fake);
    }
}

#[test]
fn a_device_without_shared_memory_beside_one_with_it_is_left_out_with_the_reason() {
    let fake = Fake::new("devices=2,usm=0:1");
    let backend = XpuBackend::new(&config(&fake));
    assert_eq!(backend.device_count().unwrap(), 1);
    assert_eq!(backend.properties(0).unwrap().name, "Fake device 1");
    let [left_out] = &backend.left_out_devices()[..] else { panic!("one device is left out") };
    assert!(left_out.name.contains("Fake device 0"), "{left_out:?}");
    assert!(left_out.reason.contains("cl_intel_unified_shared_memory"), "{left_out:?}");
}

#[test]
fn devices_of_a_second_platform_are_left_out_because_memory_is_not_shared() {
    let fake = Fake::new("platforms=2,devices=1,type=cpu:gpu");
    let backend = XpuBackend::new(&config(&fake));
    assert_eq!(backend.device_count().unwrap(), 1);
    assert!(backend.properties(0).unwrap().is_gpu, "the platform with a GPU is taken");
    assert_eq!(backend.left_out_devices().len(), 1);
}

#[test]
fn gpus_come_before_other_devices_of_a_platform() {
    let fake = Fake::new("devices=3,type=cpu:accelerator:gpu");
    let backend = XpuBackend::new(&config(&fake));
    let is_gpu: Vec<bool> = (0..3).map(|at| backend.properties(at).unwrap().is_gpu).collect();
    assert_eq!(is_gpu, [true, false, false]);
}

#[test]
fn only_a_gpu_is_chosen_without_being_named() {
    for (settings, expected) in [
        ("type=gpu", DeviceKind::XPU),
        ("devices=2,type=cpu:gpu", DeviceKind::XPU),
        ("type=cpu", DeviceKind::CPU),
        ("type=accelerator", DeviceKind::CPU),
    ] {
        let fake = Fake::new(settings);
        let unnamed = config(&fake).into_builder().accelerator(None).build().unwrap();
        assert_eq!(Runtime::new(unnamed).unwrap().accelerator().unwrap(), expected, "{settings}");
        assert_eq!(runtime(&fake).accelerator().unwrap(), DeviceKind::XPU, "named: {settings}");
    }
}

#[test]
fn asking_what_exists_makes_no_context_and_no_queue() {
    over("devices=2", |fake, runtime| {
        assert_eq!(runtime.device_count(DeviceKind::XPU).unwrap(), 2);
        assert_eq!(runtime.accelerator().unwrap(), DeviceKind::XPU);
        for index in 0..2 {
            runtime.properties(xpu(index)).unwrap();
            runtime.memory_info(xpu(index)).unwrap();
            runtime.priority_range(xpu(index)).unwrap();
        }
        assert!(matches!(
            runtime.stream(xpu(2)),
            Err(Error::Device(DeviceError::NotFound { count: 2, .. }))
        ));
        for call in ["clCreateContext", "clCreateCommandQueueWithProperties"] {
            assert_eq!(fake.live(&format!("calls:{call}")), 0, "{call}");
        }
        assert!(!runtime.is_initialized());
    });
}

#[test]
fn a_device_is_asked_once() {
    over("", |fake, runtime| {
        runtime.device_count(DeviceKind::XPU).unwrap();
        let questions = fake.live("calls:clGetDeviceInfo");
        let stream = runtime.stream(xpu(0)).unwrap();
        for _ in 0..10 {
            runtime.device_count(DeviceKind::XPU).unwrap();
            runtime.memory_info(xpu(0)).unwrap();
            stream.synchronize().unwrap();
        }
        assert_eq!(fake.live("calls:clGetDeviceInfo"), questions);
        assert_eq!(fake.live("calls:clCreateContext"), 1);
    });
}

#[test]
fn no_driver_is_loaded_where_nothing_speaks_for_a_gpu() {
    // Goal: choosing an accelerator on a machine without one loads nothing. Method: what this
    // process has mapped afterwards; no test of this binary opens the system's loader.
    let node =
        ["/dev/dri", "/dev/dxg"].into_iter().find(|node| std::path::Path::new(node).exists());
    accelrt_opencl::register().unwrap();
    let runtime = Runtime::new(Config::default()).unwrap();
    let chosen = runtime.accelerator().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let is_loaded = maps.lines().any(|line| line.contains("libOpenCL"));
    assert!(!is_loaded || node.is_some(), "loaded without a node of a GPU");
    assert!(chosen == DeviceKind::CPU || is_loaded, "{chosen} without a driver");
}
