//! Quiet moments: a repetition counts when the machine had its full speed before it and after it.
//!
//! Where others use the other half of a processor's core, whatever reads again what it has just
//! written runs at half its speed, for milliseconds or for hours. A *pulse*, words that are written
//! and read in turns, tells whether it is so now; instructions between registers do not. It knows
//! nothing of what is measured, and ours and the peers' repetitions are taken again by the same
//! rule.

use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::measure::ns_per_round;

/// A moment is quiet when its pulse is within this factor of the best one seen.
pub(crate) const QUIET_FACTOR: f64 = 1.2;

/// How long the best pulse is looked for before the first repetition.
const FIRST_LOOK: Duration = Duration::from_secs(1);

/// Rounds of a pulse, and of how many the least is taken: what interrupts one is not the machine's
/// speed. Some 10 us in all.
const PULSE_ROUNDS: usize = 3_000;
const PULSES: usize = 4;

/// Between two looks while the machine is slow.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// What each row has unless the command line says otherwise.
const USUAL_PATIENCE: Duration = Duration::from_secs(3);

static PATIENCE: OnceLock<Duration> = OnceLock::new();

/// What the repetitions of one row may spend on waiting and on repetitions that do not count.
pub(crate) struct Patience {
    left: Duration,
}

impl Patience {
    pub(crate) fn new() -> Self {
        Self { left: *PATIENCE.get_or_init(|| USUAL_PATIENCE) }
    }

    /// For all rows: once, before the first.
    pub(crate) fn set_usual(patience: Duration) {
        PATIENCE.set(patience).expect("set before the first row");
    }

    /// Measures in a quiet moment while there is patience, and then as it comes; whether the
    /// moment was quiet, too.
    pub(crate) fn measure(&mut self, thing: &mut dyn FnMut() -> f64) -> (f64, bool) {
        loop {
            let began = Instant::now();
            let was_quiet = self.wait();
            let value = thing();
            let is_quiet = was_quiet && is_quiet();
            if is_quiet || self.left.is_zero() {
                return (value, is_quiet);
            }
            self.left = self.left.saturating_sub(began.elapsed());
        }
    }

    /// True when a quiet moment came.
    fn wait(&self) -> bool {
        let began = Instant::now();
        loop {
            if is_quiet() {
                return true;
            }
            if began.elapsed() >= self.left {
                return false;
            }
            thread::sleep(BETWEEN_LOOKS);
        }
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
    let mut words = [0_u64; 9];
    let mut round = 0;
    let mut pulse = || {
        ns_per_round(PULSE_ROUNDS, || {
            let words = black_box(&mut words); // in memory, at each round
            words[round % 8] = words[(round + 1) % 8].wrapping_add(1);
            words[8] = words[8].wrapping_add(1);
            round += 1;
        })
    };
    (0..PULSES).map(|_| pulse()).fold(f64::INFINITY, f64::min)
}
