//! The trait `Kernels`: the optional part of the contract for kinds that compile kernels.
#![expect(unsafe_code, reason = "methods that take a handle or an address have pre-conditions")]

use crate::backend::contract::{Address, StreamHandle};
use crate::base::error::Result;

/// The number that [`Kernels::compile`] gave a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProgramHandle(pub u64);

/// The number that [`Kernels::kernel`] gave a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelHandle(pub u64);

/// The input of [`Kernels::compile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgramSource<'a> {
    /// Text in the kind's language: OpenCL C.
    Text(&'a str),
    /// A portable binary: SPIR-V.
    Binary(&'a [u8]),
}

/// A parameter of a kernel, as the program declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelParameter {
    /// The parameter's name; empty if the program has no names.
    pub name: String,
    /// The parameter's type in the program's language; empty if the program has no type names.
    pub type_name: String,
    /// Which arguments of a launch this parameter accepts.
    pub class: ParameterClass,
}

/// The arguments that a kernel parameter accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParameterClass {
    /// Memory that the device can access.
    Pointer,
    /// Memory of each work-group, of a size that the launch sets.
    Local,
    /// A signed integer of this many bytes.
    Signed(u8),
    /// An unsigned integer of this many bytes.
    Unsigned(u8),
    /// A floating-point number of this many bytes.
    Float(u8),
    /// Undeclared, or a type without a counterpart in this crate. The driver checks the argument.
    Unknown,
}

/// An argument of [`Kernels::launch`], which must fit the parameter's [`ParameterClass`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LaunchArgument {
    /// An address that the device can access.
    Memory(Address),
    /// A number or structure, passed by value.
    Value(ValueBytes),
    /// Memory of each work-group, of this many bytes.
    Local(usize),
}

/// A kernel argument of 1 to 16 bytes, passed by value: the bytes as they lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueBytes {
    bytes: [u8; Self::MOST],
    count: u8,
}

impl ValueBytes {
    /// Largest size in bytes; pass larger values as [`LaunchArgument::Memory`].
    pub const MOST: usize = 16;

    /// Copies `value`. `None` if it is empty or larger than [`Self::MOST`].
    #[must_use]
    pub fn new(value: &[u8]) -> Option<Self> {
        let count = u8::try_from(value.len()).ok().filter(|count| *count > 0)?;
        let mut bytes = [0; Self::MOST];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
        Some(Self { bytes, count })
    }

    /// The value, from 1 to [`Self::MOST`] bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.count)]
    }
}

/// The number of work-items of a launch, in one to three dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchSize {
    /// Work-items in each dimension; 1 in the unused ones.
    pub global: [usize; 3],
    /// Work-items of a work-group in each dimension; with `None`, the driver chooses.
    pub local: Option<[usize; 3]>,
    /// Dimensions in use, from 1 to 3.
    pub dimensions: u32,
}

/// Compiles programs for a device and launches their kernels. A kernel may be released before its
/// launches are done, and a program before its kernels.
///
/// # Safety
/// As for [`Backend`](super::Backend). An implementation's launch runs only the kernel that it is
/// given, with only the arguments that it is given. Methods that are not `unsafe` are sound with
/// every argument.
pub unsafe trait Kernels: Send + Sync {
    /// Compiles a program for a device; blocks. `options` are in the compiler's own syntax.
    fn compile(
        &self,
        device_index: usize,
        source: ProgramSource<'_>,
        options: &str,
    ) -> Result<ProgramHandle>;

    /// Lists every kernel that the program defines.
    ///
    /// # Safety
    /// The program is live, as the [contract](super) defines it.
    unsafe fn kernel_names(&self, program: ProgramHandle) -> Result<Vec<String>>;

    /// Looks a kernel up by its name, one of [`Self::kernel_names`].
    ///
    /// # Safety
    /// The program is live.
    unsafe fn kernel(&self, program: ProgramHandle, name: &str) -> Result<KernelHandle>;

    /// Describes a kernel's parameters, in the order of their declaration.
    ///
    /// # Safety
    /// The kernel is live.
    unsafe fn parameters(&self, kernel: KernelHandle) -> Result<Vec<KernelParameter>>;

    /// Runs a kernel in stream order. Several threads may launch one kernel concurrently.
    ///
    /// # Safety
    /// Kernel and stream are live and of one device. The arguments have the number and the classes
    /// of the kernel's parameters. The kernel's accesses are sound: its memory is valid for the
    /// task, and memory that it writes is exclusive to the task.
    unsafe fn launch(
        &self,
        kernel: KernelHandle,
        stream: StreamHandle,
        arguments: &[LaunchArgument],
        size: &LaunchSize,
    ) -> Result<()>;

    /// Releases a kernel. Its launches may still be in progress.
    ///
    /// # Safety
    /// The kernel is live; the call ends its life.
    unsafe fn kernel_release(&self, kernel: KernelHandle) -> Result<()>;

    /// Releases a program. Its kernels remain live.
    ///
    /// # Safety
    /// The program is live; the call ends its life.
    unsafe fn program_release(&self, program: ProgramHandle) -> Result<()>;
}
