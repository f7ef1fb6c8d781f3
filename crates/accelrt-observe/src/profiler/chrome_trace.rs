//! Writes a timeline in the trace event format of Chrome, which Perfetto opens.
//!
//! The host's threads are one process of the trace, each device is another, and each stream is a
//! thread of its device's process. Calls that libraries tell of are one more process, because their
//! lines do not name their threads. An enqueue and its task are bound by an id of their own; a
//! record and the waits for it by flow events.

use std::collections::BTreeSet;
use std::io::{Result, Write};

use accelrt::Device;
use accelrt::internal::RecordKind;

use crate::profiler::json::{write_number, write_text, write_us};
use crate::profiler::memory::{MemoryBytes, MemorySample};
use crate::profiler::timeline::{CallSpan, ProfiledTask, StreamKey, Timeline};

/// The process of the host's threads in the trace.
const HOST: u64 = 1;

/// The shortest slice. Arrows end at slices, which therefore must have a length.
const SHORTEST_NS: i64 = 1;

/// Writes the events, separated by commas.
struct Events<'a, W> {
    to: &'a mut W,
    is_first: bool,
}

/// Where a slice is, and when.
#[derive(Clone, Copy)]
struct Slice {
    process: u64,
    track: u64,
    start: i64,
    end: i64,
}

impl<W: Write> Events<'_, W> {
    fn begin(&mut self, phase: u8) -> Result<()> {
        let separator: &[u8] = if self.is_first { b"\n" } else { b",\n" };
        self.is_first = false;
        self.to.write_all(separator)?;
        self.to.write_all(&[b'{', b'"', b'p', b'h', b'"', b':', b'"', phase, b'"'])
    }

    fn number(&mut self, name: &[u8], number: u64) -> Result<()> {
        self.to.write_all(name)?;
        write_number(self.to, number)
    }

    fn place(&mut self, process: u64, track: u64) -> Result<()> {
        self.number(b",\"pid\":", process)?;
        self.number(b",\"tid\":", track)
    }

    fn time(&mut self, name: &[u8], ns: i64) -> Result<()> {
        self.to.write_all(name)?;
        write_us(self.to, ns)
    }

    fn name(&mut self, names: [&str; 2], category: &str) -> Result<()> {
        self.to.write_all(b",\"cat\":\"")?;
        self.to.write_all(category.as_bytes())?;
        self.to.write_all(b"\",\"name\":")?;
        match names {
            [name, ""] => write_text(self.to, name),
            [first, second] => write_text(self.to, &format!("{first} {second}")),
        }
    }

    /// A slice without its end, for what the caller adds.
    fn slice(&mut self, at: Slice, names: [&str; 2], category: &str) -> Result<()> {
        self.begin(b'X')?;
        self.place(at.process, at.track)?;
        self.time(b",\"ts\":", at.start)?;
        self.time(b",\"dur\":", (at.end - at.start).max(SHORTEST_NS))?;
        self.name(names, category)
    }

    fn end(&mut self) -> Result<()> {
        self.to.write_all(b"}")
    }

    /// The name of a process, or of a track of one.
    fn metadata(&mut self, process: u64, track: Option<u64>, name: &str) -> Result<()> {
        self.begin(b'M')?;
        self.place(process, track.unwrap_or_default())?;
        let what: &[u8] = if track.is_some() { b"thread_name" } else { b"process_name" };
        self.to.write_all(b",\"name\":\"")?;
        self.to.write_all(what)?;
        self.to.write_all(b"\",\"args\":{\"name\":")?;
        write_text(self.to, name)?;
        self.to.write_all(b"}")?;
        self.end()
    }

    /// The place of a track in its process: viewers else take tracks as they come.
    fn sort_index(&mut self, process: u64, track: u64) -> Result<()> {
        self.begin(b'M')?;
        self.place(process, track)?;
        self.to.write_all(b",\"name\":\"thread_sort_index\",\"args\":")?;
        self.number(b"{\"sort_index\":", track)?;
        self.to.write_all(b"}")?;
        self.end()
    }

    /// One end of an arrow, at a moment inside of a slice.
    fn flow(&mut self, phase: u8, id: u64, (process, track): (u64, u64), ns: i64) -> Result<()> {
        self.begin(phase)?;
        self.place(process, track)?;
        self.time(b",\"ts\":", ns)?;
        self.number(b",\"id\":", id)?;
        self.name(["order", ""], "order")?;
        if phase == b'f' {
            self.to.write_all(b",\"bp\":\"e\"")?;
        }
        self.end()
    }
}

/// The tracks of a timeline.
struct Tracks<'a> {
    devices: Vec<Device>,
    /// Each library with calls, and the number of the track on it, for each track.
    calls: Vec<(&'a str, usize)>,
}

impl Tracks<'_> {
    fn of(&self, (device, stream_id): StreamKey) -> (u64, u64) {
        let index = self.devices.binary_search(&device).unwrap_or_default();
        (HOST + 1 + index as u64, stream_id)
    }

    /// The process of the calls that libraries tell of.
    fn libraries(&self) -> u64 {
        HOST + 1 + self.devices.len() as u64
    }

    /// The track of a call, from 1.
    fn of_call(&self, span: &CallSpan) -> u64 {
        let place = self.calls.binary_search(&(span.call.told.library, span.lane));
        1 + place.unwrap_or_default() as u64
    }
}

pub(super) fn write(timeline: &Timeline, to: &mut impl Write) -> Result<()> {
    to.write_all(b"{\"displayTimeUnit\":\"ms\",\"otherData\":{\"dropped_records\":")?;
    write_number(to, timeline.num_dropped)?;
    to.write_all(b"},\"traceEvents\":[")?;
    let of_tasks = timeline.tasks.iter().map(|task| task.device);
    let of_memory = timeline.memory.iter().map(|sample| sample.device);
    let devices: BTreeSet<Device> = of_tasks.chain(of_memory).collect();
    let calls: BTreeSet<_> =
        timeline.calls.iter().map(|span| (span.call.told.library, span.lane)).collect();
    let tracks =
        Tracks { devices: devices.into_iter().collect(), calls: calls.into_iter().collect() };
    let mut events = Events { to, is_first: true };
    write_tracks(timeline, &tracks, &mut events)?;
    write_host(timeline, &mut events)?;
    write_calls(timeline, &tracks, &mut events)?;
    for (index, task) in timeline.tasks.iter().enumerate() {
        write_task(timeline, &tracks, task, index as u64, &mut events)?;
    }
    for sample in &timeline.memory {
        write_memory(&tracks, sample, &mut events)?;
    }
    to.write_all(b"\n]}\n")
}

/// Writes what a device's memory is from a moment on, as a counter with two series.
fn write_memory<W: Write>(
    tracks: &Tracks,
    sample: &MemorySample,
    events: &mut Events<'_, W>,
) -> Result<()> {
    let (process, _) = tracks.of((sample.device, 0));
    let MemoryBytes { allocated, reserved } = sample.bytes;
    events.begin(b'C')?;
    events.place(process, 0)?;
    events.time(b",\"ts\":", sample.time)?;
    events.name(["memory", ""], "memory")?;
    let [allocated, reserved] = [allocated, reserved].map(|bytes| bytes.max(0).cast_unsigned());
    events.number(b",\"args\":{\"allocated bytes\":", allocated)?;
    events.number(b",\"reserved bytes\":", reserved)?;
    events.to.write_all(b"}")?;
    events.end()
}

fn write_tracks<W: Write>(
    timeline: &Timeline,
    tracks: &Tracks<'_>,
    events: &mut Events<'_, W>,
) -> Result<()> {
    events.metadata(HOST, None, "host threads")?;
    for (number, name) in &timeline.threads {
        let unnamed = format!("thread {number}");
        let name = if name.is_empty() { &unnamed } else { &**name };
        events.metadata(HOST, Some(u64::from(*number)), name)?;
    }
    for device in &tracks.devices {
        let (process, _) = tracks.of((*device, 0));
        events.metadata(process, None, &device.to_string())?;
    }
    for tasks in timeline.by_stream() {
        let (process, track) = tracks.of(tasks[0].stream());
        events.metadata(process, Some(track), &format!("stream {track}"))?;
        events.sort_index(process, track)?;
    }
    if !tracks.calls.is_empty() {
        events.metadata(tracks.libraries(), None, "library calls")?;
    }
    for ((library, lane), track) in tracks.calls.iter().zip(1..) {
        let number = if *lane == 0 { String::new() } else { format!(" {}", lane + 1) };
        events.metadata(tracks.libraries(), Some(track), &format!("{library}{number}"))?;
    }
    Ok(())
}

fn write_host<W: Write>(timeline: &Timeline, events: &mut Events<'_, W>) -> Result<()> {
    for range in &timeline.ranges {
        let track = u64::from(range.thread);
        let at = Slice { process: HOST, track, start: range.start, end: range.end };
        events.slice(at, [timeline.key(range.key), ""], "range")?;
        events.end()?;
    }
    for wait in &timeline.host_waits {
        let track = u64::from(wait.thread);
        let at = Slice { process: HOST, track, start: wait.start, end: wait.end };
        let name = if wait.kind == RecordKind::Slept { "wait (sleeps)" } else { "wait (spins)" };
        events.slice(at, [name, ""], "host wait")?;
        if let Some(((device, stream_id), ticket)) = wait.awaited {
            write!(events.to, ",\"args\":{{\"device\":\"{device}\",\"stream\":{stream_id},")?;
            write!(events.to, "\"ticket\":{ticket}}}")?;
        }
        events.end()?;
    }
    Ok(())
}

fn write_calls<W: Write>(
    timeline: &Timeline,
    tracks: &Tracks<'_>,
    events: &mut Events<'_, W>,
) -> Result<()> {
    for span in &timeline.calls {
        let (process, track) = (tracks.libraries(), tracks.of_call(span));
        let at = Slice { process, track, start: span.call.start, end: span.call.end };
        events.slice(at, [timeline.key(span.key), ""], "library call")?;
        let mut separator = b",\"args\":{".as_slice();
        for (name, value) in &span.call.told.fields {
            events.to.write_all(separator)?;
            write_text(events.to, name)?;
            events.to.write_all(b":")?;
            write_text(events.to, value)?;
            separator = b",";
        }
        if separator == b"," {
            events.to.write_all(b"}")?;
        }
        events.end()?;
    }
    Ok(())
}

/// Writes a task, its enqueue with the arrow between them, and the arrow to a wait.
fn write_task<W: Write>(
    timeline: &Timeline,
    tracks: &Tracks<'_>,
    task: &ProfiledTask,
    index: u64,
    events: &mut Events<'_, W>,
) -> Result<()> {
    let name: &str = timeline.key(task.key);
    if let Some(call) = task.enqueued {
        let track = u64::from(call.thread);
        let at = Slice { process: HOST, track, start: call.start, end: call.end };
        events.slice(at, ["enqueue", name], "enqueue")?;
        events.number(b",\"flow_out\":true,\"bind_id\":", index)?;
        events.end()?;
    }
    let (process, track) = tracks.of(task.stream());
    let at = Slice { process, track, start: task.start, end: task.end };
    events.slice(at, [name, ""], if task.is_wait() { "wait" } else { "task" })?;
    if task.enqueued.is_some() {
        events.number(b",\"flow_in\":true,\"bind_id\":", index)?;
    }
    events.number(b",\"args\":{\"ticket\":", task.ticket)?;
    if task.bytes != 0 {
        events.number(b",\"bytes\":", task.bytes)?;
    }
    if task.has_failed {
        events.to.write_all(b",\"failed\":true")?;
    }
    events.to.write_all(b"}")?;
    events.end()?;
    if let Some(source) = task.source
        && let Some(awaited) = timeline.task_at(source)
    {
        // An arrow ends inside of the wait and behind its begin; a wait may begin before what it
        // waits for, and end behind it.
        let end = awaited.start.clamp(task.start, task.end.max(task.start));
        events.flow(b's', index, tracks.of(awaited.stream()), awaited.start)?;
        events.flow(b'f', index, (process, track), end)?;
    }
    Ok(())
}
