//! The machine: extends the graph action by action, and finds the accesses that nothing orders.

use std::ops::Range;

use super::order::{Nodes, Order};

pub(crate) type Device = usize;
pub(crate) type Stream = usize;
pub(crate) type Event = usize;
/// Memory from its allocation to its free; a reuse is another life.
pub(crate) type Life = usize;
/// A task, or an access of the host.
pub(crate) type Node = usize;

/// One access of some units of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) life: Life,
    pub(crate) range: Range<usize>,
    pub(crate) writes: bool,
    /// False for a bare address: the runtime records no use.
    pub(crate) is_recorded: bool,
}

impl Access {
    /// Two accesses conflict when they share a unit and at least one writes.
    fn conflicts(&self, other: &Self) -> bool {
        let (own, others) = (&self.range, &other.range);
        let overlap = own.start < others.end && others.start < own.end;
        self.life == other.life && overlap && (self.writes || other.writes)
    }
}

/// What is wrong with a program. Accesses are numbered as they are enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Finding {
    /// Two tasks' accesses, which nothing orders.
    Race { first: usize, second: usize },
    /// As `Race`; one of the two is the host's.
    HostAccess { first: usize, second: usize },
    /// An access of memory that was freed before.
    UseAfterFree { access: usize },
    /// An unrecorded access on another stream, which the memory's free does not wait for.
    MissingRecordStream { access: usize },
    /// A stream's wait for an event that was never recorded.
    UnrecordedEvent { stream: Stream, event: Event },
    /// A read of bytes that no earlier access of their life writes.
    UninitializedRead { access: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Actor {
    Host,
    /// A task that acts.
    Callable(Node),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitedFor {
    Stream(Stream),
    Event(Event),
    Device(Device),
}

/// An access that happened, at a node of the graph.
#[derive(Debug)]
pub(crate) struct Happened {
    pub(crate) node: Node,
    /// `None` for the host.
    pub(crate) stream: Option<Stream>,
    pub(crate) access: Access,
}

#[derive(Debug)]
struct StreamState {
    device: Device,
    /// What is before the next task. Closed, as each set of nodes here.
    past: Nodes,
    is_dropped: bool,
}

#[derive(Debug)]
pub(crate) struct LifeState {
    pub(crate) home: Stream,
    pub(crate) units: usize,
    pub(crate) is_freed: bool,
}

/// Streams, events and memory of one program.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    order: Order,
    /// What the host has waited for: before whatever is enqueued from now on.
    done: Nodes,
    streams: Vec<StreamState>,
    /// What each event's latest record is behind.
    events: Vec<Option<Nodes>>,
    pub(crate) lives: Vec<LifeState>,
    accesses: Vec<Happened>,
    pub(crate) findings: Vec<Finding>,
}

impl Machine {
    pub(crate) fn new(stream_devices: impl IntoIterator<Item = Device>, events: usize) -> Self {
        let mut machine = Self { events: vec![None; events], ..Self::default() };
        stream_devices.into_iter().for_each(|device| _ = machine.add_stream(device));
        machine
    }

    pub(crate) fn add_stream(&mut self, device: Device) -> Stream {
        self.streams.push(StreamState { device, past: Nodes::default(), is_dropped: false });
        self.streams.len() - 1
    }

    /// Drops the handle of a stream. Returns a new stream on its device.
    pub(crate) fn replace_stream(&mut self, stream: Stream) -> Stream {
        self.streams[stream].is_dropped = true;
        self.add_stream(self.streams[stream].device)
    }

    pub(crate) fn is_dropped(&self, stream: Stream) -> bool {
        self.streams[stream].is_dropped
    }

    pub(crate) fn num_streams(&self) -> usize {
        self.streams.len()
    }

    pub(crate) fn device(&self, stream: Stream) -> Device {
        self.streams[stream].device
    }

    pub(crate) fn num_nodes(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn is_before(&self, first: Node, second: Node) -> bool {
        self.order.is_before(first, second)
    }

    /// True for what is before the stream's next task.
    pub(crate) fn is_awaited(&self, stream: Stream, node: Node) -> bool {
        self.streams[stream].past.contains(node)
    }

    pub(crate) fn is_done(&self, node: Node) -> bool {
        self.done.contains(node)
    }

    pub(crate) fn is_recorded(&self, event: Event) -> bool {
        self.events[event].is_some()
    }

    /// The stream's past, with what the actor knows to be over. A callable runs behind what is
    /// before it, and beside what it enqueues.
    fn enter(&mut self, actor: Actor, stream: Stream) -> &Nodes {
        let past = &mut self.streams[stream].past;
        past.unite(&self.done);
        if let Actor::Callable(node) = actor {
            past.unite(self.order.before(node));
        }
        past
    }

    /// Enqueues a task. With `behind_conflicts` its stream first waits for the recorded accesses
    /// that conflict with its own.
    pub(crate) fn task(
        &mut self,
        actor: Actor,
        stream: Stream,
        accesses: &[Access],
        behind_conflicts: bool,
    ) -> Node {
        if behind_conflicts {
            self.wait_tasks(stream, &self.conflicting(accesses));
        }
        let past = self.enter(actor, stream).clone();
        let node = self.order.add(past);
        self.streams[stream].past.insert(node);
        for access in accesses {
            self.happen(node, Some(stream), access);
        }
        node
    }

    /// What has recorded accesses that conflict with these.
    fn conflicting(&self, accesses: &[Access]) -> Vec<Node> {
        let conflicts = |happened: &&Happened| {
            let is_one = |access: &Access| access.conflicts(&happened.access);
            happened.access.is_recorded && accesses.iter().any(is_one)
        };
        self.accesses.iter().filter(conflicts).map(|happened| happened.node).collect()
    }

    pub(crate) fn record(&mut self, actor: Actor, event: Event, stream: Stream) {
        self.events[event] = Some(self.enter(actor, stream).clone());
    }

    /// The stream waits for the event's latest record.
    pub(crate) fn wait_event(&mut self, stream: Stream, event: Event) {
        match &self.events[event] {
            Some(record) => self.streams[stream].past.unite(record),
            None => self.findings.push(Finding::UnrecordedEvent { stream, event }),
        }
    }

    pub(crate) fn wait_stream(&mut self, stream: Stream, other: Stream) {
        let past = self.streams[other].past.clone();
        self.streams[stream].past.unite(&past);
    }

    /// The stream waits for these tasks, and so for what is before them.
    pub(crate) fn wait_tasks(&mut self, stream: Stream, tasks: &[Node]) {
        let past = self.order.up_to(tasks);
        self.streams[stream].past.unite(&past);
    }

    pub(crate) fn host_wait(&mut self, waited_for: WaitedFor) {
        match waited_for {
            WaitedFor::Stream(stream) => self.done.unite(&self.streams[stream].past),
            WaitedFor::Event(event) => {
                self.events[event].iter().for_each(|record| self.done.unite(record));
            }
            WaitedFor::Device(device) => {
                let streams = self.streams.iter().filter(|stream| stream.device == device);
                streams.for_each(|stream| self.done.unite(&stream.past));
            }
        }
    }

    /// The host waits for all recorded accesses of the memory, then accesses it itself.
    pub(crate) fn host_access(&mut self, access: &Access) -> Node {
        let whole = Access { range: 0..usize::MAX, writes: true, ..access.clone() };
        let recorded = self.conflicting(std::slice::from_ref(&whole));
        self.done.unite(&self.order.up_to(&recorded));
        let node = self.order.add(self.done.clone());
        self.happen(node, None, access);
        self.done.insert(node);
        node
    }

    /// What is enqueued with the memory runs behind the uses of its earlier lives: the runtime sees
    /// to that.
    pub(crate) fn allocate(&mut self, home: Stream, units: usize) -> Life {
        self.lives.push(LifeState { home, units, is_freed: false });
        self.lives.len() - 1
    }

    /// Frees in the order of the home stream and behind all recorded accesses.
    pub(crate) fn free(&mut self, life: Life) {
        let whole = Access { life, range: 0..usize::MAX, writes: true, is_recorded: true };
        let mut past = self.order.up_to(&self.conflicting(std::slice::from_ref(&whole)));
        past.unite(&self.streams[self.lives[life].home].past);
        past.unite(&self.done);
        for (access, happened) in self.accesses.iter().enumerate() {
            if happened.access.life == life && !past.contains(happened.node) {
                self.findings.push(Finding::MissingRecordStream { access });
            }
        }
        self.lives[life].is_freed = true;
    }

    /// An access that conflicts and that neither the host nor the stream has waited for.
    pub(crate) fn loose(&self, stream: Option<Stream>, access: &Access) -> Option<&Happened> {
        let is_awaited = |node| stream.is_some_and(|stream| self.is_awaited(stream, node));
        let is_known = |node| self.is_done(node) || is_awaited(node);
        let is_loose = |it: &&Happened| it.access.conflicts(access) && !is_known(it.node);
        self.accesses.iter().find(is_loose)
    }

    /// Whether every access of the life is before the next task of the stream.
    pub(crate) fn is_behind_all(&self, stream: Stream, life: Life) -> bool {
        let whole = Access { life, range: 0..usize::MAX, writes: true, is_recorded: true };
        self.loose(Some(stream), &whole).is_none()
    }

    /// True when each unit of the range has been written by an earlier access of this life.
    pub(crate) fn is_initialized(&self, access: &Access) -> bool {
        let writes = |it: &&Happened| it.access.life == access.life && it.access.writes;
        let is_written =
            |unit| self.accesses.iter().filter(writes).any(|it| it.access.range.contains(&unit));
        access.range.clone().all(is_written)
    }

    fn happen(&mut self, node: Node, stream: Option<Stream>, access: &Access) {
        let second = self.accesses.len();
        if self.lives[access.life].is_freed {
            self.findings.push(Finding::UseAfterFree { access: second });
        } else if !access.writes && !self.is_initialized(access) {
            self.findings.push(Finding::UninitializedRead { access: second });
        }
        for (first, other) in self.accesses.iter().enumerate() {
            let is_ordered = other.node == node || self.is_before(other.node, node);
            if other.access.conflicts(access) && !is_ordered {
                self.findings.push(match (other.stream, stream) {
                    (Some(_), Some(_)) => Finding::Race { first, second },
                    _ => Finding::HostAccess { first, second },
                });
            }
        }
        self.accesses.push(Happened { node, stream, access: access.clone() });
    }
}
