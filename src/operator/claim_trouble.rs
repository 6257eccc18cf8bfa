//! Why a pod has no node: its volume claim may have no volume. The scheduler alone would say so in words of its own, and
//! not which claim, nor what to do.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::observation::{ClaimFacts, ClaimPhase, PodFacts, PodTrouble};

/// Reason while a claim waits for a volume.
pub const CLAIM_PENDING: &str = "ClaimPending";
/// Reason when the volume of a claim is gone.
pub const CLAIM_LOST: &str = "ClaimLost";

/// How long a claim may wait for its volume before a person has to act: longer than storage takes to provide one.
const PROVIDED_WITHIN: SignedDuration = SignedDuration::from_secs(120);

/// Names the claim of a pod that waits for a node, if that has no volume.
pub(super) fn with_claim(pod: PodFacts, claims: &[ClaimFacts], now: Timestamp) -> PodFacts {
    let claim = claims.iter().find(|claim| Some(&claim.name) == pod.claim.as_ref());
    let trouble = match (claim, pod.unscheduled_since) {
        (Some(claim), Some(since)) => trouble(claim, pod.trouble.as_ref(), now.duration_since(since)),
        _ => None,
    };
    PodFacts { trouble: trouble.or(pod.trouble), ..pod }
}

fn trouble(claim: &ClaimFacts, said: Option<&PodTrouble>, waited: SignedDuration) -> Option<PodTrouble> {
    let name = &claim.name;
    let (reason, stalled, message) = match (claim.phase, &claim.shape.storage_class) {
        (ClaimPhase::Bound, _) => return None,
        (ClaimPhase::Lost, _) => {
            let message = format!(
                "the volume of the claim {name} is gone: delete the claim and the pod; the master then reads the log"
            );
            (CLAIM_LOST, true, message)
        }
        (ClaimPhase::Pending, None) => {
            let message = format!(
                "the volume claim {name} is Pending and has no StorageClass: make one the default of this Kubernetes, or \
                 name one in spec.snapshots.store.volumeClaim.storageClassName and delete the claim"
            );
            (CLAIM_PENDING, waited > PROVIDED_WITHIN, message)
        }
        (ClaimPhase::Pending, Some(class)) => {
            let scheduler =
                said.map_or_else(String::new, |said| format!("; the scheduler says: {}", said.message));
            let message = format!("the volume claim {name} (StorageClass {class}) is Pending{scheduler}");
            (CLAIM_PENDING, waited > PROVIDED_WITHIN, message)
        }
    };
    Some(PodTrouble { reason: reason.to_owned(), message, stalled })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::observation::ClaimShape;

    fn seen(phase: ClaimPhase, class: Option<&str>, waited: i64) -> Option<PodTrouble> {
        let now = Timestamp::from_second(1000).unwrap();
        let pod = PodFacts {
            claim: Some("data-a-0".to_owned()),
            unscheduled_since: Some(now - SignedDuration::from_secs(waited)),
            trouble: Some(PodTrouble {
                reason: "Unschedulable".to_owned(),
                message: "0/3 nodes".to_owned(),
                stalled: false,
            }),
            ..PodFacts::default()
        };
        let shape = ClaimShape { size: "8Gi".to_owned(), storage_class: class.map(str::to_owned) };
        let claim = ClaimFacts { name: "data-a-0".to_owned(), phase, shape, ..ClaimFacts::default() };
        with_claim(pod, &[claim], now).trouble
    }

    #[test]
    fn a_claim_without_a_volume_is_named_and_stalls_after_a_while() {
        let said = seen(ClaimPhase::Pending, Some("slow"), 120).unwrap();
        assert_eq!((said.reason.as_str(), said.stalled), (CLAIM_PENDING, false));
        let expected =
            "the volume claim data-a-0 (StorageClass slow) is Pending; the scheduler says: 0/3 nodes";
        assert_eq!(said.message, expected);
        assert!(seen(ClaimPhase::Pending, Some("slow"), 121).unwrap().stalled);
        let said = seen(ClaimPhase::Pending, None, 0).unwrap();
        assert!(said.message.contains("data-a-0 is Pending and has no StorageClass"), "{}", said.message);
        let lost = seen(ClaimPhase::Lost, Some("slow"), 0).unwrap();
        assert_eq!((lost.reason.as_str(), lost.stalled), (CLAIM_LOST, true));
        // Something else keeps the pod from a node.
        assert_eq!(seen(ClaimPhase::Bound, Some("slow"), 500).unwrap().reason, "Unschedulable");
    }
}
