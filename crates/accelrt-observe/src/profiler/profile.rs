//! A profile from its start to its end, the trace that it makes, and users' ranges.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::marker::PhantomData;
use std::path::Path;
use std::time::{Duration, Instant};

use accelrt::internal::{
    Keeps, Label, LogRecord, MemoryWatch, NameId, OperationKind, ProcessSubscription, RecordKind,
    TaskWatch, Wants, fork, now, process_log as process,
};
use accelrt::{Device, Runtime};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::profiler::averages::KeyAverages;
use crate::profiler::library_calls::CallSubscription;
use crate::profiler::memory::MemoryBytes;
use crate::profiler::occupancy::{DeviceUse, StreamUse};
use crate::profiler::timeline::Timeline;
use crate::profiler::waits::LongWait;
use crate::profiler::{chrome_trace, memory, occupancy, waits};

/// The default maximum number of records: one GiB.
const MOST_RECORDS: usize = 1 << 24;

/// The time between two checks whether devices have finished their tasks.
const PERIOD: Duration = Duration::from_micros(200);

/// Records what the streams of a runtime do, until [`Profile::stop`].
#[must_use = "the drop ends the profile"]
pub struct Profile {
    watch: TaskWatch,
    subscription: ProcessSubscription,
    calls: CallSubscription,
    /// When the subscription began. The times of library calls count from here.
    origin: u64,
    memory: Option<MemoryProfile>,
}

/// What a profile records.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProfileOptions {
    /// The maximum number of records, by default 16 million, which take one GiB. A task takes two
    /// records, an allocation one, and its free one or two. [`Trace::num_dropped_records`] counts
    /// the records above the maximum.
    pub most_records: usize,
    /// True to record the bytes that devices' allocators have in use and reserved. Requests and
    /// frees take a slower path meanwhile. False by default.
    pub has_memory: bool,
}

impl Default for ProfileOptions {
    fn default() -> Self {
        Self { most_records: MOST_RECORDS, has_memory: false }
    }
}

/// The part of a profile that is about memory.
struct MemoryProfile {
    recording: MemoryWatch,
    at_begin: BTreeMap<Device, MemoryBytes>,
}

impl Profile {
    /// Starts a profile. For a task that was enqueued before the start and runs after it, the
    /// profile contains the times but not the call that enqueued the task.
    pub fn start(runtime: &Runtime) -> Self {
        Self::with_options(runtime, &ProfileOptions::default())
    }

    /// As [`Profile::start`], with options.
    pub fn with_options(runtime: &Runtime, options: &ProfileOptions) -> Self {
        let ProfileOptions { most_records, has_memory } = *options;
        let of_memory = if has_memory { Wants::MEMORY } else { Wants::RANGES };
        let wants = Wants::TASKS.and(Wants::WAITS).and(Wants::RANGES).and(of_memory);
        let calls = CallSubscription::begin(most_records);
        let memory = has_memory.then(|| MemoryProfile {
            recording: runtime.log_memory(),
            at_begin: memory::at_begin(runtime),
        });
        let subscription =
            process::subscribe(wants, Some(runtime.id()), most_records, Keeps::Oldest);
        let origin = now();
        Self { watch: runtime.log_tasks(), subscription, calls, origin, memory }
    }

    /// Ends the profile. Does not wait for tasks, and leaves out those that have not ended on their
    /// device. Synchronise before this call to include them.
    #[must_use]
    pub fn stop(self) -> Trace {
        let Self { watch, subscription, calls, origin, memory } = self;
        drop(watch);
        let at_begin = memory.map(|MemoryProfile { recording, at_begin }| {
            drop(recording);
            at_begin
        });
        let mut taken = subscription.take();
        let (calls, dropped) = calls.take(origin);
        taken.dropped += dropped;
        Trace { timeline: Timeline::new(taken, calls, at_begin.unwrap_or_default()) }
    }

    /// As [`Profile::stop`], but first waits until the devices have finished all submitted tasks,
    /// for at most `limit`.
    pub(crate) fn stop_after_devices(self, limit: Duration) -> Trace {
        let end = Instant::now() + limit;
        while process::has_unfinished_device_tasks() && Instant::now() < end {
            std::thread::sleep(PERIOD);
        }
        self.stop()
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile").finish_non_exhaustive()
    }
}

/// What a profile recorded.
///
/// ```
/// use accelrt::{Config, Device, Runtime};
/// use accelrt_observe::profiler::{Profile, SortKey};
///
/// let runtime = Runtime::new(Config::default())?;
/// let stream = runtime.stream(Device::cpu(0))?;
/// let profile = Profile::start(&runtime);
/// stream.enqueue(|| ())?;
/// stream.synchronize()?;
/// let trace = profile.stop();
/// assert!(!trace.is_empty());
/// assert_eq!((trace.num_skipped_tasks(), trace.num_dropped_records()), (0, 0));
/// println!("{}", trace.key_averages().table(Some(SortKey::Count), 10));
/// println!("{:?} {:?} {:?}", trace.streams(), trace.devices(), trace.longest_waits(5));
/// trace.export_chrome_trace(std::env::temp_dir().join("example.json.gz")).unwrap();
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Debug)]
pub struct Trace {
    timeline: Timeline,
}

impl Trace {
    /// The time of each function, kernel, operation and range, the largest first.
    #[must_use]
    pub fn key_averages(&self) -> KeyAverages {
        KeyAverages::new(&self.timeline)
    }

    /// How busy each stream was.
    #[must_use]
    pub fn streams(&self) -> Vec<StreamUse> {
        occupancy::streams(&self.timeline)
    }

    /// How busy each device was, and how much its streams overlapped.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceUse> {
        occupancy::devices(&self.timeline)
    }

    /// The longest waits of streams and threads, with what they waited for.
    #[must_use]
    pub fn longest_waits(&self, count: usize) -> Vec<LongWait> {
        waits::longest(&self.timeline, count)
    }

    /// True when no task, range, wait or library call occurred during the profile. Skipped tasks
    /// and dropped records count as well.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.timeline.is_empty()
    }

    /// The number of tasks that failed streams skipped.
    #[must_use]
    pub fn num_skipped_tasks(&self) -> u64 {
        self.timeline.num_skipped
    }

    /// The number of records above the maximum, which were dropped: 0 in a complete profile.
    #[must_use]
    pub fn num_dropped_records(&self) -> u64 {
        self.timeline.num_dropped
    }

    /// Writes the trace in the format of Chrome's trace viewer, which Perfetto opens: streams and
    /// threads of the host as tracks, arrows from a record to the waits for it and from an enqueue
    /// to its task. Replaces the file. A name that ends in `.gz` has it packed by gzip.
    pub fn export_chrome_trace(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let is_packed = path.as_ref().extension().is_some_and(|ending| ending == "gz");
        let file = File::create(path)?;
        if !is_packed {
            let mut file = BufWriter::with_capacity(1 << 20, file);
            self.write_chrome_trace(&mut file)?;
            return file.flush();
        }
        let mut packed = GzEncoder::new(file, Compression::fast());
        let mut buffer = BufWriter::with_capacity(1 << 18, &mut packed);
        self.write_chrome_trace(&mut buffer)?;
        buffer.flush()?;
        drop(buffer);
        packed.finish().map(drop)
    }

    /// As [`Trace::export_chrome_trace`], to a writer.
    pub fn write_chrome_trace(&self, to: &mut impl Write) -> io::Result<()> {
        chrome_trace::write(&self.timeline, to)
    }
}

/// A range of this thread's time with a name, for every profile that is on: see
/// [`record_function`].
#[derive(Debug)]
#[must_use = "the drop ends the range"]
pub struct RecordedRange {
    /// `None` when no profile was on at the begin.
    begun: Option<OpenRange>,
    /// The range belongs to its thread.
    thread: PhantomData<*const ()>,
}

/// Begins a range, which ends with its drop, on the same thread.
pub fn record_function(name: &str) -> RecordedRange {
    RecordedRange { begun: begin_range(name), thread: PhantomData }
}

impl Drop for RecordedRange {
    fn drop(&mut self) {
        if let Some(begun) = self.begun {
            begun.end();
        }
    }
}

/// A range that has begun.
#[derive(Clone, Copy, Debug)]
pub struct OpenRange {
    name: NameId,
    start: u64,
}

/// Begins a range; `None` while no profile is on.
#[must_use]
pub fn begin_range(name: &str) -> Option<OpenRange> {
    // In a forked child a thread that it lacks may hold the lock of the names.
    let is_wanted = process::is_wanted(Wants::RANGES) && !fork::is_child();
    is_wanted.then(|| OpenRange { name: NameId::of(name), start: now() })
}

impl OpenRange {
    /// Ends the range. The thread is the one that began it.
    pub fn end(self) {
        let Self { name, start } = self;
        let record = LogRecord::new(RecordKind::Range, OperationKind::Internal);
        process::write(&LogRecord { label: Label::of(name), start, end: now(), ..record });
    }
}
