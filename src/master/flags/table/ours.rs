//! Flags that the reference does not have.

use super::Group::{Logging, MetadataServer, Serving};
use super::Kind::{Duration, Text, Uint64};
use super::{Flag, used};

pub(super) const FLAGS: &[Flag] = &[
    used("log_format", Text, "text", Logging, "text for people, json for log collectors"),
    used(
        "metric_reporting_interval",
        Duration,
        "10s",
        Logging,
        "Time between two summaries of the metrics in the log",
    ),
    used(
        "http_max_connections",
        Uint64,
        "256",
        Serving,
        "Most open connections of the HTTP server, and of the metadata server; more wait to be accepted",
    ),
    used(
        "http_header_timeout",
        Duration,
        "10s",
        Serving,
        "Close an HTTP connection whose request head takes longer than this",
    ),
    used(
        "http_metadata_server_max_entries",
        Uint64,
        "100000",
        MetadataServer,
        "Most entries that the metadata server holds",
    ),
    used(
        "http_metadata_server_max_bytes",
        Uint64,
        "268435456",
        MetadataServer,
        "Most bytes (keys and values together) that the metadata server holds",
    ),
];
