//! Plans of faults as texts: which calls of a device's driver fail, of all kinds alike.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use accelrt::backend::contract::Backend;
use accelrt::backend::registry::WRAP;
use accelrt::internal::{LockRank, Mutex};
use accelrt::{ConfigError, Device, DeviceKind, Error, Result, Runtime};

use crate::fault::{FaultBackend, FaultError, Method};

const ALLOWED: &str = "CALL:N, CALL:from N, CALL:every N or lose DEVICE after N, with semicolons \
                       between; a CALL is allocate, any, launch or another method of the contract \
                       of backends, on one device as copy@cpu:1";

/// Calls of devices that fail.
///
/// `allocate:3` fails the third request for device memory from there on, `copy:from 3` the third
/// copy and all later ones, `fill@cpu:1:every 100` each hundredth fill on that device, `any:7` the
/// seventh call of any method. `lose xpu:0 after 100` lets 100 calls pass, and then the device is
/// lost. Requests for memory fail with
/// [`MemoryError::OutOfMemory`](accelrt::MemoryError::OutOfMemory), others with a driver's refusal.
///
/// ```standalone_crate
/// use accelrt_testing::FaultPlan;
/// use accelrt::{Config, Device, Runtime};
/// assert!(accelrt_testing::heed_faults());
/// let runtime = Runtime::new(Config::default())?;
/// let faults = "allocate:from 1".parse::<FaultPlan>()?.start()?;
/// assert!(runtime.empty(1000, Device::cpu(0)).is_err());
/// assert!(faults.num_failed() >= 1);
/// drop(faults);
/// assert!(runtime.empty(1000, Device::cpu(0)).is_ok());
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FaultPlan {
    text: String,
    faults: Vec<PlannedFault>,
}

#[derive(Clone, Debug)]
struct PlannedFault {
    calls: Calls,
    device: Option<Device>,
    when: When,
}

#[derive(Clone, Copy, Debug)]
enum Calls {
    One(Method),
    /// Requests for device memory, whichever way a device's allocator takes.
    Memory,
    Any,
    /// Any, and the device is lost.
    Lost,
}

#[derive(Clone, Copy, Debug)]
enum When {
    Nth(u64),
    From(u64),
    Every(u64),
}

impl PlannedFault {
    fn covers(&self, kind: DeviceKind, method: Method, device_index: usize) -> bool {
        let is_call = match self.calls {
            Calls::One(one) => one == method,
            Calls::Memory => {
                [Method::Allocate, Method::AllocateShared, Method::VmCreate].contains(&method)
            }
            Calls::Any | Calls::Lost => true,
        };
        let is_device = |it: Device| it.kind() == kind && it.index() == device_index;
        is_call && self.device.is_none_or(is_device)
    }

    /// How the `number`-th call fails.
    fn error(&self, number: u64, method: Method) -> Option<FaultError> {
        let is_due = match self.when {
            When::Nth(nth) => number == nth,
            When::From(first) => number >= first,
            When::Every(period) => number.is_multiple_of(period),
        };
        is_due.then_some(match self.calls {
            Calls::Lost => FaultError::DeviceLost,
            _ if method.takes_memory() => FaultError::OutOfMemory,
            _ => FaultError::Driver,
        })
    }
}

impl FromStr for FaultPlan {
    type Err = Error;

    /// Reads the text of `ACCELRT_FAULTS`.
    fn from_str(text: &str) -> Result<Self> {
        let refused = || {
            let (name, value) = ("ACCELRT_FAULTS", text.to_owned());
            Error::Config(ConfigError::InvalidSetting { name, value, allowed: ALLOWED })
        };
        let faults = text.split(';').map(|fault| parse(fault.trim()).ok_or_else(refused));
        Ok(Self { faults: faults.collect::<Result<_>>()?, text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<PlannedFault> {
    let number = |text: &str| text.trim().parse().ok().filter(|number| *number > 0);
    if let Some(lost) = text.strip_prefix("lose ") {
        let (device, passed) = lost.split_once(" after ")?;
        let device = Some(device.trim().parse().ok()?);
        let when = When::From(passed.trim().parse::<u64>().ok()?.checked_add(1)?);
        return Some(PlannedFault { calls: Calls::Lost, device, when });
    }
    let (call, when) = text.rsplit_once(':')?;
    let when = match when.trim().split_once(' ') {
        None => When::Nth(number(when)?),
        Some(("from", first)) => When::From(number(first)?),
        Some(("every", period)) => When::Every(number(period)?),
        Some(_) => return None,
    };
    let (call, device) = match call.split_once('@') {
        None => (call, None),
        Some((call, device)) => (call, Some(device.parse().ok()?)),
    };
    let calls = match call {
        "allocate" => Calls::Memory,
        "any" => Calls::Any,
        "launch" => Calls::One(Method::KernelsLaunch),
        name => Calls::One(Method::ALL.into_iter().find(|method| method.name() == name)?),
    };
    Some(PlannedFault { calls, device, when })
}

/// A plan that is in force, with the number of calls that each of its faults has seen.
#[derive(Debug)]
struct Started {
    faults: Vec<(PlannedFault, AtomicU64)>,
    num_failed: AtomicU64,
}

/// The plan in force. One at a time: plans count calls of the whole process.
static STARTED: Mutex<Option<Arc<Started>>> = Mutex::new(LockRank::Backend, None);

/// Lets the runtimes that are made from here on heed plans. Each call of a device costs more then.
/// False when the process's runtime was made before without that: it heeds none.
pub fn heed_faults() -> bool {
    let is_late = Runtime::existing_of_process().is_some() && WRAP.get().is_none();
    if !is_late {
        WRAP.get_or_init(|| wrap);
    }
    !is_late
}

fn wrap(inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
    let kind = inner.kind();
    let backend = FaultBackend::new(inner);
    backend.plan_by(move |method, device_index| fault_of(kind, method, device_index));
    backend
}

fn fault_of(kind: DeviceKind, method: Method, device_index: usize) -> Option<FaultError> {
    let started = STARTED.lock().clone()?;
    let mut due = None;
    for (fault, num_calls) in &started.faults {
        if fault.covers(kind, method, device_index) {
            // Relaxed, here and below: counters order nothing.
            let number = num_calls.fetch_add(1, Ordering::Relaxed) + 1;
            due = due.or(fault.error(number, method));
        }
    }
    if due.is_some() {
        started.num_failed.fetch_add(1, Ordering::Relaxed);
    }
    due
}

impl FaultPlan {
    /// Puts the plan in force until the drop of what is returned, for runtimes that
    /// [heed](heed_faults) plans. Calls are counted from here on. Fails while another plan is.
    pub fn start(self) -> Result<Faults> {
        let mut started = STARTED.lock();
        if started.is_some() {
            let (name, value) = ("a plan of faults", self.text);
            let allowed = "one plan at a time in a process, and another one is in force";
            return Err(Error::Config(ConfigError::InvalidSetting { name, value, allowed }));
        }
        let faults = self.faults.into_iter().map(|fault| (fault, AtomicU64::new(0))).collect();
        let plan = Arc::new(Started { faults, num_failed: AtomicU64::new(0) });
        *started = Some(Arc::clone(&plan));
        Ok(Faults(plan))
    }
}

/// A plan in force, until the drop.
#[derive(Debug)]
#[must_use = "the drop ends the plan"]
pub struct Faults(Arc<Started>);

impl Faults {
    /// How many calls failed so far.
    #[must_use]
    pub fn num_failed(&self) -> u64 {
        self.0.num_failed.load(Ordering::Relaxed)
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        *STARTED.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the calls that fail, of twelve calls on each of two devices in turn.
    fn failing(plan: &str, method: Method) -> Vec<(usize, u64)> {
        let FaultPlan { faults, .. } = plan.parse().unwrap();
        let mut counts = vec![0; faults.len()];
        let mut failing = Vec::new();
        for number in 1..=12 {
            for device_index in 0..2 {
                for (fault, count) in faults.iter().zip(&mut counts) {
                    if fault.covers(DeviceKind::CPU, method, device_index) {
                        *count += 1;
                        failing.extend(fault.error(*count, method).map(|_| (device_index, number)));
                    }
                }
            }
        }
        failing
    }

    #[test]
    fn a_plan_says_which_calls_fail() {
        assert_eq!(failing("copy:3", Method::Copy), [(0, 2)]);
        assert_eq!(failing("copy:3", Method::Fill), []);
        assert_eq!(failing("copy@cpu:1:every 5", Method::Copy), [(1, 5), (1, 10)]);
        assert_eq!(failing("copy@xpu:1:every 5", Method::Copy), []);
        assert_eq!(failing("fill:from 23; fill:1", Method::Fill), [(0, 1), (0, 12), (1, 12)]);
        assert_eq!(failing("lose cpu:0 after 11", Method::Mark), [(0, 12)]);
        assert_eq!(failing("any:24", Method::StreamCreate), [(1, 12)]);
        for method in [Method::Allocate, Method::AllocateShared, Method::VmCreate] {
            assert_eq!(failing("allocate:1", method), [(0, 1)]);
        }
        assert_eq!(failing("VirtualMemory::map:2", Method::VmMap), [(1, 1)]);
        assert_eq!(failing("launch:2", Method::KernelsLaunch), [(1, 1)]);
    }

    #[test]
    fn a_malformed_plan_is_refused_with_what_is_allowed() {
        for wrong in ["", "copy", "copy:0", "copy:-1", "copies:1", "copy@cpu:x:1", "copy:after 3"]
            .into_iter()
            .chain(["lose cpu:0", "lose after 3", "copy:1;", "copy:every 0"])
        {
            let refused = wrong.parse::<FaultPlan>().unwrap_err().to_string();
            assert!(refused.contains("lose DEVICE after N"), "{wrong}: {refused}");
        }
    }

    #[test]
    fn a_second_plan_is_refused_by_its_text() {
        let plan = || "lose xpu:9 after 7".parse::<FaultPlan>().unwrap();
        let first = plan().start().unwrap();
        let refused = plan().start().unwrap_err().to_string();
        assert!(refused.starts_with("a plan of faults=\"lose xpu:9 after 7\""), "{refused}");
        drop(first);
        assert_eq!(plan().start().unwrap().num_failed(), 0);
    }

    #[test]
    fn memory_runs_out_other_calls_are_refused_and_lost_devices_are_lost() {
        let error = |plan: &str, method| {
            let FaultPlan { faults, .. } = plan.parse().unwrap();
            faults[0].error(1, method).unwrap()
        };
        assert_eq!(error("any:1", Method::VmCreate), FaultError::OutOfMemory);
        assert_eq!(error("any:1", Method::Copy), FaultError::Driver);
        assert_eq!(error("lose cpu:0 after 0", Method::Allocate), FaultError::DeviceLost);
    }
}
