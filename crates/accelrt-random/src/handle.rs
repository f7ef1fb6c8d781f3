//! The public [`Generator`]: a handle to a seed and an offset that several threads can share.
use std::fmt;
use std::sync::Arc;

use accelrt::internal::{Inherited, SpinMutex, fork};
use accelrt::{ConfigError, Device, Error, Result};

use crate::fill_cache::FillCaches;
use crate::state::{BLOCK_WORDS, DEFAULT_SEED, State, random_seed};
use crate::values::{Block, Values};

/// A generator of random numbers: Philox 4x32-10, from a seed and an offset into its sequence.
///
/// The same seed and offset give the same bits on every kind of device and with any number of
/// threads. Handles are cheap to clone, and clones share one state. Any thread may use a handle at
/// any time, because each call takes a separate part of the sequence.
///
/// Created by [`RuntimeExt::generator`](crate::RuntimeExt::generator). In a forked child whose
/// parent had initialised the runtime, methods of the parent's generators that return a `Result`
/// fail.
///
/// ```
/// use accelrt::{Config, Device, Runtime};
/// use accelrt_random::{FloatType, RuntimeExt};
/// let runtime = Runtime::new(Config::default())?;
/// let stream = runtime.current_stream()?;
/// let generator = runtime.generator(Device::cpu(0))?;
/// generator.manual_seed(0)?;
/// let buffer = runtime.empty(16, Device::cpu(0))?;
/// generator.fill_uniform(&buffer, FloatType::Float32, &stream)?; // a task of the stream
/// assert_eq!(generator.offset()?, 4);
/// let first = buffer.read_to_vec()?[..4].try_into().unwrap();
/// assert_eq!(f32::from_ne_bytes(first), 0.399_046_42);
/// # Ok::<(), accelrt::Error>(())
/// ```
///
/// ```
/// use accelrt_random::{FloatType, RawType, RuntimeExt};
/// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
/// # let (device, stream) = (accelrt::Device::cpu(0), runtime.current_stream()?);
/// let generator = runtime.generator(device)?;
/// generator.manual_seed(7)?;
/// assert_eq!((generator.device(), generator.initial_seed()?), (device, 7));
///
/// // What was drawn can be drawn again, from the state or from a clone that has its own.
/// let (state, twin) = (generator.state()?, generator.clone_state()?);
/// let mut numbers = [0; 2];
/// generator.random_raw_into(&mut numbers)?;
/// assert_eq!(twin.random_raw(2)?, numbers);
/// generator.set_state(state)?;
/// assert_eq!(generator.random_raw(2)?, numbers);
/// generator.set_offset(4096)?; // elsewhere in the same sequence
///
/// let buffer = runtime.empty(64, device)?;
/// generator.fill_raw(&buffer, RawType::Uint32, &stream)?;
/// generator.fill_normal(&buffer, FloatType::Float64, &stream)?;
/// generator.seed()?; // a seed by chance
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Clone)]
pub struct Generator {
    core: Inherited<Arc<Core>>,
}

struct Core {
    device: Device,
    state: SpinMutex<State>,
    caches: Arc<FillCaches>,
    /// The process that created the generator.
    process: u32,
}

impl Generator {
    pub(crate) fn new(device: Device, caches: Arc<FillCaches>) -> Self {
        Self::at(device, caches, State::of(DEFAULT_SEED))
    }

    pub(crate) fn at(device: Device, caches: Arc<FillCaches>, state: State) -> Self {
        let (state, process) = (SpinMutex::new(state), std::process::id());
        let core = Core { device, state, caches, process };
        Self { core: Inherited::new(Arc::new(core)) }
    }

    /// The generator's device. The generator fills buffers on all devices of the same kind.
    #[must_use]
    pub fn device(&self) -> Device {
        self.core.device
    }

    /// Sets the seed, and sets the offset to 0.
    pub fn manual_seed(&self, seed: u64) -> Result<()> {
        self.with_state(|state| *state = State::of(seed))
    }

    /// Calls [`Generator::manual_seed`] with an unpredictable number, and returns the number.
    pub fn seed(&self) -> Result<u64> {
        let seed = random_seed();
        self.manual_seed(seed).map(|()| seed)
    }

    /// The seed that was set last. Fills do not change it.
    pub fn initial_seed(&self) -> Result<u64> {
        self.with_state(|state| state.seed)
    }

    /// The number of 32-bit words of the sequence that calls have used, a multiple of 4.
    pub fn offset(&self) -> Result<u64> {
        self.with_state(|state| state.offset())
    }

    /// Sets the offset, in words. Fails when the offset is not a multiple of 4.
    pub fn set_offset(&self, offset: u64) -> Result<()> {
        self.with_state(|state| State::at(state.seed, offset).map(|moved| *state = moved))?
    }

    /// The state as bytes: the seed, then the offset, 8 bytes each, little-endian.
    pub fn state(&self) -> Result<[u8; 16]> {
        self.with_state(|state| state.to_bytes())
    }

    /// Restores a state that [`Generator::state`] returned. Fails, without a change, when the
    /// offset in the state is not a multiple of 4.
    pub fn set_state(&self, state: [u8; 16]) -> Result<()> {
        let given = State::from_bytes(state)?;
        self.with_state(|state| *state = given)
    }

    /// Creates a generator with a copy of the state. Neither generator changes the other's state.
    pub fn clone_state(&self) -> Result<Self> {
        let state = self.with_state(|state| *state)?;
        Ok(Self::at(self.core.device, Arc::clone(&self.core.caches), state))
    }

    /// Computes the next `count` numbers on this thread. A fill with
    /// [`RawType::Uint64`](crate::RawType::Uint64) would write the same numbers. Fails, without a
    /// change, when the offset would exceed 2^64 - 4.
    ///
    /// ```
    /// # use accelrt_random::RuntimeExt;
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let generator = runtime.generator(accelrt::Device::cpu(0))?;
    /// generator.manual_seed(0)?;
    /// assert_eq!(generator.random_raw(1)?, [0xe169_c58d_6627_e8d5]); // a block has two
    /// assert_eq!(generator.offset()?, 4);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn random_raw(&self, count: usize) -> Result<Vec<u64>> {
        let mut numbers = Vec::new();
        numbers.try_reserve_exact(count).map_err(|_| {
            let (name, value) = ("count of numbers", count.to_string());
            Error::Config(ConfigError::InvalidSetting {
                name,
                value,
                allowed: "as many as there is memory for",
            })
        })?;
        numbers.resize(count, 0);
        self.random_raw_into(&mut numbers).map(|()| numbers)
    }

    /// As [`Generator::random_raw`], but writes the numbers to `numbers`.
    ///
    /// Fails, without a change, when the offset would exceed 2^64 - 4.
    pub fn random_raw_into(&self, numbers: &mut [u64]) -> Result<()> {
        let (seed, mut block) = self.take(numbers.len().div_ceil(2) as u64)?;
        let mut blocks = [Block::default(); 64];
        for numbers in numbers.chunks_mut(2 * blocks.len()) {
            Values::RawUint32.write(seed, block, &mut blocks);
            let (words, _) = blocks.as_flattened().as_chunks::<2>();
            for (number, [low, high]) in numbers.iter_mut().zip(words) {
                *number = u64::from(*low) | u64::from(*high) << 32;
            }
            block = block.wrapping_add(blocks.len() as u64);
        }
        Ok(())
    }

    /// Advances the offset by `blocks` blocks. Returns the seed and the number of the first block.
    /// Fails as [`State::take`].
    #[doc(hidden)]
    pub fn take(&self, blocks: u64) -> Result<(u64, u64)> {
        self.with_state(|state| Ok((state.seed, state.take(blocks)?)))?
    }

    pub(crate) fn caches(&self) -> &FillCaches {
        &self.core.caches
    }

    fn with_state<R>(&self, change: impl FnOnce(&mut State) -> R) -> Result<R> {
        // A thread that a forked child lacks may hold the lock of an inherited generator.
        if fork::is_child() && self.core.process != std::process::id() {
            fork::check()?;
        }
        Ok(change(&mut self.core.state.lock()))
    }
}

impl fmt::Debug for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = format_args!("{}", self.core.device);
        f.debug_struct("Generator").field("device", &device).finish_non_exhaustive()
    }
}

const _: () = assert!(size_of::<Block>() as u64 == 4 * BLOCK_WORDS);
