//! What the tests share: runtimes with some workers, typed buffers, an end for what hangs.

use std::time::Duration;

use accelrt::{Config, Device, Plain, Runtime, Stream, TypedBuffer};

use crate::watchdog::finishes_within;

pub(crate) const CPU: Device = Device::cpu(0);

/// Far beyond what any test takes: only a hang lasts as long.
const HANG: Duration = Duration::from_secs(30);

pub(crate) fn finishes(test: impl FnOnce() + Send + 'static) {
    finishes_within(HANG, test);
}

pub(crate) fn workers(count: usize) -> Runtime {
    Runtime::new(Config::builder().cpu_threads(count).build().unwrap()).unwrap()
}

pub(crate) fn streams<const N: usize>(runtime: &Runtime) -> [Stream; N] {
    [(); N].map(|()| runtime.stream(CPU).unwrap())
}

/// A buffer with these elements.
pub(crate) fn typed<T: Plain>(runtime: &Runtime, elements: &[T]) -> TypedBuffer<T> {
    let buffer = runtime.empty(size_of_val(elements), CPU).unwrap().typed().unwrap();
    buffer.write_from_slice(elements).unwrap();
    buffer
}
