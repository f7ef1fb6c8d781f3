//! What a backlog costs (Q6): bytes and page faults a task, in a process that made nothing before.
#![expect(unsafe_code, reason = "asks the C library for its statistics")]

use std::hint::black_box;
use std::io;
use std::mem::MaybeUninit;

use accelrt::{Config, Device, Runtime};

use crate::measure::{Figure, ns_per_round, number};
use crate::peers::{Gate, Lane};
use crate::table::Table;

/// Below the limit at which a stream holds its producers back.
const TASKS: usize = 900_000;

pub(crate) fn measure(table: &mut Table) -> io::Result<()> {
    let runtime = Runtime::new(Config::default()).expect("the default settings are right");
    let stream = runtime.stream(Device::cpu(0)).expect("a stream");
    let gate = Gate::shut(&stream);
    let (bytes_before, faults_before) = (live_bytes(), page_faults());
    let ns = ns_per_round(TASKS, || {
        let payload = [TASKS; 5];
        stream.put(move || {
            black_box(payload);
        });
    });
    let (bytes, faults) = (live_bytes() - bytes_before, page_faults() - faults_before);
    gate.open();
    stream.finish();
    table.row_in("bytes", "Q6.backlog", Figure::exact(number(bytes) / number(TASKS)))?;
    let thousands = number(TASKS) / 1e3;
    table.row_in("per 1000", "Q6.backlog.faults", Figure::exact(number(faults) / thousands))?;
    table.row("Q6.backlog.enqueue", Figure::exact(ns))
}

/// Bytes that are allocated in all of the process, whether from an arena or mapped.
fn live_bytes() -> usize {
    // SAFETY: has no preconditions.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

/// Page faults of this process that needed no reading.
fn page_faults() -> usize {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a struct that the call fills.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    assert_eq!(failed, 0, "a process may ask what it used");
    // SAFETY: zeros are such a struct, and the call above wrote one.
    let usage = unsafe { usage.assume_init() };
    usize::try_from(usage.ru_minflt).expect("a count")
}
