//! Probing: what a backend says of itself and its devices, before anything is used.

use crate::conformance::support::{Subject, devices};

pub(crate) fn a_kind_has_devices_that_can_be_counted(subject: &Subject) {
    // Goal: the suite has something to test. Method: the count, twice, and every device by name.
    let backend = subject.backend();
    let count = backend.device_count().unwrap();
    assert!((1..=128).contains(&count), "{count} devices");
    assert_eq!(backend.device_count().unwrap(), count);
    for index in 0..count {
        let device = accelrt::Device::new(backend.kind(), index).unwrap();
        assert_eq!(device.to_string(), format!("{}:{index}", backend.kind()));
    }
}

pub(crate) fn a_device_says_what_it_is(subject: &Subject) {
    // Goal: no property is nonsense that others would divide by. Method: bounds of each.
    let backend = subject.backend();
    for device in devices(&backend) {
        let properties = backend.properties(device).unwrap();
        assert!(!properties.name.trim().is_empty());
        assert!(properties.total_memory_bytes > 0);
        assert!(properties.core_count > 0);
        assert!(properties.page_bytes.is_power_of_two());
        assert!(properties.cache_bytes.iter().all(|bytes| *bytes > 0));
        if let Some(huge) = properties.huge_page_bytes {
            assert!(huge > properties.page_bytes && huge % properties.page_bytes == 0);
        }
    }
}

pub(crate) fn memory_info_agrees_with_the_properties(subject: &Subject) {
    let backend = subject.backend();
    for device in devices(&backend) {
        let info = backend.memory_info(device).unwrap();
        assert_eq!(info.total_bytes, backend.properties(device).unwrap().total_memory_bytes);
        assert!(info.free_bytes <= info.total_bytes, "{info:?}");
    }
}

pub(crate) fn priorities_go_from_the_first_to_the_last_through_zero(subject: &Subject) {
    let backend = subject.backend();
    for device in devices(&backend) {
        let range = backend.priority_range(device);
        assert!(range.greatest <= 0 && 0 <= range.least, "{range:?}");
        assert!(range.contains(range.greatest) && range.contains(range.least));
        assert!(!range.contains(range.greatest - 1) && !range.contains(range.least + 1));
    }
}

pub(crate) fn probing_changes_nothing(subject: &Subject) {
    // Goal: looking is free. Method: everything is asked twice; the answers are the same.
    let backend = subject.backend();
    let look = || {
        let each = devices(&backend).map(|device| {
            let (properties, memory) = (backend.properties(device), backend.memory_info(device));
            (properties.unwrap(), memory.unwrap(), backend.priority_range(device))
        });
        (backend.kind(), backend.runs_on_host(), each.collect::<Vec<_>>())
    };
    assert_eq!(look(), look());
}
