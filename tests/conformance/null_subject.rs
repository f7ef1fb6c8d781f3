//! The null kind as a subject: at once, when asked, with four devices, behind an idle fault layer.

use std::sync::Arc;

use accelrt::backend::contract::Backend;
use accelrt_testing::conformance::{Subject, report};
use accelrt_testing::fault::FaultBackend;
use accelrt_testing::null::{CompletionMode, NullBackend, NullConfig, ResourceCounts};

fn null(config: NullConfig, wrap: fn(Arc<NullBackend>) -> Arc<dyn Backend>) -> Subject {
    let null = NullBackend::new(config);
    Subject::new(wrap(Arc::clone(&null)))
        .with_end_check(move || assert_eq!(null.resource_counts(), ResourceCounts::default()))
}

fn when_asked() -> NullConfig {
    let completion = CompletionMode::WhenAsked { polls: 3 };
    NullConfig { completion, ..NullConfig::default() }
}

fn of_four_devices() -> NullConfig {
    let completion = CompletionMode::WhenAsked { polls: 1 };
    let has_shared_memory = false;
    NullConfig { device_count: 4, completion, has_shared_memory, ..NullConfig::default() }
}

/// Two devices of 64 MiB.
fn small() -> NullConfig {
    NullConfig { device_count: 2, capacity_bytes: 64 << 20, ..of_four_devices() }
}

#[test]
fn the_kit_asks_no_more_memory_than_a_small_device_has() {
    let table = report(|| null(small(), |null| null));
    assert!(table.is_passed(), "{table}");
}

accelrt_testing::conformance!(at_once, null(NullConfig::default(), |null| null));
accelrt_testing::conformance!(when_asked, null(when_asked(), |null| null));
accelrt_testing::conformance!(four_devices, null(of_four_devices(), |null| null));
// A fault layer without a planned fault: it must not be noticed.
accelrt_testing::conformance!(behind_faults, null(when_asked(), |null| FaultBackend::new(null)));
