//! Runs random programs, and shortens the first one that fails.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::asked::asked;
use crate::hang::Watchdog;
use crate::program::Program;
use crate::run::run;
use crate::world::Outcome;

/// Runs of a shortened program before it counts as right: its interleaving is the machine's.
const TRIES: usize = 30;

fn outcome(program: &Program) -> Outcome {
    let panicked = |_| Err("the host panicked".to_owned());
    catch_unwind(AssertUnwindSafe(|| run(program))).unwrap_or_else(panicked)
}

/// The shortest prefix that still fails, by halving, and how it fails.
fn shorten(program: &Program, failure: String) -> (Program, String) {
    let (mut shortest, mut failure) = (program.clone(), failure);
    let (mut right, mut wrong) = (0, program.len());
    while right + 1 < wrong {
        let prefix = program.prefix(usize::midpoint(right, wrong));
        match (0..TRIES).find_map(|_| outcome(&prefix).err()) {
            None => right = prefix.len(),
            Some(why) => {
                wrong = prefix.len();
                (shortest, failure) = (prefix, why);
            }
        }
    }
    (shortest, failure)
}

/// Runs `programs` programs, or those that the environment asks for.
pub(crate) fn check(draw: impl Fn(u64) -> Program, programs: u64) {
    let seed = asked("ACCELRT_TEST_SEED");
    // Without a seed the same programs as ever; their interleavings differ each time.
    let programs =
        asked("ACCELRT_TEST_PROGRAMS").unwrap_or(if seed.is_some() { 100 } else { programs });
    let watchdog = Watchdog::new("random programs");
    for number in 0..programs {
        let program = draw(seed.unwrap_or(number));
        watchdog.step(program.parameters.advice());
        if let Err(why) = outcome(&program) {
            let (shortest, still) = shorten(&program, why.clone());
            let advice = program.parameters.advice();
            panic!("{why}\n{advice}\nshortest prefix: {still}\n{:#?}", shortest.hosts);
        }
    }
}
