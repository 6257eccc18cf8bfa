//! The health of etcd in words, for conditions, logs and screens.

use std::fmt;

use super::{EtcdHealth, Usage};

impl fmt::Display for Usage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(in_use) = self.in_use_bytes else { return out.write_str("size unknown") };
        match (self.quota_bytes, self.share()) {
            (Some(quota), Some(share)) => {
                write!(out, "{} of {} in use ({:.0} %)", size(in_use), size(quota), 100.0 * share)?;
            }
            _ => write!(out, "{} in use of an unknown quota", size(in_use))?,
        }
        if let Some(file) = self.db_bytes {
            write!(out, ", file of {}", size(file))?;
        }
        match (self.growth_bytes_per_second, self.time_left_seconds) {
            (_, Some(left)) => write!(out, ", full in about {} at the present rate", time(left)),
            (None, None) => out.write_str(", growth not known yet"),
            (Some(growth @ 1..), None) => write!(out, ", grows by {}/s", size(growth.unsigned_abs())),
            (Some(_), None) => out.write_str(", does not grow"),
        }
    }
}

impl fmt::Display for EtcdHealth {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fullest.fmt(out)?;
        let silent: Vec<&str> = self.silent().collect();
        if self.is_known() && !silent.is_empty() {
            write!(out, "; no answer from {}, whose size is unknown", silent.join(", "))?;
        }
        Ok(())
    }
}

/// Formats a number of bytes with a binary unit.
#[must_use]
pub fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// Formats a time in one unit, because it is an estimate.
fn time(seconds: u64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        172_800..63_072_000 => format!("{} days", seconds / 86_400),
        _ => "more than two years".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::etcd_health::EtcdMember;

    #[test]
    fn usage_in_words() {
        let known = Usage {
            in_use_bytes: Some(1717 << 20),
            db_bytes: Some(1900 << 20),
            quota_bytes: Some(2 << 30),
            ..Usage::default()
        };
        for (usage, text) in [
            (Usage::default(), "size unknown"),
            (known, "1.7 GiB of 2.0 GiB in use (84 %), file of 1.9 GiB, growth not known yet"),
            (
                Usage { growth_bytes_per_second: Some(150), time_left_seconds: Some(2_314_000), ..known },
                "1.7 GiB of 2.0 GiB in use (84 %), file of 1.9 GiB, full in about 26 days at the present rate",
            ),
            (
                Usage { growth_bytes_per_second: Some(-4), ..known },
                "1.7 GiB of 2.0 GiB in use (84 %), file of 1.9 GiB, does not grow",
            ),
            (
                Usage { growth_bytes_per_second: Some(2048), quota_bytes: None, ..known },
                "1.7 GiB in use of an unknown quota, file of 1.9 GiB, grows by 2.0 KiB/s",
            ),
        ] {
            assert_eq!(usage.to_string(), text);
        }
    }

    #[test]
    fn members_that_do_not_answer_are_named() {
        let silent = |endpoint: &str| EtcdMember {
            endpoint: endpoint.into(),
            error: Some("refused".into()),
            ..EtcdMember::default()
        };
        let health = EtcdHealth {
            alarms: Some(Vec::new()),
            members: vec![silent("a:1"), EtcdMember::default(), silent("c:1")],
            ..EtcdHealth::default()
        };
        assert_eq!(health.to_string(), "size unknown; no answer from a:1, c:1, whose size is unknown");
        let health = EtcdHealth { alarms: None, ..health };
        assert_eq!(health.to_string(), "size unknown");
    }

    #[test]
    fn sizes_and_times_have_one_unit() {
        for (bytes, text) in
            [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (16 << 20, "16.0 MiB"), (1 << 41, "2.0 TiB")]
        {
            assert_eq!(size(bytes), text);
        }
        for (seconds, text) in [
            (90, "90 s"),
            (120, "2 min"),
            (7200, "2 h"),
            (172_800, "2 days"),
            (u64::MAX, "more than two years"),
        ] {
            assert_eq!(time(seconds), text);
        }
    }
}
