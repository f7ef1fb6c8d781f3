//! A runtime that follows a schedule, while no other test's does.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use accelrt::{Config, Device, Runtime, Stream};
use accelrt_testing::{Schedule, Scheduled};

static TURN: Mutex<()> = Mutex::new(());

/// Until the drop no other test follows a schedule.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In the order of the drops: the schedule ends before the runtime, and the turn behind both.
pub(crate) struct World {
    pub(crate) schedule: Scheduled,
    pub(crate) runtime: Runtime,
    pub(crate) streams: Vec<Stream>,
    told: Arc<Mutex<Vec<String>>>,
    _turn: MutexGuard<'static, ()>,
}

impl World {
    pub(crate) fn new(schedule: Schedule, num_streams: usize) -> Self {
        Self::with_config(schedule, num_streams, Config::default())
    }

    pub(crate) fn with_config(schedule: Schedule, num_streams: usize, config: Config) -> Self {
        let turn = turn();
        let runtime = Runtime::new(config).unwrap();
        let schedule = schedule.start(&runtime).unwrap();
        let stream = |_| runtime.stream(Device::cpu(0)).unwrap();
        let streams = (0..num_streams).map(stream).collect();
        Self { schedule, runtime, streams, told: Arc::default(), _turn: turn }
    }

    /// A task that tells its name.
    pub(crate) fn enqueue(&self, stream: usize, name: impl Into<String>) {
        let (told, name) = (Arc::clone(&self.told), name.into());
        self.streams[stream].enqueue(move || told.lock().unwrap().push(name)).unwrap();
    }

    /// What tasks told so far, in order.
    pub(crate) fn told(&self) -> Vec<String> {
        self.told.lock().unwrap().clone()
    }

    pub(crate) fn finish(&self) {
        self.streams.iter().for_each(|stream| stream.synchronize().unwrap());
    }
}
