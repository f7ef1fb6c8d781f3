//! The sanitizer against the semantics of `tests/semantics`.
//!
//! Goal: of the uses that are told, no race is missed and none is made up, through reuse of freed
//! memory, copies and waits between devices, host waits, callables and bare addresses. Method:
//! random programs run on the cpu device under a watch, and the semantics says what is wrong with
//! each. A use that hides an earlier one, which is ordered before it, is reported in its place.
//! `ACCELRT_TEST_SEED=n` repeats a run, `ACCELRT_TEST_PROGRAMS=n` says how many programs it has.
#![expect(unsafe_code, reason = "launches a function that touches none of its arguments")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use accelrt::{Buffer, Config, FfiCall, Runtime, Stream};

use crate::numbers::Numbers;
use crate::sanitizer::clock::Point;
use crate::sanitizer::finding::{FindingKind, FoundUse};
use crate::sanitizer::streams::{HOST, Streams};
use crate::sanitizer::watch::Sanitizer;
use crate::seed::seed;
use crate::semantics::machine::{Access, Finding};
use crate::semantics::program;
use crate::semantics::program::{Action, Shape};
use crate::semantics_run::{Body, Probe, Run, World, cpu};

#[path = "../../../../tests/common/asked.rs"]
mod asked;

const DEVICES: usize = 3;
const UNIT_BYTES: usize = 512;

/// The first number of the accesses of a task, by its stream's slot and ticket.
type Numbered = Arc<Mutex<BTreeMap<(u32, u64), usize>>>;

/// What programs had, in how many of them.
#[derive(Debug, Default)]
struct Seen {
    programs: usize,
    reuses: usize,
    across_devices: usize,
    host_waits: usize,
    /// Programs without a finding of which something was forgotten.
    forgotten: usize,
    findings: BTreeMap<String, usize>,
}

/// What a watch is told of a program, and what it has found.
struct Told {
    watch: Arc<Sanitizer>,
    devices: usize,
    /// Where each life's memory is, as long as no later one has it.
    addresses: Vec<Option<u64>>,
    /// The accesses so far, with their nodes.
    accesses: Vec<(Access, usize)>,
    numbered: Numbered,
    host_accesses: u64,
    has: [bool; 3],
    /// True when the watch knows two streams at a time.
    forgets: bool,
}

extern "C" fn nothing() {}

/// Launches the function that touches nothing, with recorded uses and with bare addresses.
fn launch(stream: &Stream, used: &[(Buffer, bool)], bare: &[u64]) {
    let words: Vec<_> = bare.iter().map(|address| (*address).into()).collect();
    let call = FfiCall::new(nothing as *const _, &words).unwrap();
    let given: Vec<_> = used.iter().map(|(buffer, writes)| (buffer, Some(*writes))).collect();
    // SAFETY: the function takes any arguments, as it touches none.
    unsafe { stream.launch_with_uses(call, &given) }.unwrap();
}

fn number(watch: &Sanitizer, numbered: &Numbered, stream: &Stream, first: usize) {
    let Point { slot, ticket, .. } = watch.ask(|detector| detector.last(stream.core())).unwrap();
    numbered.lock().unwrap().insert((slot, ticket), first);
}

impl Told {
    fn new(runtime: &Runtime, devices: usize, forgets: bool) -> Self {
        let watch = Sanitizer::begin(runtime);
        if forgets {
            watch.ask(|detector| detector.streams().most = 2).unwrap();
        }
        Self {
            watch: Arc::new(watch),
            forgets,
            devices,
            addresses: Vec::new(),
            accesses: Vec::new(),
            numbered: Numbered::default(),
            host_accesses: 0,
            has: [false; 3],
        }
    }

    /// Lists the accesses of a task; the first one's number.
    fn list(&mut self, accesses: &[Access], node: usize) -> usize {
        let first = self.accesses.len();
        self.accesses.extend(accesses.iter().map(|access| (access.clone(), node)));
        first
    }

    /// The accesses as they can be told: an address says neither how much is used nor how, nor
    /// which of the buffers that were there it means.
    fn told(&self, world: &World, accesses: &[Access]) -> Vec<Access> {
        let (recorded, bare): (Vec<_>, Vec<_>) =
            accesses.iter().cloned().partition(|access| access.is_recorded);
        let is_told = |access: &Access| {
            let is_given = recorded.iter().any(|other| other.life == access.life);
            let life = &world.truth.lives[access.life];
            // Freed memory of a stream that has ended may go back to the system.
            let may_depart = life.is_freed && world.truth.is_dropped(life.home);
            !is_given && !may_depart && self.addresses[access.life].is_some()
        };
        let bare = bare.into_iter().filter(is_told).map(|access| Access {
            range: 0..world.truth.lives[access.life].units,
            writes: true,
            ..access
        });
        let bare: Vec<_> = bare.collect();
        [recorded, bare].concat()
    }
}

impl Probe for Told {
    fn prepare(&mut self, world: &World, action: &Action) -> Action {
        let differ = |a: usize, b: usize| world.truth.device(a) != world.truth.device(b);
        match action {
            Action::WaitStream(stream, other) => self.has[1] |= differ(*stream, *other),
            // An event's records are on one device.
            Action::WaitEvent(stream, event) => {
                self.has[1] |= event % self.devices != world.truth.device(*stream);
            }
            Action::HostWait(_) => self.has[2] = true,
            _ => {}
        }
        match action {
            Action::Task(stream, accesses) => Action::Task(*stream, self.told(world, accesses)),
            action => action.clone(),
        }
    }

    fn task(&mut self, world: &World, stream: usize, accesses: &[Access], node: usize) -> Body {
        let first = self.list(accesses, node);
        let recorded = accesses.iter().filter(|access| access.is_recorded);
        let used: Vec<_> = recorded.map(|it| (world.slice(it), it.writes)).collect();
        let bare = accesses.iter().filter(|access| !access.is_recorded);
        let bare: Vec<_> = bare.map(|it| self.addresses[it.life].unwrap()).collect();
        let (stream, watch) = (world.stream(stream).clone(), Arc::clone(&self.watch));
        let numbered = Arc::clone(&self.numbered);
        Box::new(move || {
            launch(&stream, &used, &bare);
            number(&watch, &numbered, &stream, first);
        })
    }

    fn copied(&mut self, world: &World, stream: usize, accesses: &[Access; 2], node: usize) {
        let first = self.list(accesses, node);
        let [source, target] = accesses.each_ref().map(|it| world.truth.lives[it.life].home);
        self.has[1] |= world.truth.device(source) != world.truth.device(target);
        number(&self.watch, &self.numbered, world.stream(stream), first);
    }

    fn host_access(&mut self, world: &World, access: &Access, node: usize) {
        let first = self.list(std::slice::from_ref(access), node);
        let buffer = world.slice(access);
        if access.writes {
            buffer.write_from_slice(&vec![0; buffer.nbytes()]).unwrap();
        } else {
            drop(buffer.read_to_vec().unwrap());
        }
        self.host_accesses += 1;
        self.numbered.lock().unwrap().insert((HOST, self.host_accesses), first);
    }

    fn allocated(&mut self, world: &World) {
        let buffer = world.buffers.last().and_then(Option::as_ref).unwrap();
        let address = buffer.address().unwrap();
        let bytes = |life: usize| (world.truth.lives[life].units * UNIT_BYTES) as u64;
        let end = address + bytes(self.addresses.len());
        for (life, known) in self.addresses.iter_mut().enumerate() {
            if known.is_some_and(|known| known < end && address < known + bytes(life)) {
                self.has[0] = true;
                *known = None;
            }
        }
        self.addresses.push(Some(address));
    }
}

impl Run<Told> {
    /// What the watch has found, in the words of the semantics. An event's number is unknown.
    fn found(&self) -> BTreeSet<Finding> {
        let Told { watch, numbered, .. } = &self.probe;
        let numbered = numbered.lock().unwrap();
        let number = |used: &FoundUse| {
            let (Point { slot, ticket, .. }, nth) = used.id.expect("of a task or the host");
            numbered[&(slot, ticket)] + nth
        };
        let found = watch.findings(0).into_iter().map(|finding| {
            let second = || number(&finding.second);
            let first = || number(finding.first.as_ref().expect("two uses"));
            match finding.kind {
                FindingKind::Race => Finding::Race { first: first(), second: second() },
                FindingKind::HostAccess => Finding::HostAccess { first: first(), second: second() },
                FindingKind::UseAfterFree => Finding::UseAfterFree { access: second() },
                FindingKind::MissingRecordStream => {
                    Finding::MissingRecordStream { access: first() }
                }
                FindingKind::UninitializedRead => Finding::UninitializedRead { access: second() },
                FindingKind::UnrecordedEvent => {
                    let mut ids = self.world.stream_ids.iter();
                    let stream = ids.position(|id| Some(*id) == finding.second.stream);
                    let stream = stream.expect("of the program");
                    Finding::UnrecordedEvent { stream, event: 0 }
                }
            }
        });
        found.collect()
    }

    /// What is wrong with the program, and of that what no other finding stands for.
    fn expected(&self) -> (BTreeSet<Finding>, BTreeSet<Finding>) {
        let all: BTreeSet<Finding> = self
            .world
            .truth
            .findings
            .iter()
            .map(|finding| match *finding {
                Finding::UnrecordedEvent { stream, .. } => {
                    Finding::UnrecordedEvent { stream, event: 0 }
                }
                finding => finding,
            })
            .collect();
        let is_late = |access: usize| all.contains(&Finding::UseAfterFree { access });
        let is_reported = |finding: &&Finding| match **finding {
            Finding::Race { second, .. } | Finding::HostAccess { second, .. } => !is_late(second),
            _ => true,
        };
        let all: BTreeSet<Finding> = all.iter().filter(is_reported).copied().collect();
        let is_hidden = |finding: &Finding| {
            all.iter().any(|other| match (finding, other) {
                (
                    Finding::Race { first, second } | Finding::HostAccess { first, second },
                    Finding::Race { first: later, second: same }
                    | Finding::HostAccess { first: later, second: same },
                ) => second == same && self.hides(*later, *first),
                (
                    Finding::MissingRecordStream { access },
                    Finding::MissingRecordStream { access: later },
                ) => self.hides(*later, *access),
                _ => false,
            })
        };
        let needed = all.iter().filter(|finding| !is_hidden(finding)).copied().collect();
        (all, needed)
    }

    fn hides(&self, later: usize, earlier: usize) -> bool {
        let ((new, node), (old, before)) =
            (&self.probe.accesses[later], &self.probe.accesses[earlier]);
        let is_behind = node == before || self.world.truth.is_before(*before, *node);
        later > earlier
            && is_behind
            && new.life == old.life
            && new.range.start <= old.range.start
            && old.range.end <= new.range.end
            && (new.writes || !old.writes)
            && (new.is_recorded || !old.is_recorded)
    }

    fn finish(&self) -> Result<(), String> {
        self.world.wait_for_everything();
        let (all, needed) = self.expected();
        if self.probe.forgets {
            let found = self.probe.watch.findings(0);
            let is_right = !all.is_empty() || found.is_empty();
            return is_right.then_some(()).ok_or_else(|| format!("false alarms: {found:?}"));
        }
        let found = self.found();
        if let Some(made_up) = found.difference(&all).next() {
            return Err(format!("a false alarm: {made_up:?}"));
        }
        let missed = needed.difference(&found).next();
        missed.map_or(Ok(()), |missed| Err(format!("missed: {missed:?}")))
    }
}

#[test]
fn what_a_stream_waits_for_later_is_not_before_its_earlier_tasks() {
    let mut streams = Streams::default();
    let [waits, first, second, third] = [1, 2, 3, 4].map(|key| streams.slot(key, None));
    let task = |streams: &mut Streams, slot| streams.enqueue(slot, 1, 0);
    let earlier = task(&mut streams, waits);
    let done = task(&mut streams, first);
    streams.wait(second, done, true);
    let done = task(&mut streams, second);
    streams.wait_on_host(done, false);
    // The host knows all of the first wait, so that what was before it is forgotten.
    streams.wait(waits, done, true);
    let other = task(&mut streams, third);
    streams.wait(waits, other, true);
    assert!(!streams.past(earlier).covers(other));
    let later = streams.enqueue(waits, 2, 0);
    assert!(streams.past(later).covers(other));
}

#[test]
fn an_address_is_a_freed_buffers_until_its_memory_leaves_the_allocator() {
    let _alone = crate::sanitizer::alone();
    for settings in ["policy:native", "policy:torch", "policy:torch,expandable_segments:True"] {
        let config = Config::builder().cpu_devices(1).allocator_settings(settings);
        let runtime = Runtime::new(config.build().unwrap()).unwrap();
        let (watch, stream) = (Sanitizer::begin(&runtime), runtime.stream(cpu(0)).unwrap());
        let allocator = runtime.allocator(cpu(0)).unwrap();
        let buffers = [(); 2].map(|()| runtime.empty(128 << 10, cpu(0)).unwrap());
        let addresses = buffers.each_ref().map(|buffer| buffer.address().unwrap());
        drop(buffers);
        launch(&stream, &[], &addresses);
        let kinds = || watch.findings(0).iter().map(|found| found.kind).collect::<Vec<_>>();
        assert_eq!(kinds(), [FindingKind::UseAfterFree; 2], "{settings}");
        stream.synchronize().unwrap();
        allocator.empty_cache();
        assert_eq!(allocator.statistics().reserved_bytes.all.current, 0, "{settings}");
        launch(&stream, &[], &addresses); // by now of another's memory, or of none
        assert_eq!(kinds().len(), 2, "{settings}: they count as the buffers still");
    }
}

/// Runs programs of one shape of findings, and counts what they had.
fn check(programs: usize, seen: &mut Seen, forgets: bool, shape: impl Fn(&mut Numbers) -> Shape) {
    let config = Config::builder().cpu_devices(DEVICES).cpu_threads(2).build().unwrap();
    let runtime = Runtime::new(config).unwrap();
    let base = seed();
    let programs = asked::asked("ACCELRT_TEST_PROGRAMS").unwrap_or(programs);
    for number in 0..programs as u64 {
        let own = base.wrapping_add(number);
        let mut numbers = Numbers::new(own);
        let shape = shape(&mut numbers);
        let told = Told::new(&runtime, shape.devices, forgets);
        let mut run = Run::on(runtime.clone(), &shape, UNIT_BYTES, told);
        let draft = program::draw(shape, numbers);
        for action in &draft.actions {
            run.step(action);
        }
        if let Err(why) = run.finish() {
            let accesses = run.probe.accesses.iter().enumerate().map(|it| format!("{it:?}"));
            let actions = draft.actions.iter().map(|action| format!("{action:?}"));
            let text = actions.chain(accesses).collect::<Vec<_>>().join("\n");
            panic!("{text}\n{why}\nACCELRT_TEST_SEED={own} repeats it");
        }
        let [reuses, across_devices, host_waits] = run.probe.has.map(usize::from);
        seen.programs += 1;
        seen.reuses += reuses;
        seen.across_devices += across_devices;
        seen.host_waits += host_waits;
        let is_forgotten = run.probe.watch.num_forgotten() > 0;
        seen.forgotten += usize::from(is_forgotten && run.world.truth.findings.is_empty());
        for finding in &run.world.truth.findings {
            let text = format!("{finding:?}");
            let (name, _) = text.split_once(' ').expect("a name and its numbers");
            *seen.findings.entry(name.to_owned()).or_default() += 1;
        }
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "what the run has covered")]
fn of_random_programs_no_finding_is_missed_and_none_is_made_up() {
    let _alone = crate::sanitizer::alone();
    let mut seen = Seen::default();
    check(4_000, &mut seen, false, |numbers| {
        let (care_percent, bare_percent) = (30 + numbers.below(71), numbers.below(2) * 30);
        Shape { bare_percent, ..Shape::draw(numbers, care_percent) }
    });
    println!("{seen:?}");
    let is_whole = seen.programs >= 4_000;
    let least = [seen.reuses, seen.across_devices, seen.host_waits].into_iter().min();
    assert!(!is_whole || least >= Some(1_000) && seen.findings.len() == 6, "{seen:?}");
}

#[test]
#[expect(clippy::print_stdout, reason = "what the run has covered")]
fn of_random_programs_none_is_made_up_where_most_streams_find_no_room() {
    let _alone = crate::sanitizer::alone();
    let mut seen = Seen::default();
    check(2_000, &mut seen, true, |numbers| Shape::draw(numbers, 100));
    println!("{seen:?}");
    assert!(seen.programs < 2_000 || seen.forgotten >= 500, "{seen:?}");
}
