//! Support: more of numbers, what the environment asks for, and a watchdog that names a hang.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::numbers::Numbers;

/// How often the watchdog looks.
const LOOK: Duration = Duration::from_secs(1);

/// A hang is what makes no progress for so many looks: a clock would go on while the process is
/// stopped.
const PATIENCE_LOOKS: u32 = 60;

impl Numbers {
    /// One of `least..=most`.
    pub(crate) fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most - least + 1)
    }

    /// True `percent` times in a hundred.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// A number that the environment may ask for.
pub(crate) fn asked(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable}={value} is no number")))
}

/// Aborts the process when nothing goes on, saying what was being done. It decides no test: without
/// it a hang would only be silent.
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    doing: Mutex<String>,
    steps: AtomicU64,
    is_over: AtomicBool,
}

impl Watchdog {
    pub(crate) fn new(doing: &str) -> Self {
        let shared = Arc::new(Shared {
            doing: Mutex::new(doing.to_owned()),
            steps: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let watched = Arc::clone(&shared);
        Self { shared, thread: Some(std::thread::spawn(move || watch(&watched))) }
    }

    /// Something else is being done now.
    pub(crate) fn step(&self, doing: impl Into<String>) {
        *self.shared.doing.lock().unwrap() = doing.into();
        self.shared.steps.fetch_add(1, Ordering::Relaxed);
    }
}

fn watch(shared: &Shared) {
    let (mut seen, mut looks) = (0, 0);
    while !shared.is_over.load(Ordering::Relaxed) {
        std::thread::park_timeout(LOOK);
        let steps = shared.steps.load(Ordering::Relaxed);
        looks = if steps == seen { looks + 1 } else { 0 };
        seen = steps;
        if looks > PATIENCE_LOOKS {
            let doing = shared.doing.lock().unwrap();
            let _ = writeln!(std::io::stderr(), "no progress for {looks} s: {doing}");
            #[expect(clippy::disallowed_methods, reason = "a watchdog ends a test that hangs")]
            std::process::abort();
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
