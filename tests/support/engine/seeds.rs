//! The seeds of random tests.

#[path = "../dated.rs"]
mod dated;

use super::rng::cases;

/// The first few seeds, `usual` or as many as `MOONKEEPER_TEST_CASES` says for a soak, which show what they once showed, and
/// a few of the day, which look further. `MOONKEEPER_TEST_DAY` brings those of a day back.
pub fn seeds(usual: u64) -> impl Iterator<Item = u64> {
    let day = dated::day();
    println!("with seeds of day {day} (MOONKEEPER_TEST_DAY={day} repeats them)");
    (0..cases(usual)).chain((0..usual.div_ceil(4)).map(move |nth| day * 1_000 + nth))
}
