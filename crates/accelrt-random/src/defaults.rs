//! The default generators of a runtime, one per device, created at their first use.
//!
//! Seeding neither needs nor initialises a device. A seed for all devices, or for those of a kind,
//! also applies to generators created later. Each seeding replaces the earlier seeds of its
//! devices. Without a seeding, a default generator begins with an unpredictable seed.
use std::collections::BTreeMap;
use std::sync::Arc;

use accelrt::internal::{LockRank, Mutex, fork};
use accelrt::{Device, DeviceKind, Result};

use crate::Generator;
use crate::fill_cache::FillCaches;
use crate::state::{State, random_seed};

#[derive(Debug)]
pub(crate) struct Defaults {
    caches: Arc<FillCaches>,
    state: Mutex<DefaultState>,
}

#[derive(Debug, Default)]
struct DefaultState {
    generators: BTreeMap<Device, Generator>,
    /// The last seed for all devices of a kind. A later seed for all kinds removes the entry.
    seeds: BTreeMap<DeviceKind, u64>,
    /// The last seed for all devices of all kinds, including kinds registered later.
    seed_of_all: Option<u64>,
}

impl Defaults {
    pub(crate) fn new(runtime: u64) -> Self {
        let state = Mutex::new(LockRank::Defaults, DefaultState::default());
        Self { caches: FillCaches::new(runtime), state }
    }

    /// Creates a generator with the default seed, independent of the default generators.
    pub(crate) fn generator(&self, device: Device) -> Generator {
        Generator::new(device, Arc::clone(&self.caches))
    }

    pub(crate) fn of(&self, device: Device) -> Result<Generator> {
        fork::check()?;
        let DefaultState { generators, seeds, seed_of_all } = &mut *self.state.lock();
        let made = generators.entry(device).or_insert_with(|| {
            let seed = seeds.get(&device.kind()).copied().or(*seed_of_all);
            let seed = seed.unwrap_or_else(random_seed);
            Generator::at(device, Arc::clone(&self.caches), State::of(seed))
        });
        Ok(made.clone())
    }

    pub(crate) fn manual_seed(&self, seed: u64) -> Result<()> {
        fork::check()?;
        let mut state = self.state.lock();
        state.seeds.clear();
        state.seed_of_all = Some(seed);
        state.generators.values().try_for_each(|it| it.manual_seed(seed))
    }

    pub(crate) fn manual_seed_all(&self, kind: DeviceKind, seed: u64) -> Result<()> {
        fork::check()?;
        let mut state = self.state.lock();
        state.seeds.insert(kind, seed);
        let of_kind = state.generators.iter().filter(|(device, _)| device.kind() == kind);
        of_kind.map(|(_, generator)| generator).try_for_each(|it| it.manual_seed(seed))
    }
}
