//! Converts a Python number to the bytes of one element, for fills.

use std::ops::RangeInclusive;

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyInt};

use crate::memory::element::Element;
use crate::memory::small_float::SmallFloat;
use crate::support::errors::wrong_type;
use crate::support::object_text::{text_of, type_name};

/// Converts a number to the bytes of an element. `TypeError` unless the number's kind fits the
/// type, `OverflowError` when the number is out of the type's range.
pub(crate) fn bytes_of(element: Element, value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let Element { name, item_bytes, .. } = element;
    if name == "bool" {
        let is_number = value.is_instance_of::<PyBool>() || value.is_instance_of::<PyInt>();
        let expected = || wrong_type("value", "True or False", value);
        let is_flag = is_number || value.get_type().name()?.to_string_lossy().starts_with("bool");
        return if is_flag { Ok(vec![u8::from(value.is_truthy()?)]) } else { Err(expected()) };
    }
    if let Some(is_signed) = element.integer_sign() {
        return integer(element, is_signed, value);
    }
    match name {
        "complex64" | "complex128" => {
            let (real, imaginary) = complex(value)?;
            let part = |number| float(name, item_bytes / 2, number);
            Ok([part(real)?, part(imaginary)?].concat())
        }
        _ => float(name, item_bytes, real(value)?),
    }
}

fn integer(element: Element, is_signed: bool, value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let Element { name, item_bytes, .. } = element;
    let is_integer = !value.is_instance_of::<PyBool>() && value.hasattr("__index__")?;
    if !is_integer {
        return Err(wrong_type("value", &format!("an integer for {name}"), value));
    }
    // Numbers beyond 128 bits are out of range too: `extract` fails for them.
    let range = integer_range(item_bytes, is_signed);
    let number = value.extract::<i128>().ok().filter(|number| range.contains(number));
    let Some(number) = number else {
        let (least, most) = range.into_inner();
        let text = format!("value must be {least} to {most} for {name}, not {}", text_of(value)?);
        return Err(PyOverflowError::new_err(text));
    };
    Ok(native(&number.to_le_bytes()[..item_bytes]))
}

/// The range of an integer type of at most 8 bytes.
pub(crate) fn integer_range(bytes: usize, is_signed: bool) -> RangeInclusive<i128> {
    let count = 1_i128 << (8 * bytes);
    if is_signed { -(count / 2)..=count / 2 - 1 } else { 0..=count - 1 }
}

fn native(little: &[u8]) -> Vec<u8> {
    let mut bytes = little.to_vec();
    if cfg!(target_endian = "big") {
        bytes.reverse();
    }
    bytes
}

fn float(name: &str, item_bytes: usize, number: f64) -> PyResult<Vec<u8>> {
    let overflow = || PyOverflowError::new_err(format!("{name} has no number such as {number:?}"));
    if name == "float8_e8m0fnu" {
        return exponent(number).map(|bits| vec![bits]).ok_or_else(|| {
            let text = format!("{name} has powers of two from 2**-127 to 2**127, not {number:?}");
            PyOverflowError::new_err(text)
        });
    }
    if let Some(format) = SmallFloat::named(name) {
        let bits = format.bits(number).ok_or_else(overflow)?;
        return Ok(native(&bits.to_le_bytes()[..item_bytes]));
    }
    if item_bytes == size_of::<f64>() {
        return Ok(number.to_ne_bytes().to_vec());
    }
    #[expect(clippy::cast_possible_truncation, reason = "rounded to the nearest")]
    let single = number as f32;
    if single.is_infinite() && number.is_finite() {
        Err(overflow())
    } else {
        Ok(single.to_ne_bytes().to_vec())
    }
}

/// Encodes a power of two or a NaN as `float8_e8m0fnu`. `None` for all other numbers.
fn exponent(number: f64) -> Option<u8> {
    if number.is_nan() {
        return Some(0xff);
    }
    let exponent = i32::try_from(number.to_bits() >> 52).ok()? - 1023;
    // A negative number is out of range, because its sign bit makes this exponent too large.
    let is_power = number.to_bits().trailing_zeros() >= 52 && exponent.abs() <= 127;
    is_power.then(|| u8::try_from(exponent + 127).ok())?
}

fn real(value: &Bound<'_, PyAny>) -> PyResult<f64> {
    value.extract().map_err(|error: PyErr| {
        let is_number = !error.is_instance_of::<PyTypeError>(value.py());
        // Among numbers, `extract` fails only for an int that is too large for a double.
        if is_number { error } else { wrong_type("value", "a number", value) }
    })
}

fn complex(value: &Bound<'_, PyAny>) -> PyResult<(f64, f64)> {
    if !value.hasattr("__complex__")? && !value.is_instance_of::<PyComplex>() {
        return Ok((real(value)?, 0.0));
    }
    let class = value.py().get_type::<PyComplex>();
    let number = class.call1((value,)).map_err(|_| {
        PyTypeError::new_err(format!("value must be a number, not {}", type_name(value)))
    })?;
    Ok((number.getattr("real")?.extract()?, number.getattr("imag")?.extract()?))
}
