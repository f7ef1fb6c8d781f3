//! What is before the next task of each stream, and what the host knows to be over.
//!
//! What any thread of the host has waited for is before everything that is enqueued later: it is
//! over by then. So the host has one clock, and the clocks of streams leave out what it covers.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use accelrt::Device;
use accelrt::internal::{Mixer, StreamCore};

use crate::sanitizer::clock::{Clock, Point, Slot};
use crate::sanitizer::timeline::{StreamName, Timeline};

/// The host's own accesses.
pub(super) const HOST: Slot = 0;
/// Accesses of the host that have not ended: before nothing.
pub(super) const OPEN: Slot = Slot::MAX;

/// The most streams that are known.
pub(super) const MOST_STREAMS: usize = 1024;

type ByNumber<K, V> = HashMap<K, V, BuildHasherDefault<Mixer>>;

/// The task that a thread is inside of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Running {
    Task(Point),
    /// One of a stream that was forgotten while it had tasks.
    Forgotten,
}

#[derive(Debug)]
pub(super) struct Streams {
    pub(super) most: usize,
    /// What is before everything that is enqueued or done on the host from now on. Closed: with a
    /// task it has all that is before that.
    pub(super) done: Clock,
    slots: ByNumber<u64, Slot>,
    timelines: ByNumber<Slot, Timeline>,
    /// How many streams were known so far: a number is not used again.
    num_slots: Slot,
    num_told: u64,
    num_host_accesses: u64,
    /// True when a stream that had tasks was forgotten.
    has_forgotten_tasks: bool,
    /// Streams, and changes of a stream's past, that found no room: then more counts as ordered.
    pub(super) num_forgotten: u64,
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            most: MOST_STREAMS,
            done: Clock::default(),
            slots: HashMap::default(),
            timelines: HashMap::default(),
            num_slots: 0,
            num_told: 0,
            num_host_accesses: 0,
            has_forgotten_tasks: false,
            num_forgotten: 0,
        }
    }
}

impl Streams {
    /// The number of a stream that may be new.
    pub(super) fn slot_of(&mut self, stream: &StreamCore) -> Slot {
        self.slot(stream.key(), Some(stream))
    }

    pub(super) fn slot(&mut self, key: u64, stream: Option<&StreamCore>) -> Slot {
        let slot = *self.slots.entry(key).or_insert_with(|| {
            self.num_slots += 1;
            assert!(self.num_slots < OPEN, "four billion streams later");
            self.timelines.insert(self.num_slots, Timeline::new(key, stream));
            self.num_slots
        });
        self.num_told += 1;
        self.timeline_mut(slot).told = self.num_told;
        slot
    }

    /// The number of a stream that was told of.
    pub(super) fn known_slot(&self, key: u64) -> Option<Slot> {
        self.slots.get(&key).copied()
    }

    pub(super) fn is_known(&self, slot: Slot) -> bool {
        slot == HOST || slot == OPEN || self.timelines.contains_key(&slot)
    }

    /// The number of streams, and of the most points in one clock.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        let latest = self.timelines.values().map(|timeline| timeline.at(u64::MAX).len());
        (self.timelines.len(), latest.chain([self.done.len()]).max().unwrap_or(0))
    }

    pub(super) fn is_full(&self) -> bool {
        self.timelines.len() > self.most
    }

    /// Forgets a quarter of the streams: first those whose tasks the host knows to be over, which
    /// loses nothing, at last those that have tasks. All that a forgotten one had counts as over.
    /// What else has their numbers must forget them too.
    pub(super) fn forget_some(&mut self) {
        let mut order: Vec<_> = self.timelines.keys().map(|slot| self.price(*slot)).collect();
        order.sort_unstable();
        order.truncate(self.timelines.len().div_ceil(4));
        for (is_loss, is_running, _, slot) in order {
            let Some(timeline) = self.timelines.remove(&slot) else { continue };
            self.slots.remove(&timeline.key);
            if is_loss {
                self.done.join(timeline.at(u64::MAX));
                self.num_forgotten += 1;
            }
            self.has_forgotten_tasks |= is_running;
        }
        let Self { done, timelines, .. } = self;
        let kept: HashSet<Slot> = timelines.keys().copied().chain([HOST]).collect();
        done.retain(|slot| kept.contains(&slot));
        for timeline in timelines.values_mut() {
            timeline.retain(|slot| kept.contains(&slot));
        }
    }

    /// What it costs to forget a stream: whether anything is lost, whether tasks are, and when it
    /// was told of last.
    fn price(&self, slot: Slot) -> (bool, bool, u64, Slot) {
        let timeline = self.timeline(slot);
        let is_running = !timeline.is_finished();
        let is_over = timeline.first.is_none() || self.done.covers(self.last(slot));
        let is_loss = is_running || !is_over || !timeline.at(u64::MAX).is_within(&self.done);
        (is_loss, is_running, timeline.told, slot)
    }

    pub(super) fn name(&self, slot: Slot) -> StreamName {
        self.timelines.get(&slot)?.name
    }

    fn timeline(&self, slot: Slot) -> &Timeline {
        &self.timelines[&slot]
    }

    fn timeline_mut(&mut self, slot: Slot) -> &mut Timeline {
        self.timelines.get_mut(&slot).expect("known until `forget_some`")
    }

    /// The task that this stream executes.
    pub(super) fn running(&self, key: u64) -> Option<Running> {
        let task = self.known_slot(key).and_then(|slot| {
            let timeline = self.timeline(slot);
            Some((Point::whole(slot, timeline.running()?), timeline.first))
        });
        let is_told = |first: Option<u64>, point: Point| first.is_some_and(|it| it <= point.ticket);
        match task {
            Some((point, first)) if !self.has_forgotten_tasks || is_told(first, point) => {
                Some(Running::Task(point))
            }
            _ => self.has_forgotten_tasks.then_some(Running::Forgotten),
        }
    }

    /// The last task of the stream that was told of.
    pub(super) fn last(&self, slot: Slot) -> Point {
        Point::whole(slot, self.timeline(slot).last)
    }

    /// The stream gets a task, in a step of the watch.
    pub(super) fn enqueue(&mut self, slot: Slot, ticket: u64, step: u64) -> Point {
        self.timeline_mut(slot).enqueue(ticket, step);
        Point::whole(slot, ticket)
    }

    /// True for a task that its stream has executed or skipped.
    pub(super) fn has_retired(&self, task: Point) -> bool {
        self.timelines.get(&task.slot).is_none_or(|timeline| timeline.has_retired(task.ticket))
    }

    /// A task that may be skipped writes to the allocation at an address.
    pub(super) fn note_write(&mut self, task: Point, address: u64) {
        if let Some(timeline) = self.timelines.get_mut(&task.slot) {
            timeline.note_write(task.ticket, address);
        }
    }

    /// The addresses of the allocations that a task would have written to.
    pub(super) fn take_writes(&mut self, slot: Slot, ticket: u64) -> Vec<u64> {
        self.timelines.get_mut(&slot).map_or_else(Vec::new, |it| it.take_writes(ticket))
    }

    /// The step in which a task that may run still was enqueued.
    pub(super) fn step_of(&self, point: Point) -> Option<u64> {
        self.timelines.get(&point.slot)?.step_of(point.ticket)
    }

    /// An access inside of a running task that is over: what the task enqueues from now on is
    /// behind it.
    pub(super) fn access_inside(&mut self, running: Point) -> Point {
        let step = self.timeline_mut(running.slot).access_inside(running.ticket);
        Point { step, ..running }
    }

    /// The host accesses memory: everything that comes later is behind it.
    pub(super) fn access_on_host(&mut self) -> Point {
        self.num_host_accesses += 1;
        let point = Point::whole(HOST, self.num_host_accesses);
        self.done.add(point);
        point
    }

    /// What of other streams is before a task. The host's accesses know what the host knows.
    pub(super) fn past(&self, point: Point) -> Arc<Clock> {
        match point.slot {
            HOST | OPEN => Arc::default(),
            slot => Arc::clone(self.timeline(slot).at(point.ticket)),
        }
    }

    /// The stream's next task runs behind a task, and behind what is before that. With `itself`
    /// false the task runs still, and enqueues the next one.
    pub(super) fn wait(&mut self, slot: Slot, point: Point, itself: bool) {
        let past = self.past(point);
        let done = &self.done;
        let timeline = &self.timelines[&slot];
        let point =
            if itself { point } else { self.timeline(point.slot).before_enqueued_by(point) };
        let latest = timeline.at(u64::MAX);
        let of_other = point.slot != slot && point.slot != OPEN && !done.covers(point);
        let of_other = (of_other && point.ticket > 0).then_some(point);
        if past.is_within(latest) && of_other.is_none_or(|point| latest.covers(point)) {
            return; // most waits for conflicting uses tell nothing new
        }
        let mut clock = Clock::clone(latest);
        clock.join(&past);
        if let Some(point) = of_other {
            clock.add(point);
        }
        clock.forget(done);
        let Self { timelines, done, num_forgotten, .. } = self;
        let timeline = timelines.get_mut(&slot).expect("it was there");
        *num_forgotten += timeline.change(clock, done);
    }

    /// Records that the host has waited for every task of the ended streams of a device.
    pub(super) fn wait_for_ended(&mut self, device: Device) {
        let is_ended = |timeline: &Timeline| {
            timeline.name.is_some_and(|(of, _)| of == device) && timeline.has_ended()
        };
        let ended = self.timelines.iter().filter(|(_, timeline)| is_ended(timeline));
        let ended: Vec<Point> = ended.map(|(slot, _)| self.last(*slot)).collect();
        for point in ended {
            self.wait_on_host(point, true);
        }
    }

    /// The host has waited for a task, with `is_whole` also for what a next one would wait for.
    pub(super) fn wait_on_host(&mut self, point: Point, is_whole: bool) {
        let past = self.past(Point { ticket: point.ticket + u64::from(is_whole), ..point });
        self.done.join(&past);
        self.done.add(point);
    }
}
