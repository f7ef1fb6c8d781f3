//! The exit of a process: drained, limited, reported, and never hung. Each test runs a program.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use accelrt::{Config, ConfigError, DeviceKind, Error, Event, Runtime, RuntimeError, Stream};

use crate::process;
use crate::support::{CPU, enqueue_failure, stream, stream_error, wait_by_query};

#[test]
#[ignore = "a program that the other tests start"]
fn program() {
    match process::program().as_deref() {
        Some("runnable") => runnable(),
        Some("runnable and exit") => {
            runnable();
            #[expect(clippy::disallowed_methods, reason = "the exit is what is tested")]
            std::process::exit(0);
        }
        Some("endless") => endless(),
        Some("too much") => too_much(),
        Some("parked") => parked(),
        Some("errors") => errors(),
        Some("an error that cannot be told") => error_that_cannot_be_told(),
        Some("exit inside a task") => exit_inside_a_task(),
        Some("lazy") => lazy(),
        Some("configured") => configured(),
        Some("malformed") => malformed(),
        Some(other) => panic!("no program {other}"),
        None => {}
    }
}

/// Runs a program to its good end; the lines of its standard error.
fn stderr_lines(name: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let output = process::run("exit::program", name, variables);
    process::stderr_of_success(&output).lines().map(str::to_owned).collect()
}

fn global() -> (Runtime, Stream) {
    let runtime = Runtime::global().unwrap();
    let stream = stream(&runtime);
    (runtime, stream)
}

/// Enqueues a task that lasts until the exit has begun.
fn enqueue_until_exit(runtime: &Runtime, stream: &Stream) {
    let runtime = runtime.clone();
    let task = move || {
        while !matches!(runtime.default_stream(CPU), Err(Error::Runtime(RuntimeError::ShutDown))) {
            std::thread::yield_now();
        }
    };
    stream.enqueue(task).unwrap();
}

fn enqueue_line(stream: &Stream, text: &'static str) {
    stream.enqueue(move || writeln!(std::io::stderr(), "{text}")).unwrap();
}

/// Enqueues a task that never returns; what is received says that it began.
fn enqueue_endless(stream: &Stream) -> Receiver<()> {
    let (tell, told) = channel();
    let task = move || {
        tell.send(()).unwrap();
        loop_for_ever();
    };
    stream.enqueue(task).unwrap();
    told
}

fn loop_for_ever() {
    loop {
        std::thread::sleep(Duration::from_secs(1)); // idle: it only has to be endless
    }
}

#[test]
fn what_is_runnable_at_the_end_of_main_is_finished() {
    assert_eq!(stderr_lines("runnable", &[]), ["first", "behind a wait"]);
}

#[test]
fn the_thread_that_exits_may_have_used_the_runtime() {
    // Goal: as at the end of every small program's main, in debug builds too: the locals of the
    // thread that exits are destroyed before the handler at exit runs. Method: the same program,
    // with an explicit exit on its thread.
    let output = process::run("exit::program", "runnable and exit", &[]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), stderr.as_str()), (Some(0), "first\nbehind a wait\n"));
}

fn runnable() {
    let (runtime, one) = global();
    let other = stream(&runtime);
    enqueue_until_exit(&runtime, &one);
    enqueue_line(&one, "first");
    other.wait_stream(&one).unwrap();
    enqueue_line(&other, "behind a wait");
}

#[test]
fn endless_tasks_and_threads_in_user_code_do_not_hang_the_exit_and_one_line_says_how_much_is_left()
{
    let lines = stderr_lines("endless", &[("ACCELRT_EXIT_MS", "50")]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    // Two behind the endless task, three parked behind one that nobody finishes.
    assert!(lines[0].contains("6 tasks") && lines[0].contains("1 thread"), "{lines:?}");
}

fn endless() {
    let (runtime, endless) = global();
    let parked = stream(&runtime);
    let begun = enqueue_endless(&endless);
    (0..2).for_each(|_| enqueue_line(&endless, "never"));
    park_for_ever(&runtime, &parked);
    (0..3).for_each(|_| enqueue_line(&parked, "never"));
    let waited = parked.clone();
    std::thread::spawn(move || waited.synchronize());
    std::thread::spawn(loop_for_ever);
    begun.recv().unwrap();
}

/// Has a stream wait for a task of another one that nobody finishes.
fn park_for_ever(runtime: &Runtime, parked: &Stream) {
    let source = stream(runtime);
    source.enqueue_deferred(std::mem::forget).unwrap();
    parked.wait_stream(&source).unwrap();
}

#[test]
fn runnable_work_is_drained_for_the_set_time_and_then_cancelled() {
    // Goal: the limit. Method: work for minutes of which each task is short; the program's own
    // limit is half a minute.
    let lines = stderr_lines("too much", &[("ACCELRT_EXIT_MS", "50")]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    let lost: u32 = lines[0].split(' ').find_map(|word| word.parse().ok()).expect("a number");
    assert!((1_900..2_000).contains(&lost), "{lines:?}");
}

fn too_much() {
    let (runtime, stream) = global();
    enqueue_until_exit(&runtime, &stream);
    for _ in 0..2_000 {
        // An idle task: there only has to be more of them than the exit has time for.
        stream.enqueue(|| std::thread::sleep(Duration::from_millis(50))).unwrap();
    }
}

#[test]
fn a_stream_parked_for_ever_is_cancelled_and_counted() {
    let lines = stderr_lines("parked", &[("ACCELRT_EXIT_MS", "50")]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("2 tasks"), "{lines:?}");
}

fn parked() {
    let (runtime, parked) = global();
    park_for_ever(&runtime, &parked);
    enqueue_line(&parked, "never");
}

#[test]
fn errors_that_nobody_saw_are_printed_once_and_seen_ones_are_not() {
    let lines = stderr_lines("errors", &[]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("unseen failure"), "{lines:?}");
}

fn errors() {
    let (runtime, unseen) = global();
    let [inheriting, seen, by_event] = [(); 3].map(|()| stream(&runtime));
    enqueue_failure(&unseen, "unseen failure");
    inheriting.wait_stream(&unseen).unwrap();
    enqueue_failure(&seen, "seen");
    stream_error(seen.synchronize());
    enqueue_failure(&by_event, "seen by event");
    stream_error(by_event.record_event().unwrap().synchronize());
}

#[test]
fn an_error_that_panics_when_it_is_told_at_the_exit_does_not_end_the_process_otherwise() {
    // Goal: the handler that C calls keeps the panic. Method: `stderr_lines` wants a good end.
    let lines = stderr_lines("an error that cannot be told", &[]);
    assert!(lines.iter().any(|line| line.contains("told on purpose")), "{lines:?}");
}

fn error_that_cannot_be_told() {
    #[derive(Debug)]
    struct Untold;
    impl std::error::Error for Untold {}
    impl std::fmt::Display for Untold {
        fn fmt(&self, _f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("told on purpose");
        }
    }
    let (_runtime, stream) = global();
    stream.enqueue(|| Err::<(), _>(Untold)).unwrap();
}

#[test]
fn a_task_that_exits_the_process_does_not_hang_it() {
    let output = process::run("exit::program", "exit inside a task", &[("ACCELRT_EXIT_MS", "50")]);
    assert_eq!(output.status.code(), Some(7));
}

fn exit_inside_a_task() {
    let (_runtime, stream) = global();
    #[expect(clippy::disallowed_methods, reason = "the exit is what is tested")]
    stream.enqueue(|| -> () { std::process::exit(7) }).unwrap();
    wait_by_query(&stream.record_event().unwrap());
}

#[test]
fn everything_is_lazy() {
    assert!(stderr_lines("lazy", &[]).is_empty());
}

/// Asks what exists, and makes handles; no thread may start before there is work.
fn lazy() {
    let threads = || {
        let folders = std::fs::read_dir("/proc/self/task").unwrap();
        folders.map(|folder| folder.unwrap().file_name()).collect::<BTreeSet<_>>()
    };
    let before = threads();
    let runtime = Runtime::global().unwrap();
    assert_eq!(runtime.device_count(DeviceKind::CPU).unwrap(), 1);
    runtime.properties(runtime.current_device().unwrap()).unwrap();
    runtime.memory_info(CPU).unwrap();
    runtime.synchronize(CPU).unwrap();
    assert!(!runtime.is_initialized());
    let stream = runtime.stream(CPU).unwrap();
    stream.synchronize().unwrap();
    stream.wait_event(&Event::new()).unwrap();
    assert!(runtime.is_initialized());
    assert_eq!(threads(), before);
    stream.enqueue(|| ()).unwrap();
    assert!(threads().len() > before.len());
}

#[test]
fn the_variables_set_the_global_runtime_up_and_no_other() {
    let variables = [
        ("ACCELRT_ACCELERATOR", "cpu"),
        ("ACCELRT_CPU_DEVICES", "3"),
        ("ACCELRT_CPU_THREADS", "1"),
        ("ACCELRT_CPU_MEMORY", "1048576"),
        ("ACCELRT_EXIT_MS", "0"),
        ("ACCELRT_STREAM_TASKS", "100"),
    ];
    assert!(stderr_lines("configured", &variables).is_empty());
}

fn configured() {
    let runtime = Runtime::global().unwrap();
    assert_eq!(runtime.device_count(DeviceKind::CPU).unwrap(), 3);
    assert_eq!(runtime.memory_info(CPU).unwrap().total_bytes, 1 << 20);
    assert_eq!(runtime.accelerator().unwrap(), DeviceKind::CPU);
    let config = runtime.config();
    assert_eq!((config.cpu_threads, config.stream_task_limit), (Some(1), 100));
    assert_eq!(config.exit_timeout, Duration::ZERO);
    let other = Runtime::new(Config::default()).unwrap();
    assert_eq!(other.device_count(DeviceKind::CPU).unwrap(), 1);
}

#[test]
fn a_malformed_variable_is_raised_by_the_first_call_that_needs_it_with_what_is_allowed() {
    for (name, value, allowed) in [
        ("ACCELRT_ACCELERATOR", "gpu", "cpu, cuda or xpu"),
        ("ACCELRT_CPU_DEVICES", "0", "1 to 128"),
        ("ACCELRT_CPU_THREADS", "many", "1 to 1024"),
        ("ACCELRT_CPU_MEMORY", "1 GiB", "bytes"),
        ("ACCELRT_EXIT_MS", "-1", "milliseconds"),
        ("ACCELRT_STREAM_TASKS", "63", "64"),
    ] {
        let lines = stderr_lines("malformed", &[(name, value)]);
        let [first, second] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(first, second, "each time");
        for part in [name, value, allowed] {
            assert!(first.contains(part), "{first}");
        }
    }
}

#[expect(clippy::print_stderr, reason = "what the parent of this program reads")]
fn malformed() {
    for _ in 0..2 {
        let refused = Runtime::global().unwrap_err();
        assert!(matches!(refused, Error::Config(ConfigError::InvalidSetting { .. })));
        eprintln!("{refused}");
    }
    // Who does not need the environment is not disturbed by it.
    stream(&Runtime::new(Config::default()).unwrap()).synchronize().unwrap();
}
