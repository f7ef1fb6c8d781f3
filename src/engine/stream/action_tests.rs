//! Tests of the report about each task.
//!
//! Goal: a report has the operation and the details of its task. Method: tasks of several
//! operations under a watcher that keeps what it is told.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use crate::backend::contract::Address;
use crate::base::device::Device;
use crate::engine::stream::action::Action;
use crate::engine::stream::operation::{MemoryAccess, OperationKind};
use crate::{Buffer, Config, Event, Runtime};

static TOLD: Mutex<Vec<Action>> = Mutex::new(Vec::new());

fn keep(action: &Action) {
    TOLD.lock().unwrap().push(action.clone());
}

fn address(buffer: &Buffer) -> Address {
    Address(buffer.address().unwrap())
}

#[test]
fn a_report_has_the_operation_the_memory_and_the_source_of_its_task() {
    let runtime = Runtime::new(Config::default()).unwrap();
    let device = Device::cpu(0);
    let [first, second] = [(); 2].map(|()| runtime.stream(device).unwrap());
    let (from, to) = (runtime.empty(64, device).unwrap(), runtime.empty(64, device).unwrap());
    let [source, target] = [from.slice(..32).unwrap(), to.slice(16..48).unwrap()];
    let (event, (gate, opened)) = (Event::new(), channel::<()>());
    runtime.tell_actions(Some(keep));
    from.fill(7, &first).unwrap();
    target.copy_from(&source, &first).unwrap();
    first.enqueue(move || assert!(opened.recv().is_err())).unwrap();
    first.record(&event).unwrap();
    second.wait_event(&event).unwrap();
    drop(gate);
    first.synchronize().unwrap();
    second.synchronize().unwrap();
    runtime.tell_actions(None);

    let told = std::mem::take(&mut *TOLD.lock().unwrap());
    let of = |operation| told.iter().find(|action| action.operation == operation).unwrap();
    let fill = &of(OperationKind::Fill).details;
    assert_eq!(
        (fill.bytes, &fill.accesses[..]),
        (64, &[MemoryAccess::write(address(&from), 64)][..])
    );
    let copy = &of(OperationKind::Copy).details;
    let [read, written] =
        [MemoryAccess::read(address(&from), 32), MemoryAccess::write(address(&target), 32)];
    assert_eq!((copy.bytes, &copy.accesses[..]), (32, &[read, written][..]));
    assert!(of(OperationKind::Call).details.accesses.is_empty());
    assert!(of(OperationKind::Record).details.source.is_none());
    let awaited = of(OperationKind::Wait).details.source.as_ref().expect("a wait has a source");
    assert_eq!((awaited.progress.stream_key(), awaited.ticket), (first.core().key(), 4));
    assert_eq!(told.len(), 5, "tasks of the runtime itself are not told: {told:?}");
}
