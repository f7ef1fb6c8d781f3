//! What holds the memory in use: bytes by call site, tag and stream.

use std::collections::{BTreeMap, HashMap};

use accelrt::internal::{AllocationContext, NameId, StackId};
use accelrt::{CachingAllocator, Device, DeviceKind};
use pyo3::prelude::*;

use crate::memory::history::device_allocators;
use crate::support::stacks;

/// `(device, call site, tag, stream, bytes, blocks)`. What was requested without a history and a
/// tag has neither site nor stream.
type MemoryUse = (String, Option<String>, String, Option<u64>, u64, u64);

/// What tells uses apart.
type Key = (Device, Option<String>, NameId, Option<u64>);

/// The bytes of blocks in use on the devices of these kinds, the most first.
#[pyfunction]
pub(crate) fn memory_uses(py: Python<'_>) -> PyResult<Vec<MemoryUse>> {
    let mut uses = Uses::default();
    for kind in DeviceKind::registered() {
        for allocator in device_allocators(kind)? {
            uses.add(py, &allocator);
        }
    }
    let mut rows: Vec<_> = uses.by_key.into_iter().filter(|(_, (bytes, _))| *bytes > 0).collect();
    rows.sort_by_key(|(_, (bytes, _))| std::cmp::Reverse(*bytes));
    let row = |((device, site, tag, stream), (bytes, count)): (Key, _)| {
        (device.to_string(), site, tag.text().to_string(), stream, bytes, count)
    };
    Ok(rows.into_iter().map(row).collect())
}

#[derive(Default)]
struct Uses {
    by_key: BTreeMap<Key, (u64, u64)>,
    sites: HashMap<StackId, Option<String>>,
}

impl Uses {
    fn add(&mut self, py: Python<'_>, allocator: &CachingAllocator) {
        let device = allocator.device();
        let known = allocator.known_blocks();
        let stat = allocator.statistics();
        let mut rest = (stat.allocated_bytes.all.current, stat.allocation.all.current);
        for (_, block) in known.iter().filter(|(_, block)| !block.is_freed) {
            let AllocationContext { tag, stack } = block.context;
            let site = self.sites.entry(stack).or_insert_with(|| stacks::site(py, stack)).clone();
            let (bytes, count) =
                self.by_key.entry((device, site, tag, Some(block.stream))).or_default();
            *bytes += block.bytes as u64;
            *count += 1;
            rest = (rest.0.saturating_sub(block.bytes as u64), rest.1.saturating_sub(1));
        }
        self.by_key.insert((device, None, NameId::NONE, None), rest);
    }
}
