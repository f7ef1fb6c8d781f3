//! accelrt: devices, streams, events and stream-ordered memory with one API.
//!
//! A stand-alone runtime for stream-based accelerators. One program runs unchanged on the machine's
//! own cores (the embedded, asynchronous `cpu` device), on OpenCL devices with unified shared
//! memory (kind `xpu`, crate `accelrt-opencl`) and, when its backend lands, on NVIDIA GPUs.
//!
//! The main types:
//!
//! * [`Runtime`]: the devices of this machine; [`Runtime::global`] is the process's own runtime
//! * [`Device`]: a kind and an index, such as `cpu:0`
//! * [`Stream`]: executes enqueued functions in order, on worker threads or on a driver
//! * [`FfiCall`]: a C function with [`Argument`]s, for a stream to call
//! * [`Completion`]: finishes a task of a stream, from any thread
//! * [`Event`]: a place in a stream that other streams and threads wait for, with time stamps
//! * [`Buffer`]: memory on a device, freed in stream order; a host access waits for earlier uses
//! * [`TypedBuffer`]: a buffer as numbers; [`Stream::enqueue_with`] gives them to a task as slices
//! * [`CachingAllocator`]: caches freed memory, with settings from an [`AllocatorConfig`]
//! * [`Program`]: kernels compiled for a device; a [`Kernel`] is launched with [`KernelArgument`]s
//! * [`DeviceGuard`], [`StreamGuard`]: set the thread's current device or stream, within a scope
//! * [`Error`]: the errors of all calls, with the values that explain them
//! * [`backend`]: the contract for authors of backends, and the built-in kinds
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use accelrt::{Event, Runtime};
//!
//! let runtime = Runtime::global()?;
//! let device = runtime.current_device()?;
//! let (produce, consume) = (runtime.stream(device)?, runtime.stream(device)?);
//! let value = Arc::new(AtomicU64::new(0));
//!
//! let written = Event::new();
//! let cell = Arc::clone(&value);
//! produce.enqueue(move || cell.store(42, Ordering::Relaxed))?;
//! produce.record(&written)?;
//!
//! consume.wait_event(&written)?; // ordered by the event; no thread waits
//! let cell = Arc::clone(&value);
//! consume.enqueue(move || assert_eq!(cell.load(Ordering::Relaxed), 42))?;
//! consume.synchronize()?;
//! # Ok::<(), accelrt::Error>(())
//! ```
//!
//! `ARCHITECTURE.md` has a map of the code and follows one task from enqueue to done.

#![cfg_attr(
    not(feature = "async"),
    allow(dead_code, reason = "futures are compiled and tested always")
)]
#![cfg_attr(
    not(feature = "async"),
    allow(unreachable_pub, reason = "futures are compiled always; the feature makes them public")
)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("accelrt packs a segment's lap into its pointer and needs 64-bit addresses");

pub mod backend;
mod base;
mod compute;
mod engine;
mod ffi;
mod memory;
mod queue;
mod runtime;

mod face;
#[doc(hidden)]
pub mod internal;
#[cfg(not(loom))]
pub mod kinds;

#[cfg(all(test, not(loom)))]
#[path = "../tests/common/edges.rs"]
mod edges;
#[cfg(test)]
#[path = "../tests/common/numbers.rs"]
mod numbers;
#[cfg(test)]
#[path = "../tests/common/seed.rs"]
mod seed;

// Unit tests compile the doubles of accelrt-testing into this crate: a crate cannot use its own
// dependent.
#[cfg(test)]
extern crate self as accelrt;
#[cfg(test)]
#[path = "../crates/accelrt-testing/src/fault/mod.rs"]
mod fault;
#[cfg(test)]
#[path = "../crates/accelrt-testing/src/null/mod.rs"]
mod null;
#[cfg(test)]
#[path = "../crates/accelrt-testing/src/trusted.rs"]
mod trusted;

pub use backend::contract::{DeviceProperties, LeftOutDevice, MemoryInfo, PriorityRange};
pub use backend::cpu::properties::cpu_capability;
pub use base::config::{AllocatorSettings, Config, ConfigBuilder};
pub use base::device::{Device, DeviceKind, MAX_DEVICE_INDEX, parse_device};
pub use base::error::{
    ConfigError, DeviceError, DriverError, Error, ErrorKind, EventError, FailureCause,
    GeneratorError, IntegrationError, MemoryError, ProgramError, Result, RuntimeError, StreamError,
    StreamFailure, TaskError,
};
pub use base::shortage::{MemoryUser, Shortage};
pub use base::size;
pub use compute::{
    Kernel, KernelArgument, KernelParameter, ParameterClass, Program, ProgramSource,
};
pub use engine::event::Event;
#[cfg(feature = "async")]
pub use engine::event::future::EventFuture;
pub use engine::stream::{Completion, Stream, TaskOutcome};
pub use ffi::{Argument, FfiCall};
pub use memory::allocator::{
    self, AllocatorConfig, CachingAllocator, PolicyName, PoolId, PoolOptions,
};
#[cfg(feature = "async")]
pub use memory::buffer::transfer::{HostTransferFuture, TransferFuture};
pub use memory::buffer::{Buffer, ExportGuard, HostTransfer, Transfer};
pub use runtime::guard::{DeviceGuard, OptionalDeviceGuard, OptionalStreamGuard, StreamGuard};
pub use runtime::{Counters, MemPool, PoolGuard, Runtime, ShutdownReport};

pub use face::{Plain, Reads, Scope, TypedBuffer, Uses, Writes};

/// Runs the examples of `README.md` and `docs/streams.md` as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/streams.md")]
struct Documents;
