//! Fills on the cpu: the same bits however they are made, in stream order, refused with numbers.

use std::sync::mpsc;

use accelrt::{Config, Error, GeneratorError, MemoryError, Runtime, RuntimeError};
use accelrt_random::{FloatType, RawType, RuntimeExt};
use accelrt_testing::fault::Method;

use crate::seed::seed;
use crate::support::{CPU, Fill, Machine};

/// Some chunks and a rest that is no whole block.
const BYTES: usize = (3 << 18) + 24;

/// Chunks enough for another worker to be asked for help.
const LARGE_BYTES: usize = 4 << 20;

#[test]
fn a_fill_is_the_same_for_any_number_of_threads_and_chunks() {
    let (one, many) = (Machine::cpu(1), Machine::cpu(4));
    let seed = seed();
    for fill in Fill::ALL {
        let whole = one.filled(fill, &one.generator(seed, 8), BYTES);
        assert_eq!(many.filled(fill, &many.generator(seed, 8), BYTES), whole, "{fill:?}");
        // In parts of whole blocks, each in chunks of its own.
        let generator = many.generator(seed, 8);
        let parts =
            [16, 4 << 10, 1 << 18, 1 << 16].map(|bytes| many.filled(fill, &generator, bytes));
        let parts = parts.concat();
        assert_eq!(parts[..], whole[..parts.len()], "{fill:?} in parts");
    }
}

#[test]
fn a_large_fill_that_workers_help_with_is_the_same_and_its_buffer_may_be_dropped_behind_it() {
    let machine = Machine::cpu(4);
    let (generator, stream) = (machine.generator(4, 0), machine.stream());
    let expected = machine.generator(4, 0).random_raw(LARGE_BYTES / 8).unwrap();
    for turn in 0..3 {
        generator.manual_seed(4).unwrap();
        let buffer = machine.runtime.empty(LARGE_BYTES, CPU).unwrap();
        generator.fill_raw(&buffer, RawType::Uint64, &stream).unwrap();
        let mut read = vec![0; LARGE_BYTES];
        let copy = machine.runtime.empty(LARGE_BYTES, CPU).unwrap();
        copy.copy_from(&buffer, &stream).unwrap();
        drop(buffer);
        copy.copy_to_slice(&mut read, &stream).unwrap();
        let (numbers, _) = read.as_chunks::<8>();
        let place = numbers.iter().zip(&expected).position(|(a, b)| u64::from_ne_bytes(*a) != *b);
        assert_eq!(place, None, "turn {turn}: the first number that differs");
    }
}

#[test]
#[expect(clippy::cast_possible_truncation, reason = "the lower half is what is meant")]
fn raw_numbers_are_those_of_random_raw_and_of_both_types() {
    let machine = Machine::cpu(2);
    let numbers = machine.generator(3, 4).random_raw(BYTES / 8).unwrap();
    let expected: Vec<_> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    let wide = machine.filled(Fill::Raw(RawType::Uint64), &machine.generator(3, 4), BYTES);
    assert!(wide == expected, "uint64");
    let low_first: Vec<_> = numbers
        .iter()
        .flat_map(|number| [*number as u32, (number >> 32) as u32])
        .flat_map(u32::to_ne_bytes)
        .collect();
    let words = machine.filled(Fill::Raw(RawType::Uint32), &machine.generator(3, 4), BYTES);
    assert!(words == low_first, "uint32");
}

#[test]
fn a_view_is_filled_wherever_its_numbers_are_aligned_and_nothing_beside_it() {
    let machine = Machine::cpu(2);
    let stream = machine.stream();
    for fill in Fill::ALL {
        let item_bytes = fill.item_bytes();
        let expected = machine.filled(fill, &machine.generator(9, 0), 3 * 16);
        for (begin, items) in (0..5).flat_map(|begin| (0..=12).map(move |items| (begin, items))) {
            let (begin, bytes) = (begin * item_bytes, items * item_bytes);
            let bytes = bytes.min(expected.len());
            let buffer = machine.runtime.empty(128, CPU).unwrap();
            buffer.fill(0xEE, &stream).unwrap();
            let view = buffer.slice(begin..begin + bytes).unwrap();
            fill.into(&machine.generator(9, 0), &view, &stream).unwrap();
            let read = buffer.read_to_vec().unwrap();
            assert_eq!(read[begin..begin + bytes], expected[..bytes], "{fill:?} at {begin}");
            let beside = read[..begin].iter().chain(&read[begin + bytes..]);
            assert!(beside.into_iter().all(|byte| *byte == 0xEE), "{fill:?} at {begin}");
        }
    }
}

#[test]
fn a_fill_uses_four_words_for_each_sixteen_bytes_that_are_begun() {
    let machine = Machine::cpu(1);
    let generator = machine.generator(1, 0);
    let mut used = 0;
    for (bytes, blocks) in [(0, 0), (8, 1), (16, 1), (24, 2), (160, 10), (168, 11)] {
        machine.filled(Fill::Normal(FloatType::Float64), &generator, bytes);
        used += 4 * blocks;
        assert_eq!(generator.offset().unwrap(), used, "{bytes} bytes");
    }
}

#[test]
fn fills_are_tasks_in_the_order_of_their_stream() {
    let machine = Machine::cpu(2);
    let (stream, generator) = (machine.runtime.stream(CPU).unwrap(), machine.generator(2, 0));
    let buffer = machine.runtime.empty(1 << 20, CPU).unwrap();
    let copy = machine.runtime.empty(1 << 20, CPU).unwrap();
    let (open, gate) = mpsc::channel::<()>();
    stream
        .enqueue(move || {
            let _ = gate.recv();
        })
        .unwrap();
    generator.fill_raw(&buffer, RawType::Uint32, &stream).unwrap();
    copy.copy_from(&buffer, &stream).unwrap();
    buffer.fill(0, &stream).unwrap();
    drop(buffer); // freed behind its last use
    drop(open);
    let expected = machine.filled(Fill::Raw(RawType::Uint32), &machine.generator(2, 0), 1 << 20);
    assert!(copy.read_to_vec().unwrap() == expected);
}

#[test]
fn a_fill_is_skipped_on_a_failed_stream_and_uses_its_words_all_the_same() {
    let machine = Machine::cpu(2);
    let (stream, generator) = (machine.stream(), machine.generator(2, 0));
    let buffer = machine.runtime.zeros(64, CPU).unwrap();
    stream.enqueue(|| Err::<(), _>("planned")).unwrap();
    generator.fill_raw(&buffer, RawType::Uint32, &stream).unwrap();
    stream.synchronize().unwrap_err();
    assert_eq!(buffer.read_to_vec().unwrap(), [0; 64]);
    assert_eq!(generator.offset().unwrap(), 16);
}

#[test]
fn nothing_is_made_on_the_host_and_copied() {
    let machine = Machine::cpu(2);
    let buffer = machine.runtime.empty(1 << 20, CPU).unwrap();
    for fill in Fill::ALL {
        fill.into(&machine.generator(0, 0), &buffer, &machine.stream()).unwrap();
    }
    machine.stream().synchronize().unwrap();
    let moves = [Method::Copy, Method::Fill].map(|method| machine.backend.calls(method));
    assert_eq!(moves, [0, 0]);
}

#[test]
fn what_is_refused_says_why_and_uses_no_words() {
    let machine = Machine::cpu(1);
    let (stream, generator) = (machine.stream(), machine.generator(0, 0));
    let buffer = machine.runtime.empty(64, CPU).unwrap();
    let odd = buffer.slice(..30).unwrap();
    let refused = generator.fill_raw(&odd, RawType::Uint32, &stream).unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Generator(GeneratorError::FillAlignment { bytes: 30, item_bytes: 4, .. })
        ),
        "{refused}"
    );
    let shifted = buffer.slice(4..20).unwrap();
    let refused = generator.fill_normal(&shifted, FloatType::Float64, &stream).unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Generator(GeneratorError::FillAlignment { bytes: 16, item_bytes: 8, .. })
        ),
        "{refused}"
    );
    generator.fill_normal(&shifted, FloatType::Float32, &stream).unwrap();
    generator.manual_seed(0).unwrap();
    let two = Runtime::new(Config::builder().cpu_devices(2).build().unwrap()).unwrap();
    let elsewhere = two.default_stream(accelrt::Device::cpu(1)).unwrap();
    let refused = generator.fill_raw(&buffer, RawType::Uint32, &elsewhere).unwrap_err();
    assert!(
        matches!(refused, Error::Runtime(RuntimeError::OtherRuntime { what: "a generator", .. })),
        "{refused}"
    );
    let (own, here) = (two.generator(CPU).unwrap(), two.empty(64, CPU).unwrap());
    let refused = own.fill_raw(&here, RawType::Uint32, &elsewhere).unwrap_err();
    assert!(matches!(refused, Error::Memory(MemoryError::DeviceMismatch { .. })), "{refused}");
    assert_eq!(own.offset().unwrap(), 0);
    buffer.release().unwrap();
    let refused = generator.fill_raw(&buffer, RawType::Uint32, &stream).unwrap_err();
    assert!(matches!(refused, Error::Memory(MemoryError::Released { .. })), "{refused}");
    let last = machine.runtime.empty(64, CPU).unwrap();
    machine.runtime.shutdown();
    let refused = generator.fill_raw(&last, RawType::Uint32, &stream).unwrap_err();
    assert!(matches!(refused, Error::Runtime(RuntimeError::ShutDown)), "{refused}");
    assert_eq!(generator.offset().unwrap(), 0);
}
