//! FFI calls that use buffers.
#![expect(unsafe_code, reason = "passes on the promise of a launch's caller")]

use crate::base::error::Result;
use crate::engine::stream::Stream;
use crate::engine::stream::order_watch::{self, NextUses};
use crate::ffi::FfiCall;
use crate::memory::buffer::Buffer;
use crate::memory::buffer::order::follow_earlier_life;
use crate::memory::buffer::uses::Task;

impl Stream {
    /// As [`Stream::launch`], and records a use of each buffer. A buffer may be dropped right after
    /// the call, and a host access to a buffer waits for the function.
    ///
    /// Fails as [`Stream::launch`], and when a buffer is released or belongs to another runtime. A
    /// call that fails enqueues nothing.
    ///
    /// ```
    /// use accelrt::FfiCall;
    /// extern "C" fn count_up(bytes: *mut u8, count: usize) {
    ///     let bytes = unsafe { std::slice::from_raw_parts_mut(bytes, count) };
    ///     bytes.iter_mut().for_each(|byte| *byte += 1);
    /// }
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let device = accelrt::Device::cpu(0);
    /// let (stream, buffer) = (runtime.current_stream()?, runtime.zeros(3, device)?);
    /// let arguments = [buffer.address()?.into(), buffer.nbytes().into()];
    /// let call = FfiCall::new(count_up as *const _, &arguments)?;
    /// // SAFETY: the types are those of `count_up`, and the buffer has as many bytes.
    /// unsafe { stream.launch_with_buffers(call, &[&buffer])? };
    /// assert_eq!(buffer.read_to_vec()?, [1; 3]);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    ///
    /// # Safety
    /// As [`Stream::launch`], except that the recorded uses keep the buffers' memory allocated.
    pub unsafe fn launch_with_buffers(&self, call: FfiCall, buffers: &[&Buffer]) -> Result<u64> {
        let uses: Vec<_> = buffers.iter().map(|buffer| (*buffer, None)).collect();
        // SAFETY: the caller upholds `launch`'s contract; with `None`, no accesses are stated.
        unsafe { self.launch_with_uses(call, &uses) }
    }

    /// As [`Stream::launch_with_buffers`]. `Some(writes)` states that the function uses only the
    /// bytes of the buffer's view, and whether the function writes them.
    ///
    /// # Safety
    /// As [`Stream::launch_with_buffers`], and the stated accesses are complete.
    #[doc(hidden)]
    pub unsafe fn launch_with_uses(
        &self,
        call: FfiCall,
        uses: &[(&Buffer, Option<bool>)],
    ) -> Result<u64> {
        // SAFETY: the caller upholds `launch`'s contract. The buffers stay allocated until their
        // uses are recorded.
        self.enqueue_using(uses, || unsafe { self.launch_marker(call) })
    }

    /// Enqueues a task, which is a marker, by `enqueue`, and records its uses. On another stream
    /// than a buffer's home, the task runs behind what the home still does with the memory for an
    /// earlier buffer.
    #[doc(hidden)]
    pub fn enqueue_using(
        &self,
        uses: &[(&Buffer, Option<bool>)],
        enqueue: impl FnOnce() -> Result<u64>,
    ) -> Result<u64> {
        let core = self.core();
        for (buffer, _) in uses {
            core.lifecycle.check_same_runtime("a buffer", buffer.runtime())?;
        }
        let accesses: Vec<_> = uses.iter().map(|(it, _)| it.access()).collect::<Result<_>>()?;
        for (buffer, _) in uses {
            follow_earlier_life(core, buffer);
        }
        if order_watch::is_on() {
            let told = uses.iter().map(|(buffer, writes)| buffer.used_bytes(*writes));
            let uses = told.collect();
            order_watch::declare(Some(NextUses { uses, ..NextUses::NONE }));
        }
        let ticket = enqueue().inspect_err(|_| order_watch::declare(None))?;
        for (access, (buffer, writes)) in accesses.into_iter().zip(uses) {
            access.record_use(core, Task::marker(ticket), buffer, *writes);
        }
        Ok(ticket)
    }
}
