//! The timeline of the null kind: submissions to streams, waits, and marks with virtual time.

use std::collections::{HashMap, VecDeque};

use accelrt::backend::contract::{Mark, StreamHandle};

/// The moment at which a device of the null kind completes a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionMode {
    /// When the device receives the submission.
    AtOnce,
    /// At the first wait for the submission, at the first callback for its mark, or at the poll
    /// after `polls` negative polls. Then all earlier submissions of the stream complete too.
    WhenAsked {
        /// How many polls are negative before one completes the submission.
        polls: u32,
    },
}

/// Bytes that tasks have moved since the backend's creation, in total over all devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovedBytes {
    /// Bytes that `copy` has copied.
    pub copied_bytes: u64,
    /// Bytes that `fill` has written.
    pub filled_bytes: u64,
}

/// The progress of all devices, guarded by one lock.
#[derive(Debug)]
pub(super) struct Timeline {
    pub(super) streams: Streams,
    pub(super) marks: Marks,
    pub(super) moved: MovedBytes,
    pub(super) is_shut_down: bool,
}

/// A position in a stream, reached when every submission up to `number` is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) stream: u64,
    pub(super) number: u64,
}

/// A new submission: its position and virtual time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Submission {
    pub(super) point: Point,
    pub(super) device_index: usize,
    /// Microseconds of virtual time: a device's clock advances by one per submission.
    pub(super) stamp_us: u64,
}

/// All streams of the backend. Each [`Stream`] has two counts:
///
/// | number | meaning |
/// |---|---|
/// | `submitted` | submissions to the stream |
/// | `done` | executed submissions, from the first; never more than `submitted` |
///
/// A wait is also a submission, and is done only after its `until`. Code that advances `done` past
/// a wait therefore also advances the awaited stream, under the same lock.
#[derive(Debug)]
pub(super) struct Streams {
    completion: CompletionMode,
    /// Stream numbers by handle. A handle that created its stream has the stream's number.
    handles: HashMap<u64, u64>,
    by_number: HashMap<u64, Stream>,
    next_handle: u64,
    clocks_us: Vec<u64>,
}

#[derive(Debug)]
struct Stream {
    device_index: usize,
    submitted: u64,
    done: u64,
    waits: VecDeque<Wait>,
    /// The negative polls of the submission `polled_at`, the last one at the latest poll.
    polls: u32,
    polled_at: u64,
}

#[derive(Debug)]
struct Wait {
    /// The number of the wait's own submission.
    number: u64,
    until: Point,
}

impl Streams {
    pub(super) fn new(completion: CompletionMode, device_count: usize) -> Self {
        Self {
            completion,
            handles: HashMap::new(),
            by_number: HashMap::new(),
            next_handle: 1,
            clocks_us: vec![0; device_count],
        }
    }

    pub(super) fn resource_counts(&self) -> usize {
        self.handles.len()
    }

    pub(super) fn create(&mut self, device_index: usize) -> StreamHandle {
        let stream = self.next_handle;
        let waits = VecDeque::new();
        let state = Stream { device_index, submitted: 0, done: 0, waits, polls: 0, polled_at: 0 };
        self.by_number.insert(stream, state);
        self.handle_for(stream)
    }

    /// Adds a handle for an existing stream of this device. `None` when `native` is no such stream.
    pub(super) fn wrap(&mut self, device_index: usize, native: u64) -> Option<StreamHandle> {
        let found = self.by_number.get(&native)?;
        (found.device_index == device_index).then(|| self.handle_for(native))
    }

    fn handle_for(&mut self, stream: u64) -> StreamHandle {
        let handle = self.next_handle;
        self.next_handle += 1;
        self.handles.insert(handle, stream);
        StreamHandle(handle)
    }

    /// Releases a handle. The handle that created the stream also completes and removes the stream.
    pub(super) fn destroy(&mut self, handle: StreamHandle) {
        let end = self.end(handle);
        self.handles.remove(&handle.0);
        if end.stream == handle.0 {
            self.finish(end);
            self.by_number.remove(&end.stream);
        }
    }

    /// The number of a handle's stream.
    pub(super) fn native(&self, handle: StreamHandle) -> u64 {
        self.end(handle).stream
    }

    /// Counts one submission, and completes it if the device completes at once.
    pub(super) fn submit(&mut self, handle: StreamHandle) -> Submission {
        let id = self.native(handle);
        let stream = self.by_number.get_mut(&id).expect("end() found it");
        stream.submitted += 1;
        if self.completion == CompletionMode::AtOnce {
            stream.done = stream.submitted;
        }
        let device_index = stream.device_index;
        let stamp_us = self.clocks_us[device_index] + 1;
        self.clocks_us[device_index] = stamp_us;
        let point = Point { stream: id, number: stream.submitted };
        Submission { point, device_index, stamp_us }
    }

    /// Submits a wait: later submissions complete only after `until`.
    pub(super) fn submit_wait(&mut self, handle: StreamHandle, until: Point) {
        let Point { stream, number } = self.submit(handle).point;
        if !self.is_done(until) && until.stream != stream {
            let stream = self.by_number.get_mut(&stream).expect("submit() found it");
            stream.waits.push_back(Wait { number, until });
        }
    }

    /// The position of the last submission of a handle's stream.
    pub(super) fn end(&self, handle: StreamHandle) -> Point {
        let stream = self.handles.get(&handle.0);
        let stream = *stream.unwrap_or_else(|| panic!("{handle:?} is no live stream"));
        let state = self.by_number.get(&stream);
        let state = state.unwrap_or_else(|| panic!("the stream that {handle:?} wraps is gone"));
        Point { stream, number: state.submitted }
    }

    /// True when the point is reached. A destroyed stream has completed all of its submissions.
    pub(super) fn is_done(&self, point: Point) -> bool {
        self.by_number.get(&point.stream).is_none_or(|stream| stream.done >= point.number)
    }

    /// True when the point is done. Counts negative polls; the configured number completes it.
    pub(super) fn poll(&mut self, point: Point, polls: &mut u32) -> bool {
        if self.is_done(point) {
            return true;
        }
        if let CompletionMode::WhenAsked { polls: needed } = self.completion
            && *polls < needed
        {
            *polls += 1;
            return false;
        }
        self.finish(point);
        true
    }

    /// Polls the last submission of a handle's stream.
    pub(super) fn poll_end(&mut self, handle: StreamHandle) -> bool {
        let end = self.end(handle);
        let stream = self.by_number.get_mut(&end.stream).expect("end() found it");
        let mut polls = if stream.polled_at == end.number { stream.polls } else { 0 };
        let done = self.poll(end, &mut polls);
        let stream = self.by_number.get_mut(&end.stream).expect("a poll removes no stream");
        (stream.polled_at, stream.polls) = (end.number, polls);
        done
    }

    /// Completes all submissions up to a point, and all that their waits on other streams need.
    pub(super) fn finish(&mut self, point: Point) {
        // A list instead of a recursion, because a chain of waits may include every stream. The
        // loop ends, because a wait only refers to an earlier submission. The caller holds the
        // lock, so no thread sees the intermediate states.
        let mut reached = vec![point];
        while let Some(point) = reached.pop() {
            let Some(stream) = self.by_number.get_mut(&point.stream) else { continue };
            stream.done = stream.done.max(point.number);
            while stream.waits.front().is_some_and(|wait| wait.number <= point.number) {
                reached.extend(stream.waits.pop_front().map(|wait| wait.until));
            }
        }
    }

    /// Completes all submissions of all streams.
    pub(super) fn finish_all(&mut self) {
        for stream in self.by_number.values_mut() {
            stream.done = stream.submitted;
            stream.waits.clear();
        }
    }
}

// Marks: positions in streams, with their virtual time stamps.

#[derive(Debug, Default)]
pub(super) struct Marks {
    marks: HashMap<u64, MarkState>,
    last_mark: u64,
}

#[derive(Debug)]
struct MarkState {
    submission: Submission,
    timed: bool,
    polls: u32,
}

impl Marks {
    pub(super) fn resource_counts(&self) -> usize {
        self.marks.len()
    }

    pub(super) fn place(&mut self, submission: Submission, timed: bool) -> Mark {
        self.last_mark += 1;
        let mark = Mark(self.last_mark);
        self.marks.insert(mark.0, MarkState { submission, timed, polls: 0 });
        mark
    }

    pub(super) fn point(&self, mark: Mark) -> Point {
        self.state(mark).submission.point
    }

    pub(super) fn poll(&mut self, mark: Mark, streams: &mut Streams) -> bool {
        let state = self.marks.get_mut(&mark.0);
        let state = state.unwrap_or_else(|| panic!("{mark:?} is no live mark"));
        streams.poll(state.submission.point, &mut state.polls)
    }

    pub(super) fn elapsed_ns(&self, start: Mark, end: Mark, streams: &Streams) -> i64 {
        let [start_us, end_us] = [start, end].map(|mark| {
            let MarkState { submission, timed, .. } = self.state(mark);
            assert!(timed, "{mark:?} has no time stamp");
            assert!(streams.is_done(submission.point), "{mark:?} is not reached");
            i64::try_from(submission.stamp_us).expect("fewer submissions than nanoseconds fit")
        });
        let devices = [start, end].map(|mark| self.state(mark).submission.device_index);
        assert_eq!(devices[0], devices[1], "{start:?} and {end:?} are of one device");
        (end_us - start_us) * 1_000
    }

    pub(super) fn release(&mut self, mark: Mark) {
        let before = self.marks.remove(&mark.0);
        assert!(before.is_some(), "{mark:?} is no live mark");
    }

    fn state(&self, mark: Mark) -> &MarkState {
        self.marks.get(&mark.0).unwrap_or_else(|| panic!("{mark:?} is no live mark"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(polls: u32) -> Streams {
        Streams::new(CompletionMode::WhenAsked { polls }, 2)
    }

    #[test]
    fn a_point_is_done_after_the_configured_polls() {
        let mut streams = asked(2);
        let stream = streams.create(0);
        let point = streams.submit(stream).point;
        let mut polls = 0;
        let answers: Vec<bool> = (0..3).map(|_| streams.poll(point, &mut polls)).collect();
        assert_eq!(answers, [false, false, true]);
        streams.submit(stream);
        assert_eq!([(); 3].map(|()| streams.poll_end(stream)), [false, false, true]);
    }

    #[test]
    fn finishing_a_point_finishes_the_waits_before_it() {
        // Goal: order across streams is transitive. Method: each of 10,000 streams waits for the
        // previous one; finishing the last point finishes all points and nothing behind them.
        let mut streams = asked(0);
        let handles: Vec<StreamHandle> = (0..10_000).map(|_| streams.create(1)).collect();
        let mut points = Vec::new();
        for (place, handle) in handles.iter().enumerate() {
            if let Some(before) = place.checked_sub(1) {
                streams.submit_wait(*handle, points[before]);
            }
            points.push(streams.submit(*handle).point);
            streams.submit(*handle);
        }
        streams.finish(points[9_999]);
        for (handle, point) in handles.iter().zip(&points) {
            assert!(streams.is_done(*point) && !streams.is_done(streams.end(*handle)));
        }
    }

    #[test]
    fn a_destroyed_stream_is_finished_and_its_number_is_not_reused() {
        let mut streams = asked(9);
        let (first, second) = (streams.create(0), streams.create(0));
        let before = streams.submit(first).point;
        streams.submit_wait(second, before);
        let point = streams.submit(second).point;
        streams.destroy(second);
        assert!(streams.is_done(point) && streams.is_done(before));
        streams.destroy(first);
        assert!(streams.create(0).0 > second.0);
        assert_eq!(streams.resource_counts(), 1);
    }

    #[test]
    fn a_wrapped_stream_shares_the_progress_of_its_original() {
        let mut streams = asked(9);
        let own = streams.create(1);
        assert_eq!(streams.wrap(0, streams.native(own)), None);
        let wrapped = streams.wrap(1, streams.native(own)).unwrap();
        let point = streams.submit(wrapped).point;
        assert_eq!(streams.end(own), point);
        streams.destroy(wrapped);
        assert!(!streams.is_done(point));
        streams.destroy(own);
        assert!(streams.is_done(point));
    }

    #[test]
    fn each_devices_clock_advances_by_its_own_submissions() {
        let mut streams = asked(0);
        let (here, there) = (streams.create(0), streams.create(1));
        assert_eq!([1, 2, 3].map(|_| streams.submit(here).stamp_us), [1, 2, 3]);
        assert_eq!(streams.submit(there).stamp_us, 1);
    }

    #[test]
    fn a_later_marks_completion_completes_the_earlier_ones_of_its_stream() {
        // Goal: marks complete in order. Method: poll only the last of three.
        let mut streams = Streams::new(CompletionMode::WhenAsked { polls: 1 }, 1);
        let mut marks = Marks::default();
        let stream = streams.create(0);
        let placed = [(); 3].map(|()| marks.place(streams.submit(stream), false));
        assert!(!marks.poll(placed[2], &mut streams));
        assert!(marks.poll(placed[2], &mut streams));
        assert!(placed.iter().all(|mark| streams.is_done(marks.point(*mark))));
    }

    #[test]
    fn time_passes_by_one_microsecond_a_submission() {
        let mut streams = Streams::new(CompletionMode::AtOnce, 1);
        let mut marks = Marks::default();
        let (one, other) = (streams.create(0), streams.create(0));
        let start = marks.place(streams.submit(one), true);
        streams.submit(other);
        let end = marks.place(streams.submit(one), true);
        assert_eq!(marks.elapsed_ns(start, end, &streams), 2_000);
        assert_eq!(marks.elapsed_ns(end, start, &streams), -2_000);
    }

    #[test]
    #[should_panic(expected = "has no time stamp")]
    fn the_time_of_an_untimed_mark_is_caught() {
        let mut streams = Streams::new(CompletionMode::AtOnce, 1);
        let mut marks = Marks::default();
        let stream = streams.create(0);
        let mark = marks.place(streams.submit(stream), false);
        marks.elapsed_ns(mark, mark, &streams);
    }

    #[test]
    #[should_panic(expected = "is no live mark")]
    fn a_second_release_is_caught() {
        let mut streams = Streams::new(CompletionMode::AtOnce, 1);
        let mut marks = Marks::default();
        let stream = streams.create(0);
        let mark = marks.place(streams.submit(stream), false);
        marks.release(mark);
        marks.release(mark);
    }
}
