//! The C calling convention: the place of each argument, and calls that fit every signature.
//!
//! Source: System V AMD64 ABI 1.0, section 3.2.3; Procedure Call Standard for the Arm 64-bit
//! Architecture, section 6.8.2.
//!
//! Both conventions give integers and floats register files of their own, filled in order of the
//! arguments of that kind; arguments that find their file full go to the stack in order, one word
//! each. So only each argument's place matters, not the order of the kinds, and a register that the
//! function does not read may hold any value. One function type with all registers therefore calls
//! every signature, and the call interprets no signature. Not supported, which the caller has to
//! rule out: functions with a variable number of arguments, structures by value, results returned
//! in memory.
#![expect(unsafe_code, reason = "calls a function whose signature only the caller knows")]

use crate::ffi::argument::{Argument, Word};

/// True where the convention is one of those described above. Windows counts registers by position,
/// and Apple packs the stack.
pub(crate) const IS_KNOWN: bool = cfg!(any(
    all(target_arch = "x86_64", unix),
    all(target_arch = "aarch64", unix, not(target_vendor = "apple"))
));

/// Registers for integers and pointers.
const INTEGERS: usize = if cfg!(target_arch = "x86_64") { 6 } else { 8 };

/// Registers for floats.
const FLOATS: usize = 8;

/// The most words on the stack: when every argument is an integer, 26 at most find no register.
const STACK: usize = MAX_ARGUMENTS - 6;

/// Words on the stack in the second of the three call variants.
const SHORT_STACK: usize = 8;

/// The most arguments of a call. The longest signatures of LAPACK have 29.
pub(crate) const MAX_ARGUMENTS: usize = 32;

/// The most arguments that are stored in the command itself.
pub(crate) const MAX_SHORT: usize = 4;

/// A function of any signature.
pub(crate) type Function = unsafe extern "C" fn();

/// Up to [`MAX_SHORT`] arguments: integers from the front, floats from the back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortFrame([u64; MAX_SHORT]);

impl ShortFrame {
    /// Places arguments, of which there are at most [`MAX_SHORT`].
    #[inline]
    pub(super) fn new(arguments: &[Argument]) -> Self {
        // Loops with fixed bounds: unrolled, the words stay in registers on their way to the queue,
        // and with kinds known at compile time no branch is left.
        let (mut words, mut integers, mut floats) = ([0; MAX_SHORT], 0, 0);
        for place in 0..MAX_SHORT {
            let Some(argument) = arguments.get(place) else { break };
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
            for (place, there) in words.iter_mut().enumerate() {
                *there = if place == at { word } else { *there };
            }
        }
        Self(words)
    }

    /// Calls the function and returns its result, if it returns an `int`.
    ///
    /// # Safety
    /// The function may be called now with the arguments that this frame was made of. It returns an
    /// integer of up to 32 bits, or a value that is ignored and not returned in memory.
    #[inline]
    pub(crate) unsafe fn call(&self, function: Function) -> i32 {
        type Call = unsafe extern "C" fn(u64, u64, u64, u64, f64, f64, f64, f64) -> i32;
        // SAFETY: only the type changes; both are addresses of functions.
        let function = unsafe { std::mem::transmute::<Function, Call>(function) };
        let words = self.0;
        let floats = words.map(f64::from_bits);
        // SAFETY: that the call is allowed is the caller's promise. The type differs from the
        // function's, which only matters to the calling convention, since the optimiser does not
        // know the function: each argument is where the convention expects it, and registers
        // without an argument may hold any value.
        unsafe {
            function(
                words[0], words[1], words[2], words[3], //
                floats[3], floats[2], floats[1], floats[0],
            )
        }
    }
}

/// Any number of arguments up to [`MAX_ARGUMENTS`].
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    integers: [u64; INTEGERS],
    floats: [f64; FLOATS],
    stack: [u64; STACK],
    stack_count: usize,
}

/// Calls `$function` with the registers and these words of the stack.
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
        let Frame { integers, floats: x, stack, .. } = $frame;
        let _ = stack; // unused by the call without a stack
        // SAFETY: as in `ShortFrame::call`; the function does not read the stack words behind the
        // arguments, and the caller removes them.
        unsafe {
            function(
                $(integers[$integer],)*
                x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7],
                $(stack[$stack],)*
            )
        }
    }};
}

/// The type of a word, for any index.
macro_rules! word {
    ($number:literal) => {
        u64
    };
}

impl Frame {
    /// Places arguments, of which there are at most [`MAX_ARGUMENTS`].
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
                Word::Integer(word) => integers.next().map(|place| *place = word).is_none(),
                Word::Float(word) => {
                    floats.next().map(|place| *place = f64::from_bits(word)).is_none()
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

    /// Calls the function and returns its result, if it returns an `int`.
    ///
    /// # Safety
    /// As [`ShortFrame::call`].
    pub(crate) unsafe fn call(&self, function: Function) -> i32 {
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
