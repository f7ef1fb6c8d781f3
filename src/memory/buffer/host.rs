//! Host accesses: a thread reads or writes a buffer's bytes after every earlier use is done.
#![expect(unsafe_code, reason = "copies memory that devices share with the host")]

use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::contract::{Address, MemoryKind};
use crate::base::error::{DriverError, Error, Result, StreamFailure};
use crate::base::fork;
use crate::base::size::to_usize;
use crate::base::sync::park;
use crate::engine::stream::commands::open_latch;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::interrupt::Interrupt;
use crate::engine::stream::order_watch::{self, Told, has_waited};
use crate::engine::stream::synchronize::raise_all;
use crate::engine::stream::task::drop_quietly;
use crate::memory::buffer::Buffer;
use crate::memory::buffer::allocation::{Access, Allocation, Refusal};
use crate::memory::buffer::copies::check_sizes;
use crate::memory::buffer::host_accesses::HOST_PERIOD;
use crate::memory::buffer::transfer::WatchedTask;
use crate::memory::buffer::uses::{AccessedBytes, Task, Use};

impl Buffer {
    /// Blocks until every recorded use of the memory through any view is done; meanwhile may
    /// execute stream tasks. Fails with the failures that cover those uses, unless a synchronise
    /// has already raised them. Each failure then ends for tasks that are enqueued later, but the
    /// buffer reports it until a task has written the bytes again on that stream, a synchronise has
    /// cleared the failure, or 16 later ones of the stream were received. Ignores later uses.
    ///
    /// Fails inside a task of a stream that uses the memory, after a release and in a forked child.
    pub fn wait_for_host(&self) -> Result<()> {
        self.wait_for_uses(&mut Interrupt::default())
    }

    /// As [`Buffer::wait_for_host`]. Calls `is_interrupted` every 50 ms. When the function returns
    /// true, the wait fails with [`Interrupted`](crate::RuntimeError::Interrupted) and the tasks
    /// continue.
    pub fn wait_for_host_unless(&self, is_interrupted: &mut dyn FnMut() -> bool) -> Result<()> {
        self.wait_for_uses(&mut Interrupt::by(is_interrupted))
    }

    /// As [`Buffer::wait_for_host`], for at most `timeout`. Then the wait fails with
    /// [`TimedOut`](crate::RuntimeError::TimedOut), and the tasks continue. This thread executes
    /// none of them, because their length is unknown.
    pub fn wait_for_host_timeout(&self, timeout: Duration) -> Result<()> {
        self.wait_for_uses(&mut Interrupt::after(timeout))
    }

    /// True when [`Buffer::wait_for_host`] would not block. Queries the device.
    #[doc(hidden)]
    #[must_use]
    pub fn is_unused(&self) -> bool {
        let allocation = self.allocation();
        let uses = allocation.uses();
        allocation.home.poll_ticket(allocation.busy_until())
            && uses.iter().all(|point| point.stream.poll_ticket(point.last.task.ticket))
    }

    /// True when [`Buffer::wait_for_host`] would fail for a completed use. Never blocks.
    #[doc(hidden)]
    #[must_use]
    pub fn has_failed(&self) -> bool {
        let uses = self.allocation().uses();
        uses.iter().any(|point| point.is_done() && point.failure().is_some())
    }

    /// Blocks until every recorded use is done; returns a copy of the bytes. Fails as
    /// [`Buffer::wait_for_host`]. Tasks that other threads enqueue during the call and that write
    /// the bytes either complete before the copy or run after it.
    ///
    /// Fails on memory that the host cannot access: use [`Buffer::copy_to_slice`] there.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let buffer = runtime.empty(4, accelrt::Device::cpu(0))?;
    /// buffer.fill(7, &buffer.stream())?;
    /// assert_eq!(buffer.read_to_vec()?, [7; 4]); // waits for the fill
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn read_to_vec(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.nbytes()];
        self.read_to_slice(&mut bytes)?;
        Ok(bytes)
    }

    /// As [`Buffer::read_to_vec`], into a slice of the same size.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let buffer = runtime.zeros(4, accelrt::Device::cpu(0))?;
    /// let mut bytes = [1; 4];
    /// buffer.read_to_slice(&mut bytes)?;
    /// assert_eq!(bytes, [0; 4]);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn read_to_slice(&self, bytes: &mut [u8]) -> Result<()> {
        check_sizes(bytes.len(), self.nbytes())?;
        let _access = self.host_access(false)?;
        let to = Address(bytes.as_mut_ptr().expose_provenance() as u64);
        self.copy_on_this_thread(to, self.begin())
    }

    /// Blocks until every recorded use is done; then sets the bytes. Fails as
    /// [`Buffer::wait_for_host`]. Tasks that other threads enqueue during the call and that use the
    /// bytes either complete before the copy or run after it.
    ///
    /// Fails when the sizes differ, and on memory that the host cannot access: use
    /// [`Buffer::copy_from_slice`] there.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let buffer = runtime.empty(3, accelrt::Device::cpu(0))?;
    /// buffer.write_from_slice(&[1, 2, 3])?;
    /// assert_eq!(buffer.slice(1..)?.read_to_vec()?, [2, 3]);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn write_from_slice(&self, bytes: &[u8]) -> Result<()> {
        check_sizes(self.nbytes(), bytes.len())?;
        let _access = self.host_access(true)?;
        self.copy_on_this_thread(self.begin(), Address(bytes.as_ptr().expose_provenance() as u64))
    }

    /// True when host threads can access the memory directly, as [`Buffer::read_to_vec`] does: on
    /// kinds that run on the host, and for pinned or shared memory of kinds whose addresses are
    /// backed by memory.
    #[must_use]
    pub fn is_host_accessible(&self) -> bool {
        let home = &self.allocation().home;
        let has_host_access = self.allocation().memory.kind != MemoryKind::Device;
        home.on_host || has_host_access && home.backend.has_host_addresses()
    }

    /// Waits for the uses and begins an access. Until the access is dropped, later conflicting uses
    /// wait for it, and a release does not free the memory.
    fn host_access(&self, writes: bool) -> Result<HostAccess<'_>> {
        if !self.is_host_accessible() {
            let (kind, capability) = (self.device().kind(), "access to their memory by the host");
            return Err(Error::Driver(DriverError::Unsupported { kind, capability }));
        }
        let accessed = AccessedBytes::new(self.bytes(), writes);
        self.wait_for_every_use(&mut Interrupt::default(), false)?;
        let entered = self.allocation().enter_host(accessed);
        let (access, uses) = entered.map_err(|refusal| self.refused(refusal))?;
        if let Some(uses) = uses {
            wait_all(uses, &mut Interrupt::default())?;
            while !access.is_next() {
                park(Some(HOST_PERIOD)); // until another host thread has copied
            }
        }
        if order_watch::is_on() {
            order_watch::tell(Told::HostAccess(self.used_bytes(Some(writes))));
        }
        Ok(access)
    }

    /// Copies on this thread between this buffer and host bytes. A host kind's `copy` copies during
    /// the call. A driver kind's `copy` would only submit, so this thread copies the bytes itself.
    fn copy_on_this_thread(&self, to: Address, from: Address) -> Result<()> {
        let home = &self.allocation().home;
        if self.is_empty() {
            return Ok(());
        }
        if home.on_host {
            // SAFETY: both ranges are live for the call: `host_access` prevents the free of the
            // buffer, and the caller borrows or owns the other range. This kind's `copy` returns
            // after the bytes are copied.
            return unsafe { home.handle.copy(to, from, self.nbytes()) };
        }
        let [to, from] = [to, from].map(|address| to_usize(address.0));
        let (to, from) = (ptr::with_exposed_provenance_mut(to), ptr::with_exposed_provenance(from));
        // SAFETY: both ranges are live and disjoint. `host_access` checked that the host can access
        // the buffer, and prevents the buffer's free. The other range is a slice of the same size
        // that this thread borrows or owns.
        unsafe { ptr::copy_nonoverlapping::<u8>(from, to, self.nbytes()) };
        Ok(())
    }

    fn wait_for_uses(&self, interrupt: &mut Interrupt<'_>) -> Result<()> {
        self.wait_for_every_use(interrupt, true)
    }

    /// `takes_view` says that the host may access the bytes afterwards, by their address.
    fn wait_for_every_use(&self, interrupt: &mut Interrupt<'_>, takes_view: bool) -> Result<()> {
        let waited = self.wait_for_all(interrupt);
        if order_watch::is_on() && has_waited(&waited) {
            order_watch::tell(Told::HostWaitForUses(self.used_bytes(None), takes_view));
        }
        waited
    }

    fn wait_for_all(&self, interrupt: &mut Interrupt<'_>) -> Result<()> {
        fork::check()?;
        let _access = self.access()?;
        let allocation = self.allocation();
        // Tasks of an earlier buffer may still use the memory. This wait does not report their
        // failures.
        allocation.home.wait_ticket(allocation.busy_until(), false, interrupt)?;
        wait_all(allocation.uses(), interrupt)
    }
}

/// Blocks until the uses are done. Fails with the failures that cover them, and ends these.
fn wait_all(uses: Vec<Use>, interrupt: &mut Interrupt<'_>) -> Result<()> {
    let mut errors: Vec<(Arc<StreamCore>, Arc<StreamFailure>)> = Vec::new();
    for point in uses {
        // A use that was done before this wait reports no error that a synchronise has raised.
        let was_done = point.is_done();
        let Task { ticket, is_marker } = point.last.task;
        let task = WatchedTask::new(&point.stream, ticket);
        point.stream.wait_ticket(ticket, is_marker, interrupt)?;
        let ended = if was_done { None } else { point.stream.failures.at(ticket) };
        let error = ended.or_else(|| point.failure());
        drop(task);
        errors.extend(error.map(|error| (point.stream, error)));
    }
    for (stream, error) in &errors {
        stream.end_received(error);
    }
    raise_all(errors.into_iter().map(|(_, error)| error).collect())
}

/// A host access, counted or queued. Later conflicting uses wait until the access is dropped.
#[derive(Debug)]
pub(super) struct HostAccess<'a> {
    allocation: &'a Allocation,
    accessed: AccessedBytes,
    /// The number of the access in the order of the queue; 0 for a counted access.
    ticket: u64,
    /// Keeps the memory allocated; dropped after the queue entry.
    _access: Access<'a>,
}

impl Allocation {
    /// Begins a host access. On a conflict the access is queued, and the result lists the uses that
    /// the access must wait for. Conflicting accesses that begin later wait for this access.
    pub(super) fn enter_host(
        &self,
        accessed: AccessedBytes,
    ) -> Result<(HostAccess<'_>, Option<Vec<Use>>), Refusal> {
        let mut state = self.lock().ok_or(Refusal::Released)?;
        let host_accesses = &state.host_accesses;
        let meets_access = host_accesses.has_any()
            && (host_accesses.announced > 0
                || host_accesses.conflict_with(accessed.writes)
                || host_accesses.has_waiter_before(&accessed));
        let has_conflict = meets_access || self.conflicts(&state, None, &accessed).next().is_some();
        let uses = has_conflict.then(|| self.uses_in(&state));
        let ticket = if has_conflict {
            state.host_accesses.add_waiter(accessed.clone())
        } else {
            state.host_accesses.enter(accessed.writes);
            0
        };
        let access = self.access_in(&mut state);
        Ok((HostAccess { allocation: self, accessed, ticket, _access: access }, uses))
    }
}

impl HostAccess<'_> {
    /// True when every earlier host access that conflicts with this one has ended.
    pub(super) fn is_next(&self) -> bool {
        self.ticket == 0
            || self.allocation.state.lock().host_accesses.is_next(self.ticket, &self.accessed)
    }
}

impl Drop for HostAccess<'_> {
    fn drop(&mut self) {
        let mut state = self.allocation.state.lock();
        if self.ticket == 0 {
            return state.host_accesses.leave(self.accessed.writes);
        }
        let latches = state.host_accesses.remove_waiter(self.ticket);
        drop(state); // before streams resume: a latch may hold the last reference to a stream
        for latch in latches.into_values() {
            // Contains panics: a backend that panics for one stream must not stop the other wakes.
            drop_quietly(|| open_latch(&latch, Ok(())));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::base::config::Config;
    use crate::base::device::Device;
    use crate::runtime::Runtime;

    #[test]
    fn a_buffer_has_failed_until_its_streams_error_was_raised() {
        // Goal: an error that a synchronise has raised counts no longer, although it is kept.
        // Method: the handle of the skipped fill keeps it.
        let runtime = Runtime::new(Config::default()).unwrap();
        let (buffer, stream) =
            (runtime.zeros(8, Device::cpu(0)).unwrap(), runtime.stream(Device::cpu(0)).unwrap());
        stream.enqueue(|| Err::<(), _>("broken")).unwrap();
        let skipped = buffer.fill(1, &stream).unwrap();
        skipped.wait().unwrap_err(); // ends the error, which the bytes still report
        assert!(buffer.has_failed());
        stream.synchronize().unwrap();
        assert!(!buffer.has_failed());
        skipped.wait().unwrap_err();
    }
}
