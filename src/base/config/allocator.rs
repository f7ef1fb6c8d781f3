//! Settings of the caching allocator: PyTorch's keys, and the runtime's own.
//!
//! # Grammar
//!
//! Blanks may surround keys, values and separators, and one comma may follow the last pair. The
//! grammar is otherwise strict. Methods of [`Setting`] parse a value and check its range.

use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::base::error::{ConfigError, Error, Result};
use crate::base::size::MIB;

/// The number of size intervals of `roundup_power2_divisions`, which begin at 1, 2, 4, … MiB.
pub(crate) const ROUNDUP_INTERVALS: usize = 16;
/// The largest number of MiB whose bytes fit into a `usize`.
const MAX_MIB: usize = usize::MAX / MIB;
const DIVISIONS: &str = "a power of two, or intervals of sizes in MiB with theirs, as \
    [64:8,256:4,>:1]: intervals are powers of two, `>` stands for all above the interval before \
    it, and divisions are powers of two or 0";

/// The name of a policy: the rules by which an allocator chooses the bytes for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyName {
    /// The rules and constants of PyTorch's caching allocator.
    Torch,
    /// The default: rules of this runtime that aim at the least memory, in a bounded number of
    /// steps. Pinned memory always has its own policy.
    Native,
}

/// Settings of a caching allocator, parsed from text: `key:value` pairs between commas.
///
/// A key that the text does not name returns to its default, with two exceptions. Under policy
/// `torch`, [`AllocatorConfig::followed_by`] resets only some keys. A limit that was set by a call
/// remains until a text names a limit. An invalid text changes nothing; its error names the key,
/// the value and the allowed values. Keys come in any order; the last of equal keys counts.
/// Sizes are in MiB.
///
/// | key | value | meaning |
/// |---|---|---|
/// | `policy` | `native`, `torch` | how the allocator decides: `native` unless another key selects `torch` |
/// | `strict` | `True`, `False` | `False` accepts PyTorch's keys that have no effect here |
/// | `expandable_segments` | `True`, `False` | segments grow by mapping pages, where the device has virtual memory |
/// | `large_segment_size_mb` | from 11 | size of the segments for requests between 1 and 10 MiB |
/// | `max_split_size_mb` | from `large_segment_size_mb` | blocks of this size and more are not split |
/// | `max_non_split_rounding_mb` | from `large_segment_size_mb`, its default | how much of an unsplit block a request may leave unused |
/// | `roundup_power2_divisions` | `4`, `[64:8,256:4,>:1]` | steps between powers of two to which sizes are rounded up, per interval |
/// | `garbage_collection_threshold` | inside (0, 1) | fraction of the limit above which the allocator releases old free segments |
/// | `per_process_memory_fraction` | 0 to 1 | fraction of a device's memory that the allocator may reserve |
/// | `throw_on_cudamalloc_oom` | `True`, `False` | a request above that fraction fails before the allocator releases cached memory; under `torch`, as in PyTorch, only while the current limit allows more |
/// | `pinned_max_cached_size_mb` | from 0 | the allocator releases free pinned segments above this size at once |
/// | `pinned_reserve_segment_size_mb` | from 1 | the least size of a pinned segment |
/// | `exact_statistics` | `True`, `False` | threads cache no blocks, so that peaks count only memory in use or pending free |
/// | `deterministic` | `True`, `False` | the same requests get the same offsets in every process |
///
/// The keys from `expandable_segments` to `garbage_collection_threshold` belong to policy `torch`,
/// and the last two to `native`. A text with one of these keys selects the key's policy, and must
/// not name another policy. With `exact_statistics` or `deterministic`, threads cache no blocks.
/// With `deterministic`, the allocator reuses memory that other streams used only after the cache
/// was emptied or when memory is short.
///
/// PyTorch's other keys would change nothing here. A text with such a key fails with the reason,
/// unless it says `strict:False`. Only a text can change a setting from its default.
///
/// ```
/// use accelrt::AllocatorConfig;
///
/// let config: AllocatorConfig = "max_split_size_mb:128,expandable_segments:True".parse()?;
/// assert_eq!(config.max_split_bytes(), Some(128 << 20));
/// let error = "max_split_size_mb:2".parse::<AllocatorConfig>().unwrap_err();
/// assert!(error.to_string().contains("from 20"));
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "settings that are true or false")]
pub struct AllocatorConfig {
    pub(crate) policy: PolicyName,
    pub(crate) expandable_segments: bool,
    /// `large_segment_size_mb` in bytes: the size of segments for requests between 1 and 10 MiB.
    pub(crate) large_segment_bytes: usize,
    /// `max_split_size_mb` in bytes: blocks of this size and more are not split. `None`: no limit.
    pub(crate) max_split_bytes: Option<usize>,
    /// `max_non_split_rounding_mb` in bytes: how much of an unsplit block a request may waste.
    pub(crate) max_non_split_rounding_bytes: usize,
    /// `roundup_power2_divisions`: entry `i` is for sizes from 2^(20 + i). The first entry is also
    /// for all smaller sizes, the last for all larger sizes. 0 and 1 turn rounding off.
    #[doc(hidden)]
    pub roundup_power2_divisions: [usize; ROUNDUP_INTERVALS],
    /// `garbage_collection_threshold`; `None` never collects.
    #[doc(hidden)]
    pub garbage_collection_threshold: Option<f64>,
    /// `per_process_memory_fraction`; `None` removes a fraction that an earlier text set.
    pub(crate) per_process_memory_fraction: Option<f64>,
    /// True when the last text named the fraction. If false, a limit set by a call remains.
    pub(crate) is_limit_named: bool,
    /// `throw_on_cudamalloc_oom`: a request above the fraction fails before cached memory is freed.
    pub(crate) reject_above_fraction: bool,
    /// `pinned_max_cached_size_mb`; `None` caches segments of every size.
    pub(crate) pinned_max_cached_bytes: Option<usize>,
    /// `pinned_reserve_segment_size_mb` in bytes: the minimum size of a pinned segment.
    pub(crate) pinned_segment_bytes: usize,
    pub(crate) exact_statistics: bool,
    pub(crate) deterministic: bool,
}

impl Default for AllocatorConfig {
    fn default() -> Self {
        Self {
            policy: PolicyName::Native,
            expandable_segments: false,
            large_segment_bytes: 20 * MIB,
            max_split_bytes: None,
            max_non_split_rounding_bytes: 20 * MIB,
            roundup_power2_divisions: [0; ROUNDUP_INTERVALS],
            garbage_collection_threshold: None,
            per_process_memory_fraction: None,
            is_limit_named: false,
            reject_above_fraction: false,
            pinned_max_cached_bytes: None,
            pinned_segment_bytes: 2 * MIB,
            exact_statistics: false,
            deterministic: false,
        }
    }
}

impl FromStr for AllocatorConfig {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::default().followed_by(text)
    }
}

impl AllocatorConfig {
    /// Returns the settings after a further text. Keys that the text does not name return to their
    /// defaults. If both settings have policy `torch`, only the keys that PyTorch resets return:
    /// `max_split_size_mb`, `max_non_split_rounding_mb`, `roundup_power2_divisions` and
    /// `garbage_collection_threshold`. The other keys then keep their values.
    ///
    /// ```
    /// use accelrt::AllocatorConfig;
    /// let before: AllocatorConfig = "expandable_segments:True,max_split_size_mb:64".parse()?;
    /// let after = before.followed_by("policy:torch")?;
    /// assert_eq!((after.expandable_segments(), after.max_split_bytes()), (true, None));
    /// assert_eq!(before.followed_by("")?, AllocatorConfig::default());
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn followed_by(&self, text: &str) -> Result<Self> {
        let pairs = parse_checked(text)?;
        let policy = policy_of(&pairs)?;
        let keeps_others = policy == PolicyName::Torch && self.policy == policy;
        let mut config =
            Self { policy, ..if keeps_others { self.reset() } else { Self::default() } };
        // `large_segment_size_mb` bounds two other keys, which may come before it in the text.
        if let Some(setting) = last(&pairs, "large_segment_size_mb") {
            config.large_segment_bytes = setting.mebibytes(11..=MAX_MIB)?;
            config.max_non_split_rounding_bytes = config.large_segment_bytes;
        }
        pairs.iter().try_for_each(|setting| config.apply(*setting))?;
        Ok(config)
    }

    /// These settings, with the defaults of the keys that PyTorch resets before it reads a text.
    fn reset(&self) -> Self {
        Self {
            max_split_bytes: None,
            max_non_split_rounding_bytes: self.large_segment_bytes,
            roundup_power2_divisions: [0; ROUNDUP_INTERVALS],
            garbage_collection_threshold: None,
            is_limit_named: false,
            ..self.clone()
        }
    }

    /// The keys of a `strict:False` text that have no effect here, each with the reason. Fails when
    /// the text is invalid.
    ///
    /// ```
    /// use accelrt::AllocatorConfig;
    /// let ignored = AllocatorConfig::ignored_keys("strict:False,backend:native")?;
    /// assert_eq!(ignored[0].0, "backend");
    /// assert!("backend:native".parse::<AllocatorConfig>().is_err());
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn ignored_keys(text: &str) -> Result<Vec<(&'static str, &'static str)>> {
        let pairs = parse_checked(text)?;
        let is_there = |key: &str| pairs.iter().any(|setting| setting.key == key);
        Ok(IGNORED_KEYS.iter().filter(|(key, _)| is_there(key)).copied().collect())
    }

    /// The policy that the last text named, or that one of its keys selected; else `native`.
    #[must_use]
    pub fn policy(&self) -> PolicyName {
        self.policy
    }

    /// True when segments grow by mapping pages.
    #[must_use]
    pub fn expandable_segments(&self) -> bool {
        self.expandable_segments
    }

    /// Blocks of this size and more are not split; `None` is no limit.
    #[must_use]
    pub fn max_split_bytes(&self) -> Option<usize> {
        self.max_split_bytes
    }

    fn apply(&mut self, setting: Setting<'_>) -> Result<()> {
        let at_least_large = self.large_segment_bytes / MIB..=MAX_MIB;
        match setting.key {
            "expandable_segments" => self.expandable_segments = setting.boolean()?,
            "max_split_size_mb" => {
                self.max_split_bytes = Some(setting.mebibytes(at_least_large)?);
            }
            "max_non_split_rounding_mb" => {
                self.max_non_split_rounding_bytes = setting.mebibytes(at_least_large)?;
            }
            "roundup_power2_divisions" => {
                self.roundup_power2_divisions = divisions(setting, self.roundup_power2_divisions)?;
            }
            "garbage_collection_threshold" => {
                let allowed = "a number between 0 and 1, without these two";
                let threshold = setting.decimal(allowed, |part| part > 0.0 && part < 1.0)?;
                self.garbage_collection_threshold = Some(threshold);
            }
            "per_process_memory_fraction" => {
                let is_right = |part| (0.0..=1.0).contains(&part);
                let fraction = setting.decimal("a number from 0 to 1", is_right)?;
                self.per_process_memory_fraction = Some(fraction);
                self.is_limit_named = true;
            }
            "throw_on_cudamalloc_oom" => self.reject_above_fraction = setting.boolean()?,
            "pinned_max_cached_size_mb" => {
                self.pinned_max_cached_bytes = Some(setting.mebibytes(0..=MAX_MIB)?);
            }
            "pinned_reserve_segment_size_mb" => {
                self.pinned_segment_bytes = setting.mebibytes(1..=MAX_MIB)?;
            }
            "exact_statistics" => self.exact_statistics = setting.boolean()?,
            "deterministic" => self.deterministic = setting.boolean()?,
            _ => {} // Keys that `followed_by` has read, and keys without effect.
        }
        Ok(())
    }
}

/// The settings of a runtime's allocators, with the text that set them.
///
/// ```
/// let settings: accelrt::AllocatorSettings = "max_split_size_mb:128".parse()?;
/// assert_eq!(settings.config().max_split_bytes(), Some(128 << 20));
/// assert_eq!(settings.text(), "max_split_size_mb:128");
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AllocatorSettings {
    text: String,
    config: AllocatorConfig,
}

impl AllocatorSettings {
    /// The last text, as written; empty for the defaults.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The settings after the last text.
    #[must_use]
    pub fn config(&self) -> &AllocatorConfig {
        &self.config
    }

    /// As [`AllocatorConfig::followed_by`]. The new text replaces the earlier one.
    pub fn followed_by(&self, text: &str) -> Result<Self> {
        Ok(Self { config: self.config.followed_by(text)?, text: text.to_owned() })
    }
}

impl FromStr for AllocatorSettings {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::default().followed_by(text)
    }
}

/// Returns the settings text of a PyTorch snapshot without the keys in `IGNORED_KEYS`, which this
/// runtime accepts only with `strict:False`, and without the keys that it does not know. These, of
/// other versions of PyTorch, are returned too: each may have had an effect.
///
/// Fails when the text is malformed, or when `backend` is not PyTorch's `native` allocator.
pub fn recorded_settings(text: &str) -> Result<(String, Vec<String>)> {
    let pairs = pairs(text)?;
    if let Some(other) = pairs.iter().find(|pair| pair.key == "backend" && pair.value != "native") {
        return Err(other.refused("native, whose decisions can be reproduced"));
    }
    let is_idle = |pair: &Setting<'_>| IGNORED_KEYS.iter().any(|(key, _)| *key == pair.key);
    let is_known = |pair: &Setting<'_>| KEYS.iter().any(|(key, _)| *key == pair.key);
    let (kept, others): (Vec<&Setting<'_>>, Vec<_>) = pairs.iter().partition(|it| is_known(it));
    let kept: Vec<_> = kept.iter().map(|pair| format!("{}:{}", pair.key, pair.value)).collect();
    let unknown = others.iter().filter(|pair| !is_idle(pair)).map(|pair| pair.key.to_owned());
    Ok((kept.join(","), unknown.collect()))
}

/// All keys, each with the policy that it selects, if any.
const KEYS: &[(&str, Option<PolicyName>)] = &[
    ("policy", None),
    ("strict", None),
    ("expandable_segments", Some(PolicyName::Torch)),
    ("large_segment_size_mb", Some(PolicyName::Torch)),
    ("max_split_size_mb", Some(PolicyName::Torch)),
    ("max_non_split_rounding_mb", Some(PolicyName::Torch)),
    ("roundup_power2_divisions", Some(PolicyName::Torch)),
    ("garbage_collection_threshold", Some(PolicyName::Torch)),
    ("per_process_memory_fraction", None),
    ("throw_on_cudamalloc_oom", None),
    ("pinned_max_cached_size_mb", None),
    ("pinned_reserve_segment_size_mb", None),
    ("exact_statistics", Some(PolicyName::Native)),
    ("deterministic", Some(PolicyName::Native)),
];

/// PyTorch's keys that have no effect here, each with the reason.
const IGNORED_KEYS: &[(&str, &str)] = &[
    ("backend", "there is one allocator; `policy` says whose decisions it takes"),
    ("release_lock_on_cudamalloc", LOCK_REASON),
    ("release_lock_on_hipmalloc", LOCK_REASON),
    ("graph_capture_record_stream_reuse", "streams are not captured into graphs"),
    ("pinned_use_cuda_host_register", REGISTER_REASON),
    ("pinned_use_hip_host_register", REGISTER_REASON),
    ("pinned_use_xpu_host_register", REGISTER_REASON),
    ("pinned_num_register_threads", REGISTER_REASON),
    ("pinned_use_background_threads", "pending frees are counters, which a request looks at"),
    ("pinned_max_round_threshold_mb", "pinned memory is not rounded up to powers of two"),
    ("pinned_free_catch_all", "a free of pinned memory raises nothing"),
];
const LOCK_REASON: &str = "how the allocator locks is no choice";
const REGISTER_REASON: &str = "pinned memory is made by the driver, not registered with it";

/// Parses a text, and checks that each key is known.
fn parse_checked(text: &str) -> Result<Vec<Setting<'_>>> {
    let pairs = pairs(text)?;
    let is_strict = last(&pairs, "strict").map_or(Ok(true), Setting::boolean)?;
    pairs.iter().try_for_each(|setting| check_key(*setting, is_strict))?;
    Ok(pairs)
}

/// The setting that counts of those with this key.
fn last<'a, 'b>(pairs: &'b [Setting<'a>], key: &str) -> Option<&'b Setting<'a>> {
    pairs.iter().rev().find(|setting| setting.key == key)
}

fn check_key(setting: Setting<'_>, is_strict: bool) -> Result<()> {
    if KEYS.iter().any(|(key, _)| *key == setting.key) {
        return Ok(());
    }
    let key = setting.key.to_owned();
    Err(match IGNORED_KEYS.iter().find(|(key, _)| *key == setting.key) {
        Some(_) if !is_strict => return Ok(()),
        Some((_, reason)) => {
            Error::Config(ConfigError::AllocatorSettingWithoutEffect { key, reason })
        }
        None => {
            let allowed = KEYS.iter().map(|(key, _)| *key).collect::<Vec<_>>().join(", ");
            Error::Config(ConfigError::UnknownAllocatorSetting { key, allowed })
        }
    })
}

/// The policy that the text names or that a key selects. Fails when these differ.
fn policy_of(pairs: &[Setting<'_>]) -> Result<PolicyName> {
    let mut policy = last(pairs, "policy").map(|setting| policy(*setting)).transpose()?;
    for setting in pairs {
        let Some((_, Some(its))) = KEYS.iter().find(|(key, _)| *key == setting.key) else {
            continue;
        };
        if *policy.get_or_insert(*its) != *its {
            let reason = match its {
                PolicyName::Torch => "it is a decision of policy torch, not of native",
                PolicyName::Native => "it is a decision of policy native, not of torch",
            };
            let key = setting.key.to_owned();
            return Err(Error::Config(ConfigError::AllocatorSettingWithoutEffect { key, reason }));
        }
    }
    Ok(policy.unwrap_or(AllocatorConfig::default().policy))
}

fn policy(setting: Setting<'_>) -> Result<PolicyName> {
    match setting.value {
        "torch" => Ok(PolicyName::Torch),
        "native" => Ok(PolicyName::Native),
        _ => Err(setting.refused("torch or native")),
    }
}

/// Parses `roundup_power2_divisions`: one number for all intervals, or a list, which changes the
/// `divisions` of an earlier one. The first interval of a list also applies to all smaller sizes.
fn divisions(
    setting: Setting<'_>,
    mut divisions: [usize; ROUNDUP_INTERVALS],
) -> Result<[usize; ROUNDUP_INTERVALS]> {
    let refused = || setting.refused(DIVISIONS);
    if !setting.value.starts_with('[') {
        let count = digits(setting.value).filter(|count| count.is_power_of_two());
        return count.map(|count| [count; ROUNDUP_INTERVALS]).ok_or_else(refused);
    }
    let mut index = 0;
    let mut is_first = true;
    for item in setting.items(DIVISIONS)? {
        let is_right = |count: &usize| *count == 0 || count.is_power_of_two();
        let count = digits(item.value).filter(is_right).ok_or_else(refused)?;
        if item.key == ">" {
            divisions[index + 1..].fill(count);
            continue;
        }
        let interval = digits(item.key).filter(|mib| mib.is_power_of_two());
        index = (interval.ok_or_else(refused)?.ilog2() as usize).min(ROUNDUP_INTERVALS - 1);
        let begin = if is_first { 0 } else { index };
        divisions[begin..=index].fill(count);
        is_first = false;
    }
    Ok(divisions)
}

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
