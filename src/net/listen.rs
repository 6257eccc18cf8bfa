//! Opens listening sockets. `::` means every address of this host, IPv4 and IPv6, and every IPv4 address on a host
//! without IPv6: so one setting fits clusters of either kind, and of both.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// The wildcard address for both families.
pub const EVERY_ADDRESS: &str = "::";

/// An address and port to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The address or host name.
    pub host: String,
    /// The port; 0 lets the system choose.
    pub port: u16,
}

/// Formats a host and a port, IPv6 addresses in brackets.
#[must_use]
pub fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Upper bound of connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Listens on a host name or address; the module's documentation explains `::`.
pub async fn bind(host: &str, port: u16) -> io::Result<TcpListener> {
    let failed = |why: io::Error| {
        io::Error::new(why.kind(), format!("cannot listen on {}: {why}", host_and_port(host, port)))
    };
    let mut last = io::Error::other("the name has no address");
    for address in tokio::net::lookup_host((host, port)).await.map_err(failed)? {
        match listen(address, BACKLOG) {
            Ok(listener) => return TcpListener::from_std(listener).map_err(failed),
            Err(why) => last = why,
        }
    }
    Err(failed(last))
}

/// Listens on an address. The socket is non-blocking.
///
/// # Errors
///
/// If the address is not available.
pub fn listen(address: SocketAddr, backlog: i32) -> io::Result<std::net::TcpListener> {
    open(address, backlog).or_else(|why| match instead(address, &why) {
        Some(address) => open(address, backlog),
        None => Err(why),
    })
}

/// Returns the address to listen on after `address` failed: the IPv4 wildcard if the host has no IPv6 at all.
fn instead(address: SocketAddr, why: &io::Error) -> Option<SocketAddr> {
    let no_ipv6 = matches!(Errno::from_io_error(why), Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL));
    (is_wildcard(address) && no_ipv6).then(|| (Ipv4Addr::UNSPECIFIED, address.port()).into())
}

fn is_wildcard(address: SocketAddr) -> bool {
    address.ip() == Ipv6Addr::UNSPECIFIED
}

fn open(address: SocketAddr, backlog: i32) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // A process that restarts must get its port back while old connections are in `TIME_WAIT`.
    socket.set_reuse_address(true)?;
    if is_wildcard(address) {
        // Overrides the system's default, which may be IPv6 only.
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn the_wildcard_is_reached_by_both_families() {
        let listener = listen("[::]:0".parse().unwrap(), 8).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        // The machine that runs this test may have no IPv6.
        if listener.local_addr().unwrap().is_ipv6() {
            assert!(TcpStream::connect((Ipv6Addr::LOCALHOST, port)).is_ok());
        }
    }

    #[test]
    fn only_a_host_without_ipv6_listens_on_ipv4_instead() {
        let instead = |address: &str, why: Errno| instead(address.parse().unwrap(), &why.into());
        assert_eq!(instead("[::]:7", Errno::AFNOSUPPORT), Some("0.0.0.0:7".parse().unwrap()));
        assert_eq!(instead("[::]:7", Errno::ADDRNOTAVAIL), Some("0.0.0.0:7".parse().unwrap()));
        assert_eq!(instead("[::]:7", Errno::ADDRINUSE), None);
        assert_eq!(instead("[::1]:7", Errno::AFNOSUPPORT), None);
        assert_eq!(instead("0.0.0.0:7", Errno::ADDRNOTAVAIL), None);
    }
}
