//! What the machine is, as far as this process may use it: cores, caches, pages, memory.
//!
//! Everything is read from the kernel's text files and parsed without trust: a file that is missing
//! or says something odd leaves its property unknown.

use crate::backend::contract::DeviceProperties;
use crate::size::{GIB, KIB, MIB};

use super::pages;

/// The properties of a cpu device whose capacity was configured as `configured_bytes`.
pub(crate) fn read(configured_bytes: Option<usize>) -> DeviceProperties {
    properties(&file, configured_bytes)
}

/// Size of the last data cache, when it is known.
pub(crate) fn last_cache_bytes() -> Option<usize> {
    data_caches(&file).last().copied()
}

/// The content of a file, when there is one: the machine's own, or a test's.
type Files<'a> = &'a dyn Fn(&str) -> Option<String>;

fn file(path: &str) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn properties(files: Files<'_>, configured_bytes: Option<usize>) -> DeviceProperties {
    let name = files("/proc/cpuinfo").as_deref().and_then(model_name);
    let name = name.unwrap_or_else(|| format!("{} processor", std::env::consts::ARCH));
    let total_bytes = total_memory(files, configured_bytes);
    let mut properties = DeviceProperties::new(name, total_bytes);
    // The standard library counts the processors of this thread's affinity mask, and less where a
    // cgroup's quota (either version, its parents' too) allows less.
    properties.core_count = std::thread::available_parallelism().map_or(1, Into::into);
    properties.cache_bytes = data_caches(files);
    properties.page_bytes = pages::page_bytes();
    properties.huge_page_bytes = huge_page(files);
    properties.has_shared_memory = true;
    properties
}

/// The processor's name: x86 says `model name`, others `Model`, `cpu` or nothing.
fn model_name(cpuinfo: &str) -> Option<String> {
    ["model name", "Model", "cpu model", "cpu"].into_iter().find_map(|wanted| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
            (key.trim() == wanted && !value.is_empty()).then_some(value)
        })
    })
}

/// Data and unified caches of the first processor, from level 1 up.
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

/// `"48K"`, `"2M"` or plain bytes; zero is as good as unknown.
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

/// Size of a transparent huge page, unless they are off.
fn huge_page(files: Files<'_>) -> Option<usize> {
    let directory = "/sys/kernel/mm/transparent_hugepage";
    let enabled = files(&format!("{directory}/enabled"))?;
    let is_on = ["[always]", "[madvise]"].into_iter().any(|choice| enabled.contains(choice));
    let bytes = files(&format!("{directory}/hpage_pmd_size"));
    let bytes = bytes.map_or(Some(2 * MIB), |text| size(text.trim()));
    bytes.filter(|_| is_on)
}

/// The least of what the machine has, what the cgroups allow and what was configured.
fn total_memory(files: Files<'_>, configured_bytes: Option<usize>) -> usize {
    let machine_bytes = files("/proc/meminfo").as_deref().and_then(machine_memory);
    let cgroup_bytes = cgroup_limit(files);
    let limits = [machine_bytes, cgroup_bytes, configured_bytes];
    // With nothing known at all the kernel is left to refuse.
    limits.into_iter().flatten().min().unwrap_or(isize::MAX.unsigned_abs())
}

fn machine_memory(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(KIB)
}

/// Where one version of cgroups keeps memory limits.
struct Hierarchy {
    /// The file system type in the table of mounts.
    file_system: &'static str,
    /// The controller that the mount and the process's line must name; none for version 2.
    controller: Option<&'static str>,
    /// The file with the limit in each directory.
    limit_file: &'static str,
}

const HIERARCHIES: [Hierarchy; 2] = [
    Hierarchy { file_system: "cgroup2", controller: None, limit_file: "memory.max" },
    Hierarchy {
        file_system: "cgroup",
        controller: Some("memory"),
        limit_file: "memory.limit_in_bytes",
    },
];

/// The least limit of this process's cgroups and of all their parents.
fn cgroup_limit(files: Files<'_>) -> Option<usize> {
    let (membership, mounts) = (files("/proc/self/cgroup")?, files("/proc/self/mountinfo")?);
    let limits = HIERARCHIES.iter().filter_map(|hierarchy| {
        let path = hierarchy.path(&membership)?;
        let (root, mount_point) = hierarchy.mount(&mounts)?;
        hierarchy.least_limit(files, &mount_point, &below_root(path, &root))
    });
    limits.min()
}

impl Hierarchy {
    /// The process's path: `4:memory:/path`, or `0::/path` in version 2.
    fn path<'a>(&self, membership: &'a str) -> Option<&'a str> {
        membership.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let is_ours = match self.controller {
                None => id == "0" && controllers.is_empty(),
                Some(wanted) => controllers.split(',').any(|controller| controller == wanted),
            };
            is_ours.then_some(path)
        })
    }

    /// The root and the mount point of the hierarchy in `/proc/self/mountinfo`:
    /// `35 31 0:31 ROOT POINT rw - cgroup cgroup rw,memory`.
    fn mount(&self, mounts: &str) -> Option<(String, String)> {
        mounts.lines().find_map(|line| {
            let (place, kind) = line.split_once(" - ")?;
            let mut kind = kind.split(' ');
            let (file_system, options) = (kind.next()?, kind.nth(1).unwrap_or_default());
            let is_ours = file_system == self.file_system
                && self.controller.is_none_or(|wanted| options.split(',').any(|it| it == wanted));
            let mut place = place.split(' ').skip(3);
            let (root, mount_point) = (place.next()?, place.next()?);
            is_ours.then(|| (unescaped(root), unescaped(mount_point)))
        })
    }

    /// The least limit from `path` up to the mount point.
    fn least_limit(&self, files: Files<'_>, mount_point: &str, path: &str) -> Option<usize> {
        let mut least = None;
        let mut path = path.trim_matches('/');
        loop {
            let separator = if path.is_empty() { "" } else { "/" };
            let limit = files(&format!("{mount_point}{separator}{path}/{}", self.limit_file));
            // `max` and version 1's largest number mean no limit; both fall out here or at `min`.
            let limit = limit.and_then(|text| text.trim().parse::<u64>().ok());
            let limit = limit.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
            least = least.into_iter().chain(limit).min();
            if path.is_empty() {
                return least;
            }
            path = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        }
    }
}

/// The process's path as seen below a mount of `root`. A container may see its own part of the
/// hierarchy mounted while its path is still told from the whole one's top. A path outside of what
/// is mounted (`/..`, or another root) leaves the mount point alone to look at.
fn below_root(path: &str, root: &str) -> String {
    let below = match root {
        "/" => Some(path),
        root => path.strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with('/')),
    };
    let below = below.filter(|below| below.split('/').all(|part| part != ".."));
    below.unwrap_or_default().to_owned()
}

/// A field of the mount table, in which blanks, tabs, newlines and backslashes are octal.
fn unescaped(field: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.into_iter().fold(field.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn limit_with(pairs: &[(&str, &str)]) -> Option<usize> {
        cgroup_limit(&|path| {
            let found = pairs.iter().find(|(given, _)| *given == path);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    const V1_MOUNTS: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        33 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n";
    const V2_MOUNTS: &str = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";

    #[test]
    fn version_1_limits_are_taken_from_the_process_up() {
        let files = [
            ("/proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/outer/inner\n0::/\n"),
            ("/proc/self/mountinfo", V1_MOUNTS),
            ("/sys/fs/cgroup/memory/outer/inner/memory.limit_in_bytes", "9223372036854771712\n"),
            ("/sys/fs/cgroup/memory/outer/memory.limit_in_bytes", "4096000\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(limit_with(&files), Some(4_096_000));
    }

    #[test]
    fn version_2_limits_are_taken_from_the_process_up() {
        let files = [
            ("/proc/self/cgroup", "0::/user.slice/app.scope\n"),
            ("/proc/self/mountinfo", V2_MOUNTS),
            ("/sys/fs/cgroup/user.slice/app.scope/memory.max", "max\n"),
            ("/sys/fs/cgroup/user.slice/memory.max", "2147483648\n"),
        ];
        assert_eq!(limit_with(&files), Some(2 * GIB));
        assert_eq!(limit_with(&files[..3]), None);
        assert_eq!(limit_with(&files[..1]), None);
        assert_eq!(limit_with(&[]), None);
    }

    #[test]
    fn of_both_versions_the_smaller_limit_holds() {
        let mounts = format!("{V1_MOUNTS}41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 x rw\n");
        let files = [
            ("/proc/self/cgroup", "4:memory:/a\n0::/b\n"),
            ("/proc/self/mountinfo", mounts.as_str()),
            ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "5000"),
            ("/sys/fs/cgroup/unified/b/memory.max", "4000"),
        ];
        assert_eq!(limit_with(&files), Some(4_000));
        assert_eq!(limit_with(&files[..3]), Some(5_000));
    }

    #[test]
    fn a_container_that_sees_its_own_part_mounted_finds_its_limit() {
        let mounts = "35 31 0:32 /docker/abc /sys/fs/cg\\040roup ro - cgroup2 cgroup ro\n";
        for (path, limit_path) in [
            ("0::/docker/abc/job\n", "/sys/fs/cg roup/job/memory.max"),
            ("0::/docker/abc\n", "/sys/fs/cg roup/memory.max"),
            ("0::/docker/abcdef\n", "/sys/fs/cg roup/memory.max"),
            ("0::/../other\n", "/sys/fs/cg roup/memory.max"),
        ] {
            let files =
                [("/proc/self/cgroup", path), ("/proc/self/mountinfo", mounts), (limit_path, "77")];
            assert_eq!(limit_with(&files), Some(77), "{path}");
        }
    }

    #[test]
    fn odd_content_is_no_limit_and_no_panic() {
        for odd in ["", "\n", "-1", "max", "1 2", "99999999999999999999999", "0x10", "::", " - "] {
            let files = [
                ("/proc/self/cgroup", "0::/\n"),
                ("/proc/self/mountinfo", V2_MOUNTS),
                ("/sys/fs/cgroup/memory.max", odd),
            ];
            assert_eq!(limit_with(&files), None, "{odd:?}");
            let files = [("/proc/self/cgroup", odd), ("/proc/self/mountinfo", odd)];
            assert_eq!(limit_with(&files), None, "{odd:?}");
            let properties = properties(&|_| Some(odd.to_owned()), Some(12_345));
            assert_eq!(properties.total_memory_bytes, 12_345, "{odd:?}");
            assert_eq!(properties.huge_page_bytes, None, "{odd:?}");
            assert!(properties.cache_bytes.is_empty() && !properties.name.is_empty());
        }
    }

    #[test]
    fn memory_is_the_least_of_machine_container_and_setting() {
        let files = |path: &str| match path {
            "/proc/meminfo" => Some("MemFree: 1 kB\nMemTotal:       1000 kB\n".to_owned()),
            "/proc/self/cgroup" => Some("0::/\n".to_owned()),
            "/proc/self/mountinfo" => Some(V2_MOUNTS.to_owned()),
            "/sys/fs/cgroup/memory.max" => Some("600000\n".to_owned()),
            _ => None,
        };
        assert_eq!(total_memory(&files, None), 600_000);
        assert_eq!(total_memory(&files, Some(500_000)), 500_000);
        assert_eq!(total_memory(&files, Some(700_000)), 600_000);
        let machine_alone = |path: &str| files(path).filter(|_| path == "/proc/meminfo");
        assert_eq!(total_memory(&machine_alone, None), 1000 * KIB);
        assert_eq!(total_memory(&|_| None, None), isize::MAX.unsigned_abs());
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
    fn the_name_is_the_makers() {
        let x86 = "processor\t: 0\nmodel\t\t: 17\nmodel name\t: Some  CPU @ 2.00GHz\n";
        assert_eq!(model_name(x86).as_deref(), Some("Some CPU @ 2.00GHz"));
        assert_eq!(model_name("Model\t\t: Board 4\n").as_deref(), Some("Board 4"));
        assert_eq!(model_name("model name\t:\nfoo\n"), None);
    }

    #[test]
    fn huge_pages_exist_unless_they_are_off() {
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
