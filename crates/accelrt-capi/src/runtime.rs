//! The process's runtime: versions, settings before its first use, counters, the shutdown.
#![expect(unsafe_code, reason = "exports functions by name, and reads texts from C")]

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;

use accelrt::internal::{config, second_copy};
use accelrt::kinds::KindLibrary;
use accelrt::{DeviceKind, Error, Runtime, kinds};

use crate::arguments::{Growing, place, text, write_sized, write_text};
use crate::status::guard;
use crate::status::{Outcome, Refused, Status};

/// Grows when something that a program relies on changes; see docs/c.md.
pub const ABI_VERSION: u32 = 1;

/// The version of the interface that the library has: `ACCELRT_ABI_VERSION` of its header. A
/// program that was compiled with another one must not call other functions.
///
/// Never blocks, never fails.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_abi_version() -> u32 {
    ABI_VERSION
}

/// The version of the library as a text, such as "0.2.0", valid for ever.
///
/// Never blocks, never fails.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    const TEXT: &CStr = match CStr::from_bytes_with_nul(VERSION.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a version has no zero inside"),
    };
    TEXT.as_ptr()
}

/// The process's runtime, which the first call begins.
#[inline(always)]
pub(super) fn runtime() -> Outcome<&'static Runtime> {
    match Runtime::existing_of_process() {
        Some(runtime) => Ok(runtime),
        None => begin(),
    }
}

#[cold]
#[inline(never)]
fn begin() -> Outcome<&'static Runtime> {
    second_copy::watch();
    accelrt_opencl::register()?;
    accelrt_testing::watch_environment();
    accelrt_mkl::watch_environment();
    load_kinds()?;
    Ok(Runtime::of_process()?)
}

/// Loads what `ACCELRT_KINDS` names, once a process.
fn load_kinds() -> Outcome {
    let setting = |error: Error| Refused::new(Status::InvalidSetting, error.to_string());
    kinds::load_environment().map_err(setting)
}

/// What `find` finds, at once or among the kinds that `ACCELRT_KINDS` names.
pub(super) fn find_with_kinds<T>(find: impl Fn() -> Option<T>) -> Outcome<Option<T>> {
    match find() {
        None => load_kinds().map(|()| find()),
        found => Ok(found),
    }
}

/// Fails behind the first use of the runtime, which has what was there then.
fn before_first_use(late: &'static str) -> Outcome {
    match Runtime::existing_of_process() {
        Some(_) => Err(Refused::new(Status::InvalidState, late)),
        None => Ok(()),
    }
}

/// Sets a setting in place of the environment variable of the same name, such as
/// `ACCELRT_CPU_DEVICES` to "2"; docs/settings.md has the names and values. NULL as `value` leaves
/// the setting to the environment again. What `ACCELRT_KINDS` names is loaded once, at the first
/// look for a kind or a device.
///
/// To be called before the runtime's first use: before anything but functions of errors, versions
/// and settings. A value is checked by the first use, which then fails with
/// `ACCELRT_STATUS_INVALID_SETTING` until the value is set anew. Does not block.
///
/// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT` for a name that no setting has, and with
/// `ACCELRT_STATUS_INVALID_STATE` behind the first use.
///
/// # Safety
/// `name` and `value` are texts that end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_setting_set(name: *const c_char, value: *const c_char) -> Status {
    guard(|| {
        // SAFETY: the caller passes texts that end with a zero, as the header says.
        let name = unsafe { text(name, "name") }?;
        let value = if value.is_null() {
            None
        } else {
            // SAFETY: as above.
            Some(unsafe { text(value, "value") }?)
        };
        before_first_use("The runtime is in use: set settings before its first use")?;
        if config::set_setting(name, value) {
            return Ok(());
        }
        Err(no_setting(name))
    })
}

#[cold]
fn no_setting(name: &str) -> Refused {
    Refused::argument(format!("There is no setting {name:?}: docs/settings.md has all"))
}

/// Writes what a setting was set to, by `accelrt_setting_set` or else by the environment; an empty
/// text for one that is not set. `text`, `capacity` and `length` are as in
/// `accelrt_device_get_name`. Does not begin the runtime, and does not block.
///
/// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT` for a name that no setting has.
///
/// # Safety
/// `name` is a text that ends with a zero, and `text` has room for `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_setting_get(
    name: *const c_char,
    text: *mut c_char,
    capacity: usize,
    length: Option<&mut MaybeUninit<usize>>,
) -> Status {
    guard(|| {
        // SAFETY: the caller passes a text that ends with a zero, as the header says.
        let name = unsafe { self::text(name, "name") }?;
        let Some(name) = config::VARIABLES.into_iter().find(|known| *known == name) else {
            return Err(no_setting(name));
        };
        let value = config::setting(name).unwrap_or_default();
        // SAFETY: the caller passes room for `capacity` bytes.
        unsafe { write_text(&value, text, capacity, length) }
    })
}

/// Begins the process's runtime, as the first function that needs it does. Starts no thread and
/// initialises no device: what can fail is a setting. Does not block.
///
/// Fails with `ACCELRT_STATUS_INVALID_SETTING`; a later call tries again.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_runtime_begin() -> Status {
    guard(|| runtime().map(drop))
}

/// Writes 1 when the runtime has initialised a device, else 0. Does not block.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_runtime_query(is_initialized: Option<&mut MaybeUninit<i32>>) -> Status {
    guard(|| {
        let to = place(is_initialized, "is_initialized")?;
        to.write(Runtime::existing_of_process().is_some_and(Runtime::is_initialized).into());
        Ok(())
    })
}

/// Ends the process's runtime: takes no new work, finishes queued work for at most
/// `ACCELRT_EXIT_MS`, cancels the rest and writes to standard error what was lost. Blocks until
/// then. The end of a process does it by itself; a second call does nothing. Not to be called by a
/// task.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_runtime_shutdown() -> Status {
    guard(|| {
        if let Some(runtime) = Runtime::existing_of_process() {
            runtime.shutdown_and_report();
        }
        Ok(())
    })
}

/// Counters since the runtime's begin.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RuntimeCounters {
    /// The size of this struct in bytes, set by the caller.
    pub size: usize,
    /// Tasks that threads executed which waited for their stream.
    pub num_helped_tasks: u64,
    /// Wake-ups of sleeping workers.
    pub num_worker_wakes: u64,
    /// Tasks that were not run because their stream had failed.
    pub num_skipped_tasks: u64,
    /// Tasks that were not run because the runtime was shut down.
    pub num_cancelled_tasks: u64,
    /// Workers that were started because others blocked inside of tasks.
    pub num_spare_workers: u64,
}

// SAFETY: numbers of eight bytes each, the first of them the size.
unsafe impl Growing for RuntimeCounters {
    const FIRST_VERSION_BYTES: usize = 48;
}

/// Writes the runtime's counters. Does not block.
///
/// # Safety
/// `counters` begins with the size of the memory that it names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_runtime_get_counters(counters: *mut RuntimeCounters) -> Status {
    guard(|| {
        let known = runtime()?.counters();
        let value = RuntimeCounters {
            size: size_of::<RuntimeCounters>(),
            num_helped_tasks: known.num_helped_tasks,
            num_worker_wakes: known.num_worker_wakes,
            num_skipped_tasks: known.num_skipped_tasks,
            num_cancelled_tasks: known.num_cancelled_tasks,
            num_spare_workers: known.num_spare_workers,
        };
        // SAFETY: the caller passes a struct that begins with its size.
        unsafe { write_sized(&value, counters, "counters") }
    })
}

const TOO_LATE: &str = "The runtime is in use, and has the kinds that were there at its first \
                        use: bring a kind before it, or set ACCELRT_KINDS";

/// Registers the kind of device of a table of functions, an `accelrt_backend` of
/// `accelrt_backend.h`, and writes the kind's number. To be called before the runtime's first use.
/// docs/devices.md says what a maker of devices promises.
///
/// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT` when the table is of another version, lacks a
/// function, or names a kind that is there already, and with `ACCELRT_STATUS_INVALID_STATE` behind
/// the first use.
///
/// # Safety
/// `table` is NULL or such a table, which stays unchanged while the process runs, as do its name
/// and the tables that it names. Its functions do what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_backend_register(
    table: *const c_void,
    kind: Option<&mut MaybeUninit<i32>>,
) -> Status {
    guard(|| {
        let to = place(kind, "kind")?;
        before_first_use(TOO_LATE)?;
        // SAFETY: the caller promises that it is a table.
        let registered = unsafe { kinds::register_table(table) }?;
        to.write(registered.type_code().into());
        Ok(())
    })
}

/// Opens a shared library that exports `accelrt_backend_table`, for good, and registers its kind as
/// `accelrt_backend_register` does. A path without a slash is searched for as the dynamic loader
/// does. The setting `ACCELRT_KINDS` does the same without a call.
///
/// # Safety
/// `path` is a text that ends with a zero. The library's table keeps what `accelrt_backend.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_backend_load(
    path: *const c_char,
    kind: Option<&mut MaybeUninit<i32>>,
) -> Status {
    guard(|| {
        let to = place(kind, "kind")?;
        // SAFETY: the caller passes a text.
        let path = unsafe { text(path, "path") }?;
        before_first_use(TOO_LATE)?;
        // SAFETY: the caller promises that the library's table keeps what the header says.
        let loaded = unsafe { KindLibrary::open(path) }?.register()?;
        to.write(loaded.type_code().into());
        Ok(())
    })
}

/// Writes the kind of device for `ACCELRT_ACCELERATOR`: the configured one, else the first of cuda
/// and xpu that has a GPU, else cpu. The first call may load a driver.
///
/// Fails with `ACCELRT_STATUS_NOT_FOUND` when the configured kind is not there.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_kind_get_accelerator(kind: Option<&mut MaybeUninit<i32>>) -> Status {
    guard(|| {
        let to = place(kind, "kind")?;
        to.write(runtime()?.accelerator()?.type_code().into());
        Ok(())
    })
}

/// Writes the number of the kind with a name, such as "cpu", "cuda", "xpu" or that of a kind that a
/// program has registered or `ACCELRT_KINDS` brings. Does not block.
///
/// Fails with `ACCELRT_STATUS_NOT_FOUND`.
///
/// # Safety
/// `name` is a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_kind_find(
    name: *const c_char,
    kind: Option<&mut MaybeUninit<i32>>,
) -> Status {
    guard(|| {
        let to = place(kind, "kind")?;
        // SAFETY: the caller passes a text that ends with a zero, as the header says.
        let name = unsafe { text(name, "name") }?;
        let found = find_with_kinds(|| DeviceKind::from_name(name))?.ok_or_else(|| {
            Refused::new(Status::NotFound, format!("There is no kind of device {name:?}"))
        })?;
        to.write(found.type_code().into());
        Ok(())
    })
}

/// Writes the name of a kind. `text`, `capacity` and `length` are as in `accelrt_device_get_name`.
/// Does not block.
///
/// Fails with `ACCELRT_STATUS_NOT_FOUND`.
///
/// # Safety
/// `text` has room for `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_kind_get_name(
    kind: i32,
    text: *mut c_char,
    capacity: usize,
    length: Option<&mut MaybeUninit<usize>>,
) -> Status {
    guard(|| {
        let known = kind_of(kind)?;
        // SAFETY: the caller passes room for `capacity` bytes.
        unsafe { write_text(known.name(), text, capacity, length) }
    })
}

/// The kind with a number, or the accelerator's for `ACCELRT_ACCELERATOR`.
#[inline]
pub(super) fn kind_of(kind: i32) -> Outcome<DeviceKind> {
    match kind {
        0 => Ok(DeviceKind::CPU),
        -1 => Ok(runtime()?.accelerator()?),
        _ => find_with_kinds(|| DeviceKind::from_type_code(kind.into()))?.ok_or_else(|| {
            Refused::new(Status::NotFound, format!("There is no kind of device {kind}"))
        }),
    }
}
