//! One stream in a watch: its last task, and what of other streams is before which of its tasks.

use std::collections::VecDeque;
use std::sync::Arc;

use accelrt::Device;
use accelrt::internal::{Progress, StreamCore};

use crate::sanitizer::clock::{Clock, Point, Slot};

/// The most changes of one stream's past that are known, and the most points in them.
const MOST_CHANGES: usize = 1024;
const MOST_POINTS: usize = 1 << 14;

/// A stream, as reports name it.
pub(super) type StreamName = Option<(Device, u64)>;

#[derive(Debug)]
pub(super) struct Timeline {
    pub(super) key: u64,
    pub(super) name: StreamName,
    progress: Option<Arc<Progress>>,
    /// The number of tasks that the stream had when the watch heard of it.
    pushed: u64,
    /// The first and the last ticket that was told of.
    pub(super) first: Option<u64>,
    pub(super) last: u64,
    /// The tasks that may run still, and the step of the watch in which each was enqueued.
    steps: VecDeque<(u64, u64)>,
    /// The tasks that may be skipped, and the address of each allocation that they write to.
    writes: VecDeque<(u64, u64)>,
    /// When it was told of last, as a count of such times.
    pub(super) told: u64,
    /// The last task inside of which accesses ended, and how many did.
    inside: (u64, u32),
    /// What of other streams is before the tasks from a ticket on. The first one is from 0.
    past: VecDeque<(u64, Arc<Clock>)>,
    num_points: usize,
}

impl Timeline {
    pub(super) fn new(key: u64, stream: Option<&StreamCore>) -> Self {
        Self {
            key,
            name: stream.map(StreamCore::name),
            progress: stream.map(|stream| Arc::clone(&stream.progress)),
            pushed: stream.map_or(0, StreamCore::pushed),
            first: None,
            last: 0,
            steps: VecDeque::new(),
            writes: VecDeque::new(),
            told: 0,
            inside: (0, 0),
            past: VecDeque::from([(0, Arc::default())]),
            num_points: 0,
        }
    }

    pub(super) fn enqueue(&mut self, ticket: u64, step: u64) {
        self.first.get_or_insert(ticket);
        self.last = ticket;
        let retired = self.progress.as_ref().map_or(self.last - 1, |progress| progress.retired());
        while self.steps.front().is_some_and(|(known, _)| *known <= retired) {
            self.steps.pop_front();
        }
        while self.writes.front().is_some_and(|(known, _)| *known <= retired) {
            self.writes.pop_front();
        }
        self.steps.push_back((ticket, step));
    }

    /// True for a task that the stream has executed or skipped.
    pub(super) fn has_retired(&self, ticket: u64) -> bool {
        self.progress.as_ref().is_none_or(|progress| progress.retired() >= ticket)
    }

    pub(super) fn note_write(&mut self, ticket: u64, address: u64) {
        // What a task that runs does inside comes later than tasks behind it, and is not skipped.
        if self.writes.back().is_none_or(|(last, _)| *last <= ticket) {
            self.writes.push_back((ticket, address));
        }
    }

    /// The addresses that [`Self::note_write`] has noted for a task.
    pub(super) fn take_writes(&mut self, ticket: u64) -> Vec<u64> {
        let until = self.writes.partition_point(|(known, _)| *known <= ticket);
        let ended = self.writes.drain(..until);
        ended.filter(|(known, _)| *known == ticket).map(|(_, address)| address).collect()
    }

    /// The step in which a task was enqueued; `None` for one that is over, or was not told of.
    pub(super) fn step_of(&self, ticket: u64) -> Option<u64> {
        let place = self.steps.binary_search_by_key(&ticket, |(known, _)| *known);
        place.ok().map(|place| self.steps[place].1)
    }

    /// True when no task of the stream may run still.
    pub(super) fn is_finished(&self) -> bool {
        let pushed = self.pushed.max(self.last);
        self.progress.as_ref().is_none_or(|progress| progress.retired() >= pushed)
    }

    /// True when the stream's last handle was dropped and its last task is over.
    pub(super) fn has_ended(&self) -> bool {
        self.progress.as_ref().is_some_and(|progress| progress.has_ended())
    }

    /// The ticket of the task that the stream executes.
    pub(super) fn running(&self) -> Option<u64> {
        self.progress.as_ref().map(|progress| progress.retired() + 1)
    }

    /// What of other streams is before a task.
    pub(super) fn at(&self, ticket: u64) -> &Arc<Clock> {
        let later = self.past.partition_point(|(from, _)| *from <= ticket);
        &self.past[later - 1].1
    }

    /// The step of an access inside of a running task that is over.
    pub(super) fn access_inside(&mut self, running: u64) -> u32 {
        let (ticket, step) = if self.inside.0 == running { self.inside } else { (running, 0) };
        self.inside = (ticket, step.saturating_add(1)); // after so many an access is not over
        step
    }

    /// What of the stream is before the tasks that a running task enqueues.
    pub(super) fn before_enqueued_by(&self, running: Point) -> Point {
        match self.inside {
            (ticket, steps) if ticket == running.ticket => Point { step: steps - 1, ..running },
            _ => Point { ticket: running.ticket - 1, ..running },
        }
    }

    /// From the next task on this is before. Returns how many changes found no room: then more
    /// counts as ordered.
    pub(super) fn change(&mut self, clock: Clock, done: &Clock) -> u64 {
        let from = self.last + 1;
        self.num_points += clock.len();
        match self.past.back_mut() {
            Some((known, latest)) if *known == from => {
                self.num_points -= latest.len();
                *latest = Arc::new(clock);
            }
            _ => self.past.push_back((from, Arc::new(clock))),
        }
        while self.past.get(1).is_some_and(|(_, clock)| clock.is_within(done)) {
            self.pop();
        }
        let mut num_forgotten = 0;
        while self.past.len() > MOST_CHANGES || self.past.len() > 1 && self.num_points > MOST_POINTS
        {
            self.pop();
            num_forgotten += 1;
        }
        self.past[0].0 = 0; // of earlier tasks too; and what the next one waits for is apart
        num_forgotten
    }

    fn pop(&mut self) {
        let oldest = self.past.pop_front();
        self.num_points -= oldest.map_or(0, |(_, clock)| clock.len());
    }

    /// Forgets the points of other streams that are not kept.
    pub(super) fn retain(&mut self, is_kept: impl Fn(Slot) -> bool) {
        for (_, clock) in &mut self.past {
            Arc::make_mut(clock).retain(&is_kept);
        }
        self.num_points = self.past.iter().map(|(_, clock)| clock.len()).sum();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use accelrt::{Completion, Config, Runtime};

    use super::*;

    #[test]
    fn enqueue_forgets_only_retired_tasks() {
        // Goal: an enqueue forgets the tasks that are retired, and no others. Method: deferred
        // tasks that the test finishes one by one, and after each the enqueue of another.
        const TASKS: u64 = 6;
        for retired in 0..TASKS {
            let runtime = Runtime::new(Config::default()).unwrap();
            let stream = runtime.stream(Device::cpu(0)).unwrap();
            let mut timeline = Timeline::new(1, Some(stream.core()));
            let (sender, begun) = channel::<Completion>();
            for ticket in 1..=TASKS {
                let sender = sender.clone();
                let task = move |completion| sender.send(completion).unwrap();
                stream.enqueue_deferred(task).unwrap();
                timeline.enqueue(ticket, 10 + ticket);
                timeline.note_write(ticket, 100 + ticket);
            }
            for _ in 0..retired {
                begun.recv().unwrap().finish(Ok(()));
            }
            let running = begun.recv().unwrap(); // the tasks before it are retired
            timeline.enqueue(TASKS + 1, 11 + TASKS);
            for ticket in 1..=TASKS {
                let is_kept = ticket > retired;
                assert_eq!(timeline.step_of(ticket), is_kept.then_some(10 + ticket), "{ticket}");
                let written = timeline.take_writes(ticket);
                assert_eq!(written, Vec::from_iter(is_kept.then_some(100 + ticket)), "{ticket}");
            }
            running.finish(Ok(()));
            for _ in retired + 1..TASKS {
                begun.recv().unwrap().finish(Ok(()));
            }
            stream.synchronize().unwrap();
        }
    }
}
