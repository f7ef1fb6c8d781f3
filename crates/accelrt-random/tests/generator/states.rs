//! States: random programs against a model, and threads that share one generator.

use std::collections::HashSet;

use accelrt::{ConfigError, Error, GeneratorError};
use accelrt_random::{FloatType, RuntimeExt};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::seed::seed;
use crate::support::{CPU, Machine};

/// What a program does to a generator.
#[derive(Clone, Copy, Debug)]
enum Step {
    Seed(u64),
    Offset(u64),
    RawNumbers(usize),
    Fill(usize),
    /// On with the clone.
    Clone,
    /// Away and back again.
    SaveAndRestore(u64),
    SetBytes([u8; 16]),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // At both ends of the sequence, and anywhere.
    let offset = prop_oneof![0..64_u64, (u64::MAX - 64)..=u64::MAX, any::<u64>()];
    let step = prop_oneof![
        any::<u64>().prop_map(Step::Seed),
        offset.prop_map(Step::Offset),
        (0..40_usize).prop_map(Step::RawNumbers),
        (0..40_usize).prop_map(Step::Fill),
        Just(Step::Clone),
        any::<u64>().prop_map(Step::SaveAndRestore),
        any::<[u8; 16]>().prop_map(Step::SetBytes),
    ];
    proptest::collection::vec(step, 1..30)
}

/// Checks the outcome of a call that takes words, and returns the model's next offset.
fn advanced<T: std::fmt::Debug + PartialEq>(
    offset: u64,
    words: u64,
    expected: T,
    outcome: accelrt::Result<T>,
) -> Result<u64, TestCaseError> {
    let Some(next) = offset.checked_add(words) else {
        let refused = outcome.map_err(|error| error.to_string());
        let error = GeneratorError::SequenceEnd { offset, words: words.into() };
        prop_assert_eq!(refused, Err(error.to_string()));
        return Ok(offset);
    };
    prop_assert_eq!(outcome.unwrap(), expected);
    Ok(next)
}

#[test]
fn a_generator_is_a_seed_and_an_offset_whatever_is_done_to_it() {
    // Method: random programs against a model of two numbers; after each step the state is
    // compared, and what a twin would say next.
    let machine = Machine::cpu(1);
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed().to_le_bytes());
    let config = Config { cases: 200, failure_persistence: None, ..Config::default() };
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &key);
    let mut runner = TestRunner::new_with_rng(config, random);
    let outcome = runner.run(&steps(), |steps| {
        let mut generator = machine.runtime.generator(machine.device).unwrap();
        let mut model = (67_280_421_310_721_u64, 0_u64);
        for step in steps {
            match step {
                Step::Seed(seed) => {
                    generator.manual_seed(seed).unwrap();
                    model = (seed, 0);
                }
                Step::Offset(offset) if offset.is_multiple_of(4) => {
                    generator.set_offset(offset).unwrap();
                    model.1 = offset;
                }
                Step::Offset(offset) => {
                    let refused = generator.set_offset(offset).unwrap_err();
                    let expected = Error::Generator(GeneratorError::InvalidOffset { offset });
                    prop_assert_eq!(refused.to_string(), expected.to_string());
                }
                Step::RawNumbers(count) => {
                    let taken = generator.random_raw(count).map(|numbers| numbers.len());
                    model.1 = advanced(model.1, 4 * count.div_ceil(2) as u64, count, taken)?;
                }
                Step::Fill(count) => {
                    let buffer = machine.runtime.empty(4 * count, machine.device).unwrap();
                    let stream = machine.stream();
                    let filled = generator.fill_uniform(&buffer, FloatType::Float32, &stream);
                    model.1 = advanced(model.1, 4 * count.div_ceil(4) as u64, (), filled)?;
                }
                Step::Clone => {
                    let clone = generator.clone_state().unwrap();
                    generator.manual_seed(0).unwrap(); // of no consequence to the clone
                    generator = clone;
                }
                Step::SaveAndRestore(seed) => {
                    let state = generator.state().unwrap();
                    generator.manual_seed(seed).unwrap();
                    generator.random_raw(3).unwrap(); // from offset 0
                    generator.set_state(state).unwrap();
                }
                Step::SetBytes(bytes) => {
                    let both = u128::from_le_bytes(bytes);
                    #[expect(clippy::cast_possible_truncation, reason = "the halves are meant")]
                    let given = (both as u64, (both >> 64) as u64);
                    match generator.set_state(bytes) {
                        Ok(()) => model = given,
                        Err(_) => prop_assert!(!given.1.is_multiple_of(4)),
                    }
                }
            }
            let is = (generator.initial_seed().unwrap(), generator.offset().unwrap());
            prop_assert_eq!(is, model);
            let twin = machine.generator(model.0, model.1);
            prop_assert_eq!(twin.state().unwrap(), generator.state().unwrap());
            let next = generator.clone_state().unwrap().random_raw(3).map_err(|it| it.to_string());
            prop_assert_eq!(twin.random_raw(3).map_err(|it| it.to_string()), next);
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn threads_that_share_a_generator_never_get_the_same_numbers() {
    let machine = Machine::cpu(2);
    let (generator, all) = (machine.generator(5, 0), machine.generator(5, 0));
    let own = |_| {
        let generator = &generator;
        move || (0..200).flat_map(|_| generator.random_raw(2).unwrap()).collect::<Vec<_>>()
    };
    let numbers: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(own(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let (count, seen): (_, HashSet<_>) = (numbers.len(), numbers.into_iter().collect());
    assert_eq!((count, generator.offset().unwrap()), (1600, 3200));
    assert_eq!(seen, all.random_raw(1600).unwrap().into_iter().collect());
}

#[test]
fn seed_takes_one_that_nobody_can_foretell_and_says_which() {
    let machine = Machine::cpu(1);
    let generator = machine.generator(1, 4);
    let seeds = [generator.seed().unwrap(), generator.seed().unwrap()];
    assert_ne!(seeds[0], seeds[1]);
    assert_eq!((generator.initial_seed().unwrap(), generator.offset().unwrap()), (seeds[1], 0));
}

#[test]
fn a_count_of_random_numbers_beyond_memory_is_an_error() {
    let machine = Machine::cpu(1);
    let generator = machine.runtime.generator(CPU).unwrap();
    for count in [usize::MAX, isize::MAX as usize / 8 + 1] {
        let refused = generator.random_raw(count).map(|numbers| numbers.len());
        assert!(
            matches!(refused, Err(Error::Config(ConfigError::InvalidSetting { .. }))),
            "{refused:?}"
        );
    }
    assert_eq!(generator.offset().unwrap(), 0, "no words were used");
}
