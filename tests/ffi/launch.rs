//! Native calls keep their place in the order, fail by status, and are skipped and refused.

use std::hint::black_box;
use std::sync::Mutex;
use std::thread::{self, ThreadId};

use accelrt::{
    Argument, Device, DriverError, Error, Event, FailureCause, RuntimeError, Stream, StreamError,
};

use super::support::{
    append, append_digit, call, counter, digits, failure, launch, null_stream, pointer, runtime,
    runtime_with_null,
};
use crate::gate::Gate;

extern "C" fn answer(status: i32) -> i32 {
    status
}

#[test]
fn native_calls_and_closures_of_one_stream_run_in_order() {
    let runtime = runtime();
    let (stream, order) = (runtime.stream(Device::cpu(0)).unwrap(), counter());
    for digit in 1..=6_u32 {
        if digit % 2 == 0 {
            let order = order.clone();
            stream.enqueue(move || append_digit(&order, digit)).unwrap();
        } else {
            launch(&stream, call(append as _, &[pointer(&order), digit.into()])).unwrap();
        }
    }
    stream.synchronize().unwrap();
    assert_eq!(digits(&order), 123_456);
}

#[test]
fn a_native_call_behind_an_event_of_another_stream_runs_after_it() {
    let runtime = runtime();
    let [first, second] = [0, 0].map(|_| runtime.stream(Device::cpu(0)).unwrap());
    let (order, event) = (counter(), Event::new());
    let gate = Gate::shut(&first);
    launch(&first, call(append as _, &[pointer(&order), 1_u32.into()])).unwrap();
    first.record(&event).unwrap();
    second.wait_event(&event).unwrap();
    launch(&second, call(append as _, &[pointer(&order), 2_u32.into()])).unwrap();
    gate.open();
    second.synchronize().unwrap();
    assert_eq!(digits(&order), 12);
}

#[test]
fn tickets_count_the_tasks_of_a_stream() {
    let runtime = runtime();
    let (stream, order) = (runtime.stream(Device::cpu(0)).unwrap(), counter());
    let tickets = [0, 0, 0].map(|_| launch(&stream, call(answer as _, &[0.into()])).unwrap());
    assert_eq!(tickets, [1, 2, 3]);
    let arguments = [pointer(&order), 1_u32.into(), 0.into(), 0.into(), 0.into()];
    assert_eq!(launch(&stream, call(append as _, &arguments)).unwrap(), 4);
    stream.synchronize().unwrap();
}

#[test]
fn a_checked_status_fails_the_stream_and_names_the_number() {
    let runtime = runtime();
    let stream = runtime.stream(Device::cpu(0)).unwrap();
    for arguments in [vec![Argument::I32(-7)], vec![Argument::I32(-7); 9]] {
        launch(&stream, call(answer as _, &arguments).checked()).unwrap();
        let Err(Error::Stream(StreamError::Failed(error))) = stream.synchronize() else {
            panic!("it failed")
        };
        let FailureCause::Status { function, status } = *error.failure() else {
            panic!("{error:?}")
        };
        assert_eq!((function, status), (answer as *const () as usize, -7));
        assert!(error.to_string().contains("status -7"), "{error}");
        stream.synchronize().unwrap();
    }
}

#[test]
fn a_status_of_zero_and_one_that_is_not_checked_fail_nothing() {
    let runtime = runtime();
    let stream = runtime.stream(Device::cpu(0)).unwrap();
    launch(&stream, call(answer as _, &[0.into()]).checked()).unwrap();
    launch(&stream, call(answer as _, &[5.into()])).unwrap();
    assert!(!call(answer as _, &[]).is_checked() && call(answer as _, &[]).checked().is_checked());
    stream.synchronize().unwrap();
}

#[test]
fn native_calls_on_a_failed_stream_are_skipped() {
    let runtime = runtime();
    let (stream, order) = (runtime.stream(Device::cpu(0)).unwrap(), counter());
    launch(&stream, call(answer as _, &[3.into()]).checked()).unwrap();
    let short = [pointer(&order), Argument::U32(1)];
    let long = [&short[..], &[Argument::F64(0.0); 8]].concat();
    launch(&stream, call(append as _, &short)).unwrap();
    launch(&stream, call(append as _, &long)).unwrap();
    assert!(failure(&stream).contains("status 3"));
    assert_eq!((digits(&order), runtime.counters().num_skipped_tasks), (0, 2));
    launch(&stream, call(append as _, &long)).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(digits(&order), 1);
}

#[test]
fn without_a_history_a_waiting_thread_leaves_native_calls_to_a_worker() {
    // Goal: calls that nothing is known of count as long. Method: the function tells its thread.
    let runtime = runtime();
    let stream = runtime.stream(Device::cpu(0)).unwrap();
    let seen = Mutex::new(None::<ThreadId>);
    launch(&stream, call(tell_thread as _, &[Argument::from(&raw const seen)])).unwrap();
    stream.synchronize().unwrap();
    let seen = seen.into_inner().unwrap();
    assert!(seen.is_some_and(|id| id != thread::current().id()));
    assert_eq!(runtime.counters().num_helped_tasks, 0);
}

/// Tells which thread executes it.
extern "C" fn tell_thread(seen: &Mutex<Option<ThreadId>>) {
    *seen.lock().unwrap() = Some(thread::current().id());
}

/// Launches and synchronises, one call at a time, up to `most`; true when this thread has executed
/// one of them.
fn executes_some(stream: &Stream, most: usize) -> bool {
    let seen = Mutex::new(None::<ThreadId>);
    (0..most).any(|_| {
        launch(stream, call(tell_thread as _, &[Argument::from(&raw const seen)])).unwrap();
        stream.synchronize().unwrap();
        seen.lock().unwrap().take().unwrap() == thread::current().id()
    })
}

#[test]
fn a_waiting_thread_executes_native_calls_only_on_a_stack_as_large_as_a_workers() {
    // Goal: a function has the stack that workers give it. Method: threads with small and large
    // stacks launch calls, whose history becomes short; these tell their thread. The C library may
    // give a thread the stack of one that ended, but none of four times the size.
    let on_a_stack_of = |bytes: usize, most: usize| {
        let helping = move || {
            let runtime = runtime();
            let stream = runtime.stream(Device::cpu(0)).unwrap();
            executes_some(&stream, most)
        };
        thread::Builder::new().stack_size(bytes).spawn(helping).unwrap().join().unwrap()
    };
    assert!(!on_a_stack_of(256 << 10, 2_000));
    assert!(!on_a_stack_of(1 << 20, 2_000));
    assert!(on_a_stack_of(8 << 20, usize::MAX), "as large as a worker's");
}

#[test]
fn a_waiting_thread_that_is_deep_in_its_stack_executes_no_native_calls() {
    #[inline(never)]
    fn below(used_bytes: usize, wait: &dyn Fn()) {
        let room = [0_u8; 16 << 10];
        match used_bytes.checked_sub(black_box(&room).len()) {
            None => wait(),
            Some(rest) => below(rest, wait),
        }
        black_box(&room);
    }
    let deep = || {
        let runtime = runtime();
        let stream = runtime.stream(Device::cpu(0)).unwrap();
        below(3 << 20, &|| assert!(!executes_some(&stream, 2_000)));
        assert!(executes_some(&stream, usize::MAX), "where it came from there is room");
    };
    thread::Builder::new().stack_size(8 << 20).spawn(deep).unwrap().join().unwrap();
}

#[test]
fn kinds_that_do_not_run_on_the_host_refuse_and_name_what_to_use() {
    let runtime = runtime_with_null(accelrt_testing::null::CompletionMode::AtOnce);
    let refusal = launch(&null_stream(&runtime), call(answer as _, &[0.into()])).unwrap_err();
    assert!(matches!(refusal, Error::Driver(DriverError::Unsupported { .. })), "{refusal}");
    let message = refusal.to_string();
    assert!(message.contains("run on the host"), "{message}");
    assert!(message.contains("kernels of programs"), "{message}");
}

#[test]
fn a_runtime_that_was_shut_down_takes_no_native_calls() {
    let runtime = runtime();
    let stream = runtime.stream(Device::cpu(0)).unwrap();
    assert!(runtime.shutdown().is_clean());
    let refusal = launch(&stream, call(answer as _, &[0.into()])).unwrap_err();
    assert!(matches!(refusal, Error::Runtime(RuntimeError::ShutDown)), "{refusal}");
}
