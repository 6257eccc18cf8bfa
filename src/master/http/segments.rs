//! Routes about segments.
//!
//! A segment that drains takes no new objects. As in the reference it has no allocator any more: lists and queries by
//! name leave it out, and in the details it has neither use nor capacity.

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;

use super::HttpState;
use super::answer::{self, METRICS};
use super::backend::SegmentInfo;
use super::query;
use crate::engine::segment::SegmentStatus;

/// Lists the names of the segments that take objects, one per line.
pub(super) async fn get_all_segments(State(shared): State<HttpState>) -> Response {
    let Ok(segments) = shared.backend.segments().await else { return answer::not_serving() };
    let mut text = Vec::new();
    for segment in segments.iter().filter(|segment| !segment.draining) {
        text.extend_from_slice(&segment.name);
        text.push(b'\n');
    }
    answer::with_type(StatusCode::OK, METRICS, text)
}

#[derive(Serialize)]
struct Details {
    total_segments: usize,
    segments: Vec<Detail>,
}

#[derive(Serialize)]
struct Detail {
    segment_name: String,
    segment_id: String,
    client_id: String,
    base_address: String,
    size_bytes: u64,
    size_human: String,
    te_endpoint: String,
    protocol: String,
    status: &'static str,
    allocator_used_bytes: u64,
    allocator_capacity_bytes: u64,
    allocator_usage_percent: f64,
}

impl From<SegmentInfo> for Detail {
    fn from(segment: SegmentInfo) -> Detail {
        let (used_bytes, capacity_bytes) =
            if segment.draining { (0, 0) } else { (segment.used_bytes, segment.size) };
        let percent =
            if capacity_bytes == 0 { 0.0 } else { used_bytes as f64 / capacity_bytes as f64 * 100.0 };
        Detail {
            segment_name: query::printable(&segment.name),
            segment_id: uuid(segment.id),
            client_id: uuid(segment.client_id),
            base_address: format!("{:#x}", segment.base),
            size_bytes: segment.size,
            size_human: format!("{} GiB", six_digits(segment.size as f64 / f64::from(1 << 30))),
            te_endpoint: segment.te_endpoint,
            protocol: segment.protocol,
            status: status(segment.draining).1,
            allocator_used_bytes: used_bytes,
            allocator_capacity_bytes: capacity_bytes,
            allocator_usage_percent: percent,
        }
    }
}

pub(super) async fn get_segments_detail(State(shared): State<HttpState>) -> Response {
    let Ok(segments) = shared.backend.segments().await else { return answer::not_serving() };
    let segments: Vec<Detail> = segments.into_iter().map(Detail::from).collect();
    answer::json(StatusCode::OK, &Details { total_segments: segments.len(), segments })
}

/// Answers use and capacity of all segments of one name together, without those that drain.
pub(super) async fn query_segment(State(shared): State<HttpState>, RawQuery(text): RawQuery) -> Response {
    let Ok(segments) = shared.backend.segments().await else { return answer::not_serving() };
    let mut found = named(segments, &text.unwrap_or_default());
    found.retain(|segment| !segment.draining);
    let Some(first) = found.first() else {
        return answer::with_type(StatusCode::INTERNAL_SERVER_ERROR, METRICS, "Failed to query segment");
    };
    let sum = |read: fn(&SegmentInfo) -> u64| found.iter().map(read).fold(0, u64::saturating_add);
    let mut body = first.name.clone();
    let numbers = format!(
        "\nUsed(bytes): {}\nCapacity(bytes) : {}\n",
        sum(|segment| segment.used_bytes),
        sum(|segment| segment.size)
    );
    body.extend_from_slice(numbers.as_bytes());
    answer::with_type(StatusCode::OK, METRICS, body)
}

#[derive(Serialize)]
struct Status {
    success: bool,
    segment: String,
    status: i32,
    status_name: &'static str,
    error_code: i32,
    error_message: &'static str,
}

/// Answers the status of the segment with a name; of several the one that was mounted last, as in the RPC.
pub(super) async fn segment_status(State(shared): State<HttpState>, RawQuery(text): RawQuery) -> Response {
    let text = text.unwrap_or_default();
    if query::raw(&text, "segment").unwrap_or_default().is_empty() {
        let code = answer::INVALID_PARAMS.code;
        return answer::error_with(StatusCode::BAD_REQUEST, code, "Missing segment query parameter");
    }
    let Ok(segments) = shared.backend.segments().await else { return answer::not_serving() };
    let found = named(segments, &text);
    let Some(segment) = found.last() else { return answer::error(answer::SEGMENT_NOT_FOUND) };
    let (status, status_name) = status(segment.draining);
    answer::json(
        StatusCode::OK,
        &Status {
            success: true,
            segment: query::printable(&segment.name),
            status,
            status_name,
            error_code: 0,
            error_message: "",
        },
    )
}

/// Returns the status as the protocol numbers and names it.
fn status(draining: bool) -> (i32, &'static str) {
    if draining {
        (SegmentStatus::GracefullyUnmounting as i32, "GRACEFULLY_UNMOUNTING")
    } else {
        (SegmentStatus::Ok as i32, "OK")
    }
}

/// Returns the segments with the name in the query, as it was written or decoded, in the order in which they were
/// mounted.
fn named(mut found: Vec<SegmentInfo>, text: &str) -> Vec<SegmentInfo> {
    let raw = query::raw(text, "segment").unwrap_or_default();
    let decoded = query::decode(raw);
    found.retain(|segment| segment.name == raw.as_bytes() || segment.name == *decoded);
    found
}

/// Formats a pair of numbers as the reference does.
fn uuid((first, second): (u64, u64)) -> String {
    format!("{first}-{second}")
}

/// Formats a number with at most six significant digits and no zeros at its end, like C's `%g`.
fn six_digits(number: f64) -> String {
    let scientific = format!("{number:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| -> String {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text.into()
        }
    };
    if (-4..6).contains(&exponent) {
        let decimals = usize::try_from(5 - exponent).unwrap_or(0);
        trim(&format!("{number:.decimals$}"))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trim(digits), exponent.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::six_digits;

    #[test]
    fn six_significant_digits() {
        for (number, text) in [
            (0.0625, "0.0625"),
            (1.015625, "1.01562"),
            (0.078125, "0.078125"),
            (0.0, "0"),
            (512.0, "512"),
            (1e7, "1e+07"),
            (0.0000123456789, "1.23457e-05"),
            (999999.5, "1e+06"),
        ] {
            assert_eq!(six_digits(number), text);
        }
    }
}
