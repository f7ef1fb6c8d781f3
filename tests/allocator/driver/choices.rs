//! The choices of a program, read from bytes: random ones, a file's or a fuzzer's.

/// What is left to choose from.
#[derive(Debug)]
pub(crate) struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// True when every byte was taken.
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// One of `0..end`, by as many bytes as it takes; those that are missing count as zeros.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let (mut number, mut reach) = (0, 1_usize);
        while reach < end {
            let (byte, left) = self.0.split_first().unwrap_or((&0, &[]));
            self.0 = left;
            (number, reach) = (number << 8 | usize::from(*byte), reach << 8);
        }
        number % end
    }

    /// One of several.
    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}
