//! The whole runtime under schedules: programs of the semantics, each with a schedule of its own.
//!
//! Goal: whatever order a seed chooses, a program without a finding reads what the last write
//! before wrote, tasks keep the order that the semantics promises, and a seed repeats itself to the
//! last step. Method: as the order suite runs these programs on workers; here one seed draws
//! program and schedule. `ACCELRT_TEST_SEED=n` repeats one, `ACCELRT_TEST_PROGRAMS=n` sets their
//! number.

use accelrt_testing::{Schedule, Strategy};

use crate::asked::asked;
use crate::hang::Watchdog;
use crate::numbers::Numbers;
use crate::semantics::program::{self, Draft, Shape};
use crate::semantics_run::Run;
use crate::support::turn;

/// One in so many programs runs twice.
const REPEATED: u64 = 20;

pub(crate) fn strategy(seed: u64) -> Strategy {
    match seed % 4 {
        0 => Strategy::Random,
        1 => Strategy::Invert,
        2 => Strategy::Starve,
        _ => Strategy::Pct { depth: 3, steps: 40 },
    }
}

/// Runs a program; how many steps its schedule made.
fn run(seed: u64, shape: impl Fn(&mut Numbers) -> Shape) -> Result<u64, String> {
    let mut numbers = Numbers::new(seed);
    let shape = shape(&mut numbers);
    let is_careful = shape.care_percent == 100;
    let mut run = Run::new(&shape, is_careful, &mut numbers);
    let schedule = Schedule::new(seed).strategy(strategy(seed)).start(&run.world.runtime).unwrap();
    let Draft { actions, .. } = program::draw(shape, numbers);
    for action in &actions {
        run.step(action);
    }
    run.finish().map(|()| schedule.num_steps())
}

fn check(programs: u64, shape: impl Fn(&mut Numbers) -> Shape) {
    let _turn = turn();
    let watchdog = Watchdog::new("programs under schedules");
    let seed = asked("ACCELRT_TEST_SEED");
    let programs =
        if seed.is_some() { 1 } else { asked("ACCELRT_TEST_PROGRAMS").unwrap_or(programs) };
    for number in 0..programs {
        let seed = seed.unwrap_or(number);
        let advice = format!("ACCELRT_TEST_SEED={seed} repeats this program and its schedule");
        watchdog.step(advice.clone());
        let outcome = run(seed, &shape);
        assert!(outcome.is_ok(), "{outcome:?}\n{advice}");
        if seed.is_multiple_of(REPEATED) {
            assert_eq!(run(seed, &shape), outcome, "{advice}");
        }
    }
}

#[test]
fn programs_without_a_finding_read_what_the_last_write_wrote_under_every_schedule() {
    check(1_500, |numbers| Shape::draw(numbers, 100));
}

#[test]
fn programs_with_races_keep_their_order_under_every_schedule() {
    check(500, |numbers| Shape { has_copies: false, ..Shape::draw(numbers, 70) });
}
