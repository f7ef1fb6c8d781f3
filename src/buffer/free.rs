//! Frees in stream order: memory goes back when every stream has passed its last use.
//!
//! A free is one command at the end of each stream that still uses the memory, and the last of them
//! to run gives it back. So no stream waits for another one because of a free, no thread waits, and
//! a single stream needs a single command. On a driver kind a task that ran was only submitted:
//! there the part of a stream is held until the device is known to have passed it, which costs no
//! mark of its own.

use std::sync::{Arc, Weak};

use crate::backend::contract::{Address, Backend};
use crate::buffer::uses::{Task, Use};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::queue::{Class, Command};
use crate::stream::context::TaskContext;
use crate::stream::core::StreamCore;
use crate::stream::own::Place;
use crate::stream::wait::Interrupt;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, LockRank, Mutex, Ordering, yield_now};

/// Entries of [`PendingFrees`] below which nothing is looked for.
const LEAST_ENTRIES: usize = 32;

/// Memory from a backend, to be given back once.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    pub(super) backend: Arc<dyn Backend>,
    /// The device that it is on; of pinned host memory the device that it was asked for with.
    pub(super) device: Device,
    pub(super) is_pinned: bool,
    pub(super) address: Address,
    pub(super) bytes: usize,
}

impl Memory {
    fn give_back(&self) {
        // A refusal leaves nothing to do: the driver keeps the memory, and the next call tells.
        let _ = if self.is_pinned {
            self.backend.release_host(self.address)
        } else {
            self.backend.release(self.device.index(), self.address)
        };
    }

    /// True when this memory, once free, could serve such a request.
    fn is_beside(&self, device: Device, is_pinned: bool) -> bool {
        let is_of_kind = self.device.kind() == device.kind();
        self.is_pinned == is_pinned && (self.device == device || is_pinned && is_of_kind)
    }
}

/// Memory that goes back when the last of its parts is dropped.
#[derive(Debug)]
struct Freeing {
    memory: Memory,
    parts: AtomicUsize,
    /// Set when the memory is back.
    is_gone: AtomicBool,
    /// Of the list that this is in.
    gone_count: Arc<AtomicU64>,
}

/// What one stream has to pass before the memory may go. Dropped there, whatever becomes of the
/// stream: run, discarded with the queue, or held for a driver.
#[derive(Debug)]
struct Part(Arc<Freeing>);

impl Drop for Part {
    fn drop(&mut self) {
        // AcqRel: the last one sees everything that the others' streams did to the memory; partner:
        // the same operation in the others.
        if self.0.parts.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.memory.give_back();
            // Release, twice: a request of who sees it finds the memory; pairs with `is_pending`
            // and the loads in `take_or_wait`.
            self.0.is_gone.store(true, Ordering::Release);
            self.0.gone_count.fetch_add(1, Ordering::Release);
        }
    }
}

/// The part of a stream that runs on the host.
struct Pass(#[expect(dead_code, reason = "it is there to be dropped")] Part);

impl Command<TaskContext> for Pass {
    const CLASS: Class = Class::Own;

    fn run(self, _context: &mut TaskContext) {}
}

/// Frees memory behind everything on its home stream and behind its uses on other streams. At once
/// when all of that is done. Never called in a forked child.
pub(super) fn free(
    memory: Memory,
    home: &Arc<StreamCore>,
    others: impl Iterator<Item = Use>,
    pending: &PendingFrees,
) {
    if memory.bytes == 0 {
        return;
    }
    let mut points: Vec<Use> = others.filter(|point| !point.is_done()).collect();
    // A driver's stream may have work that others gave it by its native handle.
    let ticket = if home.on_host { home.pushed() } else { home.push_always(Place) };
    let at_home = Use { stream: Arc::clone(home), task: Task::any(ticket) };
    if !at_home.is_done() {
        points.push(at_home);
    }
    if points.is_empty() {
        return memory.give_back();
    }
    let parts = AtomicUsize::new(points.len());
    let (is_gone, gone_count) = (AtomicBool::new(false), Arc::clone(&pending.gone_count));
    let freeing = Arc::new(Freeing { memory, parts, is_gone, gone_count });
    let place = |Use { stream, task: Task { ticket, .. } }: &Use| {
        let part = Part(Arc::clone(&freeing));
        let ticket = if stream.on_host {
            stream.push_always(Pass(part))
        } else {
            stream.hold(*ticket, Box::new(part));
            *ticket
        };
        (Arc::downgrade(stream), ticket)
    };
    let places = points.iter().map(place).collect();
    pending.add(Entry { freeing, places });
}

/// What is freed in stream order and may not have gone yet, for who is short of memory.
#[derive(Debug)]
pub(crate) struct PendingFrees {
    list: Mutex<Entries>,
    /// How much of what was in the list is gone.
    gone_count: Arc<AtomicU64>,
}

struct Entries {
    entries: Vec<Entry>,
    /// Length at which those that are gone are removed.
    sweep_at: usize,
}

#[derive(Clone)]
struct Entry {
    freeing: Arc<Freeing>,
    /// Tasks after which it is gone. A stream that is not there any more has passed its own.
    places: Vec<(Weak<StreamCore>, u64)>,
}

impl Entry {
    fn is_pending(&self) -> bool {
        // Acquire: pairs with the release in `Part::drop`.
        !self.freeing.is_gone.load(Ordering::Acquire)
    }

    /// Waits until the memory is free; stops early where this thread must not wait.
    fn wait(&self, interrupt: &mut Interrupt<'_>) -> Result<()> {
        for (stream, ticket) in &self.places {
            let Some(stream) = stream.upgrade() else { continue };
            match stream.wait_ticket(*ticket, false, interrupt) {
                Ok(()) => _ = stream.poll_held(),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                // Inside one of the stream's tasks, or a lost device: the request will tell.
                Err(_) => return Ok(()),
            }
        }
        while self.is_pending() {
            yield_now(); // another thread is dropping the last part
        }
        Ok(())
    }
}

impl PendingFrees {
    pub(crate) fn new() -> Arc<Self> {
        let entries = Entries { entries: Vec::new(), sweep_at: LEAST_ENTRIES };
        let list = Mutex::new(LockRank::Frees, entries);
        Arc::new(Self { list, gone_count: Arc::new(AtomicU64::new(0)) })
    }

    fn add(&self, entry: Entry) {
        let mut list = self.list.lock();
        if list.entries.len() >= list.sweep_at {
            list.entries.retain(Entry::is_pending);
            list.sweep_at = LEAST_ENTRIES.max(2 * list.entries.len());
        }
        list.entries.push(entry);
    }

    /// What `take` returns, which asks a backend for memory; with what is being freed, if that is
    /// enough. Else nobody is waited for.
    pub(super) fn take_or_wait(
        &self,
        (device, is_pinned, bytes): (Device, bool, usize),
        take: impl Fn() -> Result<Address>,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<Address> {
        // Acquire, here and below: pairs with the release in `Part::drop`.
        let gone_count = self.gone_count.load(Ordering::Acquire);
        let taken = take();
        let Err(Error::OutOfMemory { .. }) = &taken else { return taken };
        // Looked at before the second try: what goes in between is found by it.
        let pending = self.pending(device, is_pinned);
        if pending.is_empty() && self.gone_count.load(Ordering::Acquire) == gone_count {
            return taken;
        }
        let taken = take();
        let Err(Error::OutOfMemory { free_bytes, .. }) = &taken else { return taken };
        let missing_bytes = bytes.saturating_sub(*free_bytes);
        let bytes_of = |entry: &Entry| entry.freeing.memory.bytes;
        if pending.iter().map(bytes_of).sum::<usize>() < missing_bytes {
            return taken;
        }
        let mut freed_bytes = 0;
        for entry in &pending {
            if freed_bytes >= missing_bytes {
                break;
            }
            entry.wait(interrupt)?;
            freed_bytes += bytes_of(entry);
        }
        take()
    }

    /// What is being freed and could serve such a request, oldest first.
    fn pending(&self, device: Device, is_pinned: bool) -> Vec<Entry> {
        let list = self.list.lock();
        let is_wanted = |entry: &&Entry| {
            entry.is_pending() && entry.freeing.memory.is_beside(device, is_pinned)
        };
        list.entries.iter().filter(is_wanted).cloned().collect()
    }
}
