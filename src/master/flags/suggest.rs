//! Finds the flag that a mistyped name most likely stands for.

/// Returns the candidate nearest to `name`, unless all of them are too far away to be meant.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // A name several times as long as any flag is no typing error, and the distance costs the square of its length.
    if name.is_empty() || name.len() > 128 {
        return None;
    }
    let tolerated = (name.len() / 3).clamp(1, 6);
    let mut best: Option<(usize, &str)> = None;
    let mut part: Option<&str> = None;
    for candidate in candidates {
        let distance = distance(name.as_bytes(), candidate.as_bytes());
        if distance <= tolerated && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
        if part.is_none() && name.len() >= 4 && candidate.contains(name) {
            part = Some(candidate);
        }
    }
    match best {
        // A part that was left out ("lease_ttl") is a better explanation than a few changed letters.
        Some((distance, candidate)) if distance <= 2 || part.is_none() => Some(candidate),
        _ => part,
    }
}

/// Computes the Levenshtein distance, with two rows.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut above: Vec<usize> = (0..=b.len()).collect();
    let mut row = vec![0; b.len() + 1];
    for (i, x) in a.iter().enumerate() {
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            row[j + 1] = (above[j] + usize::from(x != y)).min(above[j + 1] + 1).min(row[j] + 1);
        }
        std::mem::swap(&mut above, &mut row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant() {
        let known = ["rpc_port", "port", "default_kv_lease_ttl", "client_ttl", "enable_ha", "eviction_ratio"];
        let found = |name| nearest(name, known.into_iter());
        assert_eq!(found("rcp_port"), Some("rpc_port"));
        assert_eq!(found("lease_ttl"), Some("default_kv_lease_ttl"));
        assert_eq!(found("clienttl"), Some("client_ttl"));
        assert_eq!(found("evicton_ration"), Some("eviction_ratio"));
        assert_eq!(found("zzzzzzzz"), None);
        assert_eq!(found(""), None);
        assert_eq!(found(&"x".repeat(1000)), None);
    }

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance(b"kitten", b"sitting"), 3);
        assert_eq!(distance(b"", b"abc"), 3);
        assert_eq!(distance(b"abc", b"abc"), 0);
    }
}
