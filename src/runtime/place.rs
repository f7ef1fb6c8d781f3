//! Where this thread's next buffer comes from when nothing is named: worked out once.
//!
//! It follows from what is current in the thread and from nothing else, so the thread forgets it
//! whenever it changes any of that. Only the runtime of the process has it: that one is never
//! dropped, and so are its allocators, which would else be kept alive from here.

use std::cell::RefCell;

use crate::buffer::Buffer;
use crate::buffer::allocation::Origin;
use crate::device::Device;
use crate::error::Result;
use crate::runtime::Runtime;
use crate::stream::Stream;

struct Place {
    home: Stream,
    origin: Origin,
}

thread_local! {
    static PLACE: RefCell<Option<Place>> = const { RefCell::new(None) };
}

/// What is current in this thread changes.
pub(crate) fn forget() {
    // `try_with`: a runtime may end while its thread does.
    let forgotten = PLACE.try_with(RefCell::take);
    drop(forgotten); // outside the borrow: it may be the last handle of a stream
}

/// Memory at the place of this thread, when it is known and free memory is enough.
#[inline]
pub(crate) fn empty(bytes: usize) -> Result<Option<Buffer>> {
    let cached = |place: &Place| Buffer::cached(&place.home, bytes, &place.origin);
    PLACE.with_borrow(|place| place.as_ref().map_or(Ok(None), cached))
}

impl Runtime {
    /// Remembers that this thread means `device` where it names none, until [`forget`].
    pub(crate) fn remember_place(&'static self, device: Device) -> Result<()> {
        let home = self.current_stream_of(device)?;
        let origin = self.origin(device, false)?;
        let place = Place { home, origin };
        let replaced = PLACE.replace(Some(place));
        drop(replaced); // as above
        Ok(())
    }
}
