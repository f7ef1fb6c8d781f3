//! The one error type. Its variants carry the numbers that explain them; our own mistakes assert.

mod failure;
mod out_of_memory;

use std::sync::Arc;

use crate::base::device::{Device, DeviceKind};
use crate::base::shortage::Shortage;
use crate::base::size::display_bytes;

pub use failure::{FailureCause, StreamError};

/// The result of every call that can fail for a reason the caller cannot rule out.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error that a user's task may return.
pub type TaskError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// The message of several streams' errors.
fn several(errors: &[Arc<StreamError>], num_forgotten: u64) -> String {
    let (count, first) = (errors.len(), &errors[0]);
    let more = match num_forgotten {
        0 => String::new(),
        count => format!(", and {count} more that were dropped, whose errors are not kept"),
    };
    format!("{count} streams failed{more}; the first: {first}")
}

/// Every error of the runtime.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device string without a character in it.
    #[error("Device string must not be empty")]
    EmptyDeviceString,
    /// A device string whose part after the colon is not a plain decimal number.
    #[error("Invalid device string: '{given}'")]
    InvalidDeviceString {
        /// What was given.
        given: String,
    },
    /// A device index that does not fit into an integer.
    #[error("Could not parse device index '{digits}' in device string '{given}'")]
    UnparsableDeviceIndex {
        /// The digits after the colon.
        digits: String,
        /// The whole string.
        given: String,
    },
    /// A device kind that does not exist.
    #[error(
        "Expected one of {} device type at start of device string: {given}",
        DeviceKind::names()
    )]
    UnknownDeviceKind {
        /// What was given.
        given: String,
    },
    /// A device kind that cannot be registered.
    #[error("Device kind {name:?} with type code {type_code} is refused: {reason}")]
    DeviceKindRefused {
        /// The name asked for.
        name: String,
        /// The type code asked for.
        type_code: u8,
        /// Why.
        reason: String,
    },
    /// A second backend for a kind.
    #[error("A backend is registered for kind {kind}: a kind has one")]
    BackendRegistered {
        /// The kind.
        kind: DeviceKind,
    },
    /// A device index that no name can carry.
    #[error("Device index {index} of {kind} is out of range: an index is at most 127")]
    DeviceIndexTooLarge {
        /// The kind asked for.
        kind: DeviceKind,
        /// The index asked for.
        index: usize,
    },
    /// A device that does not exist.
    #[error(
        "Device {device} does not exist: there {}",
        devices(device.kind(), *count)
    )]
    NoSuchDevice {
        /// The device asked for.
        device: Device,
        /// How many devices of its kind there are.
        count: usize,
    },
    /// A kind that cannot be used here.
    #[error("No {kind} device is available: {reason}")]
    KindUnavailable {
        /// The kind asked for.
        kind: DeviceKind,
        /// Why.
        reason: String,
    },
    /// An environment variable or setting with a value that is not allowed.
    #[error("{name}={value:?} is not valid: allowed is {allowed}")]
    InvalidSetting {
        /// The variable or setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// What would be accepted.
        allowed: &'static str,
    },
    /// An allocator's setting with a value that is not allowed.
    #[error("Allocator setting {key:?} with value {value:?} is not valid: allowed is {allowed}")]
    AllocatorSetting {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What would be accepted.
        allowed: String,
    },
    /// A key that allocators do not have.
    #[error("Unrecognized key '{key}' in allocator settings: allowed are {allowed}")]
    UnknownAllocatorSetting {
        /// The key.
        key: String,
        /// The keys there are.
        allowed: String,
    },
    /// A key of PyTorch's for a feature that does not exist or is not optional here.
    #[error("Allocator setting '{key}' would have no effect: {reason}. Leave it out")]
    AllocatorSettingWithoutEffect {
        /// The key.
        key: String,
        /// Why.
        reason: &'static str,
    },
    /// An environment variable whose text is read as settings and is not valid.
    #[error("{name}: {source}")]
    InvalidVariable {
        /// The variable.
        name: &'static str,
        /// What is wrong with its text.
        source: Box<Error>,
    },
    /// A priority outside the device's range.
    #[error(
        "Priority {priority} is out of range for {device}: allowed are {greatest} (first) to \
         {least} (last)"
    )]
    PriorityOutOfRange {
        /// The device of the stream.
        device: Device,
        /// The priority asked for.
        priority: i32,
        /// The lowest urgency: the largest number.
        least: i32,
        /// The highest urgency: the smallest number.
        greatest: i32,
    },
    /// A stream id that this device never gave out, or whose dedicated stream is gone.
    #[error(
        "Device {device} has no stream with id {stream_id}: ids are given out by this runtime and \
         never reused"
    )]
    NoSuchStream {
        /// The device asked.
        device: Device,
        /// The id asked for.
        stream_id: u64,
    },
    /// Handles of two runtimes, which share nothing, were given to one call.
    #[error("{what} of runtime {given} was given to runtime {own}: runtimes do not share handles")]
    OtherRuntime {
        /// What was given.
        what: &'static str,
        /// The [id](crate::Runtime::id) of its runtime.
        given: u64,
        /// The id of the runtime that was to use it.
        own: u64,
    },
    /// An event and a stream of different kinds.
    #[error("Event device type {event} does not match {role} stream's device type {stream}.")]
    EventKindMismatch {
        /// The event's kind.
        event: DeviceKind,
        /// `recording` or `blocking`.
        role: &'static str,
        /// The stream's kind.
        stream: DeviceKind,
    },
    /// An event that was recorded on one device is recorded on another.
    #[error("Event device index {event} does not match recording stream's device index {stream}.")]
    EventDeviceMismatch {
        /// The event's device index.
        event: usize,
        /// The stream's device index.
        stream: usize,
    },
    /// Elapsed time between events of two kinds.
    #[error("Event device type {this} does not match other's device type {other}.")]
    ElapsedKindMismatch {
        /// The first event's kind.
        this: DeviceKind,
        /// The second event's kind.
        other: DeviceKind,
    },
    /// Elapsed time of an event without timing.
    #[error("Both events must be created with argument 'enable_timing=True'.")]
    EventWithoutTiming,
    /// Elapsed time of an event that was never recorded.
    #[error("Both events must be recorded before calculating elapsed time.")]
    EventNotRecorded,
    /// Elapsed time of an event that the device has not reached.
    #[error("Both events must be completed before calculating elapsed time.")]
    EventNotComplete,
    /// The device, or the limit set on it, has no room.
    #[error(
        "{}",
        out_of_memory::message(
            *device, *requested_bytes, (*free_bytes, *total_bytes), cache.as_deref()
        )
    )]
    OutOfMemory {
        /// The device asked.
        device: Device,
        /// What was asked for.
        requested_bytes: usize,
        /// Bytes that the device had left.
        free_bytes: usize,
        /// The device's capacity; 0 when that is not known, as of pinned memory before a refusal.
        total_bytes: usize,
        /// The allocator's state, when one was asked: at the moment of `free_bytes`, under one
        /// lock.
        cache: Option<Box<Shortage>>,
    },
    /// A snapshot of memory that contradicts itself.
    #[error("The snapshot is not valid at {address:#x}: expected were {expected}")]
    InvalidSnapshot {
        /// Where.
        address: u64,
        /// What a snapshot has there.
        expected: &'static str,
    },
    /// Recorded requests and frees that contradict themselves.
    #[error("Event {index} names block {id}: expected was {expected}")]
    InvalidEvents {
        /// Which event, from 0.
        index: usize,
        /// The block's number.
        id: u64,
        /// The block that it should have named.
        expected: &'static str,
    },
    /// A use of a buffer whose memory was freed by a release.
    #[error("Buffer of {} at {address:#x} on {device} was released", display_bytes(*bytes))]
    BufferReleased {
        /// The device of the memory.
        device: Device,
        /// Where the buffer began.
        address: u64,
        /// Its size.
        bytes: usize,
    },
    /// A release of a buffer whose memory is exported.
    #[error(
        "Buffer of {} at {address:#x} on {device} cannot be released: {exports} exports of its \
         memory exist",
        display_bytes(*bytes)
    )]
    BufferExported {
        /// The device of the memory.
        device: Device,
        /// Where the buffer begins.
        address: u64,
        /// Its size.
        bytes: usize,
        /// How many exports there are.
        exports: usize,
    },
    /// A range that is not inside a buffer.
    #[error("Range {start}..{end} is not inside a buffer of {bytes} bytes")]
    BufferRange {
        /// First byte asked for.
        start: usize,
        /// Where the range ends.
        end: usize,
        /// The buffer's size.
        bytes: usize,
    },
    /// A copy between two ranges of different sizes.
    #[error("Cannot copy {source_bytes} bytes into {target_bytes}: the sizes must be equal")]
    CopySizeMismatch {
        /// Size of the target range.
        target_bytes: usize,
        /// Size of the source range.
        source_bytes: usize,
    },
    /// A copy between two ranges of one allocation that have bytes in common.
    #[error(
        "Cannot copy {bytes} bytes from offset {source_offset} to offset {target_offset} of one \
         allocation: the ranges overlap"
    )]
    CopyOverlap {
        /// Offset of the target range in the allocation.
        target_offset: usize,
        /// Offset of the source range.
        source_offset: usize,
        /// Size of both.
        bytes: usize,
    },
    /// Work on a buffer was given to a stream whose device is not the buffer's.
    #[error("A stream of {stream} cannot work on a buffer of {buffer}: it runs on another device")]
    BufferDeviceMismatch {
        /// The buffer's device.
        buffer: Device,
        /// The stream's device.
        stream: Device,
    },
    /// A generator of one kind that is to fill a buffer of another.
    #[error("Expected a '{expected}' device type for generator but found '{generator}'")]
    GeneratorKindMismatch {
        /// The buffer's kind.
        expected: DeviceKind,
        /// The generator's kind.
        generator: DeviceKind,
    },
    /// An offset into a generator's sequence where no block of words begins.
    #[error("The offset of a generator must be a multiple of 4: {offset} is not")]
    GeneratorOffset {
        /// The offset that was given, or found in a state.
        offset: u64,
    },
    /// A buffer that does not hold whole numbers of a type at their addresses.
    #[error(
        "Cannot fill {bytes} bytes at {address:#x} with numbers of {item_bytes} bytes: size and \
         address must be multiples of that"
    )]
    FillAlignment {
        /// Where the buffer begins.
        address: u64,
        /// Its size.
        bytes: usize,
        /// The size of one number.
        item_bytes: usize,
    },
    /// The device is gone for good.
    #[error("Device {device} is lost: {reason}")]
    DeviceLost {
        /// The device.
        device: Device,
        /// What the driver said.
        reason: String,
    },
    /// A driver or the operating system refused a call.
    #[error("{call} failed on {kind} with code {code}: {message}")]
    Driver {
        /// The kind of device.
        kind: DeviceKind,
        /// The call that was refused.
        call: &'static str,
        /// The driver's number.
        code: i64,
        /// The driver's words.
        message: String,
    },
    /// A capability that this kind does not have.
    #[error("{kind} devices do not support {capability}")]
    Unsupported {
        /// The kind asked.
        kind: DeviceKind,
        /// What was asked for.
        capability: &'static str,
    },
    /// A program that the compiler refused.
    #[error("Building the program for {device} failed: {log}")]
    BuildFailed {
        /// The device that it was compiled for.
        device: Device,
        /// What the compiler said.
        log: String,
    },
    /// A kernel that a program does not have.
    #[error("The program has no kernel {name:?}: it has {}", listed(names))]
    NoSuchKernel {
        /// The name asked for.
        name: String,
        /// The names of its kernels.
        names: Vec<String>,
    },
    /// A launch with more or fewer arguments than the kernel takes.
    #[error("Kernel {kernel} takes {expected} arguments: {given} were given")]
    KernelArgumentCount {
        /// The kernel's name.
        kernel: String,
        /// How many it takes.
        expected: usize,
        /// How many were given.
        given: usize,
    },
    /// An argument of a launch that does not fit what the kernel declares.
    #[error(
        "Argument {} of kernel {kernel}{} must be {expected}, not {given}",
        index + 1, in_commas(declared)
    )]
    KernelArgument {
        /// The kernel's name.
        kernel: String,
        /// The argument's place, from 0.
        index: usize,
        /// Type and name of the parameter, where the program tells.
        declared: String,
        /// What would fit.
        expected: &'static str,
        /// What was given.
        given: String,
    },
    /// A number of work-items that no launch can have.
    #[error("Kernel {kernel} cannot run with {what} of {given:?}: {allowed}")]
    LaunchSize {
        /// The kernel's name.
        kernel: String,
        /// Which size.
        what: &'static str,
        /// What was given.
        given: Vec<usize>,
        /// What would be accepted.
        allowed: &'static str,
    },
    /// A kernel that was given to a stream of another device, or another runtime's.
    #[error(
        "Kernel {kernel} was compiled for {compiled}: a stream of {stream} cannot run it{}",
        what_fits(*on_host)
    )]
    KernelDeviceMismatch {
        /// The kernel's name.
        kernel: String,
        /// The device that it was compiled for.
        compiled: Device,
        /// The stream's device.
        stream: Device,
        /// True when the stream runs on the host.
        on_host: bool,
    },
    /// A library that prints verbose lines and was not found.
    #[error("No {library} was found whose verbose level could be set: searched were {searched}")]
    VerboseLibraryMissing {
        /// The library's name.
        library: &'static str,
        /// Where it was searched for.
        searched: String,
    },
    /// A verbose level that does not exist or that a library did not take.
    #[error("{library} does not take the verbose level {level}: {reason}")]
    VerboseLevel {
        /// Its name.
        library: &'static str,
        /// The level asked for.
        level: i32,
        /// The refusing component, or what would be accepted.
        reason: String,
    },
    /// An allocator that cannot be oneMKL's, or that it does not use.
    #[error("oneMKL does not get its memory from {allocator}: {reason}")]
    MklAllocator {
        /// The allocator's name.
        allocator: &'static str,
        /// What is missing, or what oneMKL did.
        reason: String,
    },
    /// The system did not let the standard output be captured: which call, and why.
    #[error("The standard output cannot be captured: {0}")]
    Capture(String),
    /// A native call of the null address.
    #[error("A native call needs a function: its address is null")]
    NullFunction,
    /// A native call with more arguments than are placed.
    #[error("A native call takes at most {most} arguments: {count} were given")]
    TooManyArguments {
        /// How many were given.
        count: usize,
        /// How many are possible.
        most: usize,
    },
    /// One stream failed; raised where the failure is synchronised with.
    #[error(transparent)]
    Stream(Arc<StreamError>),
    /// Several streams of one device failed.
    #[error("{}", several(errors, *num_forgotten))]
    Streams {
        /// One error per stream.
        errors: Arc<[Arc<StreamError>]>,
        /// The number of further failed streams whose errors are not kept: of streams dropped
        /// before their error was raised, only the newest errors are kept.
        num_forgotten: u64,
    },
    /// A task waits for the stream that it runs on, or for one below it on this thread's stack.
    #[error(
        "A task cannot wait for its own stream ({device}, stream {stream_id}): the wait would \
         never end"
    )]
    WaitInsideTask {
        /// The device of the stream.
        device: Device,
        /// The stream.
        stream_id: u64,
    },
    /// The runtime is used in a child that was forked from an initialised process.
    #[error(
        "Cannot re-initialize accelrt in forked subprocess. To use accelrt with multiprocessing, \
         you must use the 'spawn' start method"
    )]
    BadFork,
    /// The runtime was shut down.
    #[error("The runtime is shut down: it takes no new work")]
    ShutDown,
    /// A wait was given up because its interrupt check said so; the work goes on.
    #[error("The wait was interrupted; the work goes on")]
    Interrupted,
}

/// Names what a host stream runs in place of a kernel.
fn what_fits(on_host: bool) -> &'static str {
    let fitting = " (it runs native functions, by launch, and callables, by launch_host)";
    if on_host { fitting } else { "" }
}

/// Names for a sentence.
fn listed(names: &[String]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    if quoted.is_empty() { "none".to_owned() } else { quoted.join(", ") }
}

/// An addition between commas, if there is one.
fn in_commas(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(", `{text}`,") }
}

fn devices(kind: DeviceKind, count: usize) -> String {
    match count {
        0 => format!("are 0 {kind} devices"),
        1 => format!("is 1 {kind} device, index 0"),
        count => format!("are {count} {kind} devices, indices 0 to {}", count - 1),
    }
}
