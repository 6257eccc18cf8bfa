//! The process of a master that replicates: a node and its driver, and around them the ports that are open in every
//! role and the one that is open while this master leads.

mod control;
mod host;
mod testimony;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::coordination::etcd::Etcd;
use crate::coordination::types::LeaseId;
use crate::engine::types::{LogTime, SequenceId};
use crate::master::admin_api::{self, AdminApi};
use crate::master::clock::Clock;
use crate::master::companion::{self, Companion};
use crate::master::current::{Current, Passage};
use crate::master::data_dir::DataDir;
use crate::master::door::TURN_AWAY;
use crate::master::flags::interface_address;
use crate::master::http::{self, Health, Role};
use crate::master::metrics::Metrics;
use crate::master::peer::{
    self, PeerCredentials, PeerEvent, PeerFaults, PeerFollower, PeerMessage, PeerPort, PeerState,
};
use crate::master::run::{StartError, admin, rpc_address, rules, serve_http};
use crate::master::serving::Service;
use crate::master::settings::Settings;
use crate::master::settings::ha::{HaSettings, host_and_port};
use crate::replication::driver::{Inputs, drive};
use crate::replication::keys::Keys;
use crate::replication::node::{self, Addresses, BootId, Input, Node};
use crate::replication::time::{LogClock, MonotonicClock};

use control::NodeControl;
use host::{Bulletin, ProcessHost, Publishing};

/// How long a call to etcd may take. It is less than the lease holds, so that one that hangs does not cost it.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a hand-over may take before it is given up.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the process waits for an orderly end after it was told to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// How long every live member has to have read a newer format before the log is raised to it: a member that is just being
/// restarted, with an older version perhaps, is not among them.
const RAISE_AFTER: Duration = Duration::from_secs(60);

/// Messages of peers that may wait.
const PEER_MESSAGES: usize = 256;

/// Runs a master that replicates until `stop` says so.
pub(super) async fn run(
    settings: &Settings,
    ha: &HaSettings,
    stop: watch::Receiver<bool>,
) -> Result<(), StartError> {
    let clock = MonotonicClock::start();
    let wall = Clock::start();
    let metrics = Metrics::new();
    let http_listener = http::server::bind(&settings.http.host, settings.http.port).await?;
    let peer_listener = http::server::bind(&ha.peer.host, ha.peer.port).await?;
    let admin_api = AdminApi::bind(&ha.admin).await?;
    let host = advertised_host(settings, ha)?;
    let reached_at = |port: u16| host_and_port(&host, port);
    let addresses = Addresses {
        rpc: reached_at(ha.advertise.rpc_port),
        http: reached_at(http_listener.local_addr()?.port()),
        peer: reached_at(peer_listener.local_addr()?.port()),
        admin: reached_at(admin_api.local_address()?.port()),
    };
    let etcd = Arc::new(Etcd::connect(ha.etcd.settings())?);
    let data_dir =
        ha.data_dir.as_deref().map(|folder| DataDir::open(folder, &settings.cluster_id)).transpose()?;
    let history = data_dir.as_ref().and_then(|(_, history)| *history);
    let boot_id = BootId(getrandom::u64().map_err(StartError::Chance)?);
    tracing::info!(name = ha.member_name, %boot_id, cluster = settings.cluster_id, "starting as a member");

    let keys = Keys::new(&settings.cluster_id);
    let node = Node::new(
        node::Settings {
            name: ha.member_name.clone(),
            boot_id,
            keys: keys.clone(),
            addresses,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            leader_ttl: ha.leader_lease_ttl,
            keep_alive: ha.keep_alive_interval,
            call_timeout: CALL_TIMEOUT,
            handover_timeout: HANDOVER_TIMEOUT,
            rules: rules(settings),
            queue_bytes: ha.queue_bytes,
            wall: wall.now(),
            seed: boot_id.0,
            history,
            raise_after: RAISE_AFTER,
        },
        clock.now(),
    );
    let (inputs, received) = Inputs::channel();
    let replica = Arc::clone(node.replica());
    let (state, current) = watch::channel(Current {
        engine: Arc::clone(&replica.engine),
        clock: Clock::going_on(LogClock::new(LogTime(0), clock.now()), clock),
        health: Health {
            role: Role::Standby,
            state: "starting",
            service_ready: false,
            leader_address: None,
            view_version: None,
        },
        connections: Arc::new(AtomicUsize::new(0)),
        passage: Passage(Some((replica, clock))),
        node: None,
    });
    let (bulletin, bulletins) = watch::channel(Bulletin::new(&node, clock.now()));
    let bulletins_of_history = bulletins.clone();
    let bulletins_of_testimony = bulletins.clone();
    let (applied, applied_here) = watch::channel(SequenceId(0));
    let (peer_state, peer_states) = watch::channel(PeerState {
        boot_id: boot_id.to_string(),
        name: ha.member_name.clone(),
        cluster_id: settings.cluster_id.clone(),
        role: peer::Role::Standby,
        term: crate::engine::types::Term(0),
        lease: LeaseId(0),
        log: String::new(),
        durable: SequenceId(0),
    });
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
    let follower =
        PeerFollower::start(own.clone(), credentials.clone(), applied_here, peer_events, peer_faults.clone());
    let (testimony, testimonies) = watch::channel(None);
    let keep_testimony = testimony::keep(own.clone(), credentials.clone(), bulletins_of_testimony, testimony);
    let peer_port = PeerPort {
        own,
        credentials: credentials.clone(),
        state: peer_states,
        members: member_lists,
        messages: peer_messages,
        faults: peer_faults.clone(),
    };

    let mut tasks = JoinSet::new();
    // Everything but the node goes on until the node has stopped: it hands over first.
    let (end, ended) = watch::channel(false);
    tasks.spawn(peer_port.serve(peer_listener, ended.clone()));
    tasks.spawn(credentials.prepare());
    tasks.spawn(forward_events(events, inputs.clone()));
    tasks.spawn(forward_reports(messages, inputs.clone()));
    let admin = admin(settings, current, &metrics);
    let control =
        Arc::new(NodeControl::new(ha, settings, boot_id, bulletins, inputs.clone(), clock, peer_faults));
    let readable = admin_api::readable(control.clone());
    let router = http::replicated_router(admin.clone(), Arc::clone(&metrics), readable);
    serve_http(settings, http_listener, router, &admin, &mut tasks, &ended).await?;
    let changes = http::changes(admin.clone(), Arc::clone(&metrics));
    tasks.spawn(admin_api.serve(control.clone(), changes, settings.http.limits, ended.clone()));
    if let Some((data_dir, _)) = data_dir {
        let bulletins = bulletins_of_history;
        tasks.spawn(data_dir.keep(move || bulletins.borrow().status.history, ended.clone()));
    }
    let address = rpc_address(settings).await?;
    // Before this master can be elected: the port of its predecessor may be with the companion.
    let (companion, door, held_port) = Companion::start(companion::Setup {
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
    let host = ProcessHost {
        service: Service::new(settings, address, metrics),
        durability: ha.durability,
        clock,
        inputs: inputs.clone(),
        follower,
        waiting: control.waiting(),
        serving: None,
        door: Arc::clone(&door),
        held_port,
        log_clock: None,
        told: (clock.now(), None),
        to: Publishing { state, bulletin, applied, peer_state, members },
    };

    let mut driving = tokio::spawn(drive(node, etcd, inputs.clone(), received, clock, host));
    let mut stop = stop;
    let died = tokio::select! {
        // Whoever could say so is gone: the same word.
        _ = stop.wait_for(|stop| *stop) => false,
        _ = &mut driving => true,
    };
    if !died {
        inputs.send(Input::Stop).await;
        if tokio::time::timeout(STOP_TIMEOUT, driving).await.is_ok() {
            // A port that came from the companion may stay open for longer, and can be left to the end of the process.
            let _ = tokio::time::timeout(TURN_AWAY * 2, door.closed()).await;
            if let Some(companion) = companion {
                companion.dismiss().await;
            }
        } else {
            // The companion turns clients away.
            tracing::warn!("etcd does not answer, ending without handing over");
        }
    }
    let _ = end.send(true);
    drop(inputs);
    tasks.shutdown().await;
    tracing::info!("stopped");
    Ok(())
}

/// The host that others are told.
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
