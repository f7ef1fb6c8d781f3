//! The state of a Python `Buffer`: its memory, which `.data` may replace, and a version counter.
//!
//! Views share the counter of their base. `.data` starts a new counter, and an assignment to
//! `.data` leaves the counter unchanged. Buffers created in inference mode have no version and can
//! be written only in that mode. The counter is inline in the object until a view shares it.
#![expect(unsafe_code, reason = "a cell that the GIL guards")]

use std::cell::{Cell, UnsafeCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use accelrt::Buffer;
use accelrt::internal::forget_hints;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::support::stacks::FreedWithStack;

enum Count {
    Own(u32),
    Shared(Arc<AtomicU64>),
}

struct State {
    buffer: FreedWithStack<Buffer>,
    count: Count,
    /// True for memory without a version, which only inference mode creates and may write.
    is_inference: bool,
}

/// A buffer and its version. The GIL guards both.
pub(crate) struct BufferState(UnsafeCell<State>);

// SAFETY: every method takes a proof of the GIL. No method releases the GIL while it uses the
// state: methods only clone, count and swap, which calls no Python code.
unsafe impl Sync for BufferState {}

impl BufferState {
    /// Wraps new memory with a version. Only for threads outside of inference mode.
    #[inline]
    pub(crate) fn new(buffer: Buffer) -> Self {
        Self::of(buffer, Count::Own(0), false)
    }

    /// Wraps new memory, with a version unless this thread is in inference mode.
    pub(crate) fn in_mode(buffer: Buffer) -> Self {
        let is_inference = is_inference_mode();
        Self::of(buffer, Count::Own(0), is_inference)
    }

    #[inline]
    fn of(buffer: Buffer, count: Count, is_inference: bool) -> Self {
        let buffer = FreedWithStack::new(buffer);
        Self(UnsafeCell::new(State { buffer, count, is_inference }))
    }

    #[inline]
    #[expect(clippy::mut_from_ref, reason = "for the methods here: see `Sync`")]
    fn state(&self, _py: Python<'_>) -> &mut State {
        // SAFETY: the GIL excludes other threads. No method calls another method while it uses the
        // reference, so the reference is unique.
        unsafe { &mut *self.0.get() }
    }

    /// A handle of the memory. A later assignment to `.data` does not change the handle.
    #[inline]
    pub(crate) fn buffer(&self, py: Python<'_>) -> Buffer {
        Buffer::clone(&self.state(py).buffer)
    }

    pub(crate) fn is_inference(&self, py: Python<'_>) -> bool {
        self.state(py).is_inference
    }

    pub(crate) fn version(&self, py: Python<'_>) -> PyResult<u64> {
        let state = self.state(py);
        if state.is_inference {
            let text = "Inference tensors do not track version counter.";
            return Err(PyRuntimeError::new_err(text));
        }
        Ok(match &state.count {
            Count::Own(count) => u64::from(*count),
            // Relaxed, here and below: the GIL orders all accesses.
            Count::Shared(count) => count.load(Ordering::Relaxed),
        })
    }

    /// A view of the same memory, or of a part of it, that shares the counter.
    pub(crate) fn view(&self, py: Python<'_>, buffer: Buffer) -> Self {
        let state = self.state(py);
        let shared = match &state.count {
            Count::Shared(count) => Arc::clone(count),
            Count::Own(count) => Arc::new(AtomicU64::new(u64::from(*count))),
        };
        state.count = Count::Shared(Arc::clone(&shared));
        let is_inference = state.is_inference;
        Self::of(buffer, Count::Shared(shared), is_inference)
    }

    /// Another state of the same memory, with a separate counter that starts at 0.
    pub(crate) fn data(&self, py: Python<'_>) -> Self {
        let State { buffer, is_inference, .. } = self.state(py);
        let (buffer, is_inference) = (Buffer::clone(buffer), *is_inference);
        Self::of(buffer, Count::Own(0), is_inference)
    }

    /// Replaces the memory by that of `other`. Keeps the counter.
    pub(crate) fn set_data(&self, py: Python<'_>, other: &Self) {
        let (buffer, is_inference) = (other.buffer(py), other.is_inference(py));
        let state = self.state(py);
        let replaced = std::mem::replace(&mut state.buffer, FreedWithStack::new(buffer));
        state.is_inference = is_inference;
        drop(replaced); // last, because a free may take the allocator's lock
    }

    /// Calls `write` and counts a success. `RuntimeError` if only inference mode may write.
    #[inline]
    pub(crate) fn write<T>(
        &self,
        py: Python<'_>,
        write: impl FnOnce(&Buffer) -> PyResult<T>,
    ) -> PyResult<T> {
        if self.is_inference(py) && !is_inference_mode() {
            return Err(PyRuntimeError::new_err(
                "Inplace update to inference tensor outside InferenceMode is not allowed.You can \
                 make a clone to get a normal tensor before doing inplace update.",
            ));
        }
        let written = write(&self.buffer(py))?;
        match &mut self.state(py).count {
            Count::Own(count) => *count = count.wrapping_add(1),
            Count::Shared(count) => _ = count.fetch_add(1, Ordering::Relaxed),
        }
        Ok(written)
    }
}

thread_local! {
    static IS_INFERENCE_MODE: Cell<bool> = const { Cell::new(false) };
}

/// True while this thread is in inference mode, in which new buffers have no version.
#[pyfunction(name = "is_inference_mode_enabled")]
pub(crate) fn is_inference_mode() -> bool {
    IS_INFERENCE_MODE.get()
}

/// Enables or disables inference mode on this thread; returns whether it was enabled.
#[pyfunction]
pub(crate) fn exchange_inference_mode(is_enabled: bool) -> bool {
    // Clears the hints, which create buffers with a version and do not check the mode.
    forget_hints();
    IS_INFERENCE_MODE.replace(is_enabled)
}
