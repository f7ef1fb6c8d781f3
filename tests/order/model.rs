//! The model: a graph of what was enqueued, with an edge wherever the API promises an order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What one task did, in numbers of one global sequence; 0 is never.
#[derive(Debug, Default)]
pub(crate) struct Trace {
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

/// Something that was enqueued.
#[derive(Debug)]
pub(crate) struct Node {
    /// What is certainly before it. Numbers of nodes: always smaller than its own.
    pub(crate) before: Vec<usize>,
    /// What may be before it: a wait that raced with records.
    pub(crate) perhaps_before: Vec<usize>,
    pub(crate) task: Option<Arc<Trace>>,
    /// For records: predicted to be failed. For tasks: predicted to be skipped.
    pub(crate) is_failed: bool,
}

#[derive(Debug, Default)]
struct StreamModel {
    last: Option<usize>,
    has_error: bool,
}

#[derive(Debug, Default)]
pub(crate) struct EventModel {
    /// The node of each record, entered before the call.
    records: Vec<usize>,
    /// Records whose call returned.
    recorded: usize,
}

/// Which of an event's records a call that raced with them can have meant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidates {
    first: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) nodes: Vec<Node>,
    streams: Vec<StreamModel>,
    events: Vec<EventModel>,
    /// The second starts after the first has started.
    pub(crate) spawned: Vec<(usize, usize)>,
    /// The task of the second waited inside for the first, a record.
    pub(crate) waited_inside: Vec<(usize, usize)>,
    /// Devices on which a stream with an error may have been dropped.
    pub(crate) dropped_errors: Vec<usize>,
}

impl Model {
    pub(crate) fn new(events: usize) -> Self {
        let events = (0..events).map(|_| EventModel::default()).collect();
        Self { events, ..Self::default() }
    }

    pub(crate) fn add_stream(&mut self) -> usize {
        self.streams.push(StreamModel::default());
        self.streams.len() - 1
    }

    /// Something is enqueued on a stream, behind `before` too.
    pub(crate) fn enqueue(&mut self, stream: usize, before: &[usize]) -> usize {
        let number = self.nodes.len();
        let last = self.streams[stream].last.replace(number);
        let before = before.iter().copied().chain(last).collect();
        let (perhaps_before, is_failed) = (Vec::new(), self.streams[stream].has_error);
        self.nodes.push(Node { before, perhaps_before, task: None, is_failed });
        number
    }

    /// A task is enqueued.
    pub(crate) fn enqueue_task(&mut self, stream: usize, fails: bool) -> (usize, Arc<Trace>) {
        let number = self.enqueue(stream, &[]);
        let trace = Arc::new(Trace::default());
        self.nodes[number].task = Some(Arc::clone(&trace));
        self.streams[stream].has_error |= fails;
        (number, trace)
    }

    /// A stream waits for a record, whose failure it inherits.
    pub(crate) fn wait(&mut self, stream: usize, record: usize) {
        self.enqueue(stream, &[record]);
        self.streams[stream].has_error |= self.nodes[record].is_failed;
    }

    pub(crate) fn begin_record(&mut self, event: usize, stream: usize) {
        let record = self.enqueue(stream, &[]);
        self.events[event].records.push(record);
    }

    pub(crate) fn end_record(&mut self, event: usize) {
        self.events[event].recorded += 1;
    }

    /// The event's latest record. Exact while the event's records are held back.
    pub(crate) fn latest_record(&self, event: usize) -> Option<usize> {
        self.events[event].records.last().copied()
    }

    /// Called before a call that may race with records.
    pub(crate) fn begin_race(&self, event: usize) -> Candidates {
        Candidates { first: self.events[event].recorded }
    }

    /// Called after it: the records that it can have meant; empty if the event may have been
    /// unused.
    pub(crate) fn end_race(&self, event: usize, candidates: Candidates) -> Vec<usize> {
        let records = &self.events[event].records;
        candidates.first.checked_sub(1).map_or(Vec::new(), |first| records[first..].to_vec())
    }

    /// As [`Model::end_race`], also when the event may have been unused.
    pub(crate) fn possible(&self, event: usize, candidates: Candidates) -> Vec<usize> {
        self.events[event].records[candidates.first.saturating_sub(1)..].to_vec()
    }

    pub(crate) fn last(&self, stream: usize) -> Option<usize> {
        self.streams[stream].last
    }

    pub(crate) fn has_error(&self, stream: usize) -> bool {
        self.streams[stream].has_error
    }

    /// A synchronise ends the error; true when there was one.
    pub(crate) fn clear_error(&mut self, stream: usize) -> bool {
        std::mem::take(&mut self.streams[stream].has_error)
    }

    /// What is before a node, itself included; with what may be before it if `perhaps`.
    fn up_to(&self, node: Option<usize>, perhaps: bool) -> Vec<bool> {
        let mut is_before = vec![false; self.nodes.len()];
        let mut left: Vec<usize> = node.into_iter().collect();
        while let Some(number) = left.pop() {
            if !std::mem::replace(&mut is_before[number], true) {
                left.extend(&self.nodes[number].before);
                if perhaps {
                    left.extend(&self.nodes[number].perhaps_before);
                }
            }
        }
        is_before
    }

    fn is_unfinished_task(&self, number: usize) -> bool {
        self.nodes[number].task.as_ref().is_some_and(|trace| !trace.is_over())
    }

    /// A task up to `node` that is not over.
    pub(crate) fn unfinished(&self, node: Option<usize>) -> Option<usize> {
        let is_before = self.up_to(node, false);
        (0..is_before.len()).find(|number| is_before[*number] && self.is_unfinished_task(*number))
    }

    /// A task up to `record` that is neither over nor before what `stream` gets next.
    pub(crate) fn unordered(&self, stream: usize, record: usize) -> Option<usize> {
        let (wanted, known) =
            (self.up_to(Some(record), false), self.up_to(self.last(stream), true));
        let is_loose = |number: &usize| wanted[*number] && !known[*number];
        (0..wanted.len()).find(|number| is_loose(number) && self.is_unfinished_task(*number))
    }

    /// For each node the last task before it, by the number at which that was over.
    pub(crate) fn latest_ends(&self) -> Vec<(u64, usize)> {
        let mut latest: Vec<(u64, usize)> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let of = |number: &usize| {
                let task = self.nodes[*number].task.as_ref();
                let own = task.map_or(0, |trace| trace.end.load(Ordering::SeqCst));
                latest[*number].max((own, *number))
            };
            latest.push(node.before.iter().map(of).max().unwrap_or((0, 0)));
        }
        latest
    }
}
