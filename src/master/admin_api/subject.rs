//! The subject of a client certificate, for the audit log. TLS has verified the certificate before; here it is only
//! parsed, and what cannot be parsed is left out.

/// Most characters of a subject that are logged.
const MAX_CHARACTERS: usize = 200;

/// Tag of a sequence in DER; the next constants are tags, too.
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const VERSION: u8 = 0xa0;

/// Returns the subject of a certificate in DER, like `O=platform, CN=ops`, or `None` if it has none that can be parsed.
pub(super) fn subject(certificate: &[u8]) -> Option<String> {
    let (certificate, _) = take(certificate, SEQUENCE)?;
    let (mut fields, _) = take(certificate, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        (_, fields) = next(fields)?;
    }
    // Skip serial number, algorithm, issuer and validity.
    for _ in 0..4 {
        (_, fields) = next(fields)?;
    }
    let (mut names, _) = take(fields, SEQUENCE)?;
    let mut parts = Vec::new();
    while !names.is_empty() {
        let (mut set, rest) = take(names, SET)?;
        names = rest;
        while !set.is_empty() {
            let (pair, rest) = take(set, SEQUENCE)?;
            set = rest;
            let (id, value) = take(pair, OBJECT_ID)?;
            let (value, _) = next(value)?;
            parts.push(format!("{}={}", attribute(id), String::from_utf8_lossy(value)));
        }
    }
    let text: String = parts.join(", ").chars().filter(|c| !c.is_control()).take(MAX_CHARACTERS).collect();
    (!text.is_empty()).then_some(text)
}

/// Returns the usual short name of an attribute.
fn attribute(id: &[u8]) -> &'static str {
    match id {
        [0x55, 4, 3] => "CN",
        [0x55, 4, 6] => "C",
        [0x55, 4, 7] => "L",
        [0x55, 4, 8] => "ST",
        [0x55, 4, 10] => "O",
        [0x55, 4, 11] => "OU",
        _ => "other",
    }
}

/// Splits off the first element, which must have this tag: returns its content, and the bytes behind it.
fn take(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    if bytes.first() == Some(&tag) { next(bytes) } else { None }
}

/// Splits off the first element: returns its content, and the bytes behind it.
fn next(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.get(1..)?.split_first()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(*length), rest),
        // The number of bytes of the length; no certificate needs more than four.
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(*length & 0x7f))?;
            (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    #[test]
    fn a_subject_is_read_and_damage_is_survived() {
        let mut params = CertificateParams::new(vec!["ops.example".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "platform");
        params.distinguished_name.push(DnType::CommonName, "ops\nteam");
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let der = certificate.der();
        assert_eq!(subject(der).unwrap(), "O=platform, CN=opsteam");
        for end in 0..der.len() {
            let _ = subject(&der[..end]);
        }
        for at in 0..der.len() {
            let mut damaged = der.to_vec();
            damaged[at] ^= 0xff;
            let _ = subject(&damaged);
        }
        assert_eq!(subject(&[]), None);
    }
}
