//! Owned streams and marks of a backend: the drop of an owner releases its stream or mark.
//!
//! | pre-condition of the contract | upheld by |
//! |---|---|
//! | the handle is of this backend | the owner holds the issuing backend and calls no other |
//! | the handle was not released | only the owner's drop releases it |
//! | no other call uses the handle during its release | each call borrows the owner |
#![expect(unsafe_code, reason = "an owner keeps its handle live")]

use std::fmt;
use std::sync::Arc;

use crate::backend::contract::{
    Address, Backend, DoneCallback, KernelHandle, Kernels, LaunchArgument, LaunchSize, Mark,
    StreamHandle, Work,
};
use crate::base::error::Result;

/// Owns a stream of a backend; the drop destroys the stream.
pub struct OwnedStream {
    backend: Arc<dyn Backend>,
    stream: StreamHandle,
}

impl OwnedStream {
    /// Creates a stream. The priority must be in [`Backend::priority_range`].
    pub(crate) fn create(
        backend: &Arc<dyn Backend>,
        device_index: usize,
        priority: i32,
    ) -> Result<Arc<Self>> {
        let stream = backend.stream_create(device_index, priority)?;
        Ok(Arc::new(Self { backend: Arc::clone(backend), stream }))
    }

    /// As [`Backend::stream_wrap`]; the drop destroys what the backend has made of it.
    ///
    /// # Safety
    /// As for [`Backend::stream_wrap`].
    pub(crate) unsafe fn wrap(
        backend: &Arc<dyn Backend>,
        device_index: usize,
        native: u64,
    ) -> Result<Arc<Self>> {
        // SAFETY: the caller upholds the conditions on the native stream.
        let stream = unsafe { backend.stream_wrap(device_index, native) }?;
        Ok(Arc::new(Self { backend: Arc::clone(backend), stream }))
    }

    pub(crate) fn native(&self) -> Result<u64> {
        // SAFETY: the stream is live, because only the drop of `self` destroys it.
        unsafe { self.backend.stream_native(self.stream) }
    }

    pub(crate) fn submit(&self, work: Arc<dyn Work>) {
        // SAFETY: the stream is live until this returns, because the caller borrows `self`.
        unsafe { self.backend.submit(self.stream, work) }
    }

    pub(crate) fn resume(&self, work: Arc<dyn Work>) {
        // SAFETY: the stream is live until this returns, because the caller borrows `self`.
        unsafe { self.backend.resume(self.stream, work) }
    }

    #[inline]
    pub(crate) fn flush(&self) {
        // SAFETY: the stream is live, because only the drop of `self` destroys it.
        unsafe { self.backend.flush(self.stream) }
    }

    pub fn query(&self) -> Result<bool> {
        // SAFETY: the stream is live, because only the drop of `self` destroys it.
        unsafe { self.backend.stream_query(self.stream) }
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream is live, because only the drop of `self` destroys it.
        unsafe { self.backend.stream_synchronize(self.stream) }
    }

    pub(crate) fn mark(&self, timed: bool) -> Result<Arc<OwnedMark>> {
        let mark = self.bare_mark(timed)?;
        // SAFETY: the mark is new, of this backend, and has no other owner.
        Ok(unsafe { mark.into_owned(&self.backend) })
    }

    /// Records a mark without an owner. The caller must release the mark or add an owner.
    #[inline]
    pub(crate) fn bare_mark(&self, timed: bool) -> Result<BareMark> {
        // SAFETY: the stream is live, because only the drop of `self` destroys it.
        unsafe { self.backend.mark(self.stream, timed) }.map(BareMark)
    }

    /// As [`Backend::stream_wait`], for a mark of the same backend.
    pub(crate) fn wait(&self, mark: &OwnedMark) -> Result<()> {
        assert!(Arc::ptr_eq(&self.backend, &mark.backend), "a mark of another backend");
        // SAFETY: their owners keep stream and mark live, and the assertion ensures one backend.
        unsafe { self.backend.stream_wait(self.stream, mark.mark) }
    }

    /// As [`Backend::copy`].
    ///
    /// # Safety
    /// Both ranges are valid for the task, `to` is exclusive to it, and nothing writes to `from`
    /// until the task is done: see the head of `contract`.
    pub(crate) unsafe fn copy(&self, to: Address, from: Address, bytes: usize) -> Result<()> {
        // SAFETY: `self` keeps the stream live; the caller upholds the conditions on the ranges.
        unsafe { self.backend.copy(self.stream, to, from, bytes) }
    }

    /// As [`Backend::fill`].
    ///
    /// # Safety
    /// The range is valid for the task and exclusive to it: see the head of `contract`.
    pub(crate) unsafe fn fill(&self, to: Address, byte: u8, bytes: usize) -> Result<()> {
        // SAFETY: `self` keeps the stream live; the caller upholds the conditions on the range.
        unsafe { self.backend.fill(self.stream, to, byte, bytes) }
    }

    /// As [`Kernels::launch`].
    ///
    /// # Safety
    /// The kernel is live, and of this backend and the stream's device. The arguments match the
    /// number and classes of its parameters. Its accesses are sound: see [`Kernels::launch`].
    pub(crate) unsafe fn launch(
        &self,
        kernels: &dyn Kernels,
        kernel: KernelHandle,
        arguments: &[LaunchArgument],
        size: &LaunchSize,
    ) -> Result<()> {
        // SAFETY: `self` keeps the stream live; the caller upholds the conditions on the launch.
        unsafe { kernels.launch(kernel, self.stream, arguments, size) }
    }
}

impl Drop for OwnedStream {
    fn drop(&mut self) {
        // The result is ignored: a failed call also ends the life of the handle.
        // SAFETY: the stream is live, because only this drop destroys it, and the drop runs once.
        let _ = unsafe { self.backend.stream_destroy(self.stream) };
    }
}

impl fmt::Debug for OwnedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.stream, f)
    }
}

/// A mark that no drop releases. Most marks have one holder, which needs no [`OwnedMark`].
#[derive(Clone, Copy, Debug)]
#[must_use = "an unreleased mark leaks in the backend"]
pub(crate) struct BareMark(Mark);

impl BareMark {
    /// Adds an owner, whose drop releases the mark.
    ///
    /// # Safety
    /// A stream of this backend recorded the mark, which is live and has no other owner.
    pub(crate) unsafe fn into_owned(self, backend: &Arc<dyn Backend>) -> Arc<OwnedMark> {
        Arc::new(OwnedMark { backend: Arc::clone(backend), mark: self.0 })
    }

    /// Releases the mark from the backend that recorded it.
    ///
    /// # Safety
    /// A stream of this backend recorded the mark, which is live and has no other owner.
    pub(crate) unsafe fn release(self, backend: &dyn Backend) {
        // The result is ignored: a failed release leaks the mark.
        // SAFETY: the caller upholds that the mark is live, of this backend and not shared.
        let _ = unsafe { backend.mark_release(self.0) };
    }
}

/// Owns a mark of a backend; the drop releases the mark.
pub(crate) struct OwnedMark {
    backend: Arc<dyn Backend>,
    mark: Mark,
}

impl OwnedMark {
    pub(crate) fn is_done(&self) -> Result<bool> {
        // SAFETY: the mark is live, because only the drop of `self` releases it.
        unsafe { self.backend.mark_done(self.mark) }
    }

    pub(crate) fn wait(&self) -> Result<()> {
        // SAFETY: the mark is live, because only the drop of `self` releases it.
        unsafe { self.backend.wait_mark(self.mark) }
    }

    pub(crate) fn when_done(&self, callback: DoneCallback) -> Result<()> {
        // SAFETY: the mark is live until this returns, because the caller borrows `self`.
        unsafe { self.backend.when_done(self.mark, callback) }
    }

    /// Nanoseconds from this mark to `end`, a mark of the same device. Both must be timed and done.
    pub(crate) fn elapsed_ns(&self, end: &Self) -> Result<i64> {
        assert!(Arc::ptr_eq(&self.backend, &end.backend), "a mark of another backend");
        // SAFETY: their owners keep both marks live, and the assertion ensures one backend.
        unsafe { self.backend.elapsed_ns(self.mark, end.mark) }
    }
}

impl Drop for OwnedMark {
    fn drop(&mut self) {
        // SAFETY: the mark is live, of this backend and, by `into_owned`, not shared.
        unsafe { BareMark(self.mark).release(&*self.backend) };
    }
}

impl fmt::Debug for OwnedMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.mark, f)
    }
}
