//! The ledger of tasks: what was enqueued where, what ran, in which order, and what was dropped.

use std::sync::{Arc, Mutex, MutexGuard};

use accelrt::Stream;

use crate::world::locked;

/// Names one task.
pub(crate) type TaskId = usize;

/// Where tasks and owners of memory write down what became of them.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Book>>);

#[derive(Default)]
struct Book {
    entries: Vec<Entry>,
    /// Tasks in the order in which they ran.
    ran: Vec<TaskId>,
    orders: Vec<Order>,
}

/// Across streams the later one is behind the earlier one.
struct Order {
    earlier: TaskId,
    later: TaskId,
    /// The later one is skipped when the earlier one was.
    is_strict: bool,
}

struct Entry {
    /// Tasks of one lane run in the order of their numbers; `None` for what never runs.
    lane: Option<Lane>,
    is_refused: bool,
    runs: usize,
    drops: usize,
}

/// A stream, seen by one enqueuing thread: device index, stream id, number of the thread.
type Lane = (usize, u64, usize);

/// What a task carries: noted when it runs and when it is dropped.
pub(crate) struct Token {
    ledger: Ledger,
    id: TaskId,
}

impl Ledger {
    fn book(&self) -> MutexGuard<'_, Book> {
        locked(&self.0)
    }

    /// A new task of a stream, enqueued by the `thread`-th thread.
    pub(crate) fn task(&self, stream: &Stream, thread: usize) -> Token {
        self.add(Some((stream.device().index(), stream.id(), thread)))
    }

    /// Something that a task only keeps alive: to be dropped once.
    pub(crate) fn owner(&self) -> Token {
        self.add(None)
    }

    fn add(&self, lane: Option<Lane>) -> Token {
        let mut book = self.book();
        book.entries.push(Entry { lane, is_refused: false, runs: 0, drops: 0 });
        Token { ledger: self.clone(), id: book.entries.len() - 1 }
    }

    /// The task was not taken.
    pub(crate) fn refuse(&self, id: TaskId) {
        self.book().entries[id].is_refused = true;
    }

    /// `later` runs only if `earlier` ran, and behind it.
    pub(crate) fn order(&self, earlier: Option<TaskId>, later: Option<TaskId>) {
        self.add_order(earlier, later, true);
    }

    /// `later` does not run before `earlier`.
    pub(crate) fn order_of_runs(&self, earlier: Option<TaskId>, later: Option<TaskId>) {
        self.add_order(earlier, later, false);
    }

    fn add_order(&self, earlier: Option<TaskId>, later: Option<TaskId>, is_strict: bool) {
        if let (Some(earlier), Some(later)) = (earlier, later) {
            self.book().orders.push(Order { earlier, later, is_strict });
        }
    }

    /// Tasks that were taken and did not run.
    pub(crate) fn unrun(&self) -> usize {
        let is_unrun =
            |entry: &&Entry| entry.lane.is_some() && !entry.is_refused && entry.runs == 0;
        self.book().entries.iter().filter(is_unrun).count()
    }

    /// What is wrong with the books, once nothing is queued any more.
    pub(crate) fn violations(&self) -> Vec<String> {
        let book = self.book();
        let mut found = Vec::new();
        for (id, entry) in book.entries.iter().enumerate() {
            let most = usize::from(entry.lane.is_some() && !entry.is_refused);
            if entry.runs > most {
                found.push(format!("task {id} ran {} times", entry.runs));
            }
            if entry.drops != 1 {
                found.push(format!("task or owner {id} was dropped {} times", entry.drops));
            }
        }
        let place = |id: TaskId| book.ran.iter().position(|ran| *ran == id);
        for (place, id) in book.ran.iter().enumerate() {
            let lane = book.entries[*id].lane;
            let overtaken = book.ran[..place].iter().find(|before| {
                **before > *id && lane.is_some() && book.entries[**before].lane == lane
            });
            found.extend(overtaken.map(|before| format!("task {before} ran before task {id}")));
        }
        for Order { earlier, later, is_strict } in &book.orders {
            if let Some(at) = place(*later)
                && place(*earlier).map_or(*is_strict, |before| before > at)
            {
                found.push(format!("task {later} did not run behind task {earlier}"));
            }
        }
        found
    }
}

impl Token {
    pub(crate) fn id(&self) -> TaskId {
        self.id
    }

    /// The task runs now.
    pub(crate) fn run(&self) {
        let mut book = self.ledger.book();
        book.entries[self.id].runs += 1;
        book.ran.push(self.id);
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.ledger.book().entries[self.id].drops += 1;
    }
}

/// Bytes of the host with a token.
pub(crate) struct Owned {
    bytes: Vec<u8>,
    _token: Token,
}

impl Owned {
    pub(crate) fn new(ledger: &Ledger, bytes: Vec<u8>) -> Self {
        Self { bytes, _token: ledger.owner() }
    }
}

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for Owned {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}
