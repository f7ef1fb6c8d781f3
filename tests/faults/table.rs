//! Methods × scenarios: how often each method was failed in each scenario.

use std::collections::BTreeMap;
use std::fmt;

use accelrt_testing::fault::Method;

/// The name of the row for faults of any method.
const ANY: &str = "any method";

/// Number of failures by scenario and method.
#[derive(Debug, Default)]
pub(crate) struct Table {
    scenarios: Vec<&'static str>,
    failures: BTreeMap<(&'static str, &'static str), u64>,
}

impl Table {
    pub(crate) fn new(scenarios: Vec<&'static str>) -> Self {
        Self { scenarios, failures: BTreeMap::new() }
    }

    /// Adds failures; no method is any.
    pub(crate) fn add(&mut self, scenario: &'static str, method: Option<Method>, failures: u64) {
        let row = method.map_or(ANY, Method::name);
        *self.failures.entry((scenario, row)).or_default() += failures;
    }

    pub(crate) fn failures_of(&self, method: Method) -> u64 {
        self.scenarios.iter().map(|scenario| self.cell(scenario, method.name())).sum()
    }

    fn cell(&self, scenario: &'static str, row: &'static str) -> u64 {
        self.failures.get(&(scenario, row)).copied().unwrap_or(0)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:28}", "failures injected")?;
        for scenario in &self.scenarios {
            write!(f, "{scenario:>16}")?;
        }
        for row in Method::ALL.into_iter().map(Method::name).chain([ANY]) {
            write!(f, "\n{row:28}")?;
            for scenario in &self.scenarios {
                match self.cell(scenario, row) {
                    0 => write!(f, "{:>16}", "-")?,
                    failures => write!(f, "{failures:>16}")?,
                }
            }
        }
        writeln!(f)
    }
}

#[test]
fn a_method_that_was_never_failed_shows() {
    let mut table = Table::new(vec!["streams", "marks"]);
    table.add("marks", Some(Method::Mark), 3);
    table.add("streams", None, 2);
    assert_eq!((table.failures_of(Method::Mark), table.failures_of(Method::Copy)), (3, 0));
    assert!(table.to_string().contains(ANY), "{table}");
}
