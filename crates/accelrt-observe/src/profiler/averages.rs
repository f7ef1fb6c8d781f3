//! The time of each function, kernel, operation and range, added up, and a table of it.

use std::collections::HashMap;
use std::fmt::Write;

use accelrt::internal::TOO_MANY_NAMES;

use crate::profiler::occupancy::ms;
use crate::profiler::timeline::{HostSpan, Timeline};

/// All tasks, all ranges, or all calls of a library, of one name.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KeyAverage {
    /// The name of the function, kernel, callable or range, else the operation: `copy`, `fill`. Of
    /// a call that a library tells of: `mkl::DGEMM`, `onednn::matmul`.
    pub key: String,
    /// True for a range of [`record_function`](super::record_function), false for tasks and calls.
    pub is_range: bool,
    /// The number of tasks, of ranges, or of calls.
    pub count: u64,
    /// The time of the tasks; of a range its time on its thread while no range was there that had
    /// begun later, as those inside of it; of calls what the library says. It is also part of the
    /// task or range that a call was made in.
    pub self_ms: f64,
    /// The time of the tasks; of a range its whole time on its thread; of calls as `self_ms`.
    pub total_ms: f64,
    /// The time of the tasks; of a range the time of the tasks that were enqueued inside of it; of
    /// calls 0.
    pub stream_ms: f64,
    /// The bytes that the tasks copied and filled.
    pub bytes: u64,
}

impl KeyAverage {
    /// The total time by the count.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts are below 2^53")]
    pub fn mean_ms(&self) -> f64 {
        self.total_ms / self.count.max(1) as f64
    }
}

/// The rows of a profile. Waits of streams are no row: see
/// [`Trace::longest_waits`](super::Trace::longest_waits).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct KeyAverages {
    /// The rows, the largest own time first.
    pub rows: Vec<KeyAverage>,
    /// [`Trace::num_dropped_records`](super::Trace::num_dropped_records): what the rows lack.
    pub num_dropped_records: u64,
}

/// What a table is sorted by, the largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SortKey {
    /// [`KeyAverage::self_ms`].
    SelfMs,
    /// [`KeyAverage::total_ms`].
    TotalMs,
    /// [`KeyAverage::mean_ms`].
    MeanMs,
    /// [`KeyAverage::stream_ms`].
    StreamMs,
    /// [`KeyAverage::count`].
    Count,
}

/// The most characters of a name in a table.
const MOST_NAME: usize = 55;

#[derive(Default)]
struct Sums {
    count: u64,
    own_ns: i64,
    total_ns: i64,
    stream_ns: i64,
    bytes: u64,
}

impl KeyAverages {
    pub(super) fn new(timeline: &Timeline) -> Self {
        let mut sums: HashMap<(bool, u32), Sums> = HashMap::new();
        for task in timeline.tasks.iter().filter(|task| !task.is_wait()) {
            let sum = sums.entry((false, task.key)).or_default();
            let ns = task.end - task.start;
            sum.count += 1;
            sum.own_ns += ns;
            sum.total_ns += ns;
            sum.stream_ns += ns;
            sum.bytes += task.bytes;
        }
        for span in &timeline.calls {
            let sum = sums.entry((false, span.key)).or_default();
            sum.count += 1;
            sum.own_ns += span.call.told.duration_ns;
            sum.total_ns += span.call.told.duration_ns;
        }
        add_ranges(timeline, &mut sums);
        add_self_times(timeline, &mut sums);
        let average = |((is_range, key), sum): ((bool, u32), Sums)| KeyAverage {
            key: timeline.key(key).to_string(),
            is_range,
            count: sum.count,
            self_ms: ms(sum.own_ns),
            total_ms: ms(sum.total_ns),
            stream_ms: ms(sum.stream_ns),
            bytes: sum.bytes,
        };
        let rows = sums.into_iter().map(average).collect();
        let mut averages = Self { rows, num_dropped_records: timeline.num_dropped };
        averages.sort(SortKey::SelfMs);
        averages
    }

    /// Sorts the rows, the largest first.
    pub fn sort(&mut self, by: SortKey) {
        let value = |row: &KeyAverage| match by {
            SortKey::SelfMs => row.self_ms,
            SortKey::TotalMs => row.total_ms,
            SortKey::MeanMs => row.mean_ms(),
            SortKey::StreamMs => row.stream_ms,
            #[expect(clippy::cast_precision_loss, reason = "counts are below 2^53")]
            SortKey::Count => row.count as f64,
        };
        let order = |row: &KeyAverage| (row.is_range, row.key.clone());
        self.rows.sort_by(|one, next| {
            value(next).total_cmp(&value(one)).then_with(|| order(one).cmp(&order(next)))
        });
    }

    /// The rows as a text table with torch's columns: each row's own and total time with its share,
    /// the average and the number of calls, and the time of streams where it is sorted by that.
    /// `row_limit` is the most rows; a negative one means all.
    #[must_use]
    pub fn table(&self, sort_by: Option<SortKey>, row_limit: i64) -> String {
        let mut sorted = self.clone();
        sorted.sort(sort_by.unwrap_or(SortKey::SelfMs));
        // Not `sum`, which begins at -0.0.
        let all_ms = self.rows.iter().fold(0.0, |sum, row| sum + row.self_ms);
        let limit = usize::try_from(row_limit).unwrap_or(usize::MAX);
        let has_stream = sort_by == Some(SortKey::StreamMs);
        let mut lines = vec![head(has_stream)];
        lines.extend(sorted.rows.iter().take(limit).map(|row| cells(row, all_ms, has_stream)));
        let width = |column: usize| {
            let widest = lines.iter().map(|line| line[column].chars().count()).max();
            widest.unwrap_or_default().max(12)
        };
        let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
        let rule = widths.iter().map(|width| "-".repeat(*width)).collect::<Vec<_>>().join("  ");
        let mut text = format!("{rule}\n");
        for (index, line) in lines.iter().enumerate() {
            let cells: Vec<_> =
                line.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
            let _ = writeln!(text, "{}", cells.join("  "));
            if index == 0 {
                let _ = writeln!(text, "{rule}");
            }
        }
        let _ = writeln!(text, "{rule}\nSelf time total: {}", time(all_ms));
        if self.num_dropped_records > 0 {
            let dropped = self.num_dropped_records;
            let noun = if dropped == 1 { "record" } else { "records" };
            let _ = writeln!(text, "Not complete: {dropped} {noun} found no room");
        }
        let unnamed = self.rows.iter().filter(|row| row.key == TOO_MANY_NAMES);
        let unnamed: u64 = unnamed.map(|row| row.count).sum();
        if unnamed > 0 {
            let calls = if unnamed == 1 { "call lost its name" } else { "calls lost their names" };
            let row = format!("the process has too many names; see the row {TOO_MANY_NAMES}");
            let _ = writeln!(text, "Not complete: {unnamed} {calls}, because {row}");
        }
        text
    }
}

fn head(has_stream: bool) -> Vec<String> {
    let names = ["Name", "Self %", "Self", "Total %", "Total", "Time avg", "# of Calls"];
    let stream = has_stream.then_some("Stream");
    names.into_iter().chain(stream).map(str::to_owned).collect()
}

fn cells(row: &KeyAverage, all_ms: f64, has_stream: bool) -> Vec<String> {
    let share = |ms: f64| {
        let percent = if all_ms > 0.0 { ms / all_ms * 100.0 } else { 0.0 };
        format!("{percent:.2}%")
    };
    let mut cells = vec![
        shortened(&row.key),
        share(row.self_ms),
        time(row.self_ms),
        share(row.total_ms),
        time(row.total_ms),
        time(row.mean_ms()),
        row.count.to_string(),
    ];
    cells.extend(has_stream.then(|| time(row.stream_ms)));
    cells
}

/// A name on one line, of at most as many characters as torch's tables show.
fn shortened(name: &str) -> String {
    let mut shown = String::new();
    let mut room = MOST_NAME;
    for character in name.chars() {
        let text = if character.is_control() {
            character.escape_debug().to_string()
        } else {
            character.to_string()
        };
        let length = text.chars().count();
        if length > room {
            shown = shown.chars().take(MOST_NAME - 1).collect();
            shown.push('…');
            break;
        }
        room -= length;
        shown.push_str(&text);
    }
    shown
}

/// A time in the unit that suits it, with three decimals, as torch's tables have it.
fn time(ms: f64) -> String {
    match ms {
        1e3.. => format!("{:.3}s", ms / 1e3),
        1.0.. => format!("{ms:.3}ms"),
        _ => format!("{:.3}us", ms * 1e3),
    }
}

/// Adds the ranges of each thread, and the tasks that were enqueued inside of them.
fn add_ranges(timeline: &Timeline, sums: &mut HashMap<(bool, u32), Sums>) {
    // Two lists in one order: of a thread's ranges those that contain others come first.
    let mut calls: Vec<_> = timeline.tasks.iter().filter(|task| !task.is_wait()).collect();
    calls.retain(|task| task.enqueued.is_some());
    let place = |task: &crate::profiler::timeline::ProfiledTask| {
        task.enqueued.map(|call| (call.thread, call.start))
    };
    calls.sort_by_key(|task| place(task));
    let mut calls = calls.into_iter().peekable();
    let mut open: Vec<&HostSpan> = Vec::new();
    let mut add_calls =
        |open: &mut Vec<&HostSpan>, until: (u32, i64), sums: &mut HashMap<_, Sums>| {
            while let Some(task) = calls.next_if(|task| place(task) < Some(until)) {
                let Some((thread, start)) = place(task) else { continue };
                let is_inside = |range: &&HostSpan| range.thread == thread && range.end >= start;
                open.retain(is_inside);
                for range in open.iter().filter(|range| range.start <= start) {
                    sums.entry((true, range.key)).or_default().stream_ns += task.end - task.start;
                }
            }
        };
    for range in &timeline.ranges {
        add_calls(&mut open, (range.thread, range.start), sums);
        open.retain(|outer| outer.thread == range.thread && outer.end > range.start);
        let ns = range.end - range.start;
        let sum = sums.entry((true, range.key)).or_default();
        sum.count += 1;
        sum.total_ns += ns;
        open.push(range);
    }
    add_calls(&mut open, (u32::MAX, i64::MAX), sums);
}

/// Adds to each range the time of its thread in which no range was there that had begun later.
/// Those of an event loop's tasks need not contain each other.
fn add_self_times(timeline: &Timeline, sums: &mut HashMap<(bool, u32), Sums>) {
    let mut add = |range: &HostSpan, ns: i64| {
        sums.entry((true, range.key)).or_default().own_ns += ns;
    };
    for of_thread in timeline.ranges.chunk_by(|one, next| one.thread == next.thread) {
        let (mut open, mut since) = (Vec::<&HostSpan>::new(), i64::MIN);
        let ends = [i64::MAX].into_iter();
        let starts = of_thread.iter().map(|range| range.start).skip(1).chain(ends);
        for (range, until) in of_thread.iter().zip(starts) {
            since = since.max(range.start);
            open.push(range);
            // The last one has the time up to its end; then it is the turn of the one before.
            while let Some(last) = open.pop() {
                let end = last.end.min(until);
                add(last, (end - since).max(0));
                since = since.max(end);
                if last.end > until {
                    open.push(last);
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use accelrt::internal::{Label, LogRecord, NameId, OperationKind, RecordKind, Taken};

    use super::*;

    fn row(key: &str, count: u64, self_ms: f64, total_ms: f64) -> KeyAverage {
        let key = key.to_owned();
        KeyAverage { key, is_range: false, count, self_ms, total_ms, stream_ms: 0.0, bytes: 0 }
    }

    #[test]
    fn a_table_has_torchs_columns_and_as_many_rows_as_are_asked_for() {
        let rows = averages(vec![
            row("resize", 4, 3.0, 3.0),
            row("load", 1, 1.0, 1500.0),
            row("fill", 2, 0.001, 0.001),
        ]);
        let table = rows.table(Some(SortKey::TotalMs), 2);
        let lines: Vec<_> = table.lines().collect();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let head = "Name Self % Self Total % Total Time avg # of Calls";
        assert_eq!(words(lines[1]).join(" "), head);
        let load = ["load", "24.99%", "1.000ms", "37490.63%", "1.500s", "1.500s", "1"];
        assert_eq!(words(lines[3]), load);
        assert_eq!(words(lines[4])[..3], ["resize", "74.98%", "3.000ms"]);
        assert_eq!((lines.len(), lines[6]), (7, "Self time total: 4.001ms"));
        assert!(rows.table(None, -1).contains("1.000us"));
    }

    fn averages(rows: Vec<KeyAverage>) -> KeyAverages {
        KeyAverages { rows, num_dropped_records: 0 }
    }

    #[test]
    fn a_table_without_rows_has_no_time_and_no_minus() {
        let table = averages(Vec::new()).table(None, 10);
        assert!(table.ends_with("\nSelf time total: 0.000us\n"), "{table}");
    }

    #[test]
    fn a_table_says_how_many_records_it_lacks() {
        let complete = averages(vec![row("load", 1, 1.0, 1.0)]);
        assert!(!complete.table(None, 10).contains("records"));
        let table = KeyAverages { num_dropped_records: 12, ..complete }.table(None, 10);
        assert!(table.ends_with("Not complete: 12 records found no room\n"));
    }

    #[test]
    fn a_table_says_how_many_calls_lost_their_names() {
        let table = averages(vec![row("load", 1, 2.0, 2.0), row(TOO_MANY_NAMES, 7, 1.0, 1.0)]);
        let table = table.table(None, 1);
        assert!(!table.contains("\n(too many names)  "), "{table}");
        let last = table.lines().last().unwrap();
        assert!(last.starts_with("Not complete: 7 calls lost their names"), "{table}");
    }

    #[test]
    fn a_name_is_one_line_of_a_table_and_leaves_room_for_the_rest() {
        let (long, lines) = ("n".repeat(500), "two\nlines\u{1b}");
        let table = averages(vec![row(&long, 1, 2.0, 2.0), row(lines, 1, 1.0, 1.0)]);
        let table = table.table(None, 10);
        assert!(table.lines().all(|line| line.chars().count() <= 55 + 6 * 14), "{table}");
        assert!(table.contains(&format!("\n{}…  ", "n".repeat(54))), "{table}");
        assert!(table.contains(" two\\nlines\\u{1b}  ") && table.lines().count() == 7, "{table}");
    }

    #[test]
    fn a_table_shows_the_time_that_it_is_sorted_by() {
        let stream_ms = 2.0;
        let rows = averages(vec![KeyAverage { stream_ms, ..row("load", 1, 1.0, 1.0) }]);
        let table = rows.table(Some(SortKey::StreamMs), 10);
        let lines: Vec<_> = table.lines().collect();
        assert!(lines[1].ends_with("Stream") && lines[3].ends_with("  2.000ms"), "{table}");
        assert!(!rows.table(None, 10).contains("Stream"));
    }

    #[test]
    fn ranges_that_overlap_share_the_time_of_their_thread() {
        // Tasks of an event loop: ranges of one thread that do not contain each other. At each
        // moment the time belongs to the one that has begun last.
        let range = |name, start: u64, end: u64| LogRecord {
            label: Label::of(NameId::of(name)),
            thread: 1,
            start,
            end,
            ..LogRecord::new(RecordKind::Range, OperationKind::Internal)
        };
        let records = vec![
            range("first", 0, 10),
            range("second", 5, 100),
            range("third", 8, 20),
            range("outer", 200, 300),
            range("inner", 210, 220),
            range("inner", 230, 300),
        ];
        let taken = Taken { records, dropped: 0 };
        let averages = KeyAverages::new(&Timeline::new(taken, Vec::new(), BTreeMap::new()));
        let mut rows = averages.rows;
        rows.sort_by(|one, next| one.key.cmp(&next.key));
        let times: Vec<_> = rows.iter().map(|row| (&*row.key, row.self_ms, row.total_ms)).collect();
        let expected = [
            ("first", ms(5), ms(10)),
            ("inner", ms(80), ms(80)),
            ("outer", ms(20), ms(100)),
            ("second", ms(83), ms(95)),
            ("third", ms(12), ms(12)),
        ];
        assert_eq!(times, expected);
    }
}
