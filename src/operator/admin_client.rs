//! Calls to masters. Each has a deadline, and a failed call never changes the leadership.

use std::time::Duration;

use axum::http::Method;
use serde::Deserialize;

use super::observation::CallError;
use crate::cluster::promotion::PromotionReport;
use crate::cluster::switchover::{SwitchoverDone, SwitchoverRequest};
use crate::net::http_client::{AskError, Question, Trust, ask};

/// Timeout of a read request to a master.
const QUESTION: Duration = Duration::from_secs(2);

/// Timeout of a hand-over: a master abandons one after ten seconds.
const HAND_OVER: Duration = Duration::from_secs(20);

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
    #[derive(Deserialize)]
    struct Refusal {
        code: String,
        message: String,
    }
    let body = serde_json::to_string(&SwitchoverRequest { to });
    let question = Question {
        address,
        method: Method::POST,
        path: "/api/v1/switchover",
        token: Some(&credentials.token),
        body: body.map_err(|why| CallError::NoAnswer(why.to_string()))?,
        within: HAND_OVER,
    };
    let no_answer = |why: AskError| CallError::NoAnswer(why.to_string());
    let (status, body) = ask(&question, Some(&credentials.trust)).await.map_err(no_answer)?;
    let unreadable = || CallError::NoAnswer(format!("unexpected answer from {address} ({status})"));
    if status.is_success() {
        return serde_json::from_slice(&body).map_err(|_| unreadable());
    }
    let Refusal { code, message } = serde_json::from_slice(&body).map_err(|_| unreadable())?;
    Err(CallError::Refused { code, message })
}
