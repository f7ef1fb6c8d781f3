//! The probe: opens the OpenCL library and queries its platforms and their devices.
//!
//! The probe initialises no device, but it loads the vendors' libraries. Most of them start threads
//! with the first context. The probe records whether threads start earlier: a forked child would
//! wait for these threads for ever, so the runtime refuses to work in the child.
//!
//! The library is the configured one, else the system's ICD loader. If the loader is missing or
//! finds no usable device, the probe opens Intel's runtime in the environment's own folder. This
//! runtime exports the loader's functions, so installing its wheel is sufficient.
//!
//! As in torch, all devices are of one platform, because only devices of one platform share memory
//! and events. The probe chooses the first platform with a GPU, else the first usable one.
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process;
use std::sync::Arc;

use accelrt::MAX_DEVICE_INDEX;
use accelrt::backend::contract::LeftOutDevice;
use accelrt::internal::dylib;
use accelrt::internal::dylib::Library;

use crate::device::{DeviceInfo, XpuDevice};
use crate::driver::Driver;
use crate::sys::{self, Platform, Usm};

/// File names of the ICD loader, in order of preference.
const LOADERS: [&str; 2] = ["libOpenCL.so.1", "libOpenCL.so"];

/// The file name of Intel's runtime for CPUs in its wheel.
const INTEL_RUNTIME: &str = "libintelocl.so";

/// The result of the probe: the usable devices, or the reason why there are none.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) found: Result<UsableDevices, String>,
    pub(crate) left_out: Vec<LeftOutDevice>,
    /// The process that probed, whose threads `has_started_threads` describes.
    process: u32,
    has_started_threads: bool,
}

/// The usable devices of one platform, at least one.
#[derive(Debug)]
pub(crate) struct UsableDevices {
    pub(crate) driver: Driver,
    pub(crate) platform: Platform,
    pub(crate) usm: Usm,
    pub(crate) devices: Vec<Arc<XpuDevice>>,
}

impl UsableDevices {
    /// Opens the first of the named libraries that loads, and searches it for usable devices.
    fn in_first_library(
        names: &[&str],
        memory_bytes: Option<usize>,
        left_out: &mut Vec<LeftOutDevice>,
    ) -> Result<Self, String> {
        let (driver, candidates) = find(names, left_out)?;
        let chosen = choose(candidates, left_out).ok_or_else(|| no_usable_device(left_out))?;
        let Candidate { platform, usm, devices, .. } = chosen;
        let devices = devices.into_iter().enumerate().take(usize::from(MAX_DEVICE_INDEX) + 1);
        let device = |(index, info)| Arc::new(XpuDevice::new(index, info, memory_bytes));
        Ok(Self { driver, platform, usm, devices: devices.map(device).collect() })
    }
}

/// A platform with usable devices.
struct Candidate {
    platform: Platform,
    name: String,
    usm: Usm,
    devices: Vec<DeviceInfo>,
}

impl Probe {
    /// Probes `library`, else the default ones. `memory_bytes` replaces each device's capacity.
    pub(crate) fn new(library: Option<&str>, memory_bytes: Option<usize>) -> Self {
        let own = || dylib::python_lib_dir().map(|folder| folder.join(INTEL_RUNTIME));
        match library {
            Some(name) => Self::of(&[&[name]], memory_bytes),
            None => match own().filter(|file| file.exists()) {
                Some(file) => Self::of(&[&LOADERS, &[&file.to_string_lossy()]], memory_bytes),
                None => Self::of(&[&LOADERS], memory_bytes),
            },
        }
    }

    /// Probes the first loadable library of each group, until one has a usable device.
    fn of(libraries: &[&[&str]], memory_bytes: Option<usize>) -> Self {
        let before = threads();
        let (mut left_out, mut reasons) = (Vec::new(), Vec::new());
        let found = libraries.iter().find_map(|names| {
            let mut unusable = Vec::new();
            let found = UsableDevices::in_first_library(names, memory_bytes, &mut unusable);
            left_out.append(&mut unusable);
            found.map_err(|reason| reasons.push(reason)).ok()
        });
        let found = found.ok_or_else(|| reasons.join("; "));
        // Also true if other code started threads during the probe: the runtime then refuses to
        // work in a forked child although it could.
        let has_started_threads = !threads().is_subset(&before);
        Self { found, left_out, process: process::id(), has_started_threads }
    }

    /// True in a forked child when the probe's threads exist only in the parent.
    pub(crate) fn is_in_forked_child(&self) -> bool {
        self.has_started_threads && self.process != process::id()
    }
}

/// True when the folder `devices` has a GPU's node. Opens no node.
pub(crate) fn has_gpu_node(devices: &Path) -> bool {
    let is_node = |name: OsString| name.to_string_lossy().starts_with("renderD");
    let mut nodes = devices.join("dri").read_dir().into_iter().flatten().flatten();
    nodes.any(|node| is_node(node.file_name())) || devices.join("dxg").exists()
}

/// The thread ids of this process.
fn threads() -> BTreeSet<OsString> {
    let tasks = Path::new("/proc/self/task").read_dir();
    tasks.into_iter().flatten().flatten().map(|task| task.file_name()).collect()
}

/// Opens a library and finds its platforms with a usable device. Adds others to `left_out`.
fn find(
    names: &[&str],
    left_out: &mut Vec<LeftOutDevice>,
) -> Result<(Driver, Vec<Candidate>), String> {
    let library = Library::open_first(names).map_err(|refusal| refusal.to_string())?;
    let driver = Driver::of(library)
        .map_err(|missing| format!("the OpenCL library has no function {missing}"))?;
    let platforms =
        driver.platforms().map_err(|refusal| format!("there is no OpenCL platform: {refusal}"))?;
    if platforms.is_empty() {
        return Err("there is no OpenCL platform".to_owned());
    }
    let mut candidates = Vec::new();
    for platform in platforms {
        candidates.extend(usable_devices(&driver, platform, left_out));
    }
    Ok((driver, candidates))
}

/// A platform with its usable devices, GPUs first. `None` when no device is usable.
fn usable_devices(
    driver: &Driver,
    platform: Platform,
    left_out: &mut Vec<LeftOutDevice>,
) -> Option<Candidate> {
    let name = driver.platform_text(platform, sys::PLATFORM_NAME);
    let name = name.unwrap_or_else(|_| "a platform without a name".to_owned());
    let mut leave_out = |device: &str, reason| {
        left_out.push(LeftOutDevice { name: format!("{device} ({name})"), reason });
    };
    let ids = match driver.devices(platform) {
        Ok(ids) => ids,
        Err(refusal) => {
            leave_out("all devices", refusal.to_string());
            return None;
        }
    };
    let usm = driver.usm(platform);
    let mut devices = Vec::new();
    for id in ids {
        let device = driver.device_text(id, sys::DEVICE_NAME).ok().filter(|name| !name.is_empty());
        let device = device.unwrap_or_else(|| "a device without a name".to_owned());
        let info = DeviceInfo::of(driver, id, device.clone());
        match (info, usm) {
            (Ok(info), Ok(_)) => devices.push(info),
            (Err(reason), _) => leave_out(&device, reason),
            (Ok(_), Err(missing)) => {
                leave_out(&device, format!("its platform has no function {missing}"));
            }
        }
    }
    devices.sort_by_key(|info| !info.is_gpu);
    let usm = usm.ok().filter(|_| !devices.is_empty())?;
    Some(Candidate { platform, name, usm, devices })
}

/// Chooses the platform. Adds the devices of the other platforms to `left_out`.
fn choose(candidates: Vec<Candidate>, left_out: &mut Vec<LeftOutDevice>) -> Option<Candidate> {
    let has_gpu = |candidate: &Candidate| candidate.devices.iter().any(|info| info.is_gpu);
    let place = candidates.iter().position(has_gpu).unwrap_or(0);
    let mut chosen = None;
    let used = candidates.get(place).map(|candidate| candidate.name.clone())?;
    for (at, candidate) in candidates.into_iter().enumerate() {
        if at == place {
            chosen = Some(candidate);
            continue;
        }
        left_out.extend(candidate.devices.into_iter().map(|info| LeftOutDevice {
            name: format!("{} ({})", info.name, candidate.name),
            reason: format!("the platform {used} is used, and platforms share no memory"),
        }));
    }
    chosen
}

fn no_usable_device(left_out: &[LeftOutDevice]) -> String {
    if left_out.is_empty() {
        return "the OpenCL platforms have no device".to_owned();
    }
    let each = left_out.iter().map(|LeftOutDevice { name, reason }| format!("{name}: {reason}"));
    format!("no OpenCL device can be used: {}", each.collect::<Vec<_>>().join("; "))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_reported() {
        let probe = Probe::new(Some("/accelrt/libOpenCL.so"), None);
        let reason = probe.found.unwrap_err();
        assert!(reason.contains("/accelrt/libOpenCL.so"), "{reason}");
        assert!(probe.left_out.is_empty());
    }

    #[test]
    fn a_library_without_opencl_is_reported_with_the_missing_function() {
        let reason = Probe::new(Some("libm.so.6"), None).found.unwrap_err();
        assert!(reason.contains("clGetPlatformIDs"), "{reason}");
    }

    #[test]
    fn all_groups_of_libraries_are_probed() {
        // Goal: the probe tries each group and reports all reasons. Method: two unusable groups.
        let groups: [&[&str]; 2] = [&["/accelrt/libOpenCL.so", "libm.so.6"], &["/accelrt/two.so"]];
        let reason = Probe::of(&groups, None).found.unwrap_err();
        assert!(
            reason.contains("clGetPlatformIDs") && reason.contains("/accelrt/two.so"),
            "{reason}"
        );
    }

    #[test]
    fn a_gpu_is_detected_by_its_node() {
        // Goal: only a render node, or that of WSL, counts. Method: folders in place of /dev.
        let folder = std::env::temp_dir().join(format!("accelrt-probe-{}", process::id()));
        let dri = folder.join("dri");
        std::fs::create_dir_all(&dri).unwrap();
        std::fs::write(dri.join("card0"), "").unwrap();
        assert!(!has_gpu_node(&folder));
        std::fs::write(dri.join("renderD128"), "").unwrap();
        assert!(has_gpu_node(&folder));
        std::fs::remove_dir_all(&dri).unwrap();
        assert!(!has_gpu_node(&folder));
        std::fs::write(folder.join("dxg"), "").unwrap();
        assert!(has_gpu_node(&folder));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
