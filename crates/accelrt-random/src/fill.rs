//! Random fills of buffers: a call checks its arguments, takes random words, enqueues a task.
#![expect(unsafe_code, reason = "fills with an order that the caller guarantees")]
use accelrt::internal::UseOrder;
use accelrt::{Buffer, Error, GeneratorError, Result, Stream};

use crate::Generator;
use crate::fill_cache::launch;
use crate::host::{HostFill, Range};
use crate::values::{BLOCK_BYTES, Block, Values};

/// The integer type that [`Generator::fill_raw`] writes, every bit of which is random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RawType {
    /// 32 bits: one word per number.
    Uint32,
    /// 64 bits: two words per number, the lower word first.
    Uint64,
}

/// The IEEE 754 type that [`Generator::fill_uniform`] and [`Generator::fill_normal`] write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FloatType {
    /// 4 bytes per number.
    Float32,
    /// 8 bytes per number. Not every device supports this type.
    Float64,
}

impl RawType {
    fn raw(self) -> Values {
        if self == Self::Uint32 { Values::RawUint32 } else { Values::RawUint64 }
    }
}

impl FloatType {
    fn uniform(self) -> Values {
        if self == Self::Float32 { Values::UniformFloat32 } else { Values::UniformFloat64 }
    }

    fn normal(self) -> Values {
        if self == Self::Float32 { Values::NormalFloat32 } else { Values::NormalFloat64 }
    }
}

impl Generator {
    /// Enqueues a fill of a buffer with raw numbers. Does not wait for the fill; blocks as
    /// [`Buffer::fill`]. The first fill on a driver's device also compiles a program.
    ///
    /// Advances the offset by 4 words per 16 bytes, rounded up. The device generates the numbers;
    /// for one of a kind that compiles no programs this thread does, and enqueues a copy. A
    /// failed stream skips the fill, but the offset stays advanced. The fill waits for conflicting
    /// uses of the buffer, as [`Buffer::fill`].
    ///
    /// Fails when the generator is of another kind or runtime than the buffer, the buffer's size or
    /// address is not a multiple of the type's size, the stream is of another device, or the device
    /// has no double precision, no kernels or no readable properties. Also fails after a release or
    /// a shutdown, in a forked child, and when the offset would exceed 2^64 - 4. A failed call uses
    /// no words.
    pub fn fill_raw(&self, buffer: &Buffer, dtype: RawType, stream: &Stream) -> Result<()> {
        self.fill(buffer, dtype.raw(), stream, UseOrder::BehindConflicts)
    }

    /// As [`Generator::fill_raw`], with uniform numbers in [0, 1). They are multiples of 2^-24 for
    /// [`FloatType::Float32`] and of 2^-53 for [`FloatType::Float64`].
    pub fn fill_uniform(&self, buffer: &Buffer, dtype: FloatType, stream: &Stream) -> Result<()> {
        self.fill(buffer, dtype.uniform(), stream, UseOrder::BehindConflicts)
    }

    /// As [`Generator::fill_raw`], with normal numbers of mean 0 and variance 1, by the Box-Muller
    /// transform. Their absolute values are below 6.7 for [`FloatType::Float32`] and below 8.6 for
    /// [`FloatType::Float64`].
    pub fn fill_normal(&self, buffer: &Buffer, dtype: FloatType, stream: &Stream) -> Result<()> {
        self.fill(buffer, dtype.normal(), stream, UseOrder::BehindConflicts)
    }

    /// As [`Generator::fill_raw`], but only `stream` orders the fill.
    ///
    /// # Safety
    /// Until the fill is done, no other task and no thread reads or writes the buffer's bytes.
    pub unsafe fn fill_raw_unordered(
        &self,
        buffer: &Buffer,
        dtype: RawType,
        stream: &Stream,
    ) -> Result<()> {
        self.fill(buffer, dtype.raw(), stream, UseOrder::ByCaller)
    }

    /// As [`Generator::fill_uniform`], but only `stream` orders the fill.
    ///
    /// # Safety
    /// As [`Generator::fill_raw_unordered`].
    pub unsafe fn fill_uniform_unordered(
        &self,
        buffer: &Buffer,
        dtype: FloatType,
        stream: &Stream,
    ) -> Result<()> {
        self.fill(buffer, dtype.uniform(), stream, UseOrder::ByCaller)
    }

    /// As [`Generator::fill_normal`], but only `stream` orders the fill.
    ///
    /// # Safety
    /// As [`Generator::fill_raw_unordered`].
    pub unsafe fn fill_normal_unordered(
        &self,
        buffer: &Buffer,
        dtype: FloatType,
        stream: &Stream,
    ) -> Result<()> {
        self.fill(buffer, dtype.normal(), stream, UseOrder::ByCaller)
    }

    fn fill(
        &self,
        buffer: &Buffer,
        values: Values,
        stream: &Stream,
        order: UseOrder,
    ) -> Result<()> {
        let (generator, expected) = (self.device().kind(), buffer.device().kind());
        if generator != expected {
            return Err(Error::Generator(GeneratorError::KindMismatch { expected, generator }));
        }
        let (address, bytes, item_bytes) =
            (buffer.address()?, buffer.nbytes(), values.item_bytes());
        if !bytes.is_multiple_of(item_bytes) || !address.is_multiple_of(item_bytes as u64) {
            let refusal = GeneratorError::FillAlignment { address, bytes, item_bytes };
            return Err(Error::Generator(refusal));
        }
        let lifecycle = &stream.core().lifecycle;
        lifecycle.check_same_runtime("a generator", self.caches().runtime)?;
        lifecycle.check()?;
        let (cache, blocks) = (self.caches().of(stream.device()), bytes.div_ceil(BLOCK_BYTES));
        buffer.check_stream(stream)?;
        if stream.core().on_host {
            let core_count = cache.core_count(stream)?;
            let (seed, first_block) = self.take(blocks as u64)?;
            let filled = buffer.overwrite(stream, order, |to| {
                HostFill(Range { seed, first_block, to, bytes, values, core_count })
            });
            return filled.map(drop);
        }
        let backend = &stream.core().backend;
        if backend.kernels().is_none() && backend.has_host_addresses() {
            let (seed, first_block) = self.take(blocks as u64)?;
            let mut numbers = vec![Block::default(); blocks];
            values.write(seed, first_block, &mut numbers);
            let words = numbers.into_iter().flatten().flat_map(u32::to_ne_bytes);
            let source: Vec<u8> = words.take(bytes).collect();
            return buffer.copy_from_host(source, stream).map(drop);
        }
        let kernel = cache.kernel(values, stream)?;
        if bytes == 0 {
            return Ok(());
        }
        launch(kernel, self.take(blocks as u64)?, (buffer, item_bytes), stream, order)
    }
}
