//! Credentials of the masters' admin API: the operator's token, and the masters' certificate with its authority. The
//! operator creates both once and keeps them in a Secret.
//!
//! The authority signs this one certificate, and its private key is discarded at once, so that it can sign no other.
//! Neither expires; to get new ones, delete the Secret.

use k8s_openapi::api::core::v1::Secret;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::build::{AdminCredentials, Certificate};
use crate::api::names::{CA_KEY, CERT_KEY, PRIVATE_KEY_KEY, TOKEN_KEY};

/// Bytes of a new token, before they are written as hexadecimal digits.
const TOKEN_BYTES: usize = 32;

/// Length of the shortest token that masters accept.
const MIN_TOKEN: usize = 16;

/// Why there are no credentials.
#[derive(Debug, thiserror::Error)]
pub enum NoCredentials {
    /// The system's random source failed.
    #[error("cannot create a token: {0}")]
    Token(getrandom::Error),
    /// A certificate could not be made.
    #[error("cannot create a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
}

/// Returns the credentials in the Secret, and new ones where they are missing or invalid. The certificate is for the
/// server name `host`; without a name there is none.
pub fn keep_or_make(secret: Option<&Secret>, host: Option<&str>) -> Result<AdminCredentials, NoCredentials> {
    let kept = |key: &str| {
        let value = secret.and_then(|secret| secret.data.as_ref()?.get(key))?;
        String::from_utf8(value.0.clone()).ok()
    };
    let token = match kept(TOKEN_KEY).filter(|token| usable(token)) {
        Some(token) => token,
        None => token()?,
    };
    let certificate = match (host, kept(CA_KEY), kept(CERT_KEY), kept(PRIVATE_KEY_KEY)) {
        (None, ..) => None,
        (Some(_), Some(ca), Some(cert), Some(key)) if readable(&ca, &cert, &key) => {
            Some(Certificate { ca, cert, key })
        }
        (Some(host), ..) => Some(certificate(host)?),
    };
    Ok(AdminCredentials { token, certificate })
}

fn token() -> Result<String, NoCredentials> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes).map_err(NoCredentials::Token)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn certificate(host: &str) -> Result<Certificate, rcgen::Error> {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.distinguished_name.push(DnType::CommonName, format!("Moonkeeper admin API of {host}"));
    let authority_key = KeyPair::generate()?;
    let ca = authority.self_signed(&authority_key)?;
    let key = KeyPair::generate()?;
    let mut server = CertificateParams::new(vec![host.to_owned()])?;
    server.distinguished_name.push(DnType::CommonName, host);
    let cert = server.signed_by(&key, &Issuer::new(authority, authority_key))?;
    Ok(Certificate { ca: ca.pem(), cert: cert.pem(), key: key.serialize_pem() })
}

fn readable(ca: &str, cert: &str, key: &str) -> bool {
    let certificate = |text: &str| CertificateDer::from_pem_slice(text.as_bytes()).is_ok();
    certificate(ca) && certificate(cert) && PrivateKeyDer::from_pem_slice(key.as_bytes()).is_ok()
}

/// Returns whether masters accept a token: long enough, and one line without spaces.
fn usable(token: &str) -> bool {
    token.len() >= MIN_TOKEN && token.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    fn secret(pairs: &[(&str, &str)]) -> Secret {
        let data = pairs.iter().map(|(key, text)| ((*key).to_owned(), ByteString(text.as_bytes().to_vec())));
        Secret { data: Some(data.collect()), ..Secret::default() }
    }

    #[test]
    fn a_token_is_made_once_and_kept() {
        let token = |secret: Option<&Secret>| keep_or_make(secret, None).unwrap().token;
        let made = token(None);
        assert!(usable(&made) && made.len() == 2 * TOKEN_BYTES);
        assert_ne!(made, token(None));
        assert_eq!(token(Some(&secret(&[(TOKEN_KEY, &made)]))), made);
        for bad in ["", "short", "with a space in the middle of it", "two\nlinestwolinestwolines"] {
            assert!(usable(&token(Some(&secret(&[(TOKEN_KEY, bad)])))), "{bad}");
        }
    }

    #[test]
    fn a_certificate_is_made_once_and_kept() {
        let made = |secret: Option<&Secret>| keep_or_make(secret, Some("demo.here.svc")).unwrap().certificate;
        let first = made(None).unwrap();
        assert!(readable(&first.ca, &first.cert, &first.key));
        let kept = |ca: &str| secret(&[(CA_KEY, ca), (CERT_KEY, &first.cert), (PRIVATE_KEY_KEY, &first.key)]);
        assert!(made(Some(&kept(&first.ca))).unwrap() == first);
        // An incomplete certificate is replaced.
        for half in [kept("?"), secret(&[(CA_KEY, &first.ca)])] {
            let whole = made(Some(&half)).unwrap();
            assert!(readable(&whole.ca, &whole.cert, &whole.key) && whole != first);
        }
        assert!(keep_or_make(Some(&kept(&first.ca)), None).unwrap().certificate.is_none());
    }
}
