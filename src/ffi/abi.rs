//! The C calling convention: places arguments in registers and stack slots, calls any signature.
//!
//! Source: System V AMD64 ABI 1.0, section 3.2.3; Procedure Call Standard for the Arm 64-bit
//! Architecture, section 6.8.2.
//!
//! Both conventions have separate registers for integers and for floats. Integers fill their
//! registers in order, and floats fill theirs. Further arguments go to the stack in order, one word
//! each. The position of an integer among floats therefore does not affect its register. A register
//! that the function does not read may hold any value. One function type with all registers
//! therefore calls every signature. The caller must rule out functions with a variable number of
//! arguments, structures passed by value and results returned in memory.
#![expect(unsafe_code, reason = "calls a function whose signature only the caller knows")]

use crate::ffi::argument::{Argument, Word};

/// True on platforms with one of the two conventions. Windows assigns registers by an argument's
/// position, and Apple packs arguments on the stack.
pub(crate) const IS_KNOWN: bool = cfg!(any(
    all(target_arch = "x86_64", unix),
    all(target_arch = "aarch64", unix, not(target_vendor = "apple"))
));

/// The number of registers for integers and pointers.
const INTEGERS: usize = if cfg!(target_arch = "x86_64") { 6 } else { 8 };

/// The number of registers for floats, on both architectures.
const FLOATS: usize = 8;

/// The maximum number of stack words: of [`MAX_ARGUMENTS`], at least 6 are in registers.
const STACK: usize = MAX_ARGUMENTS - 6;

/// The number of stack words in the second of the three call variants.
const SHORT_STACK: usize = 8;

/// The maximum number of arguments of a call. The longest signatures of LAPACK have 29.
pub(crate) const MAX_ARGUMENTS: usize = 32;

/// The maximum number of arguments that a command stores without an allocation.
pub(crate) const MAX_SHORT: usize = 4;

/// The address of a function; [`CallFrame::call`] casts it to the type of the call.
pub(crate) type Function = unsafe extern "C" fn();

/// Up to [`MAX_SHORT`] arguments: integers from the front, floats from the back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortFrame([u64; MAX_SHORT]);

impl ShortFrame {
    /// Places at most [`MAX_SHORT`] arguments.
    #[inline]
    pub(super) fn new(arguments: &[Argument]) -> Self {
        // The loops have fixed bounds, so the compiler unrolls them. The words then stay in
        // registers on the way to the queue. Argument types known at compile time leave no branch.
        let (mut words, mut integers, mut floats) = ([0; MAX_SHORT], 0, 0);
        for index in 0..MAX_SHORT {
            let Some(argument) = arguments.get(index) else { break };
            let (word, at) = match argument.word() {
                Word::Integer(word) => {
                    integers += 1;
                    (word, integers - 1)
                }
                Word::Float(word) => {
                    floats += 1;
                    (word, MAX_SHORT - floats)
                }
            };
            for (index, slot) in words.iter_mut().enumerate() {
                *slot = if index == at { word } else { *slot };
            }
        }
        Self(words)
    }
}

/// Arguments in the registers and stack slots that the convention requires.
pub(crate) trait CallFrame: Send + 'static {
    /// Calls the function. The returned value is meaningful only if the function returns an `int`.
    ///
    /// # Safety
    /// A call of the function with these arguments must be allowed now. The function must return an
    /// integer of up to 32 bits, or a value that is ignored and not returned in memory.
    unsafe fn call(&self, function: Function) -> i32;

    /// The words among which pointers are.
    fn words(&self) -> Vec<u64>;
}

impl CallFrame for ShortFrame {
    fn words(&self) -> Vec<u64> {
        self.0.to_vec()
    }

    #[inline]
    unsafe fn call(&self, function: Function) -> i32 {
        type Call = unsafe extern "C" fn(u64, u64, u64, u64, f64, f64, f64, f64) -> i32;
        // SAFETY: only the type changes; both are addresses of functions.
        let function = unsafe { std::mem::transmute::<Function, Call>(function) };
        let words = self.0;
        let floats = words.map(f64::from_bits);
        // SAFETY: the caller guarantees that the call is allowed. The function's own type may
        // differ from `Call`. The optimiser does not know the function, so only the convention
        // matters: each argument is where the convention expects it, and registers without an
        // argument may hold any value.
        unsafe {
            function(
                words[0], words[1], words[2], words[3], //
                floats[3], floats[2], floats[1], floats[0],
            )
        }
    }
}

/// Up to [`MAX_ARGUMENTS`] arguments: the registers' words, and further words for the stack.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    integers: [u64; INTEGERS],
    floats: [f64; FLOATS],
    stack: [u64; STACK],
    stack_count: usize,
}

/// Calls `$function` with all registers and with the stack words of the given indices.
macro_rules! call {
    ($frame:ident, $function:ident, $stack:tt) => {{
        #[cfg(target_arch = "x86_64")]
        let returned = call!($frame, $function, [0 1 2 3 4 5], $stack);
        #[cfg(not(target_arch = "x86_64"))]
        let returned = call!($frame, $function, [0 1 2 3 4 5 6 7], $stack);
        returned
    }};
    ($frame:ident, $function:ident, [$($integer:literal)*], [$($stack:literal)*]) => {{
        type Call = unsafe extern "C" fn(
            $(word!($integer),)* f64, f64, f64, f64, f64, f64, f64, f64, $(word!($stack),)*
        ) -> i32;
        // SAFETY: only the type changes; both are addresses of functions.
        let function = unsafe { std::mem::transmute::<Function, Call>($function) };
        let Frame { integers, floats: x, stack, .. } = &**$frame;
        let _ = stack; // unused by the call without a stack
        // SAFETY: the caller guarantees that the call is allowed, and each argument is where the
        // convention expects it. The function does not read the stack words behind its arguments,
        // and its caller removes them.
        unsafe {
            function(
                $(integers[$integer],)*
                x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7],
                $(stack[$stack],)*
            )
        }
    }};
}

/// Expands to `u64` for each index, so that a repetition of indices gives a list of types.
macro_rules! word {
    ($number:literal) => {
        u64
    };
}

impl Frame {
    /// Places at most [`MAX_ARGUMENTS`] arguments.
    pub(super) fn new(arguments: &[Argument]) -> Self {
        let mut frame = Self {
            integers: [0; INTEGERS],
            floats: [0.0; FLOATS],
            stack: [0; STACK],
            stack_count: 0,
        };
        let (mut integers, mut floats) = (frame.integers.iter_mut(), frame.floats.iter_mut());
        for argument in arguments {
            let on_stack = match argument.word() {
                Word::Integer(word) => integers.next().map(|slot| *slot = word).is_none(),
                Word::Float(word) => {
                    floats.next().map(|slot| *slot = f64::from_bits(word)).is_none()
                }
            };
            if on_stack {
                let (Word::Integer(word) | Word::Float(word)) = argument.word();
                frame.stack[frame.stack_count] = word;
                frame.stack_count += 1;
            }
        }
        frame
    }
}

impl CallFrame for Box<Frame> {
    fn words(&self) -> Vec<u64> {
        [&self.integers, &self.stack[..self.stack_count]].concat()
    }

    unsafe fn call(&self, function: Function) -> i32 {
        match self.stack_count {
            0 => call!(self, function, []),
            1..=SHORT_STACK => call!(self, function, [0 1 2 3 4 5 6 7]),
            _ => call!(
                self, function,
                [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25]
            ),
        }
    }
}
