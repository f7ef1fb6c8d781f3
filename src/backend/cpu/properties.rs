//! The machine's properties within this process's limits, and the processor of a thread.
//!
//! Most values come from text files of the kernel. A malformed file leaves its property unknown.
#![expect(unsafe_code, reason = "asks the C library for the current processor")]

use super::pages;
use crate::backend::contract::DeviceProperties;
use crate::base::machine_memory;
use crate::base::machine_memory::{Files, file};
use crate::base::size::{GIB, KIB, MIB};
use crate::base::sync::Ordering;
use crate::base::sync::unmodelled::AtomicU64;

/// Reads the machine's properties for a cpu device. `configured_bytes` lowers the capacity.
pub(crate) fn read(configured_bytes: Option<usize>) -> DeviceProperties {
    properties(&file, configured_bytes)
}

/// Size of the data cache of the highest level, if known.
pub(crate) fn last_cache_bytes() -> Option<usize> {
    data_caches(&file).last().copied()
}

fn properties(files: Files<'_>, configured_bytes: Option<usize>) -> DeviceProperties {
    let name = files("/proc/cpuinfo").as_deref().and_then(model_name);
    let name = name.unwrap_or_else(|| format!("{} processor", std::env::consts::ARCH));
    let total_bytes = machine_memory::total(files, configured_bytes);
    let mut properties = DeviceProperties::new(name, total_bytes);
    // The standard library counts the processors of this thread's affinity mask, limited by the
    // cgroup's CPU quota (both versions, parents included).
    properties.core_count = std::thread::available_parallelism().map_or(1, Into::into);
    properties.cache_bytes = data_caches(files);
    properties.page_bytes = pages::page_bytes();
    properties.huge_page_bytes = huge_page(files);
    properties.has_shared_memory = true;
    properties.has_bfloat16_conversions = has_bfloat16_conversions();
    properties
}

fn has_bfloat16_conversions() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Parses the processor's name. Its key is `model name` on x86, and another or absent elsewhere.
fn model_name(cpuinfo: &str) -> Option<String> {
    ["model name", "Model", "cpu model", "cpu"].into_iter().find_map(|wanted| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
            (key.trim() == wanted && !value.is_empty()).then_some(value)
        })
    })
}

/// Sizes of the first processor's data and unified caches, from level 1 up.
fn data_caches(files: Files<'_>) -> Vec<usize> {
    let mut caches = Vec::new();
    for index in 0..16 {
        let entry = |name: &str| {
            let text = files(&format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}"))?;
            Some(text.trim().to_owned())
        };
        let Some(kind) = entry("type") else { break };
        let level = entry("level").and_then(|level| level.parse::<u32>().ok());
        let bytes = entry("size").as_deref().and_then(size);
        if let (Some(level), Some(bytes), "Data" | "Unified") = (level, bytes, kind.as_str()) {
            caches.push((level, bytes));
        }
    }
    caches.sort_unstable();
    caches.into_iter().map(|(_, bytes)| bytes).collect()
}

/// Parses `"48K"`, `"2M"` or plain bytes; zero counts as unknown.
fn size(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let unit_bytes = match &text[digits.len()..] {
        "" => 1,
        "K" => KIB,
        "M" => MIB,
        "G" => GIB,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(unit_bytes).filter(|bytes| *bytes > 0)
}

/// Size of a transparent huge page; `None` where the kernel has them disabled.
fn huge_page(files: Files<'_>) -> Option<usize> {
    let directory = "/sys/kernel/mm/transparent_hugepage";
    let enabled = files(&format!("{directory}/enabled"))?;
    let is_on = ["[always]", "[madvise]"].into_iter().any(|choice| enabled.contains(choice));
    let bytes = files(&format!("{directory}/hpage_pmd_size"));
    let bytes = bytes.map_or(Some(2 * MIB), |text| size(text.trim()));
    bytes.filter(|_| is_on)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn malformed_content_leaves_properties_unknown() {
        for odd in ["", "\n", "-1", "max", "1 2", "99999999999999999999999", "0x10", "::", " - "] {
            let properties = properties(&|_| Some(odd.to_owned()), Some(12_345));
            assert_eq!(properties.total_memory_bytes, 12_345, "{odd:?}");
            assert_eq!(properties.huge_page_bytes, None, "{odd:?}");
            assert!(properties.cache_bytes.is_empty() && !properties.name.is_empty());
        }
    }

    #[test]
    fn caches_are_data_caches_in_the_order_of_their_levels() {
        let table = [("Unified", "3", "32M"), ("Data", "1", "32K"), ("Instruction", "1", "64K")];
        let files = |path: &str| {
            let (index, name) = path.split_once("/index")?.1.split_once('/')?;
            let (kind, level, size) = table.get(index.parse::<usize>().ok()?)?;
            Some(match name {
                "type" => format!("{kind}\n"),
                "level" => format!("{level}\n"),
                _ => format!("{size}\n"),
            })
        };
        assert_eq!(data_caches(&files), [32 * KIB, 32 * MIB]);
        assert_eq!(data_caches(&|_| None), Vec::<usize>::new());
        assert_eq!(["0K", "K", "1T", "9999999999999999G"].map(size), [None; 4]);
    }

    #[test]
    fn the_name_is_parsed_from_cpuinfo() {
        let x86 = "processor\t: 0\nmodel\t\t: 17\nmodel name\t: Some  CPU @ 2.00GHz\n";
        assert_eq!(model_name(x86).as_deref(), Some("Some CPU @ 2.00GHz"));
        assert_eq!(model_name("Model\t\t: Board 4\n").as_deref(), Some("Board 4"));
        assert_eq!(model_name("model name\t:\nfoo\n"), None);
    }

    #[test]
    fn huge_pages_are_reported_unless_disabled() {
        let huge = |enabled: &'static str, bytes: Option<&'static str>| {
            huge_page(&|path| {
                if path.ends_with("enabled") {
                    Some(enabled.to_owned())
                } else {
                    bytes.map(str::to_owned)
                }
            })
        };
        assert_eq!(huge("always [madvise] never\n", Some("2097152\n")), Some(2 * MIB));
        assert_eq!(huge("[always] madvise never\n", None), Some(2 * MIB));
        assert_eq!(huge("always madvise [never]\n", Some("2097152\n")), None);
        assert_eq!(huge_page(&|_| None), None);
    }

    #[test]
    fn this_machine_has_properties() {
        let properties = read(Some(MIB));
        assert_eq!(properties.total_memory_bytes, MIB);
        assert!(read(None).total_memory_bytes > MIB);
        assert!(properties.core_count >= 1 && !properties.is_gpu);
        assert!(properties.page_bytes.is_power_of_two());
    }
}

/// The value before the first record, and where the system reports no processor.
const UNKNOWN: u64 = u64::MAX;

/// The processor of the last thread that called [`LastProcessor::record_current`].
#[derive(Debug)]
pub(super) struct LastProcessor(AtomicU64);

impl LastProcessor {
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(UNKNOWN))
    }

    /// Records the processor that the calling thread runs on.
    pub(super) fn record_current(&self) {
        let own = current();
        // Relaxed, here and below: a hint orders nothing. The store happens only on a change,
        // because it evicts the line from the caches of the workers that read it.
        if self.0.load(Ordering::Relaxed) != own {
            self.0.store(own, Ordering::Relaxed);
        }
    }

    /// True when this thread runs on the recorded processor and so keeps the noting thread off it.
    pub(super) fn is_current(&self) -> bool {
        let last = self.0.load(Ordering::Relaxed);
        last != UNKNOWN && last == current()
    }
}

fn current() -> u64 {
    // SAFETY: the call has no pre-condition, and only reads the calling thread's state.
    let number = unsafe { libc::sched_getcpu() };
    u64::try_from(number).unwrap_or(UNKNOWN)
}

#[cfg(all(test, not(loom)))]
mod processor_tests {
    use super::*;

    #[test]
    fn an_unset_processor_is_not_current() {
        assert!(!LastProcessor::new().is_current());
    }

    #[test]
    fn a_noted_processor_is_current() {
        let last = LastProcessor::new();
        // An attempt fails if the system moves the thread between its two calls; most succeed.
        let is_raised = (0..1_000).any(|_| {
            last.record_current();
            last.is_current()
        });
        assert!(is_raised);
    }
}

/// The widest vector instructions that the processor and the system support, by the names of
/// `torch.backends.cpu.get_cpu_capability`: `AVX512` (with VL, BW and DQ), `AVX2` (each with FMA),
/// `SVE` or `DEFAULT`.
///
/// ```
/// assert!(["AVX512", "AVX2", "SVE", "DEFAULT"].contains(&accelrt::cpu_capability()));
/// ```
#[must_use]
pub fn cpu_capability() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        let has_fma = is_x86_feature_detected!("fma");
        let has_avx512 = is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq");
        if has_fma && has_avx512 {
            return "AVX512";
        }
        if has_fma && is_x86_feature_detected!("avx2") {
            return "AVX2";
        }
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("sve") {
        return "SVE";
    }
    "DEFAULT"
}
