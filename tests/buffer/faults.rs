//! Planned faults: a failure at any call that buffers make leaks nothing and ends no thread.
//!
//! One scenario uses every operation. It runs once for each call of each method that it makes, with
//! that call failing; afterwards all memory, marks and streams are back. Its first round is served
//! by the policy `native`, with pages, the second by `torch`, with segments.

use std::fmt::Write;

use accelrt::{Error, Result};
use accelrt_testing::fault::{Fault, FaultError, Method};
use accelrt_testing::null::CompletionMode;

use crate::pattern::pattern;
use crate::support::{Drops, Machine, finishes};

/// The methods that buffers call, those first that a machine which runs on the host calls too.
const METHODS: [Method; 19] = [
    Method::VmReserve,
    Method::VmCreate,
    Method::VmMap,
    Method::VmUnmap,
    Method::VmRelease,
    Method::VmUnreserve,
    Method::Allocate,
    Method::AllocateShared,
    Method::Release,
    Method::AllocateHost,
    Method::ReleaseHost,
    Method::Copy,
    Method::Fill,
    Method::Mark,
    Method::MarkDone,
    Method::WaitMark,
    Method::MarkRelease,
    Method::StreamSynchronize,
    Method::StreamDestroy,
];

/// The first of them.
const HOST_METHODS: &[Method] = METHODS.split_at(13).0;

/// Every operation, each tried whatever became of the others.
fn scenario(machine: &Machine, drops: &Drops) -> Vec<Error> {
    let mut errors = Vec::new();
    let mut note = |outcome: Result<()>| errors.extend(outcome.err());
    let (runtime, device) = (&machine.runtime, machine.device());
    let streams = [machine.home(), machine.stream(), machine.stream()];
    for (round, settings) in ["policy:native", "policy:torch"].into_iter().enumerate() {
        runtime.set_allocator_settings(settings).unwrap();
        let made = [
            runtime.zeros(700, device),
            runtime.empty_shared(700, device),
            runtime.empty_pinned(700),
        ];
        let buffers: Vec<_> = made
            .into_iter()
            .filter_map(|made| made.map_err(|error| note(Err(error))).ok())
            .collect();
        for (target, stream) in buffers.iter().zip(&streams) {
            note(target.fill(1, stream).map(|fill| _ = fill.is_done()));
            for source in
                buffers.iter().filter(|source| source.address().ok() != target.address().ok())
            {
                let copied = target.copy_from(source, stream);
                note(copied.and_then(|copy| if round == 0 { copy.wait() } else { Ok(()) }));
            }
            note(target.copy_from_host(drops.watch(pattern(700, round)), stream).map(drop));
            let copy = target.copy_to_host(drops.watch(vec![0; 700]), stream);
            note(copy.and_then(|copy| copy.wait().map(drop)));
            note(target.copy_to_slice(&mut [0; 700], stream));
            note(target.copy_from_slice(&[0; 700], stream));
            note(target.record_use(&streams[2]));
            note(target.wait_for_host());
            note(stream.synchronize());
        }
        if let Some(buffer) = buffers.first() {
            note(buffer.release());
        }
        drop(buffers);
        runtime.allocator(device).unwrap().empty_cache();
        machine.empty_pinned_cache();
    }
    errors
}

/// Runs the scenario with one call failing; how often it failed, and what that led to.
fn run(mut machine: Machine, fault: Option<Fault>) -> (Machine, u64, Vec<Error>) {
    let drops = Drops::default();
    if let Some(fault) = fault {
        machine.backend.plan(fault);
    }
    let errors = scenario(&machine, &drops);
    machine.settle();
    machine.backend.clear();
    let failures =
        fault.and_then(|fault| fault.method).map(|method| machine.backend.failures(method));
    machine.assert_nothing_taken();
    machine.settle(); // streams that were kept by what they held are gone now
    assert_eq!(
        machine.resource_counts().marks,
        0,
        "marks that were not given back after {fault:?}"
    );
    machine.runtime.shutdown();
    assert_eq!(machine.taken(), 0);
    machine.devices.clear();
    (machine, failures.unwrap_or(0), errors)
}

#[expect(clippy::print_stdout, reason = "which methods failed how often, for who asks")]
fn each_call_fails_in_turn(make: impl Fn() -> Machine, methods: &[Method]) {
    let (healthy, _, errors) = run(make(), None);
    assert!(errors.is_empty(), "{errors:?}");
    let mut report = String::new();
    for method in methods {
        let calls = healthy.backend.calls(*method);
        assert!(calls > 0, "the scenario never calls {method}");
        let mut failed = 0;
        for call in 1..=calls {
            let error =
                if method.takes_memory() { FaultError::OutOfMemory } else { FaultError::Driver };
            let (_, failures, _) = run(make(), Some(Fault::nth(*method, call, error)));
            failed += failures;
        }
        assert!(failed > 0, "{method} was never failed");
        writeln!(report, "{method}: {failed} of {calls} calls failed").unwrap();
    }
    println!("{report}");
}

#[test]
fn nothing_leaks_on_cpu_whichever_call_fails() {
    finishes(|| each_call_fails_in_turn(|| Machine::cpu(1), HOST_METHODS));
}

#[test]
fn nothing_leaks_on_a_driver_that_is_done_at_once_whichever_call_fails() {
    let methods: Vec<Method> =
        METHODS.into_iter().filter(|method| !matches!(method, Method::StreamDestroy)).collect();
    finishes(move || each_call_fails_in_turn(|| Machine::null(CompletionMode::AtOnce), &methods));
}

#[test]
fn nothing_leaks_on_a_driver_that_has_to_be_asked_whichever_call_fails() {
    let methods: Vec<Method> =
        METHODS.into_iter().filter(|method| !matches!(method, Method::StreamDestroy)).collect();
    let make = || Machine::null(CompletionMode::WhenAsked { polls: 1 });
    finishes(move || each_call_fails_in_turn(make, &methods));
}

#[test]
fn an_allocation_that_fails_has_changed_nothing() {
    finishes(|| {
        for machine in Machine::each() {
            for error in [FaultError::OutOfMemory, FaultError::Driver, FaultError::DeviceLost] {
                machine.backend.plan(Fault::always(Method::Allocate, error));
                machine.backend.plan(Fault::always(Method::VmCreate, error));
                machine.backend.plan(Fault::always(Method::AllocateShared, error));
                machine.backend.plan(Fault::always(Method::AllocateHost, error));
                machine.runtime.empty(100, machine.device()).unwrap_err();
                machine.runtime.empty_shared(100, machine.device()).unwrap_err();
                machine.runtime.empty_pinned(100).unwrap_err();
                machine.backend.clear();
                assert_eq!((machine.taken(), machine.reserved_on(machine.device())), (0, 0));
                drop(machine.runtime.zeros(100, machine.device()).unwrap());
                machine.assert_nothing_taken();
            }
        }
    });
}

#[test]
fn a_lost_device_keeps_nobody_waiting() {
    finishes(|| {
        for machine in Machine::each() {
            let (device, stream) = (machine.device(), machine.stream());
            let buffer = machine.runtime.zeros(100, device).unwrap();
            let lost =
                [Method::Copy, Method::Fill, Method::Mark, Method::MarkDone, Method::WaitMark];
            for method in lost.into_iter().chain([Method::StreamSynchronize, Method::StreamQuery]) {
                machine.backend.plan(Fault::always(method, FaultError::DeviceLost));
            }
            buffer.fill(1, &stream).unwrap().wait().unwrap_err();
            buffer.copy_to_slice(&mut [0; 100], &stream).unwrap_err();
            buffer.wait_for_host().unwrap_err();
            drop(buffer);
            machine.backend.clear();
            machine.assert_nothing_taken();
        }
    });
}

#[test]
fn a_transfer_remembers_its_failure_after_that_has_ended() {
    // Goal: how a task ended is its transfer's to tell, also where the task had run before the call
    // returned. Method: the second of two fills is refused, and a synchronise ends the failure
    // before the transfers are asked; nobody else keeps it from being forgotten.
    for machine in Machine::each() {
        let stream = machine.stream();
        let buffer = machine.runtime.empty(9, machine.device()).unwrap();
        buffer.fill(0, &stream).unwrap().wait().unwrap();
        machine.backend.plan(Fault::nth(Method::Fill, 2, FaultError::Driver));
        let fills: Vec<_> = (0..2).map(|_| buffer.fill(1, &stream).unwrap()).collect();
        stream.synchronize().unwrap_err();
        buffer.fill(2, &stream).unwrap().wait().unwrap();
        let failed: Vec<bool> = fills.iter().map(|fill| fill.wait().is_err()).collect();
        assert_eq!(failed, [false, true]);
    }
}
