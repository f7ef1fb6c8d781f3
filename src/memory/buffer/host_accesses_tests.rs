//! Host accesses and refused tasks: the buffer's state retains nothing of a refused task.

use std::sync::mpsc;

use crate::base::config::Config;
use crate::base::device::Device;
use crate::base::error::{Error, MemoryError};
use crate::engine::stream::{Completion, Stream};
use crate::memory::buffer::Buffer;
use crate::memory::buffer::host::HostAccess;
use crate::memory::buffer::uses::AccessedBytes;
use crate::runtime::Runtime;

fn stream(runtime: &Runtime) -> Stream {
    runtime.stream(Device::cpu(0)).unwrap()
}

fn accessed(buffer: &Buffer, writes: bool) -> AccessedBytes {
    AccessedBytes::new(buffer.bytes(), writes)
}

/// True when the state counts a host access, or a task that waits for one.
fn has_host_access(buffer: &Buffer) -> bool {
    buffer.allocation().state.lock().host_accesses.has_any()
}

/// Begins a host access. On a conflict, the access is queued.
fn enter(buffer: &Buffer, writes: bool) -> HostAccess<'_> {
    buffer.allocation().enter_host(accessed(buffer, writes)).unwrap().0
}

#[test]
fn a_copy_refused_during_its_wait_for_the_host_is_forgotten_by_both_buffers() {
    // Goal: after a refused copy, later host accesses need not queue. Method: the copy waits for
    // this thread's access to the target. During the wait the source is released.
    let runtime = Runtime::new(Config::default()).unwrap();
    let [source, target] = [(); 2].map(|()| runtime.empty(64, Device::cpu(0)).unwrap());
    let stream = stream(&runtime);
    let inside = enter(&target, false);
    std::thread::scope(|scope| {
        let copy = scope.spawn(|| target.copy_from(&source, &stream));
        while !has_host_access(&source) {
            std::thread::yield_now(); // until the copy waits
        }
        source.release().unwrap();
        let refused = copy.join().unwrap();
        assert!(matches!(refused, Err(Error::Memory(MemoryError::Released { .. }))), "{refused:?}");
    });
    drop(inside);
    assert!(!has_host_access(&target) && !has_host_access(&source));
}

#[test]
fn a_stream_gets_a_new_wait_for_a_host_access_after_dropping_one() {
    // Goal: a task never runs beside a queued host access, even after the task's stream dropped a
    // wait for that access. Method: the first wait is dropped with its refused task. The second
    // task must get a new wait, which also orders the stream's third task.
    let runtime = Runtime::new(Config::default()).unwrap();
    let buffer = runtime.empty(64, Device::cpu(0)).unwrap();
    let [held, other] = [(); 2].map(|()| stream(&runtime));
    let (tell, told) = mpsc::channel::<Completion>();
    held.enqueue_deferred(move |completion| tell.send(completion).unwrap()).unwrap();
    buffer.record_use(&held).unwrap();
    let place = enter(&buffer, true); // behind the held task
    let waits = || {
        let (accessed, mut waits) = (accessed(&buffer, false), Vec::new());
        let mut state = buffer.allocation().state.lock();
        state.host_accesses.each_wait(other.core(), &accessed, &mut |wait| waits.push(wait));
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
