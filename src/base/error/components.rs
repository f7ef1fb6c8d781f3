//! The errors of each component: settings, devices, events, generators, programs, memory.

use std::time::Duration;

use crate::base::device::{Device, DeviceKind};
use crate::base::shortage::Shortage;
use crate::base::size::display_bytes;

/// A setting, in the environment or in the code, that is not allowed.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum ConfigError {
    /// An environment variable or setting whose value is malformed or out of range.
    #[error("{name}={value:?} is not valid: allowed is {allowed}")]
    InvalidSetting { name: &'static str, value: String, allowed: &'static str },
    /// An allocator's setting that is malformed, out of range or repeated.
    #[error("Allocator setting {key:?} with value {value:?} is not valid: allowed is {allowed}")]
    InvalidAllocatorSetting { key: String, value: String, allowed: String },
    /// A key in an allocator's settings that neither PyTorch nor this runtime has.
    #[error("Unrecognized key '{key}' in allocator settings: allowed are {allowed}")]
    UnknownAllocatorSetting { key: String, allowed: String },
    /// A key that would change nothing: the runtime or the selected policy never reads it.
    #[error("Allocator setting '{key}' would have no effect: {reason}. Leave it out")]
    AllocatorSettingWithoutEffect { key: String, reason: &'static str },
    /// An environment variable whose text contains an invalid setting: `ACCELRT_ALLOC_CONF`.
    #[error("{name}: {source}")]
    InvalidVariable { name: &'static str, source: Box<ConfigError> },
}

/// An invalid name of a device, or a device that cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum DeviceError {
    /// A device string without any character.
    #[error("Device string must not be empty")]
    EmptyString,
    /// A device string whose part after the colon is not a plain decimal number.
    #[error("Invalid device string: '{given}'")]
    InvalidString { given: String },
    /// A device index above `usize::MAX`.
    #[error("Could not parse device index '{digits}' in device string '{given}'")]
    UnparsableIndex { digits: String, given: String },
    /// A name under which no kind is registered.
    #[error(
        "Expected one of {} device type at start of device string: {given}",
        DeviceKind::names()
    )]
    UnknownKind { given: String },
    /// A registration of a kind whose name or type code is invalid or taken.
    #[error("Device kind {name:?} with type code {type_code} is refused: {reason}")]
    KindRefused { name: String, type_code: u8, reason: String },
    /// A library of a kind that cannot be used.
    #[error("{library} brings no kind of device: {reason}")]
    LibraryRefused { library: String, reason: String },
    /// A registration of a second backend for a kind.
    #[error("A backend is registered for kind {kind}: a kind has one")]
    BackendRegistered { kind: DeviceKind },
    /// A device index above [`MAX_DEVICE_INDEX`](crate::MAX_DEVICE_INDEX).
    #[error("Device index {index} of {kind} is out of range: an index is at most 127")]
    IndexTooLarge { kind: DeviceKind, index: usize },
    /// A device whose index is not below the number of devices of its kind.
    #[error(
        "Device {device} does not exist: there {}",
        devices(device.kind(), *count)
    )]
    NotFound { device: Device, count: usize },
    /// A kind without a usable backend, driver or device in this process.
    #[error("No {kind} device is available: {reason}")]
    KindUnavailable { kind: DeviceKind, reason: String },
}

fn devices(kind: DeviceKind, count: usize) -> String {
    match count {
        0 => format!("are 0 {kind} devices"),
        1 => format!("is 1 {kind} device, index 0"),
        count => format!("are {count} {kind} devices, indices 0 to {}", count - 1),
    }
}

/// An error from a device, its driver or the operating system.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum DriverError {
    /// A driver or the operating system refused a call.
    #[error("{call} failed on {kind} with code {code}: {message}")]
    Refused { kind: DeviceKind, call: &'static str, code: i64, message: String },
    /// The driver reported that the device is permanently lost.
    #[error("Device {device} is lost: {reason}")]
    DeviceLost { device: Device, reason: String },
    /// A capability that this kind does not have.
    #[error("{kind} devices do not support {capability}")]
    Unsupported { kind: DeviceKind, capability: &'static str },
}

/// An invalid record of an event, wait for an event, or time between two events.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum EventError {
    /// A record or a wait that joins an event to a stream of another kind.
    #[error("Event device type {event} does not match {role} stream's device type {stream}.")]
    KindMismatch {
        event: DeviceKind,
        /// `recording` for a record, `blocking` for a wait.
        role: &'static str,
        stream: DeviceKind,
    },
    /// A call recorded the event on another device than that of the event's first record.
    #[error("Event device index {event} does not match recording stream's device index {stream}.")]
    DeviceMismatch { event: usize, stream: usize },
    /// A call asked for the time between events of two kinds.
    #[error("Event device type {this} does not match other's device type {other}.")]
    ElapsedKindMismatch { this: DeviceKind, other: DeviceKind },
    /// A call asked for the time of an event without timing.
    #[error("Both events must be created with timing.")]
    WithoutTiming,
    /// A call asked for the time of an event without a record.
    #[error("Both events must be recorded before calculating elapsed time.")]
    NotRecorded,
    /// A call asked for the time of an event that the device has not reached.
    #[error("Both events must be completed before calculating elapsed time.")]
    NotComplete,
}

/// A call that a random generator refuses.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum GeneratorError {
    /// A fill of a buffer by a generator of another kind of device.
    #[error("Expected a '{expected}' device type for generator but found '{generator}'")]
    KindMismatch { expected: DeviceKind, generator: DeviceKind },
    /// An offset that is not a multiple of 4, the number of words in a block.
    #[error("The offset of a generator must be a multiple of 4: {offset} is not")]
    InvalidOffset {
        /// The offset that the caller passed, directly or inside a state.
        offset: u64,
    },
    /// A request of more words than follow the offset in the sequence of 2^64 words.
    #[error(
        "Cannot take {words} words of random numbers at offset {offset}: the offset afterwards \
         must be at most {last}", last = u64::MAX - 3
    )]
    SequenceEnd {
        /// The generator's offset, in words of 32 bits.
        offset: u64,
        /// The requested words, rounded up to a multiple of 4.
        words: u128,
    },
    /// A fill of a buffer whose size or address is not a multiple of the number type's size.
    #[error(
        "Cannot fill {bytes} bytes at {address:#x} with numbers of {item_bytes} bytes: size and \
         address must be multiples of that"
    )]
    FillAlignment { address: u64, bytes: usize, item_bytes: usize },
}

/// A refusal by another library in the process, or by the standard output.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum IntegrationError {
    /// The search for a library with verbose lines found none.
    #[error("No {library} was found whose verbose level could be set: searched were {searched}")]
    LibraryMissing { library: &'static str, searched: String },
    /// A verbose level that a library does not have or refused.
    #[error("{library} does not take the verbose level {level}: {reason}")]
    VerboseLevel {
        library: &'static str,
        level: i32,
        /// The refusing component, or the accepted levels.
        reason: String,
    },
    /// An allocator that oneMKL cannot use or does not use.
    #[error("oneMKL does not get its memory from {allocator}: {reason}")]
    MklAllocator {
        allocator: &'static str,
        /// The missing library or symbol, or the failed probe of oneMKL.
        reason: String,
    },
    /// The system refused a call that captures the standard output: the call and its error.
    #[error("The standard output cannot be captured: {0}")]
    Capture(String),
}

/// A call that a program, a kernel or a native function refuses.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum ProgramError {
    /// A program that the compiler refused; `log` is the compiler's output.
    #[error("Building the program for {device} failed: {log}")]
    BuildFailed { device: Device, log: String },
    /// A search for a kernel by a name that the program does not have.
    #[error("The program has no kernel {name:?}: it has {}", listed(names))]
    NoSuchKernel { name: String, names: Vec<String> },
    /// A launch with more or fewer arguments than the kernel takes.
    #[error("Kernel {kernel} takes {expected} arguments: {given} were given")]
    ArgumentCount { kernel: String, expected: usize, given: usize },
    /// An argument of a launch that does not fit the kernel's parameter.
    #[error(
        "Argument {} of kernel {kernel}{} must be {expected}, not {given}",
        index + 1, in_commas(declared)
    )]
    InvalidArgument {
        kernel: String,
        /// The argument's index, from 0.
        index: usize,
        /// Type and name of the parameter, if the program reports them.
        declared: String,
        expected: &'static str,
        given: String,
    },
    /// A global or local size that no launch can have.
    #[error("Kernel {kernel} cannot run with {what} of {given:?}: {allowed}")]
    LaunchSize { kernel: String, what: &'static str, given: Vec<usize>, allowed: &'static str },
    /// A launch of a kernel on a stream of another device or another runtime.
    #[error("Kernel {kernel} was compiled for {compiled}: a stream of {stream} cannot run it")]
    DeviceMismatch {
        kernel: String,
        compiled: Device,
        stream: Device,
        /// True when the stream runs on the host, where it executes functions but no kernels.
        on_host: bool,
    },
    /// A native call whose function address is null.
    #[error("A native call needs a function: its address is null")]
    NullFunction,
    /// A native call with more than `most` arguments.
    #[error("A native call takes at most {most} arguments: {count} were given")]
    TooManyArguments { count: usize, most: usize },
}

/// Quotes names and joins them with commas; `none` for an empty list.
fn listed(names: &[String]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    if quoted.is_empty() { "none".to_owned() } else { quoted.join(", ") }
}

/// Puts a text between commas and backticks; an empty text stays empty.
fn in_commas(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(", `{text}`,") }
}

/// A reason for which the runtime refuses a call on any device.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum RuntimeError {
    /// One call received handles of two runtimes. Runtimes share no handles.
    #[error("{what} of runtime {given} was given to runtime {own}: runtimes do not share handles")]
    OtherRuntime {
        what: &'static str,
        /// The [id](crate::Runtime::id) of the handle's runtime.
        given: u64,
        /// The id of the runtime that received the handle.
        own: u64,
    },
    /// The runtime is used in a child that was forked from an initialised process.
    #[error(
        "The runtime was initialised before this process was forked: it works in the parent, and \
         in a program that the child executes"
    )]
    BadFork,
    /// A call came after the shutdown, or the shutdown cancelled the work that a call waited for.
    #[error("The runtime is shut down: it takes no new work")]
    ShutDown,
    /// A wait ended because its interrupt check returned true. The work continues.
    #[error("The wait was interrupted; the work goes on")]
    Interrupted,
    /// A wait with a limit ended before the work was done. The work continues.
    #[error("The wait ended after its limit of {timeout:?}; the work is not done and goes on")]
    TimedOut { timeout: Duration },
}

/// A refused request for memory, an invalid use of a buffer, or an invalid snapshot.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field without a comment is explained by its error's text")]
#[non_exhaustive]
pub enum MemoryError {
    /// The device has too little free memory, or the request would exceed the memory limit.
    #[error(
        "{}",
        message(
            *device, *requested_bytes, (*free_bytes, *total_bytes), cache.as_deref()
        )
    )]
    OutOfMemory {
        device: Device,
        requested_bytes: usize,
        free_bytes: usize,
        /// The device's capacity; 0 when unknown, as for pinned memory before a first refusal.
        total_bytes: usize,
        /// The state of the allocator at the refusal; `None` for a request without an allocator.
        cache: Option<Box<Shortage>>,
    },
    /// A snapshot of memory that contradicts itself.
    #[error("The snapshot is not valid at {address:#x}: expected {expected}")]
    InvalidSnapshot {
        address: u64,
        /// What a valid snapshot would have at this address, in words for the message, such as "a
        /// block in use".
        expected: &'static str,
    },
    /// Recorded requests and frees that contradict each other.
    #[error("Event {index} names block {id}: expected {expected}")]
    InvalidEvents {
        /// The event's index, from 0.
        index: usize,
        id: u64,
        /// What a valid event would name, in words for the message: a number in use, or one not in
        /// use.
        expected: &'static str,
    },
    /// A use of a buffer after a release freed its memory.
    #[error("Buffer of {} at {address:#x} on {device} was released", display_bytes(*bytes))]
    Released { device: Device, address: u64, bytes: usize },
    /// A release of a buffer whose memory is exported.
    #[error(
        "Buffer of {} at {address:#x} on {device} cannot be released: {exports} exports of its \
         memory exist",
        display_bytes(*bytes)
    )]
    Exported { device: Device, address: u64, bytes: usize, exports: usize },
    /// A task that would have the bytes of exported memory as slices.
    #[error(
        "Buffer of {} at {address:#x} on {device} cannot be a task's slice: {exports} exports of \
         its memory exist, whose accesses have no order",
        display_bytes(*bytes)
    )]
    SliceOfExported { device: Device, address: u64, bytes: usize, exports: usize },
    /// A range that is not inside a buffer.
    #[error("Range {start}..{end} is not inside a buffer of {bytes} bytes")]
    RangeOutside { start: usize, end: usize, bytes: usize },
    /// A copy between two ranges of different sizes.
    #[error("Cannot copy {source_bytes} bytes into {target_bytes}: the sizes must be equal")]
    CopySizeMismatch { target_bytes: usize, source_bytes: usize },
    /// A copy between two ranges of one allocation that have bytes in common.
    #[error(
        "Cannot copy {bytes} bytes from offset {source_offset} to offset {target_offset} of one \
         allocation: the ranges overlap"
    )]
    CopyOverlap {
        /// Offset of the target range in the allocation.
        target_offset: usize,
        /// Offset of the source range in the same allocation.
        source_offset: usize,
        bytes: usize,
    },
    /// A buffer that holds no whole number of aligned elements of a type.
    #[error(
        "Buffer of {bytes} bytes at {address:#x} is no slice of {element}: that takes a multiple \
         of {element_bytes} bytes at a multiple of {align_bytes}"
    )]
    NotElements {
        address: u64,
        bytes: usize,
        element: &'static str,
        element_bytes: usize,
        align_bytes: usize,
    },
    /// Two views for one task that have bytes in common, of which the task writes one.
    #[error(
        "The views of {} bytes at {:#x} and of {} bytes at {:#x} overlap, and the task would write \
         one of them",
        first.1, first.0, second.1, second.0
    )]
    ViewOverlap {
        /// Address and bytes of a view.
        first: (u64, usize),
        /// Address and bytes of the other view.
        second: (u64, usize),
    },
    /// A task for a stream whose device does not reach the buffer's memory.
    #[error("A stream of {stream} cannot work on a buffer of {buffer}: it runs on another device")]
    DeviceMismatch { buffer: Device, stream: Device },
}

/// The size from which on PyTorch's message says `more than 1EB` in place of the size.
const EXBIBYTE: usize = 1 << 60;

/// Formats the message. Leaves out a capacity of 0 and a missing cache state: both are unknown.
pub(super) fn message(
    device: Device,
    requested_bytes: usize,
    (free_bytes, total_bytes): (usize, usize),
    cache: Option<&Shortage>,
) -> String {
    let kind = device.kind().name().to_uppercase();
    let requested = match requested_bytes {
        ..EXBIBYTE => display_bytes(requested_bytes),
        _ => "more than 1EB memory".to_owned(),
    };
    let is_pinned = cache.is_some_and(|cache| cache.is_pinned);
    let pinned = if is_pinned { ", pinned on the host" } else { "" };
    let whose = if is_pinned { "The host".to_owned() } else { device.to_string() };
    let segment = cache.and_then(|cache| cache.segment_bytes).map(|bytes| {
        let bytes = display_bytes(bytes);
        format!(", which takes a segment of {bytes}")
    });
    let segment = segment.unwrap_or_default();
    let mut text = format!("{kind} out of memory. Tried to allocate {requested}{pinned}{segment}.");
    if total_bytes > 0 {
        let [free, total] = [free_bytes, total_bytes].map(display_bytes);
        let capacity = format!(" {whose} has a total capacity of {total} of which {free} is free.");
        text.push_str(&capacity);
    }
    if let Some(cache) = cache {
        text.push(' ');
        text.push_str(&cache.to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::size::MIB;

    #[test]
    fn a_message_begins_as_pytorchs_and_omits_unknown_numbers() {
        let device = Device::cpu(1);
        let known = message(device, 3 * MIB, (MIB, 2 * MIB), None);
        let capacity = "cpu:1 has a total capacity of 2.00 MiB of which 1.00 MiB is free.";
        assert_eq!(known, format!("CPU out of memory. Tried to allocate 3.00 MiB. {capacity}"));
        let unknown = message(device, EXBIBYTE, (0, 0), None);
        assert_eq!(unknown, "CPU out of memory. Tried to allocate more than 1EB memory.");
        let largest = message(device, EXBIBYTE - 1, (0, 0), None);
        assert_eq!(largest, "CPU out of memory. Tried to allocate 1073741823.99 GiB.");
    }

    #[test]
    fn a_larger_segment_is_named_in_the_message() {
        let cache =
            Shortage { is_pinned: true, segment_bytes: Some(8 * MIB), ..Shortage::default() };
        let text = message(Device::cpu(0), 1000, (0, 0), Some(&cache));
        let expected =
            "Tried to allocate 1000 B, pinned on the host, which takes a segment of 8.00 MiB. The ";
        assert!(text.contains(expected), "{text}");
    }
}
