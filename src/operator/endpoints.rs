//! Host names in `spec.etcd.endpoints`. Masters resolve them in their own namespace; the operator, which is in another
//! one, has to find the same hosts.

use std::collections::BTreeMap;

/// Returns the names to look up, in this order, for a host name as a pod of the namespace resolves it; none for a name
/// that resolves the same everywhere.
///
/// A name without a dot is a Service of the namespace, never one of the operator's own. A name with one dot is a pod of
/// a headless Service of the namespace (`etcd-0.etcd`), else a Service of another one (`etcd.store`), else a host of
/// the network.
#[must_use]
pub fn lookups(host: &str, namespace: &str) -> Vec<String> {
    if host.parse::<std::net::IpAddr>().is_ok() || host == "localhost" {
        return Vec::new();
    }
    match host.matches('.').count() {
        0 => vec![format!("{host}.{namespace}.svc"), format!("{host}.{namespace}")],
        1 if !host.ends_with('.') => {
            vec![format!("{host}.{namespace}.svc"), format!("{host}.svc"), host.to_owned()]
        }
        _ => Vec::new(),
    }
}

/// Returns [`lookups`] for all endpoints, by host.
#[must_use]
pub fn all_lookups(endpoints: &[String], namespace: &str) -> BTreeMap<String, Vec<String>> {
    let hosts = endpoints.iter().filter_map(|endpoint| host(endpoint));
    let names = hosts.map(|host| (host.to_owned(), lookups(host, namespace)));
    names.filter(|(_, names)| !names.is_empty()).collect()
}

/// Returns an endpoint with its host qualified by the namespace, to compare it with endpoints of clusters in other
/// namespaces. It is the first name to look up, so the comparison is a best guess.
#[must_use]
pub fn qualified(endpoint: &str, namespace: &str) -> String {
    let Some(host) = host(endpoint) else { return endpoint.to_owned() };
    match lookups(host, namespace).first() {
        Some(name) => endpoint.replacen(host, name, 1),
        None => endpoint.to_owned(),
    }
}

/// Returns the host of a URL, without the brackets of an IPv6 address.
fn host(endpoint: &str) -> Option<&str> {
    let (_, rest) = endpoint.split_once("://")?;
    let authority = rest.split('/').next()?;
    match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map(|(host, _)| host),
        None => authority.rsplit_once(':').map(|(host, _)| host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_those_of_the_namespace() {
        assert_eq!(lookups("etcd", "team"), ["etcd.team.svc", "etcd.team"]);
        assert_eq!(
            lookups("etcd-0.etcd", "team"),
            ["etcd-0.etcd.team.svc", "etcd-0.etcd.svc", "etcd-0.etcd"]
        );
        for host in ["10.1.2.3", "fd00::1", "etcd.team.svc", "etcd.example.com", "localhost", "etcd."] {
            assert!(lookups(host, "team").is_empty(), "{host}");
        }
        let endpoints = ["http://etcd:2379", "https://[fd00::1]:2379", "http://a.b:1/"].map(str::to_owned);
        let names = all_lookups(&endpoints, "team");
        assert_eq!(names.keys().collect::<Vec<_>>(), ["a.b", "etcd"]);
        assert_eq!(qualified("http://etcd:2379", "team"), "http://etcd.team.svc:2379");
        assert_eq!(qualified("http://10.1.2.3:2379", "team"), "http://10.1.2.3:2379");
    }
}
