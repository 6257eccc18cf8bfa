//! Calls to masters. Each has a deadline, and a failed call never changes the leadership.

use std::time::Duration;

use axum::http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::observation::{CallError, SnapshotBegun};
use crate::cluster::promotion::PromotionReport;
use crate::cluster::snapshot::HeldSnapshot;
use crate::cluster::switchover::{SwitchoverDone, SwitchoverRequest};
use crate::net::http_client::{AskError, Question, Trust, ask};

/// Timeout of a read request to a master.
const QUESTION: Duration = Duration::from_secs(2);

/// Timeout of a hand-over: a master abandons one after ten seconds.
const HAND_OVER: Duration = Duration::from_secs(20);

/// Timeout of a request for a snapshot, which a master answers within 20 s.
const SNAPSHOT: Duration = Duration::from_secs(25);

/// Credentials for the admin API of masters.
#[derive(Clone)]
pub struct Credentials {
    token: String,
    /// Authorities and server name that the certificate is verified with.
    trust: Trust,
}

impl Credentials {
    /// Creates credentials for a server whose certificate is signed by these authorities (PEM) for this name.
    ///
    /// # Errors
    ///
    /// If the authorities or the name are invalid.
    pub fn new(token: String, ca: &[u8], name: &str) -> Result<Self, String> {
        Ok(Self { token, trust: Trust::in_authorities(ca, name)? })
    }
}

/// Asks a primary how it took over.
pub async fn promotion(address: &str) -> Result<PromotionReport, String> {
    #[derive(Deserialize)]
    struct Answer {
        promotion: Option<PromotionReport>,
    }
    let question = Question::get(address, "/api/v1/promotion", QUESTION);
    let (status, body) = ask(&question, None).await.map_err(|why| why.to_string())?;
    if !status.is_success() {
        return Err(format!("{address} answered {status}"));
    }
    let answer: Answer =
        serde_json::from_slice(&body).map_err(|why| format!("unexpected answer from {address}: {why}"))?;
    answer.promotion.ok_or_else(|| format!("{address} has not taken over yet"))
}

/// Asks a primary to hand over.
pub async fn switchover(
    address: &str,
    to: Option<String>,
    credentials: &Credentials,
) -> Result<SwitchoverDone, CallError> {
    let body = serde_json::to_string(&SwitchoverRequest { to });
    let body = body.map_err(|why| CallError::NoAnswer(why.to_string()))?;
    change(address, "/api/v1/switchover", body, HAND_OVER, credentials).await
}

/// Asks a master for a snapshot.
pub async fn snapshot(address: &str, credentials: &Credentials) -> Result<SnapshotBegun, CallError> {
    /// A part of what the master answers.
    #[derive(Deserialize)]
    struct Answer {
        member: String,
        up_to: u64,
        taken: Option<HeldSnapshot>,
    }
    let answer = change(address, "/api/v1/snapshots", String::new(), SNAPSHOT, credentials).await?;
    let Answer { member, up_to, taken } = answer;
    Ok(match taken {
        Some(taken) => SnapshotBegun { member, sequence_id: taken.sequence_id, complete: true },
        None => SnapshotBegun { member, sequence_id: up_to, complete: false },
    })
}

/// Makes a call that changes something.
async fn change<T: DeserializeOwned>(
    address: &str,
    path: &'static str,
    body: String,
    within: Duration,
    credentials: &Credentials,
) -> Result<T, CallError> {
    #[derive(Deserialize)]
    struct Refusal {
        code: String,
        message: String,
    }
    let token = Some(credentials.token.as_str());
    let question = Question { address, method: Method::POST, path, token, body, within };
    let no_answer = |why: AskError| CallError::NoAnswer(why.to_string());
    let (status, body) = ask(&question, Some(&credentials.trust)).await.map_err(no_answer)?;
    let unreadable = || CallError::NoAnswer(format!("unexpected answer from {address} ({status})"));
    if status.is_success() {
        return serde_json::from_slice(&body).map_err(|_| unreadable());
    }
    let Refusal { code, message } = serde_json::from_slice(&body).map_err(|_| unreadable())?;
    Err(CallError::Refused { code, message })
}
