//! One flag value: from text to its type, with gflags' rules.

use std::time::Duration;

use super::table::Kind;

/// Longest duration that is accepted. It is far beyond any use, and small enough that adding it to a clock in
/// milliseconds cannot overflow.
const MAX_DURATION_MS: u64 = 100 * 365 * 24 * 3_600_000;

/// A value of a flag, parsed as its kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(String),
    Duration(Duration),
}

impl Value {
    /// Parses `text` as a value of this kind; the error names what would be accepted.
    pub fn parse(kind: Kind, text: &str) -> Result<Value, &'static str> {
        match kind {
            Kind::Bool => parse_bool(text)
                .map(Value::Bool)
                .ok_or("true, false, t, f, yes, no, y, n, 1 or 0 is accepted"),
            Kind::Int32 => signed(text, i64::from(i32::MIN), i64::from(i32::MAX))
                .ok_or("a whole number from -2147483648 to 2147483647 is accepted"),
            Kind::Int64 => signed(text, i64::MIN, i64::MAX).ok_or("a whole 64-bit number is accepted"),
            Kind::Uint32 => {
                unsigned(text, u64::from(u32::MAX)).ok_or("a whole number from 0 to 4294967295 is accepted")
            }
            Kind::Uint64 => {
                unsigned(text, u64::MAX).ok_or("a whole number from 0 to 18446744073709551615 is accepted")
            }
            Kind::Double => text.trim_start().parse().map(Value::Double).map_err(|_| "a number is accepted"),
            Kind::Text => Ok(Value::Text(text.to_owned())),
            Kind::Duration => parse_duration(text).map(Value::Duration),
        }
    }
}

fn parse_bool(text: &str) -> Option<bool> {
    let is = |words: [&str; 5]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is(["true", "t", "yes", "y", "1"]) {
        Some(true)
    } else if is(["false", "f", "no", "n", "0"]) {
        Some(false)
    } else {
        None
    }
}

fn signed(text: &str, min: i64, max: i64) -> Option<Value> {
    let text = text.trim_start();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let magnitude = i128::from(magnitude(digits)?);
    let number = if negative { -magnitude } else { magnitude };
    i64::try_from(number).ok().filter(|number| (min..=max).contains(number)).map(Value::Int)
}

fn unsigned(text: &str, max: u64) -> Option<Value> {
    let text = text.trim_start();
    magnitude(text.strip_prefix('+').unwrap_or(text)).filter(|number| *number <= max).map(Value::Uint)
}

/// Parses decimal digits (a leading zero does not mean octal), or hexadecimal ones behind `0x`.
fn magnitude(digits: &str) -> Option<u64> {
    let (digits, radix) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None => (digits, 10),
    };
    // `from_str_radix` accepts a sign of its own, which would let "--5" through.
    if !digits.starts_with(|first: char| first.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

/// Parses a whole number of milliseconds, or one with `ms`, `s`, `m`, `h` in either case, with optional blanks around
/// it.
fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    const ACCEPTED: &str =
        "milliseconds, or a whole number with ms, s, m or h, such as 10000, 500ms or 10m, is accepted";
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(ACCEPTED),
    };
    if number.is_empty() {
        return Err(ACCEPTED);
    }
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(scale))
        .filter(|ms| *ms <= MAX_DURATION_MS)
        .map(Duration::from_millis)
        .ok_or("at most 876000h (a hundred years) is accepted")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_as_gflags_reads_them() {
        for text in ["true", "t", "yes", "y", "1", "TRUE", "Yes"] {
            assert_eq!(Value::parse(Kind::Bool, text), Ok(Value::Bool(true)), "{text}");
        }
        for text in ["false", "f", "no", "n", "0", "F"] {
            assert_eq!(Value::parse(Kind::Bool, text), Ok(Value::Bool(false)), "{text}");
        }
        for text in ["on", "2", "", " true", "truee"] {
            assert!(Value::parse(Kind::Bool, text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_as_gflags_reads_them() {
        for (text, number) in
            [("0x20", 32), ("010", 10), ("-5", -5), (" 7", 7), ("+7", 7), ("0", 0), ("-0x10", -16)]
        {
            assert_eq!(Value::parse(Kind::Int64, text), Ok(Value::Int(number)), "{text}");
        }
        for text in ["abc", "10s", "99999999999999999999", "1e3", "7 ", "", "-", "--5", "+-5", "0x", "0x+1"] {
            assert!(Value::parse(Kind::Int64, text).is_err(), "{text}");
        }
        assert_eq!(Value::parse(Kind::Int64, "-9223372036854775808"), Ok(Value::Int(i64::MIN)));
        assert!(Value::parse(Kind::Int32, "2147483648").is_err());
        assert_eq!(Value::parse(Kind::Uint32, "4294967295"), Ok(Value::Uint(4_294_967_295)));
        for text in ["-1", "4294967296"] {
            assert!(Value::parse(Kind::Uint32, text).is_err(), "{text}");
        }
        assert_eq!(Value::parse(Kind::Uint64, "18446744073709551615"), Ok(Value::Uint(u64::MAX)));
        assert!(Value::parse(Kind::Uint64, "18446744073709551616").is_err());
        for (text, number) in [(".5", 0.5), ("5e-2", 0.05), ("1", 1.0)] {
            assert_eq!(Value::parse(Kind::Double, text), Ok(Value::Double(number)), "{text}");
        }
        assert!(Value::parse(Kind::Double, "0.1x").is_err());
    }

    #[test]
    fn durations_as_the_reference_reads_them() {
        for (text, ms) in [
            ("10000", 10_000),
            ("500ms", 500),
            ("10s", 10_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("0", 0),
            ("10 s", 10_000),
            ("10S", 10_000),
            (" 10s", 10_000),
        ] {
            assert_eq!(
                Value::parse(Kind::Duration, text),
                Ok(Value::Duration(Duration::from_millis(ms))),
                "{text}"
            );
        }
        for text in [
            "1d",
            "-1",
            "1.5s",
            "",
            "10us",
            "99999999999999999999",
            "1h30m",
            "+5",
            "0x10",
            "s",
            "5124095576031h",
        ] {
            assert!(Value::parse(Kind::Duration, text).is_err(), "{text}");
        }
    }
}
