//! Pairs of one thread (A1, A2): what is taken is given back at once, or stays for a while.
//!
//! PyTorch's allocator is asked the same in a process of its own.

use std::hint::black_box;
use std::{io, iter, mem};

use accelrt::{Device, Runtime};

use super::c10::C10;
use super::malloc::Peer;
use super::model::{MODEL, Model};
use super::{Memory, Numbers, Size, accounting, settings};
use crate::measure::{Figure, Thing, all_in_turns, repeated, warm_ns_per_round, warm_rounds};
use crate::quiet::Watch;
use crate::table::Table;

/// Pairs of a block of one's own, and how many blocks.
const PAIRS: usize = 10_000;
const BLOCKS: usize = 10;
/// Of sizes for which some ask the system each time.
const LARGE_PAIRS: usize = 1_000;
/// The same among many live blocks.
const ROUNDS: usize = 500;
const ROUND_BLOCKS: usize = 200;
const LIVE: usize = 1_000;

const SIZES: [(&str, usize); 4] =
    [("A1.512B", 512), ("A1.64KiB", 64 << 10), ("A1.2MiB", 2 << 20), ("A1.64MiB", 64 << 20)];

pub(super) fn measure(runtime: &Runtime, c10: Option<&C10>, table: &mut Table) -> io::Result<()> {
    let mut peers = Peer::all()?;
    for (name, bytes) in SIZES {
        cached(runtime, &mut peers, c10, (name, bytes), table)?;
    }
    not_cached(c10, table)
}

/// A2: other blocks live.
fn not_cached(c10: Option<&C10>, table: &mut Table) -> io::Result<()> {
    let (ours, model) = (accounting(), Model::new());
    let (mut of_ours, mut of_model) =
        (Churn::new(&ours, LIVE, middle), Churn::new(&model, LIVE, middle));
    let mut real = c10.map(C10::allocator).transpose()?;
    let (mut of_ours, mut of_model) =
        (|watch: &mut Watch<'_>| of_ours.ns(watch), |watch: &mut Watch<'_>| of_model.ns(watch));
    let mut of_real = real.as_mut().map(|real| {
        real.take_live(LIVE, LEAST_BYTES, MOST_BYTES);
        |watch: &mut Watch<'_>| watch.blocks(ROUND_BLOCKS, ROUNDS, |rounds| real.round_ns(rounds))
    });
    let mut things: Vec<&mut Thing<'_>> = vec![&mut of_ours, &mut of_model];
    things.extend(of_real.as_mut().map(|thing| thing as &mut Thing<'_>));
    let figures = all_in_turns(&mut things);
    table.row("A2", figures[0])?;
    table.against("A2.model", figures[0], (MODEL, Some(figures[1])))?;
    table.against("A2.c10", figures[0], (C10::name(c10), figures.get(2).copied()))
}

const LEAST_BYTES: usize = 1 << 20;
const MOST_BYTES: usize = 16 << 20;

/// Sizes that a cache of one thread has not: nearly all of them different.
fn middle(numbers: &mut Numbers) -> usize {
    LEAST_BYTES + 512 * (1 + numbers.below((MOST_BYTES - LEAST_BYTES) / 512))
}

type Peers = Vec<(&'static str, Option<Peer>)>;

/// A1: the thread has the memory.
fn cached(
    runtime: &Runtime,
    peers: &mut Peers,
    c10: Option<&C10>,
    (name, bytes): (&str, usize),
    table: &mut Table,
) -> io::Result<()> {
    let ours = runtime.separate_allocator(Device::cpu(0), settings()).expect("an allocator");
    let model = Model::new();
    let (blocks, peer_pairs) = if bytes > 64 << 10 { (1, LARGE_PAIRS) } else { (BLOCKS, PAIRS) };
    let mut of_ours = |watch: &mut Watch<'_>| pairs_ns(&ours, bytes, watch);
    let mut of_model = |watch: &mut Watch<'_>| pairs_ns(&model, bytes, watch);
    let mut real = c10.map(C10::allocator).transpose()?;
    let mut of_real = real.as_mut().map(|real| {
        |watch: &mut Watch<'_>| watch.blocks(BLOCKS, PAIRS, |pairs| real.pair_ns(bytes, pairs))
    });
    let mut things: Vec<&mut Thing<'_>> = vec![&mut of_ours, &mut of_model];
    let present = peers.iter_mut().filter_map(|(_, peer)| peer.as_mut());
    let (names, mut of_peers): (Vec<_>, Vec<_>) = present
        .map(|peer| {
            let name = peer.name;
            let measured = move |watch: &mut Watch<'_>| {
                watch.blocks(blocks, peer_pairs, |pairs| peer.pair_ns(bytes, pairs))
            };
            (name, measured)
        })
        .unzip();
    things.extend(of_peers.iter_mut().map(|thing| thing as &mut Thing<'_>));
    things.extend(of_real.as_mut().map(|thing| thing as &mut Thing<'_>));
    let figures = all_in_turns(&mut things);
    let (ours, model) = (figures[0], figures[1]);
    let real = c10.and(figures.last().copied());
    table.row(name, ours)?;
    table.against(&format!("{name}.model"), ours, (MODEL, Some(model)))?;
    table.against(&format!("{name}.c10"), ours, (C10::name(c10), real))?;
    let measured: Vec<_> = names.into_iter().zip(figures[2..].iter().copied()).collect();
    for (peer, _) in peers.iter() {
        let figure = measured.iter().find(|(name, _)| name == peer).map(|(_, figure)| *figure);
        table.against(&format!("{name}.{peer}"), ours, (*peer, figure))?;
    }
    let best = measured.iter().filter(|(name, _)| *name != "glibc");
    let best = best.min_by(|(_, one), (_, other)| one.median.total_cmp(&other.median));
    let (label, figure) = best.map_or(("best malloc", None), |(name, it)| (*name, Some(*it)));
    table.against(&format!("{name}.best"), ours, (label, figure))
}

/// Per pair, as every figure of them is measured.
pub(super) fn pairs_ns(memory: &impl Memory, bytes: usize, watch: &mut Watch<'_>) -> f64 {
    watch.blocks(BLOCKS, PAIRS, |pairs| pair_ns(memory, bytes, pairs))
}

/// Per pair of a request and its free.
pub(super) fn pair_ns(memory: &impl Memory, bytes: usize, pairs: usize) -> f64 {
    warm_ns_per_round(pairs, || {
        let block = memory.allocate(black_box(bytes), 0);
        memory.free(black_box(block));
    })
}

/// Blocks that live for a while: each round frees one of them and takes another.
pub(super) struct Churn<'a, M: Memory> {
    memory: &'a M,
    live: Vec<M::Block>,
    numbers: Numbers,
    size: Size,
}

impl<'a, M: Memory> Churn<'a, M> {
    pub(super) fn new(memory: &'a M, live: usize, size: Size) -> Self {
        let mut numbers = Numbers::new();
        let live = (0..live).map(|_| memory.allocate(size(&mut numbers), 0)).collect();
        Self { memory, live, numbers, size }
    }

    /// Per round. What a round frees and takes is drawn before: random numbers and their divisions
    /// would be some 3 % of the time.
    fn ns(&mut self, watch: &mut Watch<'_>) -> f64 {
        let Self { memory, live, numbers, size } = self;
        watch.blocks(ROUND_BLOCKS, ROUNDS, |rounds| {
            let draw = || (numbers.below(live.len()), size(numbers));
            let drawn: Vec<_> = iter::repeat_with(draw).take(warm_rounds(rounds)).collect();
            let mut drawn = drawn.iter();
            warm_ns_per_round(rounds, || {
                let Some((place, bytes)) = drawn.next() else { return };
                memory.free(mem::take(&mut live[*place]));
                live[*place] = memory.allocate(*bytes, 0);
            })
        })
    }

    /// What the names of the blocks take.
    pub(super) fn names_bytes(&self) -> usize {
        self.live.capacity() * size_of::<M::Block>()
    }

    /// The median and the least of as many measurements as every figure has.
    pub(super) fn figure(&mut self) -> Figure {
        repeated(|watch| self.ns(watch))
    }
}

impl<M: Memory> Drop for Churn<'_, M> {
    fn drop(&mut self) {
        for block in self.live.drain(..) {
            self.memory.free(block);
        }
    }
}
