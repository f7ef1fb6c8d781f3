//! Measuring: eleven repetitions after a warm-up, of which the median and the least count.

use std::time::{Duration, Instant};

use crate::quiet::Patience;

pub(crate) const REPETITIONS: usize = 11;

/// What was measured, in nanoseconds unless the row says otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    pub(crate) least: f64,
    /// How many of the repetitions were taken while the machine was quiet, where that was seen to.
    pub(crate) quiet: Option<usize>,
}

impl Figure {
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        assert!(!values.is_empty(), "something was measured");
        values.sort_by(f64::total_cmp);
        Self { median: values[values.len() / 2], least: values[0], quiet: None }
    }

    /// One value that does not vary.
    pub(crate) fn exact(value: f64) -> Self {
        Self { median: value, least: value, quiet: None }
    }
}

/// Measures several things in turns, so that whatever slows the machine slows all of them: their
/// ratios come from one run. The first turn warms up and does not count.
pub(crate) fn in_turns<const N: usize>(mut things: [&mut dyn FnMut() -> f64; N]) -> [Figure; N] {
    let figures: Result<[Figure; N], _> = all_in_turns(&mut things).try_into();
    figures.expect("as many figures as things")
}

/// The same, of so many things.
pub(crate) fn all_in_turns(things: &mut [&mut dyn FnMut() -> f64]) -> Vec<Figure> {
    let mut patience = Patience::new();
    for thing in things.iter_mut() {
        thing();
    }
    let mut repetitions = vec![Vec::new(); things.len()];
    for _ in 0..REPETITIONS {
        for (thing, repetitions) in things.iter_mut().zip(&mut repetitions) {
            repetitions.push(patience.measure(*thing));
        }
    }
    let figure = |repetitions: Vec<(f64, bool)>| {
        let quiet = repetitions.iter().filter(|(_, is_quiet)| *is_quiet).count();
        let values = repetitions.into_iter().map(|(value, _)| value);
        Figure { quiet: Some(quiet), ..Figure::of(values.collect()) }
    };
    repetitions.into_iter().map(figure).collect()
}

/// Measures one thing.
pub(crate) fn repeated(mut thing: impl FnMut() -> f64) -> Figure {
    let [figure] = in_turns([&mut thing]);
    figure
}

/// Nanoseconds that one of `count` rounds of `work` takes.
pub(crate) fn ns_per_round(count: usize, mut work: impl FnMut()) -> f64 {
    let started = Instant::now();
    for _ in 0..count {
        work();
    }
    ns_each(started.elapsed(), count)
}

/// Nanoseconds of a time that `count` things took.
pub(crate) fn ns_each(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e9 / number(count)
}

/// A count as a number to divide by.
#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^53")]
pub(crate) fn number(count: usize) -> f64 {
    count as f64
}
