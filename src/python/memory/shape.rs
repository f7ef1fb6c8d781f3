//! Shapes of views, read from an argument with at most one inferred extent.

use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::python::memory::element::Element;
use crate::python::support::errors::wrong_type;
use crate::python::support::parameters::integer_of;

/// The number that stands for an inferred extent, as in NumPy.
pub(crate) const INFERRED: i64 = -1;

/// The bytes of all elements. In an empty shape, the product of the other extents may overflow.
pub(crate) fn bytes_of_shape(shape: &[usize], item_bytes: usize) -> usize {
    if shape.contains(&0) {
        return 0;
    }
    shape.iter().fold(item_bytes, |bytes, extent| bytes.saturating_mul(*extent))
}

/// Reads the extents in an integer or a sequence of integers. At most one is inferred.
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
    // The error shows the given number: `extents` has the nearest 64-bit number of a larger one.
    for (extent, item) in extents.iter().zip(&items) {
        let allowed = match *extent {
            i64::MAX => "fit an address",
            extent if extent < INFERRED => "be 0 or more, or -1 once",
            _ => continue,
        };
        let text = format!("an extent of a shape must {allowed}, not {}", item.str()?);
        return Err(PyValueError::new_err(text));
    }
    Ok(extents)
}

/// The shape for this number of bytes. With an extent of 0, no other extent can be inferred.
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
