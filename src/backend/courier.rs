//! A thread that carries resumed work for driver kinds, so that a completer never executes it.
//!
//! Driver kinds execute tasks on the enqueuing thread. Work that a completer resumes has no such
//! thread: the completer may be a worker of another kind or a callback of a driver that must not
//! call back. It is posted here instead.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::backend::contract::{Leftover, Turn, Work};
use crate::sync::unmodelled::AtomicBool;
use crate::sync::{LockRank, Mutex, Ordering};

/// Between two looks at a thread that ends.
const PERIOD: Duration = Duration::from_micros(100);

/// The thread, started at the first post.
#[derive(Debug)]
pub(crate) struct Courier {
    name: &'static str,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Unused,
    Running(Sender<Arc<dyn Work>>, Carrier),
    /// With the thread, if it was slow to end.
    Stopped(Option<Carrier>),
}

#[derive(Debug)]
struct Carrier {
    thread: JoinHandle<()>,
    /// It is inside of work. Relaxed: a figure that a shutdown reads.
    is_inside: Arc<AtomicBool>,
}

impl Carrier {
    fn start(name: &str, receiver: Receiver<Arc<dyn Work>>) -> Self {
        let is_inside = Arc::new(AtomicBool::new(false));
        let inside = Arc::clone(&is_inside);
        let carry = move || {
            for work in receiver {
                inside.store(true, Ordering::Relaxed); // relaxed: see the field
                work.run(&Turn::unshared());
                inside.store(false, Ordering::Relaxed);
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(carry);
        Self { thread: thread.expect("the system starts a thread"), is_inside }
    }

    /// The same thread as long as it is there; joined when it has ended.
    fn join_by(self, deadline: Instant) -> Option<Self> {
        let is_own = self.thread.thread().id() == std::thread::current().id();
        while !self.thread.is_finished() {
            if is_own || Instant::now() >= deadline {
                return Some(self);
            }
            std::thread::sleep(PERIOD);
        }
        // A panic there was caught where the task ran; the thread itself has nothing to say.
        let _ = self.thread.join();
        None
    }

    /// Inside of user code, of another thread than this one. A thread that is only slow to end is
    /// not.
    fn is_busy(&self) -> bool {
        let is_own = self.thread.thread().id() == std::thread::current().id();
        self.is_inside.load(Ordering::Relaxed) && !is_own // relaxed: see the field
    }
}

impl Courier {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, state: Mutex::new(LockRank::Backend, State::Unused) }
    }

    /// Has `work` executed by the courier's thread, in the order of posts. After a shutdown the
    /// work is dropped: the streams were cancelled before.
    pub(crate) fn post(&self, work: Arc<dyn Work>) {
        let mut state = self.state.lock();
        if let State::Unused = *state {
            let (sender, receiver) = mpsc::channel();
            *state = State::Running(sender, Carrier::start(self.name, receiver));
        }
        if let State::Running(sender, _) = &*state {
            // A send fails only when the thread is gone, which a shutdown alone brings about.
            let _ = sender.send(work);
        }
    }

    /// Ends the thread after what was posted; one that is still inside user code is left alone. The
    /// calling thread is neither waited for nor counted.
    pub(crate) fn shutdown(&self, deadline: Instant) -> Leftover {
        let carrier = match std::mem::replace(&mut *self.state.lock(), State::Stopped(None)) {
            State::Unused | State::Stopped(None) => return Leftover::default(),
            // Without a sender the thread ends.
            State::Running(_, carrier) | State::Stopped(Some(carrier)) => carrier,
        };
        let left = carrier.join_by(deadline);
        let busy_threads = usize::from(left.as_ref().is_some_and(Carrier::is_busy));
        if left.is_some() {
            *self.state.lock() = State::Stopped(left); // for a later shutdown
        }
        Leftover { busy_threads }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Work that says it is there, and keeps its thread until it is let go.
    struct Held(Sender<()>, std::sync::Mutex<Receiver<()>>);

    impl Work for Held {
        fn run(self: Arc<Self>, _turn: &Turn<'_>) {
            self.0.send(()).unwrap();
            let _ = self.1.lock().unwrap().recv();
        }
    }

    /// When nothing is waited for.
    fn now() -> Instant {
        Instant::now()
    }

    fn never() -> Instant {
        Instant::now() + Duration::from_secs(600)
    }

    #[test]
    fn a_thread_inside_of_work_is_busy_until_a_later_shutdown_finds_it_ended() {
        let courier = Courier::new("test");
        let ((enter, entered), (let_go, held)) = (mpsc::channel(), mpsc::channel());
        courier.post(Arc::new(Held(enter, held.into())));
        entered.recv().unwrap();
        assert_eq!(courier.shutdown(now()), Leftover { busy_threads: 1 });
        drop(let_go);
        assert_eq!(courier.shutdown(never()), Leftover::default());
        assert!(matches!(*courier.state.lock(), State::Stopped(None)));
    }

    #[test]
    fn a_thread_that_is_slow_to_end_is_not_busy_and_a_later_shutdown_waits_for_it() {
        let (let_go, held) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let _ = held.recv();
        });
        let courier = Courier::new("test");
        let carrier = Carrier { thread, is_inside: Arc::default() };
        *courier.state.lock() = State::Running(mpsc::channel().0, carrier);
        assert_eq!(courier.shutdown(now()), Leftover::default());
        assert!(matches!(*courier.state.lock(), State::Stopped(Some(_))));
        drop(let_go);
        assert_eq!(courier.shutdown(never()), Leftover::default());
        assert!(matches!(*courier.state.lock(), State::Stopped(None)));
    }
}
