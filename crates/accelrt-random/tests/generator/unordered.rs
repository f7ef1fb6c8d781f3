//! Fills that their caller orders: the same bits, and no wait for another stream.
#![expect(unsafe_code, reason = "calls the fills whose order the caller promises")]

use std::sync::mpsc;

use accelrt_random::{FloatType, RawType};

use crate::support::{CPU, Fill, Machine};

const BYTES: usize = 1 << 12;

#[test]
fn a_fill_without_order_writes_the_same_bits() {
    let machine = Machine::cpu(2);
    let (stream, generator) = (machine.stream(), machine.generator(5, 0));
    let [raw, uniform, normal] = [(); 3].map(|()| machine.runtime.empty(BYTES, CPU).unwrap());
    // SAFETY: no other task and no thread uses the buffers before the reads below, which wait.
    unsafe { generator.fill_raw_unordered(&raw, RawType::Uint32, &stream) }.unwrap();
    // SAFETY: as for the first.
    unsafe { generator.fill_uniform_unordered(&uniform, FloatType::Float32, &stream) }.unwrap();
    // SAFETY: as for the first.
    unsafe { generator.fill_normal_unordered(&normal, FloatType::Float64, &stream) }.unwrap();
    let generator = machine.generator(5, 0);
    for (buffer, fill) in [
        (raw, Fill::Raw(RawType::Uint32)),
        (uniform, Fill::Uniform(FloatType::Float32)),
        (normal, Fill::Normal(FloatType::Float64)),
    ] {
        let expected = machine.filled(fill, &generator, BYTES);
        assert!(buffer.read_to_vec().unwrap() == expected, "{fill:?}");
    }
}

#[test]
fn a_fill_without_order_does_not_wait_for_an_earlier_use_on_another_stream() {
    let machine = Machine::cpu(2);
    let [busy, stream] = [(); 2].map(|()| machine.runtime.stream(CPU).unwrap());
    let buffer = machine.runtime.empty(BYTES, CPU).unwrap();
    let (open, gate) = mpsc::channel::<()>();
    busy.enqueue(move || assert!(gate.recv().is_err())).unwrap();
    buffer.fill(1, &busy).unwrap();
    let generator = machine.generator(5, 0);
    // SAFETY: the fill of the other stream stands behind the gate, which opens after this one.
    unsafe { generator.fill_raw_unordered(&buffer, RawType::Uint32, &stream) }.unwrap();
    stream.synchronize().unwrap();
    drop(open);
    busy.synchronize().unwrap();
    assert!(buffer.read_to_vec().unwrap().iter().all(|byte| *byte == 1), "the later one wins");
}
