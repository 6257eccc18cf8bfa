//! Errors of the admin API.

use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;

use super::audit::ErrorCode;
use crate::master::http::answer;

#[derive(Serialize)]
struct Failure<'a> {
    code: &'a str,
    message: &'a str,
}

/// Builds an error response in the format of this API.
pub(super) fn error(status: StatusCode, code: &str, message: &str) -> Response {
    let mut response = answer::json(status, &Failure { code, message });
    response.extensions_mut().insert(ErrorCode(code.to_owned()));
    response
}
