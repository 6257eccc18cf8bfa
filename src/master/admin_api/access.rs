//! Authorisation of changes: a request needs the admin token, or a client certificate on its connection.

use std::hint::black_box;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::audit::{Detail, Entry, Refusals, Remote};
use super::failure::error;

/// Most bytes that are read of the token file.
const MAX_TOKEN_FILE: u64 = 4 << 10;

/// Fewest characters of a token: a shorter one could be guessed.
const MIN_TOKEN: usize = 16;

/// Why the token cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read a token from {path}: {source}")]
    Unreadable {
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The first line is missing or too short.
    #[error("the first line of {path} is not a token: it must have at least {MIN_TOKEN} characters")]
    TooShort { path: PathBuf },
}

/// Decides which requests may change something.
#[derive(Clone, Debug, Default)]
pub struct Access {
    token_file: Option<PathBuf>,
    refusals: Refusals,
}

/// Marks requests on connections whose client certificate was verified, with the subject of the certificate.
#[derive(Clone, Debug)]
pub(super) struct Certified(pub Arc<str>);

impl Access {
    /// Checks that the token can be read from this file, if there is one. The file is read again for every request, so
    /// that the token can be replaced.
    pub fn new(token_file: Option<PathBuf>) -> Result<Self, TokenError> {
        if let Some(path) = &token_file {
            read_token(path)?;
        }
        Ok(Self { token_file, refusals: Refusals::default() })
    }
}

/// Reads the token in a file: its first line without blanks around it.
pub fn read_token(path: &Path) -> Result<String, TokenError> {
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_TOKEN_FILE).read_to_string(&mut text))
        .map_err(|source| TokenError::Unreadable { path: path.to_owned(), source })?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.len() < MIN_TOKEN {
        return Err(TokenError::TooShort { path: path.to_owned() });
    }
    Ok(token.to_owned())
}

/// Lets a request through if its caller is authorised, and writes it to the audit log.
pub(super) async fn check(State(access): State<Access>, mut request: Request, next: Next) -> Response {
    let remote = request.extensions().get::<Remote>().copied().unwrap_or(Remote(None));
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let certified = request.extensions().get::<Certified>().cloned();
    let authorization = request.headers().get(header::AUTHORIZATION).cloned();
    match caller(&access, certified, authorization).await {
        Ok(who) => {
            let detail = Detail::default();
            request.extensions_mut().insert(detail.clone());
            let entry = Entry::new(who, remote, &method, &uri, detail);
            let response = next.run(request).await;
            entry.answered(&response);
            response
        }
        Err(refused) => {
            access.refusals.note(remote, &method, &uri, refused.status());
            *refused
        }
    }
}

/// Returns how the caller has identified itself, or the response to a caller that is not authorised.
async fn caller(
    access: &Access,
    certified: Option<Certified>,
    authorization: Option<HeaderValue>,
) -> Result<String, Box<Response>> {
    if let Some(Certified(subject)) = certified {
        return Ok(format!("certificate {subject}"));
    }
    let refuse = |status, code, message| Err(Box::new(error(status, code, message)));
    let Some(path) = access.token_file.clone() else {
        return refuse(
            StatusCode::FORBIDDEN,
            "no_access",
            "this master was started without --admin_token_file, and the request has no client certificate: it is \
             refused",
        );
    };
    // The file has a few bytes, but its disk may hang.
    let token = match tokio::task::spawn_blocking(move || read_token(&path)).await {
        Ok(Ok(token)) => token,
        Ok(Err(why)) => {
            tracing::error!(
                %why,
                "cannot read --admin_token_file: the admin API refuses requests without a certificate"
            );
            return refuse(StatusCode::INTERNAL_SERVER_ERROR, "no_token", "the token cannot be read");
        }
        Err(_) => return refuse(StatusCode::INTERNAL_SERVER_ERROR, "no_token", "the token cannot be read"),
    };
    let shown = authorization.as_ref().and_then(|value| {
        let (scheme, token) = value.as_bytes().split_at_checked("bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"bearer ").then_some(token.trim_ascii())
    });
    if shown.is_some_and(|shown| equal(shown, token.as_bytes())) {
        return Ok("token".to_owned());
    }
    let mut answer = error(
        StatusCode::UNAUTHORIZED,
        "unauthorized",
        "send the token of --admin_token_file as 'Authorization: Bearer TOKEN'",
    );
    answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Err(Box::new(answer))
}

/// Compares in constant time, so that the duration does not tell where two tokens of equal length differ.
fn equal(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    // `black_box` keeps the compiler from ending the loop early.
    let difference = one.iter().zip(other).fold(0, |sum, (a, b)| black_box(sum | (a ^ b)));
    black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_compared_whole() {
        assert!(equal(b"0123456789abcdef", b"0123456789abcdef"));
        for other in [&b"0123456789abcdee"[..], b"1123456789abcdef", b"0123456789abcde", b""] {
            assert!(!equal(b"0123456789abcdef", other));
        }
    }
}
