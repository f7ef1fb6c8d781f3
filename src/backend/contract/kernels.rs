//! Compilers of kernels: the part of the contract for kinds that have one.
#![expect(unsafe_code, reason = "what takes a handle or an address asks for promises")]

use crate::backend::contract::{Address, StreamHandle};
use crate::base::error::Result;

/// A program made by [`Kernels::compile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProgramHandle(pub u64);

/// A kernel of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelHandle(pub u64);

/// The source of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramSource<'a> {
    /// Text in the language of the kind: OpenCL C.
    Text(&'a str),
    /// A portable binary of the kind: SPIR-V.
    Binary(&'a [u8]),
}

/// A parameter of a kernel, as the program declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelParameter {
    /// Its name; empty where a binary does not tell.
    pub name: String,
    /// Its type in the program's language; empty where a binary does not tell.
    pub type_name: String,
    /// The arguments that it accepts.
    pub class: ParameterClass,
}

/// The arguments that a parameter of a kernel accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterClass {
    /// Memory that the device reaches.
    Pointer,
    /// Memory of each work-group, of which the launch says how much.
    Local,
    /// A signed integer of so many bytes.
    Signed(u8),
    /// An unsigned integer of so many bytes.
    Unsigned(u8),
    /// A floating-point number of so many bytes.
    Float(u8),
    /// The program does not tell, or it is a type without a number of ours. The driver looks.
    Unknown,
}

/// An argument of a launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LaunchArgument {
    /// Memory that the device reaches.
    Memory(Address),
    /// A value, by its bytes.
    Value(ValueBytes),
    /// Memory of each work-group, of so many bytes.
    Local(usize),
}

/// The bytes of a value of at most 16, as they stand in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueBytes {
    bytes: [u8; Self::MOST],
    count: u8,
}

impl ValueBytes {
    /// More go by memory.
    pub const MOST: usize = 16;

    /// `None` when there are too many, or none.
    #[must_use]
    pub fn new(value: &[u8]) -> Option<Self> {
        let count = u8::try_from(value.len()).ok().filter(|count| *count > 0)?;
        let mut bytes = [0; Self::MOST];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
        Some(Self { bytes, count })
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.count)]
    }
}

/// How many work-items a launch has, in one to three dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchSize {
    /// Work-items in each dimension; 1 in those that are not used.
    pub global: [usize; 3],
    /// Work-items of a work-group in each dimension; `None`: the driver chooses.
    pub local: Option<[usize; 3]>,
    /// How many dimensions are used.
    pub dimensions: u32,
}

/// Programs that are compiled for a device, and their kernels. Handles are numbers of the backend.
/// A kernel may be given back before its launches are done, and a program before its kernels.
///
/// # Safety
/// As [`Backend`](super::Backend): a launch runs this kernel, with these arguments and no others.
/// Methods that are not `unsafe` are sound with every argument.
pub unsafe trait Kernels: Send + Sync {
    /// Compiles for a device; blocks. `options` are the compiler's.
    fn compile(
        &self,
        device_index: usize,
        source: ProgramSource<'_>,
        options: &str,
    ) -> Result<ProgramHandle>;

    /// The names of a program's kernels.
    ///
    /// # Safety
    /// The program is live: see the head of `contract`.
    unsafe fn kernel_names(&self, program: ProgramHandle) -> Result<Vec<String>>;

    /// A kernel by one of these names.
    ///
    /// # Safety
    /// The program is live.
    unsafe fn kernel(&self, program: ProgramHandle, name: &str) -> Result<KernelHandle>;

    /// The parameters of a kernel, in order.
    ///
    /// # Safety
    /// The kernel is live.
    unsafe fn parameters(&self, kernel: KernelHandle) -> Result<Vec<KernelParameter>>;

    /// Runs a kernel on a stream of its device. The arguments fit the parameters as far as these
    /// are known. Any thread may launch one kernel at any time.
    ///
    /// # Safety
    /// Kernel and stream are live, and of one device. The arguments are of the number and the
    /// classes that the kernel has. What the kernel does with them is sound: what it reads and
    /// writes is valid for the task, and it has alone what it writes.
    unsafe fn launch(
        &self,
        kernel: KernelHandle,
        stream: StreamHandle,
        arguments: &[LaunchArgument],
        size: &LaunchSize,
    ) -> Result<()>;

    /// Gives a kernel back.
    ///
    /// # Safety
    /// The kernel is live, and this ends it.
    unsafe fn kernel_release(&self, kernel: KernelHandle) -> Result<()>;

    /// Gives a program back.
    ///
    /// # Safety
    /// The program is live, and this ends it.
    unsafe fn program_release(&self, program: ProgramHandle) -> Result<()>;
}
