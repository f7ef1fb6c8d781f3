//! Release: freeing while views exist, what forbids it, and what is said afterwards.

use std::thread;

use accelrt::{Buffer, Error, MemoryError};

use crate::gate::Gate;
use crate::support::{Machine, finishes};

#[test]
fn a_released_buffer_is_named_by_every_later_use_of_any_view() {
    for machine in Machine::each() {
        let (stream, device) = (machine.home(), machine.device());
        let buffer = machine.runtime.empty(1000, device).unwrap();
        let other = machine.runtime.empty(500, device).unwrap();
        let view = buffer.slice(500..).unwrap();
        let begin = buffer.address().unwrap();
        buffer.release().unwrap();
        let uses: [(&str, accelrt::Result<()>); 13] = [
            ("address", view.address().map(drop)),
            ("slice", view.slice(..1).map(drop)),
            ("export", view.export().map(drop)),
            ("record_use", view.record_use(&stream)),
            ("fill", view.fill(1, &stream).map(drop)),
            ("copy to", view.copy_from(&other, &stream).map(drop)),
            ("copy from", other.copy_from(&view, &stream).map(drop)),
            ("from host", view.copy_from_host(vec![0; 500], &stream).map(drop)),
            ("to host", view.copy_to_host(vec![0; 500], &stream).map(drop)),
            ("from slice", view.copy_from_slice(&[0; 500], &stream)),
            ("to slice", view.copy_to_slice(&mut [0; 500], &stream)),
            ("wait", view.wait_for_host()),
            ("clone", view.clone().address().map(drop)),
        ];
        for (what, outcome) in uses {
            let Err(Error::Memory(MemoryError::Released { device: named, address, bytes })) =
                outcome
            else {
                panic!("{what} was {outcome:?}")
            };
            assert_eq!((named, address, bytes), (device, begin + 500, 500), "{what}");
        }
        // The stream goes on: a refused copy may have had its place already.
        other.fill(1, &stream).unwrap().wait().unwrap();
        stream.synchronize().unwrap();
        assert!(buffer.is_released() && view.is_released());
        buffer.release().unwrap(); // nothing to do
        view.release().unwrap();
        drop((buffer, view, other));
        machine.assert_nothing_taken();
    }
}

#[test]
fn a_release_frees_in_stream_order_and_once() {
    finishes(|| {
        let machine = Machine::cpu(1);
        let (home, buffer) =
            (machine.home(), machine.runtime.empty(100, machine.device()).unwrap());
        let gate = Gate::shut(&home);
        let copy = buffer.copy_to_host(vec![0; 100], &home).unwrap();
        buffer.release().unwrap();
        assert_eq!((machine.taken(), machine.kept()), (0, 2 << 20), "others may not have it");
        gate.open();
        copy.wait().unwrap();
        home.synchronize().unwrap();
        assert_eq!(machine.kept(), 0);
        drop(buffer);
        machine.assert_nothing_taken();
    });
}

#[test]
fn exports_forbid_a_release_and_keep_the_memory_alive() {
    for machine in Machine::each() {
        let buffer = machine.runtime.empty(1000, machine.device()).unwrap();
        let exports = [(); 3].map(|()| buffer.slice(10..).unwrap().export().unwrap());
        let address = buffer.address().unwrap();
        let refused = buffer.release();
        let Err(Error::Memory(MemoryError::Exported {
            address: named, bytes, exports: count, ..
        })) = refused
        else {
            panic!("{refused:?}")
        };
        assert_eq!((named, bytes, count), (address, 1000, 3));
        assert!(!buffer.is_released());
        let [first, rest @ ..] = exports;
        drop(rest);
        assert!(matches!(
            buffer.release(),
            Err(Error::Memory(MemoryError::Exported { exports: 1, .. }))
        ));
        drop(buffer);
        machine.settle();
        assert_eq!(machine.taken(), 1000, "an export is a reference");
        drop(first);
        machine.assert_nothing_taken();
    }
}

#[test]
fn a_release_while_others_enqueue_uses_takes_effect_behind_them() {
    // Goal: no use after a free, and exactly one free. Method: threads copy from a buffer into
    // their own until they are told that it was released; a free in front of one of their copies
    // would be caught by the null kind, and by the sanitizer on cpu.
    finishes(|| {
        for machine in Machine::each() {
            for _ in 0..20 {
                let shared = machine.runtime.zeros(4096, machine.device()).unwrap();
                shared.wait_for_host().unwrap(); // the zeros are there before others read
                thread::scope(|scope| {
                    for _ in 0..3 {
                        scope.spawn(|| copy_until_released(&machine, &shared));
                    }
                    scope.spawn(|| shared.release().unwrap());
                });
            }
            machine.assert_nothing_taken();
        }
    });
}

fn copy_until_released(machine: &Machine, shared: &Buffer) {
    let (stream, own) = (machine.stream(), machine.runtime.empty(4096, machine.device()).unwrap());
    loop {
        match own.copy_from(shared, &stream) {
            Ok(_) => {}
            Err(Error::Memory(MemoryError::Released { .. })) => return,
            Err(error) => panic!("{error}"),
        }
    }
}
