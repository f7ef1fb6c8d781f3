//! Default generators: one a device, seeded before it exists, the later seed wins.

use std::sync::Arc;

use accelrt::backend::contract::Backend;
use accelrt::{Config, Device, DeviceError, DeviceKind, Error, Runtime};
use accelrt_random::RuntimeExt;
use accelrt_testing::null::{NullBackend, NullConfig};

const CPUS: [Device; 3] = [Device::cpu(0), Device::cpu(1), Device::cpu(2)];

fn runtime() -> Runtime {
    Runtime::new(Config::builder().cpu_devices(3).build().unwrap()).unwrap()
}

fn seeds(runtime: &Runtime) -> [u64; 3] {
    CPUS.map(|device| runtime.default_generator(device).unwrap().initial_seed().unwrap())
}

#[test]
fn seeding_before_the_first_use_initialises_nothing_and_the_later_seed_wins() {
    let runtime = runtime();
    runtime.manual_seed_device(CPUS[1], 5).unwrap();
    runtime.manual_seed_all(DeviceKind::CPU, 6).unwrap();
    runtime.manual_seed_device(CPUS[2], 7).unwrap();
    assert_eq!(seeds(&runtime), [6, 6, 7]);
    runtime.manual_seed_all(DeviceKind::XPU, 8).unwrap();
    assert_eq!(seeds(&runtime), [6, 6, 7], "another kind's");
    runtime.manual_seed(9).unwrap();
    assert_eq!(seeds(&runtime), [9; 3]);
    assert!(!runtime.is_initialized());
}

#[test]
fn a_default_generator_is_one_and_begins_where_nobody_can_foretell() {
    let runtime = runtime();
    let [first, second, _] = seeds(&runtime);
    assert_ne!(first, second);
    runtime.default_generator(CPUS[0]).unwrap().random_raw(2).unwrap();
    assert_eq!(runtime.default_generator(CPUS[0]).unwrap().offset().unwrap(), 4);
    assert_eq!(runtime.generator(CPUS[0]).unwrap().initial_seed().unwrap(), 67_280_421_310_721);
}

#[test]
fn a_device_that_is_not_there_has_no_generator_but_may_be_seeded() {
    let runtime = runtime();
    let absent = Device::cpu(3);
    runtime.manual_seed_device(absent, 1).unwrap();
    for refused in [runtime.default_generator(absent), runtime.generator(absent)] {
        assert!(
            matches!(refused, Err(Error::Device(DeviceError::NotFound { count: 3, .. }))),
            "{refused:?}"
        );
    }
}

#[test]
fn one_seed_for_all_kinds_is_that_of_a_third_party_kind_too() {
    let kind = DeviceKind::register("outside_seed", 86).unwrap();
    let backend = NullBackend::new(NullConfig { kind, ..NullConfig::default() });
    let runtime = Runtime::with_backends(Config::default(), [backend as Arc<dyn Backend>]).unwrap();
    let device = Device::new(kind, 0).unwrap();
    runtime.manual_seed_all(kind, 3).unwrap();
    runtime.manual_seed(5).unwrap();
    let seed = || runtime.default_generator(device).unwrap().initial_seed().unwrap();
    assert_eq!(seed(), 5);
    runtime.manual_seed(6).unwrap();
    assert_eq!(seed(), 6);
}
