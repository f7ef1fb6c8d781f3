//! The places of blocks in use: small numbers in place of the ids that events name.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, BuildHasherDefault};

use crate::base::error::{Error, MemoryError, Result};
use crate::base::stream_map::Mixer;
use crate::memory::allocator::replay::Operation;

/// An event with the place of its block in place of the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// The place of the block.
    pub place: usize,
    /// The size of the request, of a free too.
    pub bytes: usize,
    /// The stream of the request; `None` for a free.
    pub stream: Option<u64>,
}

/// A place and a size for each id in use. Places of freed blocks are used again, so the memory of
/// this map grows with the most blocks that were in use at once, not with the number of events.
#[derive(Debug)]
pub struct Places {
    /// Place and size, by the scrambled id.
    by_id: HashMap<u64, (usize, usize), BuildHasherDefault<Mixer>>,
    vacant: Vec<usize>,
    events: usize,
    /// A random odd number: files cannot choose ids that collide. `RandomState`'s own hashes would
    /// take as long as a cached request.
    key: u64,
}

impl Default for Places {
    fn default() -> Self {
        let key = RandomState::new().hash_one(0) | 1;
        Self { by_id: HashMap::default(), vacant: Vec::new(), events: 0, key }
    }
}

impl Places {
    /// Takes the next event.
    ///
    /// Fails when a request has an id that is in use, and when a free has one that is not. Such an
    /// event counts as well, and nothing is to be taken behind it.
    #[inline]
    pub fn take(&mut self, event: &Operation) -> Result<Step> {
        self.events += 1;
        let (Operation::Allocate { id, .. } | Operation::Free { id }) = *event;
        // The odd factor and the turn lose nothing: other ids become other numbers.
        let scrambled = (id ^ self.key).wrapping_mul(self.key).rotate_left(32);
        if let Operation::Allocate { bytes, stream, .. } = *event {
            let place = self.vacant.pop().unwrap_or(self.by_id.len());
            if self.by_id.insert(scrambled, (place, bytes)).is_some() {
                return Err(self.contradiction(id, "a number that is not in use"));
            }
            return Ok(Step { place, bytes, stream: Some(stream) });
        }
        let Some((place, bytes)) = self.by_id.remove(&scrambled) else {
            return Err(self.contradiction(id, "a number that is in use"));
        };
        self.vacant.push(place);
        Ok(Step { place, bytes, stream: None })
    }

    /// The number of places: every place is below it.
    #[must_use]
    pub fn count(&self) -> usize {
        self.by_id.len() + self.vacant.len()
    }

    #[cold]
    fn contradiction(&self, id: u64, expected: &'static str) -> Error {
        Error::Memory(MemoryError::InvalidEvents { index: self.events - 1, id, expected })
    }
}
