//! Amounts with peaks, by class: of pieces in use or awaiting their free, and of inactive splits.

use crate::memory::allocator::snapshot::PoolClass;

/// Amounts and their peaks. A peak is passed seldom, so what is stored is the room below it.
#[derive(Clone, Copy, Debug)]
pub(in crate::memory::allocator) struct Peaked<const N: usize> {
    peaks: [u64; N],
    rooms: [i64; N],
}

impl<const N: usize> Default for Peaked<N> {
    fn default() -> Self {
        Self { peaks: [0; N], rooms: [0; N] }
    }
}

impl<const N: usize> Peaked<N> {
    pub(crate) fn current(&self) -> [u64; N] {
        std::array::from_fn(|index| below(self.peaks[index], self.rooms[index]))
    }

    pub(super) fn peaks(&self) -> [u64; N] {
        self.peaks
    }

    /// Adds amounts. Negative when one passes its peak: [`Self::raise`] must come next.
    #[inline(always)]
    fn add(&mut self, amounts: [i64; N]) -> i64 {
        self.rooms.iter_mut().zip(amounts).fold(0, |signs, (room, amount)| {
            *room -= amount;
            signs | *room
        })
    }

    #[inline(always)]
    fn subtract(&mut self, amounts: [i64; N]) {
        self.rooms.iter_mut().zip(amounts).for_each(|(room, amount)| *room += amount);
    }

    /// Raises the peaks that are passed.
    fn raise(&mut self) {
        for (peak, room) in self.peaks.iter_mut().zip(&mut self.rooms) {
            let over = (*room).min(0);
            (*peak, *room) = (below(*peak, over), *room - over);
        }
    }

    fn reset_peaks(&mut self) {
        (self.peaks, self.rooms) = (self.current(), [0; N]);
    }
}

/// A number, its bytes and, with three amounts, the requested bytes, of each class and of both.
#[derive(Clone, Copy, Debug)]
pub(in crate::memory::allocator) struct Amounts<const N: usize> {
    classes: [Peaked<N>; 2],
    all: Peaked<N>,
}

impl<const N: usize> Default for Amounts<N> {
    fn default() -> Self {
        Self { classes: [Peaked::default(); 2], all: Peaked::default() }
    }
}

impl<const N: usize> Amounts<N> {
    #[inline(always)]
    pub(super) fn leave(&mut self, class: PoolClass, amounts: [usize; N]) {
        self.change(class, signed(amounts));
    }

    /// Adds amounts of either sign.
    #[inline(always)]
    pub(super) fn change(&mut self, class: PoolClass, amounts: [i64; N]) {
        if self.classes[class as usize].add(amounts) | self.all.add(amounts) < 0 {
            self.raise(class);
        }
    }

    #[cold]
    #[inline(never)]
    fn raise(&mut self, class: PoolClass) {
        self.classes[class as usize].raise();
        self.all.raise();
    }

    #[inline(always)]
    pub(super) fn come_back(&mut self, class: PoolClass, amounts: [usize; N]) {
        let amounts = signed(amounts);
        self.classes[class as usize].subtract(amounts);
        self.all.subtract(amounts);
    }

    pub(super) fn reset_peaks(&mut self) {
        self.classes.iter_mut().chain([&mut self.all]).for_each(Peaked::reset_peaks);
    }

    pub(super) fn of(&self, class: PoolClass) -> &Peaked<N> {
        &self.classes[class as usize]
    }

    pub(crate) fn all(&self) -> &Peaked<N> {
        &self.all
    }
}

#[inline(always)]
fn signed<const N: usize>(amounts: [usize; N]) -> [i64; N] {
    amounts.map(|amount| amount.cast_signed() as i64)
}

/// An amount with so much room below its peak; negative room raises it.
fn below(peak: u64, room: i64) -> u64 {
    peak.checked_add_signed(-room).expect("no amount is negative")
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::numbers::Numbers;
    use crate::seed::seed;

    /// Goal: room below peaks counts as amounts and peaks would. Method: random steps, counted in
    /// both ways; peaks are reset now and then.
    #[test]
    fn peaks_are_those_of_each_class_and_of_both() {
        let mut numbers = Numbers::new(seed());
        let mut amounts = Amounts::<2>::default();
        let (mut current, mut peaks) = ([[0_u64; 2]; 3], [[0_u64; 2]; 3]);
        let mut out: Vec<(PoolClass, usize)> = Vec::new();
        for _ in 0..5_000 {
            let is_free = !out.is_empty() && numbers.below(2) == 0;
            let (class, bytes) = if is_free {
                out.swap_remove(numbers.below(out.len()))
            } else {
                let class = [PoolClass::Small, PoolClass::Large][numbers.below(2)];
                (class, numbers.below(1 << 20))
            };
            for of in [class as usize, 2] {
                for (index, amount) in [1, bytes as u64].into_iter().enumerate() {
                    let now = &mut current[of][index];
                    *now = if is_free { *now - amount } else { *now + amount };
                    peaks[of][index] = peaks[of][index].max(*now);
                }
            }
            if is_free {
                amounts.come_back(class, [1, bytes]);
            } else {
                amounts.leave(class, [1, bytes]);
                out.push((class, bytes));
            }
            if numbers.below(100) == 0 {
                amounts.reset_peaks();
                peaks = current;
            }
            let [small, large] = [PoolClass::Small, PoolClass::Large].map(|it| amounts.of(it));
            for (of, it) in [small, large, amounts.all()].into_iter().enumerate() {
                assert_eq!((it.current(), it.peaks()), (current[of], peaks[of]));
            }
        }
    }
}
