//! What `with` statements make current: devices, indices, streams, pools and tags.

use std::hash::{Hash, Hasher};

use accelrt::internal::{NameId, Selected};
use accelrt::{Device, DeviceKind, MemPool, Result, Runtime, Stream};

use crate::objects::tags;

/// What one `with` statement enters.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Context {
    /// A device, or only a kind of devices.
    Device(DeviceKind, Option<usize>),
    /// A device of a kind, by its index. `None` has no effect.
    Index(DeviceKind, Option<usize>),
    Stream(Stream),
    Pool(EnteredPool),
    /// What memory is for.
    Tag(NameId),
}

/// A pool as `with` statements compare it: by its id.
#[derive(Clone)]
pub(crate) struct EnteredPool(pub MemPool);

impl PartialEq for EnteredPool {
    fn eq(&self, other: &Self) -> bool {
        self.0.id() == other.0.id()
    }
}

impl Eq for EnteredPool {}

impl Hash for EnteredPool {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id().hash(state);
    }
}

impl Context {
    /// What this makes current; the stream first, which the runtime may refuse.
    pub(crate) fn selections(&self) -> Result<Vec<Selection>> {
        let first = match self {
            Self::Stream(stream) => Some(Selection::Stream(stream.clone())),
            Self::Pool(pool) => Some(Selection::Pool(pool.0.clone())),
            Self::Tag(tag) => Some(Selection::Tag(*tag)),
            Self::Device(..) | Self::Index(..) => None,
        };
        let device = self.device().transpose()?.map(Selection::Device);
        Ok(first.into_iter().chain(device).collect())
    }

    /// The device that becomes current, if any.
    pub(crate) fn device(&self) -> Option<Result<Device>> {
        match self {
            Self::Device(kind, index) | Self::Index(kind, index) => {
                index.map(|index| Device::new(*kind, index))
            }
            Self::Stream(stream) => Some(Ok(stream.device())),
            Self::Pool(_) | Self::Tag(_) => None,
        }
    }

    /// The kind whose current device `default_device` returns in this context, if any.
    pub(crate) fn kind(&self) -> Option<DeviceKind> {
        match self {
            Self::Device(kind, _) => Some(*kind),
            Self::Index(kind, index) => index.map(|_| *kind),
            Self::Stream(stream) => Some(stream.device().kind()),
            Self::Pool(_) | Self::Tag(_) => None,
        }
    }
}

/// One part of what is current.
#[derive(Clone)]
pub(crate) enum Selection {
    Device(Device),
    Stream(Stream),
    Pool(MemPool),
    Tag(NameId),
}

impl Selection {
    /// Makes this current. Fails, without a change, if the runtime refuses it.
    pub(crate) fn select(&self, runtime: &Runtime) -> Result<()> {
        match self {
            Self::Device(device) => runtime.exchange_device(*device).map(drop),
            Self::Stream(stream) => runtime.exchange_stream(stream).map(drop),
            Self::Pool(pool) => {
                pool.push();
                Ok(())
            }
            Self::Tag(tag) => {
                tags::select(*tag);
                Ok(())
            }
        }
    }

    /// Adds this to the selection of a thread.
    pub(crate) fn add_to(&self, selected: &mut Selected) {
        match self {
            Self::Device(device) => selected.set_device(*device),
            Self::Stream(stream) => drop(selected.set_stream(stream.clone())),
            Self::Pool(pool) => pool.add_to(selected),
            Self::Tag(_) => {} // apart from what is selected: see `task_contexts`
        }
    }
}
