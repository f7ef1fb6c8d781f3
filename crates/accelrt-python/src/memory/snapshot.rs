//! Reads snapshots from torch's dictionaries.

use accelrt::PoolId;
use accelrt::allocator::snapshot::{
    BlockInfo, BlockState, PoolClass, SegmentInfo, Snapshot, TraceAction, TraceEntry,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyString};

use crate::support::object_text::type_name;

const MAX_SHOWN_CHARACTERS: usize = 80;

/// Reads the snapshot of one device from its segments and trace. Errors name the faulty entry.
pub(crate) fn snapshot(
    segments: &Bound<'_, PyList>,
    trace: &Bound<'_, PyList>,
) -> PyResult<Snapshot> {
    let mut segments = entries("segments", segments)
        .map(|segment| segment.and_then(|segment| read_segment(&segment)))
        .collect::<PyResult<Vec<_>>>()?;
    segments.sort_by_key(|segment| segment.address);
    let trace = entries("trace", trace)
        .map(|entry| entry.and_then(|entry| read_entry(&entry, &segments)))
        .collect::<PyResult<_>>()?;
    Ok(Snapshot { segments, trace })
}

/// A dictionary of the snapshot, with its place, as `segments[2]`, for errors.
struct Entry<'py> {
    place: String,
    values: Bound<'py, PyDict>,
}

fn entries<'a, 'py>(
    name: &'a str,
    list: &'a Bound<'py, PyList>,
) -> impl Iterator<Item = PyResult<Entry<'py>>> + use<'a, 'py> {
    list.iter().enumerate().map(move |(index, item)| {
        let place = format!("{name}[{index}]");
        let values = item.cast_into::<PyDict>();
        let values = values.map_err(|_| PyValueError::new_err(format!("{place} is no dict")))?;
        Ok(Entry { place, values })
    })
}

/// Describes an unexpected value in a short text. For a container, the text is its type and length,
/// because printing containers that contain each other can take exponential time. For an integer
/// with thousands of digits, which Python refuses to print, the text is its number of bits.
fn shown(value: &Bound<'_, PyAny>) -> String {
    if let Ok(text) = value.cast::<PyString>() {
        let beginning: String = text.to_string_lossy().chars().take(MAX_SHOWN_CHARACTERS).collect();
        let repr = PyString::new(value.py(), &beginning).repr();
        return repr.map_or_else(|_| beginning, |repr| repr.to_string_lossy().into_owned());
    }
    if let Ok(length) = value.len() {
        return format!("a {} of length {length}", type_name(value));
    }
    if let Ok(repr) = value.repr() {
        return repr.to_string_lossy().chars().take(MAX_SHOWN_CHARACTERS).collect();
    }
    match value.call_method0("bit_length") {
        Ok(bits) => format!("an integer of {bits} bits"),
        Err(_) => format!("an object of {}", value.get_type()),
    }
}

impl<'py> Entry<'py> {
    /// Converts the value of `key`. The error names the `expected` type.
    fn get<T: FromPyObjectOwned<'py>>(&self, key: &str, expected: &str) -> PyResult<T> {
        let Some(value) = self.values.get_item(key)? else {
            return Err(PyValueError::new_err(format!("{} has no '{key}'", self.place)));
        };
        value.extract().map_err(|_| self.unexpected(key, &value, expected))
    }

    /// As [`Entry::get`]; `None` when the dictionary lacks the key.
    fn optional<T: FromPyObjectOwned<'py>>(
        &self,
        key: &str,
        expected: &str,
    ) -> PyResult<Option<T>> {
        self.values.contains(key)?.then(|| self.get(key, expected)).transpose()
    }

    fn unexpected(&self, key: &str, value: &Bound<'_, PyAny>, expected: &str) -> PyErr {
        let value = shown(value);
        PyValueError::new_err(format!("{}['{key}'] is {value}, not {expected}", self.place))
    }

    /// As [`Entry::get`] of a number: `True` and `False` are refused.
    fn whole<T: FromPyObjectOwned<'py>>(&self, key: &str, expected: &str) -> PyResult<T> {
        match self.values.get_item(key)?.filter(PyAnyMethods::is_instance_of::<PyBool>) {
            Some(value) => Err(self.unexpected(key, &value, expected)),
            None => self.get(key, expected),
        }
    }

    fn number(&self, key: &str) -> PyResult<u64> {
        self.whole(key, NUMBER)
    }

    fn bytes(&self, key: &str) -> PyResult<usize> {
        self.whole(key, "a number of bytes")
    }

    /// The number of a stream. Some programs write it as a signed 64-bit integer, so a negative
    /// number is read as the unsigned integer with the same bits.
    fn stream(&self) -> PyResult<u64> {
        let of_signed = || self.whole::<i64>("stream", NUMBER).map(i64::cast_unsigned);
        self.number("stream").or_else(|error| of_signed().map_err(|_| error))
    }

    /// The ids at `key`: a tuple, which is a list after a round trip through JSON.
    fn pool(&self, key: &str) -> PyResult<Option<PoolId>> {
        let pair = self.optional::<[u64; 2]>(key, "a pair of whole numbers")?;
        Ok(pair.map(|[first, second]| PoolId(first, second)))
    }

    fn text(&self, key: &str) -> PyResult<String> {
        self.get(key, "a text")
    }

    /// Converts the word at `key` to its meaning in the table `known`.
    fn word<T: Copy>(&self, key: &str, known: &[(&str, T)]) -> PyResult<T> {
        let word = self.text(key)?;
        let found = known.iter().find(|(name, _)| *name == word);
        found.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let known = known.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            let given = PyString::new(self.values.py(), &word);
            self.unexpected(key, &given, &format!("one of {known}"))
        })
    }
}

const NUMBER: &str = "a whole number of at least 0";

pub(crate) const STATES: &[(&str, BlockState)] = &[
    ("active_allocated", BlockState::Allocated),
    ("active_awaiting_free", BlockState::AwaitingFree),
    ("inactive", BlockState::Inactive),
];

pub(crate) const CLASSES: &[(&str, PoolClass)] =
    &[("small", PoolClass::Small), ("large", PoolClass::Large)];

pub(crate) const ACTIONS: &[(&str, TraceAction)] = &[
    ("alloc", TraceAction::Alloc),
    ("free_requested", TraceAction::FreeRequested),
    ("free_completed", TraceAction::FreeCompleted),
    ("segment_alloc", TraceAction::SegmentAlloc),
    ("segment_free", TraceAction::SegmentFree),
    ("segment_map", TraceAction::SegmentMap),
    ("segment_unmap", TraceAction::SegmentUnmap),
    ("snapshot", TraceAction::Snapshot),
    ("oom", TraceAction::OutOfMemory),
];

fn read_segment(segment: &Entry<'_>) -> PyResult<SegmentInfo> {
    let address = segment.number("address")?;
    // Snapshots of torch versions without private pools do not have this key.
    let pool = segment.pool("segment_pool_id")?.unwrap_or_default();
    let list = segment.get::<Bound<'_, PyList>>("blocks", "a list")?;
    let mut blocks = Vec::with_capacity(list.len());
    let mut next = address;
    for block in entries(&format!("{}['blocks']", segment.place), &list) {
        let block = read_block(&block?, next)?;
        next = block.address.saturating_add(block.bytes as u64);
        blocks.push(block);
    }
    let total_bytes = segment.bytes("total_size")?;
    let place = &segment.place;
    if address.checked_add(total_bytes as u64) != Some(next) {
        let text = format!("{place} has blocks up to {next:#x}, not to its end");
        return Err(PyValueError::new_err(text));
    }
    Ok(SegmentInfo {
        device_index: segment.whole("device", "the index of a device")?,
        address,
        total_bytes,
        allocated_bytes: segment.bytes("allocated_size")?,
        active_bytes: segment.bytes("active_size")?,
        requested_bytes: segment.bytes("requested_size")?,
        stream: segment.stream()?,
        class: segment.word("segment_type", CLASSES)?,
        pool,
        is_expandable: segment.optional("is_expandable", "True or False")?.unwrap_or(false),
        blocks,
    })
}

/// Reads a block. The blocks of a segment are adjacent, so this block must begin at `expected`.
fn read_block(block: &Entry<'_>, expected: u64) -> PyResult<BlockInfo> {
    let has_address = block.values.contains("address")?; // absent in old versions
    let address = if has_address { block.number("address")? } else { expected };
    let bytes = block.bytes("size")?;
    if address != expected || bytes == 0 {
        let place = &block.place;
        let text = format!("{place} of {bytes} bytes at {address:#x} does not tile its segment");
        return Err(PyValueError::new_err(text));
    }
    Ok(BlockInfo {
        address,
        bytes,
        requested_bytes: block.bytes("requested_size")?,
        state: read_state(block)?,
    })
}

/// Reads a block's state. Words that start with `active_` mean that a stream still uses the block.
fn read_state(block: &Entry<'_>) -> PyResult<BlockState> {
    let is_known = |word: &str| STATES.iter().any(|(known, _)| *known == word);
    let word = block.text("state")?;
    if word.starts_with("active_") && !is_known(&word) {
        return Ok(BlockState::AwaitingFree);
    }
    block.word("state", STATES)
}

/// Reads a trace entry. Entries of older snapshots have no pool, so each gets its segment's pool.
fn read_entry(entry: &Entry<'_>, segments: &[SegmentInfo]) -> PyResult<TraceEntry> {
    let action = entry.word("action", ACTIONS)?;
    let address = if action == TraceAction::OutOfMemory { "device_free" } else { "addr" };
    let address = entry.number(address)?;
    let behind = segments.partition_point(|segment| segment.address <= address);
    let segment = behind.checked_sub(1).map(|index| &segments[index]);
    let around = segment.filter(|segment| address - segment.address < segment.total_bytes as u64);
    let pool_of_segment = || around.map(|segment| segment.pool).unwrap_or_default();
    Ok(TraceEntry {
        action,
        address,
        pool: entry.pool("pool_id")?.unwrap_or_else(pool_of_segment),
        bytes: entry.bytes("size")?,
        stream: entry.stream()?,
    })
}

/// The first word that the table `known` has for a meaning.
pub(crate) fn name_of<T: PartialEq + Copy>(
    known: &[(&'static str, T)],
    meaning: T,
) -> &'static str {
    let found = known.iter().find(|(_, known)| *known == meaning);
    found.map(|(name, _)| *name).expect("every meaning has a word")
}
