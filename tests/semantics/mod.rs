//! The semantics: what streams, events, host waits, callables and memory mean, as a graph.
//!
//! Goal: one statement of what is ordered before what, which imports nothing of the engine. The
//! order tests compare runs with it; what looks for races is compared with what it finds.
//!
//! * `order`: nodes, and the transitive closure of what is before each
//! * `machine`: how each action extends the graph, and which pairs of accesses it leaves unordered
//! * `program`: random programs, whose truth the machine says without running them
//! * `failures`: which call raises which error, and what ends it; only the order tests include it
//!
//! A program has one host thread. Callables act too: on streams and allocations that are lent to
//! them until the host has waited for them. So the order that a program promises does not depend on
//! the time at which a callable runs.

pub(crate) mod machine;
mod order;
pub(crate) mod program;
