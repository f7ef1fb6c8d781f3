//! Guards: what is current for a while, and again what it was before.

use std::panic::{AssertUnwindSafe, catch_unwind};

use accelrt::{Device, DeviceError, DeviceGuard, Error, Runtime, StreamGuard};

use crate::support::{CPU, devices};

fn current(runtime: &Runtime) -> usize {
    runtime.current_device().unwrap().index()
}

#[test]
fn a_device_guard_restores_the_device_it_replaced() {
    let runtime = devices(3, 1);
    {
        let mut guard = DeviceGuard::new(&runtime, Device::cpu(1)).unwrap();
        assert_eq!((current(&runtime), guard.previous()), (1, CPU));
        guard.set(Device::cpu(2)).unwrap();
        assert_eq!((current(&runtime), guard.previous()), (2, CPU));
    }
    assert_eq!(current(&runtime), 0);
}

#[test]
fn guards_nest() {
    let runtime = devices(3, 1);
    let outer = DeviceGuard::new(&runtime, Device::cpu(1)).unwrap();
    {
        let _inner = DeviceGuard::new(&runtime, Device::cpu(2)).unwrap();
        assert_eq!(current(&runtime), 2);
    }
    assert_eq!(current(&runtime), 1);
    drop(outer);
    assert_eq!(current(&runtime), 0);
}

#[test]
fn a_guard_restores_also_when_a_panic_unwinds() {
    let runtime = devices(2, 1);
    let stream = runtime.stream(Device::cpu(1)).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _guard = StreamGuard::new(&runtime, &stream).unwrap();
        panic!("inside the guard");
    }));
    assert!(panicked.is_err());
    assert_eq!(current(&runtime), 0);
    assert_eq!(runtime.current_stream_of(Device::cpu(1)).unwrap().id(), 0);
}

#[test]
fn a_guard_for_a_device_that_does_not_exist_changes_nothing() {
    let runtime = devices(2, 1);
    runtime.set_device(Device::cpu(1)).unwrap();
    let refused = DeviceGuard::new(&runtime, Device::cpu(2));
    assert!(matches!(refused, Err(Error::Device(DeviceError::NotFound { .. }))));
    let mut guard = DeviceGuard::new(&runtime, CPU).unwrap();
    assert!(guard.set(Device::cpu(9)).is_err());
    assert_eq!(current(&runtime), 0);
    drop(guard);
    assert_eq!(current(&runtime), 1);
}

#[test]
fn a_stream_guard_restores_the_device_and_the_stream_of_the_streams_device() {
    let runtime = devices(2, 1);
    let there = Device::cpu(1);
    let [before, during] = [(); 2].map(|()| runtime.stream(there).unwrap());
    runtime.exchange_stream(&before).unwrap();
    {
        let guard = StreamGuard::new(&runtime, &during).unwrap();
        assert_eq!(guard.previous(), &before);
        assert_eq!(runtime.current_stream().unwrap(), during);
        assert_eq!(current(&runtime), 1);
        assert_eq!(runtime.current_stream_of(CPU).unwrap().id(), 0);
    }
    assert_eq!(current(&runtime), 0);
    assert_eq!(runtime.current_stream_of(there).unwrap(), before);
}

#[test]
fn one_stream_can_be_entered_twice_and_in_turn_with_another() {
    let runtime = devices(1, 1);
    let [one, other] = [(); 2].map(|()| runtime.stream(CPU).unwrap());
    let enter = |stream| StreamGuard::new(&runtime, stream).unwrap();
    let (first, second, third) = (enter(&one), enter(&one), enter(&other));
    let fourth = enter(&one);
    for (guard, expected) in [(fourth, &other), (third, &one), (second, &one)] {
        drop(guard);
        assert_eq!(&runtime.current_stream().unwrap(), expected);
    }
    drop(first);
    assert_eq!(runtime.current_stream().unwrap().id(), 0);
}

#[test]
fn what_a_guard_saves_is_per_thread() {
    let runtime = devices(2, 1);
    let stream = runtime.stream(Device::cpu(1)).unwrap();
    let _guard = StreamGuard::new(&runtime, &stream).unwrap();
    std::thread::scope(|scope| {
        let other_thread = scope.spawn(|| {
            assert_eq!(current(&runtime), 0);
            drop(StreamGuard::new(&runtime, &stream).unwrap());
            assert_eq!(current(&runtime), 0);
        });
        other_thread.join().unwrap();
    });
    assert_eq!(runtime.current_stream().unwrap(), stream);
}

#[test]
fn a_dedicated_stream_lives_while_it_is_current() {
    let runtime = devices(1, 1);
    let stream = runtime.stream(CPU).unwrap();
    let id = stream.id();
    runtime.set_stream(&stream).unwrap();
    drop(stream);
    assert_eq!(runtime.current_stream().unwrap().id(), id);
}

/// Uses a runtime when it is dropped, and tells whether that went well.
struct AtEnd(Runtime, std::sync::mpsc::Sender<bool>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        let Self(runtime, tell) = self;
        let used = catch_unwind(AssertUnwindSafe(|| {
            let stream = runtime.stream(CPU).unwrap();
            let _guard = StreamGuard::new(runtime, &stream).unwrap();
            drop(runtime.empty(64, CPU).unwrap());
        }));
        tell.send(used.is_ok()).unwrap();
    }
}

thread_local! {
    static AT_END: std::cell::RefCell<Option<AtEnd>> = const { std::cell::RefCell::new(None) };
}

#[test]
fn a_runtime_is_used_while_the_variables_of_its_thread_end() {
    // Variables end in the reverse order of their first uses, so those of the runtime go first.
    let runtime = devices(1, 1);
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        AT_END.with_borrow_mut(|at_end| *at_end = Some(AtEnd(runtime.clone(), tell)));
        let stream = runtime.stream(CPU).unwrap();
        drop(StreamGuard::new(&runtime, &stream).unwrap());
        drop(runtime.empty(64, CPU).unwrap());
    });
    thread.join().unwrap();
    assert_eq!(told.recv(), Ok(true));
}
