//! FFI calls: a C function with its arguments, which a stream calls later.
#![expect(unsafe_code, reason = "an address becomes a function, which is not called here")]

use std::ffi::c_void;
use std::mem;

use crate::base::error::{Error, ProgramError, Result};
use crate::ffi::abi::{Frame, Function, MAX_ARGUMENTS, MAX_SHORT, ShortFrame};
use crate::ffi::argument::Argument;

/// A function of the C calling convention and its arguments, for
/// [`Stream::launch`](crate::Stream::launch).
///
/// A call has at most 32 arguments. A call with more than 4 arguments allocates memory for them.
/// The stream ignores the function's result, unless the call is [checked](FfiCall::checked).
///
/// ```
/// use accelrt::{Argument, Error, FfiCall};
/// extern "C" fn scale(values: *mut f32, count: usize, factor: f32) -> i32 {
///     let values = unsafe { std::slice::from_raw_parts_mut(values, count) };
///     values.iter_mut().for_each(|value| *value *= factor);
///     0
/// }
/// let mut values = [1.0_f32, 2.0];
/// let arguments = [Argument::from(&raw mut values), 2_usize.into(), 0.5_f32.into()];
/// let call = FfiCall::new(scale as *const _, &arguments)?.checked();
/// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
/// # let stream = runtime.stream(accelrt::Device::cpu(0))?;
/// // SAFETY: the types are those of `scale`, and `values` outlives the synchronise.
/// unsafe { stream.launch(call)? };
/// stream.synchronize()?;
/// assert_eq!(values, [0.5, 1.0]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FfiCall {
    function: Function,
    arguments: PlacedArguments,
    is_checked: bool,
    is_blocking: bool,
}

/// The arguments as the C convention requires them; more than [`MAX_SHORT`] are boxed.
#[derive(Clone, Debug)]
pub(crate) enum PlacedArguments {
    Short(ShortFrame),
    Long(Box<Frame>),
}

impl FfiCall {
    /// Describes a call of the function at this address. Only a launch calls the function.
    ///
    /// Fails when the address is null, and when there are more than 32 arguments.
    #[inline]
    #[expect(
        clippy::not_unsafe_ptr_arg_deref,
        reason = "kept, not used: `Stream::launch` is unsafe and asks for what a call needs"
    )]
    pub fn new(function: *const c_void, arguments: &[Argument]) -> Result<Self> {
        // SAFETY: null becomes `None`, and any other address is a valid function pointer value. The
        // caller of `Stream::launch` guarantees that a function is there.
        let function = unsafe { mem::transmute::<*const c_void, Option<Function>>(function) };
        let Some(function) = function else {
            return Err(Error::Program(ProgramError::NullFunction));
        };
        let arguments = if arguments.len() <= MAX_SHORT {
            PlacedArguments::Short(ShortFrame::new(arguments))
        } else {
            Self::place_long(arguments)?
        };
        Ok(Self { function, arguments, is_checked: false, is_blocking: false })
    }

    #[cold]
    #[inline(never)]
    fn place_long(arguments: &[Argument]) -> Result<PlacedArguments> {
        if arguments.len() > MAX_ARGUMENTS {
            let (count, most) = (arguments.len(), MAX_ARGUMENTS);
            return Err(Error::Program(ProgramError::TooManyArguments { count, most }));
        }
        Ok(PlacedArguments::Long(Box::new(Frame::new(arguments))))
    }

    /// Makes the stream check the returned `int`: a status other than 0 fails the stream.
    #[must_use]
    #[inline]
    pub fn checked(mut self) -> Self {
        self.is_checked = true;
        self
    }

    /// True after [`FfiCall::checked`].
    #[must_use]
    #[inline]
    pub fn is_checked(&self) -> bool {
        self.is_checked
    }

    /// Announces that the function blocks its thread, as one that sleeps or reads does. Another
    /// worker serves the device's streams meanwhile, and no waiting thread executes the call.
    #[must_use]
    pub fn blocking(mut self) -> Self {
        self.is_blocking = true;
        self
    }

    /// True after [`FfiCall::blocking`].
    #[must_use]
    #[inline]
    pub fn is_blocking(&self) -> bool {
        self.is_blocking
    }

    #[inline]
    pub(crate) fn into_parts(self) -> (Function, PlacedArguments) {
        (self.function, self.arguments)
    }
}
