//! L4, support for all bindings: errors, arguments, waits without the GIL, awaits, stacks, drops.

pub(crate) mod awaiting;
pub(crate) mod call_sites;
pub(crate) mod capsule;
pub(crate) mod deferred_drops;
pub(crate) mod errors;
pub(crate) mod event_loop;
pub(crate) mod fastcall;
pub(crate) mod findings;
pub(crate) mod function_names;
pub(crate) mod host_thread;
pub(crate) mod identity_cache;
pub(crate) mod interpreter;
pub(crate) mod object_text;
pub(crate) mod parameters;
pub(crate) mod reaper;
pub(crate) mod stacks;
pub(crate) mod task_exception;
pub(crate) mod turns;
pub(crate) mod waiting;
