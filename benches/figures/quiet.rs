//! Quiet moments: what counts was taken while the machine had its full speed before and after it.
//!
//! Where others use the other half of a processor's core, code with many calls, branches and
//! accesses runs at half its speed, for milliseconds or for hours. A *pulse*, blocks of memory that
//! are taken and given back in turns, tells whether it is so now: it takes up to 1.1 times its
//! best or from 1.5 times on, and never what is between, which instructions between registers and
//! words that are written and read again do. It knows nothing of what is measured, and what is ours
//! and the peers' is taken again by the same rule.
//!
//! The speed changes within milliseconds, so a loop is measured in *blocks* of some 100 us, each
//! between two pulses of its own.

use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::measure::{ns_per_round, number};

/// A moment is quiet when its pulse is within this factor of the best one seen.
pub(crate) const QUIET_FACTOR: f64 = 1.2;

/// How long the best pulse is looked for before the first repetition.
const FIRST_LOOK: Duration = Duration::from_secs(1);

/// Rounds of a pulse, and of how many the least is taken: what interrupts one is not the machine's
/// speed. Some 10 us in all.
const PULSE_ROUNDS: usize = 250;
const PULSES: usize = 4;

/// Between two looks while the machine is slow.
const BETWEEN_LOOKS: Duration = Duration::from_micros(500);

/// What each thing has unless the command line says otherwise.
const USUAL_PATIENCE: Duration = Duration::from_secs(3);

static PATIENCE: OnceLock<Duration> = OnceLock::new();

/// What the repetitions of one thing may spend on waiting and on what does not count.
pub(crate) struct Patience {
    left: Duration,
}

impl Patience {
    /// For so many things.
    pub(crate) fn of(things: u32) -> Self {
        Self { left: *PATIENCE.get_or_init(|| USUAL_PATIENCE) * things }
    }

    /// For what does not count.
    pub(crate) fn none() -> Self {
        Self { left: Duration::ZERO }
    }

    /// For all rows: once, before the first.
    pub(crate) fn set_usual(patience: Duration) {
        PATIENCE.set(patience).expect("set before the first row");
    }

    fn spend(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
    }
}

/// What one repetition is measured by.
pub(crate) struct Watch<'a> {
    patience: &'a mut Patience,
    is_quiet: bool,
    blocks: Vec<f64>,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(patience: &'a mut Patience) -> Self {
        Self { patience, is_quiet: true, blocks: Vec::new() }
    }

    /// True when all that counts was taken in quiet moments.
    pub(crate) fn was_quiet(&self) -> bool {
        self.is_quiet
    }

    /// What every block took, in their order, those included that were taken again.
    pub(crate) fn into_blocks(self) -> Vec<f64> {
        self.blocks
    }

    /// Measures in a quiet moment while there is patience, and then as it comes.
    pub(crate) fn once(&mut self, mut thing: impl FnMut() -> f64) -> f64 {
        loop {
            let was_quiet = self.wait();
            let began = Instant::now();
            let value = thing();
            let is_quiet = was_quiet && is_quiet();
            self.blocks.push(value);
            if is_quiet || self.patience.left.is_zero() {
                self.is_quiet &= is_quiet;
                return value;
            }
            self.patience.spend(began.elapsed());
        }
    }

    /// The mean of so many blocks: for each, `ns_of` is asked for this many rounds.
    pub(crate) fn blocks(
        &mut self,
        blocks: usize,
        rounds: usize,
        mut ns_of: impl FnMut(usize) -> f64,
    ) -> f64 {
        (0..blocks).map(|_| self.once(|| ns_of(rounds))).sum::<f64>() / number(blocks)
    }

    /// True when a quiet moment came.
    fn wait(&mut self) -> bool {
        let began = Instant::now();
        let mut is_now = is_quiet();
        while !is_now && began.elapsed() < self.patience.left {
            thread::sleep(BETWEEN_LOOKS);
            is_now = is_quiet();
        }
        self.patience.spend(began.elapsed());
        is_now
    }
}

/// True when the machine has its full speed now, as far as this process has seen that.
fn is_quiet() -> bool {
    static BEST: OnceLock<AtomicU64> = OnceLock::new();
    let best = BEST.get_or_init(|| {
        let (began, mut best) = (Instant::now(), f64::INFINITY);
        while began.elapsed() < FIRST_LOOK {
            best = best.min(pulse_ns());
            thread::sleep(BETWEEN_LOOKS);
        }
        AtomicU64::new(best.to_bits())
    });
    let now = pulse_ns();
    // Relaxed: one thread measures.
    let seen = f64::from_bits(best.load(Ordering::Relaxed));
    best.store(now.min(seen).to_bits(), Ordering::Relaxed);
    now <= seen * QUIET_FACTOR
}

fn pulse_ns() -> f64 {
    let pulse = || ns_per_round(PULSE_ROUNDS, || drop(black_box(Box::new([0_u64; 4]))));
    (0..PULSES).map(|_| pulse()).fold(f64::INFINITY, f64::min)
}
