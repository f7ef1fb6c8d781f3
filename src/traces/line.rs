//! Lines of a table of events: `t,op,id,size,stream`.

use crate::memory::allocator::replay::Operation;

/// The first line of a table.
pub(super) const HEADER: &str = "t,op,id,size,stream";

/// Numbers are below it: what a signed word holds, as other programs that read tables use.
const LIMIT: u64 = 1 << 63;
/// Any number of so many digits is below `LIMIT`.
const SAFE_DIGITS: usize = 18;
/// How much of a wrong line or value its error shows.
const SHOWN_BYTES: usize = 80;

/// Reads the line at the beginning of `text`, up to its newline; returns its event and how many
/// bytes it has. `None` for a line that is wrong or unusual, which [`event_of_line`] knows more of.
#[inline]
pub(super) fn event_at(text: &[u8]) -> Option<(Operation, usize)> {
    let (_, at) = number(text, 0, b',')?;
    let op = *text.get(at)?;
    if *text.get(at + 1)? != b',' {
        return None;
    }
    let (id, at) = number(text, at + 2, b',')?;
    let (bytes, at) = number(text, at, b',')?;
    let (stream, at) = number(text, at, b'\n')?;
    match op {
        b'a' => Some((Operation::Allocate { id, bytes: usize::try_from(bytes).ok()?, stream }, at)),
        b'f' => Some((Operation::Free { id }, at)),
        _ => None,
    }
}

/// A number of at most `SAFE_DIGITS` digits with `end` behind it, and the place behind that.
#[inline]
fn number(text: &[u8], begin: usize, end: u8) -> Option<(u64, usize)> {
    let (mut value, mut at) = (0, begin);
    loop {
        let byte = *text.get(at)?;
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            let is_right = byte == end && at > begin && at - begin <= SAFE_DIGITS;
            return is_right.then_some((value, at + 1));
        }
        value = u64::wrapping_add(u64::wrapping_mul(value, 10), u64::from(digit));
        at += 1;
    }
}

/// Reads a whole line without its newline. The error says what is wrong, to stand behind the number
/// of the line.
pub(super) fn event_of_line(line: &[u8]) -> Result<Operation, String> {
    let line = without_return(line);
    check_ascii(line)?;
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b',').collect();
    let &[time, op @ (b"a" | b"f"), id, size, stream] = fields.as_slice() else {
        let shown = quoted(line);
        return Err(format!(" is {shown}, not five values as {HEADER}, with op a or f"));
    };
    let whole = |field: &[u8]| {
        let digits =
            std::str::from_utf8(field).ok().filter(|_| field.iter().all(u8::is_ascii_digit));
        let value = digits.and_then(|digits| digits.parse().ok()).filter(|value| *value < LIMIT);
        value.ok_or_else(|| format!(" has {} for a whole number of at least 0", quoted(field)))
    };
    whole(time)?;
    let (id, bytes, stream) = (whole(id)?, whole(size)?, whole(stream)?);
    let bytes = usize::try_from(bytes).map_err(|_| format!(" has {} for a size", quoted(size)))?;
    Ok(if op == b"a" { Operation::Allocate { id, bytes, stream } } else { Operation::Free { id } })
}

/// Checks the first line, without its newline.
pub(super) fn check_header(line: &[u8]) -> Result<(), String> {
    let line = without_return(line);
    check_ascii(line)?;
    if line == HEADER.as_bytes() {
        return Ok(());
    }
    Err(format!(" is {}, not '{HEADER}'", quoted(line)))
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn check_ascii(line: &[u8]) -> Result<(), String> {
    match line.iter().position(|byte| !byte.is_ascii()) {
        Some(place) => Err(format!(": it is no table, byte {place} is no ASCII")),
        None => Ok(()),
    }
}

/// The beginning of what stands there, in one line whatever it is.
fn quoted(text: &[u8]) -> String {
    let shown = &text[..text.len().min(SHOWN_BYTES)];
    format!("'{}'", shown.escape_ascii())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::numbers::Numbers;
    use crate::seed::seed;

    #[test]
    fn both_parsers_read_the_same_or_the_short_one_leaves_it_to_the_other() {
        let mut numbers = Numbers::new(seed());
        let parts: [&[u8]; 14] = [
            b"0",
            b"1",
            b"9",
            b"17",
            b"999999999999999999",
            b"9223372036854775807",
            b"9223372036854775808",
            b"99999999999999999999",
            b"a",
            b"f",
            b",",
            b"-1",
            b" ",
            b"\r",
        ];
        let mut read = 0;
        for _ in 0..20_000 {
            let mut line: Vec<u8> = b"0,a,1,5,0".to_vec();
            for _ in 0..numbers.below(3) {
                let part = parts[numbers.below(parts.len())];
                let place = numbers.below(line.len());
                let end = (place + numbers.below(3)).min(line.len());
                line.splice(place..end, part.iter().copied());
            }
            let whole = event_of_line(&line);
            let ended = [&line[..], b"\n"].concat();
            let Some((event, length)) = event_at(&ended) else { continue };
            assert_eq!((Ok(event), length), (whole, ended.len()), "{}", line.escape_ascii());
            read += 1;
        }
        assert!(read > 1_000, "{read}");
    }

    #[test]
    fn a_usual_line_is_read_at_once() {
        let event = Operation::Allocate { id: 7, bytes: 4096, stream: 2 };
        assert_eq!(event_at(b"12,a,7,4096,2\nrest"), Some((event, 14)));
        assert_eq!(event_at(b"12,f,7,4096,2\n"), Some((Operation::Free { id: 7 }, 14)));
        assert_eq!(event_at(b"12,a,7,4096,2"), None, "its end is not there yet");
        assert_eq!(event_at(b"0,a,3,9223372036854775808,0\n"), None, "it is above the limit");
    }

    #[test]
    fn numbers_go_up_to_the_limit_and_leading_zeros_change_nothing() {
        let bytes = usize::try_from(LIMIT - 1).unwrap();
        let event = Operation::Allocate { id: 3, bytes, stream: 0 };
        assert_eq!(event_of_line(b"0,a,0003,9223372036854775807,0\r"), Ok(event));
        let wrong = event_of_line(b"0,a,3,9223372036854775808,0").unwrap_err();
        assert_eq!(wrong, " has '9223372036854775808' for a whole number of at least 0");
    }

    #[test]
    fn each_number_of_a_line_is_checked_whether_it_counts_or_not() {
        for line in ["x,a,1,5,0", "0,a,x,5,0", "0,a,1,x,0", "0,a,1,5,x", "0,f,1,x,0", "0,f,1,5,x"] {
            assert_eq!(event_at(format!("{line}\n").as_bytes()), None, "{line}");
            let wrong = event_of_line(line.as_bytes()).unwrap_err();
            assert_eq!(wrong, " has 'x' for a whole number of at least 0", "{line}");
        }
    }

    #[test]
    fn what_is_shown_of_a_wrong_line_is_one_short_line() {
        let error = event_of_line(&[b'\0'; 1000]).unwrap_err();
        assert!(error.starts_with(r" is '\x00\x00") && error.len() < 450, "{error}");
        let error = check_header("t,op,\u{fe}".as_bytes()).unwrap_err();
        assert_eq!(error, ": it is no table, byte 5 is no ASCII");
    }
}
