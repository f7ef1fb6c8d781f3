//! Random programs: what each host thread does, drawn from a seed alone.

use accelrt::DeviceKind;
use accelrt_testing::null::CompletionMode;

use crate::numbers::Numbers;

/// On what a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Cpu,
    /// A driver without functions of the host. `completion` is that of the null kind, whose memory
    /// is numbers; without it, the first device of the kind on this machine.
    Driver {
        kind: DeviceKind,
        completion: Option<CompletionMode>,
    },
}

impl Target {
    /// True for a device of this machine that no test controls.
    fn is_real(self) -> bool {
        matches!(self, Self::Driver { completion: None, .. })
    }
}

/// Everything about a program but its operations.
#[derive(Clone, Debug)]
pub(crate) struct Parameters {
    pub(crate) seed: u64,
    pub(crate) target: Target,
    pub(crate) devices: usize,
    pub(crate) workers: usize,
    pub(crate) stream_task_limit: u64,
    pub(crate) hosts: usize,
    /// Places for streams; place `n` is always on device `n % devices`.
    pub(crate) slots: usize,
    /// Event `n` is only recorded on device `n % devices`.
    pub(crate) events: usize,
    /// Tasks may fail.
    pub(crate) has_failures: bool,
}

impl Parameters {
    /// One thread that decides everything: what is skipped and raised can be predicted.
    pub(crate) fn is_predictable(&self) -> bool {
        self.hosts == 1
    }

    /// True where a device goes on when it is asked, not with time.
    pub(crate) fn counts_polls(&self) -> bool {
        !self.target.is_real()
    }
}

/// One operation of a host thread. Numbers are slots, events and devices.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Task {
        slot: usize,
        fails: bool,
        is_large: bool,
        spins: usize,
    },
    Burst {
        slot: usize,
        count: usize,
    },
    /// A task that enqueues another one.
    Spawn {
        slot: usize,
        onto: usize,
    },
    /// A task that waits, on its worker, for what another stream has queued now.
    BlockingTask {
        slot: usize,
        on: usize,
    },
    Record {
        event: usize,
        slot: usize,
    },
    Wait {
        event: usize,
        slot: usize,
    },
    /// A wait that races with records of other threads.
    RacyWait {
        event: usize,
        slot: usize,
    },
    WaitStream {
        slot: usize,
        other: usize,
    },
    AskOrdered {
        event: usize,
        slot: usize,
    },
    QueryEvent {
        event: usize,
    },
    QueryStream {
        slot: usize,
    },
    SynchronizeStream {
        slot: usize,
    },
    SynchronizeEvent {
        event: usize,
    },
    SynchronizeDevice {
        device: usize,
    },
    /// The slot's stream is dropped, whatever it has queued; a dedicated one takes its place.
    ReplaceStream {
        slot: usize,
        priority: i32,
    },
}

/// What every host thread does.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) parameters: Parameters,
    pub(crate) hosts: Vec<Vec<Op>>,
}

impl Program {
    pub(crate) fn on_cpu(seed: u64) -> Self {
        let numbers = &mut Numbers::new(seed);
        Self::draw(seed, Target::Cpu, numbers)
    }

    pub(crate) fn on_null(seed: u64) -> Self {
        let numbers = &mut Numbers::new(seed);
        let completion = match numbers.below(4) {
            0 => CompletionMode::AtOnce,
            polls => CompletionMode::WhenAsked {
                polls: u32::try_from(polls - 1).expect("a small number"),
            },
        };
        let target = Target::Driver { kind: DeviceKind::NULL, completion: Some(completion) };
        Self::draw(seed, target, numbers)
    }

    pub(crate) fn draw(seed: u64, target: Target, numbers: &mut Numbers) -> Self {
        let most = if target.is_real() { 1 } else { 3 };
        let devices = numbers.between(1, most);
        let parameters = Parameters {
            seed,
            target,
            devices,
            workers: numbers.between(1, 3),
            stream_task_limit: if numbers.chance(30) { 64 } else { 1_000_000 },
            hosts: numbers.between(1, 4),
            slots: devices * numbers.between(1, 3) + numbers.below(2),
            events: devices * numbers.between(1, 2),
            has_failures: target == Target::Cpu && numbers.chance(40),
        };
        let ops = numbers.between(10, 60);
        let host = |_| (0..ops).map(|_| Op::draw(&parameters, numbers)).collect();
        let hosts = (0..parameters.hosts).map(host).collect();
        Self { parameters, hosts }
    }

    /// The same program with at most `ops` operations a thread.
    pub(crate) fn prefix(&self, ops: usize) -> Self {
        let hosts = self.hosts.iter().map(|host| host[..ops.min(host.len())].to_vec()).collect();
        Self { parameters: self.parameters.clone(), hosts }
    }

    /// Operations of the busiest thread.
    pub(crate) fn len(&self) -> usize {
        self.hosts.iter().map(Vec::len).max().unwrap_or(0)
    }
}

impl Op {
    fn draw(parameters: &Parameters, numbers: &mut Numbers) -> Self {
        let slot = numbers.below(parameters.slots);
        let event = numbers.below(parameters.events);
        // An event's records are on one device; slots below `devices` have one each.
        let recorded_on = event % parameters.devices;
        let other = numbers.below(parameters.slots);
        match numbers.below(100) {
            draw @ 0..40 if parameters.target == Target::Cpu => {
                Self::draw_task(draw, slot, other, parameters, numbers)
            }
            0..56 => {
                let on_device = numbers.below(parameters.slots);
                let is_right = on_device % parameters.devices == recorded_on;
                Self::Record { event, slot: if is_right { on_device } else { recorded_on } }
            }
            56..68 => Self::Wait { event, slot },
            68..71 => Self::RacyWait { event, slot },
            71..76 => Self::WaitStream { slot, other },
            76..85 => Self::AskOrdered { event, slot },
            85..88 => Self::QueryEvent { event },
            88..90 => Self::QueryStream { slot },
            90..93 => Self::SynchronizeStream { slot },
            93..95 => Self::SynchronizeEvent { event },
            95..96 => Self::SynchronizeDevice { device: numbers.below(parameters.devices) },
            _ => Self::ReplaceStream { slot, priority: [-1, 0, 1][numbers.below(3)] },
        }
    }

    fn draw_task(
        draw: usize,
        slot: usize,
        other: usize,
        parameters: &Parameters,
        numbers: &mut Numbers,
    ) -> Self {
        // A throttled producer holds its slot, which a task that enqueues would wait for.
        let may_spawn = parameters.stream_task_limit > 64 && !parameters.has_failures;
        match draw {
            0..2 => Self::Burst { slot, count: numbers.between(20, 150) },
            2..6 if may_spawn => Self::Spawn { slot, onto: other },
            6..10 if slot != other => Self::BlockingTask { slot, on: other },
            _ => Self::Task {
                slot,
                fails: parameters.has_failures && numbers.chance(15),
                is_large: numbers.chance(20),
                spins: numbers.below(300),
            },
        }
    }
}
