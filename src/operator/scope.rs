//! Decides which clusters are this operator's, where several operators are installed. Each operator holds a Lease: one
//! for a single namespace in that namespace, so that only one of these leads there; one for all namespaces in its own.
//! The latter reads all these Leases. It leaves namespaces alone that have an operator of their own, and all clusters
//! if there is an older operator for all namespaces. Two operators that both acted would undo each other's work.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

/// The name of every operator's Lease.
pub const LEASE: &str = "moonkeeper-operator";

/// Label of a Lease with the scope of its holder.
pub const SCOPE_LABEL: &str = "moonkeeper.dev/scope";

/// Poll interval of the Leases of other operators.
const INTERVAL: Duration = Duration::from_secs(5);

/// Duration of a Lease whose record has none.
const LASTS: Duration = Duration::from_secs(15);

/// A Lease that was last renewed longer ago than this counts as abandoned when it is first read. Machines that accept
/// each other's certificates and tokens have clocks that differ by far less; and a holder that is alive renews within
/// seconds, which is noticed.
const ABANDONED: SignedDuration = SignedDuration::from_mins(5);

/// The namespaces of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The clusters of all namespaces.
    All,
    /// The clusters of one namespace.
    Namespace(String),
}

impl Scope {
    /// Returns the scope for the namespace setting; `None` means all.
    #[must_use]
    pub fn of(namespace: Option<&str>) -> Self {
        namespace.map_or(Self::All, |name| Self::Namespace(name.to_owned()))
    }

    /// Returns the value of [`SCOPE_LABEL`].
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Namespace(_) => "namespace",
        }
    }

    /// Returns the namespace of the Lease of an operator that runs in `own`.
    #[must_use]
    pub fn lease_namespace<'s>(&'s self, own: &'s str) -> &'s str {
        match self {
            Self::All => own,
            Self::Namespace(name) => name,
        }
    }
}

/// A Lease of an operator, as last read.
#[derive(Clone, Debug)]
struct Claim {
    spec: LeaseSpec,
    /// Whether its holder is an operator for all namespaces.
    all: bool,
    /// Creation time, which orders operators for all namespaces.
    age: Option<Timestamp>,
    /// Since when the record has been the same, by this process's clock. Wall clocks only decide whether it was
    /// abandoned before it was first read.
    since: Instant,
    /// Abandoned when it was first read, and not renewed since.
    abandoned: bool,
}

impl Claim {
    fn is_held(&self) -> bool {
        let lasts = self.spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let held = self.spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty());
        held && !self.abandoned && self.since.elapsed() < lasts.map_or(LASTS, Duration::from_secs)
    }
}

/// Returns whether the last renewal of a Lease is so old that its holder must have ended.
fn is_abandoned(spec: &LeaseSpec, now: Timestamp) -> bool {
    let lasts = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or_default().into());
    spec.renew_time.as_ref().is_some_and(|renewed| now.duration_since(renewed.0) > ABANDONED.max(lasts))
}

/// The Leases of other operators, by namespace.
#[derive(Debug, Default)]
pub struct Others {
    /// Where this operator's own Lease is.
    own: String,
    claims: Mutex<BTreeMap<String, Claim>>,
}

impl Others {
    /// Creates an empty set for the operator whose Lease is in the namespace `own`.
    #[must_use]
    pub fn new(own: &str) -> Self {
        Self { own: own.to_owned(), claims: Mutex::default() }
    }

    /// Reads the Leases once. Passes begin only after the first read.
    ///
    /// # Errors
    ///
    /// If they cannot be read; the last known Leases are kept.
    pub async fn read(&self, client: &Client) -> kube::Result<()> {
        let named = ListParams::default().fields(&format!("metadata.name={LEASE}"));
        let found = Api::<Lease>::all(client.clone()).list(&named).await?;
        self.take_in(found.items);
        Ok(())
    }

    /// Reads the Leases periodically, for ever.
    pub async fn follow(&self, client: Client) {
        loop {
            sleep(INTERVAL).await;
            match tokio::time::timeout(INTERVAL, self.read(&client)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "cannot read the leases of other operators"),
                Err(_) => tracing::warn!("the API server did not list the leases of other operators in time"),
            }
        }
    }

    fn take_in(&self, leases: Vec<Lease>) {
        let mut claims = self.claims.lock();
        let mut before = std::mem::take(&mut *claims);
        for lease in leases {
            let namespace = lease.namespace().unwrap_or_default();
            let all = lease.labels().get(SCOPE_LABEL).map(String::as_str) != Some("namespace");
            let age = lease.creation_timestamp().map(|time| time.0);
            let spec = lease.spec.unwrap_or_default();
            let (since, abandoned) = match before.remove(&namespace) {
                Some(was) if was.spec == spec => (was.since, was.abandoned),
                // A holder that renews is alive, even if its clock is wrong.
                Some(_) => (Instant::now(), false),
                None => (Instant::now(), is_abandoned(&spec, Timestamp::now())),
            };
            claims.insert(namespace, Claim { spec, all, age, since, abandoned });
        }
    }

    /// Returns why the clusters of a namespace belong to another operator, if they do.
    #[must_use]
    pub fn owner_of(&self, namespace: &str) -> Option<String> {
        let claims = self.claims.lock();
        let is_other = |name: &str, claim: &Claim| name != self.own && claim.is_held();
        if claims.get(namespace).is_some_and(|claim| is_other(namespace, claim) && !claim.all) {
            return Some(format!(
                "an operator for namespace {namespace} alone holds the Lease {LEASE} there"
            ));
        }
        let mine = (claims.get(&self.own).and_then(|claim| claim.age), self.own.as_str());
        // Without a Lease of its own this operator is the youngest.
        let older = |name: &str, claim: &Claim| mine.0.is_none() || (claim.age, name) < mine;
        let (place, _) =
            claims.iter().find(|(name, claim)| is_other(name, claim) && claim.all && older(name, claim))?;
        Some(format!("an older operator for all namespaces holds the Lease {LEASE} in namespace {place}"))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};

    use super::*;

    fn lease(namespace: &str, scope: &str, second: i64, holder: &str) -> Lease {
        Lease {
            metadata: ObjectMeta {
                name: Some(LEASE.into()),
                namespace: Some(namespace.into()),
                labels: Some(BTreeMap::from([(SCOPE_LABEL.into(), scope.into())])),
                creation_timestamp: Some(Time(Timestamp::from_second(second).unwrap())),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec { holder_identity: Some(holder.into()), ..LeaseSpec::default() }),
        }
    }

    fn others(own: &str, leases: Vec<Lease>) -> Others {
        let others = Others::new(own);
        others.take_in(leases);
        others
    }

    #[test]
    fn a_namespace_with_an_operator_of_its_own_is_left_alone() {
        let both = vec![lease("system", "all", 5, "a"), lease("team", "namespace", 9, "b")];
        let all = others("system", both);
        assert!(all.owner_of("team").unwrap().contains("namespace team"));
        assert_eq!(all.owner_of("elsewhere"), None);
        assert_eq!(all.owner_of("system"), None);
        // Until that operator gives its Lease back.
        let free = vec![lease("system", "all", 5, "a"), lease("team", "namespace", 9, "")];
        assert_eq!(others("system", free).owner_of("team"), None);
    }

    #[test]
    fn of_two_operators_for_all_namespaces_the_older_one_acts() {
        let both = || vec![lease("first", "all", 5, "a"), lease("second", "all", 9, "b")];
        assert_eq!(others("first", both()).owner_of("team"), None);
        assert!(others("second", both()).owner_of("team").unwrap().contains("namespace first"));
        // One without a Lease gives way to every other.
        assert!(others("third", both()).owner_of("team").is_some());
    }

    #[test]
    fn a_lease_that_is_not_renewed_claims_nothing() {
        let both = || vec![lease("system", "all", 5, "a"), lease("team", "namespace", 9, "b")];
        let all = others("system", both());
        all.claims.lock().get_mut("team").unwrap().since -= LASTS;
        // Reading the same record again is no renewal.
        all.take_in(both());
        assert_eq!(all.owner_of("team"), None);
    }

    #[test]
    fn a_lease_that_was_abandoned_long_ago_claims_nothing_at_first_sight() {
        let renewed = |seconds_ago: i64, holder: &str| {
            let mut lease = lease("team", "namespace", 9, holder);
            let at = Timestamp::now() - SignedDuration::from_secs(seconds_ago);
            lease.spec.as_mut().unwrap().renew_time = Some(MicroTime(at));
            lease
        };
        let one = |lease: Lease| others("system", vec![lease]);
        assert_eq!(one(renewed(600, "b")).owner_of("team"), None);
        // Clocks may differ: what is minutes old counts as renewed.
        assert!(one(renewed(240, "b")).owner_of("team").is_some());
        assert!(one(renewed(-600, "b")).owner_of("team").is_some());
        let mut long = renewed(600, "b");
        long.spec.as_mut().unwrap().lease_duration_seconds = Some(3600);
        assert!(one(long).owner_of("team").is_some());
        // A holder whose clock is far behind renews all the same.
        let behind = one(renewed(600, "b"));
        behind.take_in(vec![renewed(598, "b")]);
        assert!(behind.owner_of("team").is_some());
    }
}
