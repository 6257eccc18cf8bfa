//! Resource use of a process, read from /proc.

use super::BenchError;

/// Microseconds of a clock tick: Linux reports times to programs in hundredths of a second on every machine.
const TICK_MICROS: u64 = 10_000;

/// Returns the microseconds of processor time, in user mode and in the kernel together.
pub(super) fn cpu_micros(pid: u32) -> Result<u64, BenchError> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    ticks(&stat.unwrap_or_default()).map(|ticks| ticks * TICK_MICROS).ok_or(BenchError::Process(pid))
}

/// Returns `utime + stime`, the 14th and 15th field; the second field is a name in parentheses that may contain blanks.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Returns the resident memory in bytes.
pub(super) fn resident_bytes(pid: u32) -> Result<u64, BenchError> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|kib| kib.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or(BenchError::Process(pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_the_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 90 0 0 0 123 45 0 0 20 0 3 0 1 1 1";
        assert_eq!(ticks(stat), Some(168));
        assert_eq!(ticks(""), None);
        assert!(resident_bytes(std::process::id()).is_ok_and(|bytes| bytes > 0));
    }
}
