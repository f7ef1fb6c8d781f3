//! What a watch of the order is told at once: tasks and their memory, waits, allocations, frees.
//!
//! One watcher serves the process. A task is told of while it gets its ticket, under the locks of
//! its creator, so that the watcher knows the order of each stream. A runtime that is watched takes
//! the slow way into its streams; elsewhere one comparison finds that there is no watch.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::OnceLock;

use crate::base::device::Device;
use crate::base::error::{Error, Result, RuntimeError};
use crate::base::sync::Ordering;
use crate::base::sync::unmodelled::AtomicBool;
use crate::engine::log::context::{NameId, StackId};
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::task::{Details, OperationKind};
use crate::queue::Pushed;

static IS_ON: AtomicBool = AtomicBool::new(false);
static WATCHER: OnceLock<&'static dyn OrderWatcher> = OnceLock::new();

/// For tests of what a watch changes, also of other runtimes: how fast a request is served.
#[cfg(test)]
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
pub(crate) fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

thread_local! {
    /// What the creator of this thread's next task has said of its memory.
    static NEXT: RefCell<NextUses> = const { RefCell::new(NextUses::NONE) };
}

/// Bytes of an allocation, and how they are used.
#[derive(Clone, Debug)]
pub struct UsedBytes {
    /// The number of the runtime.
    pub runtime: u64,
    /// The key of the allocation's home stream.
    pub home: u64,
    /// The first byte of the allocation.
    pub address: u64,
    /// The size of the allocation.
    pub bytes: usize,
    /// The part that is used.
    pub range: Range<usize>,
    /// `None` when the direction is unknown.
    pub writes: Option<bool>,
}

/// The memory that a task was given, apart from what its command knows.
#[derive(Debug)]
pub struct NextUses {
    /// The uses that the task declares.
    pub uses: Vec<UsedBytes>,
    /// Memory among the arguments of a callable. The task keeps it alive, and nothing waits for
    /// these uses.
    pub kept: Vec<UsedBytes>,
    /// True when the task runs behind every conflicting use.
    pub is_behind_conflicts: bool,
}

impl NextUses {
    /// A task without memory.
    pub const NONE: Self = Self { uses: Vec::new(), kept: Vec::new(), is_behind_conflicts: false };
}

/// Where a thread is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// The call stack.
    pub stack: StackId,
    /// The name of the thread.
    pub thread: NameId,
}

/// A task that gets its ticket.
#[expect(missing_debug_implementations, reason = "a stream has none")]
pub struct WatchedEnqueue<'a> {
    /// The stream of the task.
    pub stream: &'a StreamCore,
    /// The sort of the task.
    pub operation: OperationKind,
    /// The addresses and sizes that the task has.
    pub details: Details,
    /// What the caller has said of its memory.
    pub memory: NextUses,
    /// Where the caller is.
    pub place: Place,
}

/// What happens apart from tasks.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "a stream has none")]
pub enum Told<'a> {
    /// The first stream waits for the second one's task; `None` of an event without a record, whose
    /// id follows.
    Wait(&'a StreamCore, Option<(&'a StreamCore, u64)>, u64),
    /// The host knows that the stream's task is over; with `true` all that the stream waits for
    /// until now, too.
    HostWait(&'a StreamCore, u64, bool),
    /// The host knows that the tasks of the device's ended streams are over: it synchronises with
    /// the device of this runtime.
    HostWaitForEnded(u64, Device),
    /// A failed stream skips its task, which has not retired yet.
    Skip(&'a StreamCore, u64),
    /// The host knows that every recorded use of the allocation is over; it may take a view next.
    HostWaitForUses(UsedBytes, bool),
    /// The host reads or writes the bytes.
    HostAccess(UsedBytes),
    /// The stream's tasks until now may use the allocation.
    RecordedUse(UsedBytes, &'a StreamCore),
    /// A buffer got this memory.
    Allocation(UsedBytes),
    /// A buffer gave this memory back.
    Free(UsedBytes),
    /// These bytes from an address on leave their allocator: what comes there is another's memory.
    Departure(u64, usize),
}

/// Receives what happens. Its locks rank last: it calls nothing of the engine.
pub trait OrderWatcher: Sync {
    /// Where this thread is. Called without a lock.
    fn place(&self) -> Place;
    /// Calls `push` once, for the ticket.
    fn enqueue(&self, task: WatchedEnqueue<'_>, push: &mut dyn FnMut() -> u64);
    /// Called for each of the other events.
    fn tell(&self, told: Told<'_>);
}

/// Turns it on or off. All callers pass one watcher.
pub fn switch(watcher: &'static dyn OrderWatcher, is_on: bool) {
    WATCHER.get_or_init(|| watcher);
    IS_ON.store(is_on, Ordering::Relaxed); // what races with this may be told of or not
}

/// True while a watch is on.
#[inline]
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed) // as in `switch`
}

fn watcher() -> Option<&'static dyn OrderWatcher> {
    WATCHER.get().copied().filter(|_| is_on() && !crate::base::fork::is_child())
}

/// Tells the watcher, if it is on.
#[cold]
#[inline(never)]
pub fn tell(told: Told<'_>) {
    if let Some(watcher) = watcher() {
        watcher.tell(told);
    }
}

/// Says what the next task of this thread uses; `None` takes it back.
#[cold]
#[inline(never)]
pub fn declare(memory: Option<NextUses>) {
    let _ = NEXT.try_with(|next| next.replace(memory.unwrap_or(NextUses::NONE)));
}

/// The host's place before an enqueue that is watched.
pub(super) fn begin() -> Option<Place> {
    watcher().map(OrderWatcher::place)
}

/// Tells of a task while `push` gets it a ticket.
#[inline(never)]
pub(super) fn push(
    (stream, operation, details): (&StreamCore, OperationKind, Details),
    place: Place,
    push: &mut dyn FnMut() -> Pushed,
) -> Pushed {
    let memory = NEXT.try_with(|next| next.replace(NextUses::NONE)).unwrap_or(NextUses::NONE);
    let task = WatchedEnqueue { stream, operation, details, memory, place };
    let mut pushed = None;
    match watcher() {
        Some(watcher) => watcher.enqueue(task, &mut || pushed.insert(push()).ticket),
        None => pushed = Some(push()),
    }
    pushed.expect("a watcher pushes the task")
}

impl StreamCore {
    /// The host has waited for the task, unless the wait was ended before; with `is_whole` for all
    /// that the stream waits for until now, too.
    #[inline]
    pub fn tell_waited(&self, ticket: u64, is_whole: bool, outcome: &Result<()>) {
        if is_on() && has_waited(outcome) {
            tell(Told::HostWait(self, ticket, is_whole));
        }
    }
}

/// True for the outcome of a wait that was not ended before.
pub(crate) fn has_waited(outcome: &Result<()>) -> bool {
    use RuntimeError::{Interrupted, TimedOut};
    !matches!(outcome, Err(Error::Runtime(Interrupted | TimedOut { .. })))
}
