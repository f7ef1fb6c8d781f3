//! Waits of every sort, with their lengths in a profile.
//!
//! Goal: the record of a wait begins when the thread begins to wait and ends when the wait is over.
//! Method: a thread with a name of its own waits for work that is held, inside a range of the
//! profile. The work is let go some time after the call. The wait's slice in the trace must lie
//! inside the range, and be as long as the work was held.

use std::sync::mpsc;
use std::thread::sleep;
use std::time::Duration;

use accelrt::{Buffer, Device, Error, Event, Result, Runtime, RuntimeError, Stream, Transfer};
use accelrt_observe::profiler::{LongWait, Profile, Trace, WaitedBy, record_function};

/// How long work is held, at least. The sorts are held for different times.
const SHORTEST: Duration = Duration::from_millis(20);
const STEP: Duration = Duration::from_millis(2);

/// A limit that no wait reaches.
const FAR: Duration = Duration::from_secs(60);

/// A thread may be descheduled between the call and the wait's begin: then the whole is repeated.
const MAX_ATTEMPTS: usize = 10;

/// Microseconds: the trace has three digits behind the point.
const PRECISION_US: f64 = 0.002;

/// Holds the work of a stream. The returned function lets it go.
pub(crate) type Holder<'a> = &'a dyn Fn(&Stream) -> Release<'a>;
pub(crate) type Release<'a> = Box<dyn FnOnce() + 'a>;

/// What a thread waits for: all are held.
pub(crate) struct Held {
    runtime: Runtime,
    device: Device,
    pub(crate) stream: Stream,
    event: Event,
    buffer: Buffer,
    transfer: Transfer,
}

/// One sort of waits: its name and the wait.
pub(crate) type Sort = (&'static str, fn(&Held, Duration) -> Result<()>);

/// The waits that every kind has.
pub(crate) const SORTS: [Sort; 12] = [
    ("stream", |held, _| held.stream.synchronize()),
    ("stream with an interrupt", |held, _| held.stream.synchronize_unless(&mut || false)),
    ("stream with a limit", |held, _| held.stream.synchronize_timeout(FAR)),
    ("stream past the limit", |held, time| timed_out(held.stream.synchronize_timeout(time))),
    ("event", |held, _| held.event.synchronize()),
    ("event with a limit", |held, _| held.event.synchronize_timeout(FAR)),
    ("event past the limit", |held, time| timed_out(held.event.synchronize_timeout(time))),
    ("device", |held, _| held.runtime.synchronize(held.device)),
    ("device with a limit", |held, _| held.runtime.synchronize_timeout(held.device, FAR)),
    ("host access", |held, _| held.buffer.wait_for_host()),
    ("transfer", |held, _| held.transfer.wait()),
    ("transfer with a limit", |held, _| held.transfer.wait_timeout(FAR)),
];

/// A request for memory that a held task still uses.
pub(crate) const SHORTAGE: Sort = ("shortage of memory", |held, _| {
    let bytes = held.runtime.memory_info(held.device)?.total_bytes * 3 / 4;
    let first = held.runtime.empty_on(bytes, &held.stream)?;
    first.fill(1, &held.stream)?;
    drop(first);
    held.runtime.empty_on(bytes, &held.runtime.stream(held.device)?).map(drop)
});

fn timed_out(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(Error::Runtime(RuntimeError::TimedOut { .. })) => Ok(()),
        Err(other) => Err(other),
        Ok(()) => panic!("the work was held beyond the limit"),
    }
}

/// Performs each sort of waits and compares the records. Every wait is for its stream.
pub(crate) fn assert_lengths(runtime: &Runtime, device: Device, sorts: &[Sort], hold: Holder<'_>) {
    for attempt in 1.. {
        let profile = Profile::start(runtime);
        let times: Vec<_> = (0..).map(|count| SHORTEST + STEP * count).take(sorts.len()).collect();
        let mut streams = Vec::new();
        for ((name, wait), time) in sorts.iter().zip(&times) {
            streams.push(wait_once(runtime, device, hold, name, *wait, *time));
        }
        let trace = profile.stop();
        let mut is_exact = true;
        for (((name, _), time), stream_id) in sorts.iter().zip(&times).zip(streams) {
            is_exact &= is_as_long(&trace, name, (device, stream_id), *time);
        }
        assert_order(&trace);
        if is_exact {
            return;
        }
        assert!(attempt < MAX_ATTEMPTS, "the waits are too short: {:#?}", trace.longest_waits(99));
    }
}

/// Waits on a thread with the name of the sort, and returns the id of the held stream.
fn wait_once(
    runtime: &Runtime,
    device: Device,
    hold: Holder<'_>,
    name: &str,
    wait: fn(&Held, Duration) -> Result<()>,
    time: Duration,
) -> u64 {
    let stream = runtime.stream(device).unwrap();
    let buffer = runtime.empty_on(64, &stream).unwrap();
    let release = hold(&stream);
    let transfer = buffer.fill(7, &stream).unwrap();
    let event = stream.record_event().unwrap();
    let stream_id = stream.id();
    let runtime = runtime.clone();
    let work = Held { runtime, device, stream, event, buffer, transfer };
    let (call, called) = mpsc::channel();
    let waiting = || {
        let _range = record_function(name);
        call.send(()).unwrap();
        wait(&work, time).unwrap();
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name.to_owned());
        let waiting = thread.spawn_scoped(scope, waiting).unwrap();
        called.recv().unwrap();
        sleep(time); // the work stays held, and this thread idle: the measured time
        if name.contains("past the limit") {
            waiting.join().unwrap();
            release();
        } else {
            release();
            waiting.join().unwrap();
        }
    });
    work.stream.synchronize().unwrap();
    stream_id
}

/// False when a wait is shorter than the work was held. Asserts all else.
fn is_as_long(trace: &Trace, name: &str, source: (Device, u64), time: Duration) -> bool {
    let is_its = |wait: &&LongWait| matches!(&wait.waiter, WaitedBy::Thread(of, _) if of == name);
    let waits = trace.longest_waits(usize::MAX);
    let waits: Vec<_> = waits.iter().filter(is_its).collect();
    let longest = waits.first().unwrap_or_else(|| panic!("{name}: no wait is recorded"));
    assert!(waits.iter().all(|wait| (wait.device, wait.stream_id) == source), "{name}: {waits:?}");
    assert!(matches!(&longest.waiter, WaitedBy::Thread(_, true)), "{name}: it sleeps");

    let mut text = Vec::new();
    trace.write_chrome_trace(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let quoted = format!("\"{name}\"");
    let ranges: Vec<_> = text.lines().filter(|line| is_slice(line, &quoted)).collect();
    let [range] = ranges[..] else { panic!("{name}: {ranges:?}") };
    let thread = field(range, "\"tid\":");
    let slices = text.lines().filter(|line| is_slice(line, "\"wait (s"));
    let own = slices.filter(|line| (field(line, "\"tid\":") - thread).abs() < 0.5);
    let (begin, end) = span(range);
    for wait in own {
        let (start, over) = span(wait);
        assert!(begin <= start + PRECISION_US && over <= end + PRECISION_US, "{name}: {wait}");
    }
    assert!(longest.ms * 1e3 <= end - begin + PRECISION_US, "{name}: {longest:?}");
    longest.ms >= time.as_secs_f64() * 1e3 * 0.9
}

fn is_slice(line: &str, name: &str) -> bool {
    line.contains("\"ph\":\"X\"") && line.contains(&format!("\"name\":{name}"))
}

/// The number behind a key of a line.
fn field(line: &str, key: &str) -> f64 {
    let rest = line.split_once(key).unwrap_or_else(|| panic!("no {key} in {line}")).1;
    let end = rest.find([',', '}']).expect("a value ends");
    rest[..end].parse().unwrap_or_else(|_| panic!("{key} is no number in {line}"))
}

/// Begin and end of a slice, in microseconds.
fn span(line: &str) -> (f64, f64) {
    let begin = field(line, "\"ts\":");
    (begin, begin + field(line, "\"dur\":"))
}

/// The longest come first, and a smaller count is a prefix.
fn assert_order(trace: &Trace) {
    let all = trace.longest_waits(usize::MAX);
    assert!(all.windows(2).all(|pair| pair[0].ms >= pair[1].ms), "{all:#?}");
    for count in 0..=all.len() {
        assert_eq!(trace.longest_waits(count), all[..count]);
    }
}
