//! Every method of the backend in a forked child.
//!
//! Goal: in a child no method calls the parent's driver, runs a task or takes a lock that a thread
//! of the parent held at the fork. Method: the contract's source lists the methods. The parent
//! forks while another thread keeps taking one of the backend's locks. The child calls each method
//! and counts the calls of the driver. A child that blocks is killed and fails the test.
#![expect(unsafe_code, reason = "`flush` is called directly")]

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use accelrt::backend::contract::{
    Address, Backend, KernelHandle, LaunchArgument, LaunchSize, Mark, ProgramHandle, ProgramSource,
    StreamHandle, Turn, ValueBytes, Work,
};
use accelrt::{Error, Result, RuntimeError};
use accelrt_opencl::XpuBackend;
use accelrt_testing::trusted::{Trusted, TrustedKernels};

use crate::child::{End, in_child};
use crate::fake::Fake;
use crate::process;
use crate::support::config;

/// Forks for each lock: a lock is held for a tenth of the time or more.
const FORKS_PER_LOCK: usize = 30;

const CONTRACT: [(&str, &str, &str); 2] = [
    ("", "pub unsafe trait Backend:", include_str!("../../../../src/backend/contract.rs")),
    (
        "Kernels::",
        "pub unsafe trait Kernels:",
        include_str!("../../../../src/backend/contract/capabilities.rs"),
    ),
];

/// Fail in a child with `BadFork`.
const REFUSED: [&str; 21] = [
    "stream_create",
    "stream_wrap",
    "stream_query",
    "stream_synchronize",
    "mark",
    "mark_done",
    "wait_mark",
    "stream_wait",
    "when_done",
    "elapsed_ns",
    "allocate",
    "allocate_shared",
    "allocate_host",
    "pointer_owner",
    "copy",
    "fill",
    "Kernels::compile",
    "Kernels::kernel_names",
    "Kernels::kernel",
    "Kernels::parameters",
    "Kernels::launch",
];

/// Succeed in a child without an effect. Releases are last, because they end handles elsewhere.
const WITHOUT_EFFECT: [&str; 10] = [
    "submit",
    "flush",
    "resume",
    "Kernels::kernel_release",
    "Kernels::program_release",
    "mark_release",
    "stream_destroy",
    "release",
    "release_host",
    "shutdown",
];

/// Return in a child what they return in the parent.
const ANSWERED: [&str; 15] = [
    "kind",
    "may_have_gpu",
    "device_count",
    "left_out_devices",
    "properties",
    "memory_info",
    "available_bytes",
    "host_memory_info",
    "priority_range",
    "runs_on_host",
    "has_host_addresses",
    "counters",
    "stream_native",
    "virtual_memory",
    "kernels",
];

/// The methods that the contract declares.
fn declared() -> Vec<String> {
    let mut names = Vec::new();
    for (prefix, head, source) in CONTRACT {
        let source = source.replace("unsafe fn ", "fn ");
        let body = source.split_once(head).expect("the contract has the trait").1;
        let body = body.split_once("\n}").expect("a trait ends").0;
        let heads = body.split("\n    fn ").skip(1).filter_map(|text| text.split_once('('));
        names.extend(heads.map(|(name, _)| format!("{prefix}{name}")));
    }
    names.sort_unstable();
    names
}

/// Calls of all functions of the fake so far. Reads only atomics, so it never blocks in a child.
fn driver_calls(fake: &Fake) -> u64 {
    let functions = include_str!("../fake_opencl/functions.h").split("X(cl").skip(1);
    let names = functions.filter_map(|text| text.split_once(')')).map(|(name, _)| name);
    names.map(|name| fake.live(&format!("calls:cl{name}"))).sum()
}

/// Work that counts its runs.
#[derive(Debug, Default)]
struct Counted(AtomicUsize);

impl Work for Counted {
    fn run(self: Arc<Self>, _: &Turn<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// One live object for each parameter of a method.
struct Objects {
    backend: Trusted<XpuBackend>,
    stream: StreamHandle,
    native: u64,
    mark: Mark,
    memory: Address,
    pinned: Address,
    program: ProgramHandle,
    kernel: KernelHandle,
    work: Arc<Counted>,
}

fn shown<T: Debug>(answer: Result<T>) -> Result<String> {
    answer.map(|answer| format!("{answer:?}"))
}

impl Objects {
    fn new(fake: &Fake) -> Self {
        let backend = Trusted(XpuBackend::new(&config(fake)));
        let stream = backend.stream_create(0, 0).unwrap();
        let kernels = backend.kernels().unwrap();
        let text = ProgramSource::Text("kernel void add(global int* numbers, int number) {}");
        let program = kernels.compile(0, text, "").unwrap();
        let kernel = kernels.kernel(program, "add").unwrap();
        let native = backend.stream_native(stream).unwrap();
        let memory = backend.allocate(0, 4096, 64).unwrap();
        let pinned = backend.allocate_host(4096, 64).unwrap();
        backend.fill(stream, memory, 1, 4096).unwrap();
        let mark = backend.mark(stream, true).unwrap();
        backend.wait_mark(mark).unwrap();
        let work = Arc::default();
        Self { backend, stream, native, mark, memory, pinned, program, kernel, work }
    }

    fn kernels(&self) -> TrustedKernels<'_> {
        self.backend.kernels().unwrap()
    }

    fn work(&self) -> Arc<dyn Work> {
        Arc::clone(&self.work) as Arc<dyn Work>
    }

    fn launch(&self) -> Result<()> {
        let size = LaunchSize { global: [16, 1, 1], local: None, dimensions: 1 };
        let number = LaunchArgument::Value(ValueBytes::new(&7_i32.to_ne_bytes()).unwrap());
        let arguments = [LaunchArgument::Memory(self.memory), number];
        self.kernels().launch(self.kernel, self.stream, &arguments, &size)
    }

    /// Calls a method and returns its answer as text.
    fn call(&self, method: &str) -> Result<String> {
        let Self { backend, stream, native, mark, memory, pinned, program, kernel, .. } = self;
        let (stream, mark, memory) = (*stream, *mark, *memory);
        match method {
            "kind" => shown(Ok(backend.kind())),
            "may_have_gpu" => shown(Ok(backend.may_have_gpu())),
            "device_count" => shown(backend.device_count()),
            "left_out_devices" => shown(Ok(backend.left_out_devices())),
            "properties" => shown(backend.properties(0)),
            "memory_info" => shown(backend.memory_info(0)),
            // The number itself changes with what other processes use.
            "available_bytes" => shown(Ok(backend.available_bytes(0).is_some())),
            "host_memory_info" => shown(Ok(backend.host_memory_info())),
            "priority_range" => shown(Ok(backend.priority_range(0))),
            "runs_on_host" => shown(Ok(backend.runs_on_host())),
            "has_host_addresses" => shown(Ok(backend.has_host_addresses())),
            "counters" => shown(Ok(backend.counters())),
            "stream_create" => shown(backend.stream_create(0, 0)),
            "stream_destroy" => shown(backend.stream_destroy(stream)),
            "stream_wrap" => shown(backend.stream_wrap(0, *native)),
            "stream_native" => shown(backend.stream_native(stream)),
            "submit" => {
                backend.submit(stream, self.work());
                shown(Ok(()))
            }
            "flush" => {
                // SAFETY: the stream is live.
                unsafe { backend.flush(stream) };
                shown(Ok(()))
            }
            "resume" => {
                backend.resume(stream, self.work());
                shown(Ok(()))
            }
            "stream_query" => shown(backend.stream_query(stream)),
            "stream_synchronize" => shown(backend.stream_synchronize(stream)),
            "mark" => shown(backend.mark(stream, true)),
            "mark_done" => shown(backend.mark_done(mark)),
            "wait_mark" => shown(backend.wait_mark(mark)),
            "stream_wait" => shown(backend.stream_wait(stream, mark)),
            "when_done" => {
                let work = Arc::clone(&self.work);
                let callback = move || work.run(&Turn::unshared());
                shown(backend.when_done(mark, Box::new(callback)))
            }
            "elapsed_ns" => shown(backend.elapsed_ns(mark, mark)),
            "mark_release" => shown(backend.mark_release(mark)),
            "allocate" => shown(backend.allocate(0, 64, 64)),
            "allocate_shared" => shown(backend.allocate_shared(0, 64, 64)),
            "release" => shown(backend.release(0, memory)),
            "allocate_host" => shown(backend.allocate_host(64, 64)),
            "release_host" => shown(backend.release_host(*pinned)),
            "pointer_owner" => shown(backend.pointer_owner(memory)),
            "copy" => shown(backend.copy(stream, memory, memory.offset(64), 64)),
            "fill" => shown(backend.fill(stream, memory, 1, 64)),
            "virtual_memory" => shown(Ok(backend.virtual_memory(0).is_some())),
            "kernels" => shown(Ok(backend.kernels().is_some())),
            "shutdown" => shown(Ok(backend.shutdown(Instant::now()))),
            "Kernels::compile" => shown(self.kernels().compile(0, ProgramSource::Text(""), "")),
            "Kernels::kernel_names" => shown(self.kernels().kernel_names(*program)),
            "Kernels::kernel" => shown(self.kernels().kernel(*program, "add")),
            "Kernels::parameters" => shown(self.kernels().parameters(*kernel)),
            "Kernels::launch" => shown(self.launch()),
            "Kernels::kernel_release" => shown(self.kernels().kernel_release(*kernel)),
            "Kernels::program_release" => shown(self.kernels().program_release(*program)),
            _ => panic!("no call of {method}"),
        }
    }

    /// Calls every method in a child, which must not use the driver.
    fn call_all_in_child(&self, fake: &Fake) {
        let answers = ANSWERED.map(|method| self.call(method).unwrap());
        in_child(End { runs_handlers: false }, || {
            let before = driver_calls(fake);
            let assert_unused = |method: &str| {
                assert_eq!(driver_calls(fake), before, "{method} calls the driver");
            };
            for (method, answer) in ANSWERED.into_iter().zip(answers) {
                assert_eq!(self.call(method).unwrap(), answer, "{method}");
                assert_unused(method);
            }
            for method in REFUSED {
                let refused = self.call(method);
                assert_unused(method);
                let is_refused = matches!(refused, Err(Error::Runtime(RuntimeError::BadFork)));
                assert!(is_refused, "{method}: {refused:?}");
            }
            let runs = self.work.0.load(Ordering::SeqCst);
            for method in WITHOUT_EFFECT {
                let answer = self.call(method);
                assert_unused(method);
                assert!(answer.is_ok(), "{method}: {answer:?}");
            }
            assert_eq!(self.work.0.load(Ordering::SeqCst), runs, "a child ran a task");
        });
    }

    fn end(self, fake: &Fake) {
        fake.set("hold=0");
        for method in WITHOUT_EFFECT.into_iter().filter(|method| method.contains("release")) {
            self.call(method).unwrap();
        }
        self.call("stream_destroy").unwrap();
        self.call("shutdown").unwrap();
    }
}

/// Each lock of the backend: its name, settings of the fake, and a call that takes the lock.
type LockUser = (&'static str, &'static str, fn(&Objects));
const LOCK_USERS: [LockUser; 6] = [
    ("allocations", "", |objects| {
        objects.backend.pointer_owner(objects.memory).unwrap();
    }),
    ("query event", "hold=1", |objects| {
        objects.backend.stream_query(objects.stream).unwrap();
    }),
    ("waits", "", |objects| {
        objects.backend.stream_wait(objects.stream, objects.mark).unwrap();
    }),
    ("kernel", "", |objects| objects.launch().unwrap()),
    ("resume threads", "", |objects| objects.backend.resume(objects.stream, objects.work())),
    ("completions", "", |objects| {
        objects.backend.when_done(objects.mark, Box::new(|| ())).unwrap();
    }),
];

#[test]
#[ignore = "a program that the other tests start"]
fn program() {
    match process::program().as_deref() {
        Some("unlocked") => unlocked(),
        Some("locked") => locked(),
        Some(other) => panic!("no program {other}"),
        None => {}
    }
}

#[test]
fn every_declared_method_has_an_expectation() {
    let mut expected: Vec<_> = REFUSED.into_iter().chain(WITHOUT_EFFECT).chain(ANSWERED).collect();
    expected.sort_unstable();
    assert_eq!(declared(), expected);
}

#[test]
fn no_method_calls_the_driver_in_a_child() {
    process::stderr_of_success(&process::run("fork_methods::program", "unlocked", &[]));
}

fn unlocked() {
    let fake = Fake::new("");
    let objects = Objects::new(&fake);
    objects.call_all_in_child(&fake);
    // The parent continues, and its releases have their effect.
    assert_eq!(objects.call("mark_done").unwrap(), "true");
    objects.end(&fake);
    fake.assert_none_of(&["allocations", "kernels", "programs", "events", "queues"]);
}

#[test]
fn no_method_waits_for_a_lock_in_a_child() {
    process::stderr_of_success(&process::run("fork_methods::program", "locked", &[]));
}

fn locked() {
    for (lock, settings, take) in LOCK_USERS {
        let fake = Fake::new("");
        let objects = Objects::new(&fake);
        fake.set(settings);
        objects.backend.fill(objects.stream, objects.memory, 2, 64).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let taking = scope.spawn(|| {
                let mut count = 0_u64;
                while !is_over.load(Ordering::SeqCst) {
                    take(&objects);
                    count += 1;
                }
                count
            });
            for _ in 0..FORKS_PER_LOCK {
                objects.call_all_in_child(&fake);
            }
            is_over.store(true, Ordering::SeqCst);
            assert!(taking.join().unwrap() > 0, "no call takes the lock of {lock}");
        });
        fake.set("hold=0");
        objects.backend.stream_synchronize(objects.stream).unwrap();
        objects.end(&fake);
    }
}
