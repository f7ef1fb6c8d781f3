//! Prints one line per executed task of the global runtime at verbose level 1.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

use accelrt::Runtime;
use accelrt::internal::{LockRank, Mutex, TaskReport, TaskWatch, fork};

/// Starts the lines, or stops them at level 0. Without a runtime there are no tasks to print. The
/// call creates none: a backend that is registered later would be missing in it. A forked child
/// executes no task, and a thread that it lacks may hold the lock.
pub fn set(level: i32) {
    static LINES: Mutex<Option<TaskWatch>> = Mutex::new(LockRank::Runtime, None);
    let Some(runtime) = Runtime::existing_of_process().filter(|_| !fork::is_child()) else {
        return;
    };
    let mut lines = LINES.lock();
    if level == 0 {
        *lines = None;
    } else {
        lines.get_or_insert_with(|| runtime.watch_tasks(print));
    }
}

/// Prints a line in one write, so that lines of several threads do not mix.
fn print(report: &TaskReport) {
    // The result is ignored: when standard output is closed, the line is lost.
    let _ = write(line(report).as_bytes());
}

/// Writes to descriptor 1 without the lock of [`io::stdout`]: a thread that waits for the task may
/// hold this lock.
fn write(text: &[u8]) -> io::Result<()> {
    File::from(io::stdout().as_fd().try_clone_to_owned()?).write_all(text)
}

fn line(report: &TaskReport) -> String {
    let TaskReport { record, details, time } = report;
    let Some(device) = record.device else { return String::new() };
    let (kind, index, stream_id) = (device.kind(), device.index(), record.stream_id);
    let (what, bytes) = (record.operation.name().unwrap_or_default(), details.bytes);
    let ms = time.as_secs_f64() * 1e3;
    format!("accelrt_verbose,{kind},{index},{stream_id},{what},{bytes},{ms:.6}\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use accelrt::Device;
    use accelrt::internal::{Details, LogRecord, OperationKind, RecordKind};

    use super::*;

    #[test]
    fn a_line_has_kind_device_stream_action_bytes_and_milliseconds() {
        let time = Duration::from_nanos(12_345);
        let record = LogRecord::new(RecordKind::Ended, OperationKind::Copy);
        let record = LogRecord { device: Some(Device::cpu(1)), stream_id: 7, ..record };
        let details = Details { bytes: 4096, ..Details::default() };
        let report = TaskReport { record, details, time };
        assert_eq!(line(&report), "accelrt_verbose,cpu,1,7,copy,4096,0.012345\n");
    }
}
