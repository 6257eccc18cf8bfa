//! What the operator says about a cluster. What it could not find out is absent, never a zero.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// What the operator found out about a cluster when it last looked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MasterClusterStatus {
    /// The generation of the spec that all of this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Where the cluster stands, in a word. Conditions say more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The term of the present primary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub term: Option<i64>,
    /// The primary. Absent while there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<LeaderStatus>,
    /// How many pods there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// How many of them are ready: the primary, and standbys that could take over at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// How many standbys could take over at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caught_up_replicas: Option<i32>,
    /// How many pods run with the present template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_replicas: Option<i32>,
    /// What selects the pods, for the scale subresource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// The most records that a standby is behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<i64>,
    /// The image that the masters are made with. It stays until spec.image asks for another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The version of the program that serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Every master.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub members: Vec<MemberStatus>,
    /// The log in etcd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oplog: Option<OplogStatus>,
    /// The etcd that the log is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd: Option<EtcdStatus>,
    /// The snapshots that registered masters hold, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
    pub snapshots: Vec<SnapshotEntry>,
    /// What came of the last snapshot that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_snapshot: Option<SnapshotReport>,
    /// The last time that a primary was lost and another one took over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failover: Option<FailoverReport>,
    /// What came of the last switchover that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_switchover: Option<SwitchoverReport>,
    /// Ready, Available, Redundant, Progressing, Stalled, EtcdHealthy, SnapshotFresh, UpToDate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// Where a cluster stands, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Something that is needed is not there yet; conditions name it.
    Pending,
    /// Masters start, and none has served yet.
    Starting,
    /// A primary serves and every standby could take over.
    Serving,
    /// A primary serves, but not every standby could take over.
    Degraded,
    /// A primary has served, and none does now.
    NoPrimary,
    /// A switchover is under way.
    SwitchingOver,
    /// It will not recover without a manual action; conditions name the cause.
    Stalled,
    /// The operator was asked to leave the cluster alone.
    Suspended,
    /// The resource is being deleted.
    Deleting,
}

/// Who leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaderStatus {
    /// The pod.
    pub name: String,
    /// Where Mooncake clients reach it.
    pub address: String,
    /// Since when, as far as the operator saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub since: Option<Time>,
}

/// One master.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// The pod.
    pub name: String,
    /// The node that it runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// primary, standby or unknown.
    pub role: String,
    /// The last record that it has applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied: Option<i64>,
    /// How many records it is behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<i64>,
    /// The version of its program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// When its key was last seen in etcd. Written with every change of the status, and else every five minutes, as are
    /// applied and lag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_seen: Option<Time>,
}

/// The log in etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct OplogStatus {
    /// The last record that is durable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durable_prefix: Option<i64>,
    /// The log that the masters of this cluster write. With deletionPolicy Delete no other one is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_id: Option<String>,
}

/// The etcd that the log is in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct EtcdStatus {
    /// What etcd calls itself. Endpoints that lead to another etcd are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// The endpoints that led to it last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<String>,
    /// Size of the database file of the member that is nearest to its quota; the next four are about the same member.
    /// Written with every change of the status, and else every five minutes, as are inUseBytes and the two below the
    /// quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub db_bytes: Option<i64>,
    /// The part of that file that holds data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_use_bytes: Option<i64>,
    /// The limit of the file's size, at which etcd refuses writes. Absent if etcd does not report it, as before 3.6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<i64>,
    /// By how much the part in use grows, over the last ten minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth_bytes_per_second: Option<i64>,
    /// When the quota is used up at that rate. Absent if it does not grow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_left_seconds: Option<i64>,
    /// The alarms that are active: NOSPACE, CORRUPT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alarms: Option<Vec<String>>,
    /// Endpoints whose member did not answer, so that its size is unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub silent_endpoints: Vec<String>,
}

/// A snapshot that masters hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotEntry {
    /// Its name.
    pub id: String,
    /// The last record in it.
    pub sequence_id: i64,
    /// Size of the file.
    pub bytes: i64,
    /// The masters that hold one up to this record.
    pub holders: Vec<String>,
    /// When it was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub at: Option<Time>,
}

/// What came of a request for a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotReport {
    /// Which one was asked for.
    pub request_id: String,
    /// Who takes it, or has taken it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// The snapshot has at least this record; with the result Succeeded it is the last one in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_id: Option<i64>,
    /// What came of it.
    pub result: SnapshotResult,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it was asked for, and once there is a result, when that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub at: Option<Time>,
}

/// What came of a request for a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SnapshotResult {
    /// It is under way.
    Pending,
    /// It counts.
    Succeeded,
    /// There is none.
    Failed,
}

/// A primary was lost and another one took over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailoverReport {
    /// Who led before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Who took over.
    pub to: String,
    /// Why, in CamelCase.
    pub reason: String,
    /// From knowing that there is no primary to the open port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_milliseconds: Option<i64>,
    /// What the new primary has to clean up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleaned: Option<Cleaned>,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub at: Option<Time>,
}

/// What a new primary has to clean up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cleaned {
    /// Clients of the old primary, which have to report their memory again.
    pub clients: i64,
}

/// What came of a switchover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SwitchoverReport {
    /// Which one was asked for.
    pub request_id: String,
    /// Who led before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Who leads now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The term that began with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<i64>,
    /// What came of it.
    pub result: SwitchoverResult,
    /// Why it did not succeed, or what it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How long no master answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_milliseconds: Option<i64>,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub at: Option<Time>,
}

/// What came of a switchover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SwitchoverResult {
    /// It is under way.
    Pending,
    /// Another one leads.
    Succeeded,
    /// The old primary still leads, or another one than asked for.
    Failed,
}
