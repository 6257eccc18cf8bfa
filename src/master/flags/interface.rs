//! The address behind `--rpc_interface`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use socket2::{Domain, Socket, Type};

/// The IPv4 address of a network interface.
///
/// The system is asked which source address it would use for a packet that must leave by this interface; nothing
/// is sent. That needs neither unsafe code nor a parser for the system's tables.
pub fn interface_address(name: &str) -> io::Result<Ipv4Addr> {
    let failed = |why: io::Error| io::Error::new(why.kind(), format!("network interface '{name}': {why}"));
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).map_err(failed)?;
    socket.bind_device(Some(name.as_bytes())).map_err(failed)?;
    // An address for documentation (RFC 5737): a route to it is not needed when the interface is fixed.
    let elsewhere = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 9);
    socket.connect(&SocketAddr::V4(elsewhere).into()).map_err(failed)?;
    match socket.local_addr().map_err(failed)?.as_socket().map(|address| address.ip()) {
        Some(IpAddr::V4(address)) if !address.is_unspecified() => Ok(address),
        _ => Err(failed(io::Error::from(io::ErrorKind::AddrNotAvailable))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_address_of_the_loopback() {
        assert_eq!(interface_address("lo").unwrap(), Ipv4Addr::LOCALHOST);
        let why = interface_address("no-such-if0").unwrap_err();
        assert!(why.to_string().contains("no-such-if0"), "{why}");
    }
}
