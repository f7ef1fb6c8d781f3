//! The verbose levels in the variables of oneMKL and oneDNN, which apply outside of all scopes.

/// The level that a variable sets. The end of the last scope restores this level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EnvironmentLevel {
    /// The level closest to the variable's value.
    pub(super) level: i32,
    /// The variable and its value, if no level is equivalent.
    pub(super) not_restorable: Option<String>,
}

/// The level of `MKL_VERBOSE`. The library reads a number; any other text means 0.
pub(super) fn of_mkl(variable: impl Fn(&'static str) -> Option<String>) -> EnvironmentLevel {
    let value = variable("MKL_VERBOSE").unwrap_or_default();
    let level = value.trim().parse().ok().filter(|level| (0..=2).contains(level));
    EnvironmentLevel { level: level.unwrap_or(0), not_restorable: None }
}

/// The level of `ONEDNN_VERBOSE`, or else of `DNNL_VERBOSE`. Since version 3, the variable is a
/// list of flags. Each level is equivalent to a combination of flags.
pub(super) fn of_onednn(variable: impl Fn(&'static str) -> Option<String>) -> EnvironmentLevel {
    let names = ["ONEDNN_VERBOSE", "DNNL_VERBOSE"];
    let set = names.into_iter().find_map(|name| Some((name, variable(name)?)));
    let Some((name, value)) = set else { return EnvironmentLevel::default() };
    let mut flags = Flags::default();
    value.split(',').for_each(|flag| flags.add(flag));
    let level = if flags.creations { 2 } else { i32::from(flags.executions) };
    // Every level that prints creations also prints executions.
    let is_exact = !flags.others && flags.executions >= flags.creations;
    let not_restorable = (!is_exact).then(|| format!("{name}={value}"));
    EnvironmentLevel { level, not_restorable }
}

#[derive(Default)]
struct Flags {
    executions: bool,
    creations: bool,
    /// True if the variable has a flag that belongs to no level.
    others: bool,
}

impl Flags {
    fn add(&mut self, flag: &str) {
        match flag {
            "0" | "none" => *self = Self::default(),
            "1" | "profile_exec" => self.executions = true,
            "2" | "profile" => (self.executions, self.creations) = (true, true),
            "profile_create" => self.creations = true,
            "all" | "-1" => *self = Self { executions: true, creations: true, others: true },
            // Adds no flag: `error` is oneDNN 3's default and part of levels 1 and 2. Level 0 does
            // not restore it; docs/verbose.md lists that as a limit.
            "" | "error" => {}
            _ => self.others = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn onednn(value: &str) -> (i32, bool) {
        let flags = of_onednn(|name| (name == "ONEDNN_VERBOSE").then(|| value.to_owned()));
        (flags.level, flags.not_restorable.is_none())
    }

    #[test]
    fn mkl_takes_a_number() {
        let level =
            |value: &str| of_mkl(|name| (name == "MKL_VERBOSE").then(|| value.to_owned())).level;
        assert_eq!(["0", "1", "2", "", "-1", "7", "yes"].map(level), [0, 1, 2, 0, 0, 0, 0]);
        assert_eq!(of_mkl(|_| None), EnvironmentLevel::default());
    }

    #[test]
    fn onednns_flags_map_to_levels() {
        for (value, level) in [("", 0), ("0", 0), ("none", 0), ("error", 0), ("1", 1), ("2", 2)] {
            assert_eq!(onednn(value), (level, true), "{value}");
        }
        assert_eq!(onednn("profile_exec"), (1, true));
        assert_eq!(onednn("profile"), (2, true));
        assert_eq!(onednn("1,none"), (0, true));
        assert_eq!(onednn("error,profile_exec,profile_create"), (2, true));
    }

    #[test]
    fn flags_without_a_level_are_reported_with_the_nearest_level() {
        assert_eq!(onednn("dispatch"), (0, false));
        assert_eq!(onednn("profile_exec,filter=matmul"), (1, false));
        assert_eq!(onednn("profile_create"), (2, false));
        assert_eq!(onednn("all"), (2, false));
        let flags =
            of_onednn(|name| Some(if name == "DNNL_VERBOSE" { "1" } else { "check" }.into()));
        assert_eq!(flags.not_restorable.unwrap(), "ONEDNN_VERBOSE=check");
    }

    #[test]
    fn the_older_variable_applies_when_the_newer_is_unset() {
        let flags = of_onednn(|name| (name == "DNNL_VERBOSE").then(|| "2".to_owned()));
        assert_eq!(flags, EnvironmentLevel { level: 2, not_restorable: None });
    }
}
