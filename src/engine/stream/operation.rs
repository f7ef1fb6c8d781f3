//! The operations of a stream: the kind and name of a task, and its details for a subscriber.
//!
//! A command's type determines its kind and name, so reading them needs no task. Details are
//! computed before the task runs, for a subscriber that asks for them and for debug assertions.

use crate::backend::contract::Address;
use crate::engine::log::names::NameId;
use crate::engine::log::record::RecordedSource;

pub use crate::engine::log::record::OperationKind;

/// What logs, profiles and the race detector show of a task.
#[derive(Clone, Debug, Default)]
pub struct Details {
    /// The size of the task's data in bytes; 0 for a task without data.
    pub bytes: usize,
    /// The memory that the task is known to use.
    pub accesses: Vec<MemoryAccess>,
    /// The point in another stream that the task waits for.
    pub source: Option<RecordedSource>,
    /// The address of the C function that the task calls; else 0.
    pub function: usize,
    /// The words that this function is called with, among which pointers are.
    pub words: Vec<u64>,
    /// The id of the event that the task records; else 0.
    pub event: u64,
    /// The name that the program gave.
    pub name: NameId,
}

/// One access of a task to memory, as far as the task's creator knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAccess {
    /// The first byte.
    pub address: Address,
    /// `None` when only the address is known.
    pub bytes: Option<usize>,
    /// `None` when the direction is unknown.
    pub writes: Option<bool>,
}

impl MemoryAccess {
    pub(crate) fn read(address: Address, bytes: usize) -> Self {
        Self { address, bytes: Some(bytes), writes: Some(false) }
    }

    /// A write of `bytes` bytes.
    #[must_use]
    pub fn write(address: Address, bytes: usize) -> Self {
        Self { address, bytes: Some(bytes), writes: Some(true) }
    }

    /// True when `other` has the same value in every field that is known here.
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        self.address == other.address
            && self.bytes.is_none_or(|bytes| Some(bytes) == other.bytes)
            && self.writes.is_none_or(|writes| Some(writes) == other.writes)
    }

    /// An access of unknown size and direction.
    pub(crate) fn unknown(address: Address) -> Self {
        Self { address, bytes: None, writes: None }
    }
}
