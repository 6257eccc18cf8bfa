//! Durations as Go and Kubernetes write them: `500ms`, `10s`, `1h30m`.

use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// What the API server lets through. Longer than any duration that makes sense, short enough for CEL's cost estimate.
const PATTERN: &str = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$";
const MAX_LENGTH: usize = 20;

/// Longest duration that is taken: a hundred years, as everywhere in the master's settings.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// A duration as a user has written it. It is read only when it is needed, so that an object with a bad one can still
/// be decoded and be told about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GoDuration(pub String);

/// A text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a duration like 500ms, 10s or 1h30m")]
pub struct NotADuration(pub String);

impl GoDuration {
    /// Returns the duration, or an error for a text that is none.
    pub fn parse(&self) -> Result<Duration, NotADuration> {
        self.read().ok_or_else(|| NotADuration(self.0.clone()))
    }

    fn read(&self) -> Option<Duration> {
        let mut rest = self.0.as_str();
        let mut total = Duration::ZERO;
        if rest.is_empty() || rest.len() > MAX_LENGTH {
            return None;
        }
        while !rest.is_empty() {
            let unit_at = rest.find(|c: char| c.is_ascii_alphabetic())?;
            let (number, after) = rest.split_at(unit_at);
            let unit_end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
            let (unit, next) = after.split_at(unit_end);
            let seconds = match unit {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
            if !number.starts_with(|c: char| c.is_ascii_digit()) || number.ends_with('.') {
                return None;
            }
            let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
            total = total.checked_add(part)?;
            rest = next;
        }
        // Nothing in the master counts in less than milliseconds; this also undoes the rounding of fractions.
        let total =
            Duration::from_millis(u64::try_from((total + Duration::from_micros(500)).as_millis()).ok()?);
        (total <= LONGEST).then_some(total)
    }
}

impl From<&str> for GoDuration {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl JsonSchema for GoDuration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": PATTERN, "maxLength": MAX_LENGTH })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, ms) in [
            ("0s", 0),
            ("500ms", 500),
            ("10s", 10_000),
            ("1.5s", 1_500),
            ("30m", 1_800_000),
            ("1h30m", 5_400_000),
            ("1m0.3s", 60_300),
        ] {
            assert_eq!(GoDuration::from(text).parse(), Ok(Duration::from_millis(ms)), "{text}");
        }
        let long = "9".repeat(19) + "h";
        for text in ["", "10", "s", "1 s", "-1s", "1.s", ".5s", "1d", "1e3s", "10ns", "1sx", &long] {
            assert_eq!(GoDuration::from(text).parse(), Err(NotADuration(text.to_owned())));
        }
    }
}
