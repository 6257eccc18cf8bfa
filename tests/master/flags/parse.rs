//! The command line of `moonkeeper master`: spellings, sources, precedence, errors and warnings. What is expected
//! of gflags' spellings was observed on the reference master.

use std::time::Duration;

use moonkeeper::master::flags::FlagError;
use moonkeeper::master::settings::command_line::Parsed;
use moonkeeper::master::settings::{AllocationStrategy, LogFormat, LogLevel, Threads};
use proptest::prelude::*;

use super::{World, error, settings, warnings};

#[test]
fn every_spelling_of_a_number() {
    for args in [
        &["--rpc_port=50061"][..],
        &["-rpc_port=50061"],
        &["--rpc_port", "50061"],
        &["-rpc_port", "50061"],
        &["--rpc-port=50061"],
        &["--rpc-port", "50061"],
        &["--rpc_port=0xC38D"],
        &["--rpc_port=1", "--rpc_port=50061"],
        &["--port=50061"],
        &["--port=50061", "--rpc_port=0"],
        &["--port=50061", "--rpc_port=-1"],
        &["--port=1", "--rpc_port=50061"],
    ] {
        assert_eq!(settings(args).rpc.port, 50061, "{args:?}");
    }
    assert_eq!(settings(&[]).rpc.port, 50051);
    assert_eq!(settings(&["--port=0"]).rpc.port, 0);
}

#[test]
fn every_spelling_of_a_bool() {
    let name = "rpc_enable_tcp_no_delay";
    for (form, expected) in [
        ("--rpc_enable_tcp_no_delay", true),
        ("-rpc_enable_tcp_no_delay", true),
        ("--rpc-enable-tcp-no-delay", true),
        ("--norpc_enable_tcp_no_delay", false),
        ("-norpc_enable_tcp_no_delay", false),
        ("--norpc-enable-tcp-no-delay", false),
        // A value behind --no... is ignored.
        ("--norpc_enable_tcp_no_delay=true", false),
    ] {
        assert_eq!(settings(&[form]).rpc.tcp_no_delay, expected, "{form}");
    }
    for (word, expected) in [
        ("true", true),
        ("t", true),
        ("1", true),
        ("yes", true),
        ("y", true),
        ("TRUE", true),
        ("false", false),
        ("f", false),
        ("0", false),
        ("no", false),
        ("n", false),
    ] {
        assert_eq!(settings(&[&format!("--{name}={word}")]).rpc.tcp_no_delay, expected, "{word}");
    }
    for word in ["on", "2", ""] {
        let why = error(&[&format!("--{name}={word}")]);
        assert!(
            why.contains(name) && why.contains(&format!("'{word}'")) && why.contains("accepted"),
            "{why}"
        );
    }
}

#[test]
fn a_bool_never_takes_the_next_argument() {
    let (settings, warnings) = World::default().run(&["--rpc_enable_tcp_no_delay", "false"]);
    assert!(settings.rpc.tcp_no_delay);
    assert!(warnings.len() == 1 && warnings[0].contains("'false'"), "{warnings:?}");
}

#[test]
fn arguments_that_are_not_flags_are_named() {
    assert_eq!(warnings(&["here", "-"]).len(), 2);
    let (settings, warnings) = World::default().run(&["--rpc_port=7", "--", "--rpc_port=8"]);
    assert_eq!(settings.rpc.port, 7);
    assert!(warnings[0].contains("--rpc_port=8"), "{warnings:?}");
}

#[test]
fn unknown_flags_are_errors_that_suggest() {
    let why = error(&["--rcp_port=1"]);
    assert!(why.contains("rcp_port") && why.contains("did you mean --rpc_port?"), "{why}");
    assert!(error(&["--lease_ttl=1"]).contains("--default_kv_lease_ttl"));
    assert!(error(&["--zzzzzzzzzzzz"]).contains("--helpfull"));
    for odd in ["---rpc_port=1", "--=3", "--no", "--nobogus"] {
        assert!(matches!(World::default().parse(&[odd]), Err(FlagError::Unknown { .. })), "{odd}");
    }
    for args in [
        &["--bogus", "--undefok=bogus"][..],
        &["--nobogus", "--undefok=bogus"],
        &["--undefok=other,bogus", "--bogus=3"],
    ] {
        assert!(warnings(args).is_empty(), "{args:?}");
    }
}

#[test]
fn values_that_do_not_fit_are_named_with_what_would() {
    for (arg, part) in [
        ("--client_ttl=abc", "whole"),
        ("--client_ttl=10s", "whole"),
        ("--client_ttl=0", "at least 1"),
        ("--client_ttl=-5", "at least 1"),
        ("--max_retry_attempts=-1", "0 to 4294967295"),
        ("--eviction_ratio=1.5", "0 to 1"),
        ("--eviction_ratio=-0.1", "0 to 1"),
        ("--eviction_high_watermark_ratio=nan", "0 to 1"),
        ("--rpc_port=70000", "65535"),
        ("--port=-1", "65535"),
        ("--metrics_port=70000", "65535"),
        ("--metrics_host=", "host name"),
        ("--rpc_address=bogus host", "host name"),
        ("--default_kv_lease_ttl=1d", "ms, s, m or h"),
        ("--put_start_discard_timeout_sec=18446744073709551615", "hundred years"),
        ("--memory_allocator=slab", "offset or cachelib"),
        ("--allocation_strategy=best", "free_ratio_first"),
        ("--log_format=xml", "json"),
        ("--max_threads=0", "1024"),
        ("--http_max_connections=0", "at least 1"),
        ("--cluster_id=", "name"),
        ("--rpc_conn_timeout_seconds=-1", "seconds"),
    ] {
        let why = error(&[arg]);
        let (name, value) = arg[2..].split_once('=').unwrap();
        let named = why.contains(&format!("--{name}")) && why.contains(&format!("'{value}'"));
        assert!(named && why.contains(part), "{arg}: {why}");
    }
    let why = error(&["--default_kv_soft_pin_ttl=30h"]);
    assert!(why.contains("30h") && why.contains("max_kv_soft_pin_ttl"), "{why}");
    assert!(error(&["--client_ttl"]).contains("needs a value"));
    assert!(error(&["--norpc_port"]).contains("int32"));
}

#[test]
fn what_must_not_be_pretended_is_refused() {
    for (arg, part) in [
        ("--enable_oplog", "--enable_ha"),
        ("--enable_multi_tenants=true", "separate"),
        ("--enable_offload=1", "memory only"),
        ("--enable_snapshot", "--data_dir"),
        ("--enable_snapshot_restore", "--data_dir"),
        ("--root_fs_dir=/data", "directory"),
        ("--enable_cxl", "CXL"),
        ("--allocation_strategy=cxl", "CXL"),
    ] {
        let why = error(&[arg]);
        assert!(why.contains("refused") && why.contains(part), "{arg}: {why}");
    }
    // Saying that they are off is fine, in silence.
    settings(&["--enable_ha=false", "--noenable_multi_tenants", "--root_fs_dir=", "--noenable_offload"]);
    let why = World::default().env("MC_RPC_PROTOCOL", "rdma").error(&[]);
    assert!(why.contains("MC_RPC_PROTOCOL"), "{why}");
    assert!(World::default().env("MC_RPC_PROTOCOL", "tcp").parse(&[]).is_ok());
    // The environment and files are no way around it.
    assert!(World::default().env("MOONKEEPER_ENABLE_OPLOG", "true").error(&[]).contains("refused"));
    let world = World::default().file("c.yaml", "enable_multi_tenants: true\n");
    assert!(world.error(&["--config_path=c.yaml"]).contains("refused"));
}

#[test]
fn flags_without_effect_are_named_in_warnings() {
    for arg in [
        "--etcd_endpoints=http://a:2379",
        "--snapshot_interval_seconds=60",
        "--snapshot_backup_dir=/backup",
        "--nof_eviction_ratio=0.1",
        "--enable_kv_events",
        "--log_dir=/var/log",
        "--stderrthreshold=0",
        "--dynamic_replication_mode=enforce",
        "--memory_allocator=cachelib",
        "--allocation_strategy=ssd_free_ratio_first",
        "--use_mmap_arena_allocator",
    ] {
        let warnings = warnings(&[arg]);
        let name = arg[2..].split('=').next().unwrap();
        assert!(warnings.len() == 1 && warnings[0].contains(name), "{arg}: {warnings:?}");
    }
    for arg in
        ["--noenable_kv_events", "--logtostderr", "--alsologtostderr=false", "--memory_allocator=offset"]
    {
        settings(&[arg]);
    }
}

#[test]
fn the_command_line_beats_the_environment_beats_the_file_beats_the_default() {
    let world = World::default()
        .env("MOONKEEPER_CLIENT_TTL", "30")
        .env("MOONKEEPER_RPC_PORT", "1003")
        .file("c.yaml", "client_ttl: 20\nrpc_port: 1002\nmetrics_port: 1001\n");
    let (settings, warnings) = world.run(&["--config_path=c.yaml", "--client_ttl=40"]);
    assert_eq!(settings.objects.client_ttl, Duration::from_secs(40));
    assert_eq!(settings.rpc.port, 1003);
    assert_eq!(settings.http.port, 1001);
    // Every address, IPv6 included; one that is named is the one.
    assert_eq!(settings.http.host, "::");
    assert!(warnings.is_empty(), "{warnings:?}");
    // A default that is written out counts as written.
    let (settings, _) = world.run(&["--config_path=c.yaml", "--client_ttl=10"]);
    assert_eq!(settings.objects.client_ttl, Duration::from_secs(10));
}

#[test]
fn environment_variables() {
    let (settings, _) = World::default()
        .env("MOONKEEPER_CONFIG_PATH", "c.json")
        .env("MOONKEEPER_RPC_ENABLE_TCP_NO_DELAY", "no")
        .env("MOONKEEPER_CLUSTER_ID", "")
        .file("c.json", r#"{"default_kv_lease_ttl": "7s"}"#)
        .run(&[]);
    assert_eq!(settings.objects.lease_ttl, Duration::from_secs(7));
    assert!(!settings.rpc.tcp_no_delay);
    assert_eq!(settings.cluster_id, "mooncake_cluster");
    let why = World::default().env("MOONKEEPER_METRICS_PORT", "many").error(&[]);
    assert!(why.contains("MOONKEEPER_METRICS_PORT") && why.contains("many"), "{why}");
    // What Kubernetes puts there for a Service called moonkeeper.
    let (settings, warnings) = World::default()
        .env("MOONKEEPER_PORT", "tcp://10.0.0.1:50051")
        .env("MOONKEEPER_PORT_50051_TCP_ADDR", "10.0.0.1")
        .env("MOONKEEPER_SERVICE_HOST", "10.0.0.1")
        .run(&[]);
    assert_eq!(settings.rpc.port, 50051);
    assert!(warnings.is_empty(), "{warnings:?}");
    let (_, warnings) = World::default().env("MOONKEEPER_RPC_PROT", "1").run(&[]);
    assert!(warnings[0].contains("MOONKEEPER_RPC_PORT"), "{warnings:?}");
}

#[test]
fn gflags_environment() {
    let world = World::default().env("FLAGS_client_ttl", "44");
    let ttl = |args: &[&str]| world.run(args).0.objects.client_ttl.as_secs();
    assert_eq!(ttl(&[]), 10);
    assert_eq!(ttl(&["--fromenv=client_ttl"]), 44);
    assert_eq!(ttl(&["--tryfromenv=client_ttl,cluster_id"]), 44);
    assert_eq!(ttl(&["--client_ttl=3", "--fromenv=client_ttl"]), 44);
    assert_eq!(ttl(&["--fromenv=client_ttl", "--client_ttl=3"]), 3);
    assert!(world.error(&["--fromenv=cluster_id"]).contains("FLAGS_cluster_id"));
    assert!(world.error(&["--fromenv=bogus"]).contains("bogus"));
    assert_eq!(ttl(&["--tryfromenv=bogus", "--undefok=bogus"]), 10);
}

#[test]
fn flag_files() {
    let world = World::default()
        .file("a", "# first\n--rpc_port=50061\n   -client_ttl=9\n\n--noallow_evict_soft_pinned_objects\n--flagfile=b\n")
        .file("b", "--default_kv_lease_ttl=4s\n");
    let (settings, warnings) = world.run(&["--flagfile=a"]);
    assert_eq!(settings.rpc.port, 50061);
    assert_eq!(settings.objects.client_ttl.as_secs(), 9);
    assert_eq!(settings.objects.lease_ttl.as_secs(), 4);
    assert!(!settings.eviction.allow_soft_pinned);
    assert!(warnings.is_empty(), "{warnings:?}");
    // It acts where it stands.
    assert_eq!(world.run(&["--flagfile=a", "--rpc_port=1"]).0.rpc.port, 1);
    assert_eq!(world.run(&["--rpc_port=1", "--flagfile=a,b"]).0.rpc.port, 50061);
    assert!(world.error(&["--flagfile=none"]).contains("none"));

    // What gflags passes over in silence is at least named.
    let world = World::default().file("odd", "--rpc_port 1\n--bogus=1\n--client_ttl\n");
    let (settings, warnings) = world.run(&["--flagfile=odd"]);
    assert_eq!((settings.rpc.port, warnings.len()), (50051, 3));
    assert!(warnings[0].contains("odd:1") && warnings[0].contains("--rpc_port=VALUE"), "{warnings:?}");

    // Sections for other programs.
    let world = World::default()
        .file("s", "mooncake_master\n--client_ttl=4\nother thing\n--client_ttl=6\nmoon*\n--rpc_port=5\n");
    let (settings, warnings) = world.run(&["--flagfile=s"]);
    assert_eq!((settings.objects.client_ttl.as_secs(), settings.rpc.port), (4, 5));
    assert!(warnings.len() == 1 && warnings[0].contains("s:3"), "{warnings:?}");

    let why = World::default().file("c", "--client_ttl=x\n").error(&["--flagfile=c"]);
    assert!(why.contains("c:1"), "{why}");
}

#[test]
fn flag_files_in_a_circle_end() {
    for world in [
        World::default().file("a", "--flagfile=a\n"),
        World::default().file("a", "--flagfile=b\n").file("b", "--flagfile=a\n"),
        World::default().file("a", "--fromenv=flagfile\n").env("FLAGS_flagfile", "a"),
    ] {
        assert!(matches!(world.parse(&["--flagfile=a"]), Err(FlagError::TooDeep { .. })));
    }
}

#[test]
fn configuration_files() {
    let yaml = "rpc-port: 50061\ndefault_kv_lease_ttl: 5s\nclient_live_ttl_sec: 55\neviction_ratio: 0.2\n\
                allow_evict_soft_pinned_objects: off\ncluster_id: 0017\nmetrics_host: \"127.0.0.1\"\nquota_bytes:\n";
    let json = r#"{"rpc_port": 50061, "default_kv_lease_ttl": 5000, "client_ttl": "55", "eviction_ratio": 0.2,
                   "allow_evict_soft_pinned_objects": false, "cluster_id": "0017", "metrics_host": "127.0.0.1",
                   "quota_bytes": null}"#;
    for (path, text) in [("c.yaml", yaml), ("c.yml", yaml), ("c", yaml), ("c.json", json), ("c.conf", json)] {
        let (settings, warnings) = World::default().file(path, text).run(&[&format!("--config_path={path}")]);
        assert!(warnings.is_empty(), "{path}: {warnings:?}");
        assert_eq!(settings.rpc.port, 50061, "{path}");
        assert_eq!(settings.objects.lease_ttl.as_secs(), 5, "{path}");
        assert_eq!(settings.objects.client_ttl.as_secs(), 55, "{path}");
        assert_eq!(settings.eviction.ratio, 0.2, "{path}");
        assert!(!settings.eviction.allow_soft_pinned, "{path}");
        assert_eq!(
            (settings.cluster_id.as_str(), settings.http.host.as_str()),
            ("0017", "127.0.0.1"),
            "{path}"
        );
    }
    let (_, warnings) =
        World::default().file("c.yaml", "rpc_prot: 1\nflagfile: x\n").run(&["--config_path=c.yaml"]);
    assert!(
        warnings.iter().any(|text| text.contains("rpc_prot") && text.contains("rpc_port")),
        "{warnings:?}"
    );
    assert!(warnings.iter().any(|text| text.contains("flagfile")), "{warnings:?}");
    for text in ["rpc_port: abc\n", "rpc_port: [1]\n", "- 1\n", "a: [1, 2\n", "rpc_port: {a: 1}\n"] {
        let why = World::default().file("c.yaml", text).error(&["--config_path=c.yaml"]);
        assert!(why.contains("c.yaml"), "{text}: {why}");
    }
    for text in ["{\"a\": ", "[]", "{\"rpc_port\": [1]}", "{\"rpc_port\": true}"] {
        let why = World::default().file("c.json", text).error(&["--config_path=c.json"]);
        assert!(why.contains("c.json"), "{text}: {why}");
    }
    assert!(error(&["--config_path=none.yaml"]).contains("none.yaml"));
}

#[test]
fn help_is_there_even_next_to_an_error() {
    for args in [&["--help"][..], &["-help"], &["--bogus", "--help"], &["--helpshort"], &["--help=true"]] {
        let Ok(Parsed::Print(text)) = World::default().parse(args) else { panic!("{args:?}") };
        assert!(text.contains("--rpc_port") && text.contains("Usage"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 120), "too wide:\n{text}");
        assert!(text.lines().count() < 60, "the short help is long");
    }
    let Ok(Parsed::Print(full)) = World::default().parse(&["--helpfull"]) else { panic!() };
    for line in include_str!("reference-flags.tsv").lines().skip(1) {
        let name = line.split('\t').next().unwrap();
        assert!(full.contains(&format!("  --{name} (")), "{name} is missing");
    }
    let Ok(Parsed::Print(text)) = World::default().parse(&["--version"]) else { panic!() };
    assert!(text.contains(env!("CARGO_PKG_VERSION")), "{text}");
    let Ok(Parsed::Print(text)) = World::default().parse(&["--helpmatch=soft_pin"]) else { panic!() };
    assert!(text.contains("max_kv_soft_pin_ttl") && !text.contains("--rpc_port"), "{text}");
    settings(&["--nohelp", "--help=false"]);
    assert_eq!(World::default().run(&["--", "--help"]).1.len(), 1);
    assert!(matches!(World::default().file("f", "--help\n").parse(&["--flagfile=f"]), Ok(Parsed::Print(_))));
}

#[test]
fn the_other_settings() {
    let defaults = settings(&[]);
    assert_eq!(defaults.rpc.threads, Threads::PerCoreUpTo(16));
    assert_eq!((defaults.rpc.threads.on(2), defaults.rpc.threads.on(64)), (2, 16));
    assert_eq!(defaults.metadata_server, None);
    assert_eq!(defaults.metric_reporting, Some(Duration::from_secs(10)));
    assert_eq!(defaults.tasks.pending_timeout, Some(Duration::from_secs(300)));
    assert_eq!((defaults.log.level, defaults.log.format), (LogLevel::Info, LogFormat::Text));
    let settings = settings(&[
        "--rpc_thread_num=3",
        "--enable_http_metadata_server",
        "--http_metadata_server_host=[::1]",
        "--http_metadata_server_port=0",
        "--noenable_metric_reporting",
        "--pending_task_timeout_sec=0",
        "--allocation_strategy=local_first",
        "--rpc_interface=lo",
        "--rpc_conn_timeout_seconds=5",
        "--v=1",
        "--log_format=json",
        "--http_header_timeout=500ms",
        "--cluster_id=a/b/",
    ]);
    assert_eq!(settings.rpc.threads.on(64), 3);
    let server = settings.metadata_server.unwrap();
    assert_eq!((server.host.as_str(), server.port), ("::1", 0));
    assert_eq!(settings.metric_reporting, None);
    assert_eq!(settings.tasks.pending_timeout, None);
    assert_eq!(settings.allocation_strategy, AllocationStrategy::LocalFirst);
    assert_eq!(settings.rpc.interface.as_deref(), Some("lo"));
    assert_eq!(settings.rpc.idle_timeout, Some(Duration::from_secs(5)));
    assert_eq!((settings.log.level, settings.log.format), (LogLevel::Debug, LogFormat::Json));
    assert_eq!(settings.http.limits.header_timeout, Duration::from_millis(500));
    assert_eq!(settings.cluster_id, "a/b");
}

proptest! {
    /// Nothing that a user can type makes the parser panic, and its answer does not depend on anything else.
    #[test]
    fn any_arguments_give_an_answer(
        args in prop::collection::vec(argument(), 0..8),
        file in "([ -~]{0,30}\n){0,4}",
        variable in "[ -~]{0,12}",
    ) {
        let world = World::default()
            .file("f", &file)
            .env("MOONKEEPER_CLIENT_TTL", &variable)
            .env("FLAGS_client_ttl", &variable);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let once = format!("{:?}", world.parse(&args));
        let again = format!("{:?}", world.parse(&args));
        prop_assert_eq!(once, again);
    }
}

/// Mostly real flags with strange values, now and then anything at all.
fn argument() -> impl Strategy<Value = String> {
    let names: Vec<String> = moonkeeper::master::flags::table::all().iter().map(|f| f.name.into()).collect();
    let name = prop::sample::select(names);
    let value = prop_oneof![
        Just("f".to_owned()),
        Just("client_ttl".to_owned()),
        "[0-9]{1,22}(ms|s|m|h|)",
        "[-+.0-9a-zx ]{0,8}",
        "\\PC{0,8}",
    ];
    prop_oneof![
        (prop::sample::select(vec!["-", "--", "--no", "---"]), name, value)
            .prop_map(|(dashes, name, value)| format!("{dashes}{name}={value}")),
        "\\PC{0,12}",
        Just("--flagfile=f".to_owned()),
        Just("--config_path=f".to_owned()),
    ]
}
