//! L3, oneMKL's memory: selects the allocator, and verifies by a probe that oneMKL uses it.
//!
//! * `functions`: the allocators, and the functions registered for them
//! * `library`: oneMKL's pointers to these functions, and the probe

mod functions;
mod library;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use accelrt::internal::fork;
use accelrt::{Error, IntegrationError, Result};
pub use functions::MklAllocator;
use library::{Pointers, Probe};

use crate::verbose::VerboseLibrary;

impl MklAllocator {
    /// Makes this the current allocator of every oneMKL in the process and returns the previous
    /// one. Loads a oneMKL if the process has none. Each oneMKL then multiplies two matrices as a
    /// probe. A oneMKL that has already read its pointers does not use the allocator. In this case
    /// the call fails and restores the previous state.
    pub fn register(self, folders: &[&Path]) -> Result<Self> {
        fork::check()?;
        let _guard = RegistrationGuard::begin().ok_or_else(|| {
            self.refused("another thread is changing oneMKL's allocator".to_owned())
        })?;
        let previous = Self::current();
        if self == Self::System && !IS_REGISTERED.load(Ordering::Relaxed) {
            return Ok(previous); // oneMKL already uses these functions
        }
        functions::prepare(self)?;
        let libraries = VerboseLibrary::Mkl.found(folders).map_err(|error| match error {
            Error::Integration(IntegrationError::LibraryMissing { searched, .. }) => {
                self.refused(format!("none was found: searched were {searched}"))
            }
            other => other,
        })?;
        for one in &libraries {
            // The version query loads the libraries behind `libmkl_rt`, but allocates nothing.
            VerboseLibrary::Mkl.version_of(one.library);
        }
        let pointers = Pointers::in_loaded_copies();
        let before: Vec<_> = pointers.iter().map(Pointers::read).collect();
        let is_libcs = |functions: &&[_; 4]| functions[0] == libc::malloc as *mut _;
        let registered = before.iter().find(|one| !is_libcs(one)).or(before.first());
        let Some(registered) = registered else {
            let files: Vec<_> = libraries.iter().map(|one| one.path.as_str()).collect();
            let files = files.join(", ");
            return Err(self.refused(format!("{files} does not show its pointer i_malloc")));
        };
        functions::save_previous(*registered);
        for one in &pointers {
            one.write(functions::registered_functions());
        }
        functions::set_current(self);
        let proven = libraries.iter().try_for_each(|one| {
            let path = &one.path;
            let missing = || self.refused(format!("{path} has no cblas_dgemm"));
            let probe = Probe::of(one).ok_or_else(missing)?;
            let calls = functions::calls(self);
            probe.run();
            let is_used = functions::calls(self) > calls;
            let unused =
                || self.refused(format!("{path} made a GEMM and did not ask it for memory"));
            is_used.then_some(()).ok_or_else(unused)
        });
        if proven.is_err() {
            pointers.iter().zip(before).for_each(|(one, before)| one.write(before));
            functions::set_current(previous);
        } else {
            IS_REGISTERED.store(true, Ordering::Relaxed);
        }
        proven.map(|()| previous)
    }
}

/// True after a successful probe. Relaxed: `RegistrationGuard` orders all readers.
static IS_REGISTERED: AtomicBool = AtomicBool::new(false);

/// Serialises registrations. Not a `Mutex`: a registration calls oneMKL, which calls functions of
/// this crate that take locks.
struct RegistrationGuard;

static IS_REGISTERING: AtomicBool = AtomicBool::new(false);

impl RegistrationGuard {
    fn begin() -> Option<Self> {
        // Acquire: pairs with the release store in the drop of the previous `RegistrationGuard`.
        // By a closure: a value made in vain would end the other one by its drop.
        (!IS_REGISTERING.swap(true, Ordering::Acquire)).then(|| Self)
    }
}

impl Drop for RegistrationGuard {
    fn drop(&mut self) {
        // Release: pairs with the acquire swap in the next `begin`.
        IS_REGISTERING.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_that_finds_another_one_does_not_end_it() {
        let first = RegistrationGuard::begin().expect("there is no other");
        for _ in 0..2 {
            assert!(RegistrationGuard::begin().is_none());
        }
        drop(first);
        assert!(RegistrationGuard::begin().is_some());
    }
}
