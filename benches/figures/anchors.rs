//! Anchors: how fast the machine itself is, by what nobody's queue changes.
//!
//! A machine that others use runs at half its speed now and then, and every figure with it. The
//! anchors are taken before and after the figures, so that a reader sees such a spell.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "reads the time stamp counter"))]
#![expect(clippy::print_stdout, reason = "says how long it waited")]

use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::measure::ns_per_round;
use crate::ping_pong;
use crate::processors::{allowed_cpus, pin};
use crate::quiet::QUIET_FACTOR;

/// What an anchor is, and its nanoseconds on the machine on which the goals were set, where they
/// were taken then.
const ANCHORS: [(&str, Option<f64>); 6] = [
    ("lock xadd", Some(4.9)),
    ("mutex, taken and given back", Some(4.0)),
    ("rdtsc", Some(9.0)),
    ("clock_gettime", Some(21.0)),
    ("spin ping-pong", Some(66.0)),
    // All others wait for one thing at a time. A program on the other half of a processor's core
    // slows them little, and everything that executes several instructions at a time twofold.
    ("600 xorshifts, six side by side", None),
];

type Anchors = [f64; ANCHORS.len()];

const ROUNDS: usize = 50_000;
const PING_PONGS: usize = 5_000;

/// Probes before the machine is judged: one alone would be its own best.
const PROBES_AT_LEAST: u32 = 10;
const BETWEEN_PROBES: Duration = Duration::from_millis(200);

/// Waits for a quiet moment, at most so long, and keeps the anchors of its last probe as JSON.
pub(crate) fn measure(file: &Path, longest: Duration) -> io::Result<()> {
    // Pinned in a thread of its own: figures choose their processors themselves.
    let (anchors, waited) = thread::spawn(move || wait_for_quiet(longest)).join().expect("probes");
    println!("{waited}");
    let mut text = String::new();
    for ((name, then), now) in ANCHORS.iter().zip(anchors) {
        let separator = if text.is_empty() { "" } else { ", " };
        let (said, kept) = match then {
            Some(then) => (format!(" ({then:.1} when the goals were set)"), format!("{then:.1}")),
            None => (String::new(), "null".into()),
        };
        println!("{name:<32}{now:>8.1} ns{said}");
        write!(text, r#"{separator}["{name}", {kept}, {now:.1}]"#).expect("a string");
    }
    fs::write(file, format!("{{\"waited\": \"{waited}\", \"anchors\": [{text}]}}\n"))
}

fn wait_for_quiet(longest: Duration) -> (Anchors, String) {
    let cpus = allowed_cpus();
    pin(&cpus[..1]);
    let other = *cpus.last().expect("a thread runs somewhere");
    let began = Instant::now();
    let mut best = [f64::INFINITY; ANCHORS.len()];
    for probes in 1_u32.. {
        let now = probe(other);
        best.iter_mut().zip(now).for_each(|(best, now)| *best = best.min(now));
        let is_quiet = best.iter().zip(now).all(|(best, now)| now <= best * QUIET_FACTOR);
        let seconds = began.elapsed().as_secs_f64();
        let of = format!("of the best of {probes} probes in {seconds:.0} s");
        if is_quiet && probes >= PROBES_AT_LEAST {
            return (now, format!("quiet: within {QUIET_FACTOR} {of}"));
        }
        if began.elapsed() >= longest && probes >= PROBES_AT_LEAST {
            return (now, format!("not quiet: never within {QUIET_FACTOR} {of}"));
        }
        thread::sleep(BETWEEN_PROBES);
    }
    unreachable!("probing ends by its time")
}

/// The anchors as they are now: some milliseconds.
fn probe(other_cpu: usize) -> Anchors {
    let (word, lock) = (AtomicU64::new(0), Mutex::new(0_u64));
    [
        ns_per_round(ROUNDS, || {
            black_box(word.fetch_add(1, Ordering::SeqCst));
        }),
        ns_per_round(ROUNDS, || *black_box(&lock).lock().expect("nobody panics") += 1),
        ns_per_round(ROUNDS, || {
            black_box(time_stamp());
        }),
        ns_per_round(ROUNDS, || {
            black_box(Instant::now());
        }),
        ping_pong::spinning_ns(other_cpu, PING_PONGS),
        ns_per_round(ROUNDS, || {
            black_box(shift_side_by_side(black_box([1, 2, 3, 4, 5, 6])));
        }),
    ]
}

/// As many instructions at a time as there are, none of which waits for memory.
fn shift_side_by_side(seeds: [u64; 6]) -> [u64; 6] {
    (0..100).fold(seeds, |numbers, _| {
        numbers.map(|number| {
            let number = number ^ number << 13;
            let number = number ^ number >> 7;
            number ^ number << 17
        })
    })
}

#[cfg(target_arch = "x86_64")]
fn time_stamp() -> u64 {
    // SAFETY: every processor of this kind has the counter, and reading it changes nothing.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Elsewhere the clock stands for it.
#[cfg(not(target_arch = "x86_64"))]
fn time_stamp() -> Instant {
    Instant::now()
}
