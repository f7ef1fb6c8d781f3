//! Amounts of pieces by class, with peaks: outside of the heaps, or awaiting their free.

use crate::memory::allocator::snapshot::PoolClass;

#[derive(Clone, Copy, Debug, Default)]
pub(in crate::memory::allocator) struct Amounts {
    classes: [Amount; 2],
    all: Amount,
}

/// The number of pieces, their bytes, and the requested bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::memory::allocator) struct Amount {
    pub(crate) current: [u64; 3],
    pub(super) peak: [u64; 3],
}

impl Amount {
    fn raise(&mut self, amounts: [u64; 3]) {
        // Outside of the heaps requested bytes are not counted, which the compiler sees where this
        // is inlined.
        let counted = if amounts[2] == 0 { 2 } else { 3 };
        for (index, amount) in amounts[..counted].iter().enumerate() {
            self.current[index] += amount;
            self.peak[index] = self.peak[index].max(self.current[index]);
        }
    }

    fn lower(&mut self, amounts: [u64; 3]) {
        for (current, amount) in self.current.iter_mut().zip(amounts) {
            *current -= amount;
        }
    }
}

impl Amounts {
    /// Adds pieces, their bytes and their requested bytes.
    pub(super) fn leave(&mut self, class: PoolClass, amounts: [usize; 3]) {
        let amounts = amounts.map(|amount| amount as u64);
        self.classes[class as usize].raise(amounts);
        self.all.raise(amounts);
    }

    /// Subtracts them.
    pub(super) fn come_back(&mut self, class: PoolClass, amounts: [usize; 3]) {
        let amounts = amounts.map(|amount| amount as u64);
        self.classes[class as usize].lower(amounts);
        self.all.lower(amounts);
    }

    pub(super) fn reset_peaks(&mut self) {
        let amounts = self.classes.iter_mut().chain([&mut self.all]);
        amounts.for_each(|amount| amount.peak = amount.current);
    }

    pub(super) fn of(&self, class: PoolClass) -> &Amount {
        &self.classes[class as usize]
    }

    pub(crate) fn all(&self) -> &Amount {
        &self.all
    }
}
