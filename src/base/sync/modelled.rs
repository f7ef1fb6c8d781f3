//! loom's atomics, with what the language promises of `SeqCst` beyond acquire and release.
//!
//! loom takes an access that asks for `SeqCst` as `AcqRel`; only its fences order what is stored
//! before what is loaded behind it. So such an access comes with a fence here: a run puts them all
//! behind stores and exchanges, or all before loads and exchanges ([`Fences`]). Either is enough
//! for a Dekker pair, as `SeqCst` on all four accesses is in the language. Where the text of a
//! store asks for less the first run has no fence in the place, where that of a load does the
//! second.
//!
//! A fence of loom's synchronizes with every other one, which is more than the language says, and
//! may hide that a release is missing. What needs no pair is therefore run without any.

use std::cell::Cell;
use std::fmt;

use loom::sync::atomic;

use crate::base::sync::Ordering;
#[cfg(test)]
use crate::base::sync::models::asked;

/// Where an access that asks for `SeqCst` has its fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fences {
    /// It has none: it is `AcqRel`, and no more.
    Nowhere,
    BehindStores,
    BeforeLoads,
}

thread_local! {
    /// loom runs all threads of a model on the thread that explores it.
    pub(super) static FENCES: Cell<Fences> = const { Cell::new(Fences::Nowhere) };
}

fn fence_before(ordering: Ordering) {
    fence_in(Fences::BeforeLoads, ordering);
}

fn fence_behind(ordering: Ordering) {
    fence_in(Fences::BehindStores, ordering);
}

fn fence_in(run: Fences, ordering: Ordering) {
    // SeqCst: the partners are all the other accesses that ask for it.
    if FENCES.get() == run && ordering == Ordering::SeqCst {
        atomic::fence(Ordering::SeqCst);
    }
}

/// What loom is asked for: it gives `SeqCst` accesses a little more than `AcqRel`, at random.
fn of_one_place(ordering: Ordering) -> Ordering {
    if ordering == Ordering::SeqCst { Ordering::AcqRel } else { ordering }
}

/// What the text asks for: in tests one access may be given less.
#[cfg(not(test))]
fn asked<const N: usize>(orderings: [Ordering; N]) -> [Ordering; N] {
    orderings
}

/// As `sync::fence`.
#[track_caller]
pub(super) fn fence(ordering: Ordering) {
    let [ordering] = asked([ordering]);
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
                let [ordering] = asked([ordering]);
                fence_before(ordering);
                self.0.load(of_one_place(ordering))
            }

            #[track_caller]
            pub(crate) fn store(&self, value: $value, ordering: Ordering) {
                let [ordering] = asked([ordering]);
                self.0.store(value, of_one_place(ordering));
                fence_behind(ordering);
            }

            $(
                #[track_caller]
                pub(crate) fn $operation(&self, value: $value, ordering: Ordering) -> $value {
                    let [ordering] = asked([ordering]);
                    fence_before(ordering);
                    let old = self.0.$operation(value, of_one_place(ordering));
                    fence_behind(ordering);
                    old
                }
            )*

            /// One that fails is a load that asks for `failure`. It is not known before, so the
            /// fence stands there for either.
            #[track_caller]
            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let [success, failure] = asked([success, failure]);
                fence_before(success);
                if success != failure {
                    fence_before(failure);
                }
                let orderings = [success, failure].map(of_one_place);
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
                let mut seen = self.0.load(of_one_place(failure));
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
