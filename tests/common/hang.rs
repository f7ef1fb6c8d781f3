//! A watchdog that names a hang, for tests that go on step by step.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the watchdog looks.
const LOOK: Duration = Duration::from_secs(1);

/// A hang is what makes no progress for so many looks: a clock would go on while the process is
/// stopped.
const PATIENCE_LOOKS: u32 = 60;

/// Aborts the process when nothing goes on, saying what was being done. It decides no test: without
/// it a hang would only be silent.
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// The thread that watches itself has the test's name.
    test: Option<String>,
    doing: Mutex<String>,
    steps: AtomicU64,
    is_over: AtomicBool,
}

impl Watchdog {
    /// Watches what is being done, until this is dropped.
    pub(crate) fn new(doing: &str) -> Self {
        let shared = Arc::new(Shared {
            test: std::thread::current().name().map(str::to_owned),
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
            let test = shared.test.as_deref().unwrap_or("a test");
            let _ = writeln!(std::io::stderr(), "{test} hangs, no progress for {looks} s: {doing}");
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
