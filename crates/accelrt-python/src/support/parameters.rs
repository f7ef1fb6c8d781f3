//! Reads flags, integers, slices and kinds of the Python API. Each error names its parameter.

use std::convert::Infallible;
use std::ops::Range;
use std::time::Duration;

use accelrt::DeviceKind;
use accelrt::internal::check_alignment;
use pyo3::Borrowed;
use pyo3::exceptions::{PyOverflowError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PySlice, PySliceMethods, PyTuple};

use crate::support::errors::{OrRaise, wrong_type};
use crate::support::object_text::text_of;

/// A `bool` parameter. Extraction accepts any object, so that `get` can raise our own error.
pub(crate) enum Flag<'py> {
    Is(bool),
    Wrong(Bound<'py, PyAny>),
}

impl Flag<'_> {
    /// Returns the flag. The `TypeError` for another object names the parameter `what`.
    #[inline]
    pub(crate) fn get(self, what: &str) -> PyResult<bool> {
        match self {
            Self::Is(flag) => Ok(flag),
            Self::Wrong(given) => Err(wrong_type(what, "True or False", &given)),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Flag<'py> {
    type Error = Infallible;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> Result<Self, Infallible> {
        // Accepts NumPy's bool too.
        Ok(object.extract().map_or_else(|_| Self::Wrong(object.to_owned()), Self::Is))
    }
}

/// Arguments by name, for a class whose constructor has several signatures (`forms`).
pub(crate) struct NamedArguments<'py> {
    named: Vec<(String, Bound<'py, PyAny>)>,
    forms: &'static str,
}

impl<'py> NamedArguments<'py> {
    /// Gives the positional arguments the names in `positions`. Fails for too many or repeated
    /// arguments, with `forms` in the message.
    pub(crate) fn read(
        positions: &[&str],
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        forms: &'static str,
    ) -> PyResult<Self> {
        if args.len() > positions.len() {
            return Err(PyTypeError::new_err(format!("too many arguments: it is {forms}")));
        }
        let mut named: Vec<_> =
            positions.iter().map(|name| (*name).to_owned()).zip(args.iter()).collect();
        for (name, value) in kwargs.into_iter().flatten() {
            let name: String = name.extract()?;
            if named.iter().any(|(known, _)| *known == name) {
                return Err(PyTypeError::new_err(format!("{name} comes twice: it is {forms}")));
            }
            named.push((name, value));
        }
        Ok(Self { named, forms })
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<Bound<'py, PyAny>> {
        let place = self.named.iter().position(|(given, _)| given == name);
        place.map(|place| self.named.swap_remove(place).1)
    }

    /// Removes and returns an integer argument. Fails when it is missing or exceeds 64 bits.
    pub(crate) fn integer(&mut self, name: &str) -> PyResult<i64> {
        let forms = self.forms;
        let missing = || PyTypeError::new_err(format!("{name} is missing: it is {forms}"));
        let given = self.take(name).ok_or_else(missing)?;
        match integer(name, &given)? {
            i64::MIN | i64::MAX => {
                let text = format!("{name} must be a number of 64 bits, not {}", text_of(&given)?);
                Err(PyRuntimeError::new_err(text))
            }
            number => Ok(number),
        }
    }

    /// Removes and returns a flag; false when the argument is missing.
    pub(crate) fn flag(&mut self, name: &str) -> PyResult<bool> {
        self.take(name).map_or(Ok(false), |given| given.extract::<Flag<'_>>()?.get(name))
    }

    /// Removes and returns the device. None counts as missing.
    pub(crate) fn device(&mut self) -> Option<Bound<'py, PyAny>> {
        self.take("device").filter(|device| !device.is_none())
    }

    pub(crate) fn end(self) -> PyResult<()> {
        let Some((name, _)) = self.named.first() else { return Ok(()) };
        let text = format!("unexpected argument {name:?}: it is {}", self.forms);
        Err(PyTypeError::new_err(text))
    }
}

/// The number in an int or an object with `__index__`; `None` for other objects and for a bool. A
/// number beyond 64 bits becomes `i64::MIN` or `i64::MAX`, which every parameter refuses.
#[inline]
pub(crate) fn integer_of(object: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if object.is_instance_of::<PyBool>() {
        return Ok(None);
    }
    match object.extract() {
        Ok(number) => Ok(Some(number)),
        Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => {
            Ok(Some(if object.lt(0)? { i64::MIN } else { i64::MAX }))
        }
        Err(_) => Ok(None),
    }
}

/// As [`integer_of`], with a `TypeError` that names the parameter `what` instead of `None`.
#[inline]
pub(crate) fn integer(what: &str, object: &Bound<'_, PyAny>) -> PyResult<i64> {
    integer_of(object)?.ok_or_else(|| wrong_type(what, "an integer", object))
}

#[inline]
pub(crate) fn size(what: &str, object: &Bound<'_, PyAny>) -> PyResult<usize> {
    let number = integer(what, object)?;
    if let (Ok(size), true) = (usize::try_from(number), number < i64::MAX) {
        return Ok(size);
    }
    let given = text_of(object)?;
    let text = format!("{what} must be 0 or more and fit an address, not {given}");
    Err(PyValueError::new_err(text))
}

/// Reads an alignment in bytes, a power of two up to 2 MiB. None counts as 1.
pub(crate) fn alignment(object: Option<&Bound<'_, PyAny>>) -> PyResult<usize> {
    let Some(object) = object else { return Ok(1) };
    let align_bytes = usize::try_from(integer("alignment", object)?).unwrap_or(0);
    check_alignment(align_bytes, &text_of(object)?).or_raise()?;
    Ok(align_bytes)
}

/// Reads the limit of a wait, in seconds. None is no limit, nor is a number beyond all clocks.
pub(crate) fn timeout_argument(object: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    let Some(object) = object else { return Ok(None) };
    let seconds = match object.extract::<f64>() {
        Ok(seconds) => seconds,
        Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => {
            if object.lt(0)? {
                f64::NEG_INFINITY
            } else {
                f64::INFINITY
            }
        }
        Err(_) => return Err(wrong_type("timeout", "a number of seconds or None", object)),
    };
    if seconds.is_nan() || seconds < 0.0 {
        let text = format!("timeout must be 0 seconds or more, not {}", text_of(object)?);
        return Err(PyValueError::new_err(text));
    }
    Ok(Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)))
}

/// The range that the slice `key` selects of `count` items. Errors for other keys name `class`.
pub(crate) fn range(class: &str, key: &Bound<'_, PyAny>, count: usize) -> PyResult<Range<usize>> {
    let expected = || wrong_type(&format!("a {class}'s index"), "a slice", key);
    let key = key.cast::<PySlice>().map_err(|_| expected())?;
    let range = key.indices(isize::try_from(count).unwrap_or(isize::MAX))?;
    if range.step != 1 {
        let text = format!("a {class} is sliced with step 1, not {}", range.step);
        return Err(PyValueError::new_err(text));
    }
    let start = usize::try_from(range.start).unwrap_or(0);
    Ok(start..start + range.slicelength)
}

/// Reads two integers, each as [`integer_of`].
pub(crate) fn pair(what: &str, object: Option<&Bound<'_, PyAny>>) -> PyResult<Option<(i64, i64)>> {
    let Some(object) = object else { return Ok(None) };
    let wrong = || wrong_type(what, "a tuple of two integers or None", object);
    let (first, second) = object.extract::<(Bound<'_, _>, Bound<'_, _>)>().map_err(|_| wrong())?;
    let pair = integer_of(&first)?.zip(integer_of(&second)?);
    pair.map(Some).ok_or_else(wrong)
}

/// Reads the name of a kind.
pub(crate) fn kind_argument(kind: &str) -> PyResult<DeviceKind> {
    DeviceKind::from_name(kind).ok_or_else(|| {
        let names = DeviceKind::names();
        PyTypeError::new_err(format!("kind must be one of {names}, not {kind:?}"))
    })
}
