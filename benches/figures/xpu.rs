//! An xpu device (X1, X2): what our streams add to the driver's own calls, in the same run.

use std::io;

use accelrt::{Buffer, Device, DeviceKind, Event, Runtime, Stream};

use crate::measure::{Figure, in_turns, ns_per_round};
use crate::opencl::Opencl;
use crate::table::Table;

const RECORDS: usize = 2_000;
const PEER: &str = "OpenCL";

/// Bytes of a copy, and how many are enqueued before the device is waited for.
const COPIES: [(&str, usize, usize); 2] = [("X2.4KiB", 4 << 10, 2_000), ("X2.64MiB", 64 << 20, 8)];

pub(crate) fn measure(
    runtime: &Runtime,
    opencl: Option<&Opencl>,
    table: &mut Table,
) -> io::Result<()> {
    let device = Device::new(DeviceKind::Xpu, 0).expect("an index in range");
    let Ok(stream) = runtime.stream(device) else { return unmeasured(table) };
    let Some(opencl) = opencl else { return unmeasured(table) };
    let event = Event::new();
    let record = || stream.record(&event).expect("an event of this stream");
    let [ours, peer, ours_waited, peer_waited] = in_turns([
        &mut || submitting_ns(&stream, RECORDS, record),
        &mut || opencl.submit_marker_ns(RECORDS),
        &mut || {
            ns_per_round(RECORDS, || {
                record();
                event.synchronize().expect("no task fails");
            })
        },
        &mut || opencl.marker_event_ns(RECORDS),
    ]);
    table.against("X1", ours, (PEER, Some(peer)))?;
    table.against("X1.waited", ours_waited, (PEER, Some(peer_waited)))?;
    for (name, bytes, copies) in COPIES {
        let buffers = [(); 2].map(|()| runtime.empty(bytes, device).expect("memory"));
        let [submitted, waited] = copies_ns(&stream, &buffers, opencl, copies);
        table.against(name, submitted[0], (PEER, Some(submitted[1])))?;
        table.against(&format!("{name}.waited"), waited[0], (PEER, Some(waited[1])))?;
    }
    Ok(())
}

/// Of copies that are submitted and of those that are waited for: ours and the driver's own.
fn copies_ns(
    stream: &Stream,
    [source, target]: &[Buffer; 2],
    opencl: &Opencl,
    copies: usize,
) -> [[Figure; 2]; 2] {
    let bytes = source.nbytes();
    let copy = || target.copy_from(source, stream).expect("buffers of one size");
    let with_memory = "the device has unified shared memory, or it were none of ours";
    let [ours, peer, ours_waited, peer_waited] = in_turns([
        &mut || submitting_ns(stream, copies, || drop(copy())),
        &mut || opencl.submit_copy_ns(bytes, copies).expect(with_memory),
        &mut || ns_per_round(copies, || copy().wait().expect("no task fails")),
        &mut || opencl.copy_ns(bytes, copies).expect(with_memory),
    ]);
    [[ours, peer], [ours_waited, peer_waited]]
}

/// Per submission, of having the device told of it.
fn submitting_ns(stream: &Stream, count: usize, submit: impl FnMut()) -> f64 {
    let ns = ns_per_round(count, submit);
    stream.synchronize().expect("no task fails");
    ns
}

fn unmeasured(table: &mut Table) -> io::Result<()> {
    let names = ["X1", "X1.waited"].map(str::to_owned);
    let copies =
        COPIES.iter().flat_map(|(name, ..)| [(*name).to_owned(), format!("{name}.waited")]);
    names
        .into_iter()
        .chain(copies)
        .try_for_each(|name| table.unmeasured(&name, "needs an OpenCL device with shared memory"))
}
