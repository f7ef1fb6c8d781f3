//! The trait `VirtualMemory` over a table's functions, for each device.
#![expect(unsafe_code, reason = "passes the contract's promises on to a driver's functions")]

use std::sync::Arc;

use crate::backend::contract::{Address, PhysicalHandle, VirtualMemory};
use crate::backend::foreign::adapter::bytes;
use crate::backend::foreign::instance::{Instance, call_instance};
use crate::backend::foreign::table::VirtualMemoryTable;
use crate::base::error::Result;

/// The pages of one device.
#[derive(Debug)]
pub(super) struct DevicePages {
    instance: Arc<Instance>,
    functions: VirtualMemoryTable,
    device: u64,
}

impl DevicePages {
    pub(super) fn new(
        instance: &Arc<Instance>,
        functions: VirtualMemoryTable,
        device: u64,
    ) -> Self {
        Self { instance: Arc::clone(instance), functions, device }
    }
}

/// Calls a function of the table for this device, which may need so many bytes.
macro_rules! call {
    ($self:ident.$function:ident($($argument:expr),*)) => {
        call!($self.$function($($argument),*), for 0)
    };
    ($self:ident.$function:ident($($argument:expr),*), for $bytes:tt) => {
        call_instance!(
            $self.instance, $self.functions, $function($self.device $(, $argument)*),
            for $bytes of $self.device
        )
    };
}

// SAFETY: the table's maker answers for its ranges and pages, as the header says.
unsafe impl VirtualMemory for DevicePages {
    /// The size of a whole page of the machine where the driver does not say.
    fn granularity_bytes(&self) -> usize {
        let mut granularity = 0;
        let asked = call!(self.granularity_bytes(&raw mut granularity));
        asked.map_or(4096, |()| bytes(granularity))
    }

    fn reserve(&self, bytes: usize) -> Result<Address> {
        let mut address = 0;
        call!(self.reserve(bytes as u64, &raw mut address), for bytes)?;
        Ok(Address(address))
    }

    unsafe fn unreserve(&self, range: Address, bytes: usize) -> Result<()> {
        call!(self.unreserve(range.0, bytes as u64))
    }

    fn create(&self, bytes: usize) -> Result<PhysicalHandle> {
        let mut physical = 0;
        call!(self.create(bytes as u64, &raw mut physical), for bytes)?;
        Ok(PhysicalHandle(physical))
    }

    unsafe fn map(&self, to: Address, physical: PhysicalHandle) -> Result<()> {
        call!(self.map(to.0, physical.0))
    }

    unsafe fn unmap(&self, physical: PhysicalHandle) -> Result<()> {
        call!(self.unmap(physical.0))
    }

    unsafe fn relocate(&self, physical: PhysicalHandle, to: Address) -> Result<()> {
        call!(self.relocate(physical.0, to.0))
    }

    unsafe fn release(&self, physical: PhysicalHandle) -> Result<()> {
        call!(self.release(physical.0))
    }
}
