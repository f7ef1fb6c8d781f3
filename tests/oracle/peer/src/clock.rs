//! Work on streams as the stub counts it: pieces that are put, and pieces that have ended.
//!
//! A mark is done when the work before it has ended; whoever waits ends what is waited for. So a
//! wait inside of a request never waits for the program, which could not go on.

use std::collections::HashMap;

use accelrt::backend::contract::{Mark, StreamHandle};

#[derive(Clone, Copy, Debug, Default)]
struct Work {
    put: u64,
    ended: u64,
}

/// The work of all streams, and the marks in it.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    streams: HashMap<StreamHandle, Work>,
    marks: HashMap<Mark, (StreamHandle, u64)>,
    last_mark: u64,
}

impl Clock {
    fn work(&mut self, stream: StreamHandle) -> &mut Work {
        self.streams.entry(stream).or_default()
    }

    pub(crate) fn put(&mut self, stream: StreamHandle, count: u64) {
        self.work(stream).put += count;
    }

    /// The next pieces end; all of them for a negative count.
    pub(crate) fn finish(&mut self, stream: StreamHandle, count: i64) {
        let work = self.work(stream);
        let left = work.put - work.ended;
        work.ended += u64::try_from(count).map_or(left, |count| count.min(left));
    }

    pub(crate) fn is_idle(&mut self, stream: StreamHandle) -> bool {
        let work = self.work(stream);
        work.put == work.ended
    }

    pub(crate) fn mark(&mut self, stream: StreamHandle) -> Mark {
        self.last_mark += 1;
        let (mark, behind) = (Mark(self.last_mark), self.work(stream).put);
        self.marks.insert(mark, (stream, behind));
        mark
    }

    pub(crate) fn is_done(&mut self, mark: Mark) -> bool {
        let (stream, behind) = self.marks[&mark];
        self.work(stream).ended >= behind
    }

    pub(crate) fn wait(&mut self, mark: Mark) {
        let (stream, behind) = self.marks[&mark];
        let work = self.work(stream);
        work.ended = work.ended.max(behind);
    }

    pub(crate) fn release(&mut self, mark: Mark) {
        self.marks.remove(&mark).expect("a mark is released once");
    }
}
