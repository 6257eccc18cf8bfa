//! Sorting in linear time.

use super::tree::unpack;

/// Bits of a digit: 2,048 counters stay in the first-level cache.
const DIGIT: u32 = 11;

/// Sorts packed pairs by their first number divided by `unit`; none is above `bound`. Stable, and linear in the number
/// of pairs.
pub(super) fn sort_by_first(keys: &mut Vec<u128>, bound: u64, unit: u64) {
    let digits = (bound / unit).checked_ilog2().map_or(0, |bits| bits + 1);
    let mut from = std::mem::take(keys);
    let mut into = vec![0; from.len()];
    for shift in (0..digits).step_by(DIGIT as usize) {
        let digit = |key: u128| (((unpack(key).0 / unit) >> shift) & ((1 << DIGIT) - 1)) as usize;
        let mut places = [0; 1 << DIGIT];
        for key in &from {
            places[digit(*key)] += 1;
        }
        let mut sum = 0;
        for place in &mut places {
            sum += std::mem::replace(place, sum);
        }
        for key in &from {
            let place = &mut places[digit(*key)];
            into[*place] = *key;
            *place += 1;
        }
        std::mem::swap(&mut from, &mut into);
    }
    *keys = from;
}
