//! Host threads beside tasks that are refused: the memory keeps nothing of them.

use std::sync::mpsc;

use crate::base::config::Config;
use crate::base::device::Device;
use crate::base::error::{Error, MemoryError};
use crate::engine::stream::{Completion, Stream};
use crate::memory::buffer::Buffer;
use crate::memory::buffer::host_accesses::HostAccess;
use crate::memory::buffer::uses::Touch;
use crate::runtime::Runtime;

fn stream(runtime: &Runtime) -> Stream {
    runtime.dedicated_stream(Device::cpu(0), 0).unwrap()
}

fn touch(buffer: &Buffer, writes: bool) -> Touch {
    Touch { bytes: buffer.bytes(), writes }
}

/// True when the memory knows of host threads, or of tasks that wait for such.
fn has_hosts(buffer: &Buffer) -> bool {
    buffer.allocation().state.lock().host_accesses.is_any()
}

/// This thread uses the bytes, or takes a place to use them.
fn enter(buffer: &Buffer, writes: bool) -> HostAccess<'_> {
    buffer.allocation().enter_host(touch(buffer, writes)).unwrap().0
}

#[test]
fn a_copy_that_is_refused_while_it_waits_for_the_host_is_forgotten_by_both_buffers() {
    // Goal: later accesses of the host need no place. Method: the copy waits until this thread has
    // done with the target; the source is released meanwhile.
    let runtime = Runtime::new(Config::default()).unwrap();
    let [source, target] = [(); 2].map(|()| runtime.empty(64, Device::cpu(0)).unwrap());
    let stream = stream(&runtime);
    let inside = enter(&target, false);
    std::thread::scope(|scope| {
        let copy = scope.spawn(|| target.copy_from(&source, &stream));
        while !has_hosts(&source) {
            std::thread::yield_now(); // until it waits
        }
        source.release().unwrap();
        let refused = copy.join().unwrap();
        assert!(matches!(refused, Err(Error::Memory(MemoryError::Released { .. }))), "{refused:?}");
    });
    drop(inside);
    assert!(!has_hosts(&target) && !has_hosts(&source));
}

#[test]
fn a_stream_whose_wait_for_a_place_was_given_up_is_given_another_one() {
    // Goal: no task runs beside a host thread with a place that the task found. Method: the wait of
    // a first task, which is refused, is dropped; the second task needs one, and the third one of
    // the stream is ordered behind that.
    let runtime = Runtime::new(Config::default()).unwrap();
    let buffer = runtime.empty(64, Device::cpu(0)).unwrap();
    let [held, other] = [(); 2].map(|()| stream(&runtime));
    let (tell, told) = mpsc::channel::<Completion>();
    held.enqueue_deferred(move |completion| tell.send(completion).unwrap()).unwrap();
    buffer.record_use(&held).unwrap();
    let place = enter(&buffer, true); // behind the held task
    let waits = || {
        let (touch, mut waits) = (touch(&buffer, false), Vec::new());
        let mut state = buffer.allocation().state.lock();
        state.host_accesses.each_wait(other.core(), &touch, &mut |wait| waits.push(wait));
        drop(state);
        waits
    };
    let first = waits();
    assert_eq!(first.len(), 1);
    drop(first);
    let second = waits();
    assert_eq!((second.len(), waits().len()), (1, 0));
    drop(place);
    told.recv().unwrap().finish(Ok(()));
    runtime.synchronize(Device::cpu(0)).unwrap();
}
