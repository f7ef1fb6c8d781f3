//! What a schedule is like: its seed, how streams are chosen, how long tasks take.

use std::ops::RangeInclusive;
use std::str::FromStr;

use accelrt::internal::OperationKind;
use accelrt::{ConfigError, Error, Result};

const ALLOWED: &str = "seed:N, and strategy:random, invert, starve or pct, depth:1..1000 and \
                       steps:N of pct, durations:NS or durations:NS..NS, also of one operation, as \
                       durations.copy:NS, with commas between";

/// Each change of a `pct` schedule is kept, and looked at in each step.
pub(crate) const MOST_DEPTH: u32 = 1_000;

/// The operations that take time.
const TIMED: [OperationKind; 7] = [
    OperationKind::Call,
    OperationKind::Launch,
    OperationKind::Kernel,
    OperationKind::Copy,
    OperationKind::Fill,
    OperationKind::Random,
    OperationKind::Deferred,
];

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
        /// How many orders between two tasks the bug needs, 1 to 1,000; more counts as 1,000.
        depth: u32,
        /// The number of tasks that the program has, at least 1; more is a weaker bound.
        steps: u64,
    },
}

/// A deterministic schedule of the cpu devices of a runtime.
///
/// ```standalone_crate
/// use accelrt_testing::{Schedule, Strategy};
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
    pub(crate) seed: u64,
    pub(crate) strategy: Strategy,
    durations_ns: RangeInclusive<u64>,
    /// Of operations that have durations of their own; the last one counts.
    by_operation: Vec<(OperationKind, RangeInclusive<u64>)>,
}

impl Schedule {
    /// A random schedule of tasks that take 1 to 100 microseconds.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let (durations_ns, by_operation) = (1_000..=100_000, Vec::new());
        Self { seed, strategy: Strategy::Random, durations_ns, by_operation }
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

    /// As [`Schedule::durations_ns`], for the tasks of one operation: `call`, `launch`, `kernel`,
    /// `copy`, `fill`, `random` or `deferred`, as profiles name them. Fails for other names.
    ///
    /// ```
    /// use accelrt_testing::Schedule;
    /// let schedule = Schedule::new(17).durations_ns_of("kernel", 50_000..=90_000)?;
    /// assert!(schedule.durations_ns_of("kernels", 1..=1).is_err());
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn durations_ns_of(
        mut self,
        operation: &str,
        durations_ns: RangeInclusive<u64>,
    ) -> Result<Self> {
        let Some(operation) = timed(operation) else {
            let (name, value) = ("an operation of a schedule", operation.to_owned());
            let allowed = "call, launch, kernel, copy, fill, random and deferred";
            return Err(Error::Config(ConfigError::InvalidSetting { name, value, allowed }));
        };
        self.by_operation.push((operation, durations_ns));
        Ok(self)
    }

    pub(crate) fn durations_of(&self, operation: OperationKind) -> &RangeInclusive<u64> {
        let own = self.by_operation.iter().rev().find(|(of, _)| *of == operation);
        own.map_or(&self.durations_ns, |(_, durations_ns)| durations_ns)
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
            "depth" => depth = value.parse().ok().filter(|it| (1..=MOST_DEPTH).contains(it))?,
            "steps" => steps = value.parse().ok().filter(|steps| *steps > 0)?,
            "strategy" => schedule.strategy = strategy(value)?,
            "durations" => schedule.durations_ns = durations(value)?,
            _ => {
                let operation = timed(key.strip_prefix("durations.")?)?;
                schedule.by_operation.push((operation, durations(value)?));
            }
        }
    }
    if let Strategy::Pct { .. } = schedule.strategy {
        schedule.strategy = Strategy::Pct { depth, steps };
    }
    Some(Schedule { seed: seed?, ..schedule })
}

fn durations(text: &str) -> Option<RangeInclusive<u64>> {
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    let durations_ns = least.parse().ok()?..=most.parse().ok()?;
    (!durations_ns.is_empty()).then_some(durations_ns)
}

fn timed(name: &str) -> Option<OperationKind> {
    TIMED.into_iter().find(|operation| operation.name() == Some(name))
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
    fn of_several_durations_of_an_operation_the_last_ones_count() {
        let schedule: Schedule = "seed:1,durations.copy:5,durations.copy:7".parse().unwrap();
        assert_eq!(schedule.durations_of(OperationKind::Copy), &(7..=7));
        let schedule = schedule.durations_ns_of("copy", 9..=9).unwrap();
        assert_eq!(schedule.durations_of(OperationKind::Copy), &(9..=9));
    }

    #[test]
    fn a_text_says_what_a_schedule_is_like() {
        let read = |text: &str| text.parse::<Schedule>().unwrap();
        assert_eq!(read("seed:17"), Schedule::new(17));
        let pct = Strategy::Pct { depth: 2, steps: 50 };
        let expected = Schedule::new(3).strategy(pct).durations_ns(5..=9);
        assert_eq!(read("depth:2, strategy:pct,steps:50,seed:3,durations:5..9"), expected);
        assert_eq!(read("seed:1,durations:7").durations_ns, 7..=7);
        assert_eq!(read("seed:1,depth:1000"), Schedule::new(1));
        let own = |text: &str| Schedule::new(1).durations_ns_of(text, 5..=9).unwrap();
        assert_eq!(read("seed:1,durations.copy:5..9"), own("copy"));
        assert_ne!(own("fill"), own("copy"));
        assert_eq!(read("seed:1,strategy:pct").strategy, Strategy::Pct { depth: 3, steps: 1_000 });
        for wrong in ["", "17", "seed:", "seed:1,strategy:best", "seed:1,depth:0,strategy:pct"]
            .into_iter()
            .chain(["seed:1,steps:0", "seed:1,durations:9..5", "strategy:pct", "seed:1,seeds:2"])
            .chain(["seed:1,durations.copies:5", "seed:1,durations.copy:9..5", "seed:1,copy:5"])
            .chain(["seed:1,durations.record:5", "seed:1,durations.:5"])
            .chain(["seed:1,strategy:pct,depth:1001"])
        {
            let refused = wrong.parse::<Schedule>().unwrap_err().to_string();
            assert!(refused.contains("strategy:random, invert, starve or pct"), "{refused}");
        }
    }
}
