//! The settings of replication: defaults, forms, and combinations that cannot work.

use std::path::PathBuf;
use std::time::Duration;

use moonkeeper::coordination::etcd::{LoginFiles, UserName};
use moonkeeper::master::settings::HaSettings;
use moonkeeper::master::settings::companion::CompanionSettings;
use moonkeeper::master::settings::ha::{Advertise, Durability, EtcdAccess, Expired};
use moonkeeper::master::settings::peer::{PeerAuth, PeerTls};
use moonkeeper::master::settings::snapshots::SnapshotSettings;
use moonkeeper::net::listen::Listen;

use super::{World, settings, warnings};

/// The least that a master needs to replicate.
const LEAST: [&str; 3] = ["--enable_ha", "--etcd_endpoints=a:2379", "--rpc_address=10.0.0.1"];

fn host() -> World {
    World::default().file("/proc/sys/kernel/hostname", "box\n")
}

fn ha_of(world: &World, more: &[&str]) -> HaSettings {
    let (settings, warnings) = world.run(&[&LEAST, more].concat());
    assert!(warnings.is_empty(), "{more:?} warns: {warnings:?}");
    settings.ha.unwrap()
}

fn ha(more: &[&str]) -> HaSettings {
    ha_of(&host(), more)
}

fn ha_error(more: &[&str]) -> String {
    host().error(&[&LEAST, more].concat())
}

#[test]
fn replication_is_off_unless_asked_for() {
    assert_eq!(settings(&[]).ha, None);
    assert_eq!(settings(&["--enable_ha=false"]).ha, None);
    for arg in [
        "--etcd_endpoints=a:1",
        "--peer_port=1",
        "--peer_token_file=x",
        "--peer_cert=x",
        "--peer_key=x",
        "--peer_cacert=x",
        "--peer_cert_name=x",
        "--durability=relaxed",
        "--admin_token_file=x",
    ] {
        let warnings = warnings(&[arg]);
        assert!(warnings.len() == 1 && warnings[0].contains("--enable_ha"), "{arg}: {warnings:?}");
    }
}

#[test]
fn defaults() {
    let ha = ha(&[]);
    assert_eq!(ha.etcd, EtcdAccess { endpoints: vec!["http://a:2379".into()], ..EtcdAccess::default() });
    assert_eq!(ha.member_name, "box-50051");
    assert_eq!(ha.advertise, Advertise { host: Some("10.0.0.1".into()), rpc_port: 50051 });
    assert_eq!(ha.peer, Listen { host: "::".into(), port: 9005 });
    assert_eq!(ha.peer_auth, PeerAuth::TokenInEtcd);
    assert_eq!(ha.admin.listen, Listen { host: "127.0.0.1".into(), port: 9004 });
    assert_eq!((ha.admin.token_file, ha.admin.tls, ha.data_dir), (None, None, None));
    assert_eq!(ha.snapshots, None);
    assert_eq!(ha.companion, CompanionSettings::Own);
    assert_eq!((ha.durability, ha.expired), (Durability::Strict, Expired::Keep));
    assert_eq!(ha.inherited_client_ttl, Duration::from_secs(180));
    assert_eq!(ha.leader_lease_ttl, Duration::from_secs(5));
    assert_eq!(
        (ha.keep_alive_interval, ha.lease_sync_interval),
        (Duration::from_secs(1), Duration::from_secs(1))
    );
    assert_eq!(ha.queue_bytes, 64 << 20);
}

#[test]
fn the_companion_is_off_its_own_or_at_a_socket() {
    assert_eq!(ha(&["--companion=false"]).companion, CompanionSettings::Off);
    assert_eq!(ha(&["--nocompanion"]).companion, CompanionSettings::Off);
    assert_eq!(ha(&["--companion_socket=/run/c"]).companion, CompanionSettings::At("/run/c".into()));
    let (settings, warnings) =
        host().run(&[&LEAST[..], &["--companion=false", "--companion_socket=/run/c"]].concat());
    assert_eq!(settings.ha.unwrap().companion, CompanionSettings::Off);
    assert!(warnings.len() == 1 && warnings[0].contains("--companion_socket"), "{warnings:?}");
}

#[test]
fn endpoints_in_every_form() {
    for (list, expected) in [
        ("a:1;b:2", &["http://a:1", "http://b:2"][..]),
        ("a:1, b:2 ,", &["http://a:1", "http://b:2"]),
        ("http://a:1/;b:2", &["http://a:1", "http://b:2"]),
        ("etcd://a:1;b:2", &["http://a:1", "http://b:2"]),
        ("[::1]:5", &["http://[::1]:5"]),
    ] {
        assert_eq!(ha(&[&format!("--etcd_endpoints={list}")]).etcd.endpoints, expected, "{list}");
    }
    let reference = ["--etcd_endpoints=", "--ha_backend_connstring=c:3", "--ha_backend_type=etcd"];
    assert_eq!(ha(&reference).etcd.endpoints, ["http://c:3"]);
    for list in ["a", "a:x", "a:0", "ftp://a:1", "a b:1", "http://a:1/path"] {
        let why = ha_error(&[&format!("--etcd_endpoints={list}")]);
        assert!(why.contains("etcd_endpoints") && why.contains("HOST:PORT"), "{list}: {why}");
    }
    for list in ["", ";", " , "] {
        assert!(
            ha_error(&[&format!("--etcd_endpoints={list}")]).contains("--etcd_endpoints=HOST:2379"),
            "{list}"
        );
    }
    assert!(ha_error(&["--ha_backend_type=redis"]).contains("only etcd"));
}

#[test]
fn the_way_into_etcd() {
    let with =
        ha(&["--etcd_cacert=ca", "--etcd_cert=c", "--etcd_key=k", "--etcd_user=u", "--etcd_password_file=p"]);
    assert_eq!(
        with.etcd,
        EtcdAccess {
            endpoints: vec!["https://a:2379".into()],
            ca: Some("ca".into()),
            identity: Some(("c".into(), "k".into())),
            login: Some(LoginFiles { name: UserName::Given("u".into()), password: "p".into() }),
        }
    );
    for (one, other) in [("etcd_cert", "etcd_key"), ("etcd_user", "etcd_password_file")] {
        let why = ha_error(&[&format!("--{one}=x")]);
        assert!(why.contains(&format!("--{one} needs --{other}")), "{why}");
        assert!(ha_error(&[&format!("--{other}=x")]).contains(&format!("--{other} needs --{one}")));
    }
    let from_file = ha(&["--etcd_user_file=u", "--etcd_password_file=p"]).etcd.login;
    let expected = LoginFiles { name: UserName::File("u".into()), password: "p".into() };
    assert_eq!(from_file, Some(expected));
    assert!(ha_error(&["--etcd_user_file=u"]).contains("--etcd_user_file needs --etcd_password_file"));
    let why = ha_error(&["--etcd_user_file=u", "--etcd_user=u", "--etcd_password_file=p"]);
    assert!(why.contains("exclude each other"), "{why}");
    let why = ha_error(&["--etcd_endpoints=http://a:1", "--etcd_cacert=ca"]);
    assert!(why.contains("https://"), "{why}");
    for args in [&["--etcd_endpoints=https://a:1"][..], &["--etcd_cert=c", "--etcd_key=k"]] {
        assert!(ha_error(args).contains("--etcd_cacert"), "{args:?}");
    }
}

#[test]
fn the_advertised_address() {
    let address = |world: &World, args: &[&str]| {
        let args = [&["--enable_ha", "--etcd_endpoints=a:1"], args].concat();
        world.run(&args).0.ha.unwrap().advertise
    };
    let at = |host: &str, rpc_port| Advertise { host: Some(host.into()), rpc_port };
    let pod = host().env("POD_IP", "10.1.2.3");
    assert_eq!(address(&host(), &["--rpc_address=10.0.0.1", "--rpc_port=7"]), at("10.0.0.1", 7));
    assert_eq!(address(&host(), &["--advertise_address=m.svc", "--rpc_port=7"]), at("m.svc", 7));
    assert_eq!(address(&host(), &["--advertise_address=m.svc:9", "--rpc_port=7"]), at("m.svc", 9));
    assert_eq!(address(&host(), &["--advertise_address=[fd00::1]:9"]), at("fd00::1", 9));
    assert_eq!(address(&pod, &["--rpc_address=10.0.0.1"]), at("10.0.0.1", 50051));
    assert_eq!(address(&pod, &[]), at("10.1.2.3", 50051));
    assert_eq!(address(&host(), &["--rpc_interface=lo"]), Advertise { host: None, rpc_port: 50051 });
    for world in [host(), host().env("POD_IP", ""), host().env("POD_IP", "nonsense")] {
        for address in ["0.0.0.0", "::"] {
            let why =
                world.error(&["--enable_ha", "--etcd_endpoints=a:1", &format!("--rpc_address={address}")]);
            assert!(why.contains("--advertise_address") && why.contains("POD_IP"), "{why}");
        }
    }
    for text in ["0.0.0.0", "[::]:1", "a:b", "a b"] {
        assert!(ha_error(&[&format!("--advertise_address={text}")]).contains("advertise_address"), "{text}");
    }
    assert!(ha_error(&["--port=0"]).contains("--rpc_port"));
}

#[test]
fn the_name_of_a_member() {
    assert_eq!(ha(&["--member_name=m-0"]).member_name, "m-0");
    let pod = host().env("POD_NAME", "store-2");
    assert_eq!(ha_of(&pod, &[]).member_name, "store-2");
    assert_eq!(ha_of(&pod, &["--member_name=m"]).member_name, "m");
    assert_eq!(ha(&["--rpc_port=7"]).member_name, "box-7");
    for name in ["a/b", "a b", &"x".repeat(254)] {
        assert!(ha_error(&[&format!("--member_name={name}")]).contains("member_name"), "{name}");
    }
    assert!(World::default().error(&LEAST).contains("--member_name"));
}

#[test]
fn the_admin_port_is_not_open_to_everyone_in_plain_text() {
    let tls = ["--admin_host=0.0.0.0", "--admin_tls_cert=c", "--admin_tls_key=k", "--admin_tls_client_ca=a"];
    let admin = ha(&tls).admin;
    let tls = admin.tls.unwrap();
    assert_eq!(
        (tls.cert, tls.key, tls.client_ca),
        (PathBuf::from("c"), PathBuf::from("k"), Some(PathBuf::from("a")))
    );
    assert_eq!(ha(&["--admin_host=0.0.0.0", "--admin_allow_plain"]).admin.listen.host, "0.0.0.0");
    for host in ["localhost", "::1", "127.0.0.9"] {
        ha(&[&format!("--admin_host={host}")]);
    }
    for host in ["0.0.0.0", "10.0.0.1", "somewhere"] {
        let why = ha_error(&[&format!("--admin_host={host}")]);
        assert!(why.contains("--admin_tls_cert") && why.contains(host), "{why}");
    }
    assert!(ha_error(&["--admin_tls_cert=c"]).contains("--admin_tls_key"));
    assert!(ha_error(&["--admin_tls_client_ca=a"]).contains("--admin_tls_cert"));
}

#[test]
fn masters_prove_themselves_in_one_way() {
    assert_eq!(ha(&["--peer_token_file=t"]).peer_auth, PeerAuth::TokenFile("t".into()));
    let all = ["--peer_cert=c", "--peer_key=k", "--peer_cacert=a"];
    let tls = PeerTls { cert: "c".into(), key: "k".into(), ca: "a".into(), name: None };
    assert_eq!(ha(&all).peer_auth, PeerAuth::Certificates(tls.clone()));
    let named = [&all[..], &["--peer_cert_name=masters.demo"]].concat();
    let name = Some("masters.demo".to_owned());
    assert_eq!(ha(&named).peer_auth, PeerAuth::Certificates(PeerTls { name, ..tls }));
    for (args, part) in [
        (&all[..1], "--peer_key is not set"),
        (&all[1..], "--peer_cert is not set"),
        (&all[..2], "--peer_cacert is not set"),
        (&["--peer_cert_name=x"], "--peer_cert_name needs --peer_cert"),
        (&["--peer_cert_name=x", "--peer_token_file=t"], "--peer_cert_name needs --peer_cert"),
        // Even if one of them is incomplete.
        (&[all[0], "--peer_token_file=t"], "--peer_key is not set"),
        (&[all[0], all[1], all[2], "--peer_token_file=t"], "do not go together"),
        (&[all[0], all[1], all[2], "--peer_cert_name=a b"], "a DNS name is accepted"),
    ] {
        let why = ha_error(args);
        assert!(why.contains(part), "{args:?}: {why}");
    }
}

#[test]
fn promises_and_times() {
    let ha = ha(&[
        "--durability=relaxed",
        "--relaxed_tail_records=9",
        "--relaxed_tail_time=20ms",
        "--expired=evict",
        "--inherited_client_ttl=10m",
        "--leader_lease_ttl=10s",
        "--keep_alive_interval=500ms",
        "--lease_sync_interval=2s",
        "--data_dir=/var/lib/x",
        "--oplog_queue_bytes=1048576",
    ]);
    assert_eq!(ha.durability, Durability::Relaxed { records: 9, time: Duration::from_millis(20) });
    assert_eq!(ha.expired, Expired::Evict);
    assert_eq!(ha.inherited_client_ttl, Duration::from_secs(600));
    assert_eq!(ha.leader_lease_ttl, Duration::from_secs(10));
    assert_eq!(ha.keep_alive_interval, Duration::from_millis(500));
    assert_eq!((ha.lease_sync_interval, ha.queue_bytes), (Duration::from_secs(2), 1 << 20));
    assert_eq!(ha.data_dir, Some("/var/lib/x".into()));
    for (arg, part) in [
        ("--durability=none", "strict or relaxed"),
        ("--expired=drop", "keep or evict"),
        ("--leader_lease_ttl=1s", "2s to 60s"),
        ("--leader_lease_ttl=2500ms", "whole seconds"),
        ("--leader_lease_ttl=2m", "2s to 60s"),
        ("--keep_alive_interval=3s", "at most 2250 ms"),
        ("--keep_alive_interval=0", "above zero"),
        ("--lease_sync_interval=0", "above zero"),
        ("--inherited_client_ttl=0", "above zero"),
        ("--oplog_queue_bytes=1000", "1048576"),
        ("--peer_port=70000", "65535"),
        ("--cluster_id=oplog", "oplog"),
        ("--cluster_id=Demo", "a-z"),
        ("--cluster_id=a/b", "a-z"),
    ] {
        let why = ha_error(&[arg]);
        assert!(why.contains(part) && why.contains(&arg[2..arg.find('=').unwrap()]), "{arg}: {why}");
    }
    assert!(ha_error(&["--durability=relaxed", "--relaxed_tail_records=0"]).contains("at least 1"));
    let (_, warnings) = host().run(&[&LEAST[..], &["--relaxed_tail_time=1s"]].concat());
    assert!(warnings.len() == 1 && warnings[0].contains("relaxed_tail_time"), "{warnings:?}");
}

#[test]
fn snapshots_come_with_a_data_directory() {
    let with = |more: &[&str]| ha(&[&["--data_dir=/d"], more].concat()).snapshots.unwrap();
    let settings = |seconds: u64, kept| {
        let interval = (seconds > 0).then(|| Duration::from_secs(seconds));
        SnapshotSettings { interval, kept, durable: true }
    };
    assert_eq!(with(&[]), settings(600, 2));
    assert_eq!(with(&["--snapshot_interval=2s", "--snapshots_kept=1"]), settings(2, 1));
    assert_eq!(with(&["--snapshot_interval=0", "--snapshots_kept=8"]), settings(0, 8));
    assert!(!with(&["--data_dir_durable=false"]).durable);
    // The reference's.
    assert_eq!(with(&["--enable_snapshot", "--enable_snapshot_restore"]), settings(600, 2));
    assert_eq!(with(&["--enable_snapshot=false"]), settings(0, 2));
    assert_eq!(with(&["--enable_snapshot=false", "--snapshot_interval=0"]), settings(0, 2));
    assert_eq!(with(&["--snapshot_interval_seconds=30", "--snapshot_retention_count=3"]), settings(30, 3));
    assert_eq!(with(&["--snapshot_interval_seconds=0"]), settings(0, 2));
    let both = ["--snapshot_interval=5m", "--snapshot_interval_seconds=30"];
    assert_eq!(with(&both), settings(300, 2));
    assert_eq!(with(&["--snapshots_kept=4", "--snapshot_retention_count=3"]), settings(600, 4));
    for (args, part) in [
        (&["--snapshot_interval=600"][..], "at least 1s"),
        (&["--snapshots_kept=0"], "1 to 8"),
        (&["--snapshots_kept=9"], "1 to 8"),
        (&["--snapshot_retention_count=0"], "snapshot_retention_count"),
        (&["--enable_snapshot", "--snapshot_interval=0"], "exclude each other"),
        (&["--enable_snapshot=false", "--snapshot_interval_seconds=60"], "exclude each other"),
    ] {
        let why = ha_error(&[&["--data_dir=/d"], args].concat());
        assert!(why.contains(part), "{args:?}: {why}");
    }
    let warned = |more: &[&str]| host().run(&[&LEAST, more].concat()).1;
    let warnings = warned(&["--data_dir=/d", "--enable_snapshot_restore=false"]);
    assert!(warnings.len() == 1 && warnings[0].contains("the log"), "{warnings:?}");
    // Without a directory there are none, and a command line that counts on them is refused.
    for arg in [
        "--snapshot_interval=5m",
        "--snapshot_interval_seconds=60",
        "--snapshots_kept=3",
        "--data_dir_durable=false",
    ] {
        let warnings = warned(&[arg]);
        assert!(warnings.len() == 1 && warnings[0].contains("--data_dir"), "{arg}: {warnings:?}");
    }
    for arg in ["--enable_snapshot", "--enable_snapshot_restore"] {
        assert!(ha_error(&[arg]).contains("--data_dir"), "{arg}");
    }
}

#[test]
fn the_log_comes_with_replication() {
    ha(&["--enable_oplog"]);
    let (settings, warnings) = host().run(&[&LEAST[..], &["--enable_oplog=false"]].concat());
    assert!(settings.ha.is_some());
    assert!(warnings.len() == 1 && warnings[0].contains("enable_oplog"), "{warnings:?}");
}

#[test]
fn the_environment_and_files_turn_it_on_too() {
    let world = host()
        .env("MOONKEEPER_ENABLE_HA", "true")
        .env("MOONKEEPER_ADMIN_PORT", "0")
        .file("c.yaml", "etcd_endpoints: e:1\nadvertise_address: h\nleader_lease_ttl: 7s\nadmin_port: 3\n");
    let ha = world.run(&["--config_path=c.yaml"]).0.ha.unwrap();
    assert_eq!((ha.admin.listen.port, ha.leader_lease_ttl.as_secs()), (0, 7));
}
