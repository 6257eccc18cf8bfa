//! Flags about addresses, ports, threads and the metadata server.

use super::Group::{Logging, MetadataServer, Serving, Settings};
use super::Kind::{Bool, Int32, Text};
use super::{Flag, used};

pub(super) const FLAGS: &[Flag] = &[
    used("rpc_port", Int32, "0", Serving, "Port for Mooncake clients; 0 means the value of --port"),
    used(
        "port",
        Int32,
        "50051",
        Serving,
        "Older name of --rpc_port, read only when that is 0; 0 lets the system choose a port",
    ),
    used(
        "rpc_address",
        Text,
        "0.0.0.0",
        Serving,
        "Address on which to listen for Mooncake clients; all addresses, also of IPv6, unless it is set",
    ),
    used(
        "rpc_interface",
        Text,
        "",
        Serving,
        "Network interface whose IPv4 address is used instead of --rpc_address",
    ),
    used(
        "rpc_thread_num",
        Int32,
        "0",
        Serving,
        "Threads that serve Mooncake clients; 0 means one per core, but at most --max_threads",
    ),
    used("max_threads", Int32, "16", Serving, "Upper limit of threads when --rpc_thread_num is 0"),
    used(
        "rpc_conn_timeout_seconds",
        Int32,
        "0",
        Serving,
        "Close a client connection after this many seconds without a request; 0 means never",
    ),
    used("rpc_enable_tcp_no_delay", Bool, "true", Serving, "Send small answers at once (TCP_NODELAY)"),
    used(
        "metrics_host",
        Text,
        "0.0.0.0",
        Serving,
        "Address of the HTTP server (metrics, health, queries); as for --rpc_address",
    ),
    used("metrics_port", Int32, "9003", Serving, "Port of the HTTP server; 0 lets the system choose a port"),
    used("cluster_id", Text, "mooncake_cluster", Serving, "Name of this store among others"),
    used(
        "enable_http_metadata_server",
        Bool,
        "false",
        MetadataServer,
        "Serve /metadata for transfer engines that were set up with http://HOST:PORT/metadata",
    ),
    used(
        "http_metadata_server_host",
        Text,
        "0.0.0.0",
        MetadataServer,
        "Address of the metadata server; as for --rpc_address",
    ),
    used("http_metadata_server_port", Int32, "8080", MetadataServer, "Port of the metadata server"),
    used(
        "enable_metadata_cleanup_on_timeout",
        Bool,
        "false",
        MetadataServer,
        "When a client expires, delete its entries from the metadata server of this process",
    ),
    used("enable_metric_reporting", Bool, "true", Logging, "Log a summary of the metrics now and then"),
    used("config_path", Text, "", Settings, "YAML or JSON file with flag names as keys"),
];
