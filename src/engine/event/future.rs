//! The end of an event's record as a future, and a value that waits for it without a thread.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::base::error::Result;
use crate::base::fork;
use crate::base::fork::Inherited;
use crate::base::spin::SpinMutex;
use crate::engine::event::Event;
use crate::engine::event::core::Record;
use crate::engine::stream::synchronize::raise;
use crate::engine::stream::task_future::TaskFuture;

/// The future of `event.await`: completes when everything before the event's latest record at the
/// call is done. Its output is the result of [`Event::synchronize`].
///
/// A poll never blocks and executes no tasks. The thread that completes the record wakes the
/// executor's task. Dropping the future changes nothing: the work goes on. In a forked child a poll
/// fails.
#[must_use = "futures do nothing unless polled"]
pub struct EventFuture(Inherited<PendingRecord>);

struct PendingRecord {
    event: Event,
    /// `None` for an event without a record.
    record: Option<(Record, TaskFuture)>,
}

impl EventFuture {
    #[doc(hidden)]
    pub fn new(event: Event) -> Self {
        // A child asks for no record: a thread that it lacks may hold the event's lock.
        let record = if fork::is_child() { None } else { event.core.record() };
        let record = record.map(|record| {
            let task = TaskFuture::new(&record.source, record.ticket);
            (record, task)
        });
        Self(Inherited::new(PendingRecord { event, record }))
    }

    /// True when a poll is ready.
    #[doc(hidden)]
    #[must_use]
    pub fn is_done(&self) -> bool {
        let PendingRecord { event, record } = &*self.0;
        record.as_ref().is_none_or(|(record, _)| event.core.is_reached(record))
    }

    #[doc(hidden)]
    pub fn poll_record(&mut self, waker: &Waker) -> Poll<Result<()>> {
        self.poll_done(waker).map(|done| {
            done?;
            let PendingRecord { event, record } = &*self.0;
            raise(record.as_ref().and_then(|(record, _)| event.core.failure_of(record)))
        })
    }

    /// As `poll_record`, for a caller that shows the program no failure of the record.
    pub(crate) fn poll_done(&mut self, waker: &Waker) -> Poll<Result<()>> {
        if let Err(refusal) = fork::check() {
            return Poll::Ready(Err(refusal));
        }
        let PendingRecord { event, record } = &mut *self.0;
        let Some((record, task)) = record else { return Poll::Ready(Ok(())) };
        if !event.core.is_reached(record) {
            match task.poll(waker) {
                Poll::Ready(Ok(())) => event.core.complete(record.version),
                not_done => return not_done,
            }
        }
        record.source.tell_waited(record.ticket, false, &Ok(()));
        Poll::Ready(Ok(()))
    }
}

impl Future for EventFuture {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if let Some((record, _)) = &self.0.record {
            record.source.lifecycle.step_for(context.waker());
        }
        self.poll_record(context.waker())
    }
}

#[cfg(feature = "async")]
impl IntoFuture for Event {
    type Output = Result<()>;
    type IntoFuture = EventFuture;

    /// Waits for the latest record at the call, as [`Event::synchronize`] does, without a thread.
    fn into_future(self) -> EventFuture {
        EventFuture::new(self)
    }
}

#[cfg(feature = "async")]
impl IntoFuture for &Event {
    type Output = Result<()>;
    type IntoFuture = EventFuture;

    fn into_future(self) -> EventFuture {
        EventFuture::new(self.clone())
    }
}

impl fmt::Debug for EventFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventFuture").field("event", &self.0.event).finish_non_exhaustive()
    }
}

/// A value, and the record that it waits for.
pub struct WhenDone<T> {
    future: EventFuture,
    /// What waits.
    pub value: T,
    handover: Arc<Handover<T>>,
}

impl<T> fmt::Debug for WhenDone<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WhenDone").finish_non_exhaustive()
    }
}

/// Passes a value that waits to the thread that completes its record.
struct Handover<T> {
    state: SpinMutex<State<T>>,
    receive: fn(WhenDone<T>),
}

enum State<T> {
    /// A thread polls the record.
    Polled,
    /// A thread polls the record, and the waker was woken meanwhile.
    PolledAndWoken,
    /// No thread has the value.
    Left(WhenDone<T>),
}

impl<T: Send + 'static> WhenDone<T> {
    /// Waits for the event's latest record. The thread that completes the record calls `receive`,
    /// which must have the value polled again.
    #[must_use]
    pub fn new(event: Event, value: T, receive: fn(Self)) -> Self {
        let handover = Arc::new(Handover { state: SpinMutex::new(State::Polled), receive });
        Self { future: EventFuture::new(event), value, handover }
    }

    /// Returns `Some` if the record is done. Otherwise the thread that completes the record passes
    /// the value to `receive`.
    pub fn poll(mut self) -> Option<Self> {
        let handover = Arc::clone(&self.handover);
        let waker = Waker::from(Arc::clone(&handover));
        loop {
            // A failed record is done too. Its failure stays unraised: the program has not seen it.
            if self.future.poll_done(&waker).is_ready() {
                return Some(self);
            }
            let mut state = handover.state.lock();
            if let State::PolledAndWoken = *state {
                *state = State::Polled;
                continue;
            }
            *state = State::Left(self);
            return None;
        }
    }
}

impl<T: Send + 'static> Wake for Handover<T> {
    fn wake(self: Arc<Self>) {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::PolledAndWoken) {
            State::Polled | State::PolledAndWoken => {}
            State::Left(value) => {
                *state = State::Polled;
                drop(state);
                (self.receive)(value);
            }
        }
    }
}
