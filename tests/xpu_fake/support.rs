//! What the tests share: runtimes over a fake, and a watch over tests that may hang.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use accelrt::{Config, Device, DeviceKind, Error, FailureCause, Runtime, StreamError};

use crate::fake::Fake;

/// Far beyond what any test takes: only a hang lasts as long.
const HANG: Duration = Duration::from_secs(60);

/// The first device.
pub(crate) fn xpu(index: usize) -> Device {
    Device::new(DeviceKind::Xpu, index).expect("an index below 128")
}

/// Settings with which xpu devices are the fake's.
pub(crate) fn config(fake: &Fake) -> Config {
    Config {
        accelerator: Some(DeviceKind::Xpu),
        opencl_library: Some(fake.path()),
        ..Config::default()
    }
}

/// A runtime over the fake.
pub(crate) fn runtime(fake: &Fake) -> Runtime {
    Runtime::new(config(fake)).expect("the settings are right")
}

/// Runs a test over a fake with these settings, and then asks the fake for what is left. A hang is
/// a failure.
#[track_caller]
pub(crate) fn over(settings: &'static str, test: impl FnOnce(&Fake, Runtime) + Send + 'static) {
    finishes(move || {
        let fake = Fake::new(settings);
        test(&fake, runtime(&fake));
        fake.set("hold=0,hold_callbacks=0,heal=1");
        fake.assert_nothing_left();
    });
}

/// Runs a test that would hang if it failed; a hang is a failure then.
#[track_caller]
pub(crate) fn finishes(test: impl FnOnce() + Send + 'static) {
    let (done, over) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let _done = done;
        test();
    });
    match over.recv_timeout(HANG) {
        Err(RecvTimeoutError::Timeout) => panic!("the test hangs"),
        _ => {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// The stream error that a call must have ended with.
#[track_caller]
pub(crate) fn stream_error<T>(result: Result<T, Error>) -> std::sync::Arc<StreamError> {
    match result {
        Err(Error::Stream(error)) => error,
        Err(other) => panic!("not an error of a stream: {other}"),
        Ok(_) => panic!("nothing failed"),
    }
}

/// True when an error is the loss of a device, also one that a stream failed with.
pub(crate) fn is_loss(error: &Error) -> bool {
    match error {
        Error::DeviceLost { .. } => true,
        Error::Stream(error) => is_loss_cause(error.root().failure()),
        Error::Streams { errors } => {
            errors.iter().all(|error| is_loss_cause(error.root().failure()))
        }
        _ => false,
    }
}

fn is_loss_cause(cause: &FailureCause) -> bool {
    matches!(cause, FailureCause::Backend(error) if is_loss(error))
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|place| u8::try_from(place * 7 % 251).expect("below 251")).collect()
}
