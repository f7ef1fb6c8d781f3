//! Calls that libraries tell of themselves, for the profiles that are on.
//!
//! A library that prints a line about each of its calls does so on the thread of the call, which
//! the line does not name. So the calls of a library stand on tracks of their own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use accelrt::internal::{Clock, LockRank, Mutex, fork, now};

/// A call as its library tells of it.
#[derive(Debug, PartialEq)]
pub struct ToldCall {
    /// The library's name, which its tracks have.
    pub library: &'static str,
    /// The key of its row, as `mkl::DGEMM`.
    pub key: String,
    pub duration_ns: i64,
    /// The time from its end until it was told.
    pub age_ns: i64,
    /// What else the library says, by name.
    pub fields: Vec<(String, String)>,
}

/// A call of a profile, in nanoseconds since the profile began.
#[derive(Clone, Debug)]
pub(super) struct LibraryCall {
    pub(super) told: Arc<ToldCall>,
    pub(super) start: i64,
    pub(super) end: i64,
}

/// What hears of calls some time after they were made.
pub trait CallSource: Send + Sync {
    /// Tells the profiles that are on of all calls made until now. May block while the standard
    /// output accepts no bytes.
    fn tell_calls(&self);
}

struct Registry {
    subscribers: Vec<Subscriber>,
    sources: Vec<Weak<dyn CallSource>>,
    last_subscriber: u64,
}

struct Subscriber {
    number: u64,
    limit: usize,
    /// The calls, with the readings of the clock at which they were told.
    calls: Vec<(u64, Arc<ToldCall>)>,
    /// The number of calls that found no room.
    dropped: u64,
}

/// Not taken in a forked child, where a thread that the child lacks may hold it.
static REGISTRY: Mutex<Registry> = Mutex::new(
    LockRank::Log,
    Registry { subscribers: Vec::new(), sources: Vec::new(), last_subscriber: 0 },
);

/// The number of subscribers. A hint for sources.
static NUM_SUBSCRIBERS: AtomicUsize = AtomicUsize::new(0);

/// True while a profile wants to hear of calls.
pub fn are_wanted() -> bool {
    // Relaxed, here and below: sources are asked after the number was changed, and calls that race
    // with the begin or the end of a profile may be missing.
    NUM_SUBSCRIBERS.load(Ordering::Relaxed) != 0
}

/// Adds a source, which is asked at the begin and at the end of profiles as long as it lives.
pub fn add_source(source: Weak<dyn CallSource>) {
    if !fork::is_child() {
        let mut registry = REGISTRY.lock();
        registry.sources.retain(|one| one.strong_count() > 0);
        registry.sources.push(source);
    }
}

/// Tells every profile that is on of these calls.
pub fn tell(calls: Vec<ToldCall>) {
    if fork::is_child() || calls.is_empty() {
        return;
    }
    let at = now();
    let calls: Vec<_> = calls.into_iter().map(Arc::new).collect();
    for subscriber in &mut REGISTRY.lock().subscribers {
        let room = subscriber.limit.saturating_sub(subscriber.calls.len()).min(calls.len());
        subscriber.calls.extend(calls[..room].iter().map(|call| (at, Arc::clone(call))));
        subscriber.dropped += (calls.len() - room) as u64;
    }
}

fn ask_sources() {
    let sources = REGISTRY.lock().sources.clone();
    for source in sources.iter().filter_map(Weak::upgrade) {
        source.tell_calls(); // without the lock: it tells, and may block
    }
}

/// The calls from its begin to its end, for one profile.
pub(super) struct CallSubscription {
    number: u64,
}

impl CallSubscription {
    /// Begins. What was called before is not told. `limit` is the most calls that are kept.
    pub(super) fn begin(limit: usize) -> Self {
        fork::watch();
        if fork::is_child() {
            return Self { number: 0 };
        }
        ask_sources(); // what was called before is for the profiles before
        let mut registry = REGISTRY.lock();
        registry.last_subscriber += 1;
        let number = registry.last_subscriber;
        registry.subscribers.push(Subscriber { number, limit, calls: Vec::new(), dropped: 0 });
        NUM_SUBSCRIBERS.store(registry.subscribers.len(), Ordering::Relaxed);
        Self { number }
    }

    /// The calls until now, with times since the reading `origin` of the clock, and the number of
    /// those that found no room.
    pub(super) fn take(&self, origin: u64) -> (Vec<LibraryCall>, u64) {
        if fork::is_child() {
            return (Vec::new(), 0);
        }
        ask_sources(); // the last lines are still on their way
        let (calls, dropped) = {
            let mut registry = REGISTRY.lock();
            let own = registry.subscribers.iter_mut().find(|it| it.number == self.number);
            let own = own.expect("a subscription stands there until the drop");
            (std::mem::take(&mut own.calls), std::mem::take(&mut own.dropped))
        };
        let to_ns = Clock::get().converter(origin);
        let place = |(at, told): (u64, Arc<ToldCall>)| {
            let end = to_ns(at) - told.age_ns;
            LibraryCall { start: end - told.duration_ns, end, told }
        };
        (calls.into_iter().map(place).collect(), dropped)
    }
}

impl Drop for CallSubscription {
    fn drop(&mut self) {
        if fork::is_child() {
            return;
        }
        let own = {
            let mut registry = REGISTRY.lock();
            let place = registry.subscribers.iter().position(|it| it.number == self.number);
            let own = place.map(|place| registry.subscribers.swap_remove(place));
            NUM_SUBSCRIBERS.store(registry.subscribers.len(), Ordering::Relaxed);
            own
        };
        drop(own);
    }
}

/// Puts calls that overlap on tracks beside each other: the number of each call's track among those
/// of its library. Sorts the calls by their beginnings.
pub(super) fn lanes(calls: &mut [LibraryCall]) -> Vec<usize> {
    calls.sort_by_key(|call| (call.start, -call.end));
    let mut ends: Vec<(&str, Vec<i64>)> = Vec::new();
    let mut lane_of = |call: &LibraryCall| {
        let library = call.told.library;
        let known = ends.iter().position(|(name, _)| *name == library);
        let place = known.unwrap_or_else(|| {
            ends.push((library, Vec::new()));
            ends.len() - 1
        });
        let of_library = &mut ends[place].1;
        let free = of_library.iter().position(|end| *end <= call.start);
        let lane = free.unwrap_or_else(|| {
            of_library.push(0);
            of_library.len() - 1
        });
        of_library[lane] = call.end;
        lane
    };
    calls.iter().map(&mut lane_of).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::PoisonError;

    use proptest::prelude::*;

    use super::*;

    /// Held by tests that tell calls, because every subscription of the process has them.
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    fn call(key: &str) -> ToldCall {
        let (key, fields) = (key.to_owned(), Vec::new());
        ToldCall { library: "late", key, duration_ns: 7, age_ns: 3, fields }
    }

    /// A source that tells of its calls when it is asked, and not before.
    struct Late(Mutex<Vec<ToldCall>>);

    impl Late {
        fn call(&self, key: &str) {
            self.0.lock().push(call(key));
        }
    }

    impl CallSource for Late {
        fn tell_calls(&self) {
            let calls = std::mem::take(&mut *self.0.lock());
            tell(calls);
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Tell { num_calls: usize },
        Begin { index: usize, limit: usize },
        Take(usize),
        End(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let index = 0..3_usize;
        let limit = prop_oneof![0..8_usize, Just(usize::MAX)];
        let step = prop_oneof![
            4 => (0..4_usize).prop_map(|num_calls| Step::Tell { num_calls }),
            2 => (index.clone(), limit).prop_map(|(index, limit)| Step::Begin { index, limit }),
            3 => index.clone().prop_map(Step::Take),
            1 => index.prop_map(Step::End),
        ];
        proptest::collection::vec(step, 1..60)
    }

    /// A subscription, and the calls that its next `take` returns.
    struct Subscribed {
        subscription: CallSubscription,
        limit: usize,
        kept: Vec<String>,
        num_dropped: u64,
    }

    impl Subscribed {
        fn take(&mut self) -> Result<(), TestCaseError> {
            let (calls, num_dropped) = self.subscription.take(now());
            let keys: Vec<_> = calls.iter().map(|call| call.told.key.clone()).collect();
            prop_assert_eq!(keys, std::mem::take(&mut self.kept));
            prop_assert_eq!(num_dropped, std::mem::take(&mut self.num_dropped));
            for LibraryCall { told, start, end } in calls {
                prop_assert_eq!(end - start, told.duration_ns);
                prop_assert!(end <= -told.age_ns, "it was told before the profile ended");
            }
            Ok(())
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// Each subscription has the calls that were told while it was on, up to its limit.
        #[test]
        fn subscriptions_have_the_calls_that_were_told_meanwhile(steps in steps()) {
            let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
            let mut subscribed = [None, None, None];
            let mut num_calls_before = 0;
            for step in steps {
                match step {
                    Step::Tell { num_calls } => {
                        let numbers = num_calls_before..num_calls_before + num_calls;
                        num_calls_before += num_calls;
                        let keys: Vec<_> = numbers.map(|number| number.to_string()).collect();
                        tell(keys.iter().map(|key| call(key)).collect());
                        for one in subscribed.iter_mut().flatten() {
                            let Subscribed { limit, kept, num_dropped, .. } = one;
                            kept.extend(keys.iter().cloned());
                            *num_dropped += kept.len().saturating_sub(*limit) as u64;
                            kept.truncate(*limit);
                        }
                    }
                    Step::Begin { index, limit } => {
                        let subscription = CallSubscription::begin(limit);
                        let (kept, num_dropped) = (Vec::new(), 0);
                        subscribed[index] =
                            Some(Subscribed { subscription, limit, kept, num_dropped });
                    }
                    Step::Take(index) => {
                        if let Some(one) = &mut subscribed[index] {
                            one.take()?;
                        }
                    }
                    Step::End(index) => subscribed[index] = None,
                }
                prop_assert!(are_wanted() || subscribed.iter().all(Option::is_none));
            }
            for one in subscribed.iter_mut().flatten() {
                one.take()?;
            }
        }

        /// Calls of one library on one track do not overlap, and each call is on the lowest free
        /// track.
        #[test]
        fn calls_on_one_track_do_not_overlap(
            times in proptest::collection::vec((0..12_i64, 0..5_i64, any::<bool>()), 0..12),
        ) {
            let call = |(start, duration_ns, is_other): (i64, i64, bool)| {
                let library = if is_other { "other" } else { "late" };
                let told = Arc::new(ToldCall { library, duration_ns, ..call("") });
                LibraryCall { told, start, end: start + duration_ns }
            };
            let mut calls: Vec<_> = times.into_iter().map(call).collect();
            let lanes = lanes(&mut calls);
            let placed: Vec<_> = calls.iter().zip(lanes).collect();
            for (index, (call, lane)) in placed.iter().enumerate() {
                let is_busy = |track: usize| {
                    placed[..index].iter().any(|(earlier, of_earlier)| {
                        earlier.told.library == call.told.library
                            && *of_earlier == track
                            && earlier.end > call.start
                    })
                };
                prop_assert!(!is_busy(*lane));
                prop_assert!((0..*lane).all(is_busy));
            }
        }
    }

    #[test]
    fn sources_are_asked_at_the_begin_and_at_the_end_of_a_profile() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let source = Arc::new(Late(Mutex::new(LockRank::Libraries, Vec::new())));
        let weak = Arc::downgrade(&source);
        add_source(weak);
        source.call("before");
        let subscription = CallSubscription::begin(2);
        for key in ["first", "second", "no room"] {
            source.call(key);
        }
        let (calls, dropped) = subscription.take(now());
        let keys: Vec<_> = calls.iter().map(|call| &*call.told.key).collect();
        assert_eq!((&*keys, dropped), (["first", "second"].as_slice(), 1));
        assert!(calls.iter().all(|call| call.end - call.start == 7));
        assert!(are_wanted());
    }
}
