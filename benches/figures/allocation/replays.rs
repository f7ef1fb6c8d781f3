//! Whole traces (A3): each event's cost, against numbers in place of memory.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Instant;

use accelrt::allocator::replay::{Operation, replay};

use super::model::Model;
use super::{Memory, accounting};
use crate::measure::{Figure, in_turns, ns_each, number};
use crate::table::Table;

pub(super) fn measure(folder: &Path, table: &mut Table) -> io::Result<()> {
    let traces = read_all(folder)?;
    if traces.is_empty() {
        return table.unmeasured("A3", "no traces: --traces names their folder");
    }
    let of_all = |ns: &dyn Fn(&[Operation]) -> f64| {
        let logarithms = traces.iter().map(|events| ns(events).ln());
        (logarithms.sum::<f64>() / number(traces.len())).exp()
    };
    let ours =
        |events: &[Operation]| replay(&accounting(), events).expect("there is enough").ns_per_event;
    let [ours, model]: [Figure; 2] =
        in_turns([&mut |watch| watch.once(|| of_all(&ours)), &mut |watch| {
            watch.once(|| of_all(&of_model))
        }]);
    table.row("A3", ours)?;
    table.against("A3.model", ours, ("model of PyTorch's", Some(model)))
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

/// The tables of events that are there.
fn read_all(folder: &Path) -> io::Result<Vec<Vec<Operation>>> {
    let Ok(files) = fs::read_dir(folder.join("ops")) else { return Ok(Vec::new()) };
    let mut files: Vec<_> = files.map(|file| Ok(file?.path())).collect::<io::Result<_>>()?;
    files.sort();
    let tables = files.iter().filter(|file| file.extension().is_some_and(|it| it == "csv"));
    tables
        .map(|file| Ok(fs::read_to_string(file)?.lines().skip(1).map(operation).collect()))
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
