//! The lengths of waits for a device, in profiles.

use accelrt::Stream;

use crate::support::{over, xpu};
use crate::timed_waits::{Release, SHORTAGE, SORTS, assert_lengths};

#[test]
fn waits_for_a_device_have_their_lengths() {
    over("memory=64M", |fake, runtime| {
        let hold = |_: &Stream| -> Release<'_> {
            fake.set("hold=1");
            Box::new(|| fake.set("hold=0"))
        };
        let sorts: Vec<_> = SORTS.into_iter().chain([SHORTAGE]).collect();
        assert_lengths(&runtime, xpu(0), &sorts, &hold);
    });
}
