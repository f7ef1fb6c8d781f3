//! The limit of the memory that an allocator takes from its device.

/// The device's memory and the part of it that may be reserved.
///
/// Equations: `taken_bytes` without `asking_bytes` and `leaving_bytes` is what is reserved
/// (`Ledger`). A new request raises it above `allowed_bytes` only under policy `torch`, by what
/// pages have beyond the segment that was compared.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits {
    pub(super) total_bytes: usize,
    pub(super) fraction: f64,
    /// True when a text of settings named the fraction, and no later call has set it.
    is_of_settings: bool,
    pub(super) taken_bytes: usize,
    /// The requests that the device has not answered yet, and their bytes.
    asking_count: usize,
    asking_bytes: usize,
    /// The parts on their way to the device, and their bytes that count against the limit.
    leaving_count: usize,
    leaving_bytes: usize,
    /// The free bytes that the device named when it refused a segment, which a largest size of
    /// segments bounds; `None` once the device has given or taken memory since.
    pub(super) told_free_bytes: Option<usize>,
}

impl Limits {
    pub(super) fn new(total_bytes: usize) -> Self {
        Self { total_bytes, fraction: 1.0, ..Self::default() }
    }

    pub(super) fn set_fraction(&mut self, fraction: f64) {
        (self.fraction, self.is_of_settings) = (fraction, false);
    }

    /// Follows new settings; `is_named` when their text names a fraction. A text without one ends
    /// the fraction of an earlier text.
    pub(super) fn follow(&mut self, fraction: Option<f64>, is_named: bool) {
        match fraction {
            Some(fraction) if is_named => (self.fraction, self.is_of_settings) = (fraction, true),
            None if self.is_of_settings => (self.fraction, self.is_of_settings) = (1.0, false),
            _ => {}
        }
    }

    /// The limit; `None` when the fraction is 1, so that only the device limits.
    pub(super) fn allowed_bytes(&self) -> Option<usize> {
        (self.fraction < 1.0).then_some(part_of(self.total_bytes, self.fraction))
    }

    /// True when `bytes` more are within the limit but above `fraction` of the device's memory.
    pub(super) fn is_only_above(&self, bytes: usize, fraction: f64) -> bool {
        let sum = self.taken_bytes.saturating_add(bytes);
        !self.is_above(bytes) && sum > part_of(self.total_bytes, fraction)
    }

    /// True when `bytes` more would exceed the limit.
    pub(super) fn is_above(&self, bytes: usize) -> bool {
        let sum = self.taken_bytes.checked_add(bytes);
        let most = self.allowed_bytes().filter(|_| bytes > 0); // it may have been lowered since
        sum.is_none_or(|sum| most.is_some_and(|most| sum > most))
    }

    /// Counts bytes that the device is asked for, until its answer. False, without counting, when
    /// they would exceed the limit.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let is_allowed = !self.is_above(bytes);
        if is_allowed {
            self.take_anyway(bytes);
        }
        is_allowed
    }

    /// As `take`, for a request that was compared with the limit before.
    pub(super) fn take_anyway(&mut self, bytes: usize) {
        self.taken_bytes += bytes;
        self.asking_bytes += bytes;
        self.asking_count += 1;
        self.change_device(bytes);
    }

    /// Counts the device's answer: `given_bytes` of `asked_bytes` came.
    pub(super) fn note_answer(&mut self, asked_bytes: usize, given_bytes: usize) {
        self.asking_count -= 1;
        self.asking_bytes -= asked_bytes;
        self.taken_bytes -= asked_bytes - given_bytes;
        self.change_device(asked_bytes);
    }

    /// Counts a part on its way back, until the device has it.
    pub(super) fn leave(&mut self, bytes: usize) {
        self.leaving_bytes += bytes;
        self.leaving_count += 1;
    }

    pub(super) fn note_left(&mut self, bytes: usize) {
        self.leaving_count -= 1;
        self.leaving_bytes -= bytes;
        self.taken_bytes -= bytes;
        self.change_device(bytes);
    }

    /// Forgets what the device named as free, when its memory changes.
    fn change_device(&mut self, bytes: usize) {
        if bytes > 0 {
            self.told_free_bytes = None;
        }
    }

    /// The bytes that the device has given and that are not on their way back.
    pub(super) fn held_bytes(&self) -> usize {
        self.taken_bytes - self.asking_bytes - self.leaving_bytes
    }

    /// The bytes that one segment can get when the device reports `device_free_bytes`.
    pub(super) fn segment_free_bytes(&self, device_free_bytes: usize) -> usize {
        self.told_free_bytes.map_or(device_free_bytes, |told| told.min(device_free_bytes))
    }

    /// True when no memory is on its way from or to the device.
    pub(super) fn is_settled(&self) -> bool {
        self.asking_count == 0 && self.leaving_count == 0
    }
}

/// A fraction of a size.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a fraction from 0 to 1 of a size; a byte more or less does not matter"
)]
pub(super) fn part_of(bytes: usize, fraction: f64) -> usize {
    (fraction * bytes as f64) as usize
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::edges::edges;

    #[test]
    fn what_the_device_said_to_be_free_holds_until_it_gives_or_takes() {
        let mut limits = Limits::new(100);
        let ask = |limits: &mut Limits, bytes: usize, given_bytes: usize| {
            assert!(limits.take(bytes));
            limits.note_answer(bytes, given_bytes);
        };
        let refuse = |limits: &mut Limits| {
            ask(limits, 60, 0);
            limits.told_free_bytes = Some(20);
        };
        assert_eq!(limits.segment_free_bytes(90), 90);
        refuse(&mut limits);
        assert_eq!((limits.segment_free_bytes(90), limits.segment_free_bytes(10)), (20, 10));
        ask(&mut limits, 10, 10);
        assert_eq!(limits.segment_free_bytes(80), 80);
        refuse(&mut limits);
        limits.leave(10);
        limits.note_left(10);
        assert_eq!((limits.segment_free_bytes(90), limits.taken_bytes), (90, 0));
    }

    #[test]
    fn pages_that_move_and_addresses_that_go_back_leave_what_the_device_said() {
        let mut limits = Limits::new(100);
        limits.told_free_bytes = Some(20);
        assert!(limits.take(0));
        limits.note_answer(0, 0);
        limits.leave(0);
        limits.note_left(0);
        assert_eq!(limits.segment_free_bytes(90), 20);
    }

    #[test]
    fn limits_agree_with_wider_numbers_at_their_edges() {
        // Goal: the last byte below a limit is given, one more is refused, and nothing overflows.
        // Method: all pairs of numbers at the edges of the limit, the device and the type.
        let total_bytes = 1000;
        for (fraction, most) in [(0.0, 0), (0.5, 500), (0.999, 999), (1.0, u128::MAX)] {
            let parts = [250, 500, 999, total_bytes];
            for taken_bytes in edges(&parts).into_iter().filter(|it| *it <= total_bytes) {
                for bytes in edges(&parts.map(|part| part.saturating_sub(taken_bytes))) {
                    let mut limits = Limits { taken_bytes, ..Limits::new(total_bytes) };
                    limits.set_fraction(fraction);
                    let sum = taken_bytes as u128 + bytes as u128;
                    let is_above = bytes > 0 && sum > most.min(usize::MAX as u128);
                    let at = format!("{bytes} to {taken_bytes} of {total_bytes} * {fraction}");
                    assert_eq!(limits.is_above(bytes), is_above, "{at}");
                    let is_only_above = !is_above && sum > 250;
                    assert_eq!(limits.is_only_above(bytes, 0.25), is_only_above, "{at}");
                    assert_eq!(limits.take(bytes), !is_above, "{at}");
                    let after = if is_above { taken_bytes } else { taken_bytes + bytes };
                    assert_eq!(limits.taken_bytes, after, "{at}");
                    assert_eq!(limits.held_bytes(), taken_bytes, "{at}: nothing was given yet");
                    assert_eq!(limits.is_settled(), is_above, "{at}");
                }
            }
        }
    }
}
