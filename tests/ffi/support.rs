//! What the tests share: runtimes, streams, addresses of what functions write to, messages.
#![expect(unsafe_code, reason = "launches the functions that the tests wrote")]

use std::ffi::c_void;
use std::sync::Arc;

use accelrt::{
    Argument, Config, Device, DeviceKind, Error, FfiCall, Result, Runtime, Stream, StreamError,
};
use accelrt_testing::null::{CompletionMode, NullBackend, NullConfig};

use crate::plain::Plain;

/// A runtime of its own with one cpu device.
pub(crate) fn runtime() -> Runtime {
    Runtime::new(Config::default()).unwrap()
}

/// A runtime that also has the null kind.
pub(crate) fn runtime_with_null(completion: CompletionMode) -> Runtime {
    let null = NullBackend::new(NullConfig { completion, ..NullConfig::default() });
    Runtime::with_backends(Config::default(), [null as _]).unwrap()
}

/// A stream of the first null device.
pub(crate) fn null_stream(runtime: &Runtime) -> Stream {
    runtime.stream(Device::new(DeviceKind::NULL, 0).unwrap()).unwrap()
}

/// One runtime and stream for each way in which streams are executed.
pub(crate) fn streams_of_every_kind() -> Vec<(Runtime, Stream)> {
    let cpu = runtime();
    let stream = cpu.stream(Device::cpu(0)).unwrap();
    let completions = [CompletionMode::AtOnce, CompletionMode::WhenAsked { polls: 3 }];
    let null = completions.map(|completion| {
        let runtime = runtime_with_null(completion);
        let stream = null_stream(&runtime);
        (runtime, stream)
    });
    [(cpu, stream)].into_iter().chain(null).collect()
}

/// A call of a function that the test wrote.
pub(crate) fn call(function: *const c_void, arguments: &[Argument]) -> FfiCall {
    FfiCall::new(function, arguments).unwrap()
}

/// Launches a call that the test wrote.
pub(crate) fn launch(stream: &Stream, call: FfiCall) -> Result<u64> {
    // SAFETY: the tests launch their own functions with the arguments these take, and keep what
    // they point to until they synchronised.
    unsafe { stream.launch(call) }
}

/// A counter that native functions and closures reach, one behind the other.
pub(crate) fn counter() -> Arc<Plain> {
    Arc::default()
}

/// The counter as an argument; the caller keeps it until the stream is done.
pub(crate) fn pointer(counter: &Arc<Plain>) -> Argument {
    Argument::from(Arc::as_ptr(counter))
}

/// Appends one decimal digit, so that the counter shows an order.
pub(crate) extern "C" fn append(counter: &Plain, digit: u32) {
    append_digit(counter, digit);
}

/// As [`append`], for closures.
pub(crate) fn append_digit(counter: &Plain, digit: u32) {
    counter.set(counter.get() * 10 + usize::try_from(digit).unwrap());
}

/// What stands in the counter.
pub(crate) fn digits(counter: &Plain) -> usize {
    counter.get()
}

/// The message of the error that a synchronise raises.
pub(crate) fn failure(stream: &Stream) -> String {
    match stream.synchronize() {
        Err(Error::Stream(StreamError::Failed(error))) => error.to_string(),
        other => panic!("{other:?} instead of a failed stream"),
    }
}
