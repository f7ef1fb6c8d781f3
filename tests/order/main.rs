//! Laws 4 and 5 over random programs: tasks of streams, events and waits against a model.
//!
//! Goal: what the API promises about order holds whatever several threads do at once. Method: small
//! programs drawn from a seed run on several devices; the semantics beside them has what must come
//! before what; every task numbers its start and its end. `ACCELRT_TEST_SEED=n` repeats program n
//! (its interleaving remains the machine's), `ACCELRT_TEST_PROGRAMS=n` says how many programs run.

#[path = "../common/asked.rs"]
mod asked;
#[path = "../semantics/failures.rs"]
mod failure_semantics;
#[path = "../common/gate.rs"]
mod gate;
#[path = "../common/hang.rs"]
mod hang;
#[path = "../common/numbers.rs"]
mod numbers;
#[path = "../common/plain.rs"]
mod plain;
#[path = "../common/scheduled.rs"]
mod scheduled;
#[path = "../semantics/mod.rs"]
mod semantics;
#[path = "../common/semantics_contents.rs"]
mod semantics_contents;
#[path = "../common/semantics_run.rs"]
mod semantics_run;
#[path = "../common/steps.rs"]
mod steps;
#[path = "../common/thread_id.rs"]
mod thread_id;

mod check;
mod failures;
mod findings;
mod hazards;
mod model;
mod program;
mod promises;
mod random;
mod run;
mod scenarios;
mod support;
mod world;
