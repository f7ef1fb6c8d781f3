//! Measuring: eleven repetitions after a warm-up, of which the median and the least count.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::quiet::{Patience, Watch};

pub(crate) const REPETITIONS: usize = 11;

/// Which part of a block's rounds comes first, untimed: the pulse and a wait leave caches cold and
/// workers asleep.
pub(crate) const WARM_UP: usize = 8;

/// What was measured, in nanoseconds unless the row says otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    pub(crate) least: f64,
    /// How many of the repetitions were taken while the machine was quiet, where that was seen to.
    pub(crate) quiet: Option<usize>,
    /// The same where every block counts, where there are blocks.
    pub(crate) unfiltered: Option<Unfiltered>,
}

/// Of all blocks, those included that were taken again because the machine was not quiet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unfiltered {
    pub(crate) median: f64,
    /// Of a hundred blocks 99 took no longer.
    pub(crate) p99: f64,
}

impl Unfiltered {
    fn of(mut blocks: Vec<f64>) -> Option<Self> {
        blocks.sort_by(f64::total_cmp);
        let last = blocks.len().checked_sub(1)?;
        Some(Self { median: blocks[blocks.len() / 2], p99: blocks[last - last / 100] })
    }
}

impl Figure {
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        assert!(!values.is_empty(), "something was measured");
        values.sort_by(f64::total_cmp);
        Self { median: values[values.len() / 2], least: values[0], quiet: None, unfiltered: None }
    }

    /// The geometric mean of several, each part of it; as seldom quiet as the least quiet one.
    pub(crate) fn mean(figures: &[Self]) -> Self {
        let of = |part: &dyn Fn(&Self) -> f64| geometric_mean(figures.iter().map(part));
        let are_unfiltered = figures.iter().all(|figure| figure.unfiltered.is_some());
        let every_block =
            |part: fn(Unfiltered) -> f64| of(&|it| it.unfiltered.map_or(f64::NAN, part));
        Self {
            median: of(&|it| it.median),
            least: of(&|it| it.least),
            quiet: figures.iter().map(|figure| figure.quiet).min().flatten(),
            unfiltered: are_unfiltered.then(|| Unfiltered {
                median: every_block(|it| it.median),
                p99: every_block(|it| it.p99),
            }),
        }
    }

    /// One value that does not vary.
    pub(crate) fn exact(value: f64) -> Self {
        Self { median: value, least: value, quiet: None, unfiltered: None }
    }
}

/// Something that is measured, once a repetition.
pub(crate) type Thing<'a> = dyn FnMut(&mut Watch<'_>) -> f64 + 'a;

/// Measures several things in turns, so that whatever slows the machine slows all of them: their
/// ratios come from one run. The first turn warms up and does not count.
pub(crate) fn in_turns<const N: usize>(mut things: [&mut Thing<'_>; N]) -> [Figure; N] {
    let figures: Result<[Figure; N], _> = all_in_turns(&mut things).try_into();
    figures.expect("as many figures as things")
}

/// The same, of so many things.
pub(crate) fn all_in_turns(things: &mut [&mut Thing<'_>]) -> Vec<Figure> {
    let mut warm_up = Patience::none();
    for thing in things.iter_mut() {
        thing(&mut Watch::new(&mut warm_up));
    }
    // Of each its own: what a peer does may be seldom quiet.
    let fresh = || (Patience::of(1), Vec::new(), Vec::new());
    let mut measured: Vec<_> = things.iter().map(|_| fresh()).collect();
    for _ in 0..REPETITIONS {
        for (thing, (patience, repetitions, blocks)) in things.iter_mut().zip(&mut measured) {
            let mut watch = Watch::new(patience);
            repetitions.push((thing(&mut watch), watch.was_quiet()));
            blocks.append(&mut watch.into_blocks());
        }
    }
    let figure = |repetitions: Vec<(f64, bool)>, blocks: Vec<f64>| {
        let quiet = Some(repetitions.iter().filter(|(_, is_quiet)| *is_quiet).count());
        let values = repetitions.into_iter().map(|(value, _)| value);
        Figure { quiet, unfiltered: Unfiltered::of(blocks), ..Figure::of(values.collect()) }
    };
    measured.into_iter().map(|(_, repetitions, blocks)| figure(repetitions, blocks)).collect()
}

/// Measures one thing.
pub(crate) fn repeated(mut thing: impl FnMut(&mut Watch<'_>) -> f64) -> Figure {
    let [figure] = in_turns([&mut thing]);
    figure
}

/// Ours and a peer's that are compared by their difference.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) ours: Figure,
    pub(crate) peer: Figure,
    /// The median of what ours took more in each repetition.
    pub(crate) excess_ns: f64,
}

/// Measures blocks of ours and of a peer in pairs, so that a difference is of neighbours; who is
/// first alternates. A repetition is the medians of its blocks and of their differences: what one
/// block was interrupted by is not the mean's. The first repetition warms up.
pub(crate) fn in_pairs(
    pairs: usize,
    rounds: usize,
    mut ours_ns_of: impl FnMut(usize) -> f64,
    mut peers_ns_of: impl FnMut(usize) -> f64,
) -> Pair {
    let mut is_ours_first = false;
    let mut pair = |watches: &mut [Watch<'_>; 2]| {
        is_ours_first = !is_ours_first;
        let (mut ours, mut peers) = (0.0, 0.0);
        for is_ours in [is_ours_first, !is_ours_first] {
            if is_ours {
                ours = watches[0].blocks(1, rounds, &mut ours_ns_of);
            } else {
                peers = watches[1].blocks(1, rounds, &mut peers_ns_of);
            }
        }
        [ours, peers, ours - peers]
    };
    let mut repetition = |[of_ours, of_peer]: &mut [Patience; 2]| {
        let mut watches = [Watch::new(of_ours), Watch::new(of_peer)];
        let measured: Vec<_> = (0..pairs).map(|_| pair(&mut watches)).collect();
        let median = |of: usize| Figure::of(measured.iter().map(|pair| pair[of]).collect()).median;
        let is_quiet = watches.iter().all(Watch::was_quiet);
        ([median(0), median(1), median(2)], is_quiet, watches.map(Watch::into_blocks))
    };
    repetition(&mut [Patience::none(), Patience::none()]);
    let mut patience = [Patience::of(1), Patience::of(1)];
    let repetitions: Vec<_> = (0..REPETITIONS).map(|_| repetition(&mut patience)).collect();
    let quiet = Some(repetitions.iter().filter(|(_, is_quiet, _)| *is_quiet).count());
    let figure = |of: usize| {
        let values = repetitions.iter().map(|(medians, ..)| medians[of]).collect();
        let blocks = repetitions.iter().filter_map(|(.., blocks)| blocks.get(of));
        let unfiltered = Unfiltered::of(blocks.flatten().copied().collect());
        Figure { quiet, unfiltered, ..Figure::of(values) }
    };
    Pair { ours: figure(0), peer: figure(1), excess_ns: figure(2).median }
}

/// Nanoseconds that one of `count` rounds of `work` takes.
#[inline]
pub(crate) fn ns_per_round(count: usize, mut work: impl FnMut()) -> f64 {
    let started = Instant::now();
    for _ in 0..count {
        work();
    }
    ns_each(started.elapsed(), count)
}

/// The same, of a block. The rounds that warm up are of the loop that counts: work that stands in
/// two places would be called there, where a program's own loop has it in line.
pub(crate) fn warm_ns_per_round(count: usize, mut work: impl FnMut()) -> f64 {
    let mut ns = 0.0;
    for rounds in black_box([count / WARM_UP, count]) {
        ns = ns_per_round(rounds, &mut work);
    }
    ns
}

/// The rounds of [`warm_ns_per_round`], with those that warm up.
pub(crate) fn warm_rounds(count: usize) -> usize {
    count / WARM_UP + count
}

/// Nanoseconds of a time that `count` things took.
pub(crate) fn ns_each(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e9 / number(count)
}

fn geometric_mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = number(values.len());
    (values.map(f64::ln).sum::<f64>() / count).exp()
}

/// A count as a number to divide by.
#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^53")]
pub(crate) fn number(count: usize) -> f64 {
    count as f64
}
