//! loom's atomics, with the guarantees of `SeqCst` beyond acquire and release.
//!
//! loom treats a `SeqCst` access as `AcqRel`. Only loom's fences order a store before a later load,
//! so each `SeqCst` access gets a fence here. One run puts all fences behind stores and exchanges,
//! another run puts all fences before loads and exchanges ([`Fences`]). Either position is enough
//! for a Dekker pair, as `SeqCst` on all four accesses is in the language. A weaker store lacks its
//! fence in the first run, a weaker load in the second run.
//!
//! Each fence of loom synchronizes with every other fence. The language guarantees less, so a fence
//! may hide a missing release. Models without a Dekker pair therefore run without fences.

use std::cell::Cell;
use std::fmt;

use loom::sync::atomic;

use crate::base::sync::Ordering;
#[cfg(test)]
use crate::base::sync::models::possibly_weakened;

/// The position of the fences that one run of a model adds to `SeqCst` accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fences {
    /// No fence: the access is only `AcqRel`.
    Nowhere,
    BehindStores,
    BeforeLoads,
}

thread_local! {
    /// The current run's fences, for all threads of a model: loom runs them on one system thread.
    pub(super) static FENCES: Cell<Fences> = const { Cell::new(Fences::Nowhere) };
}

fn fence_before(ordering: Ordering) {
    fence_in(Fences::BeforeLoads, ordering);
}

fn fence_behind(ordering: Ordering) {
    fence_in(Fences::BehindStores, ordering);
}

fn fence_in(run: Fences, ordering: Ordering) {
    // SeqCst: the partners are all other `SeqCst` accesses.
    if FENCES.get() == run && ordering == Ordering::SeqCst {
        atomic::fence(Ordering::SeqCst);
    }
}

/// The ordering passed to loom: `AcqRel` for `SeqCst`, because loom gives `SeqCst` accesses a
/// little more than `AcqRel`, at random.
fn without_seq_cst(ordering: Ordering) -> Ordering {
    if ordering == Ordering::SeqCst { Ordering::AcqRel } else { ordering }
}

/// Returns the orderings unchanged. The function of this name for tests may weaken one of them.
#[cfg(not(test))]
fn possibly_weakened<const N: usize>(orderings: [Ordering; N]) -> [Ordering; N] {
    orderings
}

#[track_caller]
pub(super) fn fence(ordering: Ordering) {
    let [ordering] = possibly_weakened([ordering]);
    atomic::fence(ordering);
}

macro_rules! modelled {
    ($name:ident $(<$target:ident>)?, $value:ty, $($operation:ident)*) => {
        pub(crate) struct $name $(<$target>)? (atomic::$name $(<$target>)?);

        #[allow(dead_code, reason = "the same for all types")]
        impl $(<$target>)? $name $(<$target>)? {
            #[track_caller]
            pub(crate) fn new(value: $value) -> Self {
                Self(atomic::$name::new(value))
            }

            #[track_caller]
            pub(crate) fn load(&self, ordering: Ordering) -> $value {
                let [ordering] = possibly_weakened([ordering]);
                fence_before(ordering);
                self.0.load(without_seq_cst(ordering))
            }

            #[track_caller]
            pub(crate) fn store(&self, value: $value, ordering: Ordering) {
                let [ordering] = possibly_weakened([ordering]);
                self.0.store(value, without_seq_cst(ordering));
                fence_behind(ordering);
            }

            $(
                #[track_caller]
                pub(crate) fn $operation(&self, value: $value, ordering: Ordering) -> $value {
                    let [ordering] = possibly_weakened([ordering]);
                    fence_before(ordering);
                    let old = self.0.$operation(value, without_seq_cst(ordering));
                    fence_behind(ordering);
                    old
                }
            )*

            /// A failing exchange is a load with the ordering `failure`. The outcome is unknown
            /// before the exchange, so a fence for each of the orderings precedes it.
            #[track_caller]
            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let [success, failure] = possibly_weakened([success, failure]);
                fence_before(success);
                if success != failure {
                    fence_before(failure);
                }
                let orderings = [success, failure].map(without_seq_cst);
                let outcome = self.0.compare_exchange(current, new, orderings[0], orderings[1]);
                fence_behind(if outcome.is_ok() { success } else { failure });
                outcome
            }

            #[track_caller]
            pub(crate) fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }

            #[track_caller]
            pub(crate) fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                mut change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut seen = self.0.load(without_seq_cst(failure));
                while let Some(new) = change(seen) {
                    match self.compare_exchange_weak(seen, new, success, failure) {
                        Ok(old) => return Ok(old),
                        Err(now) => seen = now,
                    }
                }
                Err(seen)
            }
        }

        impl $(<$target>)? fmt::Debug for $name $(<$target>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

modelled!(AtomicBool, bool, swap fetch_and fetch_or);
modelled!(AtomicPtr<T>, *mut T, swap);
modelled!(AtomicU64, u64, swap fetch_add fetch_sub fetch_and fetch_or fetch_max);
modelled!(AtomicUsize, usize, swap fetch_add fetch_sub fetch_and fetch_or fetch_max);
