//! Applies the objects of a cluster by server-side apply, and writes nothing where that changes nothing (INV-9).
//!
//! A dry run shows what an object would become: only the API server knows its defaults and how it writes quantities.
//! The result is cached by the wanted and the existing object, so a settled cluster costs no request. Where a user or
//! another controller has set a field of ours, ours wins: these objects belong to the operator.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, PodSpec};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::build::{Objects, image};
use super::caches::Caches;
use super::lease::WriteRight;
use super::metrics::{Metrics, Write};
use crate::api::names::{CLUSTER_LABEL, FIELD_MANAGER};

/// Why something could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// This operator does not hold the Lease.
    #[error("this operator no longer holds the lease")]
    NotHolder,
    /// The API server refused or did not answer.
    #[error("cannot read or write {what}: {}", said(source))]
    Kubernetes {
        what: String,
        #[source]
        source: kube::Error,
    },
    /// An object cannot be written as JSON.
    #[error("{what} cannot be written as JSON: {source}")]
    Json { what: String, source: serde_json::Error },
    /// An object of that name exists, and is not ours.
    #[error(
        "{what} exists and has another owner; delete it, or create this MasterCluster under another name"
    )]
    Foreign { what: String },
}

/// Returns the message of an error of the API server, without the rest of the answer.
pub(crate) fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

impl WriteError {
    /// Returns the reason for conditions, in one CamelCase word.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotHolder => "NotHolder",
            Self::Kubernetes { source: kube::Error::Api(status), .. } => match status.code {
                401 | 403 => "Forbidden",
                409 => "Conflict",
                422 => "Refused",
                _ => "ApplyFailed",
            },
            Self::Kubernetes { .. } => "ApplyFailed",
            Self::Json { .. } => "Unwritable",
            Self::Foreign { .. } => "NameTaken",
        }
    }

    /// Returns whether it needs a manual action.
    #[must_use]
    pub fn stalled(&self) -> bool {
        match self {
            Self::NotHolder | Self::Json { .. } => false,
            Self::Foreign { .. } => true,
            Self::Kubernetes { source: kube::Error::Api(status), .. } => matches!(status.code, 403 | 422),
            Self::Kubernetes { .. } => false,
        }
    }
}

/// Evidence that the API server has taken the objects of a cluster. Only [`Writer::apply`] makes it, so that no status
/// names what was merely planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedObjects {
    image: Option<String>,
}

impl AppliedObjects {
    /// Returns the image of the masters, if their StatefulSet was among the objects.
    #[must_use]
    pub fn image(&self) -> Option<&str> {
        self.image.as_deref()
    }
}

/// Writes Kubernetes objects while this process holds the Lease.
pub struct Writer {
    pub client: Client,
    /// Whether this process may write.
    pub right: WriteRight,
    pub metrics: Metrics,
    /// For each object: hashes of the wanted and the existing version for which applying changes nothing.
    applied_before: Mutex<HashMap<String, (u64, u64)>>,
}

/// Upper bound of `applied_before`. When it is reached the cache is cleared, which costs one dry run for each object.
const MAX_REMEMBERED: usize = 100_000;

impl Writer {
    /// Creates a writer that writes as long as `right` holds.
    #[must_use]
    pub fn new(client: Client, right: WriteRight, metrics: Metrics) -> Self {
        Self { client, right, metrics, applied_before: Mutex::default() }
    }

    /// Checks that this process holds the Lease. Called before every write.
    ///
    /// # Errors
    ///
    /// If this process is not the holder.
    pub fn permit(&self) -> Result<(), WriteError> {
        if self.right.holds() { Ok(()) } else { Err(WriteError::NotHolder) }
    }

    /// Applies the objects of a cluster: all, or with `keep_masters` all but the settings file and the StatefulSet.
    ///
    /// # Errors
    ///
    /// With the first object that could not be written; the ones before it were.
    pub async fn apply(
        &self,
        namespace: &str,
        objects: Objects,
        keep_masters: bool,
        caches: &Caches,
    ) -> Result<AppliedObjects, WriteError> {
        // Without `..`: a new kind of object does not compile until it is applied.
        let Objects {
            service_account,
            config_map,
            admin_secret,
            headless_service,
            leader_service,
            masters_service,
            pod_disruption_budget,
            network_policy,
            stateful_set,
        } = objects;
        let cluster = stateful_set.name_any();
        self.one(namespace, &service_account, caches.service_accounts.find(namespace, &service_account))
            .await?;
        if !keep_masters {
            self.one(namespace, &config_map, caches.config_maps.find(namespace, &config_map)).await?;
        }
        // Secrets are not cached: the existing one is read by name.
        let secrets: Api<_> = Api::namespaced(self.client.clone(), namespace);
        let name = admin_secret.name_any();
        let there = secrets.get_opt(&name).await.map_err(|source| failed("Secret", &name, source))?;
        self.one(namespace, &admin_secret, there.as_ref()).await?;
        for service in [&headless_service, &leader_service, &masters_service] {
            self.one(namespace, service, caches.services.find(namespace, service)).await?;
        }
        self.one(namespace, &pod_disruption_budget, caches.budgets.find(namespace, &pod_disruption_budget))
            .await?;
        match &network_policy {
            Some(policy) => self.one(namespace, policy, caches.policies.find(namespace, policy)).await?,
            None => {
                if let Some(policy) = caches.policies.named(namespace, &cluster) {
                    self.delete(namespace, &*policy).await?;
                }
            }
        }
        if keep_masters {
            return Ok(AppliedObjects { image: None });
        }
        // After the ConfigMap and the Secret, which its pods mount.
        self.one(namespace, &stateful_set, caches.stateful_sets.find(namespace, &stateful_set)).await?;
        for old in old_config_maps(namespace, &cluster, &config_map, caches) {
            self.delete(namespace, &*old).await?;
        }
        Ok(AppliedObjects { image: image::of_template(&stateful_set).map(str::to_owned) })
    }

    /// Applies one object, unless that would change nothing.
    async fn one<K>(
        &self,
        namespace: &str,
        wanted: &K,
        there: Option<impl std::ops::Deref<Target = K>>,
    ) -> Result<(), WriteError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        let name = wanted.name_any();
        let kind = K::kind(&());
        let what = format!("{kind} {name}");
        let key = format!("{namespace}/{what}");
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        let json = |object: &K| {
            serde_json::to_value(object).map_err(|source| WriteError::Json { what: what.clone(), source })
        };
        let wanted_value = json(wanted)?;
        let wanted_mark = mark(&wanted_value);
        let params = PatchParams::apply(FIELD_MANAGER).force();
        // An object that is not in the cache may exist without our label.
        let unlabelled = match there {
            Some(_) => None,
            None => api.get_opt(&name).await.map_err(|source| failed(&kind, &name, source))?,
        };
        if let Some(there) = there.as_deref().or(unlabelled.as_ref()) {
            if !is_ours(there.meta(), wanted.meta()) {
                return Err(WriteError::Foreign { what });
            }
            let is = essence(json(there)?);
            let marks = (wanted_mark, mark(&is));
            if self.applied_before.lock().get(&key) == Some(&marks) {
                return Ok(());
            }
            match changes(&api, wanted, is, &json).await? {
                Change::Some => {}
                Change::None => {
                    self.remember(key, marks);
                    return Ok(());
                }
                Change::Made => return Ok(()),
            }
        }
        self.permit()?;
        let applied = api.patch(&name, &params, &Patch::Apply(wanted)).await;
        let applied = applied.map_err(|source| failed(&kind, &name, source))?;
        self.metrics.wrote(Write::Apply);
        tracing::info!(namespace, object = what, "applied");
        self.remember(key, (wanted_mark, mark(&essence(json(&applied)?))));
        Ok(())
    }

    fn remember(&self, key: String, marks: (u64, u64)) {
        let mut applied_before = self.applied_before.lock();
        if applied_before.len() >= MAX_REMEMBERED {
            applied_before.clear();
        }
        applied_before.insert(key, marks);
    }

    /// Deletes an object, if its uid is unchanged.
    ///
    /// # Errors
    ///
    /// If it is neither deleted nor gone already.
    pub async fn delete<K>(&self, namespace: &str, object: &K) -> Result<(), WriteError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        self.permit()?;
        let name = object.name_any();
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        let params = DeleteParams {
            preconditions: Some(kube::api::Preconditions { uid: object.uid(), ..Default::default() }),
            ..DeleteParams::background()
        };
        match api.delete(&name, &params).await {
            Ok(_) => {
                self.metrics.wrote(Write::Delete);
                tracing::info!(namespace, kind = %K::kind(&()), name, "deleted");
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(source) => Err(failed(&K::kind(&()), &name, source)),
        }
    }
}

/// What applying an object would change.
enum Change {
    Some,
    None,
    /// It is done already: the cache is behind a write of our own.
    Made,
}

/// Finds out by a dry run what applying an object would change. `is` is the existing one as the cache has it.
async fn changes<K>(
    api: &Api<K>,
    wanted: &K,
    is: Value,
    json: impl Fn(&K) -> Result<Value, WriteError>,
) -> Result<Change, WriteError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let (name, params) = (wanted.name_any(), PatchParams::apply(FIELD_MANAGER).force().dry_run());
    let unanswered = |source| failed(&K::kind(&()), &name, source);
    let would_be = api.patch(&name, &params, &Patch::Apply(wanted)).await.map_err(unanswered)?;
    let would_be = essence(json(&would_be)?);
    if would_be == is {
        return Ok(Change::None);
    }
    let now = api.get_opt(&name).await.map_err(unanswered)?;
    let is_made = now.map(|now| json(&now)).transpose()?.is_some_and(|now| essence(now) == would_be);
    Ok(if is_made { Change::Made } else { Change::Some })
}

/// Returns the settings files that no pod mounts, and that no new pod will mount: the StatefulSet's controller has seen
/// the template with the present one.
fn old_config_maps(
    namespace: &str,
    cluster: &str,
    present: &ConfigMap,
    caches: &Caches,
) -> Vec<Arc<ConfigMap>> {
    let Some(set) = caches.stateful_sets.named(namespace, cluster) else { return Vec::new() };
    let template = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let seen = set.status.as_ref().is_some_and(|it| it.observed_generation >= set.metadata.generation);
    if !seen || !template.is_some_and(|template| mounts(template, &present.name_any())) {
        return Vec::new();
    }
    let pods = caches.pods.of_cluster(namespace, cluster);
    let in_use = |name: &str| pods.iter().filter_map(|pod| pod.spec.as_ref()).any(|pod| mounts(pod, name));
    let mut found = caches.config_maps.of_cluster(namespace, cluster);
    found.retain(|it| {
        let name = it.name_any();
        name != present.name_any() && controller(it.meta()) == controller(present.meta()) && !in_use(&name)
    });
    found
}

fn mounts(pod: &PodSpec, config_map: &str) -> bool {
    let mut volumes = pod.volumes.iter().flatten().filter_map(|volume| volume.config_map.as_ref());
    volumes.any(|volume| volume.name == config_map)
}

pub(super) fn failed(kind: &str, name: &str, source: kube::Error) -> WriteError {
    WriteError::Kubernetes { what: format!("{kind} {name}"), source }
}

type Meta = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Returns whether an existing object is ours: it has our owner, or no controller and our label.
fn is_ours(there: &Meta, wanted: &Meta) -> bool {
    let cluster = |meta: &Meta| meta.labels.as_ref().and_then(|labels| labels.get(CLUSTER_LABEL).cloned());
    match controller(there) {
        None => cluster(there).is_some() && cluster(there) == cluster(wanted),
        owner => owner == controller(wanted),
    }
}

/// Returns the uid of the owner that controls an object.
fn controller(meta: &Meta) -> Option<String> {
    let mut owners = meta.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone())
}

/// Returns an object without the fields that the API server and controllers change.
fn essence(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["managedFields", "resourceVersion", "generation"] {
            metadata.remove(field);
        }
    }
    object
}

fn mark(value: &Value) -> u64 {
    // Maps of serde_json are sorted, so equal values have equal text.
    xxh3_64(value.to_string().as_bytes())
}
