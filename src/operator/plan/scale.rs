//! How many masters there are. More can be had at once. Fewer only if nobody serves from one that would go: a
//! StatefulSet ends those with the highest ordinals, whoever they are.

use crate::api::MasterClusterSpec;
use crate::operator::observed::Observed;

/// How many masters the StatefulSet shall have now; what it waits for is added to `waits`.
#[must_use]
pub fn replicas(spec: &MasterClusterSpec, observed: &Observed, waits: &mut Vec<String>) -> i32 {
    let wanted = spec.replicas;
    let Some(set) = &observed.stateful_set else { return wanted };
    if wanted >= set.replicas {
        return wanted;
    }
    let Some(view) = observed.etcd.view() else {
        waits.push(format!("etcd to say who leads, before there are {wanted} masters only"));
        return set.replicas;
    };
    let Some(leader) = &view.leader else {
        if observed.status.term.is_none() {
            // Nobody has ever led, so nobody serves from any of them.
            return wanted;
        }
        waits.push(format!("a primary, before there are {wanted} masters only"));
        return set.replicas;
    };
    let primary = &leader.value.name;
    let ordinal = primary.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse::<i32>().ok());
    match ordinal {
        Some(ordinal) if ordinal < wanted => wanted,
        _ => {
            waits.push(format!(
                "a switchover to a master that stays: {primary} serves and would go with {wanted} masters"
            ));
            set.replicas
        }
    }
}
