//! The forms that answers take: JSON or text with the reference's content types.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;

use super::view::ViewError;

/// JSON.
pub const JSON: &str = "application/json; charset=utf-8";
/// Text for people.
pub const TEXT: &str = "text/plain; charset=utf-8";
/// What the reference says of metrics and of some lists.
pub const METRICS: &str = "text/plain; version=0.0.4";

/// Codes that the routes themselves answer with.
pub const INVALID_PARAMS: ViewError = ViewError { code: -600, name: "INVALID_PARAMS" };
/// No such segment.
pub const SEGMENT_NOT_FOUND: ViewError = ViewError { code: -101, name: "SEGMENT_NOT_FOUND" };
/// No such drain job.
pub const JOB_NOT_FOUND: ViewError = ViewError { code: -1402, name: "JOB_NOT_FOUND" };
/// A fault of this master.
pub const INTERNAL_ERROR: ViewError = ViewError { code: -1, name: "INTERNAL_ERROR" };
/// Not possible with these settings.
pub const UNAVAILABLE_IN_CURRENT_MODE: ViewError =
    ViewError { code: -1011, name: "UNAVAILABLE_IN_CURRENT_MODE" };
/// Not possible in this version.
pub const NOT_SUPPORTED: ViewError = ViewError { code: -1012, name: "NOT_SUPPORTED" };

/// An answer with a body and its type.
pub fn with_type(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = plain(status, body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// An answer with a body of no particular type.
pub fn plain(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response
}

/// A JSON answer.
pub fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => with_type(status, JSON, body),
        Err(why) => {
            tracing::error!(%why, "an answer cannot be written as JSON");
            plain(StatusCode::INTERNAL_SERVER_ERROR, "500 Internal Server Error")
        }
    }
}

#[derive(Serialize)]
struct Failure<'a> {
    success: bool,
    error_code: i32,
    error_message: &'a str,
}

/// The answer for an error code, with the HTTP status that the reference has for it.
pub fn error(error: ViewError) -> Response {
    let status = match error.code {
        -704 | -703 | -101 | -1402 => StatusCode::NOT_FOUND,
        -600 => StatusCode::BAD_REQUEST,
        -1010 | -1011 => StatusCode::CONFLICT,
        -1012 => StatusCode::NOT_IMPLEMENTED,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    error_with(status, error.code, error.name)
}

/// An error with words of its own.
pub fn error_with(status: StatusCode, error_code: i32, error_message: &str) -> Response {
    json(status, &Failure { success: false, error_code, error_message })
}

/// What a master that does not serve says to everything about the state.
pub fn not_serving() -> Response {
    unavailable("service plane is not active")
}

/// The answer of a master that cannot do it now, with the cause.
pub fn unavailable(cause: &str) -> Response {
    error_with(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE_IN_CURRENT_MODE.code, cause)
}

/// No such route, or not with this method; the reference makes no difference.
pub async fn not_found() -> Response {
    plain(StatusCode::NOT_FOUND, "404 Not Found")
}
