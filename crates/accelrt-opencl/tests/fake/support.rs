//! What the tests share: runtimes over a fake, and a watch over tests that may hang.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use accelrt::{
    Buffer, Config, Device, DeviceKind, DriverError, Error, FailureCause, Runtime, StreamError,
};

use crate::fake::Fake;
use crate::watchdog::finishes_within;

/// Far beyond what any test takes: only a hang lasts as long.
const HANG: Duration = Duration::from_secs(60);

/// A device by its index.
pub(crate) fn xpu(index: usize) -> Device {
    Device::new(DeviceKind::XPU, index).expect("an index below 128")
}

/// Settings with which xpu devices are the fake's.
pub(crate) fn config(fake: &Fake) -> Config {
    config_with(fake.path())
}

/// Settings with which this library provides the xpu devices.
pub(crate) fn config_with(library: String) -> Config {
    accelrt_opencl::register().expect("no other crate has a backend of kind xpu");
    Config::builder().accelerator(DeviceKind::XPU).opencl_library(library).build().unwrap()
}

/// A runtime over the fake.
pub(crate) fn runtime(fake: &Fake) -> Runtime {
    Runtime::new(config(fake)).expect("the settings are right")
}

/// Asserts that nothing is left of what a program can hold.
#[track_caller]
pub(crate) fn assert_nothing_left(fake: &Fake) {
    fake.assert_none_of(&["allocations", "kernels", "programs", "events", "queues", "contexts"]);
    fake.assert_none_of(&["ghosts"]);
}

/// Runs a test over a fake with these settings, and then asks the fake for what is left. A hang is
/// a failure.
#[track_caller]
pub(crate) fn over(settings: &'static str, test: impl FnOnce(&Fake, Runtime) + Send + 'static) {
    finishes(move || {
        let fake = Fake::new(settings);
        let runtime = runtime(&fake);
        let outcome = catch_unwind(AssertUnwindSafe(|| test(&fake, runtime.clone())));
        // The end of a runtime waits for its devices, also when the test failed.
        fake.set("hold=0,hold_callbacks=0,heal=1,go=clFlush,go=clFinish");
        drop(runtime);
        match outcome {
            Ok(()) => assert_nothing_left(&fake),
            Err(panic) => resume_unwind(panic),
        }
    });
}

/// Runs a test that would hang if it failed; a hang is a failure then.
#[track_caller]
pub(crate) fn finishes(test: impl FnOnce() + Send + 'static) {
    finishes_within(HANG, test);
}

/// The bytes of a buffer, copied by its device.
#[track_caller]
pub(crate) fn bytes_of(buffer: &Buffer) -> Vec<u8> {
    let mut bytes = vec![0; buffer.nbytes()];
    buffer.copy_to_slice(&mut bytes, &buffer.stream()).unwrap();
    bytes
}

/// True when an error is the loss of a device, also one that a stream failed with.
pub(crate) fn is_loss(error: &Error) -> bool {
    match error {
        Error::Driver(DriverError::DeviceLost { .. }) => true,
        Error::Stream(StreamError::Failed(error)) => is_loss_cause(error.root().failure()),
        Error::Stream(StreamError::SeveralFailed { errors, .. }) => {
            errors.iter().all(|error| is_loss_cause(error.root().failure()))
        }
        _ => false,
    }
}

fn is_loss_cause(cause: &FailureCause) -> bool {
    matches!(cause, FailureCause::Backend(error) if is_loss(error))
}
