//! Runs tests of the kit: one as a test function, one for its verdict, or all of them for a table.

use std::any::Any;
use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use std::{fmt, thread};

use crate::conformance::promises::{Promise, promises};
use crate::conformance::support::Subject;

/// Far beyond what any test takes: only a hang lasts as long. The clock goes on while a process or
/// its whole machine is stopped; a stop takes one of the seconds.
const HANG_S: u32 = 60;

type Panic = Box<dyn Any + Send>;

/// How a test ended.
enum End {
    Passed,
    Panicked(Panic),
    /// The test's thread is left alone.
    Hangs,
}

/// Makes a fresh subject in a thread of its own and runs a test on it.
fn run<S: Into<Subject>>(promise: Promise, make: impl FnOnce() -> S + Send + 'static) -> End {
    let (done, over) = mpsc::channel::<()>();
    let test = move || {
        let _done = done;
        let subject = make().into();
        promise.run(&subject);
        subject.finish();
    };
    let name = promise.name();
    let thread = thread::Builder::new().name(name).spawn(test).expect("a thread can be started");
    for _ in 0..HANG_S {
        if over.recv_timeout(Duration::from_secs(1)) != Err(RecvTimeoutError::Timeout) {
            return thread.join().map_or_else(End::Panicked, |()| End::Passed);
        }
    }
    End::Hangs
}

/// Finds a test by its noun and name, as in `marks::a_callback_comes_exactly_once`.
///
/// # Panics
/// When the kit has no such test.
fn find(name: &str) -> Promise {
    let found = promises().find(|promise| promise.name() == name);
    found.unwrap_or_else(|| panic!("the kit has no test {name:?}"))
}

/// Runs one test of the kit, as the functions of [`conformance!`](crate::conformance!) do.
///
/// # Panics
/// When the subject does not keep the promise, when the test hangs, and when the kit has no test of
/// this name.
pub fn check<S: Into<Subject>>(name: &str, make: impl FnOnce() -> S + Send + 'static) {
    match run(find(name), make) {
        End::Passed => {}
        End::Panicked(panic) => resume_unwind(panic),
        End::Hangs => panic!("{name} hangs"),
    }
}

/// Runs one test of the kit, and returns why the subject did not pass it.
///
/// # Panics
/// When the kit has no test of this name.
pub fn verdict<S: Into<Subject>>(
    name: &str,
    make: impl FnOnce() -> S + Send + 'static,
) -> Result<(), String> {
    match run(find(name), make) {
        End::Passed => Ok(()),
        End::Panicked(panic) => Err(text_of(&*panic)),
        End::Hangs => Err(format!("hangs: no end after {HANG_S} s")),
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it panicked").to_owned()
}

/// Runs every test of the kit, one after the other, each on a fresh subject. A test that hangs
/// takes a minute; its thread is left alone.
pub fn report<S: Into<Subject>>(make: impl Fn() -> S + Clone + Send + 'static) -> KitReport {
    let each = promises().map(|promise| {
        let why_not = verdict(&promise.name(), make.clone()).err();
        Verdict { promise, why_not }
    });
    KitReport { outcomes: each.collect() }
}

/// A promise, and why a test of it was not passed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Verdict {
    /// The promise and the name of its test.
    pub promise: Promise,
    /// What the test said; `None` when it passed.
    pub why_not: Option<String>,
}

/// What a kind does of what the contract says. `Display` makes a table: promise, test, and `passed`
/// or why not.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KitReport {
    /// One a test, in the order of [`promises`].
    pub outcomes: Vec<Verdict>,
}

impl KitReport {
    /// True when every test passed.
    #[must_use]
    pub fn is_passed(&self) -> bool {
        self.failed().is_empty()
    }

    /// The names of the tests that were not passed.
    #[must_use]
    pub fn failed(&self) -> Vec<String> {
        let failed = self.outcomes.iter().filter(|outcome| outcome.why_not.is_some());
        failed.map(|outcome| outcome.promise.name()).collect()
    }
}

impl fmt::Display for KitReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widest = |of: fn(&Promise) -> usize| {
            self.outcomes.iter().map(|outcome| of(&outcome.promise)).max().unwrap_or(0)
        };
        let wide = widest(|it| it.text().len());
        let test_wide = widest(|it| it.name().len());
        writeln!(f, "{:wide$}  {:test_wide$}  outcome", "promise", "test")?;
        let mut last = "";
        for Verdict { promise: it, why_not } in &self.outcomes {
            let words = if it.text() == last { "" } else { it.text() };
            last = it.text();
            // A table has one line a test: the rest of a message stands in the test's own output.
            let why_not = why_not.as_deref().map(|text| text.replace('\n', " "));
            let outcome = why_not.as_deref().unwrap_or("passed");
            writeln!(f, "{words:wide$}  {:test_wide$}  {outcome}", it.name())?;
        }
        let (count, failed) = (self.outcomes.len(), self.failed().len());
        writeln!(f, "{} of {count} tests passed", count - failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null::{NullBackend, NullConfig};

    fn null() -> Subject {
        NullBackend::new(NullConfig::default()).into()
    }

    #[test]
    fn what_a_failed_test_said_stands_in_the_table_beside_its_promise() {
        let outcome = |(promise, failed): (Promise, bool)| Verdict {
            promise,
            why_not: failed.then(|| "left: 1\nright: 2".to_owned()),
        };
        let outcomes = promises().zip([false, true, false]).map(outcome).collect();
        let report = KitReport { outcomes };
        let table = report.to_string();
        let lines: Vec<&str> = table.lines().collect();
        let [first, second] = [0, 1].map(|place| promises().nth(place).unwrap());
        assert!(lines[1].contains(first.text()) && lines[1].contains(&first.name()), "{table}");
        assert!(lines[1].ends_with("  passed"), "{table}");
        assert!(lines[2].contains(&second.name()), "{table}");
        assert!(lines[2].ends_with("  left: 1 right: 2"), "{table}");
        assert_eq!(lines.last(), Some(&"2 of 3 tests passed"));
        assert_eq!((report.is_passed(), report.failed().len()), (false, 1));
    }

    #[test]
    fn a_check_at_the_end_of_a_test_is_a_part_of_it() {
        let name = "streams::a_fresh_stream_is_idle";
        assert_eq!(verdict(name, null), Ok(()));
        let leaky = || null().with_end_check(|| panic!("one stream is left"));
        assert_eq!(verdict(name, leaky), Err("one stream is left".to_owned()));
    }

    #[test]
    #[should_panic(expected = "the kit has no test \"streams::nothing\"")]
    fn a_test_that_the_kit_does_not_have_is_no_passed_test() {
        check("streams::nothing", null);
    }
}
