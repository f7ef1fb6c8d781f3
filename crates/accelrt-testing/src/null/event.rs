//! Marks of the null kind: positions in streams, with their virtual time stamps.

use std::collections::HashMap;

use accelrt::backend::contract::Mark;

use super::stream::{Point, Streams, Submission};

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
    use super::super::CompletionMode;
    use super::*;

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
