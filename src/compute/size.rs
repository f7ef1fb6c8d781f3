//! The sizes of a launch: numbers of work-items in one to three dimensions.

use crate::backend::contract::LaunchSize;
use crate::base::error::{Error, ProgramError, Result};

const EXTENTS: &str = "allowed are 1 to 3 positive numbers";

/// Checks the sizes of a launch. A local size must have the global size's number of dimensions, and
/// divide the global size in each of them.
pub(super) fn launch_size(
    kernel: &str,
    global: &[usize],
    local: Option<&[usize]>,
) -> Result<LaunchSize> {
    let refused = |what, given: &[usize], allowed| {
        let (kernel, given) = (kernel.to_owned(), given.to_vec());
        Error::Program(ProgramError::LaunchSize { kernel, what, given, allowed })
    };
    let extents =
        |what, given: &[usize]| extents(given).ok_or_else(|| refused(what, given, EXTENTS));
    let size = LaunchSize {
        global: extents("a global size", global)?,
        local: local.map(|local| extents("a local size", local)).transpose()?,
        dimensions: u32::try_from(global.len()).unwrap_or(0), // at most 3: `extents` has checked it
    };
    let Some(local) = local else { return Ok(size) };
    if local.len() != global.len() {
        let allowed = "the global size has another number of dimensions";
        return Err(refused("a local size", local, allowed));
    }
    if global.iter().zip(local).any(|(global, local)| !global.is_multiple_of(*local)) {
        let allowed = "it must divide the global size in each dimension";
        return Err(refused("a local size", local, allowed));
    }
    Ok(size)
}

/// Fills unused dimensions with 1. `None` unless `given` has 1 to 3 numbers, all positive.
fn extents(given: &[usize]) -> Option<[usize; 3]> {
    let is_right = (1..=3).contains(&given.len()) && given.iter().all(|extent| *extent > 0);
    is_right.then(|| std::array::from_fn(|place| given.get(place).copied().unwrap_or(1)))
}
