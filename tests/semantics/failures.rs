//! Failures: which error covers which task, which call raises it, and what ends it.
//!
//! One host thread acts. Each action has a position on its stream, and an error covers the
//! positions from the failed task to its end. So the outcome of each call follows from the actions
//! before it, whatever the moment at which a task runs.

use std::collections::BTreeSet;

use crate::numbers::Numbers;

pub(crate) type Stream = usize;
pub(crate) type Event = usize;
pub(crate) type Buffer = usize;
/// A fill, by which the host can wait for it.
pub(crate) type Fill = usize;
/// A handle of a stream; the pool issues one stream to several holders.
pub(crate) type Holder = usize;
/// A synchronise that was begun, as a future.
pub(crate) type Begun = usize;
/// The number of a task that failed by itself.
pub(crate) type Root = usize;

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Task {
        stream: Stream,
        fails: bool,
    },
    Fill(Stream, Buffer),
    Record(Event, Stream),
    WaitEvent(Stream, Event),
    WaitStream(Stream, Stream),
    Reissue(Stream),
    WaitForFill(Fill),
    HostAccess(Buffer),
    SynchronizeEvent(Event),
    Synchronize(Holder),
    SynchronizeDevice,
    /// Begins a synchronise that the host can give up.
    Begin(Holder),
    /// Waits for a synchronise that was begun.
    Finish(Begun),
    GiveUp(Begun),
    DropFills,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Current,
    Synchronized,
    Received,
    SetAside,
}

/// An error of a stream. `root` is another stream's task where the error was inherited.
#[derive(Debug)]
struct Failure {
    from: usize,
    to: usize,
    phase: Phase,
    root: Root,
    is_ended: bool,
    /// The last position that a synchronise has waited for which raised the error.
    synchronized_to: usize,
}

#[derive(Debug, Default)]
struct StreamState {
    num_positions: usize,
    failures: Vec<Failure>,
}

impl StreamState {
    fn next(&mut self) -> usize {
        self.num_positions += 1;
        self.num_positions
    }

    fn current(&self) -> Option<usize> {
        self.failures.iter().position(|failure| failure.phase == Phase::Current)
    }

    fn fail(&mut self, from: usize, root: Root) {
        let (to, phase) = (usize::MAX, Phase::Current);
        self.failures.push(Failure { from, to, phase, root, is_ended: false, synchronized_to: 0 });
    }

    fn end(&mut self, index: usize, phase: Phase) {
        let to = self.num_positions;
        let failure = &mut self.failures[index];
        failure.to = failure.to.min(to);
        failure.phase = phase;
    }

    fn at(&self, position: usize) -> Option<usize> {
        self.failures.iter().position(|it| (it.from..it.to).contains(&position))
    }

    fn unsynchronized_at(&self, position: usize) -> Option<usize> {
        self.at(position).filter(|index| {
            let Failure { phase, synchronized_to, .. } = self.failures[*index];
            phase != Phase::Synchronized && position > synchronized_to
        })
    }

    /// Ends an error that a call has received through a handle of a task.
    fn receive(&mut self, index: usize) -> Root {
        let failure = &mut self.failures[index];
        if !std::mem::replace(&mut failure.is_ended, true) {
            let is_unraised = matches!(failure.phase, Phase::Current | Phase::SetAside);
            self.next();
            if is_unraised {
                self.end(index, Phase::Received);
            }
        }
        self.failures[index].root
    }

    /// Ends a synchronise whose task has a position: raises the errors between `since` and there
    /// that no call has raised, and the one that covers the position.
    fn finish(&mut self, since: usize, position: usize) -> BTreeSet<Root> {
        let mut raised = BTreeSet::new();
        for index in 0..self.failures.len() {
            let Failure { from, to, phase, root, is_ended, .. } = self.failures[index];
            let is_covering = (from..to).contains(&position);
            if from <= since || from > position {
                continue;
            }
            if is_covering || phase == Phase::SetAside {
                raised.insert(root);
            }
            if is_covering && phase == Phase::Current {
                if !is_ended {
                    self.next();
                }
                self.end(index, Phase::Received);
            }
            let failure = &mut self.failures[index];
            failure.synchronized_to = failure.synchronized_to.max(position);
            if failure.to <= position + 1 {
                failure.phase = Phase::Synchronized;
            } else if failure.phase == Phase::SetAside {
                failure.phase = Phase::Received;
            }
        }
        raised
    }

    /// Raises the errors behind `since` that no call has raised.
    fn synchronize(&mut self, since: usize) -> BTreeSet<Root> {
        self.next();
        let mut raised = BTreeSet::new();
        for index in 0..self.failures.len() {
            let Failure { from, phase, root, .. } = self.failures[index];
            if from <= since {
                continue;
            }
            if matches!(phase, Phase::Current | Phase::SetAside) {
                raised.insert(root);
            }
            self.end(index, Phase::Synchronized);
        }
        raised
    }
}

#[derive(Clone, Debug, Default)]
struct EventState {
    is_recorded: bool,
    /// The failure of the latest record.
    failure: Option<Root>,
}

/// Streams, events and buffers of one program.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    streams: Vec<StreamState>,
    events: Vec<EventState>,
    /// By buffer and stream, the position of the last use.
    uses: Vec<Vec<usize>>,
    pub(crate) fills: Vec<Option<(Stream, usize)>>,
    pub(crate) holders: Vec<(Stream, usize)>,
    /// Stream, the position since which its holder has it, and the position of the task.
    pub(crate) begun: Vec<Option<(Stream, usize, usize)>>,
    /// Whether each task ran.
    pub(crate) has_run: Vec<bool>,
    received: BTreeSet<Root>,
}

impl Machine {
    pub(crate) fn new(streams: usize, events: usize, buffers: usize) -> Self {
        Self {
            streams: (0..streams).map(|_| StreamState::default()).collect(),
            events: vec![EventState::default(); events],
            uses: vec![vec![0; streams]; buffers],
            holders: (0..streams).map(|stream| (stream, 0)).collect(),
            ..Self::default()
        }
    }

    /// Extends the program by one action. Returns the roots of the errors that it raises.
    pub(crate) fn apply(&mut self, action: &Action) -> BTreeSet<Root> {
        let raised = self.raised_by(action);
        self.received.extend(&raised);
        raised
    }

    fn raised_by(&mut self, action: &Action) -> BTreeSet<Root> {
        let mut raised = BTreeSet::new();
        match *action {
            Action::Task { stream, fails } => {
                let state = &mut self.streams[stream];
                let (position, runs) = (state.next(), state.current().is_none());
                if runs && fails {
                    state.fail(position, self.has_run.len());
                }
                self.has_run.push(runs);
            }
            Action::Fill(stream, buffer) => {
                let position = self.streams[stream].next();
                self.uses[buffer][stream] = position;
                self.fills.push(Some((stream, position)));
            }
            Action::Record(event, stream) => {
                let failure = self.record(stream);
                self.events[event] = EventState { is_recorded: true, failure };
            }
            Action::WaitEvent(stream, event) => {
                self.inherit(stream, self.events[event].failure);
            }
            Action::WaitStream(stream, other) => {
                let failure = self.record(other);
                self.inherit(stream, failure);
            }
            Action::Reissue(stream) => {
                let state = &mut self.streams[stream];
                let since = state.next();
                if let Some(index) = state.current() {
                    state.end(index, Phase::SetAside);
                }
                self.holders.push((stream, since));
            }
            Action::WaitForFill(fill) => {
                let (stream, position) = self.fills[fill].expect("a handle that exists");
                let state = &mut self.streams[stream];
                raised.extend(state.at(position).map(|index| state.receive(index)));
            }
            Action::HostAccess(buffer) => {
                for (state, position) in self.streams.iter_mut().zip(&self.uses[buffer]) {
                    let reported = state.unsynchronized_at(*position);
                    raised.extend(reported.map(|index| state.receive(index)));
                }
            }
            Action::SynchronizeEvent(event) => raised.extend(self.events[event].failure),
            Action::Synchronize(holder) => {
                let (stream, since) = self.holders[holder];
                raised = self.streams[stream].synchronize(since);
            }
            Action::SynchronizeDevice => {
                raised = self.streams.iter_mut().flat_map(|state| state.synchronize(0)).collect();
            }
            Action::Begin(holder) => {
                let (stream, since) = self.holders[holder];
                let position = self.streams[stream].next();
                self.begun.push(Some((stream, since, position)));
            }
            Action::Finish(begun) => {
                let (stream, since, position) = self.begun[begun].take().expect("it was begun");
                raised = self.streams[stream].finish(since, position);
            }
            Action::GiveUp(begun) => self.begun[begun] = None,
            Action::DropFills => self.fills.iter_mut().for_each(|fill| *fill = None),
        }
        raised
    }

    /// A record on the stream: the root of the error that it is recorded behind.
    fn record(&mut self, stream: Stream) -> Option<Root> {
        let state = &mut self.streams[stream];
        state.next();
        state.current().map(|index| state.failures[index].root)
    }

    fn inherit(&mut self, stream: Stream, failure: Option<Root>) {
        let state = &mut self.streams[stream];
        let position = state.next();
        if let (Some(root), None) = (failure, state.current()) {
            state.fail(position, root);
        }
    }

    /// The roots that a report at the program's end has: those that no call has received.
    pub(crate) fn unreceived(&self) -> BTreeSet<Root> {
        let failures = self.streams.iter().flat_map(|state| &state.failures);
        let unraised = failures.filter(|it| matches!(it.phase, Phase::Current | Phase::SetAside));
        unraised.map(|it| it.root).filter(|root| !self.received.contains(root)).collect()
    }

    /// The most errors that a stream has had.
    fn max_failures(&self) -> usize {
        self.streams.iter().map(|state| state.failures.len()).max().unwrap_or_default()
    }
}

/// Draws the next action of a program whose streams have at most `max_failures` errors each.
pub(crate) fn draw(machine: &Machine, numbers: &mut Numbers, max_failures: usize) -> Action {
    let stream = numbers.below(machine.streams.len());
    let (event, buffer) = (numbers.below(machine.events.len()), numbers.below(machine.uses.len()));
    let may_fail = machine.max_failures() < max_failures;
    let fills: Vec<Fill> =
        (0..machine.fills.len()).filter(|fill| machine.fills[*fill].is_some()).collect();
    let begun: Vec<Begun> =
        (0..machine.begun.len()).filter(|begun| machine.begun[*begun].is_some()).collect();
    match numbers.below(108) {
        0..24 => Action::Task { stream, fails: may_fail && numbers.below(2) == 0 },
        24..48 => Action::Fill(stream, buffer),
        48..54 => Action::Record(event, stream),
        54..60 if may_fail && machine.events[event].is_recorded => Action::WaitEvent(stream, event),
        60..65 if may_fail => Action::WaitStream(stream, numbers.below(machine.streams.len())),
        65..70 => Action::Reissue(stream),
        70..80 if !fills.is_empty() => Action::WaitForFill(fills[numbers.below(fills.len())]),
        80..88 => Action::HostAccess(buffer),
        88..91 if machine.events[event].is_recorded => Action::SynchronizeEvent(event),
        91..97 => Action::Synchronize(numbers.below(machine.holders.len())),
        97 => Action::SynchronizeDevice,
        98 => Action::DropFills,
        100..103 => Action::Begin(numbers.below(machine.holders.len())),
        103..106 if !begun.is_empty() => Action::Finish(begun[numbers.below(begun.len())]),
        106..108 if !begun.is_empty() => Action::GiveUp(begun[numbers.below(begun.len())]),
        _ => Action::Task { stream, fails: false },
    }
}
