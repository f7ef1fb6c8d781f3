//! Whole traces (A3): each event's cost, against numbers in place of memory.

use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;
use std::{fs, io};

use accelrt::allocator::CachingAllocator;
use accelrt_replay::{Operation, replay};

use super::c10::C10;
use super::model::{MODEL, Model};
use super::{Memory, accounting};
use crate::measure::{Figure, Thing, all_in_turns, ns_each};
use crate::quiet::Watch;
use crate::table::Table;

pub(super) fn measure(
    folder: Option<&Path>,
    c10: Option<&C10>,
    table: &mut Table,
) -> io::Result<()> {
    let traces = folder.map_or_else(|| Ok(Vec::new()), read_all)?;
    if traces.is_empty() {
        return ROWS
            .iter()
            .try_for_each(|row| table.unmeasured(row, "no traces: --traces names their folder"));
    }
    let mut measured = Vec::new();
    for trace in &traces {
        let figures = measure_one(&trace.events, c10)?;
        let name = format!("A3.c10.{}", trace.name);
        table.against(&name, figures.first, (C10::name(c10), figures.real_first))?;
        measured.push(figures);
    }
    let mean =
        |of: fn(&Figures) -> Figure| Figure::mean(&measured.iter().map(of).collect::<Vec<_>>());
    let mean_of_real = |of: fn(&Figures) -> Option<Figure>| {
        let figures: Option<Vec<_>> = measured.iter().map(of).collect();
        figures.map(|figures| Figure::mean(&figures))
    };
    let (first, again) = (mean(|it| it.first), mean(|it| it.again));
    table.row("A3", first)?;
    table.against("A3.model", first, (MODEL, Some(mean(|it| it.model))))?;
    table.against("A3.c10", first, (C10::name(c10), mean_of_real(|it| it.real_first)))?;
    table.row("A3.again", again)?;
    table.against("A3.again.c10", again, (C10::name(c10), mean_of_real(|it| it.real_again)))
}

const ROWS: [&str; 5] = ["A3", "A3.model", "A3.c10", "A3.again", "A3.again.c10"];

/// Of one trace, per event: on an allocator without memory, and on one that replayed it before.
struct Figures {
    first: Figure,
    again: Figure,
    model: Figure,
    real_first: Option<Figure>,
    real_again: Option<Figure>,
}

/// A repetition replays a short trace several times.
const EVENTS: usize = 20_000;

fn measure_one(events: &[Operation], c10: Option<&C10>) -> io::Result<Figures> {
    let blocks = (EVENTS / events.len().max(1)).max(1);
    let ns = |allocator: &CachingAllocator| {
        replay(allocator, events).expect("there is enough").ns_per_event
    };
    let kept = accounting();
    let mut first = |watch: &mut Watch<'_>| watch.blocks(blocks, 1, |_| ns(&accounting()));
    let mut again = |watch: &mut Watch<'_>| watch.blocks(blocks, 1, |_| ns(&kept));
    let mut model = |watch: &mut Watch<'_>| watch.blocks(blocks, 1, |_| of_model(events));
    let [mut real, mut kept_real] =
        [c10.map(C10::allocator).transpose()?, c10.map(C10::allocator).transpose()?];
    let mut real_first = real.as_mut().map(|real| {
        real.read(events);
        move |watch: &mut Watch<'_>| watch.blocks(blocks, 1, |_| real.first_ns())
    });
    let mut real_again = kept_real.as_mut().map(|real| {
        real.read(events);
        move |watch: &mut Watch<'_>| watch.blocks(blocks, 1, |_| real.again_ns())
    });
    let mut things: Vec<&mut Thing<'_>> = vec![&mut first, &mut again, &mut model];
    things.extend(real_first.as_mut().map(|thing| thing as &mut Thing<'_>));
    things.extend(real_again.as_mut().map(|thing| thing as &mut Thing<'_>));
    let figures = all_in_turns(&mut things);
    let of = |place: usize| figures.get(place).copied();
    let [first, again, model] = [figures[0], figures[1], figures[2]];
    Ok(Figures { first, again, model, real_first: of(3), real_again: of(4) })
}

/// Per event against the model.
fn of_model(events: &[Operation]) -> f64 {
    let steps = steps(events);
    let places = steps.iter().map(|step| step.place + 1).max().unwrap_or(0);
    let (model, mut live) = (Model::new(), vec![0; places]);
    let started = Instant::now();
    for step in &steps {
        match step.bytes {
            Some(bytes) => live[step.place] = model.allocate(bytes, step.stream),
            None => model.free(live[step.place]),
        }
    }
    ns_each(started.elapsed(), steps.len())
}

/// An event without a number to look up.
struct Step {
    place: usize,
    /// `None` for a free.
    bytes: Option<usize>,
    stream: u64,
}

fn steps(events: &[Operation]) -> Vec<Step> {
    let (mut places, mut vacant) = (HashMap::new(), Vec::new());
    let step = |event: &Operation| match *event {
        Operation::Allocate { id, bytes, stream } => {
            let place = vacant.pop().unwrap_or(places.len());
            places.insert(id, place);
            // A request for nothing gets nothing.
            Step { place, bytes: Some(bytes.max(1)), stream }
        }
        Operation::Free { id } => {
            let place = places.remove(&id).expect("it is live");
            vacant.push(place);
            Step { place, bytes: None, stream: 0 }
        }
    };
    events.iter().map(step).collect()
}

/// The events of a table, and its name.
struct Trace {
    name: String,
    events: Vec<Operation>,
}

/// The tables of events that are there.
fn read_all(folder: &Path) -> io::Result<Vec<Trace>> {
    let Ok(files) = fs::read_dir(folder.join("ops")) else { return Ok(Vec::new()) };
    let mut files: Vec<_> = files.map(|file| Ok(file?.path())).collect::<io::Result<_>>()?;
    files.sort();
    let tables = files.iter().filter_map(|file| {
        let name = file.file_name()?.to_str()?.strip_suffix(".ops.csv")?;
        Some((name.to_owned(), file))
    });
    tables
        .map(|(name, file)| {
            let events = fs::read_to_string(file)?.lines().skip(1).map(operation).collect();
            Ok(Trace { name, events })
        })
        .collect()
}

/// A line of a table: time, `a` or `f`, number, size, stream.
fn operation(line: &str) -> Operation {
    let fields: Vec<_> = line.split(',').collect();
    let number = |place: usize| fields[place].parse().expect("a whole number");
    let id = number(2);
    if fields[1] == "f" {
        return Operation::Free { id };
    }
    let bytes = usize::try_from(number(3)).expect("a size");
    Operation::Allocate { id, bytes, stream: number(4) }
}
