//! A witness of an ended process: what it can report, and to whom.

use moonkeeper::master::peer::witness::{EndedProcess, WitnessError, report_end};

use super::authority::Authority;
use super::*;

/// The process that has ended.
const ENDED: (&str, &str) = ("m-1", "00000000000000b1");

fn reported() -> PeerMessage {
    PeerMessage::Ended { boot_id: ENDED.1.into() }
}

/// What a master of these tests hands to its witness, as that receives it from a socket.
async fn handed_over(process: (&str, &str), credentials: impl Into<PeerCredentials>) -> EndedProcess {
    let described = EndedProcess::describe(&identity(process), &credentials.into()).await.unwrap();
    let received: EndedProcess = serde_json::from_slice(&serde_json::to_vec(&described).unwrap()).unwrap();
    assert_eq!(received, described);
    received
}

#[tokio::test]
async fn a_report_reaches_all_peers_that_are_there() {
    let (mut one, mut other) = (Server::start().await, Server::start().await);
    // It is acknowledged whether or not etcd names the process: its member key may be gone.
    other.members.send(Members::new()).unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let peers = [one.address.clone(), gone, other.address.clone()];
    let ended = handed_over(ENDED, token(TOKEN)).await;
    let told = report_end(&ended, &peers, PATIENCE).await;
    assert_eq!(told.iter().map(|(peer, _)| peer).collect::<Vec<_>>(), peers.iter().collect::<Vec<_>>());
    assert!(
        matches!(&told[..], [(_, Ok(())), (_, Err(WitnessError::Connection(_))), (_, Ok(()))]),
        "{told:?}"
    );
    assert_eq!(one.message().await, reported());
    assert_eq!(other.message().await, reported());
    assert_eq!(one.faults.count_and_last().0, 0);
}

#[tokio::test]
async fn a_witness_has_certificates_where_masters_have() {
    let authority = Authority::new();
    let (one, other) = (authority.master(), authority.master());
    let mut server = Server::with(one.read()).await;
    let ended = handed_over(ENDED, other.read()).await;
    let told = report_end(&ended, &[server.address.clone()], PATIENCE).await;
    assert!(matches!(&told[..], [(_, Ok(()))]), "{told:?}");
    assert_eq!(server.message().await, reported());
    let stranger = Authority::new().master();
    let ended = handed_over(ENDED, stranger.read()).await;
    let told = report_end(&ended, &[server.address.clone()], PATIENCE).await;
    assert!(matches!(&told[..], [(_, Err(_))]), "{told:?}");
    server.reports_nothing().await;
}

#[tokio::test]
async fn a_report_without_the_token_is_not_taken() {
    let mut server = Server::start().await;
    let ended = handed_over(ENDED, token("another-token-of-twenty")).await;
    let told = report_end(&ended, &[server.address.clone()], PATIENCE).await;
    assert!(matches!(&told[..], [(_, Err(WitnessError::Handshake(_)))]), "{told:?}");
    assert!(!format!("{ended:?}").contains("twenty"), "the token is shown: {ended:?}");
    // Nor is one that a stranger sends before it has proven itself.
    let mut raw = Raw::connect(&server.address).await;
    raw.write(&json!({"ended": ENDED.1})).await.unwrap();
    assert!(raw.is_closed().await);
    server.reports_nothing().await;
}

#[tokio::test]
async fn a_connection_reports_the_end_of_its_own_process_only() {
    let mut server = Server::start().await;
    let mut raw = Raw::proven(&server.address, STANDBY).await;
    raw.write(&json!({"ended": "00000000000000c2"})).await.unwrap();
    assert!(raw.is_closed().await);
    server.reports_nothing().await;
}

#[tokio::test]
async fn a_master_is_not_told_that_it_has_ended_itself() {
    let mut server = Server::start().await;
    let ended = handed_over(("m-0", "a"), token(TOKEN)).await;
    let told = report_end(&ended, &[server.address.clone()], PATIENCE).await;
    assert!(matches!(&told[..], [(_, Err(_))]), "{told:?}");
    server.reports_nothing().await;
}

#[tokio::test]
async fn a_peer_that_does_not_answer_costs_no_more_than_the_time_given() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = listener.local_addr().unwrap().to_string();
    let ended = handed_over(ENDED, token(TOKEN)).await;
    let told = report_end(&ended, &[silent], Duration::from_millis(100)).await;
    assert!(matches!(&told[..], [(_, Err(WitnessError::TooSlow))]), "{told:?}");
    // A master of a version that knows no reports ends the connection.
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let listener = TcpListener::bind(&address).await.unwrap();
    let older = async {
        let mut raw = greet(&listener, "a").await;
        assert_eq!(raw.read().await.unwrap(), json!({"ended": ENDED.1}));
    };
    let peers = [address.clone()];
    let (told, ()) = tokio::join!(report_end(&ended, &peers, PATIENCE), older);
    assert!(
        matches!(&told[..], [(_, Err(WitnessError::NotTaken | WitnessError::Connection(_)))]),
        "{told:?}"
    );
}
