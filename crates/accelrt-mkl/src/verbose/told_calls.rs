//! The calls of printed lines, as profiles have them: with keys, and with times.
//!
//! A line says how long its call took, and not when: it is printed at the call's end and read soon
//! after. So a call ends when its line is read, and of lines that are read at once each call ends
//! where the next one of its library begins. The timestamps that oneDNN prints on request
//! (`ONEDNN_VERBOSE_TIMESTAMP=1`) are the beginnings of its calls, and are used where they are.

use std::time::{SystemTime, UNIX_EPOCH};

use accelrt_observe::internal::library_calls::ToldCall;

use crate::verbose::library::VerboseLibrary;
use crate::verbose::records::VerboseRecord;

/// The calls of lines that were read together, at `now`, in the order of the lines. Calls of the
/// runtime itself are left out: profiles have its tasks.
pub(super) fn of(records: Vec<VerboseRecord>, now: SystemTime) -> Vec<ToldCall> {
    // The time from the last call's begin until now, of each library.
    let mut behind_ns = [0; 2];
    let mut calls: Vec<_> = records
        .into_iter()
        .rev()
        .filter_map(|record| {
            let prefix = prefix(record.library)?;
            let duration_ns = whole_ns(record.ms);
            let behind_ns = &mut behind_ns[usize::from(record.library == VerboseLibrary::OneDnn)];
            let started_ns = began_before_ns(&record, now).unwrap_or(*behind_ns + duration_ns);
            *behind_ns = started_ns;
            Some(ToldCall {
                library: record.library.name(),
                key: format!("{prefix}::{}", record.name),
                duration_ns,
                age_ns: started_ns - duration_ns,
                fields: record.fields,
            })
        })
        .collect();
    calls.reverse();
    calls
}

/// What the keys of a library's calls begin with.
fn prefix(library: VerboseLibrary) -> Option<&'static str> {
    match library {
        VerboseLibrary::Mkl => Some("mkl"),
        VerboseLibrary::OneDnn => Some("onednn"),
        VerboseLibrary::Accelrt => None,
    }
}

/// The time from a call's begin until now, by the timestamp of its line: milliseconds since 1970.
fn began_before_ns(record: &VerboseRecord, now: SystemTime) -> Option<i64> {
    let (_, stamp) = record.fields.iter().find(|(name, _)| name == "timestamp")?;
    let (whole, fraction) = stamp.split_once('.').unwrap_or((stamp, "0"));
    let fraction: f64 = format!("0.{fraction}").parse().ok()?;
    let since = i64::try_from(now.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()?;
    // In two parts: as one number of this size it would be exact to a tenth of a microsecond only.
    let began_ns = whole.parse::<i64>().ok()?.checked_mul(1_000_000)? + whole_ns(fraction);
    since.checked_sub(began_ns)
}

#[expect(clippy::cast_possible_truncation, reason = "saturates at 292 years")]
fn whole_ns(ms: f64) -> i64 {
    (ms * 1e6).round() as i64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::verbose::records::{VerboseLine, VerboseParser};

    /// The keys of the calls of these lines, with their beginnings and ends before now.
    fn calls(lines: &[&str], now: SystemTime) -> Vec<(String, i64, i64)> {
        let mut parser = VerboseParser::default();
        let records = lines.iter().flat_map(|line| parser.read(line));
        let records = records.filter_map(VerboseLine::call);
        let calls = of(records.collect(), now).into_iter();
        calls.map(|it| (it.key, it.age_ns + it.duration_ns, it.age_ns)).collect()
    }

    const MATMUL: &str = "exec,cpu,matmul,jit,undef,md,,,64x64";

    #[test]
    fn lines_that_are_read_at_once_stand_behind_each_other_and_the_last_one_ends_now() {
        let matmul = format!("onednn_verbose,{MATMUL},0.003");
        let lines =
            ["MKL_VERBOSE DGEMM(1) 2us", &matmul, "MKL_VERBOSE SGEMM(1) 5us", "other", &matmul];
        let told = calls(&lines, UNIX_EPOCH);
        let expected = [
            ("mkl::DGEMM", 7000, 5000),
            ("onednn::matmul", 6000, 3000),
            ("mkl::SGEMM", 5000, 0),
            ("onednn::matmul", 3000, 0),
        ];
        assert_eq!(told, expected.map(|(key, start, end)| (key.to_owned(), start, end)));
    }

    #[test]
    fn a_timestamp_is_the_begin_of_its_call() {
        let now = UNIX_EPOCH + Duration::from_nanos(1_795_290_250_653_610_500);
        let line = format!("onednn_verbose,1795290250653.600100,{MATMUL},0.002");
        assert_eq!(calls(&[&line], now), [("onednn::matmul".to_owned(), 10_400, 8_400)]);
    }

    #[test]
    fn the_runtimes_own_lines_tell_profiles_of_no_call() {
        assert_eq!(calls(&["accelrt_verbose,cpu,0,1,fill,64,0.5"], UNIX_EPOCH), []);
    }
}
