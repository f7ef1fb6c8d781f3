//! Waits for memory inside tasks: a wait that could never end does not begin.
//!
//! A request that is short of memory waits for the streams that use free memory. Inside a task such
//! a stream may wait for that very task, or for another task whose wait for memory, of any
//! allocator, ends only after this one. Such a stream is not waited for: what it uses counts as in
//! use, and one of the requests fails. Waits of streams for streams are known here, by events and
//! by the order of buffers; waits for a host's access to a buffer are not.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::base::error::{Error, Result, StreamError};
use crate::base::sync::{LockRank, Mutex, assert_no_lock_held, park};
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::frames;
use crate::engine::stream::interrupt::Interrupt;
use crate::memory::allocator::pending::Holder;

/// The sleep between two looks at a stream that another thread drops.
const ENDING_PERIOD: Duration = Duration::from_micros(20);

/// The waits in progress inside of tasks.
#[derive(Debug, Default)]
struct Waits {
    under_way: Vec<Wait>,
    begun: u64,
}

/// A wait, by the keys of streams.
#[derive(Debug)]
struct Wait {
    number: u64,
    /// The streams whose tasks the waiting thread is executing.
    inside: Vec<u64>,
    /// The stream that is waited for, and the streams that it waits for.
    behind: Vec<u64>,
}

impl Waits {
    /// Adds a wait and returns its number; `None` when it would wait for its own tasks.
    fn begin(&mut self, inside: Vec<u64>, behind: Vec<u64>) -> Option<u64> {
        let mut known = behind.clone();
        let mut next = 0;
        while let Some(stream) = known.get(next).copied() {
            next += 1;
            if inside.contains(&stream) {
                return None;
            }
            let waiting = self.under_way.iter().filter(|wait| wait.inside.contains(&stream));
            let more: Vec<u64> = waiting.flat_map(|wait| wait.behind.iter().copied()).collect();
            for stream in more {
                if !known.contains(&stream) {
                    known.push(stream);
                }
            }
        }
        self.begun += 1;
        self.under_way.push(Wait { number: self.begun, inside, behind });
        Some(self.begun)
    }

    fn end(&mut self, number: u64) {
        self.under_way.retain(|wait| wait.number != number);
    }
}

/// Shared by all allocators: a wait of one may be behind a wait of another.
static WAITS: LazyLock<Mutex<Waits>> =
    LazyLock::new(|| Mutex::new(LockRank::Allocator, Waits::default()));

/// A wait in progress, until the drop.
struct UnderWay(u64);

impl Drop for UnderWay {
    fn drop(&mut self) {
        WAITS.lock().end(self.0);
    }
}

impl Holder {
    pub(super) fn key(&self) -> u64 {
        self.progress.stream_key()
    }

    /// True when the stream is known to have passed its uses of freed memory.
    pub(super) fn has_passed(&self) -> bool {
        self.progress.done() >= self.ticket
    }

    /// Asks a driver for the stream's progress.
    pub(super) fn poll(&self) {
        if let Some(stream) = &self.stream {
            stream.poll_ticket(self.ticket);
        }
    }

    /// Waits until the stream has passed its uses of freed memory, or its drop is over. Fails
    /// inside one of the stream's tasks, and for a lost device.
    pub(super) fn wait(&self, interrupt: &mut Interrupt<'_>) -> Result<()> {
        let Some(stream) = &self.stream else { return self.wait_for_end(interrupt) };
        let inside = frames::streams();
        let _under_way = if inside.is_empty() { None } else { Some(self.begin(stream, inside)?) };
        stream.wait_ticket(self.ticket, false, interrupt)
    }

    /// Waits for the thread that drops the stream, which waits for nothing but the device.
    fn wait_for_end(&self, interrupt: &mut Interrupt<'_>) -> Result<()> {
        assert_no_lock_held();
        let mut last_check = Instant::now();
        while !self.has_passed() && self.progress.is_ending() {
            interrupt.check(&mut last_check)?;
            park(interrupt.longest_sleep(Some(ENDING_PERIOD)));
        }
        Ok(())
    }

    fn begin(&self, stream: &StreamCore, inside: Vec<u64>) -> Result<UnderWay> {
        let behind = streams_before(stream, self.ticket);
        let begun = WAITS.lock().begin(inside, behind);
        let identity = &stream.identity;
        let (device, stream_id) = (identity.device, identity.id);
        begun.map(UnderWay).ok_or(Error::Stream(StreamError::WaitInsideTask { device, stream_id }))
    }
}

/// The stream, and the streams that its task `ticket` still waits for.
fn streams_before(stream: &StreamCore, ticket: u64) -> Vec<u64> {
    std::iter::once(stream.key()).chain(stream.history.streams_before(ticket)).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::numbers::Numbers;
    use crate::seed::seed;

    #[test]
    fn a_wait_that_ended_stands_in_nobodys_way_and_the_others_do() {
        let mut waits = Waits::default();
        let begun = [1, 3, 5].map(|stream| waits.begin(vec![stream], vec![stream + 1]).unwrap());
        waits.end(begun[1]);
        for stream in [1, 5] {
            assert_eq!(waits.begin(vec![stream + 1], vec![stream]), None, "that one goes on");
        }
        let other_way = waits.begin(vec![4], vec![3]).unwrap();
        for number in [begun[0], begun[2], other_way] {
            waits.end(number);
        }
        assert!(waits.under_way.is_empty());
    }

    #[test]
    fn waits_are_refused_that_close_a_circle() {
        // Goal: a wait is refused exactly when it would wait, over any number of others, for the
        // tasks that it is inside of. Method: random waits of six streams that begin and end; the
        // model follows edges until nothing is added.
        let mut random = Numbers::new(seed());
        let mut waits = Waits::default();
        let mut model = Vec::<(u64, Vec<u64>, Vec<u64>)>::new();
        let mut refused = 0;
        for _ in 0..5_000 {
            if !model.is_empty() && random.below(5) < 2 {
                let (number, ..) = model.swap_remove(random.below(model.len()));
                waits.end(number);
                continue;
            }
            let [inside, behind] = [0; 2].map(|_| {
                (0..=random.below(2)).map(|_| random.below(6) as u64).collect::<Vec<u64>>()
            });
            let mut reached: BTreeSet<u64> = behind.iter().copied().collect();
            loop {
                let count = reached.len();
                let meets = |inside: &[u64]| inside.iter().any(|stream| reached.contains(stream));
                let more: Vec<u64> = model
                    .iter()
                    .filter(|(_, inside, _)| meets(inside))
                    .flat_map(|(.., behind)| behind.clone())
                    .collect();
                reached.extend(more);
                if reached.len() == count {
                    break;
                }
            }
            let closes = inside.iter().any(|stream| reached.contains(stream));
            let begun = waits.begin(inside.clone(), behind.clone());
            assert_eq!(begun.is_none(), closes, "{inside:?} behind {behind:?} in {model:?}");
            refused += usize::from(closes);
            model.extend(begun.map(|number| (number, inside, behind)));
        }
        assert!(refused > 100, "{refused}");
    }
}
