//! A launch argument: a buffer, a number or bytes, checked against the kernel's parameter.

use crate::backend::contract::{
    Address, KernelParameter, LaunchArgument, ParameterClass, ValueBytes,
};
use crate::base::error::{Error, ProgramError, Result};
use crate::compute::Kernel;
use crate::ffi::Argument;
use crate::memory::buffer::Buffer;

/// An argument of a kernel. Buffers and Rust's numbers convert into it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum KernelArgument<'a> {
    /// A buffer of the kernel's device, or a pinned buffer of the device's kind. The launch records
    /// a use of the buffer.
    Buffer(&'a Buffer),
    /// A number of exactly the parameter's type. A pointer must be an address on the device, and
    /// the memory behind it must stay allocated until the launch is done.
    Value(Argument),
    /// The 1 to 16 bytes of a value of another type.
    Bytes(&'a [u8]),
    /// Local memory: this many bytes for each work-group.
    Local(usize),
}

impl<'a> From<&'a Buffer> for KernelArgument<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        Self::Buffer(buffer)
    }
}

impl<T: Into<Argument>> From<T> for KernelArgument<'_> {
    fn from(value: T) -> Self {
        Self::Value(value.into())
    }
}

impl KernelArgument<'_> {
    /// Converts the argument for the backend. Fails if it does not fit parameter `index`.
    pub(super) fn launch_argument(&self, kernel: &Kernel, index: usize) -> Result<LaunchArgument> {
        let KernelParameter { name, type_name, class } = &kernel.parameters()[index];
        let given = self.convert()?;
        let fits = match (class, self) {
            (ParameterClass::Unknown, _)
            | (ParameterClass::Pointer, Self::Buffer(_) | Self::Value(Argument::Pointer(_)))
            | (ParameterClass::Local, Self::Local(_)) => given.is_some(),
            (_, Self::Value(number)) => class_and_bytes(*number).0 == *class,
            _ => false,
        };
        given.filter(|_| fits).ok_or_else(|| {
            Error::Program(ProgramError::InvalidArgument {
                kernel: kernel.name().to_owned(),
                index,
                declared: format!("{type_name} {name}").trim().to_owned(),
                expected: expected(*class),
                given: self.describe(),
            })
        })
    }

    /// Converts the argument without the parameter's type. `None` for 0 bytes or too many bytes.
    fn convert(&self) -> Result<Option<LaunchArgument>> {
        Ok(match self {
            Self::Buffer(buffer) => Some(LaunchArgument::Memory(Address(buffer.address()?))),
            Self::Value(Argument::Pointer(pointer)) => {
                Some(LaunchArgument::Memory(Address(pointer.expose_provenance() as u64)))
            }
            Self::Value(number) => class_and_bytes(*number).1.map(LaunchArgument::Value),
            Self::Bytes(bytes) => ValueBytes::new(bytes).map(LaunchArgument::Value),
            Self::Local(bytes) => (*bytes > 0).then_some(LaunchArgument::Local(*bytes)),
        })
    }

    fn describe(&self) -> String {
        match self {
            Self::Buffer(_) => "a buffer".to_owned(),
            Self::Value(Argument::Pointer(_)) => "an address".to_owned(),
            Self::Value(number) => format!("{number:?}"),
            Self::Bytes(bytes) => format!("{} bytes of a value", bytes.len()),
            Self::Local(bytes) => format!("{bytes} bytes of each work-group's memory"),
        }
    }
}

/// The class of a number's own type, and the number's bytes in memory; no bytes for pointers.
fn class_and_bytes(number: Argument) -> (ParameterClass, Option<ValueBytes>) {
    use ParameterClass::{Float, Pointer, Signed, Unsigned};
    match number {
        Argument::I8(value) => (Signed(1), ValueBytes::new(&value.to_ne_bytes())),
        Argument::I16(value) => (Signed(2), ValueBytes::new(&value.to_ne_bytes())),
        Argument::I32(value) => (Signed(4), ValueBytes::new(&value.to_ne_bytes())),
        Argument::I64(value) => (Signed(8), ValueBytes::new(&value.to_ne_bytes())),
        Argument::U8(value) => (Unsigned(1), ValueBytes::new(&value.to_ne_bytes())),
        Argument::U16(value) => (Unsigned(2), ValueBytes::new(&value.to_ne_bytes())),
        Argument::U32(value) => (Unsigned(4), ValueBytes::new(&value.to_ne_bytes())),
        Argument::U64(value) => (Unsigned(8), ValueBytes::new(&value.to_ne_bytes())),
        Argument::F32(value) => (Float(4), ValueBytes::new(&value.to_ne_bytes())),
        Argument::F64(value) => (Float(8), ValueBytes::new(&value.to_ne_bytes())),
        Argument::Pointer(_) => (Pointer, None),
    }
}

fn expected(class: ParameterClass) -> &'static str {
    match class {
        ParameterClass::Pointer => "a buffer or an address",
        ParameterClass::Local => "a size of each work-group's memory, of at least 1 byte",
        ParameterClass::Signed(1) => "a signed integer of 1 byte",
        ParameterClass::Signed(2) => "a signed integer of 2 bytes",
        ParameterClass::Signed(4) => "a signed integer of 4 bytes",
        ParameterClass::Signed(_) => "a signed integer of 8 bytes",
        ParameterClass::Unsigned(1) => "an unsigned integer of 1 byte",
        ParameterClass::Unsigned(2) => "an unsigned integer of 2 bytes",
        ParameterClass::Unsigned(4) => "an unsigned integer of 4 bytes",
        ParameterClass::Unsigned(_) => "an unsigned integer of 8 bytes",
        ParameterClass::Float(4) => "a float of 4 bytes",
        ParameterClass::Float(_) => "a float of 8 bytes",
        ParameterClass::Unknown => "a buffer, a number, or 1 to 16 bytes of a value",
    }
}
