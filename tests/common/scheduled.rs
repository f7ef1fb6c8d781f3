//! The schedule that the environment asks for: `ACCELRT_TEST_SCHEDULE` has the text of one.
//!
//! Without it this changes nothing. With it a runtime that is given to [`scheduled`] follows that
//! schedule until the next one is, and no worker runs its tasks: tests run one after the other, and
//! what waits outside of the API makes steps meanwhile (`steps.rs`). `tests/schedules/suites.py`
//! runs the suites like that.
use std::sync::PoisonError;

use accelrt::Runtime;

/// Lets a runtime follow the schedule, if there is one.
pub(crate) fn scheduled(runtime: Runtime) -> Runtime {
    if let Ok(text) = std::env::var("ACCELRT_TEST_SCHEDULE") {
        follow(&runtime, &text);
    }
    runtime
}
fn follow(runtime: &Runtime, text: &str) {
    let schedule: accelrt_testing::Schedule = text.parse().expect("a schedule");
    let mut followed = counted::FOLLOWED.lock().unwrap_or_else(PoisonError::into_inner);
    followed.end(); // a process follows one at a time
    followed.scheduled = Some(schedule.start(runtime).unwrap());
    counted::OF_TEST.with(|_| ()); // dropped at the end of the test's thread
}

/// How many choices each test's schedules made, for `suites.py`.
mod counted {
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::sync::{Mutex, PoisonError};
    use std::thread;

    use accelrt_testing::Scheduled;

    pub(super) static FOLLOWED: Mutex<Followed> =
        Mutex::new(Followed { scheduled: None, num_choices: 0, num_told: 0 });

    thread_local! {
        pub(super) static OF_TEST: OfTest = const { OfTest };
    }

    /// The latest schedule, of whose choices some were told; and those before which were not told.
    pub(super) struct Followed {
        pub(super) scheduled: Option<Scheduled>,
        num_choices: u64,
        num_told: u64,
    }

    impl Followed {
        pub(super) fn end(&mut self) {
            let latest = self.scheduled.take().map_or(0, |it| it.num_choices());
            self.num_choices += latest - std::mem::take(&mut self.num_told);
        }

        fn tell(&mut self) -> u64 {
            let latest = self.scheduled.as_ref().map_or(0, Scheduled::num_choices);
            let untold = latest - std::mem::replace(&mut self.num_told, latest);
            std::mem::take(&mut self.num_choices) + untold
        }
    }

    /// At its drop the test is over: appends a line with its name, which its thread has, and its
    /// choices to the file that is asked for.
    pub(super) struct OfTest;

    impl Drop for OfTest {
        fn drop(&mut self) {
            let Some(file) = std::env::var_os("ACCELRT_TEST_CHOICES") else { return };
            let mut followed = FOLLOWED.lock().unwrap_or_else(PoisonError::into_inner);
            let num_choices = followed.tell();
            let name = thread::current().name().unwrap_or_default().to_owned();
            let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
            file.write_all(format!("{name} {num_choices}\n").as_bytes()).unwrap();
        }
    }
}
