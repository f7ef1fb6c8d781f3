//! The xpu kind: OpenCL devices with unified shared memory, such as Intel's GPUs.
//!
//! * `sys`: OpenCL's types, constants and function tables
//! * `driver`, `compiler`: typed wrappers of OpenCL's functions
//! * `probe`: finds the devices; `device`: one device; `session`: the context of all devices
//! * `stream`, `event`, `memory`, `program`: the contract's objects; `handle`: their handles
//!
//! The first query about devices opens the ICD loader, which loads the vendors' libraries. The
//! first use of a device creates the context; most drivers start their threads only then.

mod backend;
mod compiler;
mod device;
mod driver;
mod event;
mod handle;
mod memory;
mod probe;
mod program;
mod session;
mod stream;
mod sys;

use std::sync::{Arc, OnceLock};

use crate::backend::driver::resume_threads::ResumeThreads;
use crate::base::config::Config;
use crate::base::device::{Device, DeviceKind};
use crate::base::error::{DeviceError, Error, Result, RuntimeError};
use crate::base::fork;
use crate::base::sync::Ordering;
use crate::base::sync::unmodelled::AtomicBool;

use device::{XpuDevice, driver_error};
use driver::{CallResult, Driver};
use memory::Memory;
use probe::{Probe, UsableDevices};
use session::Session;
use stream::XpuStream;

/// The backend of the xpu kind: OpenCL devices with unified shared memory.
///
/// ```
/// use accelrt::Config;
/// use accelrt::backend::contract::Backend;
/// use accelrt::backend::xpu::XpuBackend;
/// let xpu = XpuBackend::new(&Config::default());
/// match xpu.device_count() {
///     Ok(count) => assert!((0..count).all(|index| xpu.properties(index).is_ok())),
///     Err(reason) => assert!(reason.to_string().starts_with("No xpu device is available")),
/// }
/// ```
#[derive(Debug)]
pub struct XpuBackend {
    library: Option<String>,
    memory_bytes: Option<usize>,
    probe: OnceLock<Probe>,
    session: OnceLock<Arc<Session>>,
    memory: Memory,
    resume_threads: ResumeThreads,
    /// Executes callbacks of marks. In `resume_threads`, user code that blocks could delay them.
    completions: Arc<ResumeThreads>,
    is_shut_down: AtomicBool,
}

impl XpuBackend {
    /// Creates the backend. Opens no library and starts no thread.
    #[must_use]
    pub fn new(config: &Config) -> Arc<Self> {
        Arc::new(Self {
            library: config.opencl_library.clone(),
            memory_bytes: config.xpu_memory_bytes,
            probe: OnceLock::new(),
            session: OnceLock::new(),
            memory: Memory::new(),
            resume_threads: ResumeThreads::new(DeviceKind::XPU, "accelrt-xpu"),
            completions: Arc::new(ResumeThreads::new(DeviceKind::XPU, "accelrt-xpu-done")),
            is_shut_down: AtomicBool::new(false),
        })
    }

    /// The result of the probe, which the first call makes. Holds no lock, so a child forked during
    /// a probe cannot deadlock here. Two threads may therefore probe at once; one result remains.
    fn probe(&self) -> &Probe {
        if let Some(probe) = self.probe.get() {
            return probe;
        }
        let probe = Probe::new(self.library.as_deref(), self.memory_bytes);
        self.probe.get_or_init(|| probe)
    }

    fn found(&self) -> Result<&UsableDevices> {
        let kind = DeviceKind::XPU;
        let unavailable = |reason: &String| {
            Error::Device(DeviceError::KindUnavailable { kind, reason: reason.clone() })
        };
        self.probe().found.as_ref().map_err(unavailable)
    }

    fn device(&self, index: usize) -> Result<&Arc<XpuDevice>> {
        let devices = &self.found()?.devices;
        let Some(device) = devices.get(index) else {
            let device = Device::new(DeviceKind::XPU, index)?;
            return Err(Error::Device(DeviceError::NotFound { device, count: devices.len() }));
        };
        Ok(device)
    }

    /// The device and the session. The first call creates the session. Fails on a lost device.
    fn device_and_session(&self, index: usize) -> Result<(&Arc<XpuDevice>, &Arc<Session>)> {
        fork::check()?;
        let device = self.device(index)?;
        device.check()?;
        if let Some(session) = self.session.get() {
            return Ok((device, session));
        }
        if self.probe().is_in_forked_child() {
            return Err(Error::Runtime(RuntimeError::BadFork));
        }
        let session = Session::create(self.found()?).map_err(driver_error)?;
        Ok((device, self.session.get_or_init(|| Arc::new(session))))
    }

    /// The session. Panics if none exists; a backend that has issued an object has a session.
    fn session(&self) -> &Arc<Session> {
        self.session.get().expect("what was made by this backend was made in its context")
    }

    fn driver(&self) -> &Driver {
        &self.session().driver
    }

    /// Converts a refused call on a stream into an error of the stream's device.
    fn stream_result<T>(&self, stream: &XpuStream, answer: CallResult<T>) -> Result<T> {
        answer.map_err(|refusal| stream.device.error(self.driver(), refusal))
    }

    /// Converts the answer to a call on a mark. A mark does not record its device. With several
    /// devices, the error therefore names the first one that the driver reports as unavailable.
    fn mark_result<T>(&self, answer: CallResult<T>) -> Result<T> {
        answer.or_else(|refusal| {
            let device = match &self.found()?.devices[..] {
                [only] => Some(only),
                devices => devices.iter().find(|device| device.is_unavailable(self.driver())),
            };
            let error = device.map(|device| device.error(self.driver(), refusal));
            Err(error.unwrap_or_else(|| driver_error(refusal)))
        })
    }

    fn is_shut_down(&self) -> bool {
        // Acquire: pairs with the release store in `shutdown`.
        self.is_shut_down.load(Ordering::Acquire)
    }
}
