//! Opens ports. `::` means every address of this host, IPv4 and IPv6, and every IPv4 address on a host without IPv6: so
//! one setting fits clusters of either kind, and of both.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

/// The wildcard that includes both families.
pub const EVERY_ADDRESS: &str = "::";

/// Listens on an address. The socket does not block.
///
/// # Errors
///
/// If the address cannot be had.
pub fn listen(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    open(address, backlog).or_else(|why| match instead(address, &why) {
        Some(address) => open(address, backlog),
        None => Err(why),
    })
}

/// The address to listen on where `address` failed: that of IPv4 if the host has no IPv6 at all.
fn instead(address: SocketAddr, why: &io::Error) -> Option<SocketAddr> {
    let no_ipv6 = matches!(Errno::from_io_error(why), Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL));
    (is_wildcard(address) && no_ipv6).then(|| (Ipv4Addr::UNSPECIFIED, address.port()).into())
}

fn is_wildcard(address: SocketAddr) -> bool {
    address.ip() == Ipv6Addr::UNSPECIFIED
}

fn open(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // A process that restarts must get its port back while old connections linger.
    socket.set_reuse_address(true)?;
    if is_wildcard(address) {
        // Not what the system's setting says, which may be IPv6 alone.
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
        // A machine that builds this may have no IPv6.
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
