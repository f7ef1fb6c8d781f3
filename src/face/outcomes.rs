//! Values that a task may return, and that are dropped.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::engine::event::Event;
use crate::engine::stream::{Stream, TaskOutcome};
use crate::face::typed::TypedBuffer;
use crate::memory::buffer::{Buffer, HostTransfer, Transfer};

/// The type of an expression that never has a value, which the language has no stable name for: the
/// result of a function that does not return.
type Never = <fn() -> ! as Returned>::Value;

trait Returned {
    type Value;
}

impl<T> Returned for fn() -> T {
    type Value = T;
}

/// Implements [`TaskOutcome`] for values that are dropped.
macro_rules! dropped {
    ($($value:ty)*) => { $(impl TaskOutcome for $value {})* };
}

dropped! { Never Infallible bool char String Duration Instant std::cmp::Ordering }
dropped! { u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 }
dropped! { Event Stream Buffer Transfer }

/// The same for containers of anything.
macro_rules! dropped_containers {
    ($([$($parameter:ident)*] $container:ty),* $(,)?) => {
        $(impl<$($parameter),*> TaskOutcome for $container {})*
    };
}

dropped_containers! {
    [T] Option<T>, [T] Vec<T>, [T] VecDeque<T>, [T] BTreeSet<T>, [T S] HashSet<T, S>,
    [K V] BTreeMap<K, V>, [K V S] HashMap<K, V, S>, [T] JoinHandle<T>,
    [T] HostTransfer<T>, [T] TypedBuffer<T>,
    [A] (A,), [A B] (A, B), [A B C] (A, B, C), [A B C D] (A, B, C, D),
}

impl<T: ?Sized> TaskOutcome for Box<T> {}
impl<T: ?Sized> TaskOutcome for Arc<T> {}
impl<T: ?Sized> TaskOutcome for Rc<T> {}
impl<T: ?Sized> TaskOutcome for &T {}
impl<T, const N: usize> TaskOutcome for [T; N] {}
