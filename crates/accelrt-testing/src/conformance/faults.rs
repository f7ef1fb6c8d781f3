//! Faults: each call that a program makes of the kind fails in turn, and the engine recovers.
//!
//! The kind is behind a fault layer. After a program that met a failure, whatever it did, the same
//! program without one has the right bytes; at the end everything was given back. So a failure at
//! any single call of this kind breaks no law and leaks nothing.

use std::error::Error as _;
use std::sync::Arc;

use accelrt::backend::contract::Backend;
use accelrt::{Error, MemoryError, Result};

use crate::conformance::engine::Machine;
use crate::conformance::support::Subject;
use crate::fault::{Fault, FaultBackend, FaultError, Method};

const BYTES: usize = 64 << 10;

/// The most calls of one method that fail in turn.
const MOST_CALLS: u64 = 6;

/// What takes something and what gives it back, each as often.
const PAIRS: [(Method, Method); 3] = [
    (Method::StreamCreate, Method::StreamDestroy),
    (Method::Mark, Method::MarkRelease),
    (Method::AllocateHost, Method::ReleaseHost),
];

/// A bit of everything: streams, events, copies, fills, host memory, frees while work is queued.
fn program(machine: &Machine) -> Result<()> {
    let (runtime, device) = (&machine.runtime, machine.devices[0]);
    let [first, second] = [runtime.stream(device)?, runtime.stream(device)?];
    let source = runtime.empty_pinned(BYTES)?;
    let [one, other] = [runtime.empty(BYTES, device)?, runtime.empty(BYTES, device)?];
    one.fill(7, &first)?;
    let filled = first.record_event()?;
    second.wait_event(&filled)?;
    other.copy_from(&one, &second)?;
    source.copy_from(&other, &second)?;
    drop(one);
    let seen = other.copy_to_host(vec![0; BYTES], &second)?.wait()?;
    assert!(!machine.has_bytes || seen == vec![7; BYTES], "the bytes of a program that succeeded");
    let done = second.record_event()?;
    done.synchronize()?;
    filled.synchronize()?;
    first.synchronize()?;
    second.synchronize()
}

/// Everything is idle again, with the errors that are left on streams taken.
fn settle(machine: &Machine) {
    for device in &machine.devices {
        let _ = machine.runtime.synchronize(*device);
        machine.runtime.allocator(*device).unwrap().empty_cache();
    }
    if let Ok(pinned) = machine.runtime.pinned_allocator(machine.devices[0]) {
        pinned.empty_cache();
    }
}

/// True when an error tells of the fault that was planned, or of too little memory.
fn is_explained(error: &Error) -> bool {
    if matches!(error, Error::Memory(MemoryError::OutOfMemory { .. })) {
        return true;
    }
    let mut texts = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        texts += &inner.to_string();
        cause = inner.source();
    }
    texts.contains("999")
}

pub(crate) fn a_failure_of_any_call_is_told_and_the_next_program_succeeds(subject: &Subject) {
    let faults = FaultBackend::new(Arc::clone(&subject.backend().0));
    let backend: Arc<dyn Backend> = Arc::<FaultBackend>::clone(&faults);
    let machine = Machine::over(backend, subject.host_bytes().is_some());
    let free =
        || machine.devices.iter().map(|device| machine.runtime.memory_info(*device).unwrap());
    let before: Vec<_> = free().collect();
    program(&machine).expect("nothing fails yet");
    settle(&machine);
    let mut met = 0;
    for method in Method::ALL {
        let errors: &[FaultError] = if method.takes_memory() {
            &[FaultError::Driver, FaultError::OutOfMemory]
        } else {
            &[FaultError::Driver]
        };
        for (call, error) in
            (1..=MOST_CALLS).flat_map(|call| errors.iter().map(move |it| (call, *it)))
        {
            let failures = faults.failures(method);
            faults.plan(Fault::nth(method, call, error));
            let outcome = program(&machine);
            settle(&machine);
            faults.clear();
            let is_met = faults.failures(method) > failures;
            met += u64::from(is_met);
            if let Err(told) = outcome {
                assert!(is_met && is_explained(&told), "{method} {call}: {told}");
            }
            let again = program(&machine);
            assert!(again.is_ok(), "behind {method} {call} {error:?}: {again:?}");
            settle(&machine);
            let now: Vec<_> = free().collect();
            assert_eq!(now, before, "behind {method} {call} {error:?} memory is not back");
        }
    }
    assert!(met >= 15, "only {met} calls failed");
    machine.end();
    for (takes, gives) in PAIRS {
        let taken = faults.calls(takes) - faults.failures(takes);
        assert_eq!(taken, faults.calls(gives), "{takes} and {gives}");
    }
}
