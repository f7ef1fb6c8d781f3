//! Every kind and number of arguments arrives as it was given.
//!
//! Method: functions compare what they get with constants, or write it to a place that their first
//! argument points to. The mixtures come from a table of all signatures with up to 6 arguments.

#![expect(clippy::many_single_char_names, reason = "arguments that differ by their place alone")]

use std::ffi::c_void;

use accelrt::{Argument, Device, Error, FfiCall, ProgramError};

use super::support::{call, launch, runtime};

/// Launches `function` with the address of a place in front of `arguments`; what it wrote there.
fn written<T: Default>(function: *const c_void, arguments: &[Argument]) -> T {
    let runtime = runtime();
    let stream = runtime.stream(Device::cpu(0)).unwrap();
    let mut place = T::default();
    let all = [&[Argument::from(&raw mut place)], arguments].concat();
    launch(&stream, call(function, &all)).unwrap();
    stream.synchronize().unwrap();
    place
}

#[test]
fn small_integers_arrive_with_their_sign() {
    extern "C" fn narrow(to: &mut [i64; 3], a: i8, b: i16, c: i32) {
        *to = [i64::from(a), i64::from(b), i64::from(c)];
    }
    let arguments = [Argument::I8(-3), Argument::I16(-300), Argument::I32(-70_000)];
    assert_eq!(written::<[i64; 3]>(narrow as _, &arguments), [-3, -300, -70_000]);
}

#[test]
fn integers_that_are_read_wider_than_given_are_extended() {
    // What compilers for these conventions may expect of a caller, and some do.
    extern "C" fn wide(to: &mut [i64; 3], a: i64, b: i64, c: i64) {
        *to = [a, b, c];
    }
    let signed = [Argument::I8(-1), Argument::I16(i16::MIN), Argument::I32(-2)];
    assert_eq!(written::<[i64; 3]>(wide as _, &signed), [-1, i64::from(i16::MIN), -2]);
    let unsigned = [Argument::U8(0xFF), Argument::U16(0xFFFF), Argument::U32(u32::MAX)];
    assert_eq!(written::<[i64; 3]>(wide as _, &unsigned), [0xFF, 0xFFFF, 0xFFFF_FFFF]);
}

#[test]
fn unsigned_and_long_integers_arrive() {
    extern "C" fn long(to: &mut [u64; 5], a: u8, b: u16, c: u32, d: u64, e: i64) {
        let words = [u64::from(a), u64::from(b), u64::from(c), d, e.cast_unsigned()];
        *to = words;
    }
    let arguments = [
        Argument::U8(200),
        Argument::U16(60_000),
        Argument::U32(4_000_000_000),
        Argument::U64(u64::MAX),
        Argument::I64(i64::MIN),
    ];
    let expected = [200, 60_000, 4_000_000_000, u64::MAX, 1 << 63];
    assert_eq!(written::<[u64; 5]>(long as _, &arguments), expected);
}

#[test]
fn floats_arrive_with_every_bit() {
    extern "C" fn bits(to: &mut [u64; 3], a: f32, b: f64, c: f32) {
        *to = [u64::from(a.to_bits()), b.to_bits(), u64::from(c.to_bits())];
    }
    let (quiet, tiny) = (f32::from_bits(0x7FC0_1234), f64::from_bits(1));
    let arguments = [quiet.into(), tiny.into(), Argument::F32(-0.0)];
    assert_eq!(written::<[u64; 3]>(bits as _, &arguments), [0x7FC0_1234, 1, 1 << 31]);
}

/// A function of `$count` integers behind the place, which are 1, 2, 3 and so on.
macro_rules! counted {
    ($($name:ident: $($argument:ident)*;)*) => {
        $({
            extern "C" fn $name(to: &mut u64, $($argument: u64),*) {
                let given: &[u64] = &[$($argument),*];
                let is_right = given.iter().copied().eq(1..=given.len() as u64);
                *to = if is_right { given.len() as u64 } else { u64::MAX };
            }
            let arguments: &[&str] = &[$(stringify!($argument)),*];
            let given: Vec<_> = (1..=arguments.len() as u64).map(Argument::U64).collect();
            assert_eq!(written::<u64>($name as _, &given), given.len() as u64);
        })*
    };
}

#[test]
fn any_number_of_words_up_to_the_most_arrives_in_order() {
    counted! {
        n1: ; n2: a; n3: a b; n4: a b c; n5: a b c d; n6: a b c d e; n7: a b c d e f;
        n8: a b c d e f g; n9: a b c d e f g h; n10: a b c d e f g h i;
        n14: a b c d e f g h i j k l m; n15: a b c d e f g h i j k l m n;
        n16: a b c d e f g h i j k l m n o;
        n31: a b c d e f g h i j k l m n o p q r s t u v w x y z aa bb cc dd;
        n32: a b c d e f g h i j k l m n o p q r s t u v w x y z aa bb cc dd ee;
    }
}

#[test]
#[expect(clippy::float_cmp, reason = "the values are handed through")]
fn floats_and_words_beyond_the_registers_keep_their_places() {
    #[rustfmt::skip]
    extern "C" fn long(
        to: &mut u64, a: f64, b: i32, c: f32, d: i64, e: f64, f: u8, g: f64, h: f64, i: u64,
        j: f64, k: f64, l: i16, m: f64, n: f64, o: f32, p: u64, q: f64, r: i8, s: f32,
    ) {
        let floats = [a, f64::from(c), e, g, h, j, k, m, n, f64::from(o), q, f64::from(s)];
        let expected = [1.0, 3.0, 5.0, 7.0, 8.0, 10.0, 11.0, 13.0, 14.0, 15.0, 17.0, 19.0];
        let (i, p) = (i.cast_signed(), p.cast_signed());
        let integers = [b.into(), d, f.into(), i, l.into(), p, r.into()];
        let is_right = floats == expected && integers == [-2, -4, 6, 9, -12, 16, -18];
        *to = u64::from(is_right);
    }
    let arguments: [Argument; 19] = [
        1_f64.into(),
        (-2_i32).into(),
        3_f32.into(),
        (-4_i64).into(),
        5_f64.into(),
        6_u8.into(),
        7_f64.into(),
        8_f64.into(),
        9_u64.into(),
        10_f64.into(),
        11_f64.into(),
        (-12_i16).into(),
        13_f64.into(),
        14_f64.into(),
        15_f32.into(),
        16_u64.into(),
        17_f64.into(),
        (-18_i8).into(),
        19_f32.into(),
    ];
    assert_eq!(written::<u64>(long as _, &arguments), 1);
}

/// The number from 1 to 9 that the value is; 0 for others.
fn digit<T: From<u8> + PartialEq>(value: &T) -> u64 {
    (1..=9_u8).find(|digit| T::from(*digit) == *value).map_or(0, u64::from)
}

/// Makes a function that writes its arguments as the digits of one number.
macro_rules! spelling {
    ($name:ident: $($argument:ident $kind:ident)*) => {
        extern "C" fn $name<$($kind: From<u8> + PartialEq),*>(
            to: &mut u64,
            $($argument: $kind),*
        ) {
            let digits = [$(digit(&$argument)),*];
            *to = digits.iter().fold(0, |number, digit| number * 10 + digit);
        }
    };
}

spelling!(three: a A b B c C);
spelling!(five: a A b B c C d D e E);

/// Pushes the function with each of its arguments as `i32`, `f32` and `f64`, and the arguments 1,
/// 2, 3 and so on of these types.
macro_rules! every_mixture {
    ($list:ident, $name:ident, [$($kind:ty),*]) => {{
        let mut digits = 1..;
        let arguments = [$(Argument::from(<$kind>::from(digits.next().unwrap_or(0_u8)))),*];
        $list.push(($name::<$($kind),*> as *const c_void, arguments.to_vec()));
    }};
    ($list:ident, $name:ident, [$($kind:ty),*] x $($more:ident)*) => {
        every_mixture!($list, $name, [$($kind,)* i32] $($more)*);
        every_mixture!($list, $name, [$($kind,)* f32] $($more)*);
        every_mixture!($list, $name, [$($kind,)* f64] $($more)*);
    };
}

#[test]
fn every_mixture_of_integers_floats_and_doubles_arrives_in_order() {
    // 27 signatures of 4 arguments, which stand in the command, and 243 of 6, which do not.
    let mut signatures: Vec<(*const c_void, Vec<Argument>)> = Vec::new();
    every_mixture!(signatures, three, [] x x x);
    every_mixture!(signatures, five, [] x x x x x);
    assert_eq!(signatures.len(), 27 + 243);
    for (function, arguments) in signatures {
        let expected = if arguments.len() == 3 { 123 } else { 12_345 };
        assert_eq!(written::<u64>(function, &arguments), expected, "{arguments:?}");
    }
}

#[test]
fn a_call_without_a_function_or_with_too_many_arguments_is_refused() {
    extern "C" fn nothing() {}
    let null = FfiCall::new(std::ptr::null(), &[]).unwrap_err();
    assert!(matches!(null, Error::Program(ProgramError::NullFunction)), "{null}");
    let arguments = [Argument::I32(0); 33];
    assert!(FfiCall::new(nothing as _, &arguments[..32]).is_ok());
    let many = FfiCall::new(nothing as _, &arguments).unwrap_err();
    assert!(
        matches!(many, Error::Program(ProgramError::TooManyArguments { count: 33, most: 32 })),
        "{many}"
    );
    assert!(many.to_string().contains("33 were given"), "{many}");
}
