//! What a schedule is like: its seed, how streams are chosen, how long tasks take.

use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::base::error::{ConfigError, Error, Result};
use crate::runtime::Runtime;
use crate::testing::scheduler::Scheduled;

const ALLOWED: &str = "seed:N, and strategy:random, invert, starve or pct, depth:N and steps:N of \
                       pct, durations:NS or durations:NS..NS, with commas between";

/// How a schedule chooses the stream that goes next. The seed decides between equals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Any runnable stream.
    #[default]
    Random,
    /// The least urgent runnable stream, by its priority.
    Invert,
    /// One stream, which the seed chooses, goes only when no other one can.
    Starve,
    /// Probabilistic concurrency testing (Burckhardt and others, 2010): streams have random
    /// priorities, and at `depth - 1` random steps the first one becomes the last. One seed finds
    /// a bug of that depth among `n` streams and at most `steps` tasks with a probability of at
    /// least `1 / (n * steps^(depth - 1))`.
    Pct {
        /// How many orders between two tasks the bug needs, at least 1.
        depth: u32,
        /// The number of tasks that the program has, at least 1; more is a weaker bound.
        steps: u64,
    },
}

/// A deterministic schedule of the cpu devices of a runtime.
///
/// ```standalone_crate
/// use accelrt::testing::{Schedule, Strategy};
/// use accelrt::{Config, Device, Event, Runtime};
/// let runtime = Runtime::new(Config::default())?;
/// let pct = Strategy::Pct { depth: 2, steps: 10 };
/// let schedule = Schedule::new(17).strategy(pct).durations_ns(5_000..=5_000).start(&runtime)?;
/// let stream = runtime.stream(Device::cpu(0))?;
/// let [start, end] = [(); 2].map(|()| Event::timed());
/// stream.record(&start)?;
/// stream.enqueue(|| println!("runs on the thread that waits"))?;
/// stream.record(&end)?;
/// stream.synchronize()?;
/// assert_eq!(start.elapsed_ms(&end)?, 0.005); // exactly
/// assert!(schedule.num_steps() > 0);
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub(super) seed: u64,
    pub(super) strategy: Strategy,
    pub(super) durations_ns: RangeInclusive<u64>,
}

impl Schedule {
    /// A random schedule of tasks that take 1 to 100 microseconds.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, strategy: Strategy::Random, durations_ns: 1_000..=100_000 }
    }

    /// Sets how streams are chosen.
    #[must_use]
    pub fn strategy(self, strategy: Strategy) -> Self {
        Self { strategy, ..self }
    }

    /// Sets how many nanoseconds of virtual time a task takes: the seed draws one of the range. A
    /// copy or fill takes a nanosecond for each 10 bytes more.
    #[must_use]
    pub fn durations_ns(self, durations_ns: RangeInclusive<u64>) -> Self {
        Self { durations_ns, ..self }
    }

    /// Lets the streams of cpu devices follow the schedule until the drop of what is returned.
    /// First waits for all work. Fails while another schedule is followed in this process, because
    /// the process has one clock.
    ///
    /// No worker runs meanwhile: a thread that waits runs the tasks, one after the other, and a
    /// poll, as [`Event::is_done`](crate::Event::is_done), runs one. With one thread that enqueues,
    /// the same seed gives the same order, times and offsets of memory in every process; with
    /// several, each of them sees its own work in the order of the seed, and how they meet is the
    /// machine's choice.
    pub fn start(self, runtime: &Runtime) -> Result<Scheduled> {
        Scheduled::start(self, runtime)
    }
}

impl FromStr for Schedule {
    type Err = Error;

    /// Reads the text of `ACCELRT_CPU_SCHEDULE`, as `seed:17,strategy:pct,depth:2`.
    fn from_str(text: &str) -> Result<Self> {
        let refused = || {
            let (name, value) = ("ACCELRT_CPU_SCHEDULE", text.to_owned());
            Error::Config(ConfigError::InvalidSetting { name, value, allowed: ALLOWED })
        };
        parse(text).ok_or_else(refused)
    }
}

fn parse(text: &str) -> Option<Schedule> {
    let (mut seed, mut depth, mut steps) = (None, 3, 1_000);
    let mut schedule = Schedule::new(0);
    for pair in text.split(',') {
        let (key, value) = pair.trim().split_once(':')?;
        match key {
            "seed" => seed = Some(value.parse().ok()?),
            "depth" => depth = value.parse().ok().filter(|depth| *depth > 0)?,
            "steps" => steps = value.parse().ok().filter(|steps| *steps > 0)?,
            "strategy" => schedule.strategy = strategy(value)?,
            "durations" => {
                let (least, most) = value.split_once("..").unwrap_or((value, value));
                schedule.durations_ns = least.parse().ok()?..=most.parse().ok()?;
            }
            _ => return None,
        }
    }
    if let Strategy::Pct { .. } = schedule.strategy {
        schedule.strategy = Strategy::Pct { depth, steps };
    }
    let is_right = !schedule.durations_ns.is_empty();
    is_right.then_some(Schedule { seed: seed?, ..schedule })
}

fn strategy(name: &str) -> Option<Strategy> {
    Some(match name {
        "random" => Strategy::Random,
        "invert" => Strategy::Invert,
        "starve" => Strategy::Starve,
        "pct" => Strategy::Pct { depth: 1, steps: 1 }, // replaced behind the last pair
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_says_what_a_schedule_is_like() {
        let read = |text: &str| text.parse::<Schedule>().unwrap();
        assert_eq!(read("seed:17"), Schedule::new(17));
        let pct = Strategy::Pct { depth: 2, steps: 50 };
        let expected = Schedule::new(3).strategy(pct).durations_ns(5..=9);
        assert_eq!(read("depth:2, strategy:pct,steps:50,seed:3,durations:5..9"), expected);
        assert_eq!(read("seed:1,durations:7").durations_ns, 7..=7);
        for wrong in ["", "17", "seed:", "seed:1,strategy:best", "seed:1,depth:0,strategy:pct"]
            .into_iter()
            .chain(["seed:1,steps:0", "seed:1,durations:9..5", "strategy:pct", "seed:1,seeds:2"])
        {
            let refused = wrong.parse::<Schedule>().unwrap_err().to_string();
            assert!(refused.contains("strategy:random, invert, starve or pct"), "{refused}");
        }
    }
}
