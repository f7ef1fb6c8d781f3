//! Programs of the semantics on the cpu device: order of tasks, and contents of memory.
//!
//! Goal: whatever a program without a finding reads is what it would read if each action ran at
//! once, through reuse of freed memory, copies between devices, callables and host waits too; and
//! tasks keep the order that the semantics promises, in programs with races as well. Method: each
//! task numbers its start and end; accesses write and compare numbers in memory.

use crate::asked::asked;
use crate::hang::Watchdog;
use crate::numbers::Numbers;
use crate::scheduled::scheduled;
use crate::semantics::program::{self, Draft, Shape};
use crate::semantics_run::Run;

fn check(programs: u64, shape: impl Fn(&mut Numbers) -> Shape) {
    let watchdog = Watchdog::new("programs of the semantics");
    let seed = asked("ACCELRT_TEST_SEED");
    let programs =
        asked("ACCELRT_TEST_PROGRAMS").unwrap_or(if seed.is_some() { 100 } else { programs });
    for number in 0..programs {
        let seed = seed.unwrap_or(number);
        let advice = format!("ACCELRT_TEST_SEED={seed} repeats this program");
        watchdog.step(advice.clone());
        let mut numbers = Numbers::new(seed);
        let shape = shape(&mut numbers);
        let is_careful = shape.care_percent == 100;
        let mut run = Run::new(&shape, is_careful, &mut numbers);
        scheduled(run.world.runtime.clone());
        let Draft { actions, machine, .. } = program::draw(shape, numbers);
        assert!(!is_careful || machine.findings.is_empty(), "{:?}\n{advice}", machine.findings);
        for action in &actions {
            run.step(action);
        }
        if let Err(why) = run.finish() {
            let actions: Vec<String> = actions.iter().map(|action| format!("{action:?}")).collect();
            panic!("{why}\n{advice}\n{}", actions.join("\n"));
        }
    }
}

#[test]
fn programs_without_a_finding_read_what_the_last_write_before_wrote() {
    check(1_000, |numbers| Shape::draw(numbers, 100));
}

#[test]
fn programs_with_races_keep_the_order_that_they_ask_for() {
    check(500, |numbers| Shape { has_copies: false, ..Shape::draw(numbers, 70) });
}
