//! Twenty generated bugs of depth 1 to 3: how many seeds find them, random beside PCT.
//!
//! Goal: PCT finds every bug within the seeds that are tried. Method: each program is drawn from
//! its number: some streams of tasks, and a bug that shows when one, two or three orders between
//! tasks of two streams come about. `ACCELRT_TEST_SEEDS=n` tries so many, at random too; then, with
//! `--nocapture`, the table of `docs/testing_your_code.md` is printed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use accelrt::{Config, Device, Runtime};
use accelrt_testing::{Schedule, Strategy};

use crate::asked::asked;
use crate::numbers::Numbers;
use crate::support::turn;

/// A place in a program: the stream, and the number of its task there.
type Place = (usize, usize);

/// Streams of tasks, and orders between two of them each: all together are the bug.
#[derive(Debug)]
struct Bug {
    depth: usize,
    num_tasks: Vec<usize>,
    orders: Vec<(Place, Place)>,
}

impl Bug {
    /// Two streams take turns, as often as the depth says: of each part of one stream most is
    /// before most of the next part of the other.
    fn draw(number: usize) -> Self {
        let mut numbers = Numbers::new(number as u64);
        let depth = 1 + number % 3;
        let num_streams = 2 + numbers.below(3);
        let num_tasks: Vec<usize> = (0..num_streams).map(|_| 6 + numbers.below(11)).collect();
        // Parts 0, 2, … are of stream 0, and parts 1, 3, … of stream 1.
        let parts_of = |stream: usize| (depth + 2 - stream) / 2;
        let bounds = |part: usize| {
            let stream = part % 2;
            let bound = |nth: usize| num_tasks[stream] * nth / parts_of(stream);
            let slack = num_tasks[stream] / parts_of(stream) / 4;
            let (first, last) = (bound(part / 2), bound(part / 2 + 1) - 1);
            ((stream, first + slack), (stream, last - slack))
        };
        let orders = (0..depth).map(|part| (bounds(part).1, bounds(part + 1).0)).collect();
        Self { depth, num_tasks, orders }
    }

    fn is_found(&self, schedule: Schedule) -> bool {
        let runtime = Runtime::new(Config::default()).unwrap();
        let scheduled = schedule.start(&runtime).unwrap();
        let ran: Arc<Mutex<Vec<Place>>> = Arc::default();
        for (stream, count) in self.num_tasks.iter().enumerate() {
            let own = runtime.stream(Device::cpu(0)).unwrap();
            for task in 0..*count {
                let ran = Arc::clone(&ran);
                own.enqueue(move || ran.lock().unwrap().push((stream, task))).unwrap();
            }
        }
        runtime.synchronize(Device::cpu(0)).unwrap();
        drop(scheduled);
        let ran = ran.lock().unwrap();
        let at: BTreeMap<Place, usize> =
            ran.iter().enumerate().map(|(at, place)| (*place, at)).collect();
        self.orders.iter().all(|(first, second)| at[first] < at[second])
    }

    fn num_tasks(&self) -> usize {
        self.num_tasks.iter().sum()
    }
}

/// How many seeds it takes to find the bug.
fn needed(bug: &Bug, strategy: Strategy, most: u64) -> Option<u64> {
    (0..most)
        .find(|seed| bug.is_found(Schedule::new(*seed).strategy(strategy)))
        .map(|seed| seed + 1)
}

#[test]
#[expect(clippy::print_stdout, reason = "the table")]
fn pct_finds_generated_bugs_of_depth_1_to_3() {
    let _turn = turn();
    let asked = asked("ACCELRT_TEST_SEEDS");
    println!("| bug | depth | streams | tasks | random | PCT | its bound: 1 in |");
    println!("|---|---|---|---|---|---|---|");
    for number in 0..20 {
        let bug = Bug::draw(number);
        let depth = u32::try_from(bug.depth).unwrap();
        let (streams, steps) = (bug.num_tasks.len() as u64, bug.num_tasks() as u64);
        let random = asked.and_then(|most| needed(&bug, Strategy::Random, most));
        let pct = needed(&bug, Strategy::Pct { depth, steps }, asked.unwrap_or(2_000));
        let show = |seeds: Option<u64>| seeds.map_or("not found".to_owned(), |it| it.to_string());
        let (random, shown) = (show(random), show(pct));
        let bound = streams * steps.pow(depth - 1);
        println!(
            "| {} | {depth} | {streams} | {steps} | {random} | {shown} | {bound} |",
            number + 1
        );
        assert!(pct.is_some(), "not found: {bug:?}");
    }
}
