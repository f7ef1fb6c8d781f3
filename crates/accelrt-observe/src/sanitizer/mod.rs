//! The sanitizer: finds uses of the same bytes that nothing orders.
//!
//! A [`Watch`] looks at what a runtime's program has ordered, not at what happened to run
//! first. It is told of copies, fills, launches with their buffers, and addresses among a
//! call's arguments; a closure's memory it cannot know.
//!
//! ```
//! use accelrt_observe::sanitizer::{FindingKind, Watch};
//! use accelrt::{Config, Device, FfiCall, Runtime};
//!
//! extern "C" fn update(_values: *mut u8) { /* what writes them */ }
//! let runtime = Runtime::new(Config::default())?;
//! let [one, other] = [runtime.stream(Device::cpu(0))?, runtime.stream(Device::cpu(0))?];
//! let watch = Watch::start(&runtime);
//! let buffer = runtime.zeros_on(4096, &one)?;
//! let call = FfiCall::new(update as *const _, &[buffer.address()?.into()])?;
//! // SAFETY: the type is that of `update`, and the buffer outlives the task.
//! unsafe { other.launch(call)? }; // which does not wait for `one`
//! other.synchronize()?;
//! let finding = &watch.findings()[0];
//! assert_eq!(finding.kind(), FindingKind::Race);
//! assert_eq!(finding.first().unwrap().stream(), Some((one.device(), one.id())));
//! assert_eq!(finding.second().access(), "read or write");
//! assert!(finding.fix().contains("wait_stream()"));
//! println!("{finding}");
//! # Ok::<(), accelrt::Error>(())
//! ```

#[cfg(test)]
mod argument_tests;
#[cfg(test)]
mod case_tests;
mod clock;
mod detector;
pub(crate) mod finding;
pub(crate) mod report;
mod shadow;
mod streams;
#[cfg(test)]
mod tests;
mod timeline;
#[doc(hidden)]
pub mod watch;
mod written;

pub use finding::FindingKind;
pub use report::{Finding, Use, Watch, ordered};

/// Keeps other tests from turning the detector of the process on or off.
#[cfg(test)]
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
