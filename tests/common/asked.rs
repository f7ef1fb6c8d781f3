//! Numbers that the environment may ask for.

use std::str::FromStr;

pub(crate) fn asked<T: FromStr>(variable: &str) -> Option<T> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable}={value} is no number")))
}
