//! Classifies failures by whether etcd itself reported them. Only errors that surely are etcd's own count as answers;
//! all others are unknown (R5).

use etcd_client::Error;
use tonic::Code;

use crate::coordination::types::Failure;

/// A failure, and whether the connection may be its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) failure: Failure,
    pub(super) connection_is_suspect: bool,
}

impl Fault {
    /// Returns the fault of a call without an answer.
    pub(super) fn broken(why: impl Into<String>) -> Self {
        Self { failure: Failure::Unknown(why.into()), connection_is_suspect: true }
    }

    fn answered(failure: Failure) -> Self {
        Self { failure, connection_is_suspect: false }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::GRpcStatus(status) => classify(status.code(), status.message()),
            other => Self::broken(other.to_string()),
        }
    }
}

/// Returns the fault of an answer that does not match its request.
pub(super) fn misfit(what: &str) -> Fault {
    Fault::from(Error::Internal(format!("unexpected answer from etcd: {what}")))
}

fn classify(code: Code, message: &str) -> Fault {
    // All of etcd's own errors start like this. Others come from our side of the connection or from a proxy in between,
    // and can mean that the answer was lost after etcd had carried out the request.
    let Some(reason) = message.strip_prefix("etcdserver: ") else {
        return Fault::broken(format!("{code:?}: {message}"));
    };
    match (code, reason) {
        (Code::OutOfRange, "mvcc: required revision has been compacted") => {
            Fault::answered(Failure::Compacted { oldest: 0 })
        }
        (Code::NotFound, "requested lease not found") => Fault::answered(Failure::LeaseNotFound),
        // A new connection logs in again, with the present content of the files: the password may have been changed.
        // The request itself was not refused, so a caller that retries need not back off as after a refusal.
        (Code::Unauthenticated, _)
        | (
            Code::InvalidArgument,
            "revision of auth store is old" | "authentication failed, invalid user ID or password",
        ) => Fault::broken(format!("{code:?}: {message}")),
        (
            Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::NotFound
            | Code::PermissionDenied
            | Code::ResourceExhausted,
            _,
        ) => Fault::answered(Failure::Refused(message.to_owned())),
        _ => Fault::broken(format!("{code:?}: {message}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_etcd_says_is_an_answer() {
        let compacted = classify(Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted");
        assert_eq!(compacted, Fault::answered(Failure::Compacted { oldest: 0 }));
        let lease = classify(Code::NotFound, "etcdserver: requested lease not found");
        assert_eq!(lease, Fault::answered(Failure::LeaseNotFound));
        let refused = classify(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded");
        assert!(matches!(refused.failure, Failure::Refused(_)) && !refused.connection_is_suspect);
        for (code, message) in [
            (Code::Unavailable, "etcdserver: request timed out"),
            (Code::Unavailable, "etcdserver: leader changed"),
            (Code::Unknown, "etcdserver: something new"),
            (Code::OutOfRange, "Error, decoded message length too large"),
            (Code::PermissionDenied, "from somebody in between"),
            (Code::DeadlineExceeded, ""),
            (Code::Unauthenticated, "etcdserver: invalid auth token"),
            (Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password"),
        ] {
            let fault = classify(code, message);
            assert!(matches!(fault.failure, Failure::Unknown(_)) && fault.connection_is_suspect, "{fault:?}");
        }
    }
}
