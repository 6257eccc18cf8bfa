//! Query strings, over bytes: keys of objects are bytes, so a decoder that insists on UTF-8 would lose some.

use std::borrow::Cow;

/// Returns the text of the first parameter with this name, not decoded.
pub fn raw<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (key == name).then_some(value)
    })
}

/// Decodes percent-encoding, and `+` to a blank. A `%` without two digits stands for itself.
pub fn decode(text: &str) -> Cow<'_, [u8]> {
    let bytes = text.as_bytes();
    if !bytes.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(bytes);
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let pair = || Some((digit(*bytes.get(at + 1)?)?, digit(*bytes.get(at + 2)?)?));
        match (bytes[at], pair()) {
            (b'%', Some((high, low))) => {
                decoded.push(high * 16 + low);
                at += 2;
            }
            (b'+', _) => decoded.push(b' '),
            (byte, _) => decoded.push(byte),
        }
        at += 1;
    }
    Cow::Owned(decoded)
}

/// Percent-encodes all but letters, digits and `-._~`, as libcurl does.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(*byte))
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Returns bytes as text for JSON: UTF-8 as it is, every other byte as `\xff`, so that different keys stay different.
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_name_counts() {
        assert_eq!(raw("x=1&key=a+b&key=c", "key"), Some("a+b"));
        assert_eq!(raw("key=a=b", "key"), Some("a=b"));
        assert_eq!(raw("key", "key"), Some(""));
        assert_eq!(raw("KEY=a", "key"), None);
        assert_eq!(raw("", "key"), None);
    }

    #[test]
    fn decoding() {
        for (text, bytes) in [
            ("plain", &b"plain"[..]),
            ("a%20b%2Bc", b"a b+c"),
            ("a+b", b"a b"),
            ("%FF%fe", b"\xff\xfe"),
            ("%zz,%4", b"%zz,%4"),
            ("100%", b"100%"),
        ] {
            assert_eq!(&*decode(text), bytes, "{text}");
        }
    }

    #[test]
    fn encoding() {
        assert_eq!(encode(b"a/ram_meta/127.0.0.1:80~-\xff %"), "a%2Fram_meta%2F127.0.0.1%3A80~-%FF%20%25");
    }

    #[test]
    fn other_bytes_become_visible() {
        assert_eq!(printable("é".as_bytes()), "é");
        assert_eq!(printable(b"a\xff\xfeb"), "a\\xff\\xfeb");
    }
}
