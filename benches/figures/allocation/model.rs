//! A model of how PyTorch's caching allocator is built: what its decisions cost with its structure.
//!
//! One mutex a device, free blocks in ordered sets by stream, size and address, live ones in a hash
//! map of shards with a mutex each, and counters with peaks per pool. Devices are arithmetic.

use std::cmp::max;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Mutex;

use super::Memory;

const MIB: usize = 1 << 20;
/// Sizes up to this one come from small segments.
const SMALL_BYTES: usize = MIB;
const SHARDS: usize = 67;

/// How rows name it.
pub(super) const MODEL: &str = "model of PyTorch's";

pub(crate) struct Model {
    device: Mutex<Device>,
    shards: [Mutex<Map<u64, usize>>; SHARDS],
}

/// Hashing as C++ libraries do it: the number itself, with its bits mixed a little.
#[derive(Default)]
struct Mixed(u64);

type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mixed>>;
type Set<K> = HashSet<K, BuildHasherDefault<Mixed>>;

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (number >> 9).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

struct Device {
    /// Small ones and large ones: stream, size, address, number.
    free: [BTreeSet<(u64, usize, u64, usize)>; 2],
    active: Set<usize>,
    blocks: Vec<Block>,
    unused: Vec<usize>,
    next_address: u64,
    statistics: [Statistics; 3],
}

#[derive(Clone, Copy, Default)]
struct Block {
    address: u64,
    bytes: usize,
    requested_bytes: usize,
    stream: u64,
    is_large: bool,
    is_allocated: bool,
    previous: Option<usize>,
    next: Option<usize>,
}

#[derive(Default)]
struct Statistics {
    allocation: Stat,
    allocated_bytes: Stat,
    active: Stat,
    active_bytes: Stat,
    requested_bytes: Stat,
    inactive_split: Stat,
    inactive_split_bytes: Stat,
}

#[derive(Default)]
struct Stat {
    current: usize,
    peak: usize,
    allocated: usize,
    freed: usize,
}

impl Stat {
    fn increase(&mut self, amount: usize) {
        self.current += amount;
        self.peak = max(self.peak, self.current);
        self.allocated += amount;
    }

    fn decrease(&mut self, amount: usize) {
        self.current -= amount;
        self.freed += amount;
    }
}

impl Model {
    pub(crate) fn new() -> Self {
        let device = Device {
            free: [BTreeSet::new(), BTreeSet::new()],
            active: Set::default(),
            blocks: Vec::new(),
            unused: Vec::new(),
            next_address: 1 << 40,
            statistics: Default::default(),
        };
        let shards = std::array::from_fn(|_| Mutex::new(Map::default()));
        Self { device: Mutex::new(device), shards }
    }

    fn shard(&self, address: u64) -> &Mutex<Map<u64, usize>> {
        &self.shards[usize::try_from(address >> 9).expect("a word") % SHARDS]
    }
}

impl Memory for Model {
    type Block = u64;

    fn allocate(&self, bytes: usize, stream: u64) -> u64 {
        let (address, id) = self.device.lock().expect("no panic").allocate(bytes, stream);
        self.shard(address).lock().expect("no panic").insert(address, id);
        address
    }

    fn free(&self, address: u64) {
        let id = self.shard(address).lock().expect("no panic").remove(&address);
        self.device.lock().expect("no panic").free(id.expect("it is live"));
    }
}

impl Device {
    fn allocate(&mut self, requested_bytes: usize, stream: u64) -> (u64, usize) {
        let bytes = max(requested_bytes, 1).next_multiple_of(512);
        let is_large = bytes > SMALL_BYTES;
        let found = self.take_free(bytes, stream, is_large);
        let mut id = found.unwrap_or_else(|| self.segment(bytes, stream, is_large));
        let rest_bytes = self.blocks[id].bytes - bytes;
        if if is_large { rest_bytes > MIB } else { rest_bytes >= 512 } {
            id = self.split(id, bytes);
        }
        let block = &mut self.blocks[id];
        (block.is_allocated, block.requested_bytes) = (true, requested_bytes);
        let (address, bytes) = (block.address, block.bytes);
        self.active.insert(id);
        self.count(is_large, |statistics| {
            statistics.allocation.increase(1);
            statistics.allocated_bytes.increase(bytes);
            statistics.active.increase(1);
            statistics.active_bytes.increase(bytes);
            statistics.requested_bytes.increase(requested_bytes);
        });
        (address, id)
    }

    /// Best fit: the smallest of the stream that is large enough.
    fn take_free(&mut self, bytes: usize, stream: u64, is_large: bool) -> Option<usize> {
        let free = &mut self.free[usize::from(is_large)];
        let found = *free.range((stream, bytes, 0, 0)..).next()?;
        if found.0 != stream {
            return None;
        }
        free.remove(&found);
        Some(found.3)
    }

    fn segment(&mut self, bytes: usize, stream: u64, is_large: bool) -> usize {
        let bytes = match bytes {
            ..=SMALL_BYTES => 2 * MIB,
            bytes if bytes < 10 * MIB => 20 * MIB,
            bytes => bytes.next_multiple_of(2 * MIB),
        };
        let address = self.next_address;
        self.next_address += bytes as u64;
        self.insert(Block { address, bytes, stream, is_large, ..Block::default() })
    }

    fn insert(&mut self, block: Block) -> usize {
        if let Some(id) = self.unused.pop() {
            self.blocks[id] = block;
            return id;
        }
        self.blocks.push(block);
        self.blocks.len() - 1
    }

    /// Cuts the front off; what is left is free.
    fn split(&mut self, rest: usize, bytes: usize) -> usize {
        let old = self.blocks[rest];
        let front = self.insert(Block { bytes, next: Some(rest), ..old });
        if let Some(previous) = old.previous {
            self.blocks[previous].next = Some(front);
        }
        let block = &mut self.blocks[rest];
        block.previous = Some(front);
        block.address += bytes as u64;
        block.bytes -= bytes;
        let rest_bytes = block.bytes;
        self.put_free(rest);
        self.count(old.is_large, |statistics| {
            statistics.inactive_split.increase(1);
            statistics.inactive_split_bytes.increase(rest_bytes);
            statistics.inactive_split.decrease(1);
            statistics.inactive_split_bytes.decrease(rest_bytes);
        });
        front
    }

    fn put_free(&mut self, id: usize) {
        let Block { stream, bytes, address, is_large, .. } = self.blocks[id];
        self.free[usize::from(is_large)].insert((stream, bytes, address, id));
    }

    fn free(&mut self, id: usize) {
        let Block { bytes, requested_bytes, is_large, .. } = self.blocks[id];
        self.blocks[id].is_allocated = false;
        self.count(is_large, |statistics| {
            statistics.allocation.decrease(1);
            statistics.allocated_bytes.decrease(bytes);
        });
        self.merge_previous(id);
        self.merge_next(id);
        self.active.remove(&id);
        self.put_free(id);
        self.count(is_large, |statistics| {
            statistics.active.decrease(1);
            statistics.active_bytes.decrease(bytes);
            statistics.requested_bytes.decrease(requested_bytes);
        });
    }

    fn merge_previous(&mut self, id: usize) {
        let Some(gone) = self.take_neighbour(self.blocks[id].previous) else { return };
        let block = &mut self.blocks[id];
        (block.address, block.previous) = (gone.address, gone.previous);
        block.bytes += gone.bytes;
        if let Some(previous) = gone.previous {
            self.blocks[previous].next = Some(id);
        }
    }

    fn merge_next(&mut self, id: usize) {
        let Some(gone) = self.take_neighbour(self.blocks[id].next) else { return };
        let block = &mut self.blocks[id];
        block.next = gone.next;
        block.bytes += gone.bytes;
        if let Some(next) = gone.next {
            self.blocks[next].previous = Some(id);
        }
    }

    /// A neighbour, if it is free: out of the set, and gone.
    fn take_neighbour(&mut self, id: Option<usize>) -> Option<Block> {
        let id = id.filter(|id| !self.blocks[*id].is_allocated)?;
        let block = self.blocks[id];
        let place = (block.stream, block.bytes, block.address, id);
        self.free[usize::from(block.is_large)].remove(&place);
        self.unused.push(id);
        Some(block)
    }

    fn count(&mut self, is_large: bool, change: impl Fn(&mut Statistics)) {
        change(&mut self.statistics[0]);
        change(&mut self.statistics[1 + usize::from(is_large)]);
    }
}
