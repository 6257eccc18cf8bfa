//! Building blocks of responses: JSON or text with the reference's content types.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;

use super::backend::BackendError;

/// Content type of JSON, always in UTF-8.
pub const JSON: &str = "application/json; charset=utf-8";
/// Content type of text for people.
pub const TEXT: &str = "text/plain; charset=utf-8";
/// Content type that the reference gives metrics and some lists.
pub const METRICS: &str = "text/plain; version=0.0.4";

/// Error code for a query with missing or wrong parameters.
pub const INVALID_PARAMS: BackendError = BackendError { code: -600, name: "INVALID_PARAMS" };
/// Error code for an unknown segment.
pub const SEGMENT_NOT_FOUND: BackendError = BackendError { code: -101, name: "SEGMENT_NOT_FOUND" };
/// Error code for an unknown drain job.
pub const JOB_NOT_FOUND: BackendError = BackendError { code: -1402, name: "JOB_NOT_FOUND" };
/// Error code for a bug of this master.
pub const INTERNAL_ERROR: BackendError = BackendError { code: -1, name: "INTERNAL_ERROR" };
/// Error code for a request that these settings exclude.
pub const UNAVAILABLE_IN_CURRENT_MODE: BackendError =
    BackendError { code: -1011, name: "UNAVAILABLE_IN_CURRENT_MODE" };
/// Error code for a request that this version does not support.
pub const NOT_SUPPORTED: BackendError = BackendError { code: -1012, name: "NOT_SUPPORTED" };

/// Builds a response with a body and its content type.
pub fn with_type(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = plain(status, body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Builds a response without a content type.
pub fn plain(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response
}

/// Builds a JSON response; one with status 500 if `value` cannot be serialised.
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

/// Builds the response for an error code, with the HTTP status that the reference gives it.
pub fn error(error: BackendError) -> Response {
    let status = match error.code {
        -704 | -703 | -101 | -1402 => StatusCode::NOT_FOUND,
        -600 => StatusCode::BAD_REQUEST,
        -1010 | -1011 => StatusCode::CONFLICT,
        -1012 => StatusCode::NOT_IMPLEMENTED,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    error_with(status, error.code, error.name)
}

/// Builds an error response with this text.
pub fn error_with(status: StatusCode, error_code: i32, error_message: &str) -> Response {
    json(status, &Failure { success: false, error_code, error_message })
}

/// Builds the response of a master that does not serve, to requests about the state.
pub fn not_serving() -> Response {
    unavailable("service plane is not active")
}

/// Builds the response of a master that cannot carry out a request now, with the cause.
pub fn unavailable(cause: &str) -> Response {
    error_with(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE_IN_CURRENT_MODE.code, cause)
}

/// Answers an unknown route or method; the reference makes no difference between the two.
pub async fn not_found() -> Response {
    plain(StatusCode::NOT_FOUND, "404 Not Found")
}
