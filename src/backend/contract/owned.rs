//! Owned streams and marks of a backend: live until the owner is dropped, which gives them back.
//!
//! | promise of the contract | kept by |
//! |---|---|
//! | the handle is of this backend | the owner keeps the backend that made it, and calls no other |
//! | it was not given back | only the owner's drop does that |
//! | no call with it is under way then | each call borrows the owner |
#![expect(unsafe_code, reason = "a handle is live for as long as its owner is there")]

use std::fmt;
use std::sync::Arc;

use crate::backend::contract::{
    Address, Backend, DoneCallback, KernelHandle, Kernels, LaunchArgument, LaunchSize, Mark,
    StreamHandle, Work,
};
use crate::base::error::Result;

/// A stream of a backend, destroyed with this.
pub(crate) struct OwnedStream {
    backend: Arc<dyn Backend>,
    stream: StreamHandle,
}

// In all calls below the stream is live: see the head of this file.
impl OwnedStream {
    /// Makes a stream. The priority is in the backend's range.
    pub(crate) fn create(
        backend: &Arc<dyn Backend>,
        device_index: usize,
        priority: i32,
    ) -> Result<Arc<Self>> {
        let stream = backend.stream_create(device_index, priority)?;
        Ok(Arc::new(Self { backend: Arc::clone(backend), stream }))
    }

    /// As [`Backend::stream_native`].
    pub(crate) fn native(&self) -> Result<u64> {
        // SAFETY: the stream is live.
        unsafe { self.backend.stream_native(self.stream) }
    }

    /// As [`Backend::submit`].
    pub(crate) fn submit(&self, work: Arc<dyn Work>) {
        // SAFETY: the stream is live until this returns: the caller borrows it.
        unsafe { self.backend.submit(self.stream, work) }
    }

    /// As [`Backend::resume`].
    pub(crate) fn resume(&self, work: Arc<dyn Work>) {
        // SAFETY: as for `submit`.
        unsafe { self.backend.resume(self.stream, work) }
    }

    /// As [`Backend::flush`].
    #[inline]
    pub(crate) fn flush(&self) {
        // SAFETY: the stream is live.
        unsafe { self.backend.flush(self.stream) }
    }

    /// As [`Backend::stream_query`].
    pub(crate) fn query(&self) -> Result<bool> {
        // SAFETY: the stream is live.
        unsafe { self.backend.stream_query(self.stream) }
    }

    /// As [`Backend::stream_synchronize`].
    pub(crate) fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream is live.
        unsafe { self.backend.stream_synchronize(self.stream) }
    }

    /// Marks the place that the stream has reached; with a time stamp when `timed`.
    pub(crate) fn mark(&self, timed: bool) -> Result<Arc<OwnedMark>> {
        let mark = self.bare_mark(timed)?;
        // SAFETY: made by this backend, just now.
        Ok(unsafe { mark.into_owned(&self.backend) })
    }

    /// As [`Self::mark`], without an owner: the caller adds one when the mark is asked for.
    #[inline]
    pub(crate) fn bare_mark(&self, timed: bool) -> Result<BareMark> {
        // SAFETY: the stream is live.
        unsafe { self.backend.mark(self.stream, timed) }.map(BareMark)
    }

    /// Makes later submissions wait, on the device, for a mark of the same backend.
    pub(crate) fn wait(&self, mark: &OwnedMark) -> Result<()> {
        assert!(Arc::ptr_eq(&self.backend, &mark.backend), "a mark of another backend");
        // SAFETY: the stream is live, and so is the mark, which is of this backend.
        unsafe { self.backend.stream_wait(self.stream, mark.mark) }
    }

    /// As [`Backend::copy`].
    ///
    /// # Safety
    /// Both ranges are valid for the task, it has `to` alone, and nothing writes to `from`
    /// meanwhile: see the head of `contract`.
    pub(crate) unsafe fn copy(&self, to: Address, from: Address, bytes: usize) -> Result<()> {
        // SAFETY: the stream is live; the caller promises the rest.
        unsafe { self.backend.copy(self.stream, to, from, bytes) }
    }

    /// As [`Backend::fill`].
    ///
    /// # Safety
    /// The range is valid for the task, which has it alone: see the head of `contract`.
    pub(crate) unsafe fn fill(&self, to: Address, byte: u8, bytes: usize) -> Result<()> {
        // SAFETY: the stream is live; the caller promises the rest.
        unsafe { self.backend.fill(self.stream, to, byte, bytes) }
    }

    /// As [`Kernels::launch`].
    ///
    /// # Safety
    /// The kernel is live, of this backend and of the stream's device. The arguments are of the
    /// number and the classes that it has, and what it does with them is sound: see the head of
    /// `contract`.
    pub(crate) unsafe fn launch(
        &self,
        kernels: &dyn Kernels,
        kernel: KernelHandle,
        arguments: &[LaunchArgument],
        size: &LaunchSize,
    ) -> Result<()> {
        // SAFETY: the stream is live; the caller promises the rest.
        unsafe { kernels.launch(kernel, self.stream, arguments, size) }
    }
}

impl Drop for OwnedStream {
    fn drop(&mut self) {
        // A refusal leaves nothing to do: the handle of the stream is gone.
        // SAFETY: the stream is live, and this owner, which ends it, is the only one.
        let _ = unsafe { self.backend.stream_destroy(self.stream) };
    }
}

impl fmt::Debug for OwnedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.stream, f)
    }
}

/// A mark without an owner: few marks are ever asked for, and an owner costs a reference count.
#[derive(Clone, Copy, Debug)]
#[must_use = "the backend keeps it until it is released"]
pub(crate) struct BareMark(Mark);

impl BareMark {
    /// Gives it an owner, which releases it.
    ///
    /// # Safety
    /// A stream of this backend made it, and nothing else owns or releases it.
    pub(crate) unsafe fn into_owned(self, backend: &Arc<dyn Backend>) -> Arc<OwnedMark> {
        Arc::new(OwnedMark { backend: Arc::clone(backend), mark: self.0 })
    }

    /// Gives it back.
    ///
    /// # Safety
    /// A stream of this backend made it, and nothing else owns or releases it.
    pub(crate) unsafe fn release(self, backend: &dyn Backend) {
        // A refusal leaves nothing to do: the driver keeps the mark, and the next call tells.
        // SAFETY: of this backend, and live: the caller promises it.
        let _ = unsafe { backend.mark_release(self.0) };
    }
}

/// A mark that is released with this.
pub(crate) struct OwnedMark {
    backend: Arc<dyn Backend>,
    mark: Mark,
}

// In all calls below the mark is live: see the head of this file.
impl OwnedMark {
    /// As [`Backend::mark_done`].
    pub(crate) fn is_done(&self) -> Result<bool> {
        // SAFETY: the mark is live.
        unsafe { self.backend.mark_done(self.mark) }
    }

    /// As [`Backend::wait_mark`].
    pub(crate) fn wait(&self) -> Result<()> {
        // SAFETY: the mark is live.
        unsafe { self.backend.wait_mark(self.mark) }
    }

    /// As [`Backend::when_done`].
    pub(crate) fn when_done(&self, callback: DoneCallback) -> Result<()> {
        // SAFETY: the mark is live until this returns: the caller borrows it.
        unsafe { self.backend.when_done(self.mark, callback) }
    }

    /// Nanoseconds from this mark to another one of the same device; both are timed and done.
    pub(crate) fn elapsed_ns(&self, end: &Self) -> Result<i64> {
        assert!(Arc::ptr_eq(&self.backend, &end.backend), "a mark of another backend");
        // SAFETY: both marks are live, and of one backend.
        unsafe { self.backend.elapsed_ns(self.mark, end.mark) }
    }
}

impl Drop for OwnedMark {
    fn drop(&mut self) {
        // SAFETY: of this backend, and owned by this alone: `own` was promised that.
        unsafe { BareMark(self.mark).release(&*self.backend) };
    }
}

impl fmt::Debug for OwnedMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.mark, f)
    }
}
