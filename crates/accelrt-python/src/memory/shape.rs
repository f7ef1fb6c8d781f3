//! Reads the shape of a view from a Python argument, in which one extent may be inferred.

use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::memory::element::Element;
use crate::support::errors::wrong_type;
use crate::support::object_text::text_of;
use crate::support::parameters::integer_of;

/// The argument that requests an inferred extent, as in NumPy.
pub(crate) const INFERRED: i64 = -1;

/// The bytes of all elements: 0 if one extent is 0, however large the others are.
pub(crate) fn bytes_of_shape(shape: &[usize], item_bytes: usize) -> usize {
    if shape.contains(&0) {
        return 0;
    }
    shape.iter().fold(item_bytes, |bytes, extent| bytes.saturating_mul(*extent))
}

/// Reads extents from an integer or a sequence of integers. [`infer`] resolves an extent of -1.
pub(crate) fn read(shape: &Bound<'_, PyAny>) -> PyResult<Vec<i64>> {
    let wrong = || wrong_type("shape", "an integer or a sequence of them", shape);
    let items = match integer_of(shape)? {
        Some(_) => vec![shape.clone()],
        None => shape.extract().map_err(|_| wrong())?,
    };
    let extents: PyResult<Option<_>> = items.iter().map(integer_of).collect();
    let extents: Vec<i64> = extents?.ok_or_else(|| {
        let wrong = items.iter().find(|item| !matches!(integer_of(item), Ok(Some(_))));
        wrong_type("an extent of a shape", "an integer", wrong.unwrap_or(shape))
    })?;
    if extents.len() > ffi::PyBUF_MAX_NDIM {
        let text = format!("a shape has at most 64 dimensions, not {}", extents.len());
        return Err(PyValueError::new_err(text));
    }
    // The error shows the given number, because `extents` is clamped to 64 bits.
    for (extent, item) in extents.iter().zip(&items) {
        let allowed = match *extent {
            i64::MAX => "fit an address",
            extent if extent < INFERRED => "be 0 or more, or -1 once",
            _ => continue,
        };
        let text = format!("an extent of a shape must {allowed}, not {}", text_of(item)?);
        return Err(PyValueError::new_err(text));
    }
    Ok(extents)
}

/// Resolves an extent of -1 to match `bytes`; `ValueError` when no single extent does.
pub(crate) fn infer(extents: &[i64], element: Element, bytes: usize) -> PyResult<Vec<usize>> {
    let refusal = |text: String| Err(PyValueError::new_err(text));
    let inferred = extents.iter().filter(|extent| **extent == INFERRED).count();
    if inferred > 1 {
        let text = "can only specify one unknown dimension";
        return refusal(format!("{text}: shape {extents:?} has {inferred} of them"));
    }
    let mut known = extents.iter().filter_map(|extent| usize::try_from(*extent).ok());
    let known_bytes = known.try_fold(element.item_bytes, usize::checked_mul);
    let rest = match known_bytes {
        Some(known_bytes) if inferred == 0 && known_bytes == bytes => 1,
        Some(known_bytes)
            if inferred == 1 && known_bytes > 0 && bytes.is_multiple_of(known_bytes) =>
        {
            bytes / known_bytes
        }
        _ => {
            let name = element.name;
            let has = match known_bytes {
                None => "too many".to_owned(),
                Some(known_bytes) if inferred == 0 => known_bytes.to_string(),
                Some(known_bytes) => format!("a multiple of {known_bytes}"),
            };
            return refusal(format!("shape {extents:?} of {name} has {has} bytes, not {bytes}"));
        }
    };
    Ok(extents.iter().map(|extent| usize::try_from(*extent).unwrap_or(rest)).collect())
}
