//! Kernel launches: the call checks the arguments and enqueues the launch as a task of a stream.
#![expect(
    unsafe_code,
    reason = "the caller of a launch guarantees that the kernel's accesses are sound"
)]

use std::iter;
use std::sync::Arc;

use crate::backend::contract::{
    Address, KernelParameter, LaunchArgument, LaunchSize, ParameterClass, ValueBytes,
};
use crate::base::error::{Error, FailureCause, MemoryError, ProgramError, Result};
use crate::compute::Kernel;
use crate::compute::handle::KernelCore;
use crate::engine::log::context::NameId;
use crate::engine::stream::Stream;
use crate::engine::stream::core::TaskContext;
use crate::engine::stream::enqueue::Checked;
use crate::engine::stream::task::{Details, MemoryAccess, OperationKind};
use crate::ffi::Argument;
use crate::memory::buffer::Buffer;
use crate::queue::{Class, Command};

/// A launch as the queue stores it. The launch stores addresses instead of buffers: each buffer's
/// memory is freed only after its recorded uses.
pub(crate) struct Launch {
    kernel: Arc<KernelCore>,
    arguments: Box<[LaunchArgument]>,
    size: LaunchSize,
}

impl Command<TaskContext> for Launch {
    const CLASS: Class = Class::User;
    const OPERATION: OperationKind = OperationKind::Kernel;

    fn details(&self) -> Details {
        let memory = self.arguments.iter().filter_map(|argument| match argument {
            LaunchArgument::Memory(address) => Some(MemoryAccess::unknown(*address)),
            _ => None,
        });
        let name = NameId::of(self.kernel.name());
        Details { accesses: memory.collect(), name, ..Details::default() }
    }

    fn run(self, context: &mut TaskContext) {
        // A host access may wait for this launch, so the launch is a marker.
        context.is_marker = true;
        let Self { kernel, arguments, size } = self;
        let launched = kernel.kernels().and_then(|kernels| {
            // SAFETY: the task holds the kernel; `launch_kernel` has checked its backend and
            // device, and the number and classes of the arguments. The caller of `launch_kernel`
            // upholds that the kernel's accesses are sound.
            unsafe { context.handle.launch(kernels, kernel.handle, &arguments, &size) }
        });
        if let Err(refusal) = launched {
            context.fail(FailureCause::Backend(refusal));
        }
    }
}

impl Stream {
    /// Enqueues a kernel. `global_size` is the number of work-items in each of one to three
    /// dimensions. Without a local size, the driver chooses the size of a work-group. Does not
    /// block, except as [`Stream::enqueue`]. Returns the task's ticket. The launch records its
    /// buffers' uses, so the caller may drop the buffers at once.
    ///
    /// Fails when the kernel is of another device, an argument does not fit the kernel's parameter,
    /// a buffer was released or is of another device or runtime, a size is zero or has too many
    /// dimensions, after a shutdown and in a forked child. A failed call enqueues nothing. If the
    /// driver refuses the launch later, the stream fails.
    ///
    /// ```
    /// use accelrt_testing::null::{NullBackend, NullConfig};
    /// # use accelrt::{Config, Device, DeviceKind, ProgramSource, Runtime};
    /// let null = NullBackend::new(NullConfig::default()); // numbers in place of a device
    /// # let runtime = Runtime::with_backends(Config::default(), [null as _])?;
    /// # let device = Device::new(DeviceKind::NULL, 0)?;
    /// let text = "kernel void scale(global float* x, float by) { x[get_global_id(0)] *= by; }";
    /// let scale = runtime.compile(device, ProgramSource::Text(text), "")?.kernel("scale")?;
    /// let (stream, buffer) = (runtime.stream(device)?, runtime.zeros(4000, device)?);
    /// let arguments = [(&buffer).into(), 0.5_f32.into()];
    /// // SAFETY: the buffer has a float for each of the 1000 work-items.
    /// unsafe { stream.launch_kernel(&scale, &arguments, &[1000], None)? };
    /// stream.synchronize()?;
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    ///
    /// # Safety
    /// The kernel, with this many work-items, accesses only the memory of the buffers and of the
    /// given addresses. No other code accesses this memory out of stream order. For a parameter
    /// without a declared type, the argument has the type that the kernel expects.
    pub unsafe fn launch_kernel(
        &self,
        kernel: &Kernel,
        arguments: &[KernelArgument<'_>],
        global_size: &[usize],
        local_size: Option<&[usize]>,
    ) -> Result<u64> {
        let sizes = (global_size, local_size);
        // SAFETY: the caller upholds the same conditions. An empty `writes` contains no declaration
        // that could be wrong.
        unsafe { self.launch_kernel_with_uses(kernel, arguments, sizes, &[]) }
    }

    /// As [`Stream::launch_kernel`]. `writes` declares, for each argument, whether the kernel
    /// writes the argument's buffer. After a declaration, the kernel may access only the bytes of
    /// that argument's view. `None` or a missing entry declares nothing.
    ///
    /// # Safety
    /// As for [`Stream::launch_kernel`]. The declarations in `writes` are correct.
    #[doc(hidden)]
    pub unsafe fn launch_kernel_with_uses(
        &self,
        kernel: &Kernel,
        arguments: &[KernelArgument<'_>],
        (global_size, local_size): (&[usize], Option<&[usize]>),
        writes: &[Option<bool>],
    ) -> Result<u64> {
        let launch = self.kernel_task(kernel, arguments, global_size, local_size)?;
        let declared = writes.iter().copied().chain(iter::repeat(None));
        let uses = arguments.iter().zip(declared).filter_map(|(argument, writes)| match argument {
            KernelArgument::Buffer(buffer) => Some((*buffer, writes)),
            _ => None,
        });
        let uses: Vec<_> = uses.collect();
        if let Some((buffer, _)) = uses.iter().find(|(it, _)| !it.is_reached_by(self.device())) {
            let (buffer, stream) = (buffer.device(), self.device());
            return Err(Error::Memory(MemoryError::DeviceMismatch { buffer, stream }));
        }
        self.enqueue_using(&uses, || Ok(self.core().enqueue(launch, Checked)?.ticket))
    }

    /// Checks the kernel, the arguments and the sizes, and creates the launch without enqueuing it.
    #[doc(hidden)]
    pub fn kernel_task(
        &self,
        kernel: &Kernel,
        arguments: &[KernelArgument<'_>],
        global_size: &[usize],
        local_size: Option<&[usize]>,
    ) -> Result<impl Command<TaskContext> + use<>> {
        self.check_kernel(kernel)?;
        let (expected, given) = (kernel.parameters().len(), arguments.len());
        if expected != given {
            let kernel = kernel.name().to_owned();
            return Err(Error::Program(ProgramError::ArgumentCount { kernel, expected, given }));
        }
        let size = launch_size(kernel.name(), global_size, local_size)?;
        let launch_argument = arguments.iter().enumerate();
        let launch_argument =
            launch_argument.map(|(index, argument)| argument.launch_argument(kernel, index));
        let arguments = launch_argument.collect::<Result<Box<[_]>>>()?;
        Ok(Launch { kernel: Arc::clone(kernel.core()), arguments, size })
    }

    fn check_kernel(&self, kernel: &Kernel) -> Result<()> {
        let (core, compiled) = (self.core(), kernel.device());
        let is_own_runtimes = Arc::ptr_eq(&core.backend, kernel.core().backend());
        if is_own_runtimes && compiled == self.device() {
            return Ok(());
        }
        let (kernel, stream, on_host) = (kernel.name().to_owned(), self.device(), core.on_host);
        Err(Error::Program(ProgramError::DeviceMismatch { kernel, compiled, stream, on_host }))
    }
}

const EXTENTS: &str = "allowed are 1 to 3 positive numbers";

/// Checks the sizes of a launch. A local size must have the global size's number of dimensions, and
/// divide the global size in each of them.
pub(super) fn launch_size(
    kernel: &str,
    global: &[usize],
    local: Option<&[usize]>,
) -> Result<LaunchSize> {
    let refused = |what, given: &[usize], allowed| {
        let (kernel, given) = (kernel.to_owned(), given.to_vec());
        Error::Program(ProgramError::LaunchSize { kernel, what, given, allowed })
    };
    let extents =
        |what, given: &[usize]| extents(given).ok_or_else(|| refused(what, given, EXTENTS));
    let size = LaunchSize {
        global: extents("a global size", global)?,
        local: local.map(|local| extents("a local size", local)).transpose()?,
        dimensions: u32::try_from(global.len()).unwrap_or(0), // at most 3: `extents` has checked it
    };
    let Some(local) = local else { return Ok(size) };
    if local.len() != global.len() {
        let allowed = "the global size has another number of dimensions";
        return Err(refused("a local size", local, allowed));
    }
    if global.iter().zip(local).any(|(global, local)| !global.is_multiple_of(*local)) {
        let allowed = "it must divide the global size in each dimension";
        return Err(refused("a local size", local, allowed));
    }
    Ok(size)
}

/// Fills unused dimensions with 1. `None` unless `given` has 1 to 3 numbers, all positive.
fn extents(given: &[usize]) -> Option<[usize; 3]> {
    let is_right = (1..=3).contains(&given.len()) && given.iter().all(|extent| *extent > 0);
    is_right.then(|| std::array::from_fn(|place| given.get(place).copied().unwrap_or(1)))
}

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
