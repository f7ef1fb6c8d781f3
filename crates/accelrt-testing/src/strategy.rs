//! The choice of the stream that goes next, by a strategy and a seed alone.

use std::collections::BTreeMap;

use accelrt::internal::OperationKind;

use crate::schedule::{MOST_DEPTH, Schedule, Strategy};

/// What a choice knows of a runnable stream. The key is the stream's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) key: u64,
    /// A smaller number is more urgent.
    pub(crate) priority: i32,
}

/// Chooses among candidates, and draws the durations of tasks.
#[derive(Debug)]
pub(crate) struct Chooser {
    schedule: Schedule,
    random: Random,
    num_steps: u64,
    num_choices: u64,
    /// For `Starve`, the stream that goes last.
    starved: Option<u64>,
    /// For `Pct`, the rank of each stream by its key: the largest goes first. For `Starve` only the
    /// keys count.
    ranks: BTreeMap<u64, u64>,
    /// For `Pct`, the steps at which the first stream becomes the last, and the rank that it gets.
    changes: Vec<(u64, u64)>,
}

impl Chooser {
    pub(crate) fn new(schedule: Schedule) -> Self {
        let mut random = Random::new(schedule.seed);
        let mut changes = Vec::new();
        if let Strategy::Pct { depth, steps } = schedule.strategy {
            let depth = depth.min(MOST_DEPTH);
            let rank = |change: u32| u64::from(depth - change);
            changes = (1..depth).map(|change| (random.below(steps), rank(change))).collect();
        }
        let (starved, ranks) = (None, BTreeMap::new());
        Self { schedule, random, num_steps: 0, num_choices: 0, starved, ranks, changes }
    }

    pub(crate) fn num_steps(&self) -> u64 {
        self.num_steps
    }

    /// How many steps had several candidates.
    pub(crate) fn num_choices(&self) -> u64 {
        self.num_choices
    }

    /// The place of the chosen one of at least one candidate.
    pub(crate) fn choose(&mut self, candidates: &[Candidate]) -> usize {
        for candidate in candidates {
            self.meet(candidate.key);
        }
        self.demote_first(candidates);
        self.num_steps += 1;
        self.num_choices += u64::from(candidates.len() > 1);
        let rank = |candidate: &Candidate| match self.schedule.strategy {
            Strategy::Random => 0,
            Strategy::Invert => i64::from(candidate.priority),
            Strategy::Starve => -i64::from(self.starved == Some(candidate.key)),
            Strategy::Pct { .. } => self.ranks[&candidate.key].cast_signed(),
        };
        let first = candidates.iter().map(rank).max().expect("a candidate");
        let places = candidates.iter().enumerate();
        let equals: Vec<usize> =
            places.filter(|(_, it)| rank(it) == first).map(|(place, _)| place).collect();
        equals[usize::try_from(self.random.below(equals.len() as u64)).expect("a place")]
    }

    /// Draws the rank of a stream that is new.
    fn meet(&mut self, key: u64) {
        let is_ranked = matches!(self.schedule.strategy, Strategy::Starve | Strategy::Pct { .. });
        if !is_ranked || self.ranks.contains_key(&key) {
            return;
        }
        // Above the ranks of changes. Of all streams so far each is the starved one equally often.
        self.ranks.insert(key, (1 << 32) + self.random.below(1 << 32));
        if self.random.below(self.ranks.len() as u64) == 0 {
            self.starved = Some(key);
        }
    }

    /// At a step of change, makes the candidate that goes first the last one.
    fn demote_first(&mut self, candidates: &[Candidate]) {
        for (step, rank) in &self.changes {
            let first = candidates.iter().max_by_key(|candidate| self.ranks[&candidate.key]);
            if let Some(first) = first.filter(|_| *step == self.num_steps) {
                self.ranks.insert(first.key, *rank);
            }
        }
    }

    /// The nanoseconds that a task takes.
    pub(crate) fn duration_ns(&mut self, operation: OperationKind, bytes: usize) -> u64 {
        let durations_ns = self.schedule.durations_of(operation);
        let (least, most) = (durations_ns.start(), durations_ns.end());
        let span = (most - least).saturating_add(1);
        (least + self.random.below(span)).saturating_add(bytes as u64 / 10)
    }
}

/// Random numbers: `SplitMix64`, by Steele, Lea and Flood (2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// A number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(limit);
        u64::try_from(wide >> 64).expect("below a number of 64 bits")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Which of three streams each of some steps runs: all are runnable, two are urgent.
    fn choices(schedule: Schedule, count: usize) -> Vec<u64> {
        let all = [(10, 0), (20, -1), (30, 1)].map(|(key, priority)| Candidate { key, priority });
        let mut chooser = Chooser::new(schedule);
        (0..count).map(|_| all[chooser.choose(&all)].key).collect()
    }

    #[test]
    fn the_same_seed_makes_the_same_choices_and_others_make_others() {
        let pct = Strategy::Pct { depth: 4, steps: 40 };
        for strategy in [Strategy::Random, Strategy::Invert, Strategy::Starve, pct] {
            let of = |seed| choices(Schedule::new(seed).strategy(strategy), 40);
            assert_eq!(of(7), of(7));
            let is_one = (0..20).all(|seed| of(seed) == of(0));
            assert_eq!(is_one, strategy == Strategy::Invert, "priorities alone decide there");
        }
    }

    #[test]
    fn all_bits_of_a_seed_count() {
        let of = |seed| choices(Schedule::new(seed), 40);
        let texts: BTreeSet<_> = (0..64).map(|bit| of(1 << bit)).collect();
        assert_eq!(texts.len(), 64);
    }

    #[test]
    fn pct_changes_ranks_also_where_one_stream_is_runnable() {
        let all = [(10, 0), (20, 0)].map(|(key, priority)| Candidate { key, priority });
        for seed in 0..20 {
            let pct = Strategy::Pct { depth: 2, steps: 1 }; // the change is at the first step
            let mut chooser = Chooser::new(Schedule::new(seed).strategy(pct));
            assert_eq!((chooser.choose(&all[..1]), chooser.choose(&all)), (0, 1), "seed {seed}");
        }
    }

    #[test]
    fn steps_with_one_candidate_are_no_choices() {
        let all = [(10, 0), (20, 0)].map(|(key, priority)| Candidate { key, priority });
        let mut chooser = Chooser::new(Schedule::new(1));
        for some in [&all[..1], &all[..], &all[1..], &all[..]] {
            chooser.choose(some);
        }
        assert_eq!((chooser.num_steps(), chooser.num_choices()), (4, 2));
    }

    #[test]
    fn random_choices_take_each_stream_equally_often() {
        let all = choices(Schedule::new(1), 30_000);
        for key in [10, 20, 30] {
            let count = all.iter().filter(|chosen| **chosen == key).count();
            assert!((9_700..10_300).contains(&count), "{key}: {count}");
        }
    }

    #[test]
    fn the_least_urgent_goes_first_where_priorities_are_inverted() {
        assert_eq!(choices(Schedule::new(3).strategy(Strategy::Invert), 5), [30; 5]);
    }

    #[test]
    fn of_equally_urgent_streams_the_seed_takes_each_where_priorities_are_inverted() {
        let all = [(10, 0), (20, 1), (30, 1)].map(|(key, priority)| Candidate { key, priority });
        let mut chooser = Chooser::new(Schedule::new(3).strategy(Strategy::Invert));
        let chosen: Vec<u64> = (0..300).map(|_| all[chooser.choose(&all)].key).collect();
        let count = |key| chosen.iter().filter(|it| **it == key).count();
        assert_eq!(count(10), 0);
        assert!(count(20) > 100 && count(30) > 100, "{chosen:?}");
    }

    #[test]
    fn one_stream_starves_and_seeds_differ_in_which() {
        let mut starved = [0; 3];
        for seed in 0..300 {
            let all = choices(Schedule::new(seed).strategy(Strategy::Starve), 60);
            let never = [10, 20, 30].map(|key| !all.contains(&key));
            assert_eq!(never.iter().filter(|never| **never).count(), 1, "{all:?}");
            starved.iter_mut().zip(never).for_each(|(count, never)| *count += u32::from(never));
        }
        assert!(starved.iter().all(|count| (70..130).contains(count)), "{starved:?}");
    }

    #[test]
    fn pct_keeps_to_its_ranks_but_at_its_changes() {
        // Goal: the number of changes is the depth less one. Method: all streams stay runnable, so
        // another one runs only behind a change.
        for seed in 0..200 {
            for depth in 1..4_u32 {
                let pct = Strategy::Pct { depth, steps: 50 };
                let all = choices(Schedule::new(seed).strategy(pct), 100);
                let changes = all.windows(2).filter(|pair| pair[0] != pair[1]).count();
                assert!(changes < depth as usize, "{all:?}");
            }
        }
        let of =
            |seed| choices(Schedule::new(seed).strategy(Strategy::Pct { depth: 3, steps: 9 }), 9);
        let num_two = (0..200).filter(|seed| of(*seed).windows(2).any(|it| it[0] != it[1])).count();
        assert!(num_two > 150, "{num_two}");
    }

    #[test]
    fn pct_of_any_depth_takes_little_memory() {
        let pct = Strategy::Pct { depth: u32::MAX, steps: 9 };
        let chooser = Chooser::new(Schedule::new(1).strategy(pct));
        assert_eq!(chooser.changes.len(), 999);
        assert_eq!(choices(Schedule::new(1).strategy(pct), 20).len(), 20);
    }

    #[test]
    fn durations_are_in_their_range_and_grow_with_bytes() {
        let mut chooser = Chooser::new(Schedule::new(1).durations_ns(5..=7));
        let drawn: Vec<u64> =
            (0..100).map(|_| chooser.duration_ns(OperationKind::Call, 0)).collect();
        assert!([5, 6, 7].iter().all(|ns| drawn.contains(ns)) && drawn.iter().all(|ns| *ns < 8));
        assert!((105..=107).contains(&chooser.duration_ns(OperationKind::Copy, 1_000)));
        let mut whole = Chooser::new(Schedule::new(1).durations_ns(0..=u64::MAX));
        assert!(whole.duration_ns(OperationKind::Call, 0) > 0);
    }

    #[test]
    fn an_operation_has_its_own_durations_where_they_are_set_and_else_those_of_all() {
        let setting = "seed:1,durations:5,durations.copy:40,durations.launch:70..71";
        let mut chooser = Chooser::new(setting.parse().unwrap());
        let mut of = |operation| chooser.duration_ns(operation, 0);
        assert_eq!([of(OperationKind::Copy), of(OperationKind::Fill)], [40, 5]);
        assert_eq!([of(OperationKind::Call), of(OperationKind::Deferred)], [5, 5]);
        let launches: Vec<u64> = (0..50).map(|_| of(OperationKind::Launch)).collect();
        assert!(launches.contains(&70) && launches.contains(&71));
        assert!(launches.iter().all(|ns| [70, 71].contains(ns)), "{launches:?}");
        assert_eq!(chooser.duration_ns(OperationKind::Copy, 1_000), 140);
    }
}
