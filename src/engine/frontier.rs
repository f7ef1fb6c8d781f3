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
//! queue yet, because a thread enqueues the wait before it publishes the join.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use crossbeam_queue::SegQueue;

use crate::base::fork;
use crate::base::sort::sort_by_key;
use crate::base::spin::SpinMutex;
use crate::base::sync::{AtomicBool, AtomicU64, LockRank, Mutex, Ordering};

/// The maximum number of points in a frontier. If a stream waits for more streams, the frontier
/// leaves the rest out, and the runtime polls whether the tasks of those streams are done.
const MAX_POINTS: usize = 64;

/// Indices into a list of entries by stream: those whose streams are over. The list's owner pops
/// the indices instead of searching the list.
pub(crate) type Ended = SegQueue<u32>;

/// The progress of one stream: shared by the stream and by every frontier that names it.
#[derive(Debug)]
pub(crate) struct Progress {
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
        })
    }

    pub(crate) fn stream_key(&self) -> u64 {
        self.stream_key
    }

    pub(crate) fn is_on_host(&self) -> bool {
        self.on_host
    }

    #[inline]
    pub(crate) fn retired(&self) -> u64 {
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

    pub(crate) fn has_ended(&self) -> bool {
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
        // Release: pairs with `is_ending`. The counter has its last value.
        self.is_abandoned.store(true, Ordering::Release);
    }

    /// True while a thread drops the stream, for callers that found no reference to it.
    pub(crate) fn is_ending(&self) -> bool {
        // Acquire: pairs with `abandon`.
        !self.is_over() && !self.is_abandoned.load(Ordering::Acquire)
    }
}

/// Removes the subscriptions of dropped queues, and duplicates.
fn prune(targets: &mut Vec<(Weak<Ended>, u32)>) {
    targets.retain(|(ended, _)| ended.strong_count() > 0);
    sort_by_key(targets, |(ended, number)| (ended.as_ptr(), *number));
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
pub(crate) struct Frontier(Vec<Point>);

impl Frontier {
    fn ticket_of(&self, stream_key: u64) -> Option<u64> {
        let find = |point: &Point| point.progress.stream_key().cmp(&stream_key);
        self.0.binary_search_by(find).ok().map(|index| self.0[index].ticket)
    }

    /// True when the point is known to be ordered before the frontier's task.
    pub(crate) fn dominates(&self, point: &Point) -> bool {
        self.ticket_of(point.progress.stream_key()).is_some_and(|ticket| ticket >= point.ticket)
    }

    /// The keys of the streams whose point is not known to be done.
    pub(crate) fn pending_streams(&self) -> impl Iterator<Item = u64> {
        self.0.iter().filter(|point| !point.is_done()).map(|point| point.progress.stream_key())
    }

    /// The union of both frontiers and `point`, without done points, dropped streams and the stream
    /// `own_key`. If the union has more than [`MAX_POINTS`], drops points other than `point`: a
    /// frontier may be incomplete.
    fn joined(&self, other: &Self, point: &Point, own_key: u64) -> Self {
        let mut points: Vec<Point> = [&self.0[..], &other.0[..], std::slice::from_ref(point)]
            .concat()
            .into_iter()
            .filter(|point| point.progress.stream_key() != own_key)
            .filter(|point| !point.is_done() && !point.progress.has_ended())
            .collect();
        // The largest ticket of each stream comes first, and `dedup` retains the first one.
        points.sort_by_key(|point| (point.progress.stream_key(), std::cmp::Reverse(point.ticket)));
        points.dedup_by_key(|point| point.progress.stream_key());
        if points.len() > MAX_POINTS {
            let joined = point.progress.stream_key();
            let mut others = MAX_POINTS - 1;
            points.retain(|point| {
                let is_joined = point.progress.stream_key() == joined;
                others -= usize::from(!is_joined && others > 0);
                is_joined || others > 0
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
}

#[derive(Debug)]
struct Version {
    /// The ticket of the wait that created this version; later tasks are ordered after `frontier`.
    from_ticket: u64,
    frontier: Arc<Frontier>,
}

impl History {
    pub(crate) fn new(progress: Arc<Progress>) -> Self {
        Self { progress, versions: Mutex::new(LockRank::Frontier, VecDeque::new()) }
    }

    /// The other streams' points ordered before the task `ticket`; `None` before the first join.
    pub(crate) fn at(&self, ticket: u64) -> Option<Arc<Frontier>> {
        let versions = self.versions.lock();
        let known = versions.iter().rev().find(|version| version.from_ticket <= ticket);
        known.map(|version| Arc::clone(&version.frontier))
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
            later.frontier = Arc::new(later.frontier.joined(before, point, own_key));
        }
        let previous = index.checked_sub(1).map_or(&nothing, |index| &*versions[index].frontier);
        let frontier = Arc::new(previous.joined(before, point, own_key));
        let version = Version { from_ticket: ticket, frontier };
        // No record is between two waits with adjacent tickets, so the second replaces the first.
        match index.checked_sub(1).map(|index| &mut versions[index]) {
            Some(last) if last.from_ticket + 1 == ticket => *last = version,
            _ => versions.insert(index, version),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn stream(key: u64) -> (Arc<Progress>, History) {
        let progress = Progress::new(key, true);
        (Arc::clone(&progress), History::new(progress))
    }

    fn point(progress: &Arc<Progress>, ticket: u64) -> Point {
        Point { progress: Arc::clone(progress), ticket }
    }

    fn orders(history: &History, ticket: u64, before: &Point) -> bool {
        history.at(ticket).is_some_and(|frontier| frontier.dominates(before))
    }

    #[test]
    fn a_join_holds_from_its_wait_on_and_is_transitive() {
        let (a, a_history) = stream(1);
        let (b, b_history) = stream(2);
        let (c, c_history) = stream(3);
        b_history.join(5, &point(&a, 3), a_history.at(3).as_deref());
        c_history.join(2, &point(&b, 6), b_history.at(6).as_deref());
        assert!(orders(&c_history, 2, &point(&b, 6)));
        assert!(orders(&c_history, 9, &point(&a, 3)), "through b");
        assert!(!orders(&c_history, 1, &point(&a, 3)), "before the wait");
        assert!(!orders(&c_history, 9, &point(&a, 4)));
        assert!(!orders(&c_history, 9, &point(&c, 1)), "a stream is not in its own frontier");
    }

    #[test]
    fn a_record_before_the_wait_does_not_carry_its_join() {
        let (a, _) = stream(1);
        let (b, b_history) = stream(2);
        let (_, c_history) = stream(3);
        b_history.join(5, &point(&a, 3), None);
        c_history.join(1, &point(&b, 4), b_history.at(4).as_deref());
        assert!(!orders(&c_history, 1, &point(&a, 3)), "b's record 4 is before b's wait 5");
    }

    #[test]
    fn joins_that_arrive_out_of_order_hold_for_later_versions_too() {
        let (a, _) = stream(1);
        let (b, _) = stream(2);
        let (_, history) = stream(3);
        history.join(7, &point(&a, 1), None);
        history.join(4, &point(&b, 1), None);
        assert!(orders(&history, 4, &point(&b, 1)) && !orders(&history, 4, &point(&a, 1)));
        assert!(orders(&history, 7, &point(&b, 1)) && orders(&history, 7, &point(&a, 1)));
    }

    #[test]
    fn done_points_are_pruned_at_the_next_join() {
        let (a, _) = stream(1);
        let (b, _) = stream(2);
        let (own, history) = stream(3);
        for ticket in 1..=100 {
            history.join(ticket, &point(&a, ticket), None);
            own.retire(ticket);
        }
        assert!(history.versions.lock().len() <= 3);
        a.retire(100);
        history.join(101, &point(&b, 1), None);
        let latest = history.latest().unwrap();
        assert_eq!(latest.0.len(), 1, "a's points are done: {latest:?}");
    }

    #[test]
    fn dropped_streams_are_left_out_of_a_frontier() {
        let (_, history) = stream(1);
        for key in 2..200 {
            // No thread polls a dropped stream of a driver, so its point never counts as done.
            let gone = Progress::new(key, false);
            history.join(key, &point(&gone, 1), None);
            gone.end();
        }
        let there = [1000, 1001].map(|key| Progress::new(key, false));
        for (ticket, there) in (300..).zip(&there) {
            history.join(ticket, &point(there, 1), None);
        }
        let latest = history.latest().unwrap();
        assert_eq!(latest.0.len(), 2, "{latest:?}");
        assert!(there.iter().all(|there| orders(&history, 400, &point(there, 1))));
    }

    #[test]
    fn the_subscriptions_of_a_stream_do_not_grow() {
        // Each round subscribes one queue again and a new queue, which the end of the round drops.
        let streams = [1, 2].map(|key| Progress::new(key, true));
        let ended = Arc::new(Ended::new());
        for _ in 0..1000 {
            let gone = Arc::new(Ended::new());
            for progress in &streams {
                progress.subscribe(&ended, 7);
                progress.subscribe(&gone, 7);
            }
        }
        for progress in &streams {
            assert!(progress.targets.lock().capacity() <= 16);
            progress.finish();
            assert_eq!((ended.pop(), ended.pop()), (Some(7), None));
            assert!(progress.targets.lock().is_empty());
        }
    }

    #[test]
    fn every_subscription_of_a_stream_is_told() {
        let progress = Progress::new(1, true);
        let ended = [Arc::new(Ended::new()), Arc::new(Ended::new())];
        for number in 0..100 {
            for ended in &ended {
                progress.subscribe(ended, number);
            }
        }
        progress.finish();
        for ended in ended {
            let mut told: Vec<u32> = std::iter::from_fn(|| ended.pop()).collect();
            told.sort_unstable();
            assert_eq!(told, (0..100).collect::<Vec<_>>());
        }
    }
}
