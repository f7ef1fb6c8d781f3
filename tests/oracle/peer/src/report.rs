//! What is compared at the end of a program: statistics and layouts, as the driver prints them.

use std::collections::HashMap;
use std::fmt::{self, Write as _};

use accelrt::allocator::snapshot::{BlockState, PoolClass};

use crate::world::World;

const POOLED: [&str; 9] = [
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
];
const SINGLE: [&str; 2] = ["oversize_allocations", "oversize_segments"];
const COUNTERS: [&str; 7] = [
    "num_alloc_retries",
    "num_ooms",
    "num_oom_rejections",
    "num_sync_all_streams",
    "num_device_alloc",
    "num_device_free",
    "max_split_size",
];

pub(crate) fn statistics(world: &World, device: usize) -> Result<String, fmt::Error> {
    let entries = world.allocator(device).statistics().entries();
    let entries: HashMap<String, i64> = entries.into_iter().collect();
    let mut text = String::new();
    let parts = ["all", "small_pool", "large_pool"];
    let pooled = POOLED.iter().flat_map(|name| parts.map(|part| format!("{name}.{part}")));
    for name in pooled.chain(SINGLE.map(str::to_owned)) {
        write!(text, "statistic {name}")?;
        for number in ["current", "peak", "allocated", "freed"] {
            write!(text, " {}", entries[&format!("{name}.{number}")])?;
        }
        text.push('\n');
    }
    for name in COUNTERS {
        writeln!(text, "statistic {name} {}", entries[name])?;
    }
    Ok(text)
}

pub(crate) fn layout(world: &World, device: usize) -> Result<String, fmt::Error> {
    let mut text = String::new();
    for segment in &world.allocator(device).snapshot().segments {
        let place = world.numbers().ledger().place(segment.address).expect("the device gave it");
        let class = if segment.class == PoolClass::Small { "small" } else { "large" };
        let kind = if segment.is_expandable { "pages" } else { "whole" };
        let stream = world.stream_number(device, segment.stream);
        let pool = world.pool_number(device, segment.pool);
        write!(text, "segment {place} {} {class} {kind}", segment.total_bytes)?;
        writeln!(text, " stream {stream} pool {pool}")?;
        for block in &segment.blocks {
            let state = match block.state {
                BlockState::Allocated => "allocated",
                BlockState::AwaitingFree => "awaiting",
                BlockState::Inactive => "free",
                later => unreachable!("PyTorch has no state {later:?}"),
            };
            let requested_bytes = if block.state.is_active() { block.requested_bytes } else { 0 };
            let offset = block.address - segment.address + place.offset;
            writeln!(text, "block {offset} {} {requested_bytes} {state}", block.bytes)?;
        }
    }
    Ok(text)
}
