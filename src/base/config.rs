//! Settings of a runtime. Only this file reads the environment, apart from tests.

#[cfg(not(loom))]
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

pub(crate) use allocator::ROUNDUP_INTERVALS;
pub use allocator::{AllocatorConfig, AllocatorSettings, PolicyName, recorded_settings};

use crate::base::device::DeviceKind;
use crate::base::error::{ConfigError, Error, Result};
#[cfg(not(loom))]
use crate::base::fork;
use crate::base::size;
#[cfg(not(loom))]
use crate::base::sync::LockRank;
#[cfg(not(loom))]
use crate::base::sync::Mutex;

mod allocator;
#[cfg(test)]
mod allocator_tests;

/// The maximum exit timeout: one day.
const MAX_EXIT_MS: u64 = 86_400_000;

/// The maximum capacity: Rust's largest object.
const MAX_MEMORY_BYTES: usize = isize::MAX as usize;

/// The prefix of the runtime's own environment variables and of most that its tests read.
const PREFIX: &str = "ACCELRT_";
/// The infix of environment variables that only tests read, as in `ACCELRT_TEST_KIND`.
const INFIX: &str = "_TEST_";

const ACCELERATORS: &str = "cpu, cuda or xpu, or the name of a kind that is registered";

/// The runtime's own environment variables, for [`Config::unknown_variables`].
pub const VARIABLES: [&str; 20] = [
    "ACCELRT_ACCELERATOR",
    "ACCELRT_KINDS",
    "ACCELRT_CPU_DEVICES",
    "ACCELRT_CPU_THREADS",
    "ACCELRT_CPU_MEMORY",
    "ACCELRT_CPU_SCHEDULE",
    "ACCELRT_XPU_MEMORY",
    "ACCELRT_OPENCL_LIBRARY",
    "ACCELRT_MKL_LIBRARY",
    "ACCELRT_DNNL_LIBRARY",
    "ACCELRT_ALLOC_CONF",
    "ACCELRT_EXIT_MS",
    "ACCELRT_FAULTS",
    "ACCELRT_STREAM_TASKS",
    "ACCELRT_HOST_THREADS",
    "ACCELRT_TRACEBACKS",
    "ACCELRT_PROFILE",
    "ACCELRT_MEMORY_HISTORY",
    "ACCELRT_SANITIZER",
    "ACCELRT_SANITIZER_SUPPRESS",
];

/// Why a kind that `ACCELRT_KINDS` names is not there. The process's runtime is not made then.
pub static KINDS_REFUSED: std::sync::OnceLock<Error> = std::sync::OnceLock::new();

/// What is wrong with a variable that a room above the core reads; the same holds then.
pub static REFUSED: std::sync::OnceLock<Error> = std::sync::OnceLock::new();

/// Settings of a runtime. [`Config::default`] ignores the environment; [`Config::from_environment`]
/// reads it. With a malformed variable, the first call that needs the process's runtime fails. An
/// empty variable counts as not set.
///
/// ```
/// let config = accelrt::Config::builder().cpu_devices(2).cpu_memory_bytes(64 << 20).build()?;
/// let runtime = accelrt::Runtime::new(config)?;
/// assert_eq!(runtime.device_count(accelrt::DeviceKind::CPU)?, 2);
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// `ACCELRT_ACCELERATOR`: the kind to use as the accelerator; `None` chooses the first of cuda
    /// and xpu that has a GPU, else cpu.
    pub accelerator: Option<DeviceKind>,
    /// `ACCELRT_CPU_DEVICES`: the number of cpu devices, 1 to 128, which share the cores. Several
    /// cpu devices let any machine test multi-device code.
    pub cpu_devices: usize,
    /// `ACCELRT_CPU_THREADS`: workers per cpu device, 1 to 1024; `None` is max(2, cores / devices).
    pub cpu_threads: Option<usize>,
    /// `ACCELRT_CPU_MEMORY`: capacity of each cpu device in bytes; `None` is the memory that the
    /// machine and the container allow.
    pub cpu_memory_bytes: Option<usize>,
    /// `ACCELRT_XPU_MEMORY`: capacity of each xpu device in bytes; `None` is the capacity that the
    /// driver reports. OpenCL does not report free memory, so the runtime does not know how much
    /// other processes use.
    pub xpu_memory_bytes: Option<usize>,
    /// `ACCELRT_OPENCL_LIBRARY`: file or name of the library that provides xpu devices; `None` is
    /// the system's `libOpenCL.so.1`. If the system's library has no usable device, Python
    /// processes try Intel's `libintelocl.so` in the environment's `lib`.
    pub opencl_library: Option<String>,
    /// `ACCELRT_MKL_LIBRARY`: file or name of the oneMKL whose verbose level the runtime sets;
    /// `None` is each oneMKL that the process has loaded, else the first one found.
    pub mkl_library: Option<String>,
    /// `ACCELRT_DNNL_LIBRARY`: as `mkl_library`, for oneDNN.
    pub dnnl_library: Option<String>,
    /// `ACCELRT_ALLOC_CONF`: settings of the allocators, as text: see [`AllocatorConfig`].
    pub allocator: AllocatorSettings,
    /// `ACCELRT_EXIT_MS`: the longest time for which queued tasks still run when the process exits
    /// or the runtime shuts down.
    pub exit_timeout: Duration,
    /// `ACCELRT_STREAM_TASKS`: queued tasks in one stream above which an enqueue helps or blocks.
    pub stream_task_limit: u64,
    /// `ACCELRT_HOST_THREADS`: the most threads that call callables of another language, as those
    /// of Python's `launch_host`; `None` is the number of cores and 4, from 8 to 32.
    pub host_threads: Option<usize>,
    /// `ACCELRT_TRACEBACKS`: true lets an exception of a callable of another language say where the
    /// callable was enqueued.
    pub tracebacks: bool,
    /// `ACCELRT_PROFILE`: the file to which the end of the process writes a trace of the process's
    /// runtime, where the language's module or the program watches for it.
    pub profile: Option<String>,
    /// `ACCELRT_MEMORY_HISTORY=dump-on-oom:FILE`: the file to which the language's module writes
    /// the history of the devices' memory when a request finds none.
    pub memory_history: Option<String>,
    /// `ACCELRT_SANITIZER`: what the language's module does with what its sanitizer finds: `warn`,
    /// `raise` or `report`; `None` watches nothing.
    pub sanitizer: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            accelerator: None,
            cpu_devices: 1,
            cpu_threads: None,
            cpu_memory_bytes: None,
            xpu_memory_bytes: None,
            opencl_library: None,
            mkl_library: None,
            dnnl_library: None,
            allocator: AllocatorSettings::default(),
            exit_timeout: Duration::from_secs(2),
            stream_task_limit: 1_000_000,
            host_threads: None,
            tracebacks: false,
            profile: None,
            memory_history: None,
            sanitizer: None,
        }
    }
}

impl Config {
    /// A builder that starts from the defaults.
    pub fn builder() -> ConfigBuilder {
        Self::default().into_builder()
    }

    /// A builder that starts from these settings.
    ///
    /// ```
    /// use accelrt::Config;
    /// let config = Config::from_environment()?.into_builder().stream_task_limit(64).build()?;
    /// let error = config.into_builder().stream_task_limit(63).build().unwrap_err();
    /// assert!(error.to_string().contains("at least 64"));
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn into_builder(self) -> ConfigBuilder {
        ConfigBuilder { config: self, allocator: Ok(()) }
    }

    /// The defaults, replaced by every `ACCELRT_*` variable that is set. Fails on a malformed
    /// variable. The error names the variable, its value and the allowed values.
    pub fn from_environment() -> Result<Self> {
        let refused = KINDS_REFUSED.get().or_else(|| REFUSED.get());
        refused.map_or(Ok(()), |error| Err(error.clone()))?;
        Self::from_variables(setting)
    }

    /// The set variables that begin with `ACCELRT_` and that no code reads, sorted: most are
    /// misspelt. Leaves out variables of tests, which have `_TEST_` in their names.
    ///
    /// ```
    /// assert!(!accelrt::Config::unknown_variables().contains(&"ACCELRT_EXIT_MS".to_owned()));
    /// ```
    #[must_use]
    pub fn unknown_variables() -> Vec<String> {
        unknown(std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()))
    }

    fn from_variables(given: impl Fn(&'static str) -> Option<String>) -> Result<Self> {
        let text = &|name| given(name).filter(|value| !value.is_empty());
        let capacity = |name| text(name).map(|value| capacity(name, value)).transpose();
        let default = Self::default();
        let accelerator = text("ACCELRT_ACCELERATOR").map(accelerator).transpose()?;
        let cpu_devices =
            number("ACCELRT_CPU_DEVICES", text, 1..=128, "a whole number from 1 to 128")?;
        let threads = |name| number(name, text, 1..=1024, "a whole number from 1 to 1024");
        let allowed = "a number of milliseconds from 0 to 86400000";
        let exit_ms = number("ACCELRT_EXIT_MS", text, 0..=MAX_EXIT_MS, allowed)?;
        let allowed = "a number of tasks from 64 to 18446744073709551615";
        let stream_tasks = number("ACCELRT_STREAM_TASKS", text, 64..=u64::MAX, allowed)?;
        let allocator =
            text("ACCELRT_ALLOC_CONF").map(|value| value.parse().map_err(with_variable_name));
        Ok(Self {
            accelerator,
            cpu_devices: cpu_devices.unwrap_or(default.cpu_devices),
            cpu_threads: threads("ACCELRT_CPU_THREADS")?,
            cpu_memory_bytes: capacity("ACCELRT_CPU_MEMORY")?,
            xpu_memory_bytes: capacity("ACCELRT_XPU_MEMORY")?,
            opencl_library: text("ACCELRT_OPENCL_LIBRARY"),
            mkl_library: text("ACCELRT_MKL_LIBRARY"),
            dnnl_library: text("ACCELRT_DNNL_LIBRARY"),
            allocator: allocator.transpose()?.unwrap_or_default(),
            exit_timeout: exit_ms.map_or(default.exit_timeout, Duration::from_millis),
            stream_task_limit: stream_tasks.unwrap_or(default.stream_task_limit),
            host_threads: threads("ACCELRT_HOST_THREADS")?,
            tracebacks: number("ACCELRT_TRACEBACKS", text, 0..=1, "0 or 1")? == Some(1),
            profile: text("ACCELRT_PROFILE"),
            memory_history: text("ACCELRT_MEMORY_HISTORY").map(memory_history).transpose()?,
            sanitizer: text("ACCELRT_SANITIZER").map(sanitizer).transpose()?,
        })
    }

    /// Checks settings from code by the rules for settings from the environment.
    pub(crate) fn validate(&self) -> Result<()> {
        let check = |name, value: String, is_right: bool, allowed| {
            if is_right { Ok(()) } else { refused(name, value, allowed) }
        };
        let devices = self.cpu_devices;
        check("cpu_devices", devices.to_string(), (1..=128).contains(&devices), "1 to 128")?;
        for (name, threads) in
            [("cpu_threads", self.cpu_threads), ("host_threads", self.host_threads)]
        {
            let threads = threads.unwrap_or(1);
            check(name, threads.to_string(), (1..=1024).contains(&threads), "1 to 1024")?;
        }
        for (name, bytes) in [
            ("cpu_memory_bytes", self.cpu_memory_bytes),
            ("xpu_memory_bytes", self.xpu_memory_bytes),
        ] {
            let bytes = bytes.unwrap_or(1);
            let is_right = (1..=MAX_MEMORY_BYTES).contains(&bytes);
            check(name, bytes.to_string(), is_right, "1 to 9223372036854775807")?;
        }
        for (name, library) in [
            ("opencl_library", &self.opencl_library),
            ("mkl_library", &self.mkl_library),
            ("dnnl_library", &self.dnnl_library),
        ] {
            check(name, String::new(), library.as_deref() != Some(""), "the path of a library")?;
        }
        let milliseconds = self.exit_timeout.as_millis();
        let is_right = milliseconds <= u128::from(MAX_EXIT_MS);
        check("exit_timeout", format!("{milliseconds} ms"), is_right, "up to 86400000 ms")?;
        let tasks = self.stream_task_limit;
        check("stream_task_limit", tasks.to_string(), tasks >= 64, "at least 64")
    }
}

/// Settings that a program has made in place of variables.
#[cfg(not(loom))]
static SETTINGS: Mutex<BTreeMap<&str, String>> = Mutex::new(LockRank::Runtime, BTreeMap::new());

/// Makes a setting in place of the variable of its name, or leaves it to the variable again. False
/// for a name that no setting has.
#[cfg(not(loom))]
pub fn set_setting(name: &str, value: Option<&str>) -> bool {
    let Some(name) = VARIABLES.iter().find(|known| **known == name) else { return false };
    let mut settings = SETTINGS.lock();
    settings.remove(name);
    settings.extend(value.map(|value| (*name, value.to_owned())));
    true
}

/// Reads a setting: what the program has set, else the variable.
///
/// In a forked child it is the variable, if a thread of the parent set a setting at the fork.
pub fn setting(name: &'static str) -> Option<String> {
    #[cfg(not(loom))]
    {
        let settings = if fork::is_child() { SETTINGS.try_lock() } else { Some(SETTINGS.lock()) };
        if let Some(set) = settings.and_then(|settings| settings.get(name).cloned()) {
            return Some(set);
        }
    }
    variable(name)
}

/// Reads any environment variable, of this runtime or another library; `None` when it is not set.
#[must_use]
pub fn variable(name: &'static str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Adds the name `ACCELRT_ALLOC_CONF` to an error of the settings' parser, which names only a key.
fn with_variable_name(error: Error) -> Error {
    match error {
        Error::Config(source) => {
            let (name, source) = ("ACCELRT_ALLOC_CONF", Box::new(source));
            Error::Config(ConfigError::InvalidVariable { name, source })
        }
        other => other,
    }
}

fn accelerator(value: String) -> Result<DeviceKind> {
    match value.parse() {
        Ok(kind) if kind != DeviceKind::NULL => Ok(kind),
        _ => refused("ACCELRT_ACCELERATOR", value, ACCELERATORS),
    }
}

fn capacity(name: &'static str, value: String) -> Result<usize> {
    let allowed = "a number of bytes from 1 to 9223372036854775807, as 16777216, 256M or 8GiB";
    match size::parse_bytes(&value) {
        Some(bytes) if (1..=MAX_MEMORY_BYTES).contains(&bytes) => Ok(bytes),
        _ => refused(name, value, allowed),
    }
}

fn memory_history(value: String) -> Result<String> {
    let file = value.strip_prefix("dump-on-oom:").filter(|file| !file.is_empty());
    let file = file.map(str::to_owned);
    file.map_or_else(|| refused("ACCELRT_MEMORY_HISTORY", value, "dump-on-oom: and a file"), Ok)
}

fn sanitizer(value: String) -> Result<String> {
    let is_known = ["warn", "raise", "report"].contains(&&*value);
    if is_known { Ok(value) } else { refused("ACCELRT_SANITIZER", value, "warn, raise or report") }
}

fn refused<T>(name: &'static str, value: String, allowed: &'static str) -> Result<T> {
    Err(Error::Config(ConfigError::InvalidSetting { name, value, allowed }))
}

/// Selects the names with the runtime's prefix that no code reads, and sorts them.
fn unknown(names: impl Iterator<Item = String>) -> Vec<String> {
    let is_unknown = |name: &String| {
        name.starts_with(PREFIX) && !name.contains(INFIX) && !VARIABLES.contains(&name.as_str())
    };
    let mut found: Vec<String> = names.filter(is_unknown).collect();
    found.sort();
    found
}

/// Parses a variable as a plain decimal number without sign, spaces or unit. `None` when not set.
fn number<N: std::str::FromStr + PartialOrd>(
    name: &'static str,
    text: impl Fn(&'static str) -> Option<String>,
    range: RangeInclusive<N>,
    allowed: &'static str,
) -> Result<Option<N>> {
    let Some(value) = text(name) else { return Ok(None) };
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    match value.parse() {
        Ok(number) if digits && range.contains(&number) => Ok(Some(number)),
        _ => refused(name, value, allowed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(pairs: &[(&'static str, &str)]) -> Result<Config> {
        Config::from_variables(|name| {
            pairs.iter().find(|(given, _)| *given == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn every_variable_arrives() {
        let config = from(&[
            ("ACCELRT_ACCELERATOR", "xpu"),
            ("ACCELRT_CPU_DEVICES", "4"),
            ("ACCELRT_CPU_THREADS", "3"),
            ("ACCELRT_CPU_MEMORY", "1048576"),
            ("ACCELRT_XPU_MEMORY", "2097152"),
            ("ACCELRT_OPENCL_LIBRARY", "/opt/libOpenCL.so.1"),
            ("ACCELRT_MKL_LIBRARY", "libmkl_rt.so.3"),
            ("ACCELRT_DNNL_LIBRARY", "/opt/libdnnl.so.3"),
            ("ACCELRT_ALLOC_CONF", "policy:torch"),
            ("ACCELRT_EXIT_MS", "0"),
            ("ACCELRT_STREAM_TASKS", "64"),
            ("ACCELRT_HOST_THREADS", "5"),
            ("ACCELRT_TRACEBACKS", "1"),
            ("ACCELRT_PROFILE", "trace.json"),
            ("ACCELRT_MEMORY_HISTORY", "dump-on-oom:memory.pickle"),
            ("ACCELRT_SANITIZER", "raise"),
        ]);
        let expected = Config {
            accelerator: Some(DeviceKind::XPU),
            cpu_devices: 4,
            cpu_threads: Some(3),
            cpu_memory_bytes: Some(1 << 20),
            xpu_memory_bytes: Some(2 << 20),
            opencl_library: Some("/opt/libOpenCL.so.1".to_owned()),
            mkl_library: Some("libmkl_rt.so.3".to_owned()),
            dnnl_library: Some("/opt/libdnnl.so.3".to_owned()),
            allocator: "policy:torch".parse().unwrap(),
            exit_timeout: Duration::ZERO,
            stream_task_limit: 64,
            host_threads: Some(5),
            tracebacks: true,
            profile: Some("trace.json".to_owned()),
            memory_history: Some("memory.pickle".to_owned()),
            sanitizer: Some("raise".to_owned()),
        };
        assert_eq!(config.unwrap(), expected);
        assert_eq!(from(&[]).unwrap(), Config::default());
    }

    #[test]
    fn an_empty_variable_is_not_set() {
        for name in VARIABLES {
            assert_eq!(from(&[(name, "")]).unwrap(), Config::default(), "{name}");
        }
    }

    #[test]
    fn capacities_take_units() {
        let config = from(&[("ACCELRT_CPU_MEMORY", "256M"), ("ACCELRT_XPU_MEMORY", "8GiB")]);
        let config = config.unwrap();
        assert_eq!(config.cpu_memory_bytes, Some(256 << 20));
        assert_eq!(config.xpu_memory_bytes, Some(8 << 30));
    }

    #[test]
    fn misspelt_variables_are_found_and_those_of_tests_are_not() {
        let names = ["ACCELRT_CPU_MEM", "ACCELRT_TEST_KIND", "ACCELRT_A", "HOME", VARIABLES[0]];
        let found = unknown(names.into_iter().map(str::to_owned));
        assert_eq!(found, ["ACCELRT_A", "ACCELRT_CPU_MEM"]);
    }

    #[test]
    fn a_malformed_variable_is_named_with_its_value_and_the_allowed_ones() {
        for (name, value) in [
            ("ACCELRT_ACCELERATOR", "gpu"),
            ("ACCELRT_ACCELERATOR", "null"),
            ("ACCELRT_CPU_DEVICES", "0"),
            ("ACCELRT_CPU_DEVICES", "129"),
            ("ACCELRT_CPU_DEVICES", "+1"),
            ("ACCELRT_CPU_THREADS", "two"),
            ("ACCELRT_CPU_MEMORY", "1 GiB"),
            ("ACCELRT_XPU_MEMORY", "0"),
            ("ACCELRT_EXIT_MS", "-1"),
            ("ACCELRT_STREAM_TASKS", "63"),
            ("ACCELRT_HOST_THREADS", "0"),
            ("ACCELRT_TRACEBACKS", "yes"),
            ("ACCELRT_ALLOC_CONF", "best"),
            ("ACCELRT_MEMORY_HISTORY", "memory.pickle"),
            ("ACCELRT_MEMORY_HISTORY", "dump-on-oom:"),
            ("ACCELRT_SANITIZER", "yes"),
        ] {
            let message = from(&[(name, value)]).unwrap_err().to_string();
            assert!(message.contains(name) && message.contains(value), "{message}");
            assert!(message.contains("allowed is"), "{message}");
        }
    }

    #[test]
    fn settings_from_code_are_checked_too() {
        assert!(Config { cpu_devices: 0, ..Config::default() }.validate().is_err());
        assert!(Config { cpu_threads: Some(0), ..Config::default() }.validate().is_err());
        assert!(Config { host_threads: Some(1025), ..Config::default() }.validate().is_err());
        assert!(Config { cpu_memory_bytes: Some(0), ..Config::default() }.validate().is_err());
        assert!(Config { xpu_memory_bytes: Some(0), ..Config::default() }.validate().is_err());
        let cpu_memory_bytes = Some(usize::MAX);
        assert!(Config { cpu_memory_bytes, ..Config::default() }.validate().is_err());
        let opencl_library = Some(String::new());
        assert!(Config { opencl_library, ..Config::default() }.validate().is_err());
        let mkl_library = Some(String::new());
        assert!(Config { mkl_library, ..Config::default() }.validate().is_err());
        let dnnl_library = Some(String::new());
        assert!(Config { dnnl_library, ..Config::default() }.validate().is_err());
        assert!(Config { exit_timeout: Duration::MAX, ..Config::default() }.validate().is_err());
        assert!(Config { stream_task_limit: 1, ..Config::default() }.validate().is_err());
        assert!(Config::default().validate().is_ok());
    }
}

/// Collects settings for a [`Config`]. [`Config::builder`] and [`Config::into_builder`] create a
/// builder; [`ConfigBuilder::build`] checks the settings and returns the [`Config`].
///
/// ```
/// use std::time::Duration;
/// use accelrt::{Config, DeviceKind, Runtime};
/// let config = Config::builder()
///     .accelerator(DeviceKind::CPU)
///     .cpu_devices(2)
///     .cpu_threads(3) // of each device
///     .cpu_memory_bytes(256 << 20)
///     .xpu_memory_bytes(1 << 30)
///     .allocator_settings("policy:torch,max_split_size_mb:64")
///     .stream_task_limit(10_000)
///     .exit_timeout(Duration::from_millis(500))
///     .host_threads(4)
///     .tracebacks(true)
///     .build()?;
/// assert_eq!(Runtime::new(config)?.device_count(DeviceKind::CPU)?, 2);
/// assert!(Config::builder().cpu_devices(1000).build().is_err());
/// # Ok::<(), accelrt::Error>(())
/// ```
///
/// Files that it names are opened when they are needed:
///
/// ```no_run
/// # use accelrt::Config;
/// let config = Config::builder()
///     .opencl_library("/opt/vendor/libOpenCL.so.1".to_owned())
///     .mkl_library("libmkl_rt.so.2".to_owned())
///     .dnnl_library("libdnnl.so.3".to_owned())
///     .profile("trace.json".to_owned())
///     .memory_history("memory.pickle".to_owned())
///     .sanitizer("report".to_owned())
///     .build()?;
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "settings have no effect before `build`"]
pub struct ConfigBuilder {
    config: Config,
    /// The error of the last allocator text, which `build` returns.
    allocator: Result<()>,
}

/// Defines one method per line. The method sets the field of its name to the expression.
macro_rules! setters {
    ($($name:ident($given:ident: $type:ty) = $value:expr;)*) => {
        $(
            #[doc = concat!("Sets [`Config::", stringify!($name), "`].")]
            pub fn $name(mut self, $given: $type) -> Self {
                self.config.$name = $value;
                self
            }
        )*
    };
}

impl ConfigBuilder {
    setters! {
        accelerator(kind: impl Into<Option<DeviceKind>>) = kind.into();
        cpu_devices(count: usize) = count;
        cpu_threads(count: usize) = Some(count);
        cpu_memory_bytes(bytes: usize) = Some(bytes);
        xpu_memory_bytes(bytes: usize) = Some(bytes);
        opencl_library(file: impl Into<Option<String>>) = file.into();
        mkl_library(file: impl Into<Option<String>>) = file.into();
        dnnl_library(file: impl Into<Option<String>>) = file.into();
        exit_timeout(timeout: Duration) = timeout;
        stream_task_limit(tasks: u64) = tasks;
        host_threads(count: usize) = Some(count);
        tracebacks(are_on: bool) = are_on;
        profile(file: impl Into<Option<String>>) = file.into();
        memory_history(file: impl Into<Option<String>>) = file.into();
        sanitizer(mode: impl Into<Option<String>>) = mode.into();
    }

    /// Sets [`Config::allocator`] from a text such as `"policy:torch"`. [`ConfigBuilder::build`]
    /// fails if the text is malformed.
    pub fn allocator_settings(mut self, text: &str) -> Self {
        self.allocator = text.parse().map(|settings| self.config.allocator = settings);
        self
    }

    /// Checks and returns the settings. Fails when a setting is out of range or malformed. The
    /// error names the setting and the allowed values.
    pub fn build(self) -> Result<Config> {
        self.allocator?;
        self.config.validate()?;
        Ok(self.config)
    }
}
