//! The memory of a view, a buffer's or foreign, and its exports to other code.

use std::ops::Range;
use std::sync::Arc;

use accelrt::{Buffer, Device, DeviceKind, ExportGuard, Runtime};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::memory::buffer::allocate;
use crate::memory::copies::{copy_between_buffers, from_lender};
use crate::memory::foreign_memory::{ForeignMemory, ParkedDropper};
use crate::support::deferred_drops::Lender;
use crate::support::errors::OrRaise;
use crate::support::stacks::StackScope;
use crate::support::waiting::{check_may_wait, without_gil};

/// Exports give this address for empty memory, because some consumers take null for an error.
const EMPTY_ADDRESS: usize = 64;

#[derive(Clone)]
pub(crate) enum ViewMemory {
    Ours(Buffer),
    Foreign(Arc<ForeignMemory>, ParkedDropper),
}

/// Exported memory, which stays valid while this value exists.
pub(crate) struct MemoryExport {
    pub(crate) address: usize,
    pub(crate) is_read_only: bool,
    _owner: ExportOwner,
}

#[expect(dead_code, reason = "they are there to be dropped")]
enum ExportOwner {
    Export(ExportGuard),
    Lender(Arc<ForeignMemory>),
}

impl MemoryExport {
    pub(crate) fn pointer(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address)
    }
}

impl Lender for MemoryExport {
    fn take_back(self: Box<Self>, py: Python<'_>) {
        let _stack = StackScope::of_free(py);
        drop(self);
    }
}

impl ViewMemory {
    pub(crate) fn foreign(memory: Arc<ForeignMemory>) -> Self {
        Self::Foreign(memory, ParkedDropper)
    }

    /// Copies the bytes into a new buffer, and waits for the copy.
    pub(crate) fn copied(&self, py: Python<'_>) -> PyResult<Buffer> {
        check_may_wait()?;
        let copy = allocate(py, self.nbytes(), self.device(), Runtime::origin)?;
        let transfer = match self {
            Self::Ours(buffer) => copy_between_buffers(py, &copy, buffer)?,
            Self::Foreign(memory, _) => from_lender(py, &copy, Arc::clone(memory))?,
        };
        let is_done = || transfer.is_done();
        without_gil(py, is_done, |is_interrupted| transfer.wait_unless(is_interrupted))?;
        Ok(copy)
    }

    /// A part of the bytes. Fails after a release.
    pub(crate) fn part(&self, range: Range<usize>) -> PyResult<Self> {
        Ok(match self {
            Self::Ours(buffer) => Self::Ours(buffer.slice(range).or_raise()?),
            Self::Foreign(memory, _) => Self::foreign(Arc::new(ForeignMemory::part(memory, range))),
        })
    }

    pub(crate) fn nbytes(&self) -> usize {
        match self {
            Self::Ours(buffer) => buffer.nbytes(),
            Self::Foreign(memory, _) => memory.bytes,
        }
    }

    /// The device address. Does not block, and fails after a release.
    pub(crate) fn address(&self) -> PyResult<u64> {
        match self {
            Self::Ours(buffer) => Ok(buffer.address().or_raise()?),
            Self::Foreign(memory, _) => Ok(memory.address.addr() as u64),
        }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, Self::Foreign(memory, _) if memory.is_read_only)
    }

    /// The device of the memory; cpu:0 for host memory.
    pub(crate) fn device(&self) -> Device {
        match self {
            Self::Ours(buffer) => buffer.device(),
            Self::Foreign(memory, _) => memory.device,
        }
    }

    /// Exports the bytes to the host. Waits, without the GIL, for all uses of the memory.
    pub(crate) fn export(&self, py: Python<'_>) -> PyResult<MemoryExport> {
        match self {
            Self::Ours(buffer) => export(py, buffer),
            Self::Foreign(memory, _) => {
                check_host_access(memory.device.kind() == DeviceKind::CPU, memory.device)?;
                self.export_on_device(py)
            }
        }
    }

    /// Exports the bytes to code on the same device. Waits as [`ViewMemory::export`] does.
    pub(crate) fn export_on_device(&self, py: Python<'_>) -> PyResult<MemoryExport> {
        let memory = match self {
            Self::Ours(buffer) => return export_on_device(py, buffer),
            Self::Foreign(memory, _) => memory,
        };
        memory.wait_for_uses(py)?;
        let address =
            if memory.bytes > 0 { memory.address.expose_provenance() } else { EMPTY_ADDRESS };
        let (is_read_only, owner) = (memory.is_read_only, ExportOwner::Lender(Arc::clone(memory)));
        Ok(MemoryExport { address, is_read_only, _owner: owner })
    }
}

/// Exports a buffer's bytes to the host. Waits, without the GIL, for all uses of the buffer.
pub(crate) fn export(py: Python<'_>, buffer: &Buffer) -> PyResult<MemoryExport> {
    check_host_access(buffer.is_host_accessible(), buffer.device())?;
    export_on_device(py, buffer)
}

fn check_host_access(has_access: bool, device: Device) -> PyResult<()> {
    if has_access {
        return Ok(());
    }
    let text = format!("the host does not reach memory of {device}: copy_to brings the bytes");
    Err(PyBufferError::new_err(text))
}

/// Exports a buffer's bytes to any code that can access them. Waits as [`export`] does.
pub(crate) fn export_on_device(py: Python<'_>, buffer: &Buffer) -> PyResult<MemoryExport> {
    let guard = buffer.export().or_raise()?;
    let is_done = || buffer.is_unused();
    without_gil(py, is_done, |is_interrupted| buffer.wait_for_host_unless(is_interrupted))?;
    let address = match usize::try_from(buffer.address().or_raise()?) {
        Ok(address) if address != 0 => address,
        _ => EMPTY_ADDRESS,
    };
    Ok(MemoryExport { address, is_read_only: false, _owner: ExportOwner::Export(guard) })
}
