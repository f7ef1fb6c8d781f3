//! The grammar of allocator settings: `key:value` pairs between commas, with lists `[a:b,c:d]`.
//!
//! Blanks may surround keys, values and separators, and one comma may follow the last pair. The
//! grammar is otherwise strict. Methods of [`Setting`] parse a value and check its range.

use std::ops::RangeInclusive;

use crate::base::error::{ConfigError, Error, Result};

/// One pair, without the blanks around key and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting<'a> {
    pub(super) key: &'a str,
    pub(super) value: &'a str,
}

/// Splits a text into its pairs, in order. Fails on an empty pair and on a pair without a colon.
pub(super) fn pairs(text: &str) -> Result<Vec<Setting<'_>>> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let text = text.strip_suffix(',').unwrap_or(text);
    entries(text).into_iter().map(pair).collect()
}

/// Splits a text at the commas outside of lists.
fn entries(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    text.split(|sign: char| {
        match sign {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        sign == ',' && depth == 0
    })
    .collect()
}

fn pair(entry: &str) -> Result<Setting<'_>> {
    let Some((key, value)) = entry.split_once(':') else {
        let entry = entry.trim();
        let allowed = "pairs of a key and a value, as in expandable_segments:True,policy:torch";
        return Err(Setting { key: entry, value: "" }.refused(allowed));
    };
    Ok(Setting { key: key.trim(), value: value.trim() })
}

impl<'a> Setting<'a> {
    pub(super) fn refused(&self, allowed: impl Into<String>) -> Error {
        let (key, value) = (self.key.to_owned(), self.value.to_owned());
        Error::Config(ConfigError::InvalidAllocatorSetting { key, value, allowed: allowed.into() })
    }

    /// Splits the value `[a:b,c:d]` into pairs, which may be none; one comma may follow the last
    /// pair. The error of any other value contains `allowed`.
    pub(super) fn items(&self, allowed: &str) -> Result<Vec<Setting<'a>>> {
        let inside = self.value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let inside = inside.ok_or_else(|| self.refused(allowed))?.trim();
        if inside.is_empty() {
            return Ok(Vec::new());
        }
        let inside = inside.strip_suffix(',').unwrap_or(inside);
        inside
            .split(',')
            .map(|item| {
                let (key, value) = item.split_once(':').ok_or_else(|| self.refused(allowed))?;
                Ok(Setting { key: key.trim(), value: value.trim() })
            })
            .collect()
    }

    /// Parses `True` or `False`.
    pub(super) fn boolean(&self) -> Result<bool> {
        match self.value {
            "True" => Ok(true),
            "False" => Ok(false),
            _ => Err(self.refused("True or False")),
        }
    }

    /// Parses a whole number of MiB within `range`, and returns it in bytes.
    pub(super) fn mebibytes(&self, range: RangeInclusive<usize>) -> Result<usize> {
        let number = digits(self.value).filter(|number| range.contains(number));
        let allowed = || format!("a whole number of MiB from {} to {}", range.start(), range.end());
        number.map(|number| number << 20).ok_or_else(|| self.refused(allowed()))
    }

    /// Parses a decimal number without a sign. Fails unless `is_right` accepts the number.
    pub(super) fn decimal(&self, allowed: &str, is_right: impl Fn(f64) -> bool) -> Result<f64> {
        let is_plain = self.value.starts_with(|sign: char| sign.is_ascii_digit() || sign == '.');
        let number = self.value.parse().ok().filter(|number| is_plain && is_right(*number));
        number.ok_or_else(|| self.refused(allowed))
    }
}

/// Parses ASCII digits. `None` for other characters, no digits, and numbers above `usize::MAX`.
pub(super) fn digits(text: &str) -> Option<usize> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}
