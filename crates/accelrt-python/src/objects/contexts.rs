//! Enters and leaves the `with` statements of devices, indices, streams, pools and tags.
//!
//! Each thread has one stack of open `with` statements, and each context of asyncio one above it.
//! The innermost decides the default device. A thread's pools stand with what it has selected, and
//! its tags apart (`tags`).

use std::cell::RefCell;

use accelrt::internal::{AllocationContext, NameId, forget_hints, fork};
use accelrt::{Device, Result, Runtime, Stream};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::objects::selection::Context;
use crate::objects::{tags, task_contexts};
use crate::support::errors::OrRaise;
use crate::support::parameters::kind_argument;

struct Entered {
    context: Context,
    previous_device: Option<Device>,
    previous_stream: Option<Stream>,
}

thread_local! {
    /// The open `with` statements of this thread, the innermost last.
    static ENTERED: RefCell<Vec<Entered>> = const { RefCell::new(Vec::new()) };
}

impl Context {
    /// Makes the device, stream, pool or tag current: in the asyncio task that runs, else on this
    /// thread. An error changes nothing.
    pub(crate) fn enter(self, py: Python<'_>) -> PyResult<()> {
        if task_contexts::is_inside(py) {
            return task_contexts::enter(py, self);
        }
        self.enter_on_thread().or_raise()
    }

    /// Records what is current on this thread, and replaces it.
    fn enter_on_thread(self) -> Result<()> {
        task_contexts::apply();
        if let Self::Pool(pool) = &self {
            pool.0.push();
            return Ok(());
        }
        if let Self::Tag(tag) = self {
            tags::push(tag);
            return Ok(());
        }
        let runtime = Runtime::global()?;
        // Sets the stream first: if the runtime refuses this step, the device stays unchanged.
        let previous_stream = match &self {
            Self::Stream(stream) => Some(runtime.exchange_stream(stream)?),
            Self::Device(..) | Self::Index(..) | Self::Pool(_) | Self::Tag(_) => None,
        };
        let exchange = |device: Result<Device>| runtime.exchange_device(device?);
        let previous_device = self.device().map(exchange).transpose()?;
        let entered = Entered { context: self, previous_device, previous_stream };
        forget_hints(); // entering a kind alone would not clear the hints
        ENTERED.with_borrow_mut(|stack| stack.push(entered));
        Ok(())
    }

    /// Leaves the innermost `with` of this device, stream, pool or tag: of the asyncio task that
    /// runs, else of this thread.
    pub(crate) fn exit(&self, py: Python<'_>) -> PyResult<()> {
        forget_hints();
        if task_contexts::exit(py, self)? {
            return Ok(());
        }
        if self.exit_on_thread().or_raise()? || task_contexts::exit_elsewhere(self) {
            return Ok(());
        }
        let what = match self {
            Self::Device(..) | Self::Index(..) => "Device",
            Self::Stream(_) => "Stream",
            Self::Pool(_) => "Memory pool",
            Self::Tag(_) => "Memory tag",
        };
        Err(PyRuntimeError::new_err(format!("{what} context stack is empty.")))
    }

    /// Restores what was current on this thread. False when the thread has no such `with` open.
    fn exit_on_thread(&self) -> Result<bool> {
        if let Self::Pool(pool) = self {
            return Ok(pool.0.pop());
        }
        if let Self::Tag(tag) = self {
            return Ok(tags::pop(*tag));
        }
        let entered = ENTERED.with_borrow_mut(|stack| {
            let place = stack.iter().rposition(|entered| entered.context == *self);
            place.map(|place| stack.remove(place))
        });
        let Some(entered) = entered else { return Ok(false) };
        let runtime = Runtime::global()?;
        if let Some(stream) = &entered.previous_stream {
            runtime.restore_stream(stream);
        }
        if let Some(device) = entered.previous_device {
            runtime.restore_device(device);
        }
        Ok(true)
    }
}

/// Drops every open `with` of this thread without restoring the previous state. Host threads call
/// this after each callable, which may leave a `with` open. The dropped handles may end streams.
pub(crate) fn forget() {
    tags::forget();
    task_contexts::forget();
    let left = ENTERED.take();
    drop(left); // outside of the borrow, because this may end streams
}

/// The current device of the innermost context's kind, or of the accelerator's without a context.
pub(crate) fn default_device(runtime: &Runtime) -> Result<Device> {
    task_contexts::apply();
    let of_thread = || {
        ENTERED.with_borrow(|stack| stack.iter().rev().find_map(|entered| entered.context.kind()))
    };
    match task_contexts::innermost_kind().or_else(of_thread) {
        Some(kind) => runtime.current_device_of(kind),
        None => runtime.current_device(),
    }
}

/// Enters the context that makes device `index` current. A negative index changes nothing.
#[pyfunction]
pub(crate) fn enter_index(py: Python<'_>, kind: &str, index: i64) -> PyResult<()> {
    Context::Index(kind_argument(kind)?, usize::try_from(index).ok()).enter(py)
}

/// Leaves the innermost `with` of a device's index.
#[pyfunction]
pub(crate) fn exit_index(py: Python<'_>, kind: &str, index: i64) -> PyResult<()> {
    Context::Index(kind_argument(kind)?, usize::try_from(index).ok()).exit(py)
}

/// Gives the requests of this thread a tag until `exit_memory_tag`; inside a running asyncio loop
/// those of the asyncio task.
#[pyfunction]
pub(crate) fn enter_memory_tag(py: Python<'_>, name: &str) -> PyResult<()> {
    if fork::is_child() {
        return Ok(()); // a child requests no memory, but may run code with tags
    }
    Context::Tag(NameId::of(name)).enter(py)
}

/// Leaves the innermost `with` of a tag.
#[pyfunction]
pub(crate) fn exit_memory_tag(py: Python<'_>, name: &str) -> PyResult<()> {
    if fork::is_child() {
        return Ok(());
    }
    Context::Tag(NameId::of(name)).exit(py)
}

/// The tag of what runs; empty for none.
#[pyfunction]
pub(crate) fn current_memory_tag() -> String {
    task_contexts::apply();
    AllocationContext::current().tag.text().to_string()
}
