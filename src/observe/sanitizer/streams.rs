//! What is before the next task of each stream, and what the host knows to be over.
//!
//! What any thread of the host has waited for is before everything that is enqueued later: it is
//! over by then. So the host has one clock, and the clocks of streams leave out what it covers.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use crate::base::device::Device;
use crate::base::stream_map::Mixer;
use crate::engine::frontier::Progress;
use crate::engine::stream::core::StreamCore;
use crate::observe::sanitizer::clock::{Clock, Point, Slot};

/// The host's own accesses.
pub(super) const HOST: Slot = 0;
/// Accesses of the host that have not ended: before nothing.
pub(super) const OPEN: Slot = Slot::MAX;

/// The most changes of one stream's past that are known.
const MOST_CHANGES: usize = 1024;

/// A stream, as reports name it.
pub(super) type StreamName = Option<(Device, u64)>;

#[derive(Debug, Default)]
pub(super) struct Streams {
    /// What is before everything that is enqueued or done on the host from now on. Closed: with a
    /// task it has all that is before that.
    pub(super) done: Clock,
    slots: HashMap<u64, Slot, BuildHasherDefault<Mixer>>,
    timelines: Vec<Timeline>,
    num_host_accesses: u64,
    /// Changes of a stream's past that found no room: then more counts as ordered.
    pub(super) num_forgotten: u64,
}

/// One stream.
#[derive(Debug)]
struct Timeline {
    name: StreamName,
    progress: Option<Arc<Progress>>,
    /// The last ticket that was told of.
    last: u64,
    /// The last task inside of which accesses ended, and how many did.
    inside: (u64, u32),
    /// What of other streams is before the tasks from a ticket on. The first one is from 0.
    past: VecDeque<(u64, Arc<Clock>)>,
}

impl Timeline {
    fn at(&self, ticket: u64) -> &Arc<Clock> {
        let later = self.past.partition_point(|(from, _)| *from <= ticket);
        &self.past[later - 1].1
    }
}

impl Streams {
    /// The number of the stream with this key.
    pub(super) fn slot(&mut self, key: u64) -> Slot {
        let Self { slots, timelines, .. } = self;
        *slots.entry(key).or_insert_with(|| {
            let past = VecDeque::from([(0, Arc::default())]);
            timelines.push(Timeline { name: None, progress: None, last: 0, inside: (0, 0), past });
            Slot::try_from(timelines.len()).expect("four billion streams later")
        })
    }

    pub(super) fn slot_of(&mut self, stream: &StreamCore) -> Slot {
        let slot = self.slot(stream.key());
        let timeline = self.timeline_mut(slot);
        if timeline.progress.is_none() {
            timeline.progress = Some(Arc::clone(&stream.progress));
            timeline.name = Some((stream.identity.device, stream.identity.id));
        }
        slot
    }

    pub(super) fn name(&self, slot: Slot) -> StreamName {
        self.timelines.get(slot.checked_sub(1)? as usize)?.name
    }

    fn timeline(&self, slot: Slot) -> &Timeline {
        &self.timelines[slot as usize - 1]
    }

    fn timeline_mut(&mut self, slot: Slot) -> &mut Timeline {
        &mut self.timelines[slot as usize - 1]
    }

    /// The task that this stream executes.
    pub(super) fn running(&self, key: u64) -> Option<Point> {
        let slot = *self.slots.get(&key)?;
        let progress = self.timeline(slot).progress.as_ref()?;
        Some(Point::whole(slot, progress.retired() + 1))
    }

    /// The last task of the stream that was told of.
    pub(super) fn last(&self, slot: Slot) -> Point {
        Point::whole(slot, self.timeline(slot).last)
    }

    /// The stream gets a task.
    pub(super) fn enqueue(&mut self, slot: Slot, ticket: u64) -> Point {
        self.timeline_mut(slot).last = ticket;
        Point::whole(slot, ticket)
    }

    /// An access inside of a running task that is over: what the task enqueues from now on is
    /// behind it.
    pub(super) fn access_inside(&mut self, running: Point) -> Point {
        let inside = &mut self.timeline_mut(running.slot).inside;
        let (ticket, step) = if inside.0 == running.ticket { *inside } else { (running.ticket, 0) };
        *inside = (ticket, step.saturating_add(1)); // after so many an access is not over
        Point { step, ..running }
    }

    /// What of its stream is before the tasks that a running task enqueues.
    fn before_enqueued_by(&self, running: Point) -> Point {
        match self.timeline(running.slot).inside {
            (ticket, steps) if ticket == running.ticket => Point { step: steps - 1, ..running },
            _ => Point { ticket: running.ticket - 1, ..running },
        }
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
        let point = if itself { point } else { self.before_enqueued_by(point) };
        let (timelines, done) = (&mut self.timelines, &self.done);
        let timeline = &mut timelines[slot as usize - 1];
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
        let from = timeline.last + 1;
        match timeline.past.back_mut() {
            Some((known, latest)) if *known == from => *latest = Arc::new(clock),
            _ => timeline.past.push_back((from, Arc::new(clock))),
        }
        while timeline.past.get(1).is_some_and(|(_, clock)| clock.is_within(done)) {
            timeline.past.pop_front();
        }
        if timeline.past.len() > MOST_CHANGES {
            timeline.past.pop_front();
            self.num_forgotten += 1;
        }
        timeline.past[0].0 = 0; // of earlier tasks too; and what the next one waits for is apart
    }

    /// The host has waited for a task, with `is_whole` also for what a next one would wait for.
    pub(super) fn wait_on_host(&mut self, point: Point, is_whole: bool) {
        let past = self.past(Point { ticket: point.ticket + u64::from(is_whole), ..point });
        self.done.join(&past);
        self.done.add(point);
    }
}
