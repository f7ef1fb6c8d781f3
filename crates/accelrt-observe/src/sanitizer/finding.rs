//! What the sanitizer finds, and what would order it.

use std::fmt;
use std::ops::Range;

use accelrt::internal::{NameId, Place};

use crate::sanitizer::clock::Point;
use crate::sanitizer::shadow::{ShadowUse, User};
use crate::sanitizer::timeline::StreamName;

/// What is wrong. The text is the name that reports have.
///
/// ```
/// use accelrt_observe::sanitizer::FindingKind;
/// assert_eq!(FindingKind::MissingRecordStream.to_string(), "missing-record-stream");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FindingKind {
    /// Two tasks use the same bytes, one of them writes, and nothing orders them.
    Race,
    /// As a race; one of the two is the host.
    HostAccess,
    /// A task uses memory that was freed before.
    UseAfterFree,
    /// A free that does not wait for a task, which has the memory's address alone.
    MissingRecordStream,
    /// A stream waits for an event that was never recorded.
    UnrecordedEvent,
    /// A read of bytes that nothing has written.
    UninitializedRead,
}

impl FindingKind {
    /// The name in reports.
    #[doc(hidden)]
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Race => "race",
            Self::HostAccess => "host-access",
            Self::UseAfterFree => "use-after-free",
            Self::MissingRecordStream => "missing-record-stream",
            Self::UnrecordedEvent => "unrecorded-event",
            Self::UninitializedRead => "uninitialized-read",
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One side of a finding.
#[derive(Clone, Debug)]
pub struct FoundUse {
    /// The stream; `None` for the host.
    pub stream: StreamName,
    /// The task's own name; [`NameId::NONE`] without one.
    pub name: NameId,
    /// The address of the function that it calls; else 0.
    pub function: u64,
    /// `copy`, `launch`; `host access` and `free` of the host.
    pub operation: &'static str,
    /// `read`, `write`, `read or write`; empty where no memory is used.
    pub access: &'static str,
    /// Of the buffer's bytes.
    pub range: Range<usize>,
    /// Where the program made the use.
    pub place: Place,
    /// The task, and which of its uses it is; for tests.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests tell uses apart by it"))]
    pub(super) id: Option<(Point, usize)>,
}

/// What tells the uses of findings apart: one that is found again is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum FoundAt {
    /// The finding has no such use.
    Nowhere,
    /// A line of a program, in one of its threads.
    Place(Place),
    /// A named task without a line, as those of a backward pass.
    Task(StreamName, NameId),
    /// A task that no other one is equal to.
    Unknown,
}

impl FoundUse {
    pub(super) fn at(&self) -> FoundAt {
        if self.place.stack.0 != 0 {
            FoundAt::Place(self.place)
        } else if self.name != NameId::NONE {
            FoundAt::Task(self.stream, self.name)
        } else {
            FoundAt::Unknown
        }
    }

    pub(super) fn of(used: &ShadowUse) -> Self {
        let access = match used.writes {
            Some(true) => "write",
            Some(false) => "read",
            None => "read or write",
        };
        let range = used.range.clone();
        Self { access, range, id: Some((used.point, used.nth)), ..Self::of_user(&used.user) }
    }

    pub(super) fn of_user(user: &User) -> Self {
        let User { stream, operation, name, function, place, .. } = *user;
        let operation = operation.name().unwrap_or("host access");
        Self { stream, name, function, ..Self::of_host(operation, place) }
    }

    /// What the host does at a place.
    pub(super) fn of_host(operation: &'static str, place: Place) -> Self {
        let (stream, name, function) = (None, NameId::NONE, 0);
        Self { stream, name, function, operation, access: "", range: 0..0, place, id: None }
    }
}

/// The memory of a finding.
#[derive(Clone, Copy, Debug)]
pub struct FoundBuffer {
    pub address: u64,
    pub bytes: usize,
    /// `None` when the buffer is older than the watch.
    pub made: Option<Place>,
}

/// What the detector found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The kind of fault.
    pub kind: FindingKind,
    /// What was there first: a use, or a free. `None` for waits and reads that miss something.
    pub first: Option<FoundUse>,
    /// The later use.
    pub second: FoundUse,
    /// The buffer, if it is known.
    pub buffer: Option<FoundBuffer>,
    /// How often it was found at these places.
    pub count: u64,
    /// True for what does no harm as far as is known.
    pub is_harmless: bool,
}

/// A stream as texts name it.
struct Named(StreamName);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some((device, id)) => write!(f, "stream {id} of {device}"),
            None => write!(f, "the host"),
        }
    }
}

impl Found {
    /// What would order the two.
    #[must_use]
    pub fn fix(&self) -> String {
        let second = Named(self.second.stream);
        let first = Named(self.first.as_ref().and_then(|first| first.stream));
        match self.kind {
            FindingKind::Race => format!(
                "let {second} wait for {first} between the two: by wait_stream(), or by \
                 wait_event() of an event that is recorded behind the first"
            ),
            FindingKind::HostAccess if self.second.stream.is_none() => format!(
                "let the host wait for {first} before: by synchronize() of it, or of an event that \
                 is recorded behind the task"
            ),
            FindingKind::HostAccess => {
                format!("end the host's access before the task is enqueued on {second}")
            }
            FindingKind::UseAfterFree => {
                "enqueue the task before the buffer is freed, and pass the buffer itself to it, or \
                 call its record_stream()"
                    .to_owned()
            }
            FindingKind::MissingRecordStream => format!(
                "call record_stream() of the buffer with {first} before it is freed, or pass the \
                 buffer itself to the task in place of its address"
            ),
            FindingKind::UnrecordedEvent => format!(
                "record the event before {second} waits for it: a wait is for the latest record at \
                 that moment"
            ),
            FindingKind::UninitializedRead => {
                "write the bytes before: by zeros(), fill_() or copy_()".to_owned()
            }
        }
    }
}
