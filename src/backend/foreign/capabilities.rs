//! The traits `VirtualMemory` and `Kernels` over a table's functions, for each device.
#![expect(unsafe_code, reason = "passes the contract's promises on to a driver's functions")]

use std::ffi::CString;
use std::sync::Arc;

use crate::backend::contract::{
    Address, KernelHandle, KernelParameter, Kernels, LaunchArgument, LaunchSize, ParameterClass,
    PhysicalHandle, ProgramHandle, ProgramSource, StreamHandle, VirtualMemory,
};
use crate::backend::foreign::instance::{Instance, bytes, call_instance, text};
use crate::backend::foreign::table::{
    ARGUMENT_LOCAL, ARGUMENT_MEMORY, ARGUMENT_VALUE, ArgumentRecord, KernelsTable, PARAMETER_FLOAT,
    PARAMETER_LOCAL, PARAMETER_POINTER, PARAMETER_SIGNED, PARAMETER_UNSIGNED, Parameter,
    TEXT_BYTES, VirtualMemoryTable, WorkSize,
};
use crate::base::error::{Error, Result};

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

/// The compiler of a kind.
#[derive(Debug)]
pub(super) struct ForeignKernels {
    instance: Arc<Instance>,
    functions: KernelsTable,
}

impl ForeignKernels {
    pub(super) fn new(instance: &Arc<Instance>, functions: KernelsTable) -> Self {
        Self { instance: Arc::clone(instance), functions }
    }

    /// A text for C, which cannot have a zero inside.
    fn c_text(&self, call: &'static str, text: &str) -> Result<CString> {
        let refused = |_| Error::refused(self.instance.kind, call, 0, "a text has a zero inside");
        CString::new(text).map_err(refused)
    }
}

/// Calls a function of the table.
macro_rules! call {
    ($self:ident.$function:ident $arguments:tt $(, of $device:expr)?) => {
        call_instance!($self.instance, $self.functions, $function $arguments $(, for 0 of $device)?)
    };
}

// SAFETY: the table's maker answers for what a launch runs, as the header says.
unsafe impl Kernels for ForeignKernels {
    fn compile(
        &self,
        device_index: usize,
        source: ProgramSource<'_>,
        options: &str,
    ) -> Result<ProgramHandle> {
        let options = self.c_text("compile", options)?;
        let (bytes, is_binary) = match source {
            ProgramSource::Text(text) => (text.as_bytes(), 0),
            ProgramSource::Binary(binary) => (binary, 1),
        };
        let (device, mut program) = (device_index as u64, 0);
        let (first, count, options) = (bytes.as_ptr().cast(), bytes.len() as u64, options.as_ptr());
        call!(self.compile(device, first, count, is_binary, options, &raw mut program), of device)?;
        Ok(ProgramHandle(program))
    }

    unsafe fn kernel_names(&self, program: ProgramHandle) -> Result<Vec<String>> {
        let mut count = 0;
        call!(self.kernel_count(program.0, &raw mut count))?;
        let name = |index| {
            let mut name = [0; TEXT_BYTES];
            let capacity = TEXT_BYTES as u64;
            call!(self.kernel_name(program.0, index, name.as_mut_ptr(), capacity))?;
            Ok(text(name))
        };
        (0..count).map(name).collect()
    }

    unsafe fn kernel(&self, program: ProgramHandle, name: &str) -> Result<KernelHandle> {
        let (name, mut kernel) = (self.c_text("kernel", name)?, 0);
        call!(self.kernel(program.0, name.as_ptr(), &raw mut kernel))?;
        Ok(KernelHandle(kernel))
    }

    unsafe fn parameters(&self, kernel: KernelHandle) -> Result<Vec<KernelParameter>> {
        let mut count = 0;
        call!(self.parameter_count(kernel.0, &raw mut count))?;
        let parameter = |index| {
            let mut found = Parameter {
                size_bytes: size_of::<Parameter>() as u64,
                name: [0; TEXT_BYTES],
                type_name: [0; TEXT_BYTES],
                parameter_class: 0,
                value_bytes: 0,
            };
            call!(self.parameter(kernel.0, index, &raw mut found))?;
            let bytes = u8::try_from(found.value_bytes).unwrap_or(0);
            let class = match found.parameter_class {
                PARAMETER_POINTER => ParameterClass::Pointer,
                PARAMETER_LOCAL => ParameterClass::Local,
                PARAMETER_SIGNED => ParameterClass::Signed(bytes),
                PARAMETER_UNSIGNED => ParameterClass::Unsigned(bytes),
                PARAMETER_FLOAT => ParameterClass::Float(bytes),
                _ => ParameterClass::Unknown,
            };
            Ok(KernelParameter { name: text(found.name), type_name: text(found.type_name), class })
        };
        (0..count).map(parameter).collect()
    }

    unsafe fn launch(
        &self,
        kernel: KernelHandle,
        stream: StreamHandle,
        arguments: &[LaunchArgument],
        size: &LaunchSize,
    ) -> Result<()> {
        let arguments: Vec<ArgumentRecord> = arguments.iter().map(argument).collect();
        let wide = |sizes: [usize; 3]| sizes.map(|size| size as u64);
        let (global, local) = (wide(size.global), size.local.map_or([0; 3], wide));
        let size = WorkSize { global, local, dimensions: u64::from(size.dimensions) };
        let (first, count) = (arguments.as_ptr(), arguments.len() as u64);
        call!(self.launch(kernel.0, stream.0, first, count, &raw const size))
    }

    unsafe fn kernel_release(&self, kernel: KernelHandle) -> Result<()> {
        call!(self.kernel_release(kernel.0))
    }

    unsafe fn program_release(&self, program: ProgramHandle) -> Result<()> {
        call!(self.program_release(program.0))
    }
}

fn argument(argument: &LaunchArgument) -> ArgumentRecord {
    let none = ArgumentRecord { argument_class: 0, value_bytes: 0, number: 0, value: [0; 16] };
    match argument {
        LaunchArgument::Memory(address) => {
            ArgumentRecord { argument_class: ARGUMENT_MEMORY, number: address.0, ..none }
        }
        LaunchArgument::Value(given) => {
            let (given, mut value) = (given.as_slice(), none.value);
            value[..given.len()].copy_from_slice(given);
            let value_bytes = u32::try_from(given.len()).expect("16 bytes at most");
            ArgumentRecord { argument_class: ARGUMENT_VALUE, value_bytes, value, ..none }
        }
        LaunchArgument::Local(bytes) => {
            ArgumentRecord { argument_class: ARGUMENT_LOCAL, number: *bytes as u64, ..none }
        }
    }
}
