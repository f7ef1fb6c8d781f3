//! Texts and times as JSON.

use std::io::{Result, Write};

/// Writes a text between quotes.
pub(super) fn write_text(to: &mut impl Write, text: &str) -> Result<()> {
    to.write_all(b"\"")?;
    let mut rest = text;
    while let Some(index) = rest.find(|it: char| it == '"' || it == '\\' || it < ' ') {
        to.write_all(&rest.as_bytes()[..index])?;
        write!(to, "\\u{:04x}", rest.as_bytes()[index])?;
        rest = &rest[index + 1..];
    }
    to.write_all(rest.as_bytes())?;
    to.write_all(b"\"")
}

/// Writes a decimal number without the formatter, which takes several times as long.
pub(super) fn write_number(to: &mut impl Write, mut number: u64) -> Result<()> {
    let mut digits = [0; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return to.write_all(&digits[first..]);
        }
    }
}

/// Writes nanoseconds as microseconds with three decimals.
pub(super) fn write_us(to: &mut impl Write, ns: i64) -> Result<()> {
    if ns < 0 {
        to.write_all(b"-")?;
    }
    let ns = ns.unsigned_abs();
    write_number(to, ns / 1000)?;
    let digits = [100, 10, 1].map(|place| b'0' + (ns / place % 10) as u8);
    to.write_all(&[b'.', digits[0], digits[1], digits[2]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> String {
        let mut bytes = Vec::new();
        write(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn texts_are_escaped_and_times_have_three_decimals() {
        let text = |text| written(|to| write_text(to, text));
        assert_eq!(text("größe"), "\"größe\"");
        assert_eq!(text("a\"b\\c\n"), r#""a\u0022b\u005cc\u000a""#);
        let us = |ns| written(|to| write_us(to, ns));
        let times = [0, 7, 1_234_567, -1_050].map(us);
        assert_eq!(times, ["0.000", "0.007", "1234.567", "-1.050"]);
        let numbers = [0, 10, u64::MAX].map(|it| written(|to| write_number(to, it)));
        assert_eq!(numbers, ["0", "10", "18446744073709551615"]);
    }
}
