//! Random programs: actions of the host and of callables, drawn from a seed alone.

use super::machine::{Access, Actor, Event, Life, Machine, Node, Stream, WaitedFor};
use crate::numbers::Numbers;

/// One action.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// A task that accesses memory, and does not wait for conflicting tasks.
    Task(Stream, Vec<Access>),
    /// A copy from the first access to the second, behind what conflicts.
    Copy(Stream, [Access; 2]),
    /// A task that acts itself.
    Callable(Stream, Vec<Action>),
    Record(Event, Stream),
    WaitEvent(Stream, Event),
    /// The first stream waits for what the second has been given.
    WaitStream(Stream, Stream),
    HostWait(WaitedFor),
    HostAccess(Access),
    /// Memory of so many units, whose free is behind the stream.
    Allocate(Stream, usize),
    Free(Life),
    /// Drops the handle of a stream, whose tasks go on, and adds a stream on the same device.
    ReplaceStream(Stream),
}

/// What programs are like.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) devices: usize,
    pub(crate) streams: usize,
    pub(crate) events: usize,
    pub(crate) actions: usize,
    /// The longest allocation.
    pub(crate) units: usize,
    pub(crate) has_copies: bool,
    /// How many accesses in a hundred are first ordered behind what they conflict with, by waits.
    /// With 100, and without bare addresses, a program has no finding.
    pub(crate) care_percent: usize,
    /// How many tasks' accesses in a hundred are of a bare address, freed or not.
    pub(crate) bare_percent: usize,
}

impl Shape {
    pub(crate) fn draw(numbers: &mut Numbers, care_percent: usize) -> Self {
        let devices = 1 + numbers.below(3);
        Self {
            devices,
            streams: devices * (1 + numbers.below(3)),
            events: devices * (1 + numbers.below(2)),
            actions: 10 + numbers.below(70),
            units: 1 + numbers.below(16),
            has_copies: true,
            care_percent,
            bare_percent: 0,
        }
    }

    pub(crate) fn machine(&self) -> Machine {
        Machine::new((0..self.streams).map(|stream| stream % self.devices), self.events)
    }
}

/// What a callable has until the host has waited for it.
#[derive(Debug)]
struct Loan {
    callable: Node,
    callable_stream: Stream,
    stream: Stream,
    life: Option<Life>,
}

/// A program that is being drawn, and its truth so far.
#[derive(Debug)]
pub(crate) struct Draft {
    shape: Shape,
    numbers: Numbers,
    pub(crate) machine: Machine,
    pub(crate) actions: Vec<Action>,
    loans: Vec<Loan>,
}

/// The program of a seed, with what it promises and what is wrong with it.
pub(crate) fn draw(shape: Shape, numbers: Numbers) -> Draft {
    let (machine, actions, loans) = (shape.machine(), Vec::new(), Vec::new());
    let mut draft = Draft { shape, numbers, machine, actions, loans };
    while draft.actions.len() < draft.shape.actions {
        draft.draw_action();
    }
    draft
}

/// Extends the machine by one action. The node of the task that it enqueues, if it does.
pub(crate) fn apply(machine: &mut Machine, actor: Actor, action: &Action) -> Option<Node> {
    match action {
        Action::Task(stream, accesses) => {
            return Some(machine.task(actor, *stream, accesses, false));
        }
        Action::Copy(stream, accesses) => {
            return Some(machine.task(actor, *stream, accesses, true));
        }
        Action::Callable(stream, actions) => {
            let node = machine.task(actor, *stream, &[], false);
            for inner in actions {
                apply(machine, Actor::Callable(node), inner);
            }
            return Some(node);
        }
        Action::Record(event, stream) => machine.record(actor, *event, *stream),
        Action::WaitEvent(stream, event) => machine.wait_event(*stream, *event),
        Action::WaitStream(stream, other) => machine.wait_stream(*stream, *other),
        Action::HostWait(waited_for) => machine.host_wait(*waited_for),
        Action::HostAccess(access) => drop(machine.host_access(access)),
        Action::Allocate(stream, units) => drop(machine.allocate(*stream, *units)),
        Action::Free(life) => machine.free(*life),
        Action::ReplaceStream(stream) => drop(machine.replace_stream(*stream)),
    }
    None
}

impl Draft {
    fn perform(&mut self, action: Action) -> Option<Node> {
        let node = apply(&mut self.machine, Actor::Host, &action);
        self.actions.push(action);
        let machine = &self.machine;
        self.loans.retain(|loan| !machine.is_done(loan.callable));
        node
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.numbers.below(100) < percent
    }

    /// A stream that is neither lent nor dropped.
    fn stream(&mut self) -> Stream {
        loop {
            let stream = self.numbers.below(self.machine.num_streams());
            let is_lent = self.loans.iter().any(|loan| loan.stream == stream);
            if !is_lent && !self.machine.is_dropped(stream) {
                return stream;
            }
        }
    }

    /// Memory that is not lent; with `is_freed` also some that is freed.
    fn life(&mut self, is_freed: bool) -> Option<Life> {
        let is_lent = |life| self.loans.iter().any(|loan| loan.life == Some(life));
        let lives = self.machine.lives.iter().enumerate();
        let chosen = lives.filter(|(life, it)| (is_freed || !it.is_freed) && !is_lent(*life));
        let lives: Vec<Life> = chosen.map(|(life, _)| life).collect();
        (!lives.is_empty()).then(|| lives[self.numbers.below(lives.len())])
    }

    /// An access of some units. With care, what was never written is first written.
    fn access(&mut self, life: Life, writes: bool) -> Access {
        let units = self.machine.lives[life].units;
        let (a, b) = (self.numbers.below(units), self.numbers.below(units));
        let mut access = Access { life, range: a.min(b)..a.max(b) + 1, writes, is_recorded: true };
        let is_careful = self.chance(self.shape.care_percent);
        access.writes |= is_careful && !self.machine.is_initialized(&access);
        access
    }

    /// An access that waits order behind its conflicts, with some chance.
    fn ordered_access(&mut self, stream: Option<Stream>, is_bare: bool) -> Option<Access> {
        let life = self.life(is_bare)?;
        let writes = self.chance(50);
        let access = Access { is_recorded: !is_bare, ..self.access(life, writes) };
        if self.chance(self.shape.care_percent) {
            while let Some(other) = self.machine.loose(stream, &access).and_then(|it| it.stream) {
                self.order(stream, other);
            }
        }
        Some(access)
    }

    /// Orders a stream or the host behind another stream.
    fn order(&mut self, stream: Option<Stream>, other: Stream) {
        let device = self.machine.device(other);
        let is_dropped = self.machine.is_dropped(other);
        let blocks = |loan: &&Loan| {
            loan.stream == other || is_dropped && self.machine.device(loan.stream) == device
        };
        let loan = self.loans.iter().find(blocks);
        let wait = match (loan, stream, self.numbers.below(4)) {
            (Some(loan), ..) => Action::HostWait(WaitedFor::Stream(loan.callable_stream)),
            _ if is_dropped => Action::HostWait(WaitedFor::Device(device)),
            (None, Some(stream), 0..3) if stream != other => Action::WaitStream(stream, other),
            _ => Action::HostWait(WaitedFor::Stream(other)),
        };
        self.perform(wait);
    }

    fn draw_action(&mut self) {
        let (stream, other) = (self.stream(), self.stream());
        let event = self.numbers.below(self.shape.events);
        // An event's records are on one device.
        let recorded = event - event % self.shape.devices + self.machine.device(stream);
        let action = match self.numbers.below(100) {
            0..30 => Some(self.draw_task(stream)),
            30..42 => self.draw_copy(stream),
            42..47 => return self.draw_callable(stream),
            47..55 => Some(Action::Record(recorded, stream)),
            55..62 => self.draw_wait(stream, event),
            62..66 => Some(Action::WaitStream(stream, other)),
            66..68 => Some(Action::HostWait(WaitedFor::Stream(stream))),
            68..70 => Some(Action::HostWait(WaitedFor::Event(event))),
            70..71 => self.draw_device_wait(),
            71..77 => self.ordered_access(None, false).map(Action::HostAccess),
            77..88 => Some(Action::Allocate(stream, 1 + self.numbers.below(self.shape.units))),
            88..90 => self.draw_replaced_stream(stream),
            _ => self.draw_free(),
        };
        action.and_then(|action| self.perform(action));
    }

    fn draw_task(&mut self, stream: Stream) -> Action {
        let mut accesses = Vec::new();
        for _ in 0..self.numbers.below(4) {
            let is_bare = self.chance(self.shape.bare_percent);
            accesses.extend(self.ordered_access(Some(stream), is_bare));
        }
        Action::Task(stream, accesses)
    }

    fn draw_copy(&mut self, stream: Stream) -> Option<Action> {
        let (source, target) = (self.life(false)?, self.life(false)?);
        let mut accesses = [self.access(source, false), self.access(target, true)];
        let devices = [source, target].map(|it| self.machine.device(self.machine.lives[it].home));
        let is_reached = devices.contains(&self.machine.device(stream));
        let units = accesses.iter().map(|access| access.range.len()).min()?;
        for access in &mut accesses {
            access.range.end = access.range.start + units;
        }
        let is_possible = source != target && !accesses[0].writes && is_reached;
        (is_possible && self.shape.has_copies).then_some(Action::Copy(stream, accesses))
    }

    fn draw_wait(&mut self, stream: Stream, event: Event) -> Option<Action> {
        let is_fine = self.machine.is_recorded(event) || !self.chance(self.shape.care_percent);
        is_fine.then_some(Action::WaitEvent(stream, event))
    }

    /// A free is behind its home stream, which no callable has.
    fn draw_free(&mut self) -> Option<Action> {
        let life = self.life(false)?;
        let home = self.machine.lives[life].home;
        let is_exact = !self.loans.iter().any(|loan| loan.stream == home);
        is_exact.then_some(Action::Free(life))
    }

    /// The host waits for a callable by its stream.
    fn draw_replaced_stream(&mut self, stream: Stream) -> Option<Action> {
        let is_needed = self.loans.iter().any(|loan| loan.callable_stream == stream);
        (!is_needed).then_some(Action::ReplaceStream(stream))
    }

    /// What a callable enqueues after the wait began is not waited for.
    fn draw_device_wait(&mut self) -> Option<Action> {
        let device = self.numbers.below(self.shape.devices);
        let is_on_it = |loan: &Loan| self.machine.device(loan.stream) == device;
        let is_exact = !self.loans.iter().any(is_on_it);
        is_exact.then_some(Action::HostWait(WaitedFor::Device(device)))
    }

    /// A callable with a stream of its own, and memory whose accesses are all before it.
    fn draw_callable(&mut self, stream: Stream) {
        let lent = self.stream();
        let is_needed = self.loans.iter().any(|loan| loan.callable_stream == lent);
        if lent == stream || is_needed || self.loans.len() + 3 > self.shape.streams {
            return;
        }
        let life = self.life(false).filter(|life| self.machine.is_behind_all(stream, *life));
        let tasks = (0..=self.numbers.below(3)).map(|_| {
            let access = life.map(|life| self.access(life, true));
            Action::Task(lent, access.into_iter().collect())
        });
        let tasks = tasks.collect();
        let callable = self.perform(Action::Callable(stream, tasks)).expect("a task");
        self.loans.push(Loan { callable, callable_stream: stream, stream: lent, life });
    }
}
