//! The end of a stream's task as a future: it registers a waker where threads and streams wait.
//!
//! A poll executes no tasks and never blocks. On a driver kind the waker is woken twice if the task
//! was not yet submitted: when the stream has submitted the task, and when the device has done it.

use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::backend::contract::owned::OwnedMark;
use crate::base::error::Result;
use crate::base::fork;
use crate::base::sync::{AtomicBool, Ordering};
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::task::drop_quietly;
use crate::engine::stream::waiters::{Registration, Waiter};

/// Completes when a marker of a stream is done, whether or not it has failed.
pub(crate) struct TaskFuture {
    stream: Arc<StreamCore>,
    ticket: u64,
    registered: Option<Registered>,
}

/// The latest waker, and the place that will wake it.
struct Registered {
    waker: Waker,
    place: Place,
}

enum Place {
    Stream(Registration),
    Device(Arc<OwnedMark>, Arc<DeviceCall>),
}

/// Set when the driver has called back for a mark.
struct DeviceCall(AtomicBool);

impl TaskFuture {
    pub(crate) fn new(stream: &Arc<StreamCore>, ticket: u64) -> Self {
        Self { stream: Arc::clone(stream), ticket, registered: None }
    }

    pub(super) fn stream(&self) -> &Arc<StreamCore> {
        &self.stream
    }

    /// True when a poll is ready. Asks no device.
    pub(super) fn is_done(&self) -> bool {
        self.stream.progress.done() >= self.ticket
    }

    /// Ready when the task is done. Else `waker` is woken when another poll may find it done. Fails
    /// in a forked child, and when the device is lost or refuses to report.
    pub(crate) fn poll(&mut self, waker: &Waker) -> Poll<Result<()>> {
        let polled = self.poll_task(waker);
        if let Poll::Ready(done) = &polled {
            self.stream.tell_waited(self.ticket, false, done);
        }
        polled
    }

    fn poll_task(&mut self, waker: &Waker) -> Poll<Result<()>> {
        if let Err(refusal) = fork::check() {
            return Poll::Ready(Err(refusal));
        }
        if self.is_done() {
            return Poll::Ready(Ok(()));
        }
        if self.stream.progress.retired() < self.ticket && self.register(waker) {
            return Poll::Pending;
        }
        if self.stream.on_host {
            return Poll::Ready(Ok(()));
        }
        match self.poll_device(waker) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => Poll::Pending,
            Err(refusal) => Poll::Ready(Err(refusal)),
        }
    }

    /// Registers the waker with the stream. False when the stream has retired the task.
    fn register(&mut self, waker: &Waker) -> bool {
        if let Some(Registered { waker: latest, place: Place::Stream(_) }) = &self.registered
            && latest.will_wake(waker)
        {
            return self.stream.progress.retired() < self.ticket;
        }
        self.withdraw();
        let (stream, task) = (&self.stream, Waiter::Task(waker.clone()));
        let place = stream.waiters.register(self.ticket, task, &stream.progress).ok();
        let place = place.map(Place::Stream);
        self.registered = place.map(|place| Registered { waker: waker.clone(), place });
        self.registered.is_some()
    }

    /// Polls the device, which has the task. Else lets the driver call back. True when it is done.
    fn poll_device(&mut self, waker: &Waker) -> Result<bool> {
        if let Some(Registered { waker: latest, place: Place::Device(mark, call) }) =
            &self.registered
        {
            // Acquire: pairs with the store in the callback below. No model: models have streams on
            // the host, which no driver calls back.
            if call.0.load(Ordering::Acquire) {
                mark.is_done()?; // fails for a lost device, whose marks are called back too
                self.stream.marks.reached(self.ticket);
                return Ok(true);
            }
            if latest.will_wake(waker) {
                return Ok(false);
            }
        }
        let marks = &self.stream.marks;
        let mark = marks.at(self.ticket).map_or_else(|| self.stream.mark_now(), Ok)?;
        if mark.is_done()? {
            marks.reached(self.ticket);
            return Ok(true);
        }
        let call = Arc::new(DeviceCall(AtomicBool::new(false)));
        let (called, woken) = (Arc::clone(&call), waker.clone());
        mark.when_done(Box::new(move || {
            // Release: pairs with the load above. No model: as there.
            called.0.store(true, Ordering::Release);
            drop_quietly(|| woken.wake());
        }))?;
        let place = Place::Device(mark, call);
        self.registered = Some(Registered { waker: waker.clone(), place });
        Ok(false)
    }

    /// Removes the waker from the stream's waiters. A driver keeps it until the mark is done.
    fn withdraw(&mut self) {
        if let Some(Registered { place: Place::Stream(registration), .. }) = self.registered.take()
        {
            drop(self.stream.waiters.withdraw(registration));
        }
    }
}

impl Drop for TaskFuture {
    fn drop(&mut self) {
        self.withdraw();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::base::config::Config;
    use crate::base::device::{Device, DeviceKind};
    use crate::engine::event::future::EventFuture;
    use crate::engine::stream::Stream;
    use crate::engine::stream::synchronize::SynchronizeFuture;
    use crate::null::{CompletionMode, NullBackend, NullConfig};
    use crate::runtime::Runtime;

    #[test]
    fn futures_leave_no_waiter_registered_when_they_are_dropped() {
        // Goal: awaits that are given up leak nothing. Method: the test drops futures of a busy
        // stream, one of which had two wakers, then counts the registered waiters.
        let runtime = Runtime::new(Config { cpu_threads: Some(1), ..Config::default() }).unwrap();
        let stream = runtime.stream(Device::cpu(0)).unwrap();
        let ((enter, entered), (open, opened)) = (channel(), channel::<()>());
        let task = move || {
            enter.send(()).unwrap();
            opened.recv().unwrap_or_default();
        };
        stream.enqueue(task).unwrap();
        entered.recv().unwrap();
        let event = stream.record_event().unwrap();
        for _ in 0..100 {
            let mut future = EventFuture::new(event.clone());
            assert!(future.poll_record(Waker::noop()).is_pending());
            assert!(future.poll_record(&Waker::from(Arc::new(Unused))).is_pending());
            let mut future = SynchronizeFuture::new(stream.core(), 0).unwrap();
            assert!(future.poll(Waker::noop()).is_pending());
        }
        assert_eq!(stream.core().waiters.count(), 0);
        drop(open);
        stream.synchronize().unwrap();
    }

    struct Unused;

    impl std::task::Wake for Unused {
        fn wake(self: Arc<Self>) {
            unreachable!("its future was dropped");
        }
    }

    #[test]
    fn an_awaited_synchronise_waits_for_what_only_the_device_still_has() {
        // Goal: what was submitted is not done. Method: a device that makes no progress until it is
        // asked for a callback, which it calls at once.
        let completion = CompletionMode::WhenAsked { polls: u32::MAX };
        let null = NullBackend::new(NullConfig { completion, ..NullConfig::default() });
        let runtime = Runtime::with_backends(Config::default(), [null as _]).unwrap();
        let device = Device::new(DeviceKind::NULL, 0).unwrap();
        let stream = runtime.stream(device).unwrap();
        let event = stream.record_event().unwrap();
        let mut future = SynchronizeFuture::new(stream.core(), 0).unwrap();
        assert!(!event.is_done() && !future.is_done());
        assert!(future.poll(Waker::noop()).is_pending());
        assert!(matches!(future.poll(Waker::noop()), Poll::Ready(Ok(()))));
        assert!(event.is_done());
    }

    #[test]
    fn an_awaited_synchronise_ends_the_streams_error_and_an_abandoned_one_does_not() {
        let runtime = Runtime::new(Config { cpu_threads: Some(1), ..Config::default() }).unwrap();
        let stream = runtime.stream(Device::cpu(0)).unwrap();
        let fail = || stream.enqueue(|| Err::<(), _>("it fails")).unwrap();
        fail();
        drop(SynchronizeFuture::new(stream.core(), 0).unwrap()); // done or not: it raised nothing
        while !stream.is_done() {
            std::thread::yield_now();
        }
        let future = SynchronizeFuture::new(stream.core(), 0).unwrap();
        assert!(raised_by(future).contains("it fails"));
        stream.synchronize().unwrap();
    }

    /// A task that ends when the returned sender is dropped.
    fn enqueue_gate(stream: &Stream) -> Sender<()> {
        let (open, opened) = channel::<()>();
        stream.enqueue(move || opened.recv().unwrap_or_default()).unwrap();
        open
    }

    fn raised_by(mut future: SynchronizeFuture) -> String {
        loop {
            match future.poll(Waker::noop()) {
                Poll::Ready(outcome) => return outcome.unwrap_err().to_string(),
                Poll::Pending => std::thread::yield_now(),
            }
        }
    }

    #[test]
    fn a_synchronise_that_is_given_up_puts_back_no_error_that_another_one_raises() {
        // Goal: an error that the program has seen fails the stream no more, and one that it has
        // not seen is not lost. Method: a gate keeps one synchronise from its end; the error ends
        // at an earlier one, which raises it before or behind the end of the other, or never.
        let runtime = Runtime::new(Config { cpu_threads: Some(1), ..Config::default() }).unwrap();
        let stream = runtime.stream(Device::cpu(0)).unwrap();
        for (is_raised, is_first) in [(true, true), (true, false), (false, true), (false, false)] {
            let fails = enqueue_gate(&stream);
            stream.enqueue(|| Err::<(), _>("it fails")).unwrap();
            let earlier = SynchronizeFuture::new(stream.core(), 0).unwrap();
            let gate = enqueue_gate(&stream);
            let later = SynchronizeFuture::new(stream.core(), 0).unwrap();
            drop(fails);
            while !earlier.is_done() {
                std::thread::yield_now();
            }
            let end_earlier = || {
                if is_raised {
                    assert!(raised_by(earlier).contains("it fails"));
                } else {
                    drop(earlier);
                }
            };
            if is_first {
                end_earlier();
                drop(later);
            } else {
                drop(later);
                end_earlier();
            }
            drop(gate);
            assert_eq!(stream.synchronize().is_err(), !is_raised);
            stream.synchronize().unwrap();
        }
    }

    #[test]
    fn a_synchronise_that_is_given_up_does_not_wait_for_room_in_the_queue() {
        // Goal: the drop of a future blocks nothing. Method: the stream has more tasks than its
        // limit, behind a gate, when its error goes back; once at each place of a segment, because
        // a queue looks at the limit once a segment. A task of another stream may fill the queue.
        const SEGMENT: u64 = 64;
        let config = Config { stream_task_limit: SEGMENT, ..Config::default() };
        let runtime = Runtime::new(config).unwrap();
        let [stream, filler] = [(); 2].map(|()| runtime.stream(Device::cpu(0)).unwrap());
        for place in 0..SEGMENT {
            stream.enqueue(|| Err::<(), _>("it fails")).unwrap();
            let future = SynchronizeFuture::new(stream.core(), 0).unwrap();
            while !future.is_done() {
                std::thread::yield_now();
            }
            let gate = enqueue_gate(&stream);
            let (full, enough) = (stream.clone(), stream.core().pushed() + SEGMENT);
            let enqueue_tasks = move || {
                let is_full = |pushed| pushed > enough && pushed % SEGMENT == place;
                while !is_full(full.core().pushed()) {
                    full.enqueue(|| ()).unwrap();
                }
            };
            filler.enqueue(enqueue_tasks).unwrap();
            filler.synchronize().unwrap();
            drop(future);
            drop(gate);
            assert!(stream.synchronize().is_err());
        }
    }
}
