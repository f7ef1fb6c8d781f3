//! Runs models, optionally with one access weakened: see `make weaken`.

use std::panic::Location;
use std::sync::{Arc, Once, OnceLock};

use crate::base::sync::Ordering;
use crate::base::sync::modelled::{FENCES, Fences};

/// No bound on forced thread switches: loom explores every interleaving of a model.
pub(crate) const EVERY: Option<usize> = None;

/// Explores `test` with up to `switches` forced thread switches, in two runs: with the fences of
/// `SeqCst` behind stores, and with them before loads.
pub(crate) fn model(switches: Option<usize>, test: impl Fn() + Send + Sync + 'static) {
    explore(&[Fences::BehindStores, Fences::BeforeLoads], switches, test);
}

/// As [`model`], but in one run without fences, for protocols that need no order across several
/// atomics. loom then explores more behaviours than in either run of [`model`].
pub(crate) fn model_without_fences(
    switches: Option<usize>,
    test: impl Fn() + Send + Sync + 'static,
) {
    explore(&[Fences::Nowhere], switches, test);
}

fn explore(runs: &[Fences], switches: Option<usize>, test: impl Fn() + Send + Sync + 'static) {
    let test = Arc::new(test);
    for fences in runs {
        FENCES.set(*fences);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = switches;
        let test = Arc::clone(&test);
        builder.check(move || test());
    }
    FENCES.set(Fences::Nowhere);
}

/// The location of one ordering in the source, and the weaker ordering that replaces it.
struct Weakening {
    file: String,
    line: u32,
    column: u32,
    /// The index among the orderings of an access: 1 is `failure` of an exchange.
    place: usize,
    ordering: Ordering,
}

impl Weakening {
    /// Parses `LOOM_WEAKEN=src/file.rs:line:column:place:Ordering`; `None` if it is not set.
    fn from_environment() -> Option<Self> {
        let text = std::env::var("LOOM_WEAKEN").ok()?;
        let parts: Vec<&str> = text.split(':').collect();
        let [file, line, column, place, ordering] = parts[..] else {
            panic!("not file:line:column:place:Ordering: {text}")
        };
        let ordering = match ordering {
            "Relaxed" => Ordering::Relaxed,
            "Acquire" => Ordering::Acquire,
            "Release" => Ordering::Release,
            "AcqRel" => Ordering::AcqRel,
            _ => panic!("not weaker than anything: {ordering}"),
        };
        let number = |text: &str| text.parse().expect("a number");
        let (line, column, place) = (number(line), number(column), number(place) as usize);
        Some(Self { file: file.to_owned(), line, column, place, ordering })
    }

    fn is_at(&self, location: &Location<'_>) -> bool {
        (self.line, self.column) == (location.line(), location.column())
            && self.file == location.file()
    }
}

/// Returns an access's orderings, and weakens one of them if `LOOM_WEAKEN` names the access.
#[track_caller]
pub(super) fn possibly_weakened<const N: usize>(mut orderings: [Ordering; N]) -> [Ordering; N] {
    static WEAKENING: OnceLock<Option<Weakening>> = OnceLock::new();
    static REPORTED: Once = Once::new();
    let weakening = WEAKENING.get_or_init(Weakening::from_environment);
    if let Some(weakening) = weakening
        && weakening.is_at(Location::caller())
    {
        REPORTED.call_once(|| eprintln!("an access was made weaker"));
        orderings[weakening.place] = weakening.ordering;
    }
    orderings
}
