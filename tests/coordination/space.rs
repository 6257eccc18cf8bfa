//! What members of etcd report about their space: two versions of etcd, the embedded store, and who may ask.

use std::time::{Duration, Instant};

use moonkeeper::cluster::etcd_health::{HealthRecord, Verdict};
use moonkeeper::coordination::embedded::{Store as Embedded, serve};
use moonkeeper::coordination::etcd::{Etcd, EtcdMembers, EtcdSettings, User};
use moonkeeper::coordination::types::{Alarms, Failure, Get, KeyRange, MemberStatus};
use rustix::process::Signal;
use tokio::net::TcpListener;

use crate::checks::{get, put, txn};
use crate::process::{EtcdProcess, PATIENCE, binary};
use crate::stores::Store;

const QUOTA_BYTES: u64 = 16 << 20;
/// Small enough that there is a moment with little space left.
const VALUE_BYTES: usize = 64 << 10;

async fn status(etcd: &Etcd) -> MemberStatus {
    etcd.member_status(PATIENCE).await.unwrap()
}

/// Writes values until the condition holds or etcd accepts no more.
async fn write_until(etcd: &Etcd, done: impl Fn(&MemberStatus) -> bool) {
    let value = "x".repeat(VALUE_BYTES);
    for number in 0..1000 {
        if done(&status(etcd).await) {
            return;
        }
        if let Err(failure) =
            etcd.call(txn(vec![put(&format!("junk/{number}"), value.clone())]), PATIENCE).await
        {
            assert!(matches!(&failure, Failure::Refused(why) if why.contains("space")), "{failure}");
            return;
        }
    }
    panic!("etcd takes more than its quota")
}

/// Fills a member up, whose status says so before and when it accepts no more. It commits each write: by default its size
/// is that of up to 100 ms ago, and what was written since can be more than the space that is left.
async fn fills_up(variable: &str, quota_bytes: Option<u64>) {
    let quota = format!("--quota-backend-bytes={QUOTA_BYTES}");
    let process = EtcdProcess::start_with(binary(variable), &[&quota, "--backend-batch-limit=1"]).await;
    let etcd = process.client();
    let fresh = status(&etcd).await;
    assert_eq!((fresh.quota_bytes, fresh.alarms), (quota_bytes, Alarms::default()));
    assert!(fresh.in_use_bytes > 0 && fresh.in_use_bytes <= fresh.db_bytes, "{fresh:?}");
    assert!(fresh.db_bytes < QUOTA_BYTES / 2 && fresh.member != 0, "{fresh:?}");

    let mut record = HealthRecord::default();
    let mut judge = |status: MemberStatus| {
        record.take(Duration::ZERO, vec![("e".to_owned(), Ok(status))]).judge(Verdict::default())
    };
    assert_eq!(judge(fresh), Verdict::Fine);
    write_until(&etcd, |status| status.db_bytes > QUOTA_BYTES / 100 * 96).await;
    let low = status(&etcd).await;
    assert_eq!(low.alarms, Alarms::default());
    assert_eq!(judge(low), if quota_bytes.is_some() { Verdict::SpaceLow } else { Verdict::Fine });
    write_until(&etcd, |_| false).await;
    let deadline = Instant::now() + PATIENCE;
    while !status(&etcd).await.alarms.no_space {
        assert!(Instant::now() < deadline, "no alarm");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let full = status(&etcd).await;
    assert_eq!(judge(full), Verdict::NoSpace);
    assert!(full.in_use_bytes > fresh.in_use_bytes + QUOTA_BYTES / 2, "{full:?}");
}

#[tokio::test]
async fn etcd_says_that_it_fills_up() {
    fills_up("ETCD_BIN", Some(QUOTA_BYTES)).await;
}

/// Before 3.6 etcd does not report its quota, so only the alarm is known.
#[tokio::test]
async fn etcd_of_debian_says_that_it_is_full() {
    fills_up("ETCD_DEBIAN_BIN", None).await;
}

#[tokio::test]
async fn the_embedded_store_reports_what_it_holds() {
    let store = Embedded::open(None).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serving = tokio::spawn(serve(listener, store, std::future::pending()));
    let etcd = Etcd::connect(EtcdSettings::new([address])).unwrap();
    let before = status(&etcd).await;
    assert_eq!((before.quota_bytes, before.alarms), (Some(2 << 30), Alarms::default()));
    write_until(&etcd, |status| status.in_use_bytes >= before.in_use_bytes + (1 << 20)).await;
    let after = status(&etcd).await;
    assert_eq!(after.db_bytes, after.in_use_bytes);
    assert!(after.in_use_bytes < before.in_use_bytes + (2 << 20), "{after:?}");
    serving.abort();
}

/// In etcd's access control a status needs a user, and no permission.
#[tokio::test]
async fn a_user_without_a_role_may_ask() {
    for variable in ["ETCD_BIN", "ETCD_DEBIAN_BIN"] {
        let process = EtcdProcess::start(binary(variable)).await;
        let admin = etcd_client::Client::connect([process.url()], None).await.unwrap();
        let mut auth = admin.auth_client();
        for user in ["root", "guest"] {
            auth.user_add(user, "secret", None).await.unwrap();
        }
        auth.user_grant_role("root", "root").await.unwrap();
        auth.auth_enable().await.unwrap();
        let user = User { name: "guest".to_owned(), password: "secret".to_owned() };
        let settings = EtcdSettings { login: Some(user.into()), ..EtcdSettings::new([process.url()]) };
        let members = EtcdMembers::connect(&settings).unwrap();
        let [(_, Ok(status))] = &members.ask(PATIENCE).await[..] else { panic!("{variable}: refused") };
        assert!(status.in_use_bytes > 0);
        // The user has no access to keys.
        let store = Store::Etcd(Etcd::connect(settings).unwrap());
        let denied = get(&store, Get::all(KeyRange::key("a"))).await;
        assert!(matches!(denied, Err(Failure::Refused(_))), "{variable}: {denied:?}");
    }
}

/// Every member answers for itself, also without a quorum, and one that does not answer is unknown.
#[tokio::test]
async fn each_member_answers_for_itself() {
    let members = EtcdProcess::start_three(&binary("ETCD_BIN")).await;
    let urls: Vec<String> = members.iter().map(|member| member.url().to_owned()).collect();
    let asked = EtcdMembers::connect(&EtcdSettings::new(urls.clone())).unwrap();
    let answers = asked.ask(PATIENCE).await;
    assert_eq!(answers.iter().map(|(endpoint, _)| endpoint.clone()).collect::<Vec<_>>(), urls);
    let mut ids: Vec<u64> = answers.into_iter().map(|(_, answer)| answer.unwrap().member).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    members[0].signal(Signal::STOP);
    members[1].signal(Signal::STOP);
    // Until the third one has noticed that there is no leader.
    let deadline = Instant::now() + PATIENCE;
    let probe = txn(vec![put("probe", "")]);
    while !matches!(members[2].client().call(probe.clone(), PATIENCE).await, Err(Failure::Unknown(why)) if why.contains("no leader"))
    {
        assert!(Instant::now() < deadline, "there is a leader without a majority");
    }
    let health = HealthRecord::default().take(Duration::ZERO, asked.ask(Duration::from_secs(1)).await);
    assert_eq!(health.silent().collect::<Vec<_>>(), &urls[..2]);
    assert!(health.is_known() && health.members[2].usage.in_use_bytes.is_some(), "{health:?}");
    for member in &members[..2] {
        member.signal(Signal::CONT);
    }
    let deadline = Instant::now() + PATIENCE;
    while asked.ask(PATIENCE).await.iter().any(|(_, answer)| answer.is_err()) {
        assert!(Instant::now() < deadline, "a member that goes on is not asked again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
