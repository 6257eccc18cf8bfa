//! The process of a master that replicates: a node and its driver, the ports that are open in every role, and the RPC
//! port, which is open while this master leads.

mod control;
mod digests;
mod host;
mod published_status;
mod snapshots;
mod testimony;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::cluster::etcd_health::EtcdHealth;
use crate::cluster::keys::Keys;
use crate::cluster::log_end::History;
use crate::cluster::member::{Addresses, BootId};
use crate::cluster::role::Role;
use crate::coordination::etcd::{Etcd, EtcdMembers};
use crate::coordination::types::LeaseId;
use crate::engine::types::{LogTime, SequenceId};
use crate::master::admin_api::{self, AdminApi};
use crate::master::companion::{self, Companion};
use crate::master::data_dir::DataDir;
use crate::master::draining_port::{DrainingPort, TURN_AWAY};
use crate::master::etcd_health;
use crate::master::flags::interface_address;
use crate::master::http::{self, Health, ReferenceRole};
use crate::master::live_state::{AnswerGate, LiveState};
use crate::master::metrics::Metrics;
use crate::master::peer::{
    self, PeerCredentials, PeerEvent, PeerFaults, PeerMessage, PeerPort, PeerState, PrimaryProbe,
};
use crate::master::rpc_server::ServeConfig;
use crate::master::settings::Settings;
use crate::master::settings::ha::HaSettings;
use crate::master::startup::{StartError, admin, engine_settings, rpc_address, serve_http};
use crate::net::listen::{self, host_and_port};
use crate::replication::driver::{Inputs, drive};
use crate::replication::node::{self, Input, Node, SnapshotPolicy};
use crate::replication::snapshot::Origin;
use crate::replication::time::{LogClock, MonotonicClock, RunningClock};

use control::NodeControl;
use host::{ProcessHost, Publishing};
use published_status::PublishedStatus;
use snapshots::{SnapshotPlaces, SnapshotWorker};

/// Timeout of a call to etcd. It is shorter than the leader lease, so that a call that hangs does not cost the lease.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Time after which a hand-over is given up.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the process waits for an orderly end after it was asked to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// How long all live members have to have read a newer format before the log is raised to it. A member that is just
/// being restarted, perhaps with an older version, is not among the live ones.
const RAISE_AFTER: Duration = Duration::from_secs(60);

/// Capacity of the queue of messages from peers.
const PEER_MESSAGES: usize = 256;

/// Runs a master that replicates until `stop` turns true.
pub(super) async fn run(
    settings: &Settings,
    ha: &HaSettings,
    stop: watch::Receiver<bool>,
) -> Result<(), StartError> {
    let clock = MonotonicClock::start();
    let wall = RunningClock::start();
    let metrics = Metrics::new();
    let ports = RolePorts::open(settings, ha).await?;
    let etcd = Arc::new(Etcd::connect(ha.etcd.settings())?);
    let etcd_members = EtcdMembers::connect(&ha.etcd.settings())?;
    let (health, etcd_health) = watch::channel(EtcdHealth::default());
    let data_dir =
        ha.data_dir.as_deref().map(|folder| DataDir::open(folder, &settings.cluster_id)).transpose()?;
    let history = data_dir.as_ref().and_then(|(_, history)| *history);
    let boot_id = BootId(getrandom::u64().map_err(StartError::Random)?);
    tracing::info!(name = ha.member_name, %boot_id, cluster = settings.cluster_id, "starting as a member");

    let keys = Keys::new(&settings.cluster_id);
    let origin = NodeOrigin { boot_id, keys: keys.clone(), clock, wall, history };
    let snapshots_dir = data_dir.as_ref().map(|(data_dir, _)| data_dir.snapshots());
    let reading = snapshots_dir
        .as_ref()
        .map(|dir| snapshots::read(dir.clone(), history, engine_settings(settings), ha.queue_bytes));
    // What is shown until the snapshot has been read, which takes seconds if there are millions of objects.
    let unread = create_node(settings, ha, &ports.addresses, &origin, None);
    let (inputs, received) = Inputs::channel();
    let (state, current) = watch::channel(first_state(&unread, clock));
    let (published, statuses) = watch::channel(PublishedStatus::new(&unread, clock.now()));
    drop(unread);
    let statuses_of_history = statuses.clone();
    let statuses_of_testimony = statuses.clone();
    let (applied, applied_here) = watch::channel(SequenceId(0));
    let (peer_state, peer_states) = watch::channel(first_peer_state(settings, ha, boot_id));
    let (peer_events, events) = mpsc::channel(PEER_MESSAGES);
    let (peer_messages, messages) = mpsc::channel(PEER_MESSAGES);
    let (members, member_lists) = watch::channel(peer::Members::new());
    let credentials = PeerCredentials::read(&ha.peer_auth, &etcd, keys.peer_token())?;
    let own = peer::Identity {
        cluster_id: settings.cluster_id.clone(),
        name: ha.member_name.clone(),
        boot_id: boot_id.to_string(),
    };
    let peer_faults = PeerFaults::new(Arc::clone(&metrics));
    let primary_probe =
        PrimaryProbe::start(own.clone(), credentials.clone(), applied_here, peer_events, peer_faults.clone());
    let (testimony, testimonies) = watch::channel(None);
    let keep_testimony = testimony::keep(own.clone(), credentials.clone(), statuses_of_testimony, testimony);
    let peer_port = PeerPort {
        own: own.clone(),
        credentials: credentials.clone(),
        state: peer_states,
        members: member_lists,
        messages: peer_messages,
        faults: peer_faults.clone(),
    };

    let mut tasks = JoinSet::new();
    // Everything else runs until the node has stopped, because the node hands over first.
    let (end, ended) = watch::channel(false);
    tasks.spawn(peer_port.serve(ports.peer, ended.clone()));
    tasks.spawn(credentials.prepare());
    tasks.spawn(forward_events(events, inputs.clone()));
    tasks.spawn(forward_reports(messages, inputs.clone()));
    tasks.spawn(etcd_health::observe(etcd_members, health));
    let admin = admin(settings, current, etcd_health.clone(), &metrics);
    let control = Arc::new(NodeControl::new(own, statuses, inputs.clone(), clock, peer_faults, etcd_health));
    let readable = admin_api::readable(control.clone());
    let router = http::replicated_router(admin.clone(), Arc::clone(&metrics), readable);
    serve_http(settings, ports.http, router, &admin, &mut tasks, &ended).await?;
    let changes = http::changes(admin.clone(), Arc::clone(&metrics));
    tasks.spawn(ports.admin.serve(control.clone(), changes, settings.http.limits, ended.clone()));
    if let Some((data_dir, _)) = data_dir {
        let statuses = statuses_of_history;
        tasks.spawn(data_dir.keep(move || statuses.borrow().status.history, ended.clone()));
    }
    let address = rpc_address(settings).await?;
    // Before this master can be elected: the companion may hold the port of its predecessor.
    let (companion, draining_port, held_port) = Companion::start(companion::Setup {
        settings: &ha.companion,
        boot_id: boot_id.to_string(),
        address,
        testimonies,
        metrics: Arc::clone(&metrics),
    })
    .await;
    if companion.is_some() {
        tasks.spawn(keep_testimony);
    }
    let found = match reading {
        Some(reading) => Some(snapshots::wait(reading, &published, clock).await),
        None => None,
    };
    let node = create_node(settings, ha, &ports.addresses, &origin, found);
    let host = ProcessHost {
        service: ServeConfig::new(settings, address, metrics),
        durability: ha.durability,
        clock,
        inputs: inputs.clone(),
        primary_probe,
        waiting: control.waiting(),
        snapshots: snapshots_dir
            .map(|dir| SnapshotWorker::start(snapshot_places(settings, ha, dir), inputs.clone())),
        snapshots_waiting: control.snapshots_waiting(),
        serving: None,
        draining_port: Arc::clone(&draining_port),
        held_port,
        log_clock: None,
        told: (clock.now(), None),
        to: Publishing { state, published, applied, peer_state, members },
    };

    let driving = tokio::spawn(drive(node, etcd, inputs.clone(), received, clock, host));
    until_stopped(stop, &inputs, driving, &draining_port, companion).await;
    let _ = end.send(true);
    drop(inputs);
    tasks.shutdown().await;
    tracing::info!("stopped");
    Ok(())
}

/// The ports that are open in every role.
struct RolePorts {
    http: TcpListener,
    peer: TcpListener,
    admin: AdminApi,
    /// Where others reach these and the RPC port.
    addresses: Addresses,
}

impl RolePorts {
    async fn open(settings: &Settings, ha: &HaSettings) -> Result<Self, StartError> {
        let http = listen::bind(&settings.http.host, settings.http.port).await?;
        let peer = listen::bind(&ha.peer.host, ha.peer.port).await?;
        let admin = AdminApi::bind(&ha.admin).await?;
        let host = advertised_host(settings, ha)?;
        let reached_at = |port: u16| host_and_port(&host, port);
        let addresses = Addresses {
            rpc: reached_at(ha.advertise.rpc_port),
            http: reached_at(http.local_addr()?.port()),
            peer: reached_at(peer.local_addr()?.port()),
            admin: reached_at(admin.local_address()?.port()),
        };
        Ok(Self { http, peer, admin, addresses })
    }
}

/// Returns where the snapshots of this master are.
fn snapshot_places(settings: &Settings, ha: &HaSettings, dir: PathBuf) -> SnapshotPlaces {
    SnapshotPlaces {
        dir,
        store: ha.snapshot_store.as_ref().map(|store| store.of_cluster(&settings.cluster_id)),
        member: ha.member_name.clone(),
        kept: ha.snapshots.map_or(1, |snapshots| snapshots.kept),
        engine_settings: engine_settings(settings),
        queue_bytes: ha.queue_bytes,
    }
}

/// What a node starts from besides its settings.
struct NodeOrigin {
    boot_id: BootId,
    keys: Keys,
    clock: MonotonicClock,
    wall: RunningClock,
    /// History of the log as the data directory has it.
    history: Option<History>,
}

/// Creates the node in its first state, which is that of the newest snapshot, if one was found.
fn create_node(
    settings: &Settings,
    ha: &HaSettings,
    addresses: &Addresses,
    origin: &NodeOrigin,
    found: Option<Origin>,
) -> Node {
    let snapshots = ha.snapshots.zip(found);
    let settings = node::Settings {
        name: ha.member_name.clone(),
        boot_id: origin.boot_id,
        keys: origin.keys.clone(),
        addresses: addresses.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        leader_ttl: ha.leader_lease_ttl,
        keep_alive: ha.keep_alive_interval,
        call_timeout: CALL_TIMEOUT,
        handover_timeout: HANDOVER_TIMEOUT,
        engine: engine_settings(settings),
        queue_bytes: ha.queue_bytes,
        wall: origin.wall.now(),
        seed: origin.boot_id.0,
        history: origin.history,
        raise_after: RAISE_AFTER,
        snapshot_copies: ha.snapshot_copies,
        snapshots: snapshots.map(|(snapshots, origin)| SnapshotPolicy {
            interval: snapshots.interval,
            kept: snapshots.kept,
            durable: snapshots.durable,
            has_store: ha.snapshot_store.is_some(),
            origin,
        }),
    };
    Node::new(settings, origin.clock.now())
}

/// Returns what HTTP shows before the node has published anything.
fn first_state(node: &Node, clock: MonotonicClock) -> LiveState {
    let incarnation = Arc::clone(node.incarnation());
    LiveState {
        engine: Arc::clone(&incarnation.engine),
        clock: RunningClock::new(LogClock::new(LogTime(0), clock.now()), clock),
        health: Health {
            role: ReferenceRole::Standby,
            state: "starting",
            service_ready: false,
            leader_address: None,
            view_version: None,
        },
        connections: Arc::new(AtomicUsize::new(0)),
        answer_gate: AnswerGate(Some((incarnation, clock))),
        node: None,
    }
}

/// Returns what the peer port sends before the node has published anything.
fn first_peer_state(settings: &Settings, ha: &HaSettings, boot_id: BootId) -> PeerState {
    PeerState {
        boot_id: boot_id.to_string(),
        name: ha.member_name.clone(),
        cluster_id: settings.cluster_id.clone(),
        role: Role::Standby,
        term: crate::engine::types::Term(0),
        lease: LeaseId(0),
        log: String::new(),
        durable: SequenceId(0),
    }
}

/// Runs the node until it ends by itself or `stop` turns true; then has it hand over, and ends the companion.
async fn until_stopped(
    mut stop: watch::Receiver<bool>,
    inputs: &Inputs,
    mut driving: JoinHandle<()>,
    draining_port: &DrainingPort,
    companion: Option<Companion>,
) {
    tokio::select! {
        // A dropped sender also means stop.
        _ = stop.wait_for(|stop| *stop) => {}
        _ = &mut driving => return,
    }
    inputs.send(Input::Stop).await;
    if tokio::time::timeout(STOP_TIMEOUT, driving).await.is_err() {
        // The companion is not dismissed, so it turns clients away.
        tracing::warn!("etcd does not answer, ending without handing over");
        return;
    }
    // A port that came from the companion may stay open for longer; it closes with the process.
    let _ = tokio::time::timeout(TURN_AWAY * 2, draining_port.closed()).await;
    if let Some(companion) = companion {
        companion.dismiss().await;
    }
}

/// Returns the host that is published to clients and other masters.
fn advertised_host(settings: &Settings, ha: &HaSettings) -> Result<String, StartError> {
    match (&ha.advertise.host, &settings.rpc.interface) {
        (Some(host), _) => Ok(host.clone()),
        (None, Some(name)) => match interface_address(name) {
            Ok(address) => Ok(address.to_string()),
            Err(source) => Err(StartError::Address { host: name.clone(), source }),
        },
        (None, None) => Ok(settings.rpc.address.clone()),
    }
}

async fn forward_events(mut events: mpsc::Receiver<PeerEvent>, inputs: Inputs) {
    while let Some(event) = events.recv().await {
        match event {
            PeerEvent::Connected { boot_id, .. } => tracing::debug!(boot_id, "connected to the primary"),
            PeerEvent::Told { boot_id, term, log, durable, sent_ms } => {
                if let Ok(boot_id) = BootId::try_from(boot_id) {
                    inputs.send(Input::PrimaryTold { boot_id, term, log, durable, sent_ms }).await;
                }
            }
            PeerEvent::Dead { boot_id, lease } => {
                if let Ok(boot_id) = BootId::try_from(boot_id) {
                    inputs.send(Input::PeerDead { boot_id, lease }).await;
                }
            }
        }
    }
}

async fn forward_reports(mut messages: mpsc::Receiver<PeerMessage>, inputs: Inputs) {
    while let Some(message) = messages.recv().await {
        let input = match message {
            PeerMessage::Report(report) => BootId::try_from(report.boot_id).map(|boot_id| {
                let (name, applied) = (report.name, report.applied);
                Input::PeerReport { name, boot_id, applied }
            }),
            PeerMessage::Gone { name, boot_id } => {
                BootId::try_from(boot_id).map(|boot_id| Input::PeerGone { name, boot_id })
            }
            PeerMessage::Ended { boot_id } => {
                BootId::try_from(boot_id).map(|boot_id| Input::ProcessEnded { boot_id })
            }
        };
        if let Ok(input) = input {
            inputs.send(input).await;
        }
    }
}
