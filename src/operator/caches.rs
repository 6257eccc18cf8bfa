//! Caches of Kubernetes objects, kept current by watches: all MasterCluster resources, and of other kinds only objects
//! with our label. A change of an object wakes the controller for the cluster that it belongs to.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;

use crate::api::MasterCluster;
use crate::api::names::{CLUSTER_LABEL, MANAGED_BY, MANAGED_BY_LABEL};

/// How long the API server keeps a watch before it has to be renewed. A watch whose connection was lost silently is
/// noticed 5 s after that; until then the cache is stale.
const WATCH_SECONDS: u32 = 15;

/// Channel to the controller: the clusters that need a pass.
pub type Wake = mpsc::UnboundedSender<ObjectRef<MasterCluster>>;

/// The caches of all kinds that the operator watches.
#[derive(Clone, Debug)]
pub struct Caches {
    pub clusters: Cache<MasterCluster>,
    pub pods: Cache<Pod>,
    pub stateful_sets: Cache<StatefulSet>,
    pub services: Cache<Service>,
    /// The settings files of masters.
    pub config_maps: Cache<ConfigMap>,
    pub service_accounts: Cache<ServiceAccount>,
    pub budgets: Cache<PodDisruptionBudget>,
    pub policies: Cache<NetworkPolicy>,
    /// The claims of masters.
    pub claims: Cache<PersistentVolumeClaim>,
}

/// Cache of the objects of one kind.
#[derive(Clone, Debug)]
pub struct Cache<K: Resource<DynamicType = ()> + Clone + 'static>(Store<K>);

impl<K> Cache<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + 'static,
{
    /// Returns the cached object with this name.
    #[must_use]
    pub fn named(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.0.get(&ObjectRef::new(name).within(namespace))
    }

    /// Returns the cached object with the same name as `like`.
    #[must_use]
    pub fn find(&self, namespace: &str, like: &K) -> Option<Arc<K>> {
        self.named(namespace, &like.name_any())
    }

    /// Returns the objects with the label of a cluster, sorted by name.
    #[must_use]
    pub fn of_cluster(&self, namespace: &str, cluster: &str) -> Vec<Arc<K>> {
        let mut found = self.0.state_filter(|object| {
            object.namespace().as_deref() == Some(namespace)
                && object.labels().get(CLUSTER_LABEL).map(String::as_str) == Some(cluster)
        });
        found.sort_by_key(|object| object.name_any());
        found
    }

    /// Returns the underlying store, which keeps changing with the cache.
    #[must_use]
    pub fn store(&self) -> Store<K> {
        self.0.clone()
    }

    async fn is_filled(&self) {
        // It fails only if the writer is gone. The writer belongs to the watch, and that task outlives every caller of
        // this.
        let _ = self.0.wait_until_ready().await;
    }
}

impl Caches {
    /// Starts the watches, in one namespace or in all. They run in `tasks`.
    #[must_use]
    pub fn start(client: &Client, namespace: Option<&str>, wake: &Wake, tasks: &mut JoinSet<()>) -> Self {
        let mut start = Start { client, namespace, wake, tasks };
        Self {
            clusters: start
                .watching(watcher::Config::default(), |cluster| Some(ObjectRef::from_obj(cluster))),
            pods: start.watching_ours(),
            stateful_sets: start.watching_ours(),
            services: start.watching_ours(),
            config_maps: start.watching_ours(),
            service_accounts: start.watching_ours(),
            budgets: start.watching_ours(),
            policies: start.watching_ours(),
            claims: start.watching_ours(),
        }
    }

    /// Waits until every cache has been filled once. Before that, an object that is missing in a cache may exist all
    /// the same.
    pub async fn are_filled(&self) {
        let Self {
            clusters,
            pods,
            stateful_sets,
            services,
            config_maps,
            service_accounts,
            budgets,
            policies,
            claims,
        } = self;
        tokio::join!(
            clusters.is_filled(),
            pods.is_filled(),
            stateful_sets.is_filled(),
            services.is_filled(),
            config_maps.is_filled(),
            service_accounts.is_filled(),
            budgets.is_filled(),
            policies.is_filled(),
            claims.is_filled(),
        );
    }
}

/// Starts watches; holds what all of them need.
struct Start<'s> {
    client: &'s Client,
    namespace: Option<&'s str>,
    wake: &'s Wake,
    tasks: &'s mut JoinSet<()>,
}

impl Start<'_> {
    /// Watches the objects of a kind that have our label.
    fn watching_ours<K>(&mut self) -> Cache<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + Sync
            + 'static,
    {
        let selected = format!("{MANAGED_BY_LABEL}={MANAGED_BY},{CLUSTER_LABEL}");
        self.watching(watcher::Config::default().labels(&selected), cluster_of)
    }

    /// Watches the objects of a kind that `config` selects. `cluster` maps each to the cluster that it belongs to.
    fn watching<K>(
        &mut self,
        config: watcher::Config,
        cluster: impl Fn(&K) -> Option<ObjectRef<MasterCluster>> + Send + 'static,
    ) -> Cache<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + Sync
            + 'static,
    {
        let api: Api<K> = match self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let (store, writer) = reflector::store::<K>();
        let stream = watcher(api, config.timeout(WATCH_SECONDS))
            // The operator never reads managed fields, and they are half of every object.
            .modify(|object| object.managed_fields_mut().clear())
            .default_backoff()
            .reflect(writer)
            .touched_objects();
        let wake = self.wake.clone();
        self.tasks.spawn(async move {
            let mut stream = std::pin::pin!(stream);
            while let Some(event) = stream.next().await {
                match event {
                    Ok(object) => {
                        if let Some(cluster) = cluster(&object) {
                            // The receiver is gone only when the process ends.
                            let _ = wake.send(cluster);
                        }
                    }
                    Err(error) => {
                        tracing::warn!(kind = %K::kind(&()), %error, "a watch failed and starts again");
                    }
                }
            }
        });
        Cache(store)
    }
}

/// Returns the cluster that an object belongs to, by its label: the owner of a pod is the StatefulSet, not the cluster.
fn cluster_of<K: Resource<DynamicType = ()>>(object: &K) -> Option<ObjectRef<MasterCluster>> {
    let cluster = object.meta().labels.as_ref()?.get(CLUSTER_LABEL)?;
    Some(ObjectRef::new(cluster).within(object.meta().namespace.as_deref()?))
}
