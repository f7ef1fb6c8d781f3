//! Watches: a runtime's sanitizer, from its begin to the drop.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use accelrt::Runtime;
use accelrt::internal::order_watch::{OrderWatcher, Told, WatchedEnqueue};
use accelrt::internal::{
    AllocationContext, LockRank, Mutex, MutexGuard, NameId, Place, StreamCore, TaskWatch,
    UsedBytes, fork, order_watch,
};

use crate::sanitizer::detector::{Detector, HAS_NEWS};
use crate::sanitizer::finding::Found;

/// The watches of the process.
static WATCHES: Mutex<Vec<Watched>> = Mutex::new(LockRank::Log, Vec::new());
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The name of this thread.
    static NAME: Cell<Option<NameId>> = const { Cell::new(None) };
}

/// Sets this thread's name, where Rust knows none and none was set before.
pub fn name_thread(name: impl FnOnce() -> Option<String>) {
    if thread_name() == NameId::NONE {
        NAME.set(name().map(|name| NameId::of(&name)));
    }
}

fn thread_name() -> NameId {
    NAME.get().unwrap_or_else(|| {
        let name = std::thread::current().name().map_or(NameId::NONE, NameId::of);
        NAME.set(Some(name));
        name
    })
}

/// All watches. `None` in a forked child, where a thread that the child lacks may hold the lock.
fn watches() -> Option<MutexGuard<'static, Vec<Watched>>> {
    (!fork::is_child()).then(|| WATCHES.lock())
}

struct Watched {
    id: u64,
    runtime: u64,
    detector: Detector,
}

/// Tells the detectors of a runtime what happens there.
struct Watcher;

/// Tells the detectors of one runtime; without one, of all.
fn tell_all(runtime: Option<u64>, mut tell: impl FnMut(&mut Detector)) {
    let Some(mut watches) = watches() else { return };
    let is_one = |watched: &&mut Watched| runtime.is_none_or(|it| it == watched.runtime);
    let of_it = watches.iter_mut().filter(is_one);
    of_it.for_each(|watched| tell(&mut watched.detector));
}

impl OrderWatcher for Watcher {
    fn place(&self) -> Place {
        Place { stack: AllocationContext::current().stack, thread: thread_name() }
    }

    fn enqueue(&self, task: WatchedEnqueue<'_>, push: &mut dyn FnMut() -> u64) {
        let runtime = task.stream.lifecycle.runtime;
        let Some(mut watches) = watches() else {
            push();
            return;
        };
        let ticket = push(); // under the lock: what the task itself does is told of later
        let of_it = watches.iter_mut().filter(|watched| watched.runtime == runtime);
        of_it.for_each(|watched| watched.detector.enqueue(&task, ticket));
    }

    fn tell(&self, told: Told<'_>) {
        let runtime = match &told {
            Told::Wait(stream, ..) | Told::HostWait(stream, ..) | Told::Skip(stream, ..) => {
                Some(stream.lifecycle.runtime)
            }
            Told::HostWaitForUses(used, _)
            | Told::HostAccess(used)
            | Told::RecordedUse(used, _)
            | Told::Allocation(used)
            | Told::Free(used) => Some(used.runtime),
            Told::HostWaitForEnded(runtime, _) => Some(*runtime),
            // The allocator does not know it; an address of a process is of one runtime.
            Told::Departure(..) => None,
        };
        let place = match &told {
            Told::HostWait(..)
            | Told::HostWaitForEnded(..)
            | Told::HostWaitForUses(_, false)
            | Told::Skip(..)
            | Told::RecordedUse(..)
            | Told::Departure(..) => Place::default(),
            _ => self.place(),
        };
        tell_all(runtime, |detector| detector.tell(told.clone(), place));
    }
}

/// True when a watch has found something since the last call.
#[inline]
pub fn take_news() -> bool {
    // Relaxed: the calling thread's own news are in its order, those of others may come later. Who
    // looks at the findings takes the lock under which they were made.
    HAS_NEWS.load(Ordering::Relaxed) && HAS_NEWS.swap(false, Ordering::Relaxed)
}

/// What [`take_news`] looks at, for bindings in other languages.
#[must_use]
pub fn news_flag() -> &'static AtomicBool {
    &HAS_NEWS
}

/// A watch of a runtime.
#[must_use = "the drop ends the watch"]
pub struct Sanitizer {
    id: u64,
    _tasks: TaskWatch,
}

impl fmt::Debug for Sanitizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sanitizer").finish_non_exhaustive()
    }
}

impl Sanitizer {
    /// Begins a watch of a runtime.
    pub fn begin(runtime: &Runtime) -> Self {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed); // only uniqueness matters
        let detector = Detector::default();
        if let Some(mut watches) = watches() {
            watches.push(Watched { id, runtime: runtime.id(), detector });
        }
        order_watch::switch(&Watcher, true);
        let watch = Self { id, _tasks: runtime.log_tasks() };
        // What comes or goes meanwhile is told of already.
        let older = runtime.allocated_buffers();
        watch.ask(|detector| {
            for (address, bytes) in older {
                detector.know(address, bytes);
            }
        });
        watch
    }

    pub(super) fn ask<R>(&self, ask: impl FnOnce(&mut Detector) -> R) -> Option<R> {
        let mut watches = watches()?;
        let own = watches.iter_mut().find(|watched| watched.id == self.id)?;
        Some(ask(&mut own.detector))
    }

    /// The findings from the one with this number on.
    #[must_use]
    pub fn findings(&self, from: usize) -> Vec<Found> {
        let ask = |detector: &mut Detector| detector.findings().get(from..).map(<[_]>::to_vec);
        self.ask(ask).flatten().unwrap_or_default()
    }

    /// The number of findings.
    #[must_use]
    pub fn num_findings(&self) -> usize {
        self.ask(|detector| detector.findings().len()).unwrap_or(0)
    }

    /// How much was forgotten for want of room.
    #[must_use]
    pub fn num_forgotten(&self) -> u64 {
        self.ask(|detector| detector.num_forgotten()).unwrap_or(0)
    }
}

impl Drop for Sanitizer {
    fn drop(&mut self) {
        let Some(mut watches) = watches() else { return };
        let place = watches.iter().position(|watched| watched.id == self.id);
        let ended = place.map(|place| watches.swap_remove(place));
        order_watch::switch(&Watcher, !watches.is_empty());
        drop(watches);
        drop(ended);
    }
}

/// Says that foreign code orders the second stream behind what the first one has so far.
pub fn order(first: &StreamCore, second: &StreamCore) {
    if order_watch::is_on() {
        tell_all(Some(first.lifecycle.runtime), |detector| detector.order(first, second));
    }
}

/// An access of the host that lasts until the drop.
#[derive(Debug)]
#[must_use = "the drop ends the access"]
pub struct OpenAccess(Vec<(u64, u64)>, UsedBytes);

impl OpenAccess {
    /// Begins an access of the host.
    pub fn begin(used: UsedBytes) -> Self {
        let mut numbers = Vec::new();
        if order_watch::is_on()
            && let Some(mut watches) = watches()
        {
            let place = Watcher.place();
            for watched in watches.iter_mut().filter(|it| it.runtime == used.runtime) {
                numbers.push((watched.id, watched.detector.open(&used, place)));
            }
        }
        Self(numbers, used)
    }
}

impl Drop for OpenAccess {
    fn drop(&mut self) {
        let Self(numbers, used) = self;
        let Some(mut watches) = watches() else { return };
        for (id, number) in numbers {
            if let Some(watched) = watches.iter_mut().find(|watched| watched.id == *id) {
                watched.detector.close(used, *number);
            }
        }
    }
}
