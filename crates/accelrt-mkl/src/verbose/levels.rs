//! Verbose levels: the newest open scope determines the level of a library.
//!
//! Neither oneMKL nor oneDNN has a query for its level, so this file records the open scopes of the
//! process. Without a scope, the environment's level applies. A level that other code sets lasts
//! until the next scope begins or ends.

use std::path::Path;
use std::sync::OnceLock;

use accelrt::internal::config::variable;
use accelrt::internal::dylib::FoundLibrary;
use accelrt::internal::{LockRank, Mutex};
use accelrt::{Error, IntegrationError, Result, Runtime};
use accelrt_observe::internal::task_lines;

use crate::verbose::environment::{EnvironmentLevel, of_mkl, of_onednn};
use crate::verbose::library::VerboseLibrary;

#[derive(Debug, Default)]
struct Levels {
    next_id: u64,
    /// The ids and levels of the open scopes, oldest first. Threads may close scopes in any order.
    open: Vec<(u64, i32)>,
}

impl Levels {
    fn open(&mut self, level: i32) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.open.push((id, level));
        id
    }

    fn close(&mut self, id: u64) {
        self.open.retain(|(known, _)| *known != id);
    }

    /// The level of the newest scope, or `bottom` without a scope.
    fn effective_level(&self, bottom: i32) -> i32 {
        self.open.last().map_or(bottom, |(_, level)| *level)
    }
}

impl VerboseLibrary {
    fn levels(self) -> &'static Mutex<Levels> {
        static LEVELS: [Mutex<Levels>; 3] = [const {
            Mutex::new(LockRank::VerboseLevels, Levels { next_id: 0, open: Vec::new() })
        }; 3];
        &LEVELS[self as usize]
    }

    /// The level that the library's environment variable sets, read once per process.
    fn environment_level(self) -> &'static EnvironmentLevel {
        static LEVELS: [OnceLock<EnvironmentLevel>; 3] = [const { OnceLock::new() }; 3];
        LEVELS[self as usize].get_or_init(|| match self {
            Self::Mkl => of_mkl(variable),
            Self::OneDnn => of_onednn(variable),
            Self::Accelrt => EnvironmentLevel::default(),
        })
    }

    /// True when the environment makes the library print lines about its calls.
    pub(crate) fn is_verbose_by_environment(self) -> bool {
        self.environment_level().level > 0
    }

    /// Describes the part of the environment's level that the end of a scope cannot restore:
    /// oneDNN's variable may have flags that no level contains. `None` without such a part.
    #[must_use]
    pub fn lost_by_restoring(self) -> Option<String> {
        let EnvironmentLevel { level, not_restorable } = self.environment_level();
        not_restorable.as_ref().map(|variable| {
            format!(
                "{variable} means more than a level: {self} cannot restore it, and has level \
                 {level} when the verbose scope ends"
            )
        })
    }
}

/// Sets a library's verbose level in the whole process until the scope is dropped. Then the level
/// of the newest open scope applies, or the environment's level without one.
///
/// ```
/// use accelrt_mkl::{VerboseLibrary, VerboseScope};
///
/// let silent = VerboseScope::enter(VerboseLibrary::OneDnn, 0, &[])?; // never fails
/// # if VerboseLibrary::OneDnn.is_available(&[])? {
/// {
///     let watched = VerboseScope::enter(VerboseLibrary::OneDnn, 1, &[])?;
///     // each primitive that is executed here prints a line
/// } // silent again
/// # }
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the level applies until this is dropped"]
pub struct VerboseScope {
    library: VerboseLibrary,
    id: u64,
}

impl VerboseScope {
    /// Opens a scope. For a level other than 0, searches for the library in the process, by name
    /// and in `folders`, or uses the file that `ACCELRT_MKL_LIBRARY` or `ACCELRT_DNNL_LIBRARY`
    /// names. Level 0 silences the libraries in the process and never fails.
    ///
    /// Fails when the level does not exist, no library is found, or a library refuses the level. A
    /// failed call changes no level.
    pub fn enter(library: VerboseLibrary, level: i32, folders: &[&Path]) -> Result<Self> {
        let refused = |reason| {
            let library = library.name();
            Error::Integration(IntegrationError::VerboseLevel { library, level, reason })
        };
        if !(0..=library.highest_level()).contains(&level) {
            return Err(refused(format!("levels are 0 to {}", library.highest_level())));
        }
        let bottom = library.environment_level().level;
        let found = if level == 0 { library.loaded_copies() } else { library.found(folders)? };
        if library == VerboseLibrary::Accelrt && level > 0 {
            Runtime::global()?;
        }
        let mut levels = library.levels().lock();
        let id = levels.open(level);
        let refusing = apply(library, &found, level).filter(|_| level > 0);
        if let Some(path) = refusing {
            levels.close(id);
            apply(library, &found, levels.effective_level(bottom));
            return Err(refused(format!("{path} refuses it")));
        }
        Ok(Self { library, id })
    }
}

impl Drop for VerboseScope {
    fn drop(&mut self) {
        let found = self.library.loaded_copies();
        let mut levels = self.library.levels().lock();
        levels.close(self.id);
        // The result is ignored: a library that refuses the level retains its current one.
        apply(self.library, &found, levels.effective_level(self.library.environment_level().level));
    }
}

/// Sets a level in every copy. Returns the file of the last copy that refuses the level.
fn apply(library: VerboseLibrary, found: &[FoundLibrary], level: i32) -> Option<String> {
    if library == VerboseLibrary::Accelrt {
        task_lines::set(level);
    }
    found.iter().fold(
        None,
        |refusing, one| {
            if library.set(one, level) { refusing } else { Some(one.path.clone()) }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_opened_open_scope_applies() {
        let mut levels = Levels::default();
        let outer = levels.open(1);
        let inner = levels.open(0);
        assert_eq!(levels.effective_level(2), 0);
        levels.close(inner);
        assert_eq!(levels.effective_level(2), 1);
        levels.close(outer);
        assert_eq!(levels.effective_level(2), 2);
    }

    #[test]
    fn scopes_of_threads_close_in_any_order() {
        let mut levels = Levels::default();
        let (first, second) = (levels.open(1), levels.open(2));
        levels.close(first);
        assert_eq!(levels.effective_level(0), 2);
        let third = levels.open(1);
        levels.close(second);
        assert_eq!(levels.effective_level(0), 1);
        levels.close(third);
        levels.close(third);
        assert_eq!(levels.effective_level(0), 0);
    }
}
