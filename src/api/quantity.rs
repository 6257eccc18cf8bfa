//! Quantities of Kubernetes. The API server writes them in a form of its own (`1024Mi` becomes `1Gi`), so they are
//! compared by value.

/// Suffixes and what they multiply by.
const SUFFIXES: [(&str, f64); 15] = [
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Pi", 1_125_899_906_842_624.0),
    ("Ei", 1_152_921_504_606_846_976.0),
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("E", 1e18),
];

/// Rounding of a quantity by the API server, which keeps thousandths, as a share of any size that a volume has.
const ROUNDING: f64 = 1e-9;

/// Returns the value of a quantity; `None` if the text is none.
fn value(text: &str) -> Option<f64> {
    let suffixed = SUFFIXES.iter().find_map(|(suffix, by)| Some((text.strip_suffix(suffix)?, *by)));
    let (number, by) = suffixed.unwrap_or((text, 1.0));
    number.parse::<f64>().ok().filter(|number| number.is_finite()).map(|number| number * by)
}

/// Returns whether two quantities are the same amount.
#[must_use]
pub fn same(one: &str, other: &str) -> bool {
    match (value(one), value(other)) {
        (Some(one), Some(other)) => (one - other).abs() <= ROUNDING * one.abs().max(other.abs()),
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_compared_by_value() {
        for (one, other) in
            [("8Gi", "8192Mi"), ("1.5Gi", "1536Mi"), ("0.1Gi", "107374182400m"), ("2k", "2000")]
        {
            assert!(same(one, other), "{one} and {other}");
        }
        for (one, other) in [("8Gi", "8G"), ("8Gi", "9Gi"), ("", "8Gi"), ("1E", "1Ei")] {
            assert!(!same(one, other), "{one} and {other}");
        }
        assert!(same("much", "much") && !same("much", "more"));
    }
}
