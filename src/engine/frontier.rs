//! Frontiers: the other streams' work that is ordered before a stream's next task (vector clocks).
//!
//! Source: Fidge and Mattern's vector clocks, kept sparse; points that are done are pruned.
//!
//! Every stream numbers its tasks; a [`Point`] is one stream and one number. A record carries no
//! clock: its point names a place in the stream's [`History`] of joins, which is looked up only
//! when a stream waits for the event while it is pending. So a record is O(1) and clones nothing,
//! and the frontier found for a point is exact for its place, whatever was enqueued later.
//!
//! A frontier may lag behind the queue and never runs ahead: the wait is enqueued first, then the
//! join is published.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use crossbeam_queue::SegQueue;

use crate::base::fork;
use crate::base::spin::SpinMutex;
use crate::base::sync::{AtomicBool, AtomicU64, LockRank, Mutex, Ordering};

/// The most points of a frontier. A stream that waits for thousands of others knows the order of
/// some; for the rest it asks whether they are done.
const MOST_POINTS: usize = 64;

/// Numbers of the entries that an owner keeps for streams that are over, so that it need not search
/// for them.
pub(crate) type Ended = SegQueue<u32>;

/// The progress of one stream: shared by the stream and by every frontier that names it.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Unique in the process, never reused.
    stream_key: u64,
    /// True when a task that returned is done; false when it was only submitted to a driver.
    on_host: bool,
    /// Tasks taken out of the queue.
    retired: AtomicU64,
    /// Tasks that a driver is known to have done; unused on host.
    device_done: AtomicU64,
    /// The stream is gone, and the lifecycle keeps its counts and its error.
    has_ended: AtomicBool,
    /// The stream is gone, and the device no longer uses memory that was freed behind its tasks.
    is_over: AtomicBool,
    /// The lists that `finish` adds a number to, and the number.
    to_tell: SpinMutex<Vec<(Weak<Ended>, u32)>>,
}

impl Progress {
    pub(crate) fn new(stream_key: u64, on_host: bool) -> Arc<Self> {
        let (retired, device_done) = (AtomicU64::new(0), AtomicU64::new(0));
        let (has_ended, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        let to_tell = SpinMutex::new(Vec::new());
        Arc::new(Self { stream_key, on_host, retired, device_done, has_ended, is_over, to_tell })
    }

    pub(crate) fn stream_key(&self) -> u64 {
        self.stream_key
    }

    pub(crate) fn is_on_host(&self) -> bool {
        self.on_host
    }

    /// Tasks taken out of the queue.
    #[inline]
    pub(crate) fn retired(&self) -> u64 {
        // SeqCst: half of the Dekker pair of a registering waiter; partner: `settle`. Its acquire
        // half pairs with `retire`: the tasks' writes are visible.
        self.retired.load(Ordering::SeqCst)
    }

    /// Tasks known to be done; may lag on a driver kind until the next poll.
    #[inline]
    pub(crate) fn done(&self) -> u64 {
        if self.on_host {
            return self.retired();
        }
        // Acquire: pairs with the release in `reach`.
        self.device_done.load(Ordering::Acquire)
    }

    /// The consumer retired the task `ticket`, which is no marker, so no waiter waits for exactly
    /// it.
    #[inline]
    pub(crate) fn retire(&self, ticket: u64) {
        // Release: publishes the task's writes; pairs with `retired`.
        self.retired.store(ticket, Ordering::Release);
    }

    /// The consumer retired the task `ticket`, and will look for waiters next.
    #[inline]
    pub(crate) fn settle(&self, ticket: u64) {
        // SeqCst: stored before the waiters are read; partner: `retired` after a registration.
        self.retired.store(ticket, Ordering::SeqCst);
    }

    /// The device has done the tasks up to `ticket`.
    pub(crate) fn reach(&self, ticket: u64) {
        // Release: pairs with `done`.
        self.device_done.fetch_max(ticket, Ordering::Release);
    }

    /// The stream is gone; its counts and its error were passed to the lifecycle before.
    pub(crate) fn end(&self) {
        // Release: pairs with `has_ended`. No model: the values passed on are figures, which models
        // do not have.
        self.has_ended.store(true, Ordering::Release);
    }

    /// True after [`Progress::end`].
    pub(crate) fn has_ended(&self) -> bool {
        // Acquire: pairs with `end`. A thread that sees it sees the values passed on. No model: as
        // there.
        self.has_ended.load(Ordering::Acquire)
    }

    /// The stream is gone, and memory that was freed behind its tasks is no longer used.
    pub(crate) fn finish(&self) {
        // Release: pairs with `is_over`; the last uses come first.
        self.is_over.store(true, Ordering::Release);
        if fork::is_child() {
            return; // the lock's holder may exist in the parent only
        }
        // No reference to the stream is left through which one more could be registered.
        let mut to_tell = std::mem::take(&mut *self.to_tell.lock());
        tidy(&mut to_tell);
        for (ended, number) in to_tell {
            if let Some(ended) = ended.upgrade() {
                ended.push(number);
            }
        }
    }

    /// Has `number` pushed to `ended` when the stream is over: once, however often it is
    /// registered. The caller has a reference to the stream. Entries of lists that are gone are
    /// dropped.
    pub(crate) fn tell_when_over(&self, ended: &Arc<Ended>, number: u32) {
        let mut to_tell = self.to_tell.lock();
        if to_tell.len() == to_tell.capacity() {
            tidy(&mut to_tell);
            let count = to_tell.len();
            to_tell.reserve(count + 1); // as many more fit before the next tidying
        }
        to_tell.push((Arc::downgrade(ended), number));
    }

    /// True after [`Progress::finish`].
    pub(crate) fn is_over(&self) -> bool {
        // Acquire: pairs with `finish`.
        self.is_over.load(Ordering::Acquire)
    }
}

/// Removes lists that are gone, and duplicates.
fn tidy(to_tell: &mut Vec<(Weak<Ended>, u32)>) {
    to_tell.retain(|(ended, _)| ended.strong_count() > 0);
    to_tell.sort_unstable_by_key(|(ended, number)| (ended.as_ptr(), *number));
    to_tell.dedup_by_key(|(ended, number)| (ended.as_ptr(), *number));
}

/// One place in one stream: everything up to task number `ticket`.
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

/// Points that are ordered before a task: at most one a stream, sorted by stream, immutable.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frontier(Vec<Point>);

impl Frontier {
    fn ticket_of(&self, stream_key: u64) -> Option<u64> {
        let find = |point: &Point| point.progress.stream_key().cmp(&stream_key);
        self.0.binary_search_by(find).ok().map(|place| self.0[place].ticket)
    }

    /// True when the point is known to be ordered before.
    pub(crate) fn dominates(&self, point: &Point) -> bool {
        self.ticket_of(point.progress.stream_key()).is_some_and(|ticket| ticket >= point.ticket)
    }

    /// The streams that have not passed their point.
    pub(crate) fn pending_streams(&self) -> impl Iterator<Item = u64> {
        self.0.iter().filter(|point| !point.is_done()).map(|point| point.progress.stream_key())
    }

    /// Both frontiers and the point, without points that are done, without streams that are gone
    /// and without `own_key`'s; at most [`MOST_POINTS`], always with the point itself. A frontier
    /// with fewer points lags, which is allowed.
    fn joined(&self, other: &Self, point: &Point, own_key: u64) -> Self {
        let mut points: Vec<Point> = [&self.0[..], &other.0[..], std::slice::from_ref(point)]
            .concat()
            .into_iter()
            .filter(|point| point.progress.stream_key() != own_key)
            .filter(|point| !point.is_done() && !point.progress.has_ended())
            .collect();
        // The largest ticket of each stream first: the dedup keeps the first.
        points.sort_by_key(|point| (point.progress.stream_key(), std::cmp::Reverse(point.ticket)));
        points.dedup_by_key(|point| point.progress.stream_key());
        if points.len() > MOST_POINTS {
            let joined = point.progress.stream_key();
            let mut others = MOST_POINTS - 1;
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
/// The history keeps the latest frontier and those that a pending record may still be looked up in.
/// An entry is removed when the task of the next entry is done, because then every record before
/// that task is done too.
#[derive(Debug)]
pub(crate) struct History {
    progress: Arc<Progress>,
    versions: Mutex<VecDeque<Version>>,
}

#[derive(Debug)]
struct Version {
    /// The wait that made this version; tasks enqueued behind it are ordered after `frontier`.
    from_ticket: u64,
    frontier: Arc<Frontier>,
}

impl History {
    pub(crate) fn new(progress: Arc<Progress>) -> Self {
        Self { progress, versions: Mutex::new(LockRank::Frontier, VecDeque::new()) }
    }

    /// The frontier before the task `ticket` of this stream, without the stream itself; `None` when
    /// it is empty.
    pub(crate) fn at(&self, ticket: u64) -> Option<Arc<Frontier>> {
        let versions = self.versions.lock();
        let known = versions.iter().rev().find(|version| version.from_ticket <= ticket);
        known.map(|version| Arc::clone(&version.frontier))
    }

    /// The frontier before the next task of this stream, without the stream itself.
    pub(crate) fn latest(&self) -> Option<Arc<Frontier>> {
        self.at(u64::MAX)
    }

    /// Adds a wait of the stream, its task `ticket`, for `point`; `before` is the frontier of
    /// `point`.
    ///
    /// Called after the wait was enqueued. Joins of concurrent callers may arrive out of order:
    /// this one is then also added to the later versions.
    pub(crate) fn join(&self, ticket: u64, point: &Point, before: Option<&Frontier>) {
        let nothing = Frontier::default();
        let before = before.unwrap_or(&nothing);
        let own_key = self.progress.stream_key();
        let mut versions = self.versions.lock();
        let done = self.progress.done();
        while versions.get(1).is_some_and(|next| next.from_ticket <= done) {
            versions.pop_front();
        }
        let place = versions.partition_point(|version| version.from_ticket <= ticket);
        for later in versions.range_mut(place..) {
            later.frontier = Arc::new(later.frontier.joined(before, point, own_key));
        }
        let previous = place.checked_sub(1).map_or(&nothing, |place| &*versions[place].frontier);
        let frontier = Arc::new(previous.joined(before, point, own_key));
        let version = Version { from_ticket: ticket, frontier };
        // No record stands between two adjacent waits, so the version of the first is never looked
        // up.
        match place.checked_sub(1).map(|place| &mut versions[place]) {
            Some(last) if last.from_ticket + 1 == ticket => *last = version,
            _ => versions.insert(place, version),
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
    fn a_join_holds_from_its_wait_on_and_reaches_through() {
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
        assert!(!orders(&c_history, 1, &point(&a, 3)), "b's record 4 stands before b's wait 5");
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
    fn what_is_done_is_pruned_at_the_next_join() {
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
    fn streams_that_are_gone_take_no_place_of_others() {
        let (_, history) = stream(1);
        for key in 2..200 {
            // On a driver kind a stream that is gone is not polled any more.
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
    fn what_a_stream_is_to_tell_when_it_is_over_does_not_grow() {
        // Two streams have the same lists: one of the lists is gone although both streams name it.
        let streams = [1, 2].map(|key| Progress::new(key, true));
        let ended = Arc::new(Ended::new());
        for _ in 0..1000 {
            let gone = Arc::new(Ended::new());
            for progress in &streams {
                progress.tell_when_over(&ended, 7);
                progress.tell_when_over(&gone, 7);
            }
        }
        for progress in &streams {
            assert!(progress.to_tell.lock().capacity() <= 16);
            progress.finish();
            assert_eq!((ended.pop(), ended.pop()), (Some(7), None));
            assert!(progress.to_tell.lock().is_empty());
        }
    }

    #[test]
    fn everything_that_a_stream_is_to_tell_is_told() {
        let progress = Progress::new(1, true);
        let ended = [Arc::new(Ended::new()), Arc::new(Ended::new())];
        for number in 0..100 {
            for ended in &ended {
                progress.tell_when_over(ended, number);
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
