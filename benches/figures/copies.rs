//! Copies (C1): asynchronous ones, beside `memcpy` between the same two places.
#![expect(unsafe_code, reason = "the peer copies between addresses")]

use std::io;
use std::process::Command;
use std::time::Instant;

use accelrt::{Buffer, Device, Runtime, Stream, Transfer};

use crate::measure::{WARM_UP, in_pairs, in_turns, ns_each, repeated, warm_ns_per_round};
use crate::table::Table;

const SMALLEST: &str = "C1.4KiB";
const LARGEST: &str = "C1.64MiB";
/// Of the smallest size.
const BLOCKS: usize = 9;
const PEER: &str = "memcpy";

pub(crate) fn measure(runtime: &Runtime, table: &mut Table) -> io::Result<()> {
    let stream = runtime.stream(Device::cpu(0)).expect("a stream");
    for (name, bytes, copies) in
        [(SMALLEST, 4 << 10, 1_000), ("C1.1MiB", 1 << 20, 100), (LARGEST, 64 << 20, 4)]
    {
        let [source, target] = [1, 2].map(|byte| {
            let buffer = runtime.empty(bytes, Device::cpu(0)).expect("memory");
            buffer.fill(byte, &stream).expect("a fill").wait().expect("no task fails");
            buffer
        });
        let pipelined_ns = |count| pipelined_ns(&source, &target, &stream, count);
        let memcpy_ns = |count| warm_ns_per_round(count, || copy_directly(&source, &target));
        let waited_ns =
            |count| warm_ns_per_round(count, || wait_for(copy(&source, &target, &stream)));
        if name == SMALLEST {
            let pair = in_pairs(BLOCKS, copies, pipelined_ns, memcpy_ns);
            table.pair(name, PEER, pair)?;
            let waited = repeated(|watch| watch.blocks(BLOCKS, copies, waited_ns));
            table.against(&format!("{name}.waited"), waited, (PEER, Some(pair.peer)))?;
            continue;
        }
        let [pipelined, memcpy, waited] = in_turns([
            &mut |watch| watch.once(|| pipelined_ns(copies)),
            &mut |watch| watch.once(|| memcpy_ns(copies)),
            &mut |watch| watch.once(|| waited_ns(copies)),
        ]);
        table.against(name, pipelined, (PEER, Some(memcpy)))?;
        table.against(&format!("{name}.waited"), waited, (PEER, Some(memcpy)))?;
        if name == LARGEST {
            let name = format!("{name}.unstreamed");
            match libc_streams_from_bytes() {
                Some(threshold) if threshold > bytes => {
                    table.against(&name, pipelined, (PEER, Some(memcpy)))?;
                }
                Some(_) => table.unmeasured(&name, "libc streams at this size")?,
                None => table.unmeasured(&name, "libc does not say where it streams")?,
            }
        }
    }
    Ok(())
}

/// From which size on the C library's `memcpy` writes past the caches, when it says so.
fn libc_streams_from_bytes() -> Option<usize> {
    let listed = Command::new("/lib64/ld-linux-x86-64.so.2").arg("--list-tunables").output();
    let text = String::from_utf8(listed.ok()?.stdout).ok()?;
    let tunable = "glibc.cpu.x86_non_temporal_threshold: 0x";
    let value = text.lines().find_map(|line| line.strip_prefix(tunable))?;
    usize::from_str_radix(value.split(' ').next()?, 16).ok()
}

/// Per copy, of many that are enqueued before the last one is waited for.
fn pipelined_ns(source: &Buffer, target: &Buffer, stream: &Stream, copies: usize) -> f64 {
    for _ in 0..copies / WARM_UP {
        wait_for(copy(source, target, stream));
    }
    let started = Instant::now();
    for _ in 1..copies {
        copy(source, target, stream);
    }
    wait_for(copy(source, target, stream));
    ns_each(started.elapsed(), copies)
}

fn copy(source: &Buffer, target: &Buffer, stream: &Stream) -> Transfer {
    target.copy_from(source, stream).expect("buffers of one size")
}

#[expect(clippy::needless_pass_by_value, reason = "a transfer ends here")]
fn wait_for(transfer: Transfer) {
    transfer.wait().expect("no task fails");
}

/// The C library's copy: the number of bytes is not known when this is compiled.
#[inline(never)]
fn copy_directly(source: &Buffer, target: &Buffer) {
    let [from, to] = [source, target].map(|buffer| {
        usize::try_from(buffer.address().expect("it is not released")).expect("host memory")
    });
    let to = std::ptr::with_exposed_provenance_mut::<libc::c_void>(to);
    let from = std::ptr::with_exposed_provenance(from);
    // SAFETY: two buffers of the cpu device, apart from each other and of this size, which no task
    // uses now.
    std::hint::black_box(unsafe { libc::memcpy(to, from, source.nbytes()) });
}
