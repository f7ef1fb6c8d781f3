//! What a stream counts of its commands, while another thread submits to it.
//!
//! Goal: a number that tells how far the device is was taken before the call that asks the device,
//! so that it never covers what was submitted meanwhile. Method: the fake stops a thread inside of
//! that call, when its effect has happened; another thread submits; and the device, which is held
//! from then on, has not done that.

use std::thread::yield_now;

use accelrt::{Buffer, Runtime, Stream, Transfer};

use crate::fake::Fake;
use crate::support::{over, xpu};

/// A stream that has done one task.
struct Asked<'a> {
    fake: &'a Fake,
    stream: Stream,
    buffer: Buffer,
}

impl<'a> Asked<'a> {
    fn new(fake: &'a Fake, runtime: &Runtime) -> Self {
        let stream = runtime.stream(xpu(0)).unwrap();
        let buffer = runtime.empty(64, xpu(0)).unwrap();
        let asked = Self { fake, stream, buffer };
        asked.fill();
        asked.wait_for("executed", 1);
        asked
    }

    fn fill(&self) -> Transfer {
        self.buffer.fill(7, &self.stream).unwrap()
    }

    /// Waits until the fake counts so many.
    fn wait_for(&self, what: &str, count: u64) {
        while self.fake.live(what) < count {
            yield_now();
        }
    }

    /// Asks on another thread, which stops inside of `function` while one more task is submitted;
    /// that task, which the device does not do before the fake lets it.
    fn submitting_meanwhile(
        &self,
        function: &str,
        executed: u64,
        ask: impl FnOnce() + Send,
    ) -> Transfer {
        self.fake.set(&format!("stop={function}"));
        std::thread::scope(|scope| {
            let asking = scope.spawn(ask);
            self.wait_for(&format!("stopped:{function}"), 1);
            self.wait_for("executed", executed);
            self.fake.set("hold=1");
            let late = self.fill();
            self.fake.set(&format!("go={function}"));
            asking.join().unwrap();
            late
        })
    }
}

#[test]
fn what_is_submitted_during_a_query_is_not_done_with_it() {
    over("", |fake, runtime| {
        let asked = Asked::new(fake, &runtime);
        let query = || assert!(asked.stream.is_done(), "nothing was submitted before it");
        let late = asked.submitting_meanwhile("clFlush", 2, query);
        assert!(!asked.stream.is_done());
        fake.set("hold=0");
        late.wait().unwrap();
    });
}

#[test]
fn what_is_submitted_during_a_synchronise_is_not_done_with_it() {
    over("", |fake, runtime| {
        let asked = Asked::new(fake, &runtime);
        let synchronize = || asked.stream.synchronize().unwrap();
        let late = asked.submitting_meanwhile("clFinish", 1, synchronize);
        assert!(!asked.stream.is_done());
        fake.set("hold=0");
        late.wait().unwrap();
    });
}

#[test]
fn what_is_submitted_behind_a_mark_is_not_done_with_it() {
    over("", |fake, runtime| {
        let asked = Asked::new(fake, &runtime);
        let first = asked.fill();
        let wait = || first.wait().unwrap();
        let late = asked.submitting_meanwhile("clFlush", 3, wait);
        assert!(!late.is_done());
        fake.set("hold=0");
        late.wait().unwrap();
    });
}

#[test]
fn what_is_submitted_during_a_flush_is_flushed_by_the_next_one() {
    // Method: a thread stops inside of a flush, another one behind a fill that it has submitted and
    // before it tells the device, in a fill that is refused. The first one ends first.
    over("", |fake, runtime| {
        let asked = Asked::new(fake, &runtime);
        let (send, receive) = std::sync::mpsc::channel();
        let first = asked.fill();
        asked.wait_for("executed", 2);
        asked.stream.enqueue_deferred(move |gate| send.send(gate).unwrap()).unwrap();
        let (_, refused) = (asked.fill(), asked.fill());
        let fill = "clEnqueueMemFillINTEL";
        fake.set(&format!("stop=clFlush,stop={fill},fail={fill}:2:-5"));
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| first.is_done());
            asked.wait_for("stopped:clFlush", 1);
            let completing = scope.spawn(move || receive.recv().unwrap().finish(Ok(())));
            asked.wait_for(&format!("stopped:{fill}"), 1);
            fake.set("go=clFlush");
            asking.join().unwrap(); // a wait would flush what the device was not told of
            fake.set(&format!("go={fill}"));
            completing.join().unwrap();
        });
        // Two fills, the marks of the deferred task and of the question, and the fill that is never
        // asked for.
        asked.wait_for("executed", 5);
        refused.wait().unwrap_err(); // the receipt ends the failure
        asked.stream.synchronize().unwrap();
    });
}
