//! The memory of the machine and of the container around this process: total and available.
//!
//! The functions read all numbers from the kernel's text files. Missing or malformed content
//! counts as unknown.

use crate::base::size::KIB;

/// Returns the text of the file at a path; `None` if it cannot be read. Tests pass other functions.
pub(crate) type Files<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The text of the file at a path; `None` if it cannot be read.
#[must_use]
pub fn file(path: &str) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The minimum of the machine's memory, the cgroups' limits and the configured size.
pub fn total(files: Files<'_>, configured_bytes: Option<usize>) -> usize {
    let machine_bytes = meminfo(files, "MemTotal:");
    let cgroup_bytes = least_of_cgroups(files, Hierarchy::limit);
    let limits = [machine_bytes, cgroup_bytes, configured_bytes];
    // When no number is known, the total is unlimited, and the kernel refuses requests instead.
    limits.into_iter().flatten().min().unwrap_or(isize::MAX.unsigned_abs())
}

/// The number of bytes that this process can still take before the machine or the container swaps
/// or refuses. `None` if the kernel reports no number. Inactive files in the page cache count as
/// available, as in `MemAvailable`.
#[must_use]
pub fn available() -> Option<usize> {
    available_by(&file)
}

fn available_by(files: Files<'_>) -> Option<usize> {
    [meminfo(files, "MemAvailable:"), least_of_cgroups(files, Hierarchy::available)]
        .into_iter()
        .flatten()
        .min()
}

/// Reads the size after `key` in `/proc/meminfo`, in bytes.
fn meminfo(files: Files<'_>, key: &str) -> Option<usize> {
    let text = files("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(KIB)
}

/// One cgroup version: the names of its mount, and of the files with its memory limits.
struct Hierarchy {
    /// The file system type in `/proc/self/mountinfo`.
    file_system: &'static str,
    /// The controller in the mount's options and in `/proc/self/cgroup`; `None` for version 2.
    controller: Option<&'static str>,
    /// The file in each cgroup's directory with the limit in bytes.
    limit_file: &'static str,
    /// The file in each cgroup's directory with the bytes in use.
    usage_file: &'static str,
    /// The key in `memory.stat` for inactive files in the page cache.
    reclaimable_key: &'static str,
}

const HIERARCHIES: [Hierarchy; 2] = [
    Hierarchy {
        file_system: "cgroup2",
        controller: None,
        limit_file: "memory.max",
        usage_file: "memory.current",
        reclaimable_key: "inactive_file",
    },
    Hierarchy {
        file_system: "cgroup",
        controller: Some("memory"),
        limit_file: "memory.limit_in_bytes",
        usage_file: "memory.usage_in_bytes",
        reclaimable_key: "total_inactive_file",
    },
];

/// The minimum of `bytes_of` over this process's cgroups and all their parents.
fn least_of_cgroups(
    files: Files<'_>,
    bytes_of: fn(&Hierarchy, Files<'_>, &str) -> Option<usize>,
) -> Option<usize> {
    let (membership, mounts) = (files("/proc/self/cgroup")?, files("/proc/self/mountinfo")?);
    let least = HIERARCHIES.iter().filter_map(|hierarchy| {
        let path = hierarchy.path(&membership)?;
        let (root, mount_point) = hierarchy.mount(&mounts)?;
        let below = below_root(path, &root);
        directories(&mount_point, &below).filter_map(|it| bytes_of(hierarchy, files, &it)).min()
    });
    least.min()
}

/// The directories from `path` up to the mount point.
fn directories(mount_point: &str, path: &str) -> impl Iterator<Item = String> {
    let mut path = Some(path.trim_matches('/').to_owned());
    std::iter::from_fn(move || {
        let this = path.take()?;
        let separator = if this.is_empty() { "" } else { "/" };
        let directory = format!("{mount_point}{separator}{this}");
        path = (!this.is_empty())
            .then(|| this.rsplit_once('/').map_or(String::new(), |(parent, _)| parent.to_owned()));
        Some(directory)
    })
}

impl Hierarchy {
    /// The path of this process's cgroup, from a line `4:memory:/path`, or `0::/path` in version 2.
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
            let (location, kind) = line.split_once(" - ")?;
            let mut kind = kind.split(' ');
            let (file_system, options) = (kind.next()?, kind.nth(1).unwrap_or_default());
            let is_ours = file_system == self.file_system
                && self.controller.is_none_or(|wanted| options.split(',').any(|it| it == wanted));
            let mut location = location.split(' ').skip(3);
            let (root, mount_point) = (location.next()?, location.next()?);
            is_ours.then(|| (unescaped(root), unescaped(mount_point)))
        })
    }

    fn limit(&self, files: Files<'_>, directory: &str) -> Option<usize> {
        // A cgroup without a limit has `max` in version 2, which fails the parse, and a huge number
        // in version 1, which loses to smaller numbers in `min`.
        let text = files(&format!("{directory}/{}", self.limit_file))?;
        let bytes = text.trim().parse::<u64>().ok()?;
        Some(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// The bytes that a cgroup can still take: its limit minus its memory that is not reclaimable.
    fn available(&self, files: Files<'_>, directory: &str) -> Option<usize> {
        let limit_bytes = self.limit(files, directory)?;
        let usage = files(&format!("{directory}/{}", self.usage_file))?;
        let usage_bytes = usage.trim().parse::<usize>().ok()?;
        let statistics = files(&format!("{directory}/memory.stat")).unwrap_or_default();
        let reclaimable_bytes = statistics.lines().find_map(|line| {
            let (key, value) = line.split_once(' ')?;
            if key == self.reclaimable_key { value.trim().parse().ok() } else { None }
        });
        let used_bytes = usage_bytes.saturating_sub(reclaimable_bytes.unwrap_or(0));
        Some(limit_bytes.saturating_sub(used_bytes))
    }
}

/// A cgroup's path relative to the mounted `root`. A container may mount only its own part of the
/// hierarchy, while `path` still starts at the top of the whole hierarchy. For a path outside of
/// the mount (`/..`, or another root) the result is empty: the search reads only the mount point.
fn below_root(path: &str, root: &str) -> String {
    let below = match root {
        "/" => Some(path),
        root => path.strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with('/')),
    };
    let below = below.filter(|below| below.split('/').all(|part| part != ".."));
    below.unwrap_or_default().to_owned()
}

/// Decodes a field of the mount table, where blanks, tabs, newlines and backslashes are octal.
fn unescaped(field: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.into_iter().fold(field.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::size::GIB;

    fn text_of(pairs: &[(&str, &str)], path: &str) -> Option<String> {
        let found = pairs.iter().find(|(given, _)| *given == path);
        found.map(|(_, text)| (*text).to_owned())
    }

    fn limit_with(pairs: &[(&str, &str)]) -> Option<usize> {
        least_of_cgroups(&|path| text_of(pairs, path), Hierarchy::limit)
    }

    fn available_with(pairs: &[(&str, &str)]) -> Option<usize> {
        available_by(&|path| text_of(pairs, path))
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
    fn a_limit_at_the_mount_point_itself_holds_below_it() {
        let files = [
            ("/proc/self/cgroup", "0::/job\n"),
            ("/proc/self/mountinfo", V2_MOUNTS),
            ("/sys/fs/cgroup/job/memory.max", "max"),
            ("/sys/fs/cgroup/memory.max", "5000"),
        ];
        assert_eq!(limit_with(&files), Some(5_000));
    }

    #[test]
    fn a_controller_may_stand_among_others_and_a_mount_point_have_any_name() {
        let mounts =
            "35 31 0:32 / /a\\040b\\011c\\012d\\134040 rw - cgroup cgroup rw,cpu,memory,hugetlb\n";
        let files = [
            ("/proc/self/cgroup", "4:cpu,memory,hugetlb:/job\n"),
            ("/proc/self/mountinfo", mounts),
            ("/a b\tc\nd\\040/job/memory.limit_in_bytes", "77"),
        ];
        assert_eq!(limit_with(&files), Some(77));
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
        assert_eq!(total(&files, None), 600_000);
        assert_eq!(total(&files, Some(500_000)), 500_000);
        assert_eq!(total(&files, Some(700_000)), 600_000);
        let machine_alone = |path: &str| files(path).filter(|_| path == "/proc/meminfo");
        assert_eq!(total(&machine_alone, None), 1000 * KIB);
        assert_eq!(total(&|_| None, None), isize::MAX.unsigned_abs());
    }

    #[test]
    fn odd_content_is_no_limit_and_no_panic() {
        for odd in ["", "\n", "-1", "max", "1 2", "99999999999999999999999", "0x10", "::", " - "] {
            let files = [
                ("/proc/self/cgroup", "0::/\n"),
                ("/proc/self/mountinfo", V2_MOUNTS),
                ("/sys/fs/cgroup/memory.max", odd),
            ];
            assert_eq!((limit_with(&files), available_with(&files)), (None, None), "{odd:?}");
            let files = [("/proc/self/cgroup", odd), ("/proc/self/mountinfo", odd)];
            assert_eq!((limit_with(&files), available_with(&files)), (None, None), "{odd:?}");
            assert_eq!(available_by(&|_| Some(odd.to_owned())), None, "{odd:?}");
        }
    }

    #[test]
    fn available_is_what_the_machine_or_the_fullest_cgroup_has_left() {
        let files = [
            ("/proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    5000 kB\n"),
            ("/proc/self/cgroup", "0::/outer/inner\n"),
            ("/proc/self/mountinfo", V2_MOUNTS),
            ("/sys/fs/cgroup/outer/inner/memory.max", "max\n"),
            ("/sys/fs/cgroup/outer/inner/memory.current", "77\n"),
            ("/sys/fs/cgroup/outer/memory.max", "4000000\n"),
            ("/sys/fs/cgroup/outer/memory.current", "3000000\n"),
            ("/sys/fs/cgroup/outer/memory.stat", "anon 5\ninactive_file 500000\nslab 9\n"),
        ];
        assert_eq!(available_with(&files), Some(1_500_000));
        assert_eq!(available_with(&files[..7]), Some(1_000_000));
        assert_eq!(available_with(&files[..6]), Some(5_000 * KIB), "its use is not told");
        assert_eq!(available_with(&files[..1]), Some(5_000 * KIB));
        assert_eq!(available_with(&[]), None);
        let first = [
            ("/proc/self/cgroup", "4:memory:/a\n"),
            ("/proc/self/mountinfo", V1_MOUNTS),
            ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000"),
            ("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "1200"),
            ("/sys/fs/cgroup/memory/a/memory.stat", "inactive_file 900\ntotal_inactive_file 300"),
        ];
        assert_eq!(available_with(&first), Some(100));
        assert_eq!(available_with(&first[..4]), Some(0), "above its limit nothing is left");
    }

    #[test]
    fn this_machine_has_less_available_than_it_has() {
        let available_bytes = available().expect("Linux tells");
        assert!(available_bytes > 0 && available_bytes <= total(&file, None));
    }
}
