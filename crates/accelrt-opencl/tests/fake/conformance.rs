//! The xpu kind as a subject, on a fake OpenCL: its device memory cannot be read, and it counts.

use accelrt::Config;
use accelrt::size::MIB;
use accelrt_opencl::XpuBackend;
use accelrt_testing::conformance::Subject;

use crate::fake::Fake;

/// A fake of its own with these settings, of 256 MiB on each device.
pub(crate) fn fake(settings: &str) -> Subject {
    let fake = Fake::new(settings);
    let config = Config::builder().opencl_library(fake.path()).xpu_memory_bytes(256 * MIB).build();
    let config = config.unwrap();
    Subject::new(XpuBackend::new(&config)).with_end_check(move || {
        // The context goes with the backend, which is still here.
        fake.assert_none_of(&["allocations", "events", "queues", "ghosts"]);
        assert!(fake.live("contexts") <= 1);
    })
}

accelrt_testing::conformance!(fake_xpu, fake("devices=3,priorities=1"));
accelrt_testing::conformance!(
    busy_fake_xpu,
    fake("command_us=50,inline_callbacks=1,most_align=128,shared=0")
);
