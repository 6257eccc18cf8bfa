//! Plans the masters: names, ports and command lines.

use std::net::TcpListener;
use std::path::PathBuf;

/// Range in which free ports are searched when the usual ones are taken. It is below the ephemeral ports of the system,
/// which an outgoing connection could take while no master listens.
const FREE_PORTS: std::ops::Range<u16> = 20_000..30_000;

/// Default port of `mooncake_client`, which is likely to run on a machine where masters are tried out.
const MOONCAKE_CLIENT: u16 = 50_052;

/// The ports of one master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    pub(super) rpc: u16,
    pub(super) http: u16,
    pub(super) admin: u16,
    pub(super) peer: u16,
}

/// Why no ports could be found.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PortsError {
    #[error("port {0} is in use; choose another with --{1}")]
    Taken(u16, &'static str),
    #[error("--{0} leaves too few ports below 65536 for so many masters")]
    TooHigh(&'static str),
    #[error("there are no free ports from {} to {}", FREE_PORTS.start, FREE_PORTS.end)]
    None,
}

/// A master that will run.
#[derive(Clone, Debug)]
pub(super) struct MasterPlan {
    pub(super) name: String,
    pub(super) ports: Ports,
    pub(super) log: PathBuf,
}

/// Values that all masters share.
#[derive(Clone, Debug)]
pub(super) struct Common {
    pub(super) cluster_id: String,
    pub(super) endpoints: String,
    /// Flags about etcd besides its endpoints.
    pub(super) etcd: Vec<String>,
    pub(super) token_file: PathBuf,
    pub(super) data_dir: Option<PathBuf>,
    /// How many members have to hold a snapshot before the log below it is deleted.
    pub(super) snapshot_copies: usize,
    /// Flags that the user wants every master to have.
    pub(super) more: Vec<String>,
}

impl MasterPlan {
    /// Returns the arguments of `moonkeeper`.
    pub(super) fn arguments(&self, common: &Common) -> Vec<String> {
        let Ports { rpc, http, admin, peer } = self.ports;
        let mut arguments = vec![
            "master".to_owned(),
            "--enable_ha=true".to_owned(),
            format!("--etcd_endpoints={}", common.endpoints),
            format!("--cluster_id={}", common.cluster_id),
            format!("--member_name={}", self.name),
            "--rpc_address=127.0.0.1".to_owned(),
            format!("--rpc_port={rpc}"),
            "--metrics_host=127.0.0.1".to_owned(),
            format!("--metrics_port={http}"),
            "--admin_host=127.0.0.1".to_owned(),
            format!("--admin_port={admin}"),
            format!("--admin_token_file={}", common.token_file.display()),
            "--peer_host=127.0.0.1".to_owned(),
            format!("--peer_port={peer}"),
        ];
        if let Some(folder) = &common.data_dir {
            arguments.push(format!("--data_dir={}", folder.join(&self.name).display()));
            arguments.push(format!("--snapshot_copies={}", common.snapshot_copies));
        }
        arguments.extend(common.etcd.iter().cloned());
        arguments.extend(common.more.iter().cloned());
        arguments
    }

    /// Returns the address of its HTTP port.
    pub(super) fn http_address(&self) -> String {
        format!("127.0.0.1:{}", self.ports.http)
    }
}

/// Chooses ports: the usual ones, those that were requested, or free ones where the usual ones are taken.
#[derive(Debug)]
pub(super) struct PortChooser<F> {
    is_free: F,
    next: u16,
}

impl<F: Fn(u16) -> bool> PortChooser<F> {
    /// Uses `is_free` to test ports; the search for free ones starts at an offset that depends on `seed`.
    pub(super) fn new(is_free: F, seed: u32) -> Self {
        let span = u32::from(FREE_PORTS.end - FREE_PORTS.start);
        let start = u16::try_from(seed % span).unwrap_or_default();
        Self { is_free, next: FREE_PORTS.start + start }
    }

    /// Returns one port for `flag`: the requested one, else the usual one, else a free one.
    pub(super) fn one(
        &mut self,
        flag: &'static str,
        asked: Option<u16>,
        usual: u16,
    ) -> Result<u16, PortsError> {
        match asked {
            Some(port) if port == 0 || (self.is_free)(port) => {
                Ok(if port == 0 { self.free()? } else { port })
            }
            Some(port) => Err(PortsError::Taken(port, flag)),
            None if (self.is_free)(usual) => Ok(usual),
            None => self.free(),
        }
    }

    /// Returns the ports of `count` masters: RPC ports in a row, without that of `mooncake_client` unless it was
    /// requested as the first; the others ten apart.
    pub(super) fn masters(
        &mut self,
        count: u16,
        rpc_base: Option<u16>,
        http_base: Option<u16>,
    ) -> Result<Vec<Ports>, PortsError> {
        let row = |base: u16| {
            let ports = (base..=u16::MAX).filter(|port| *port != MOONCAKE_CLIENT || *port == base);
            ports.take(count.into()).map(|port| vec![port]).collect()
        };
        let tens = |base: u16| {
            let groups = (base..=u16::MAX).step_by(10).take(count.into());
            groups.map(|first| (first..=first.saturating_add(2)).collect()).collect()
        };
        let rpc = self.series("rpc-port-base", (count, 1), rpc_base, 50_051, row)?;
        let others = self.series("http-port-base", (count, 3), http_base, 9_003, tens)?;
        let ports = rpc.into_iter().zip(others).map(|(rpc, others)| Ports {
            rpc: rpc[0],
            http: others[0],
            admin: others[1],
            peer: others[2],
        });
        Ok(ports.collect())
    }

    /// Returns `count` groups of `size` ports, laid out from a base; free ones if the usual base does not work.
    fn series(
        &mut self,
        flag: &'static str,
        (count, size): (u16, u16),
        asked: Option<u16>,
        usual: u16,
        lay_out: impl Fn(u16) -> Vec<Vec<u16>>,
    ) -> Result<Vec<Vec<u16>>, PortsError> {
        let from = |base: u16| {
            let groups = lay_out(base);
            let whole = groups.iter().filter(|group| group.len() == usize::from(size)).count();
            if whole == usize::from(count) { Ok(groups) } else { Err(PortsError::TooHigh(flag)) }
        };
        let taken =
            |groups: &[Vec<u16>]| groups.iter().flatten().copied().find(|port| !(self.is_free)(*port));
        match asked {
            Some(0) => {}
            Some(base) => {
                let groups = from(base)?;
                return match taken(&groups) {
                    Some(port) => Err(PortsError::Taken(port, flag)),
                    None => Ok(groups),
                };
            }
            None => {
                let groups = from(usual)?;
                if taken(&groups).is_none() {
                    return Ok(groups);
                }
            }
        }
        (0..count).map(|_| (0..size).map(|_| self.free()).collect()).collect()
    }

    fn free(&mut self) -> Result<u16, PortsError> {
        for _ in FREE_PORTS {
            let port = self.next;
            self.next = if port + 1 == FREE_PORTS.end { FREE_PORTS.start } else { port + 1 };
            if (self.is_free)(port) {
                return Ok(port);
            }
        }
        Err(PortsError::None)
    }
}

/// Returns whether a listener can bind this port on the loopback, i.e. no process listens on it there or on all
/// addresses.
pub(super) fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chooser(taken: &'static [u16]) -> PortChooser<impl Fn(u16) -> bool> {
        PortChooser::new(move |port| !taken.contains(&port), 7)
    }

    #[test]
    fn the_usual_ports_come_first() {
        let ports = chooser(&[]).masters(2, None, None).unwrap();
        assert_eq!(ports[0], Ports { rpc: 50051, http: 9003, admin: 9004, peer: 9005 });
        assert_eq!(ports[1], Ports { rpc: 50053, http: 9013, admin: 9014, peer: 9015 });
        assert_eq!(chooser(&[]).one("etcd-port", None, 2379), Ok(2379));
    }

    #[test]
    fn others_are_found_where_they_are_taken() {
        let ports = chooser(&[50053, 20_007]).masters(2, None, None).unwrap();
        assert_eq!((ports[0].rpc, ports[1].rpc, ports[1].http), (20_008, 20_009, 9013));
        assert_eq!(chooser(&[2379]).one("etcd-port", None, 2379), Ok(20_007));
        let ports = chooser(&[]).masters(2, Some(0), Some(7000)).unwrap();
        assert_eq!((ports[0].rpc, ports[1].peer), (20_007, 7012));
    }

    #[test]
    fn the_port_of_mooncake_client_is_left_free() {
        let rpc = |base: Option<u16>| {
            let ports = chooser(&[]).masters(3, base, None).unwrap();
            ports.iter().map(|ports| ports.rpc).collect::<Vec<_>>()
        };
        assert_eq!(rpc(None), [50051, 50053, 50054]);
        assert_eq!(rpc(Some(50_050)), [50050, 50051, 50053]);
        assert_eq!(rpc(Some(50_052)), [50052, 50053, 50054], "it was asked for");
    }

    #[test]
    fn what_was_asked_for_and_is_taken_is_named() {
        let asked = |base| chooser(&[701]).masters(3, Some(base), None);
        assert_eq!(asked(700), Err(PortsError::Taken(701, "rpc-port-base")));
        assert_eq!(asked(65_534), Err(PortsError::TooHigh("rpc-port-base")));
        let http = |base| chooser(&[]).masters(2, None, Some(base)).map(|ports| ports[1].peer);
        assert_eq!(http(65_523), Ok(65_535));
        assert_eq!(http(65_524), Err(PortsError::TooHigh("http-port-base")));
        assert_eq!(chooser(&[5]).one("etcd-port", Some(5), 1), Err(PortsError::Taken(5, "etcd-port")));
        assert_eq!(PortChooser::new(|_| false, 0).masters(1, None, None), Err(PortsError::None));
    }

    #[test]
    fn a_master_understands_what_it_is_told() {
        let plan = MasterPlan {
            name: "m-1".into(),
            ports: Ports { rpc: 1, http: 2, admin: 3, peer: 4 },
            log: "log".into(),
        };
        let common = Common {
            cluster_id: "demo".into(),
            endpoints: "127.0.0.1:2379".into(),
            etcd: vec![],
            token_file: "/t/token".into(),
            data_dir: Some("/d".into()),
            snapshot_copies: 1,
            more: vec!["--default_kv_lease_ttl=3s".into()],
        };
        let arguments = plan.arguments(&common);
        let nothing = |_: &str| Err(std::io::ErrorKind::NotFound.into());
        let parsed = crate::master::settings::command_line::parse(&arguments[1..], &[], &nothing);
        let Ok(crate::master::settings::command_line::Parsed::Run { settings, warnings }) = parsed else {
            panic!("{parsed:?}")
        };
        assert!(warnings.is_empty(), "{warnings:?}");
        let ha = settings.ha.unwrap();
        assert_eq!((ha.member_name.as_str(), ha.peer.port, ha.admin.listen.port), ("m-1", 4, 3));
        assert_eq!((ha.advertise.rpc_port, settings.http.port), (1, 2));
        assert_eq!(ha.data_dir, Some("/d/m-1".into()));
        assert_eq!(settings.objects.lease_ttl.as_secs(), 3);
    }
}
