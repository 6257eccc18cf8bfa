//! Calls to masters. Each has a deadline, and none of them changes who leads by failing.

use std::time::Duration;

use axum::http::Method;
use serde::Deserialize;

use super::observed::CallError;
use crate::cli::ask::{AskError, Question, Trust, ask_with};
use crate::master::admin_api::{PromotionReport, SwitchoverDone, SwitchoverRequest};

/// How long a master has to say something that it knows.
const QUESTION: Duration = Duration::from_secs(2);

/// How long a hand-over may take: a master gives one up after ten seconds.
const HAND_OVER: Duration = Duration::from_secs(20);

/// How to be let in by the admin API.
#[derive(Clone)]
pub struct Credentials {
    token: String,
    /// What the admin API's certificate is checked with.
    trust: Trust,
}

impl Credentials {
    /// A token for a server with a certificate of these authorities (PEM) for this name.
    ///
    /// # Errors
    ///
    /// If the authorities or the name make no sense.
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
    let (status, body) = ask_with(&question, None).await.map_err(|why| why.to_string())?;
    if !status.is_success() {
        return Err(format!("{address} answered {status}"));
    }
    let answer: Answer =
        serde_json::from_slice(&body).map_err(|why| format!("{address} answered something else: {why}"))?;
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
    let (status, body) = ask_with(&question, Some(&credentials.trust)).await.map_err(no_answer)?;
    let unreadable = || CallError::NoAnswer(format!("{address} answered something else ({status})"));
    if status.is_success() {
        return serde_json::from_slice(&body).map_err(|_| unreadable());
    }
    let Refusal { code, message } = serde_json::from_slice(&body).map_err(|_| unreadable())?;
    Err(CallError::Refused { code, message })
}
