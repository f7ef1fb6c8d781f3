//! The element types of a view: those of NumPy, the buffer protocol and DLPack.
//!
//! NumPy and the buffer protocol lack some of DLPack's types. They see such elements as bytes.

use std::ffi::CString;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::support::errors::wrong_type;
use crate::support::object_text::text_of;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Element {
    /// The type's name in NumPy; a type that NumPy lacks has DLPack's name.
    pub(crate) name: &'static str,
    /// The kind letter in NumPy's array interface. [`UNNAMED`] for types that NumPy lacks.
    kind: char,
    /// The format letters of the buffer protocol.
    format: &'static str,
    pub(crate) item_bytes: usize,
    /// DLPack's type code.
    pub(crate) code: u8,
}

const fn element(
    name: &'static str,
    kind: char,
    format: &'static str,
    item_bytes: usize,
    code: u8,
) -> Element {
    Element { name, kind, format, item_bytes, code }
}

const UNNAMED: char = 'x';

const ELEMENTS: [Element; 20] = [
    element("bool", 'b', "?", 1, 6),
    element("int8", 'i', "b", 1, 0),
    element("int16", 'i', "h", 2, 0),
    element("int32", 'i', "i", 4, 0),
    element("int64", 'i', "q", 8, 0),
    element("uint8", 'u', "B", 1, 1),
    element("uint16", 'u', "H", 2, 1),
    element("uint32", 'u', "I", 4, 1),
    element("uint64", 'u', "Q", 8, 1),
    element("float16", 'f', "e", 2, 2),
    element("float32", 'f', "f", 4, 2),
    element("float64", 'f', "d", 8, 2),
    element("complex64", 'c', "Zf", 8, 5),
    element("complex128", 'c', "Zd", 16, 5),
    element("bfloat16", UNNAMED, "", 2, 4),
    element("float8_e4m3fn", UNNAMED, "", 1, 10),
    element("float8_e4m3fnuz", UNNAMED, "", 1, 11),
    element("float8_e5m2", UNNAMED, "", 1, 12),
    element("float8_e5m2fnuz", UNNAMED, "", 1, 13),
    element("float8_e8m0fnu", UNNAMED, "", 1, 14),
];

pub(crate) const BYTE: Element = element("uint8", 'u', "B", 1, 1);

/// NumPy's other names of types, and those of Python's classes, on 64-bit Unix systems.
const ALIASES: [(&str, &str); 23] = [
    ("bool_", "bool"),
    ("byte", "int8"),
    ("ubyte", "uint8"),
    ("short", "int16"),
    ("ushort", "uint16"),
    ("intc", "int32"),
    ("uintc", "uint32"),
    ("int", "int64"),
    ("int_", "int64"),
    ("intp", "int64"),
    ("long", "int64"),
    ("longlong", "int64"),
    ("uint", "uint64"),
    ("uintp", "uint64"),
    ("ulong", "uint64"),
    ("ulonglong", "uint64"),
    ("half", "float16"),
    ("single", "float32"),
    ("float", "float64"),
    ("double", "float64"),
    ("csingle", "complex64"),
    ("complex", "complex128"),
    ("cdouble", "complex128"),
];

impl Element {
    /// Reads an element type as NumPy does, from a dtype, a scalar class, a class of Python, or a
    /// text such as "float32", "f4" or "<f4". `TypeError` for other types and byte orders.
    pub(crate) fn extract(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let name = if let Ok(name) = object.cast::<PyString>() {
            name.to_string_lossy().into_owned()
        } else if let Ok(class) = object.cast::<PyType>() {
            class.name()?.to_string_lossy().into_owned()
        } else {
            let expected = || wrong_type("dtype", "a NumPy dtype or its name", object);
            let name = object.getattr("name").map_err(|_| expected())?;
            let is_native = object.getattr("isnative").and_then(|native| native.extract());
            if !is_native.unwrap_or(true) {
                return Err(wrong_order(&text_of(object)?));
            }
            name.extract::<String>().map_err(|_| expected())?
        };
        Self::of_name(&name)
    }

    fn of_name(name: &str) -> PyResult<Self> {
        let orders = ['<', '>', '=', '|'];
        let code = name.strip_prefix(orders).unwrap_or(name);
        let found = Self::of_code(code).or_else(|| {
            // NumPy allows a byte order only before a code: no name has one.
            let full = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |it| it.1);
            ELEMENTS.iter().find(|element| element.name == full).copied()
        });
        let other = if cfg!(target_endian = "little") { '>' } else { '<' };
        match found {
            Some(element) if element.item_bytes > 1 && name.starts_with(other) => {
                Err(wrong_order(name))
            }
            Some(element) => Ok(element),
            None => {
                let text = format!("dtype must be one of {}, not {name}", Self::names());
                Err(PyTypeError::new_err(text))
            }
        }
    }

    /// The element type of a code of NumPy: a letter of the buffer protocol, or a kind and a size
    /// in bytes.
    fn of_code(code: &str) -> Option<Self> {
        let letters = match code {
            "l" | "n" | "p" => "q",
            "L" | "N" | "P" => "Q",
            "F" => "Zf",
            "D" => "Zd",
            _ if code.len() == 1 => code,
            _ => "",
        };
        let by_letter = |it: &&Self| it.kind != UNNAMED && it.format == letters;
        if let Some(element) = ELEMENTS.iter().find(by_letter) {
            return Some(*element);
        }
        let digits = code.strip_prefix(['b', 'i', 'u', 'f', 'c'])?;
        let is_number = digits.chars().all(|digit| digit.is_ascii_digit());
        let item_bytes: usize = digits.parse().ok().filter(|_| is_number)?;
        let is_it = |it: &&Self| code.starts_with(it.kind) && it.item_bytes == item_bytes;
        ELEMENTS.iter().find(is_it).copied()
    }

    /// The alignment of an element in bytes, as C has it.
    pub(crate) fn align_bytes(self) -> usize {
        if self.kind == 'c' { self.item_bytes / 2 } else { self.item_bytes }
    }

    /// Whether elements may begin at an address.
    pub(crate) fn may_begin_at(self, address: u64) -> bool {
        address.is_multiple_of(self.align_bytes() as u64)
    }

    pub(crate) fn names() -> String {
        ELEMENTS.map(|element| element.name).join(", ")
    }

    /// The type and shape for NumPy and the buffer protocol. Types that they lack become bytes,
    /// with one more dimension when an element has several bytes.
    pub(crate) fn for_numpy(self, shape: &[usize]) -> (Self, Vec<usize>) {
        let mut shape = shape.to_vec();
        if self.kind != UNNAMED {
            return (self, shape);
        }
        if self.item_bytes > 1 {
            shape.push(self.item_bytes);
        }
        (BYTE, shape)
    }

    /// The first minor version of DLPack 1 that names the type.
    pub(crate) fn dlpack_minor(self) -> u32 {
        u32::from(self.code > 6)
    }

    /// Whether an integer type is signed; `None` for other types.
    pub(crate) fn integer_sign(self) -> Option<bool> {
        matches!(self.kind, 'i' | 'u').then_some(self.kind == 'i')
    }

    /// True when elements of the other type can be read as this type: two floats as a complex
    /// number, an unsigned integer as any integer of its width, and any element as bytes.
    pub(crate) fn holds(self, other: Self) -> bool {
        let (own_bytes, bytes) = (self.item_bytes, other.item_bytes);
        match (self.kind, other.kind) {
            ('f', 'f') | ('i' | 'u', 'u') if own_bytes == bytes => true,
            ('c', 'f') => own_bytes == 2 * bytes,
            _ => self.name == BYTE.name,
        }
    }

    /// The element type with DLPack's `code` and `bits`. `None` for unknown types or several lanes.
    pub(crate) fn of_dlpack(code: u8, bits: u8, lanes: u16) -> Option<Self> {
        let is_it = |element: &&Element| {
            element.code == code && element.item_bytes * 8 == usize::from(bits) && lanes == 1
        };
        ELEMENTS.iter().find(is_it).copied()
    }

    /// The element type of a buffer-protocol format. `None` for unknown letters or byte orders.
    pub(crate) fn of_format(format: &str, item_bytes: usize) -> Option<Self> {
        let letters = format.trim_start_matches(['@', '=']);
        #[cfg(target_endian = "little")]
        let letters = letters.trim_start_matches('<');
        let kind = match letters {
            "?" => 'b',
            "b" | "h" | "i" | "l" | "q" | "n" => 'i',
            "B" | "H" | "I" | "L" | "Q" | "N" | "c" => 'u',
            "e" | "f" | "d" => 'f',
            "Zf" | "Zd" => 'c',
            _ => return None,
        };
        let is_it = |element: &&Element| element.kind == kind && element.item_bytes == item_bytes;
        ELEMENTS.iter().find(is_it).copied()
    }

    pub(crate) fn format(self) -> CString {
        CString::new(self.format).unwrap_or_default() // never an error: only letters
    }

    pub(crate) fn type_string(self) -> String {
        let order = match self.item_bytes {
            1 => '|',
            _ if cfg!(target_endian = "little") => '<',
            _ => '>',
        };
        format!("{order}{}{}", self.kind, self.item_bytes)
    }
}

fn wrong_order(given: &str) -> PyErr {
    PyTypeError::new_err(format!("dtype must have this machine's byte order, not {given}"))
}
