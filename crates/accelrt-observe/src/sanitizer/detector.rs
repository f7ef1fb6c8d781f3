//! The detector: keeps order and shadows up to date, and finds what is not ordered.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use accelrt::internal::order_watch::{Told, WatchedEnqueue};
use accelrt::internal::{NameId, OperationKind, Place, StreamCore, UsedBytes, frames};

use crate::sanitizer::clock::{Point, Slot};
use crate::sanitizer::finding::{FindingKind, Found, FoundAt, FoundBuffer, FoundUse};
use crate::sanitizer::shadow::{Life, ShadowUse, User};
use crate::sanitizer::streams::{HOST, OPEN, Running, Streams};
use crate::sanitizer::timeline::StreamName;

/// The most allocations, freed ones too, that are known.
const MOST_LIVES: usize = 1 << 16;
/// The most findings of different places.
const MOST_FINDINGS: usize = 1 << 12;

/// True when something was found since a binding looked last.
pub(super) static HAS_NEWS: AtomicBool = AtomicBool::new(false);

/// An access that begins: which life, which bytes, how.
#[derive(Debug)]
struct NewAccess {
    address: u64,
    range: Range<usize>,
    writes: Option<bool>,
    is_recorded: bool,
    is_kept: bool,
}

/// The state of one watch. See the head of `mod.rs`.
#[derive(Debug, Default)]
pub(super) struct Detector {
    streams: Streams,
    /// By address.
    lives: BTreeMap<u64, Life>,
    /// The addresses of those that were freed, which are forgotten first.
    freed: BTreeSet<u64>,
    findings: Vec<Found>,
    /// The findings with places, which are counted in place of being listed again.
    known: HashMap<(FindingKind, FoundAt, FoundAt), usize>,
    /// Waits for events without a record, by event; those that were recorded since, by the streams
    /// that recorded and waited. Both are places in `findings`.
    unrecorded: HashMap<u64, Vec<usize>>,
    too_early: HashMap<(StreamName, StreamName), Vec<usize>>,
    num_open: u64,
    /// How many tasks were enqueued, and how often the host used memory.
    num_steps: u64,
    /// Uses and lives that found no room.
    num_forgotten: u64,
    /// Room for the accesses of one task.
    room: Vec<NewAccess>,
}

impl Detector {
    pub(super) fn findings(&self) -> &[Found] {
        &self.findings
    }

    /// How much was forgotten, so that what it belongs to may have gone unfound.
    pub(super) fn num_forgotten(&self) -> u64 {
        self.num_forgotten + self.streams.num_forgotten
    }

    /// The last task of a stream that was told of.
    #[cfg(test)]
    pub(super) fn last(&mut self, stream: &StreamCore) -> Point {
        let slot = self.streams.slot_of(stream);
        self.streams.last(slot)
    }

    #[cfg(test)]
    pub(super) fn streams(&mut self) -> &mut Streams {
        &mut self.streams
    }

    /// A task has got its ticket.
    pub(super) fn enqueue(&mut self, task: &WatchedEnqueue<'_>, ticket: u64) {
        self.make_room();
        let slot = self.streams.slot_of(task.stream);
        self.follow_caller(slot);
        let (details, memory) = (&task.details, &task.memory);
        let mut accesses = std::mem::take(&mut self.room);
        accesses.extend(memory.uses.iter().filter_map(|used| self.declared(used)));
        let kept = memory.kept.iter().filter_map(|used| self.declared(used));
        accesses.extend(kept.map(|it| NewAccess { is_recorded: false, is_kept: true, ..it }));
        let sized = details.accesses.iter().map(|it| (it.address.0, it.bytes, it.writes));
        let words = details.words.iter().map(|word| (*word, None, None));
        for (address, bytes, writes) in sized.chain(words) {
            let Some(bare) = self.bare(address, bytes, writes, &memory.uses) else { continue };
            // Until a copy is done, it holds what has exported the host's memory.
            let is_recorded = task.operation == OperationKind::Copy;
            accesses.push(NewAccess { is_recorded, ..bare });
        }
        if memory.is_behind_conflicts {
            for access in &accesses {
                let conflicting = self.recorded_conflicts(access);
                for point in conflicting {
                    self.streams.wait(slot, point, true);
                }
            }
        }
        if task.operation == OperationKind::Internal && accesses.is_empty() {
            // As a synchronise's own: the host has waited for the task before, and none uses this.
            self.room = accesses;
            return;
        }
        self.num_steps += 1;
        let point = self.streams.enqueue(slot, ticket, self.num_steps);
        if task.operation == OperationKind::Record {
            self.note_record(details.event, slot);
        }
        let user = User {
            stream: self.streams.name(slot),
            operation: task.operation,
            name: details.name,
            function: details.function as u64,
            place: task.place,
            step: self.num_steps,
        };
        for (nth, access) in accesses.drain(..).enumerate() {
            self.access((point, nth, 0), access, user);
        }
        self.room = accesses;
    }

    /// Forgets streams when there are too many. Nothing else may have points of theirs.
    fn make_room(&mut self) {
        if !self.streams.is_full() {
            return;
        }
        self.streams.forget_some();
        for life in self.lives.values_mut() {
            life.uses.retain(|known| self.streams.is_known(known.point.slot));
        }
    }

    /// What a task enqueues or orders runs behind what is before that task.
    fn follow_caller(&mut self, slot: Slot) {
        if let Some(Running::Task(running)) = self.running() {
            self.streams.wait(slot, running, false);
        }
    }

    /// The task that this thread is inside of.
    fn running(&self) -> Option<Running> {
        frames::streams().first().and_then(|key| self.streams.running(*key))
    }

    pub(super) fn tell(&mut self, told: Told<'_>, place: Place) {
        self.make_room();
        match told {
            Told::Wait(stream, Some((source, ticket)), _) => {
                let (slot, source) = (self.streams.slot_of(stream), self.streams.slot_of(source));
                self.streams.wait(slot, Point::whole(source, ticket), true);
            }
            Told::Wait(stream, None, event) => self.note_unrecorded(stream, event, place),
            Told::HostWait(stream, ticket, is_whole) => {
                let slot = self.streams.slot_of(stream);
                self.streams.wait_on_host(Point::whole(slot, ticket), is_whole);
            }
            Told::HostWaitForEnded(_, device) => self.streams.wait_for_ended(device),
            Told::Skip(stream, ticket) => self.skip(stream, ticket),
            Told::HostWaitForUses(used, takes_view) => {
                self.wait_for_uses(&used, takes_view);
                if takes_view {
                    self.view_on_host(&used, place);
                }
            }
            Told::HostAccess(used) => self.access_on_host(&used, place),
            Told::RecordedUse(used, stream) => self.record_use(&used, stream),
            Told::Allocation(used) => {
                self.begin_life(Life::new(used.address, used.bytes, Some(place)));
            }
            Told::Free(used) => self.free(&used, place),
            Told::Departure(address, bytes) => self.depart(address, bytes),
        }
    }

    /// A failed stream has skipped a task, which has written nothing.
    fn skip(&mut self, stream: &StreamCore, ticket: u64) {
        let Some(slot) = self.streams.known_slot(stream.key()) else { return };
        for address in self.streams.take_writes(slot, ticket) {
            if let Some(life) = self.lives.get_mut(&address) {
                life.written.skip(Point::whole(slot, ticket));
            }
        }
    }

    fn begin_life(&mut self, life: Life) {
        let end = life.address + life.bytes as u64;
        let before = self.lives.range(..life.address).next_back();
        let overlaps =
            |(_, known): &(&u64, &Life)| known.address + known.bytes as u64 > life.address;
        let before = before.filter(overlaps).map(|(address, _)| *address);
        let inside = self.lives.range(life.address..end).map(|(address, _)| *address);
        let ended: Vec<u64> = before.into_iter().chain(inside).collect();
        for address in ended {
            self.lives.remove(&address);
            self.freed.remove(&address);
        }
        self.freed.remove(&life.address); // of no bytes
        if self.lives.len() >= MOST_LIVES {
            match self.freed.pop_first() {
                Some(address) => drop(self.lives.remove(&address)),
                None => drop(self.lives.pop_first()),
            }
            self.num_forgotten += 1;
        }
        self.lives.insert(life.address, life);
    }

    /// A buffer was there when the watch began. What is known of its place by now is newer.
    pub(super) fn know(&mut self, address: u64, bytes: usize) {
        let end = address + bytes as u64;
        let last = self.lives.range(..end).next_back();
        if last.is_none_or(|(_, known)| known.address + known.bytes as u64 <= address) {
            self.begin_life(Life::new(address, bytes, None));
        }
    }

    /// The life of a buffer, which may be older than the watch.
    fn life_of(&mut self, used: &UsedBytes) -> &mut Life {
        let is_it = |life: &Life| life.bytes == used.bytes && life.freed.is_none();
        if !self.lives.get(&used.address).is_some_and(is_it) {
            self.begin_life(Life::new(used.address, used.bytes, None));
        }
        self.lives.get_mut(&used.address).expect("it has begun")
    }

    fn declared(&mut self, used: &UsedBytes) -> Option<NewAccess> {
        if used.range.is_empty() {
            return None;
        }
        self.life_of(used);
        let (range, writes) = (used.range.clone(), used.writes);
        let (is_recorded, is_kept) = (true, false);
        Some(NewAccess { address: used.address, range, writes, is_recorded, is_kept })
    }

    /// The access by an address that falls into an allocation which the task was not given.
    fn bare(
        &self,
        address: u64,
        bytes: Option<usize>,
        writes: Option<bool>,
        given: &[UsedBytes],
    ) -> Option<NewAccess> {
        let (_, life) = self.lives.range(..=address).next_back()?;
        let offset = usize::try_from(address - life.address).ok()?;
        if offset >= life.bytes
            || bytes == Some(0)
            || given.iter().any(|used| used.address == life.address)
        {
            return None;
        }
        // An address alone may lead anywhere in the allocation.
        let range = bytes.map_or(0..life.bytes, |bytes| offset..life.bytes.min(offset + bytes));
        let (is_recorded, is_kept) = (false, false);
        Some(NewAccess { address: life.address, range, writes, is_recorded, is_kept })
    }

    /// The recorded uses that conflict with an access.
    fn recorded_conflicts(&self, access: &NewAccess) -> Vec<Point> {
        let new = |known: &ShadowUse| {
            let NewAccess { range, writes, .. } = access;
            ShadowUse { range: range.clone(), writes: *writes, ..known.clone() }
        };
        let uses = self.lives.get(&access.address).into_iter().flat_map(|life| &life.uses);
        let uses = uses.filter(|known| known.is_recorded && known.open == 0);
        let conflicting = uses.filter(|known| known.conflicts(&new(known)));
        conflicting.map(|known| known.point).collect()
    }

    /// Checks an access against the others of its memory, and adds it to them.
    fn access(&mut self, (point, nth, open): (Point, usize, u64), access: NewAccess, user: User) {
        let NewAccess { address, range, writes, is_recorded, is_kept } = access;
        let is_marker = false;
        let new =
            ShadowUse { point, range, writes, is_recorded, is_kept, is_marker, open, user, nth };
        let (past, Self { streams, lives, .. }) = (self.streams.past(point), &mut *self);
        let Some(life) = lives.get_mut(&address) else { return };
        let done = &streams.done;
        let is_done = |other| done.covers(other);
        let is_reached = |other: Point| {
            is_done(other) || past.covers(other) || point.slot != OPEN && point.reaches(other)
        };
        // What a task does inside is told of later than tasks that wait for it. One that counts as
        // over while it runs was waited for by a stream that is forgotten.
        let is_behind = |other: Point| {
            let is_same = other.slot == point.slot && point.slot != OPEN;
            is_same || point.slot != HOST && is_done(point) || streams.past(other).covers(point)
        };
        let buffer = FoundBuffer { address, bytes: life.bytes, made: life.made };
        let mut found = Vec::new();
        let mut find = |kind, first, second: &ShadowUse| {
            let (second, buffer) = (FoundUse::of(second), Some(buffer));
            found.push(Found { kind, first, second, buffer, count: 1, is_harmless: false });
        };
        if let Some(freed) = life.freed {
            find(FindingKind::UseAfterFree, Some(FoundUse::of_host("free", freed)), &new);
        } else {
            // A callable may write the buffer that it gets.
            if !new.may_write() && !new.is_kept && !life.written.covers(&new.range) {
                find(FindingKind::UninitializedRead, None, &new);
            }
            // What the host does beside the host is no order of ours: one access in another, locks.
            let is_task = |it: &ShadowUse| it.user.stream.is_some();
            let others =
                life.uses.iter().filter(|it| !it.is_marker && (is_task(it) || is_task(&new)));
            let unordered = |it: &&ShadowUse| !is_reached(it.point) && !is_behind(it.point);
            for other in others.filter(|it| it.conflicts(&new)).filter(unordered) {
                let is_of_host = !is_task(other) || !is_task(&new);
                let kind = if is_of_host { FindingKind::HostAccess } else { FindingKind::Race };
                // A task that runs may use memory later than tasks that were enqueued behind it.
                let is_later = other.user.step > new.user.step;
                let (first, second) = if is_later { (&new, other) } else { (other, &new) };
                find(kind, Some(FoundUse::of(first)), second);
            }
            let writes = new.may_write() && user.stream.is_some();
            let is_retired = |task: Point| streams.has_retired(task);
            self.num_forgotten += life.add(new, is_done, is_reached, is_retired);
            if writes {
                self.streams.note_write(point, address);
            }
        }
        for finding in found {
            self.note(finding);
        }
    }

    fn note(&mut self, finding: Found) {
        let first = finding.first.as_ref().map_or(FoundAt::Nowhere, FoundUse::at);
        let key = (finding.kind, first, finding.second.at());
        if let Some(known) = self.known.get(&key) {
            self.findings[*known].count += 1;
        } else if self.findings.len() < MOST_FINDINGS || cfg!(test) {
            if finding.kind == FindingKind::Race {
                self.blame(&finding);
            }
            let is_of_event = finding.kind == FindingKind::UnrecordedEvent;
            if key.2 != FoundAt::Unknown && !is_of_event {
                self.known.insert(key, self.findings.len());
            }
            self.findings.push(finding);
            HAS_NEWS.store(true, Ordering::Relaxed); // see `watch::take_news`
        } else {
            self.num_forgotten += 1;
        }
    }

    fn note_unrecorded(&mut self, stream: &StreamCore, event: u64, place: Place) {
        let slot = self.streams.slot_of(stream);
        let stream = self.streams.name(slot);
        let place_of_finding = self.findings.len();
        let (operation, name) = (OperationKind::Wait, NameId::NONE);
        let (function, step) = (0, self.num_steps);
        let second = FoundUse::of_user(&User { stream, operation, name, function, place, step });
        let kind = FindingKind::UnrecordedEvent;
        self.note(Found { kind, first: None, second, buffer: None, count: 1, is_harmless: false });
        if self.findings.len() > place_of_finding {
            self.unrecorded.entry(event).or_default().push(place_of_finding);
        }
    }

    /// Of an event that is recorded later a wait does no harm by itself: the first round of a loop
    /// begins so. It does when a race between the two streams follows.
    fn note_record(&mut self, event: u64, slot: Slot) {
        for place in self.unrecorded.remove(&event).into_iter().flatten() {
            let finding = &mut self.findings[place];
            finding.is_harmless = true;
            let streams = (self.streams.name(slot), finding.second.stream);
            self.too_early.entry(streams).or_default().push(place);
        }
    }

    /// The waits that came too early to prevent a race.
    fn blame(&mut self, race: &Found) {
        let first = race.first.as_ref().and_then(|first| first.stream);
        for place in self.too_early.remove(&(first, race.second.stream)).into_iter().flatten() {
            self.findings[place].is_harmless = false;
        }
    }

    fn wait_for_uses(&mut self, used: &UsedBytes, takes_view: bool) {
        if used.bytes == 0 {
            return;
        }
        let life = self.life_of(used);
        // The host may write by its view.
        let num_forgotten = if takes_view { life.written.write(&used.range) } else { 0 };
        let recorded = life.uses.iter().filter(|it| it.is_recorded && it.open == 0);
        let points: Vec<Point> = recorded.map(|it| it.point).collect();
        self.num_forgotten += num_forgotten;
        for point in points {
            self.streams.wait_on_host(point, false);
        }
    }

    /// A view counts as a read when it is taken. It keeps the buffer, and nothing waits for it.
    fn view_on_host(&mut self, used: &UsedBytes, place: Place) {
        if let Some(access) = self.declared(used) {
            let (writes, is_recorded, is_kept) = (Some(false), false, true);
            self.access_by_caller(NewAccess { writes, is_recorded, is_kept, ..access }, place);
        }
    }

    fn access_on_host(&mut self, used: &UsedBytes, place: Place) {
        if let Some(access) = self.declared(used) {
            self.access_by_caller(access, place);
        }
    }

    /// Inside of a task it is the task that accesses the memory.
    fn access_by_caller(&mut self, access: NewAccess, place: Place) {
        let point = match self.running() {
            Some(Running::Task(running)) => self.streams.access_inside(running),
            Some(Running::Forgotten) => return self.num_forgotten += 1,
            None => self.streams.access_on_host(),
        };
        let accessing = self.host(point, place);
        self.access((point, 0, 0), access, accessing);
    }

    fn host(&mut self, point: Point, place: Place) -> User {
        self.num_steps += 1;
        let step = self.streams.step_of(point).unwrap_or(self.num_steps);
        let stream = self.streams.name(point.slot).filter(|_| point.slot != OPEN);
        let (operation, name, function) = (OperationKind::Internal, NameId::NONE, 0);
        User { stream, operation, name, function, place, step }
    }

    /// Begins an access that lasts: nothing is behind it until it ends, inside of a task at its end
    /// the latest. Its number.
    pub(super) fn open(&mut self, used: &UsedBytes, place: Place) -> u64 {
        self.num_open += 1;
        let point = match self.running() {
            Some(Running::Task(running)) => running,
            Some(Running::Forgotten) => {
                self.num_forgotten += 1;
                return self.num_open;
            }
            None => Point::whole(OPEN, self.num_open),
        };
        if let Some(access) = self.declared(used) {
            let accessing = self.host(point, place);
            self.access((point, 0, self.num_open), access, accessing);
        }
        self.num_open
    }

    pub(super) fn close(&mut self, used: &UsedBytes, number: u64) {
        let running = self.running();
        let Self { streams, lives, .. } = self;
        let Some(life) = lives.get_mut(&used.address) else { return };
        life.close(number, |point| match point.slot {
            OPEN => streams.access_on_host(),
            _ if running == Some(Running::Task(point)) => streams.access_inside(point),
            _ => point,
        });
    }

    fn record_use(&mut self, used: &UsedBytes, stream: &StreamCore) {
        if used.bytes == 0 {
            return;
        }
        let slot = self.streams.slot_of(stream);
        let point = self.streams.last(slot);
        let marker = ShadowUse {
            point,
            range: 0..used.bytes,
            writes: None,
            is_recorded: true,
            is_kept: false,
            is_marker: true, // it stands for the stream's tasks
            open: 0,
            user: self.host(point, Place::default()),
            nth: 0,
        };
        let life = self.life_of(used);
        let is_same_stream = |point: Point| point.slot == slot;
        self.num_forgotten += life.add(marker, |_| false, is_same_stream, |_| false);
    }

    /// A free waits for the home stream and for recorded uses. A task that keeps the buffer has
    /// used it before.
    fn free(&mut self, used: &UsedBytes, place: Place) {
        let home = self.streams.known_slot(used.home);
        let Self { streams, lives, freed, .. } = &mut *self;
        let is_it = |life: &&mut Life| life.bytes == used.bytes && life.freed.is_none();
        let Some(life) = lives.get_mut(&used.address).filter(is_it) else { return };
        let mut past = streams.done.clone();
        if let Some(home) = home {
            let all = Point::whole(home, u64::MAX);
            past.join(&streams.past(all));
            past.add(all);
        }
        for recorded in life.uses.iter().filter(|known| known.is_recorded || known.is_kept) {
            past.join(&streams.past(recorded.point));
            past.add(recorded.point);
        }
        life.freed = Some(place);
        freed.insert(used.address);
        let buffer = FoundBuffer { address: used.address, bytes: life.bytes, made: life.made };
        let missing =
            std::mem::take(&mut life.uses).into_iter().filter(|it| !past.covers(it.point));
        let missing: Vec<_> = missing.map(|it| FoundUse::of(&it)).collect();
        for first in missing {
            let second = FoundUse::of_host("free", place);
            let (kind, first, buffer) =
                (FindingKind::MissingRecordStream, Some(first), Some(buffer));
            self.note(Found { kind, first, second, buffer, count: 1, is_harmless: false });
        }
    }

    /// Memory leaves its allocator: an address there is no longer that of a freed buffer.
    fn depart(&mut self, address: u64, bytes: usize) {
        let left = self.freed.range(address..address.saturating_add(bytes as u64));
        for address in left.copied().collect::<Vec<_>>() {
            self.freed.remove(&address);
            self.lives.remove(&address);
        }
    }

    /// What is enqueued on the second stream from now on is behind what the first one has.
    pub(super) fn order(&mut self, first: &StreamCore, second: &StreamCore) {
        let (first, second) = (self.streams.slot_of(first), self.streams.slot_of(second));
        self.streams.wait(second, self.streams.last(first), true);
    }
}
