//! What backends of drivers share: threads for resumed work, and types of kernel arguments.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::backend::contract::{Leftover, ParameterClass, Turn, Work};
use crate::base::device::DeviceKind;
use crate::base::error::Error;
use crate::base::sync::unmodelled::AtomicBool;
use crate::base::sync::{LockRank, Mutex, Ordering, Sleeper};
use crate::base::thread::{BlockingHook, set_hook, with_signals_blocked};

/// Polling period of a join.
const PERIOD: Duration = Duration::from_micros(100);

/// The resume threads of one backend. The first post starts one.
#[derive(Debug)]
pub struct ResumeThreads {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    kind: DeviceKind,
    name: &'static str,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    posted: VecDeque<Arc<dyn Work>>,
    threads: Vec<ResumeThread>,
    /// Threads that search for work, execute or sleep.
    count: usize,
    /// The counted threads that block inside work.
    blocked: usize,
    asleep: Option<Arc<Sleeper>>,
    is_stopped: bool,
}

#[derive(Debug)]
struct ResumeThread {
    thread: JoinHandle<()>,
    /// True while the thread is inside work. Relaxed: a statistic for `shutdown`.
    is_inside: Arc<AtomicBool>,
}

impl ResumeThread {
    /// Waits for the thread's end and joins it. Returns the thread when the deadline passes first,
    /// or when it is the calling thread.
    fn join_by(self, deadline: Instant) -> Option<Self> {
        let is_own = self.thread.thread().id() == std::thread::current().id();
        while !self.thread.is_finished() {
            if is_own || Instant::now() >= deadline {
                return Some(self);
            }
            std::thread::sleep(PERIOD);
        }
        // The result is ignored: work never panics, since the engine catches users' panics.
        let _ = self.thread.join();
        None
    }

    /// True when the thread is inside work and is not the calling thread.
    fn is_busy(&self) -> bool {
        let is_own = self.thread.thread().id() == std::thread::current().id();
        self.is_inside.load(Ordering::Relaxed) && !is_own // relaxed: see the field
    }
}

impl ResumeThreads {
    /// Creates no thread yet; `name` will be that of each. Errors name `kind`.
    #[must_use]
    pub fn new(kind: DeviceKind, name: &'static str) -> Self {
        let state = Mutex::new(LockRank::Backend, State::default());
        Self { shared: Arc::new(Shared { kind, name, state }) }
    }

    /// Posts `work`. The threads take work in the order of posting. After a shutdown, drops the
    /// work, because its stream is already cancelled. Refuses all posted work when every thread is
    /// blocked and the system starts no other.
    pub fn post(&self, work: Arc<dyn Work>) {
        let mut state = self.shared.state.lock();
        if state.is_stopped {
            drop(state); // before the drop of `work`, which may end a stream
            return;
        }
        state.posted.push_back(work);
        let refused = self.shared.ensure_thread(&mut state);
        drop(state);
        self.shared.refuse(refused);
    }

    /// Ensures that a thread exists for later posts. Fails when the system refuses to start one.
    pub fn prepare(&self) -> Result<(), Error> {
        let mut state = self.shared.state.lock();
        if state.count > 0 || state.is_stopped {
            return Ok(());
        }
        self.shared.start(&mut state).map_err(|refusal| self.shared.start_error(&refusal))
    }

    /// Ends the threads after the posted work. Returns the number of threads that are still inside
    /// work at the deadline. Neither waits for nor counts the calling thread.
    #[must_use]
    pub fn shutdown(&self, deadline: Instant) -> Leftover {
        let (threads, asleep) = {
            let mut state = self.shared.state.lock();
            state.is_stopped = true;
            (std::mem::take(&mut state.threads), state.asleep.take())
        };
        if let Some(sleeper) = asleep {
            sleeper.wake();
        }
        let left: Vec<_> =
            threads.into_iter().filter_map(|thread| thread.join_by(deadline)).collect();
        let busy_threads = left.iter().filter(|thread| thread.is_busy()).count();
        self.shared.state.lock().threads.extend(left); // for a later shutdown
        Leftover { busy_threads }
    }
}

impl Shared {
    /// Ensures that a thread takes the posted work. Returns the work when no thread will take it.
    fn ensure_thread(self: &Arc<Self>, state: &mut State) -> Refused {
        if let Some(sleeper) = state.asleep.take() {
            sleeper.wake();
        } else if state.count == state.blocked
            && !state.posted.is_empty()
            && let Err(refusal) = self.start(state)
        {
            return Some((std::mem::take(&mut state.posted), refusal));
        }
        None
    }

    /// Starts a thread. The thread can take work as soon as the caller releases the lock.
    fn start(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        #[cfg(all(test, not(loom)))]
        if tests::is_refused() {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        let is_inside = Arc::new(AtomicBool::new(false));
        let (shared, inside) = (Arc::clone(self), Arc::clone(&is_inside));
        let builder = std::thread::Builder::new().name(self.name.to_owned());
        let thread = with_signals_blocked(|| builder.spawn(move || shared.execute(&inside)))?;
        state.threads.retain(|thread| !thread.thread.is_finished()); // ended: no join is needed
        state.threads.push(ResumeThread { thread, is_inside });
        state.count += 1;
        Ok(())
    }

    fn execute(self: Arc<Self>, inside: &AtomicBool) {
        set_hook(Arc::new(Hook(Arc::clone(&self))));
        let sleeper = Sleeper::new();
        while let Some(work) = self.next(&sleeper) {
            inside.store(true, Ordering::Relaxed); // relaxed: see the field
            work.run(&Turn::unshared());
            inside.store(false, Ordering::Relaxed);
        }
    }

    /// Takes the next posted work, and sleeps while none is posted. `None` ends the thread.
    fn next(&self, sleeper: &Arc<Sleeper>) -> Option<Arc<dyn Work>> {
        loop {
            let mut state = self.state.lock();
            if let Some(work) = state.posted.pop_front() {
                return Some(work);
            }
            if state.is_stopped || state.asleep.is_some() {
                state.count -= 1; // at most one thread sleeps
                return None;
            }
            state.asleep = Some(Arc::clone(sleeper));
            drop(state);
            sleeper.sleep();
        }
    }

    /// Calls [`Work::refuse`] on work that no thread will take, with the error of the failed start.
    fn refuse(&self, refused: Refused) {
        let Some((works, refusal)) = refused else { return };
        let error = self.start_error(&refusal);
        for work in works {
            work.refuse(&error);
        }
    }

    fn start_error(&self, refusal: &io::Error) -> Error {
        let code = refusal.raw_os_error().unwrap_or_default();
        Error::refused(self.kind, "pthread_create", code, format!("no thread: {refusal}"))
    }
}

/// Work that no thread will take, and the reason.
type Refused = Option<(VecDeque<Arc<dyn Work>>, io::Error)>;

/// Counts the threads that block inside work.
struct Hook(Arc<Shared>);

impl BlockingHook for Hook {
    fn begin(&self) {
        let mut state = self.0.state.lock();
        state.blocked += 1;
        let is_waited_for = !state.posted.is_empty();
        let refused = if is_waited_for { self.0.ensure_thread(&mut state) } else { None };
        drop(state);
        self.0.refuse(refused);
    }

    fn end(&self) {
        self.0.state.lock().blocked -= 1;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;
    use crate::base::thread::while_blocked;

    thread_local! {
        /// When true, the next thread start by this thread fails.
        static REFUSED: Cell<bool> = const { Cell::new(false) };
    }

    pub(super) fn is_refused() -> bool {
        REFUSED.take()
    }

    /// Work that reports its start and blocks until the test releases it.
    struct BlockingWork(Sender<()>, std::sync::Mutex<Receiver<()>>);

    impl Work for BlockingWork {
        fn run(self: Arc<Self>, _turn: &Turn<'_>) {
            self.0.send(()).unwrap();
            let _ = self.1.lock().unwrap().recv();
        }
    }

    /// Work that reports whether it ran or was refused.
    struct Reporter(Sender<bool>);

    impl Work for Reporter {
        fn run(self: Arc<Self>, _turn: &Turn<'_>) {
            self.0.send(true).unwrap();
        }

        fn refuse(self: Arc<Self>, _reason: &Error) {
            self.0.send(false).unwrap();
        }
    }

    /// Work that waits for other work, which it posts itself or which was posted before.
    struct WaitingWork {
        resume_threads: Arc<ResumeThreads>,
        reports: std::sync::Mutex<Receiver<bool>>,
        later: Option<Arc<Reporter>>,
        over: Sender<bool>,
        /// The wait is inside of a function that may block.
        is_nested: bool,
    }

    impl Work for WaitingWork {
        fn run(self: Arc<Self>, _turn: &Turn<'_>) {
            let wait = || {
                while_blocked(|| {
                    if let Some(later) = &self.later {
                        self.resume_threads.post(Arc::clone(later) as Arc<dyn Work>);
                    }
                    self.over.send(self.reports.lock().unwrap().recv().unwrap()).unwrap();
                });
            };
            if self.is_nested { while_blocked(wait) } else { wait() }
        }
    }

    fn resume_threads() -> ResumeThreads {
        ResumeThreads::new(DeviceKind::NULL, "test")
    }

    fn now() -> Instant {
        Instant::now()
    }

    fn far_deadline() -> Instant {
        Instant::now() + Duration::from_secs(600)
    }

    #[test]
    fn a_thread_inside_work_is_busy_until_a_later_shutdown_joins_it() {
        let resume_threads = resume_threads();
        let ((enter, entered), (let_go, held)) = (channel(), channel());
        resume_threads.post(Arc::new(BlockingWork(enter, held.into())));
        entered.recv().unwrap();
        assert_eq!(resume_threads.shutdown(now()), Leftover { busy_threads: 1 });
        drop(let_go);
        assert_eq!(resume_threads.shutdown(far_deadline()), Leftover::default());
        assert!(resume_threads.shared.state.lock().threads.is_empty());
    }

    #[test]
    fn a_thread_that_is_slow_to_end_is_not_busy_and_a_later_shutdown_joins_it() {
        let (let_go, held) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let _ = held.recv();
        });
        let resume_threads = resume_threads();
        let thread = ResumeThread { thread, is_inside: Arc::default() };
        resume_threads.shared.state.lock().threads.push(thread);
        assert_eq!(resume_threads.shutdown(now()), Leftover::default());
        assert_eq!(resume_threads.shared.state.lock().threads.len(), 1);
        drop(let_go);
        assert_eq!(resume_threads.shutdown(far_deadline()), Leftover::default());
        assert!(resume_threads.shared.state.lock().threads.is_empty());
    }

    #[test]
    fn a_failed_thread_start_refuses_the_work_and_the_next_post_retries() {
        let resume_threads = resume_threads();
        let (tell, reports) = channel();
        for _ in 0..3 {
            REFUSED.set(true);
            resume_threads.post(Arc::new(Reporter(tell.clone())));
            assert!(!reports.recv().unwrap(), "it was refused");
        }
        for _ in 0..3 {
            resume_threads.post(Arc::new(Reporter(tell.clone())));
            assert!(reports.recv().unwrap(), "it ran");
        }
        assert_eq!(resume_threads.shutdown(far_deadline()), Leftover::default());
    }

    /// Work that blocks as [`BlockingWork`], inside of a function that may block.
    struct HeldWork(Arc<BlockingWork>);

    impl Work for HeldWork {
        fn run(self: Arc<Self>, turn: &Turn<'_>) {
            while_blocked(|| Arc::clone(&self.0).run(turn));
        }
    }

    /// Posts work that is held until the drop of the result, and waits until it has begun.
    fn hold(resume_threads: &ResumeThreads) -> Sender<()> {
        let ((enter, entered), (let_go, held)) = (channel(), channel());
        let work = Arc::new(BlockingWork(enter, held.into()));
        resume_threads.post(Arc::new(HeldWork(work)));
        entered.recv().unwrap();
        let_go
    }

    #[test]
    fn a_thread_that_has_ended_is_not_expected_to_take_work() {
        let resume_threads = resume_threads();
        drop([(); 2].map(|()| hold(&resume_threads))); // then one thread sleeps and one ends
        let num_threads = || {
            let state = resume_threads.shared.state.lock();
            let running = state.threads.iter().filter(|it| !it.thread.is_finished());
            if state.asleep.is_some() { running.count() } else { 2 }
        };
        while num_threads() > 1 {
            std::thread::yield_now();
        }
        let _held = hold(&resume_threads);
        let (tell, reports) = channel();
        resume_threads.post(Arc::new(Reporter(tell)));
        assert!(reports.recv_timeout(Duration::from_secs(30)).expect("no thread takes it"));
    }

    #[test]
    fn work_that_blocks_does_not_delay_later_work() {
        for (is_there_before, is_nested) in [(false, false), (true, false), (false, true)] {
            let resume_threads = Arc::new(resume_threads());
            let (tell, reports) = channel();
            let later = Arc::new(Reporter(tell));
            let ((enter, entered), (let_go, held)) = (channel(), channel());
            resume_threads.post(Arc::new(BlockingWork(enter, held.into())));
            entered.recv().unwrap();
            let (over, is_over) = channel();
            resume_threads.post(Arc::new(WaitingWork {
                resume_threads: Arc::clone(&resume_threads),
                reports: reports.into(),
                later: (!is_there_before).then(|| Arc::clone(&later)),
                over,
                is_nested,
            }));
            if is_there_before {
                resume_threads.post(later);
            }
            drop(let_go);
            assert!(is_over.recv_timeout(Duration::from_secs(30)).expect("the test hangs"));
            assert_eq!(resume_threads.shutdown(far_deadline()), Leftover::default());
        }
    }
}

/// The class of a parameter that kernels take by value; `Unknown` for all other types.
#[doc(hidden)]
#[must_use]
pub fn class_of_value(type_name: &str) -> ParameterClass {
    match type_name {
        "char" | "signed char" => ParameterClass::Signed(1),
        "short" => ParameterClass::Signed(2),
        "int" => ParameterClass::Signed(4),
        "long" => ParameterClass::Signed(8),
        "uchar" | "unsigned char" => ParameterClass::Unsigned(1),
        "ushort" | "unsigned short" => ParameterClass::Unsigned(2),
        "uint" | "unsigned int" | "unsigned" => ParameterClass::Unsigned(4),
        "ulong" | "unsigned long" => ParameterClass::Unsigned(8),
        "float" => ParameterClass::Float(4),
        "double" => ParameterClass::Float(8),
        _ => ParameterClass::Unknown, // `half`, vectors, structures, images
    }
}

#[cfg(test)]
mod opencl_c_tests {
    use super::*;

    #[test]
    fn unsigned_types_have_two_spellings_and_vectors_are_unknown() {
        for (short, long) in [("uchar", "unsigned char"), ("uint", "unsigned int")] {
            assert_eq!(class_of_value(short), class_of_value(long));
        }
        assert_eq!(class_of_value("float4"), ParameterClass::Unknown);
        assert_eq!(class_of_value("long"), ParameterClass::Signed(8));
    }
}
