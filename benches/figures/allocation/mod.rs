//! Allocation (rows A): our allocator beside PyTorch's, a model of that, `malloc`s and the system.
//!
//! What has to be measured from Python, or reads snapshots, is in `python/accelrt/cli/bench/`.

pub(crate) mod bookkeeping;
pub(crate) mod c10;
mod child;
mod grown;
pub(crate) mod malloc;
mod model;
mod pages;
mod pairs;
mod pressure;
mod replays;
mod threads;

use std::path::Path;
use std::{env, io};

use accelrt::allocator::{Allocated, CachingAllocator, Request};
use accelrt::{AllocatorConfig, Runtime};
use accelrt_replay::Accounting;

use self::c10::C10;
use crate::table::Table;

/// Where the settings of the rows stand, as those of Python's: none are the default ones.
const SETTINGS: &str = "ACCELRT_ALLOC_CONF";

/// More than any device has; addresses for more than that are not always given.
const CAPACITY_BYTES: usize = 1 << 41;
const PAGE_BYTES: usize = 2 << 20;

pub(crate) fn measure(
    runtime: &Runtime,
    traces: Option<&Path>,
    c10: Option<&C10>,
    table: &mut Table,
) -> io::Result<()> {
    pairs::measure(runtime, c10, table)?;
    replays::measure(traces, c10, table)?;
    bookkeeping::measure_heap(runtime, table)?;
    threads::measure(runtime, table)?;
    grown::measure(table)?;
    bookkeeping::measure(table)?;
    pages::measure(runtime, table)?;
    measure_pressure(table)
}

/// The last of these rows, which can be had alone.
pub(crate) fn measure_pressure(table: &mut Table) -> io::Result<()> {
    pressure::measure(table)
}

fn settings() -> AllocatorConfig {
    env::var(SETTINGS).unwrap_or_default().parse().expect("the settings are right")
}

/// An allocator on a device of numbers.
fn accounting() -> CachingAllocator {
    let (capacity_bytes, granularity_bytes) = (CAPACITY_BYTES, PAGE_BYTES);
    let accounting = Accounting { config: settings(), capacity_bytes, granularity_bytes };
    accounting.allocator().expect("numbers are always there")
}

/// Something that memory is taken from. Ours and the peers are measured by the same code.
trait Memory: Sync {
    type Block: Default + Send;

    fn allocate(&self, bytes: usize, stream: u64) -> Self::Block;

    fn free(&self, block: Self::Block);
}

impl Memory for CachingAllocator {
    type Block = Allocated;

    // As a program's own call would be: a function between would copy what is returned once more.
    #[inline(always)]
    fn allocate(&self, bytes: usize, stream: u64) -> Allocated {
        CachingAllocator::allocate(self, Request::new(bytes, stream)).expect("there is enough")
    }

    #[inline(always)]
    fn free(&self, block: Allocated) {
        CachingAllocator::free(self, block).expect("it is its own");
    }
}

/// How large the next block is.
type Size = fn(&mut Numbers) -> usize;

/// Numbers that look random and are the same each time.
struct Numbers(u64);

impl Numbers {
    const fn new() -> Self {
        Self(0x2545_F491_4F6C_DD1D)
    }

    #[inline]
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).expect("a word") % limit
    }
}
