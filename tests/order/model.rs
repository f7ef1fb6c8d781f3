//! The model: the order that the semantics has for what was enqueued, and what failures add to it.
//!
//! Several threads enqueue, and a wait that races with records may mean each of some. So there are
//! two machines with the same nodes, of which one has what is certainly before what, and the other
//! what may be. What the host waits for is no part of them: it is over when the wait returns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::semantics::machine::{Actor, Device, Event, Machine, Node, Stream};

/// What one task did, in numbers of one global sequence; 0 is never.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// The task's.
    pub(crate) node: Node,
    pub(crate) start: AtomicU64,
    /// When it returned; of a task that was skipped, when it was dropped.
    pub(crate) end: AtomicU64,
    pub(crate) runs: AtomicU64,
    pub(crate) drops: AtomicU64,
    /// What a wait inside the task said: 1 is good, 2 a failed event.
    pub(crate) waited: AtomicU64,
}

impl Trace {
    pub(crate) fn did_run(&self) -> bool {
        self.runs.load(Ordering::SeqCst) > 0
    }

    /// The task is over, and what it held is dropped.
    fn is_over(&self) -> bool {
        self.drops.load(Ordering::SeqCst) > 0
    }
}

/// A task or a record.
#[derive(Debug)]
pub(crate) struct Enqueued {
    pub(crate) task: Option<Arc<Trace>>,
    /// For records: predicted to be failed. For tasks: predicted to be skipped.
    pub(crate) is_failed: bool,
}

#[derive(Debug, Default)]
struct StreamModel {
    last: Option<Node>,
    has_error: bool,
}

#[derive(Debug, Default)]
struct EventModel {
    /// Entered before the calls.
    records: Vec<Node>,
    /// Records whose call returned.
    recorded: usize,
}

/// Which of an event's records a call that raced with them can have meant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidates {
    first: usize,
}

#[derive(Debug)]
pub(crate) struct Model {
    certain: Machine,
    possible: Machine,
    /// By node.
    pub(crate) enqueued: Vec<Enqueued>,
    streams: Vec<StreamModel>,
    events: Vec<EventModel>,
    /// The second starts after the first has started.
    pub(crate) spawned: Vec<(Node, Node)>,
    /// The task of the second waited inside for the first, a record.
    pub(crate) waited_inside: Vec<(Node, Node)>,
    /// Devices on which a stream with an error may have been dropped.
    pub(crate) dropped_errors: Vec<usize>,
}

impl Model {
    pub(crate) fn new(events: usize) -> Self {
        Self {
            certain: Machine::new([], events),
            possible: Machine::new([], events),
            enqueued: Vec::new(),
            streams: Vec::new(),
            events: (0..events).map(|_| EventModel::default()).collect(),
            spawned: Vec::new(),
            waited_inside: Vec::new(),
            dropped_errors: Vec::new(),
        }
    }

    fn both(&mut self) -> [&mut Machine; 2] {
        [&mut self.certain, &mut self.possible]
    }

    pub(crate) fn add_stream(&mut self, device: Device) -> Stream {
        for machine in self.both() {
            machine.add_stream(device);
        }
        self.streams.push(StreamModel::default());
        self.streams.len() - 1
    }

    fn enqueue(&mut self, actor: Actor, stream: Stream) -> Node {
        let [node, _] = self.both().map(|machine| machine.task(actor, stream, &[], false));
        self.streams[stream].last = Some(node);
        let is_failed = self.streams[stream].has_error;
        self.enqueued.push(Enqueued { task: None, is_failed });
        node
    }

    /// A task is enqueued.
    pub(crate) fn enqueue_task(&mut self, actor: Actor, stream: Stream, fails: bool) -> Arc<Trace> {
        let node = self.enqueue(actor, stream);
        let trace = Arc::new(Trace { node, ..Trace::default() });
        self.enqueued[node].task = Some(Arc::clone(&trace));
        self.streams[stream].has_error |= fails;
        trace
    }

    /// A record of an event that nothing else records.
    pub(crate) fn record_once(&mut self, stream: Stream) -> Node {
        self.enqueue(Actor::Host, stream)
    }

    pub(crate) fn begin_record(&mut self, event: Event, stream: Stream) {
        let record = self.record_once(stream);
        for machine in self.both() {
            machine.record(Actor::Host, event, stream);
        }
        self.events[event].records.push(record);
    }

    pub(crate) fn end_record(&mut self, event: Event) {
        self.events[event].recorded += 1;
    }

    /// The event's latest record. Exact while the event's records are held back.
    pub(crate) fn latest_record(&self, event: Event) -> Option<Node> {
        self.events[event].records.last().copied()
    }

    /// A stream waits for the latest record, whose failure it inherits. Exact as above.
    pub(crate) fn wait_event(&mut self, stream: Stream, event: Event) {
        for machine in self.both() {
            machine.wait_event(stream, event);
        }
        let is_failed = self.latest_record(event).is_some_and(|it| self.enqueued[it].is_failed);
        self.streams[stream].has_error |= is_failed;
    }

    /// A stream waits for another one, whose failure it inherits.
    pub(crate) fn wait_stream(&mut self, stream: Stream, other: Stream) {
        for machine in self.both() {
            machine.wait_stream(stream, other);
        }
        self.streams[stream].has_error |= self.streams[other].has_error;
    }

    /// A stream has waited for one of these records.
    pub(crate) fn wait_in_a_race(&mut self, stream: Stream, event: Event, candidates: Candidates) {
        let records = &self.events[event].records[candidates.first.saturating_sub(1)..];
        self.possible.wait_tasks(stream, records);
    }

    /// Called before a call that may race with records.
    pub(crate) fn begin_race(&self, event: Event) -> Candidates {
        Candidates { first: self.events[event].recorded }
    }

    /// Called after it: the records that it can have meant; empty if the event may have been
    /// unused.
    pub(crate) fn end_race(&self, event: Event, candidates: Candidates) -> Vec<Node> {
        let records = &self.events[event].records;
        candidates.first.checked_sub(1).map_or(Vec::new(), |first| records[first..].to_vec())
    }

    pub(crate) fn last(&self, stream: Stream) -> Option<Node> {
        self.streams[stream].last
    }

    pub(crate) fn has_error(&self, stream: Stream) -> bool {
        self.streams[stream].has_error
    }

    /// A synchronise ends the error; true when there was one.
    pub(crate) fn clear_error(&mut self, stream: Stream) -> bool {
        std::mem::take(&mut self.streams[stream].has_error)
    }

    /// The tasks that are certainly before a node or it, and not over.
    fn unfinished_up_to(&self, last: Node) -> impl Iterator<Item = Node> {
        let is_unfinished = |it: &Enqueued| it.task.as_ref().is_some_and(|task| !task.is_over());
        let is_up_to = move |node: &Node| *node == last || self.certain.is_before(*node, last);
        (0..=last).filter(is_up_to).filter(move |node| is_unfinished(&self.enqueued[*node]))
    }

    /// A task up to `node` that is not over.
    pub(crate) fn unfinished(&self, node: Option<Node>) -> Option<Node> {
        node.and_then(|last| self.unfinished_up_to(last).next())
    }

    /// A task up to `record` that is neither over nor before what `stream` gets next.
    pub(crate) fn unordered(&self, stream: Stream, record: Node) -> Option<Node> {
        self.unfinished_up_to(record).find(|node| !self.possible.is_awaited(stream, *node))
    }

    /// For each node the last task before it, by the number at which that was over.
    pub(crate) fn latest_ends(&self) -> Vec<(u64, Node)> {
        let end = |node: Node| {
            let task = self.enqueued[node].task.as_ref();
            (task.map_or(0, |trace| trace.end.load(Ordering::SeqCst)), node)
        };
        let ends: Vec<_> = (0..self.enqueued.len()).map(end).collect();
        let before = |node: Node| {
            let is_before = |(_, first): &&(u64, Node)| self.certain.is_before(*first, node);
            ends[..node].iter().filter(is_before).max().copied().unwrap_or((0, 0))
        };
        (0..ends.len()).map(before).collect()
    }
}
