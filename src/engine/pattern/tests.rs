//! The language against libstdc++'s answers, one engine against the other, and input meant to hang or break them.

use super::*;
use proptest::prelude::*;

fn decode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'%' {
            let hex = std::str::from_utf8(&tail[..2]).unwrap();
            bytes.push(u8::from_str_radix(hex, 16).unwrap());
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    bytes
}

#[test]
fn answers_as_libstdcpp_does() {
    let mut wrong = Vec::new();
    let mut seen = [0; 3];
    for line in include_str!("cases.txt").lines().filter(|line| !line.starts_with("# ")) {
        let [expected, pattern, key] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("not a case: {line:?}");
        };
        let (answer, kind) = match Pattern::parse(&decode(pattern)) {
            Err(_) => ("bad", 0),
            Ok(pattern) if pattern.is_match(&decode(key)).unwrap() => ("yes", 1),
            Ok(_) => ("no", 2),
        };
        seen[kind] += 1;
        if answer != expected {
            wrong.push(format!("{line}: {answer}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
}

/// A backtracking engine without a bound on its steps would practically never finish with these keys.
#[test]
fn hard_patterns_are_decided_or_refused() {
    let key = [b'a'; 4_000];
    for linear in ["^(a+)+$", "(a|aa)+b", "(a*)*b", "^(?=(a+)+$)a*b", "(?!(a|a)*b)(a|a)*c", "(?:(?=.*b)a)*c"]
    {
        let pattern = Pattern::parse(linear.as_bytes()).unwrap();
        pattern.is_match(&key[..300]).unwrap();
    }
    let hard = Pattern::parse(br"^(a*)*(a*)*(a*)*\1b$").unwrap();
    assert_eq!(hard.is_match(&key), Err(TooCostly));
    // The steps that one key takes are missing for the others.
    let mut refused = 0;
    for _ in 0..200 {
        refused += u32::from(hard.is_match(&key[..60]).is_err());
    }
    assert!(refused > 0);
    assert_eq!(hard.is_match(b"b"), Ok(true));
}

#[test]
fn large_patterns_are_refused() {
    let nested = |n| [vec![b'('; n], vec![b')'; n]].concat();
    assert!(Pattern::parse(&nested(200)).is_ok());
    for pattern in [
        nested(201),
        nested(100_000),
        [b"a".as_slice(), &[b'*'; 100_000]].concat(),
        b"(a{1000}){1000}".to_vec(),
        b"((?:){1000}){1000}".to_vec(),
        b"(?=(a{1000}){1000})".to_vec(),
        vec![b'a'; MAX_LENGTH + 1],
    ] {
        let bad = Pattern::parse(&pattern);
        assert!(bad.is_err(), "{} bytes", pattern.len());
    }
    // A list of many keys is fine.
    let keys: Vec<String> = (0..1_000).map(|i| format!("some/prefix/of/a/key/{i:040}")).collect();
    let pattern = Pattern::parse(format!("^(?:{})$", keys.join("|")).as_bytes()).unwrap();
    assert_eq!(pattern.is_match(keys[999].as_bytes()), Ok(true));
    assert_eq!(pattern.is_match(b"some/prefix/of/a/key/x"), Ok(false));
}

fn piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "a",
        "b",
        "ab",
        ".",
        "^",
        "$",
        "|",
        "(",
        ")",
        "(?:",
        "(?=",
        "(?!",
        "*",
        "+",
        "?",
        "{2}",
        "{1,}",
        "{0,2}",
        "[",
        "]",
        "[ab]",
        "[^a]",
        "-",
        "\\",
        "\\b",
        "\\B",
        "\\w",
        "\\D",
        "\\1",
        "\\2",
        "[[:alpha:]",
        ",",
        "\u{e9}",
        "{",
        "}",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn never_panics_and_ends(pieces in prop::collection::vec(piece(), 0..24), key in "[ab\n -]{0,80}") {
        if let Ok(pattern) = Pattern::parse(pieces.concat().as_bytes()) {
            let _ = pattern.is_match(key.as_bytes());
        }
    }

    #[test]
    fn never_panics_on_any_bytes(pattern in prop::collection::vec(any::<u8>(), 0..40), key: Vec<u8>) {
        if let Ok(pattern) = Pattern::parse(&pattern) {
            let _ = pattern.is_match(&key);
        }
    }

    /// A regular tree can be matched by either engine; both must agree.
    #[test]
    fn both_engines_agree(pieces in prop::collection::vec(piece(), 0..12), key in "[ab\n -]{0,12}") {
        if let Ok(tree) = parse::parse(pieces.concat().as_bytes())
            && tree.is_regular()
        {
            let linear = linear::compile(&tree).unwrap();
            prop_assert_eq!(Machine::new(&tree).is_match(key.as_bytes()), Ok(linear.is_match(key.as_bytes())));
        }
    }
}
