//! The variable `ACCELRT_KINDS`: `NAME=LIBRARY`, several with commas between.
#![expect(unsafe_code, reason = "opens the libraries that the environment vouches for")]

use std::sync::OnceLock;

use crate::base::config::{self, KINDS_REFUSED};
use crate::base::device::DeviceKind;
use crate::base::error::{ConfigError, Error, Result};
use crate::kinds::KindLibrary;
use crate::kinds::library::refused;

const VARIABLE: &str = "ACCELRT_KINDS";

/// What the first call came to.
static LOADED: OnceLock<Result<()>> = OnceLock::new();

/// Loads the kinds that `ACCELRT_KINDS` names, once a process. Without the variable it does
/// nothing.
///
/// The Python module calls it at its import. A program calls it before the first use of the
/// process's runtime. Fails as [`KindLibrary::open`], when a name is not that of the library's
/// kind, and when the variable is malformed; later calls, and the first
/// use of the process's runtime, fail with the same error.
pub fn load_environment() -> Result<()> {
    let load = || {
        let loaded = config::setting(VARIABLE).map_or(Ok(()), |value| load_all(&value));
        loaded.inspect_err(|error| _ = KINDS_REFUSED.set(error.clone()))
    };
    LOADED.get_or_init(load).clone()
}

fn load_all(value: &str) -> Result<()> {
    for entry in value.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (name, path) = entry.split_once('=').ok_or_else(|| malformed(value))?;
        if name.is_empty() || path.is_empty() {
            return Err(malformed(value));
        }
        load(name, path)?;
    }
    Ok(())
}

fn load(name: &str, path: &str) -> Result<DeviceKind> {
    // SAFETY: who sets the variable vouches for the library, as for every one that a process loads
    // by its environment.
    let library = unsafe { KindLibrary::open(path) }?;
    let found = library.kind();
    if found.name() != name {
        let reason = format!("its kind is {found}, and {VARIABLE} calls it {name}");
        return Err(refused(path, reason));
    }
    library.register()
}

fn malformed(value: &str) -> Error {
    Error::Config(ConfigError::InvalidSetting {
        name: VARIABLE,
        value: value.to_owned(),
        allowed: "NAME=LIBRARY, several with commas between",
    })
}
