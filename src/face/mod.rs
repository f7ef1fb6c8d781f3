//! The Rust face beside the core: what programs like to have, and the core does not need.
//!
//! * [`plain`], [`typed`]: plain data, and buffers of it
//! * [`views`]: which views a task has, and whether it writes them
//! * [`enqueue_with`]: tasks over views
//! * [`home`]: buffers with a home stream that the caller names
//! * [`scope`]: tasks that borrow from the caller
//! * [`cancel`]: retires what a stream has not begun
//! * [`outcomes`]: what closures of tasks may return
//! * [`error_kind`]: what a program does about an error
//! * [`optional_guards`]: guards that may start empty
//! * [`device_index`], [`mod@cpu_capability`]: torch's names

mod cancel;
mod cpu_capability;
mod device_index;
mod enqueue_with;
mod error_kind;
mod home;
mod optional_guards;
mod outcomes;
mod plain;
mod scope;
mod typed;
mod views;

pub use cpu_capability::cpu_capability;
pub use error_kind::ErrorKind;
pub use optional_guards::{OptionalDeviceGuard, OptionalStreamGuard};
pub use plain::Plain;
pub use scope::Scope;
pub use typed::TypedBuffer;
pub use views::{Reads, Uses, Writes};
