//! Tests of an event recorded on two driver streams in turn: no query finds it done in between.
//!
//! The test enters the second stream, queues a task that queries the event, then records the event.
//! So the query runs in the middle of the second record.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use crate::backend::contract::Backend;
use crate::backend::contract::owned::OwnedStream;
use crate::base::device::{Device, DeviceKind};
use crate::base::error::{Error, EventError};
use crate::engine::event::Event;
use crate::engine::event::handle::Recording;
use crate::engine::stream::Stream;
use crate::engine::stream::core::{Identity, StreamCore, TaskContext};
use crate::engine::stream::enqueue::Unscheduled;
use crate::engine::stream::lifecycle::Lifecycle;
use crate::engine::stream::task::OperationKind;
use crate::null::{CompletionMode, NullBackend, NullConfig};
use crate::queue::{Class, Command};

/// A stream of a device that makes no progress when it is polled.
fn stream(null: &Arc<NullBackend>, device_index: usize) -> Stream {
    let device = Device::new(DeviceKind::NULL, device_index).unwrap();
    let backend: Arc<dyn Backend> = Arc::<NullBackend>::clone(null);
    let handle = OwnedStream::create(&backend, device_index, 0).unwrap();
    let identity = Identity { device, id: 1, priority: 0, is_dedicated: true };
    Stream::from_core(StreamCore::new(identity, backend, handle, Lifecycle::new(0, 1000)))
}

fn null(device_count: usize) -> Arc<NullBackend> {
    let completion = CompletionMode::WhenAsked { polls: u32::MAX };
    NullBackend::new(NullConfig { device_count, completion, ..NullConfig::default() })
}

/// A task that queries the event and sends the answer.
struct QueryEvent(Event, Sender<bool>);

impl Command<TaskContext> for QueryEvent {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Internal;

    fn run(self, _context: &mut TaskContext) {
        self.1.send(self.0.is_done()).unwrap();
    }
}

#[test]
fn an_event_is_pending_between_two_pending_records() {
    let null = null(1);
    let [first, second] = [(); 2].map(|()| stream(&null, 0));
    let (event, (answer, answered)) = (Event::new(), channel());
    first.record(&event).unwrap();
    let direct = second.core().enter_directly().expect("an idle stream of a driver");
    second.core().enqueue(QueryEvent(event.clone(), answer), Unscheduled);
    second.core().enqueue_inside(direct, Recording(&event.core)).unwrap();
    assert!(!answered.recv().unwrap(), "seen as done between two records that are pending");
    assert!(!event.is_done());
    assert_eq!(event.version(), 2);
}

#[test]
fn an_event_that_moves_back_and_forth_is_pending_each_time() {
    let null = null(1);
    let streams = [(); 2].map(|()| stream(&null, 0));
    let event = Event::new();
    for (round, stream) in streams.iter().cycle().take(10).enumerate() {
        stream.record(&event).unwrap();
        assert!(!event.is_done(), "record {round} is pending");
    }
}

#[test]
fn a_refused_record_does_not_change_the_event() {
    let null = null(2);
    let [first, other_device] = [0, 1].map(|index| stream(&null, index));
    let event = Event::new();
    first.record(&event).unwrap();
    let refused = other_device.record(&event).unwrap_err();
    assert!(
        matches!(refused, Error::Event(EventError::DeviceMismatch { event: 0, stream: 1 })),
        "{refused}"
    );
    assert_eq!((event.version(), event.device().unwrap().index()), (1, 0));
    assert!(!event.is_done() && !other_device.is_ordered_after(&event));
}

#[test]
fn a_value_to_be_dropped_after_a_drivers_task_outlives_it_on_the_device() {
    let null = null(1);
    let (stream, alive) = (stream(&null, 0), Arc::new(()));
    let event = Event::new();
    stream.record(&event).unwrap();
    stream.drop_after(1, Arc::clone(&alive));
    assert!(!stream.core().poll_held() && Arc::strong_count(&alive) == 2, "it is submitted only");
    stream.synchronize().unwrap();
    assert_eq!(Arc::strong_count(&alive), 1);
}
