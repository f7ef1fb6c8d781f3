//! What the system says about a thread: asleep or not, how much processor time, which signals.

use std::fs;
use std::time::Duration;

use accelrt::Runtime;

use crate::gate::Gate;
use crate::thread_id::ThreadId;

impl ThreadId {
    fn read(self, file: &str) -> String {
        let path = format!("/proc/self/task/{}/{file}", self.0);
        fs::read_to_string(path).unwrap_or_default()
    }

    /// A line of the thread's status, without its name.
    pub(crate) fn status(self, name: &str) -> String {
        let status = self.read("status");
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().trim().to_owned()
    }

    /// True when the thread has not run between two looks, and sleeps.
    fn is_asleep(self) -> bool {
        let look = || (self.status("State"), self.status("voluntary_ctxt_switches"));
        let before = look();
        before.0.starts_with('S') && look() == before
    }

    /// Waits until the thread sleeps.
    pub(crate) fn wait_until_asleep(self) {
        while !self.is_asleep() {
            std::thread::yield_now();
        }
    }

    /// True while the thread exists.
    pub(crate) fn is_alive(self) -> bool {
        !self.status("State").is_empty()
    }

    /// Processor time that the thread has used.
    pub(crate) fn cpu_time(self) -> Duration {
        let figures = self.read("schedstat");
        let nanoseconds = figures.split_whitespace().next().and_then(|number| number.parse().ok());
        Duration::from_nanos(nanoseconds.expect("the kernel counts threads' time"))
    }

    /// Checks that these threads use at most `limit` of processor time in half a second. What the
    /// machine does beside them lengthens one such time, not three in a row.
    pub(crate) fn assert_asleep(threads: &[Self], limit: Duration) {
        let read = || threads.iter().map(|thread| thread.cpu_time()).sum::<Duration>();
        let mut used = Vec::new();
        while used.len() < 3 {
            let before = read();
            std::thread::sleep(Duration::from_millis(500)); // the idle time that is measured
            used.push(read().saturating_sub(before));
            if used.last() <= Some(&limit) {
                return;
            }
        }
        panic!("{used:?} of half a second each, not {limit:?}");
    }
}

/// What a thread uses at most in half a second when it is idle: 0.2 %, for the odd stray wake.
pub(crate) const IDLE: Duration = Duration::from_millis(1);

/// Has every worker of a runtime with one device started, and waits until all sleep.
pub(crate) fn sleeping_workers(runtime: &Runtime, count: usize) -> Vec<ThreadId> {
    let streams: Vec<_> = (0..count).map(|_| runtime.stream(super::CPU).unwrap()).collect();
    let gates: Vec<_> = streams.iter().map(Gate::enqueue).collect();
    let mut threads: Vec<_> = gates.iter().map(Gate::wait_until_inside).collect();
    drop(gates);
    threads.sort();
    threads.dedup();
    assert_eq!(threads.len(), count, "each worker is inside one gate");
    for thread in &threads {
        thread.wait_until_asleep();
    }
    threads
}
