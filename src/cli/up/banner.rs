//! The start-up text: the addresses of everything, and what to try.

use std::fmt::Write;
use std::path::Path;

use super::plan::MasterPlan;

/// The Mooncake package that the snippet was tested with.
const PACKAGE: &str = "mooncake-transfer-engine-non-cuda==0.3.13.post1";

/// Values for the text that is printed at the start.
#[derive(Clone, Debug)]
pub(super) struct Started<'a> {
    pub(super) cluster_id: &'a str,
    /// As clients write them: `HOST:PORT`, separated by `;`.
    pub(super) endpoints: &'a str,
    /// Description of the store that keeps the log.
    pub(super) store: String,
    pub(super) masters: &'a [(MasterPlan, Option<u32>)],
    pub(super) primary: Option<&'a str>,
    pub(super) token_file: &'a Path,
}

/// Renders the text that is printed at the start.
pub(super) fn started(it: &Started<'_>) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "cluster {}, log in {} at {}", it.cluster_id, it.store, it.endpoints);
    for (plan, pid) in it.masters {
        let ports = plan.ports;
        let pid = pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let _ = writeln!(
            text,
            "  {}  pid {pid:<7} clients 127.0.0.1:{}  http 127.0.0.1:{}  admin 127.0.0.1:{}  log {}",
            plan.name,
            ports.rpc,
            ports.http,
            ports.admin,
            plan.log.display()
        );
    }
    let _ = write!(text, "\nfrom Python (pip install {PACKAGE}):\n\n{}\n", indented(&snippet(it)));
    let http: Vec<String> = it.masters.iter().map(|(plan, _)| plan.http_address()).collect();
    let primary = it.primary.and_then(|name| it.masters.iter().find(|(plan, _)| plan.name == name));
    let _ = writeln!(text, "to try:\n");
    if let Some((_, Some(pid))) = primary {
        let _ = writeln!(text, "  kill -9 {pid}    the primary dies, another takes over");
    }
    if let Some((plan, _)) = it.masters.first() {
        let _ = writeln!(text, "  moonkeeper status --http {}", http.join(","));
        let _ = writeln!(
            text,
            "  moonkeeper switchover --admin 127.0.0.1:{} --admin_token_file {}",
            plan.ports.admin,
            it.token_file.display()
        );
    }
    text.push_str("  ctrl-c           stops all of it\n");
    text
}

/// Renders a program for a Mooncake client.
fn snippet(it: &Started<'_>) -> String {
    format!(
        "import os\n\
         os.environ[\"MC_STORE_CLUSTER_ID\"] = \"{}\"\n\
         os.environ[\"MC_RPC_CONNECT_TIMEOUT_MS\"] = \"1000\"  # does not wait long for a master that is gone\n\
         from mooncake.store import MooncakeDistributedStore\n\
         store = MooncakeDistributedStore()\n\
         store.setup(\"127.0.0.1\", \"P2PHANDSHAKE\", 512 << 20, 128 << 20, \"tcp\", \"\", \"etcd://{}\")\n\
         store.put(\"key\", b\"value\")\n\
         print(store.get(\"key\"))\n",
        it.cluster_id, it.endpoints
    )
}

fn indented(text: &str) -> String {
    text.lines().fold(String::new(), |all, line| all + "  " + line + "\n")
}

#[cfg(test)]
mod tests {
    use super::super::plan::Ports;
    use super::*;

    #[test]
    fn everything_that_a_user_needs_is_there() {
        let plan = MasterPlan {
            name: "m-0".into(),
            ports: Ports { rpc: 50051, http: 9003, admin: 9004, peer: 9005 },
            log: "/l/m-0.log".into(),
        };
        let text = started(&Started {
            cluster_id: "demo",
            endpoints: "127.0.0.1:2379",
            store: "memory".into(),
            masters: &[(plan, Some(77))],
            primary: Some("m-0"),
            token_file: Path::new("/l/token"),
        });
        for part in [
            "\"etcd://127.0.0.1:2379\"",
            "[\"MC_STORE_CLUSTER_ID\"] = \"demo\"",
            "kill -9 77",
            "clients 127.0.0.1:50051",
            "status --http 127.0.0.1:9003",
            "switchover --admin 127.0.0.1:9004 --admin_token_file /l/token",
        ] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
    }
}
