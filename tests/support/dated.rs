//! The day, from which random tests draw seeds beside the fixed ones: those show what they once showed, these look further.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy knows test functions but not their helpers"
)]

use std::time::{SystemTime, UNIX_EPOCH};

/// Days since 1970. `MOONKEEPER_TEST_DAY` brings one back.
pub fn day() -> u64 {
    let given = std::env::var("MOONKEEPER_TEST_DAY").ok().filter(|text| !text.is_empty());
    given.map_or_else(
        || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 86_400,
        |text| text.parse().unwrap_or_else(|_| panic!("MOONKEEPER_TEST_DAY is no number of days: {text}")),
    )
}
