//! Programs of the semantics on the cpu device: what each action is there.
//!
//! How memory is accessed, and what is noted of it, is a [`Probe`]'s: one writes and compares what
//! memory holds (`semantics_contents.rs`), another one notes what a watch is told.

use accelrt::{Buffer, Device, Event, Runtime, Stream};

use crate::semantics::machine::{Access, Actor, Life, Machine, Node, WaitedFor};
use crate::semantics::program::{self, Action, Shape};

/// What a task does, or what enqueues one.
pub(crate) type Body = Box<dyn FnOnce() + Send>;

/// Accesses of memory, as a test makes and judges them.
pub(crate) trait Probe {
    /// The action as it happens; called before it does.
    fn prepare(&mut self, _: &World, action: &Action) -> Action {
        action.clone()
    }

    /// What enqueues the task when it is called: of a callable, on the worker.
    fn task(&mut self, world: &World, stream: usize, accesses: &[Access], node: Node) -> Body;

    fn callable(&mut self, body: Body, _: Node) -> Body {
        body
    }

    /// A copy was enqueued.
    fn copied(&mut self, world: &World, stream: usize, accesses: &[Access; 2], node: Node);

    fn host_access(&mut self, world: &World, access: &Access, node: Node);

    /// The last of the buffers is new.
    fn allocated(&mut self, world: &World);
}

/// What a program works on.
pub(crate) struct World {
    pub(crate) runtime: Runtime,
    /// `None` after the drop of the handle.
    streams: Vec<Option<Stream>>,
    /// The device and the id of each stream, dropped or not.
    pub(crate) stream_ids: Vec<(Device, u64)>,
    pub(crate) events: Vec<Event>,
    /// By life; `None` behind the free.
    pub(crate) buffers: Vec<Option<Buffer>>,
    pub(crate) unit_bytes: usize,
    pub(crate) truth: Machine,
}

impl World {
    pub(crate) fn stream(&self, stream: usize) -> &Stream {
        self.streams[stream].as_ref().expect("the stream is not dropped")
    }

    fn add_stream(&mut self, device: Device) {
        let stream = self.runtime.stream(device).unwrap();
        self.stream_ids.push((device, stream.id()));
        self.streams.push(Some(stream));
    }

    pub(crate) fn slice(&self, access: &Access) -> Buffer {
        let buffer = self.buffers[access.life].as_ref().expect("memory that is not freed");
        let [start, end] = [access.range.start, access.range.end].map(|it| it * self.unit_bytes);
        buffer.slice(start..end).unwrap()
    }

    fn host_wait(&self, waited_for: WaitedFor) {
        let waited = match waited_for {
            WaitedFor::Stream(stream) => self.stream(stream).synchronize(),
            WaitedFor::Event(event) => self.events[event].synchronize(),
            WaitedFor::Device(device) => self.runtime.synchronize(cpu(device)),
        };
        waited.unwrap();
    }

    fn allocate(&mut self, stream: usize, units: usize) -> Life {
        let stream = self.stream(stream);
        self.runtime.exchange_stream(stream).unwrap();
        let buffer = self.runtime.empty(units * self.unit_bytes, stream.device()).unwrap();
        self.buffers.push(Some(buffer));
        self.buffers.len() - 1
    }

    pub(crate) fn wait_for_everything(&self) {
        let devices = || self.stream_ids.iter().map(|(device, _)| *device);
        for device in devices().chain(devices()) {
            // A second time, because callables have enqueued more.
            self.runtime.synchronize(device).unwrap();
        }
    }
}

/// A program on a runtime.
pub(crate) struct Run<P> {
    pub(crate) world: World,
    pub(crate) probe: P,
}

impl<P: Probe> Run<P> {
    pub(crate) fn on(runtime: Runtime, shape: &Shape, unit_bytes: usize, probe: P) -> Self {
        let mut world = World {
            streams: Vec::new(),
            stream_ids: Vec::new(),
            events: (0..shape.events).map(|_| Event::new()).collect(),
            buffers: Vec::new(),
            unit_bytes,
            truth: shape.machine(),
            runtime,
        };
        (0..shape.streams).for_each(|stream| world.add_stream(cpu(stream % shape.devices)));
        Self { world, probe }
    }

    pub(crate) fn step(&mut self, action: &Action) {
        let Self { world, probe } = self;
        let action = probe.prepare(world, action);
        let node = program::apply(&mut world.truth, Actor::Host, &action);
        let node = node.unwrap_or(world.truth.num_nodes().saturating_sub(1)); // the host's access
        match &action {
            Action::Task(stream, accesses) => probe.task(world, *stream, accesses, node)(),
            Action::Copy(stream, accesses) => {
                let [source, target] = [0, 1].map(|side: usize| world.slice(&accesses[side]));
                target.copy_from(&source, world.stream(*stream)).unwrap();
                probe.copied(world, *stream, accesses, node);
            }
            Action::Callable(stream, actions) => self.callable(*stream, actions, node),
            Action::Record(event, stream) => {
                world.stream(*stream).record(&world.events[*event]).unwrap();
            }
            Action::WaitEvent(stream, event) => {
                world.stream(*stream).wait_event(&world.events[*event]).unwrap();
            }
            Action::WaitStream(stream, other) => {
                world.stream(*stream).wait_stream(world.stream(*other)).unwrap();
            }
            Action::HostWait(waited_for) => world.host_wait(*waited_for),
            Action::HostAccess(access) => probe.host_access(world, access, node),
            Action::Allocate(stream, units) => {
                world.allocate(*stream, *units);
                probe.allocated(world);
            }
            Action::Free(life) => drop(world.buffers[*life].take()),
            Action::ReplaceStream(stream) => {
                drop(world.streams[*stream].take());
                world.add_stream(world.stream_ids[*stream].0);
            }
        }
    }

    fn callable(&mut self, stream: usize, actions: &[Action], node: Node) {
        let Self { world, probe } = self;
        let task = |(place, action): (usize, &Action)| {
            let Action::Task(stream, accesses) = action else {
                panic!("a callable that does something else: {action:?}");
            };
            probe.task(world, *stream, accesses, node + 1 + place)
        };
        let inner: Vec<Body> = actions.iter().enumerate().map(task).collect();
        let body = probe.callable(Box::new(|| inner.into_iter().for_each(|it| it())), node);
        world.stream(stream).enqueue(body).unwrap();
    }
}

pub(crate) fn cpu(index: usize) -> Device {
    Device::cpu(u8::try_from(index).expect("a few devices"))
}
