//! The sanitizer as programs in Rust have it: watches of a runtime, and what they find.

use std::fmt;
use std::ops::Range;

use accelrt::{Device, Runtime, Stream};

use crate::sanitizer::finding::{FindingKind, FoundUse};
use crate::sanitizer::watch::Sanitizer;
use crate::sanitizer::{finding, watch};

/// A watch of a runtime's order, until the drop. Several may be on at once.
///
/// ```
/// use accelrt_observe::sanitizer::{FindingKind, Watch};
///
/// let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
/// let watch = Watch::start(&runtime);
/// let buffer = runtime.empty(8, accelrt::Device::cpu(0))?; // which nothing writes
/// buffer.read_to_vec()?;
/// let findings = watch.findings();
/// assert_eq!(findings[0].kind(), FindingKind::UninitializedRead);
/// assert_eq!(findings[0].second().range(), 0..8);
/// assert_eq!(watch.num_forgotten(), 0);
/// # Ok::<(), accelrt::Error>(())
/// ```
#[must_use = "the drop ends the watch"]
pub struct Watch(Sanitizer);

impl Watch {
    /// Begins a watch. A buffer that is older counts as written.
    pub fn start(runtime: &Runtime) -> Self {
        Self(Sanitizer::begin(runtime))
    }

    /// What was found until now, in the order of the second uses.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        let harmful = self.0.findings(0).into_iter().filter(|found| !found.is_harmless);
        harmful.map(Finding).collect()
    }

    /// How much was forgotten for want of room: 0 when nothing can have been missed.
    #[must_use]
    pub fn num_forgotten(&self) -> u64 {
        self.0.num_forgotten()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("findings", &self.0.num_findings()).finish_non_exhaustive()
    }
}

/// Two uses that nothing orders, or one that misses something. Its text says all of it, in a line
/// each.
///
/// ```
/// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
/// # let watch = accelrt_observe::sanitizer::Watch::start(&runtime);
/// # runtime.empty(8, accelrt::Device::cpu(0))?.read_to_vec()?;
/// let finding = &watch.findings()[0]; // of a buffer of 8 bytes that nothing has written
/// assert!(finding.to_string().starts_with("uninitialized-read: a buffer of 8 bytes at "));
/// assert!(finding.first().is_none());
/// assert_eq!(finding.buffer().unwrap().1, 8);
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Finding(finding::Found);

impl Finding {
    /// What is wrong.
    #[must_use]
    pub fn kind(&self) -> FindingKind {
        self.0.kind
    }

    /// The earlier one: a use, or a free. `None` for waits and reads that miss something.
    #[must_use]
    pub fn first(&self) -> Option<Use<'_>> {
        self.0.first.as_ref().map(Use)
    }

    /// The later one, by the order in which the tasks were enqueued.
    #[must_use]
    pub fn second(&self) -> Use<'_> {
        Use(&self.0.second)
    }

    /// The address and the bytes of the memory; `None` for a wait.
    #[must_use]
    pub fn buffer(&self) -> Option<(u64, usize)> {
        self.0.buffer.map(|buffer| (buffer.address, buffer.bytes))
    }

    /// What would order the two.
    #[must_use]
    pub fn fix(&self) -> String {
        self.0.fix()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.kind())?;
        match self.buffer() {
            Some((address, bytes)) => writeln!(f, "a buffer of {bytes} bytes at {address:#x}")?,
            None => writeln!(f, "no memory")?,
        }
        if let Some(first) = self.first() {
            writeln!(f, "  first:  {first}")?;
        }
        write!(f, "  second: {}\n  fix:    {}", self.second(), self.fix())
    }
}

/// One side of a finding: a task, an access of the host, or a free.
///
/// ```
/// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
/// # let watch = accelrt_observe::sanitizer::Watch::start(&runtime);
/// # runtime.empty(8, accelrt::Device::cpu(0))?.read_to_vec()?;
/// let findings = watch.findings(); // the host reads what nothing has written
/// let used = findings[0].second();
/// assert_eq!((used.stream(), used.access(), used.range()), (None, "read", 0..8));
/// assert!(used.to_string().starts_with("host access reads bytes 0 to 8 on the host, thread "));
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Use<'a>(&'a FoundUse);

impl Use<'_> {
    /// The device and the id of the stream; `None` for the host.
    #[must_use]
    pub fn stream(&self) -> Option<(Device, u64)> {
        self.0.stream
    }

    /// The kernel's name, else the operation: `copy`, `fill`, `launch`, `host access`, `free`.
    #[must_use]
    pub fn name(&self) -> String {
        let own = self.0.name.text();
        if own.is_empty() { self.0.operation.to_owned() } else { own.to_string() }
    }

    /// `read`, `write`, `read or write`; empty where no memory is used.
    #[must_use]
    pub fn access(&self) -> &'static str {
        self.0.access
    }

    /// Of the buffer's bytes.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.0.range.clone()
    }

    /// The name of the thread that enqueued the task; empty for one without a name.
    #[must_use]
    pub fn thread(&self) -> String {
        self.0.place.thread.text().to_string()
    }
}

impl fmt::Display for Use<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Range { start, end }, thread) = (self.range(), self.thread());
        write!(f, "{}", self.name())?;
        let access = match self.access() {
            "" => "",
            "read" => "reads",
            "write" => "writes",
            _ => "reads or writes",
        };
        if !access.is_empty() {
            write!(f, " {access} bytes {start} to {end}")?;
        }
        match self.stream() {
            Some((device, id)) => write!(f, " on {device} stream {id}")?,
            None => write!(f, " on the host")?,
        }
        write!(f, ", thread {}", if thread.is_empty() { "?" } else { &thread })
    }
}

/// Says that foreign code orders `second` behind what `first` has so far. Only watches take notice.
///
/// ```
/// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
/// let device = accelrt::Device::cpu(0);
/// let (ours, theirs) = (runtime.stream(device)?, runtime.stream(device)?);
/// accelrt_observe::sanitizer::ordered(&ours, &theirs);
/// # Ok::<(), accelrt::Error>(())
/// ```
pub fn ordered(first: &Stream, second: &Stream) {
    watch::order(first.core(), second.core());
}
