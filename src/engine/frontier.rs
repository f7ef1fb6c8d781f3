//! Frontiers: the other streams' work that is ordered before a stream's next task (vector clocks).
//!
//! Source: Fidge and Mattern's vector clocks, stored sparsely; points that are done are pruned.
//!
//! Every stream numbers its tasks. A [`Point`] is a stream and a task number. A record carries no
//! clock: the record's point is a position in the stream's [`History`] of joins. Only a stream that
//! waits for a pending record searches the history. So a record is O(1) and clones nothing, and the
//! frontier found for a point does not depend on later tasks.
//!
//! A frontier may lack waits that are in the queue. It never contains a wait that is not in the
//! queue yet, because a thread enqueues the wait before it publishes the join. A caller that may
//! miss none asks for [`History::streams_before`]: threads announce waits before they enqueue them.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crossbeam_queue::SegQueue;

use crate::base::fork;
use crate::base::spin::SpinMutex;
use crate::base::sync::{AtomicBool, AtomicU64, LockRank, Mutex, Ordering, park, yield_now};

/// The maximum number of points in a frontier. If a stream waits for more streams, the frontier
/// leaves the rest out, and the runtime polls whether the tasks of those streams are done.
const MAX_POINTS: usize = 64;

/// Indices into a list of entries by stream: those whose streams are over. The list's owner pops
/// the indices instead of searching the list.
pub(crate) type Ended = SegQueue<u32>;

/// The progress of one stream: shared by the stream and by every frontier that names it.
#[derive(Debug)]
pub struct Progress {
    /// Unique in the process, never reused.
    stream_key: u64,
    /// True on a host kind, where a task is done when its function returns.
    on_host: bool,
    /// The number of tasks retired from the queue.
    retired: AtomicU64,
    /// The number of tasks that a driver is known to have done; unused on host kinds.
    device_done: AtomicU64,
    /// True when the stream was dropped and the runtime has taken over its statistics and error.
    has_ended: AtomicBool,
    /// True when the stream was dropped and the device no longer uses memory freed behind it.
    is_over: AtomicBool,
    /// True when the stream was dropped and it is unknown when the device no longer does.
    is_abandoned: AtomicBool,
    /// The queues that `finish` notifies, each with the number to push.
    targets: SpinMutex<Vec<(Weak<Ended>, u32)>>,
    /// What the stream waits for, while it is there.
    history: OnceLock<Weak<History>>,
}

impl Progress {
    pub(crate) fn new(stream_key: u64, on_host: bool) -> Arc<Self> {
        let (retired, device_done) = (AtomicU64::new(0), AtomicU64::new(0));
        let [has_ended, is_over, is_abandoned] = [(); 3].map(|()| AtomicBool::new(false));
        let targets = SpinMutex::new(Vec::new());
        Arc::new(Self {
            stream_key,
            on_host,
            retired,
            device_done,
            has_ended,
            is_over,
            is_abandoned,
            targets,
            history: OnceLock::new(),
        })
    }

    pub(crate) fn stream_key(&self) -> u64 {
        self.stream_key
    }

    pub(crate) fn is_on_host(&self) -> bool {
        self.on_host
    }

    /// The ticket of the last task that the stream has retired.
    #[inline]
    pub fn retired(&self) -> u64 {
        // SeqCst: loaded after a waiter is registered; partner: the store in `retire_with_waiters`.
        // As an acquire it pairs with `retire`: the tasks' writes are visible.
        self.retired.load(Ordering::SeqCst)
    }

    /// The number of tasks known to be done; may lag on a driver kind until the next poll.
    #[inline]
    pub(crate) fn done(&self) -> u64 {
        if self.on_host {
            return self.retired();
        }
        // Acquire: pairs with the release in `advance_device_done`.
        self.device_done.load(Ordering::Acquire)
    }

    /// Retires the task `ticket`, which must not be a marker.
    #[inline]
    pub(crate) fn retire(&self, ticket: u64) {
        // Release: publishes the task's writes; pairs with `retired`.
        self.retired.store(ticket, Ordering::Release);
    }

    /// Retires the task `ticket`, which may have waiters. The consumer must check for waiters next.
    #[inline]
    pub(crate) fn retire_with_waiters(&self, ticket: u64) {
        // SeqCst: stored before the waiters are read; partner: `retired` after a registration.
        self.retired.store(ticket, Ordering::SeqCst);
    }

    /// Raises the device's counter to `ticket`; a lower `ticket` changes nothing.
    pub(crate) fn advance_device_done(&self, ticket: u64) {
        // Release: pairs with `done`.
        self.device_done.fetch_max(ticket, Ordering::Release);
    }

    /// Marks the stream as dropped, after the lifecycle has absorbed its counters and error.
    pub(crate) fn end(&self) {
        // Release: pairs with `has_ended`. No model: loom does not track the counts and the error.
        self.has_ended.store(true, Ordering::Release);
    }

    /// True when the stream has ended: it gets no more tasks.
    pub fn has_ended(&self) -> bool {
        // Acquire: pairs with `end`. No model: loom does not track the counts and the error.
        self.has_ended.load(Ordering::Acquire)
    }

    /// Called when the device no longer uses memory that was freed behind the stream's tasks.
    pub(crate) fn finish(&self) {
        // Release: pairs with `is_over`. The device's last uses come before this store.
        self.is_over.store(true, Ordering::Release);
        if fork::is_child() {
            return; // a thread that exists only in the parent may hold the lock
        }
        // No reference to the stream is left, so no subscriber can be added.
        let mut targets = std::mem::take(&mut *self.targets.lock());
        prune(&mut targets);
        for (ended, number) in targets {
            if let Some(ended) = ended.upgrade() {
                ended.push(number);
            }
        }
    }

    /// Subscribes the queue `ended`. When the stream is over, `finish` pushes `number` to `ended`
    /// only once, even after several subscriptions. The caller must hold a reference to the stream.
    /// Removes the subscriptions of dropped queues when the vector is full.
    pub(crate) fn subscribe(&self, ended: &Arc<Ended>, number: u32) {
        let mut targets = self.targets.lock();
        if targets.len() == targets.capacity() {
            prune(&mut targets);
            let count = targets.len();
            targets.reserve(count + 1); // doubles the time to the next pruning
        }
        targets.push((Arc::downgrade(ended), number));
    }

    pub(crate) fn is_over(&self) -> bool {
        // Acquire: pairs with `finish`.
        self.is_over.load(Ordering::Acquire)
    }

    /// In place of [`Progress::finish`], when a wait for the device failed.
    pub(crate) fn abandon(&self) {
        // Release: pairs with `is_ending`. The counter has its last value. No model: the devices of
        // models do not fail.
        self.is_abandoned.store(true, Ordering::Release);
    }

    /// True while a thread drops the stream, for callers that found no reference to it.
    pub(crate) fn is_ending(&self) -> bool {
        // Acquire: pairs with `abandon`. No model: as there.
        !self.is_over() && !self.is_abandoned.load(Ordering::Acquire)
    }
}

/// Removes the subscriptions of dropped queues, and duplicates.
fn prune(targets: &mut Vec<(Weak<Ended>, u32)>) {
    targets.retain(|(ended, _)| ended.strong_count() > 0);
    targets.sort_by_key(|(ended, number)| (ended.as_ptr(), *number));
    targets.dedup_by_key(|(ended, number)| (ended.as_ptr(), *number));
}

/// A position in one stream: all tasks up to the number `ticket`.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) progress: Arc<Progress>,
    pub(crate) ticket: u64,
}

impl Point {
    fn is_done(&self) -> bool {
        self.progress.done() >= self.ticket
    }
}

/// The points ordered before a task: at most one per stream, sorted by stream, immutable.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frontier(Vec<Joined>);

/// A point, and the first wait of the frontier's stream that joined a pending one of that stream.
#[derive(Clone, Debug)]
struct Joined {
    point: Point,
    since: u64,
}

impl Joined {
    fn key(&self) -> u64 {
        self.point.progress.stream_key()
    }
}

impl Frontier {
    fn ticket_of(&self, stream_key: u64) -> Option<u64> {
        let find = |joined: &Joined| joined.key().cmp(&stream_key);
        self.0.binary_search_by(find).ok().map(|index| self.0[index].point.ticket)
    }

    /// True when the point is known to be ordered before the frontier's task.
    pub(crate) fn dominates(&self, point: &Point) -> bool {
        self.ticket_of(point.progress.stream_key()).is_some_and(|ticket| ticket >= point.ticket)
    }

    /// The union of this frontier with `point` and `other`, what is before that, which the wait
    /// `since` joins; without done points, dropped streams and the stream `own_key`. If the union
    /// has more than [`MAX_POINTS`], drops points other than `point`: a frontier may be incomplete.
    fn joined(&self, other: &Self, point: &Point, since: u64, own_key: u64) -> Self {
        let others = other.0.iter().map(|joined| &joined.point);
        let new = others.chain([point]).map(|point| Joined { point: point.clone(), since });
        let mut points: Vec<Joined> = self.0.iter().cloned().chain(new).collect();
        points.retain(|Joined { point, .. }| {
            let progress = &point.progress;
            progress.stream_key() != own_key && !point.is_done() && !progress.has_ended()
        });
        // The largest ticket of each stream comes first, and `dedup` retains the first one.
        points.sort_by_key(|joined| (joined.key(), std::cmp::Reverse(joined.point.ticket)));
        points.dedup_by(|next, first| {
            let is_again = next.key() == first.key();
            first.since = if is_again { first.since.min(next.since) } else { first.since };
            is_again
        });
        if points.len() > MAX_POINTS {
            let key = point.progress.stream_key();
            let mut others = 0;
            points.retain(|joined| {
                let is_joined = joined.key() == key;
                others += usize::from(!is_joined);
                is_joined || others < MAX_POINTS
            });
        }
        Self(points)
    }
}

/// The frontiers of one stream, each valid from one of its tasks on.
///
/// The history retains the latest frontier, and each frontier that a pending record may still need.
/// A join removes an entry if the task of the next entry is done, because then every record before
/// that task is done too.
#[derive(Debug)]
pub(crate) struct History {
    progress: Arc<Progress>,
    versions: Mutex<VecDeque<Version>>,
    /// The number of waits that may be in the queue and are not in `versions` yet.
    announced: AtomicU64,
}

/// A wait that a thread is enqueueing, until the drop.
pub(crate) struct Announced<'a>(&'a History);

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        // Release: behind the join; pairs with `settle`. No model: `settle` looks as often as a
        // time allows.
        self.0.announced.fetch_sub(1, Ordering::Release);
    }
}

/// How often a thread looks whether announced waits are joined: for a tenth of a second. The thread
/// that enqueues one may have lost its processor, or be waiting for room in the queue.
const MOST_SETTLE_LOOKS: usize = SETTLE_YIELDS + 1000;
/// The first looks, which follow each other at once.
const SETTLE_YIELDS: usize = 100;
const SETTLE_PERIOD: Duration = Duration::from_micros(100);

#[derive(Debug)]
struct Version {
    /// The first of the adjacent waits that joined it, of which `from_ticket` is the last.
    first_ticket: u64,
    /// The ticket of the wait that created this version; later tasks are ordered after `frontier`.
    from_ticket: u64,
    frontier: Arc<Frontier>,
}

impl History {
    pub(crate) fn new(progress: Arc<Progress>) -> Arc<Self> {
        let versions = Mutex::new(LockRank::Frontier, VecDeque::new());
        let history = Self { progress, versions, announced: AtomicU64::new(0) };
        let history = Arc::new(history);
        let known = history.progress.history.set(Arc::downgrade(&history));
        debug_assert!(known.is_ok(), "a stream has one history");
        history
    }

    /// Announces a wait, before it is enqueued. The caller drops the result behind the join.
    pub(crate) fn announce(&self) -> Announced<'_> {
        // SeqCst: before the wait is in the queue, whose order readers know by a later ticket;
        // partner: the load in `settle`. No model: as in the drop of `Announced`.
        self.announced.fetch_add(1, Ordering::SeqCst);
        Announced(self)
    }

    /// Waits for a moment until every wait in the queue is joined.
    fn settle(&self) {
        for look in 0..MOST_SETTLE_LOOKS {
            // SeqCst: partner: `announce`. As an acquire it pairs with the drop of `Announced`. No
            // model: as there.
            if self.announced.load(Ordering::SeqCst) == 0 {
                return;
            }
            if look < SETTLE_YIELDS {
                yield_now();
            } else {
                park(Some(SETTLE_PERIOD)); // the other thread may need this thread's processor
            }
        }
    }

    /// The other streams' points ordered before the task `ticket`; `None` before the first join.
    pub(crate) fn at(&self, ticket: u64) -> Option<Arc<Frontier>> {
        let versions = self.versions.lock();
        let known = versions.iter().rev().find(|version| version.from_ticket <= ticket);
        known.map(|version| Arc::clone(&version.frontier))
    }

    /// The points that this stream waits for up to its task `ticket`, and that are not known to be
    /// done. Unlike [`History::at`] also by waits between two of which no task stands.
    fn pending(&self, ticket: u64) -> Vec<Point> {
        self.settle();
        let versions = self.versions.lock();
        let last = versions.iter().rev().find(|version| version.first_ticket <= ticket);
        let points = last.iter().flat_map(|version| &version.frontier.0);
        let pending = points.filter(|it| it.since <= ticket && !it.point.is_done());
        pending.map(|joined| joined.point.clone()).collect()
    }

    /// The keys of the streams that this stream waits for up to its task `ticket`, itself or by
    /// others that it waits for. A wait that was enqueued before is not missed.
    pub(crate) fn streams_before(&self, ticket: u64) -> Vec<u64> {
        let key = |point: &Point| point.progress.stream_key();
        let (mut known, mut next) = (Vec::<Point>::new(), self.pending(ticket));
        while let Some(point) = next.pop() {
            let same = known.iter_mut().find(|known| key(known) == key(&point));
            match same {
                Some(known) if known.ticket >= point.ticket => continue,
                Some(known) => known.ticket = point.ticket,
                None => known.push(point.clone()),
            }
            let history = point.progress.history.get().and_then(Weak::upgrade);
            next.extend(history.iter().flat_map(|history| history.pending(point.ticket)));
        }
        known.iter().map(key).collect()
    }

    /// The other streams' points ordered before this stream's next task.
    pub(crate) fn latest(&self) -> Option<Arc<Frontier>> {
        self.at(u64::MAX)
    }

    /// Adds a wait: this stream's task `ticket` waits for `point`, whose frontier is `before`.
    ///
    /// The caller has enqueued the wait. Concurrent callers may come out of ticket order, so the
    /// join also goes into the later versions.
    pub(crate) fn join(&self, ticket: u64, point: &Point, before: Option<&Frontier>) {
        let nothing = Frontier::default();
        let before = before.unwrap_or(&nothing);
        let own_key = self.progress.stream_key();
        let mut versions = self.versions.lock();
        let done = self.progress.done();
        while versions.get(1).is_some_and(|next| next.from_ticket <= done) {
            versions.pop_front();
        }
        let index = versions.partition_point(|version| version.from_ticket <= ticket);
        for later in versions.range_mut(index..) {
            later.frontier = Arc::new(later.frontier.joined(before, point, ticket, own_key));
        }
        let previous = index.checked_sub(1).map_or(&nothing, |index| &*versions[index].frontier);
        let frontier = Arc::new(previous.joined(before, point, ticket, own_key));
        // No record is between two waits with adjacent tickets, so the second replaces the first.
        match index.checked_sub(1).map(|index| &mut versions[index]) {
            Some(last) if last.from_ticket + 1 == ticket => {
                (last.from_ticket, last.frontier) = (ticket, frontier);
            }
            _ => {
                let version = Version { first_ticket: ticket, from_ticket: ticket, frontier };
                versions.insert(index, version);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "frontier_tests.rs"]
mod tests;
