//! One machine under test: a runtime over a backend that fails as planned, and its neighbour.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use accelrt::backend::contract::{Backend, Turn, Work};
use accelrt::backend::cpu::CpuBackend;
use accelrt::{Completion as Finish, Config, Device, DeviceKind, Error, Event, Result};
use accelrt::{Runtime, ShutdownReport, Stream};
use accelrt_testing::fault::{FaultBackend, FaultError, Method};
use accelrt_testing::null::{CompletionMode, NullBackend, NullConfig};

use crate::ledger::{Ledger, TaskId};
use crate::scenarios::Scenario;
use accelrt_testing::trusted::Trusted;

/// Capacity of each device: so little that a scenario runs out of it.
pub(crate) const CAPACITY_BYTES: usize = 64 << 20;

/// What the machine is made of.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) accelerator: DeviceKind,
    /// The device would go on after a loss, in memory that is given back because a lost device
    /// executes nothing.
    pub(crate) is_real: bool,
    pub(crate) make: fn(&Config) -> Made,
}

/// A backend, and the same again if it is of the null kind.
pub(crate) type Made = (Arc<dyn Backend>, Option<Arc<NullBackend>>);

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Kind {
    /// Three cpu devices.
    pub(crate) const CPU: Self = Self {
        name: "cpu",
        accelerator: DeviceKind::CPU,
        is_real: false,
        make: |config| (CpuBackend::new(config).expect("a cpu kind is made"), None),
    };

    /// Two devices of a driver that completes its work at once.
    pub(crate) const NULL_AT_ONCE: Self = Self {
        name: "null at once",
        accelerator: DeviceKind::NULL,
        is_real: false,
        make: |_| null(CompletionMode::AtOnce),
    };

    /// Two devices of a driver that completes its work when it was asked a few times.
    pub(crate) const NULL_WHEN_ASKED: Self = Self {
        name: "null when asked",
        make: |_| null(CompletionMode::WhenAsked { polls: 2 }),
        ..Self::NULL_AT_ONCE
    };

    /// False for the loss of a real device.
    pub(crate) fn may_meet(self, error: FaultError) -> bool {
        !self.is_real || error != FaultError::DeviceLost
    }
}

fn null(completion: CompletionMode) -> Made {
    let null = NullBackend::new(NullConfig {
        completion,
        device_count: 2,
        capacity_bytes: CAPACITY_BYTES,
        ..NullConfig::default()
    });
    (Arc::<NullBackend>::clone(&null), Some(null))
}

/// A backend behind a fault layer, which counts what is out.
pub(crate) struct Machine {
    pub(crate) backend: Arc<FaultBackend>,
    pub(crate) null: Option<Arc<NullBackend>>,
    free_bytes: Vec<usize>,
    /// Programs that a driver which compiles only some refused on its own, which is no fault.
    pub(crate) refused_programs: AtomicU64,
}

/// The world of one run.
pub(crate) struct World {
    pub(crate) runtime: Runtime,
    /// Of the same kind, with a backend of its own that never fails.
    pub(crate) neighbour: Runtime,
    pub(crate) machines: [Machine; 2],
    pub(crate) devices: Vec<Device>,
    pub(crate) ledger: Ledger,
    errors: Mutex<Vec<Error>>,
    /// Copies and fills, which have no entry in the ledger, and held tasks, whose entry is from
    /// their start.
    unlisted: Mutex<usize>,
    reports: Mutex<Vec<ShutdownReport>>,
}

impl Machine {
    fn new(kind: Kind) -> Self {
        let (inner, null) = (kind.make)(&config(kind));
        let count = inner.device_count().expect("nothing fails yet");
        let free = |index| inner.memory_info(index).expect("nothing fails yet").free_bytes;
        let free_bytes = (0..count).map(free).collect();
        let refused_programs = AtomicU64::new(0);
        Self { backend: FaultBackend::new(inner), null, free_bytes, refused_programs }
    }

    /// Waits until the threads that carry callbacks and resumed work are done with what was posted
    /// before: what they were the last to hold is given back then.
    pub(crate) fn settle(&self) {
        let inner = Trusted(Arc::clone(self.backend.inner()));
        if inner.runs_on_host() {
            return;
        }
        let stream = inner.stream_create(0, 0).expect("the backend inside never fails");
        let mark = inner.mark(stream, false).expect("as above");
        let (tell, told) = mpsc::channel();
        let called = tell.clone();
        let callback = Box::new(move || called.send(()).expect("somebody listens"));
        inner.when_done(mark, callback).expect("as above");
        inner.stream_synchronize(stream).expect("as above");
        told.recv().expect("a callback comes");
        inner.resume(stream, Arc::new(Told(tell)));
        told.recv().expect("resumed work runs");
        inner.mark_release(mark).expect("as above");
        inner.stream_destroy(stream).expect("as above");
    }

    /// Bytes that are out on some device.
    pub(crate) fn taken_bytes(&self) -> usize {
        let free = |index| self.backend.inner().memory_info(index).expect("it exists").free_bytes;
        self.free_bytes.iter().enumerate().map(|(index, before)| before - free(index)).sum()
    }

    /// What was taken and not given back, by the calls that arrived; empty when all is back.
    pub(crate) fn still_out(&self) -> Vec<String> {
        // Relaxed, here and below: counted by the thread that reads.
        let taken = |method| {
            let taken = self.backend.calls(method) - self.backend.failures(method);
            let is_compile = method == Method::KernelsCompile;
            taken - if is_compile { self.refused_programs.load(Ordering::Relaxed) } else { 0 }
        };
        // Only a kind with native handles has streams to wrap; cpu refuses.
        let wraps = usize::from(!self.backend.runs_on_host());
        let streams = [Method::StreamCreate, Method::StreamWrap];
        // Device memory and pages are counted in bytes: a device that is full refuses on its own.
        let pairs: [(&[Method], Method); 6] = [
            (&streams[..=wraps], Method::StreamDestroy),
            (&[Method::Mark], Method::MarkRelease),
            (&[Method::AllocateHost], Method::ReleaseHost),
            (&[Method::VmReserve], Method::VmUnreserve),
            (&[Method::KernelsCompile], Method::KernelsProgramRelease),
            (&[Method::KernelsKernel], Method::KernelsKernelRelease),
        ];
        let mut found = Vec::new();
        for (takes, gives) in pairs {
            let taken: u64 = takes.iter().map(|method| taken(*method)).sum();
            // A planned refusal to take something back is reported after it was taken.
            let given = self.backend.calls(gives);
            if taken != given {
                found.push(format!("{gives} was called {given} times for {taken} takings"));
            }
        }
        found
    }
}

/// Work that says that it ran.
struct Told(Sender<()>);

impl Work for Told {
    fn run(self: Arc<Self>, _turn: &Turn<'_>) {
        self.0.send(()).expect("somebody listens");
    }
}

fn config(kind: Kind) -> Config {
    Config::builder()
        .xpu_memory_bytes(CAPACITY_BYTES)
        .accelerator(kind.accelerator)
        .cpu_devices(3)
        .cpu_threads(1)
        .cpu_memory_bytes(CAPACITY_BYTES)
        .opencl_library(std::env::var("ACCELRT_OPENCL_LIBRARY").ok())
        .build()
        .unwrap()
}

impl World {
    /// For a scenario, which says how it ends and how allocators are set.
    pub(crate) fn new(kind: Kind, scenario: &Scenario) -> Self {
        let machines = [Machine::new(kind), Machine::new(kind)];
        let [runtime, neighbour] = [0, 1].map(|index| {
            let backend: Arc<dyn Backend> = Arc::<FaultBackend>::clone(&machines[index].backend);
            let config = config(kind)
                .into_builder()
                .exit_timeout(scenario.exit_timeout)
                .allocator_settings(scenario.settings)
                .build()
                .unwrap();
            Runtime::with_backends(config, [backend]).expect("the settings are right")
        });
        let backend = machines[0].backend.inner();
        let count = backend.device_count().expect("nothing fails yet");
        let device = |index| Device::new(backend.kind(), index).expect("an index below 128");
        let devices = (0..count).map(device).collect();
        Self {
            runtime,
            neighbour,
            machines,
            devices,
            ledger: Ledger::default(),
            errors: Mutex::default(),
            unlisted: Mutex::default(),
            reports: Mutex::default(),
        }
    }

    pub(crate) fn backend(&self) -> &Arc<FaultBackend> {
        &self.machines[0].backend
    }

    pub(crate) fn runs_on_host(&self) -> bool {
        self.backend().runs_on_host()
    }

    /// True where a copy moves bytes.
    pub(crate) fn has_bytes(&self) -> bool {
        self.machines[0].null.is_none()
    }

    /// Notes how a call ended; its value, if it has one.
    pub(crate) fn note<T>(&self, outcome: Result<T>) -> Option<T> {
        outcome.map_err(|error| locked(&self.errors).push(error)).ok()
    }

    /// Every error so far; forgets them.
    pub(crate) fn take_errors(&self) -> Vec<Error> {
        std::mem::take(&mut *locked(&self.errors))
    }

    /// Notes how a copy or fill ended that may have been enqueued.
    pub(crate) fn transfer<T>(&self, outcome: Result<T>) -> Option<T> {
        *locked(&self.unlisted) += 1;
        self.note(outcome)
    }

    /// At most so many tasks are not run without that showing in the ledger.
    pub(crate) fn unlisted(&self) -> usize {
        *locked(&self.unlisted)
    }

    /// Ends both runtimes; they report once.
    pub(crate) fn shut_down(&self) {
        let reports = [&self.runtime, &self.neighbour].map(Runtime::shutdown);
        locked(&self.reports).extend(reports);
    }

    /// What the runtimes reported at their ends.
    pub(crate) fn reports(&self) -> Vec<ShutdownReport> {
        locked(&self.reports).clone()
    }

    /// A stream that nobody else has.
    pub(crate) fn stream(&self, device: Device) -> Option<Stream> {
        self.note(self.runtime.stream(device))
    }

    /// So many streams of a device; fewer when some are refused.
    pub(crate) fn streams(&self, device: Device, count: usize) -> Vec<Stream> {
        (0..count).filter_map(|_| self.stream(device)).collect()
    }

    /// Enqueues a task, on kinds without functions of the host one that is finished at once.
    pub(crate) fn task(&self, stream: &Stream) -> Option<TaskId> {
        self.task_of(stream, 0)
    }

    /// As [`World::task`], by the `thread`-th thread.
    pub(crate) fn task_of(&self, stream: &Stream, thread: usize) -> Option<TaskId> {
        let token = self.ledger.task(stream, thread);
        let id = token.id();
        let outcome = if self.runs_on_host() {
            stream.enqueue(move || token.run())
        } else {
            let start = move |completion: Finish| {
                token.run();
                completion.finish(Ok(()));
            };
            stream.enqueue_deferred(start).map(drop)
        };
        self.taken(id, outcome)
    }

    /// Enqueues a task that holds its stream until it is let go.
    pub(crate) fn hold(&self, stream: &Stream) -> Held {
        let token = self.ledger.task(stream, 0);
        let id = token.id();
        *locked(&self.unlisted) += 1;
        let (tell, told) = mpsc::channel();
        let outcome = stream.enqueue_deferred(move |completion| {
            token.run();
            // Nobody listens any more after a shutdown.
            let _ = tell.send(completion);
        });
        Held { id: self.taken(id, outcome.map(drop)), told }
    }

    fn taken(&self, id: TaskId, outcome: Result<()>) -> Option<TaskId> {
        let taken = self.note(outcome);
        if taken.is_none() {
            self.ledger.refuse(id);
        }
        taken.map(|()| id)
    }

    /// Waits for an event and asks it; what it says is noted.
    pub(crate) fn see(&self, event: &Event) {
        let _ = event.is_done();
        self.note(event.synchronize());
    }

    /// Has the allocators of both runtimes give back what they keep.
    pub(crate) fn empty_caches(&self) {
        for runtime in [&self.runtime, &self.neighbour] {
            for device in &self.devices {
                let pinned = runtime.pinned_allocator(*device);
                for allocator in
                    [runtime.allocator(*device), runtime.shared_allocator(*device), pinned]
                {
                    let Ok(allocator) = allocator else { continue }; // after a shutdown
                    allocator.empty_cache();
                    allocator.check_all();
                }
            }
        }
    }

    /// Waits for every device of both runtimes.
    pub(crate) fn synchronize(&self) {
        for device in &self.devices {
            self.note(self.runtime.synchronize(*device));
            self.note(self.neighbour.synchronize(*device));
        }
    }
}

/// A panic elsewhere is reported as what it is, not as a poisoned lock.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A task that holds its stream.
pub(crate) struct Held {
    pub(crate) id: Option<TaskId>,
    told: Receiver<Finish>,
}

impl Held {
    /// Lets the stream go on, as soon as the task has started; at once when it was dropped unrun.
    pub(crate) fn let_go(self) {
        if let Ok(completion) = self.told.recv() {
            completion.finish(Ok(()));
        }
    }
}
