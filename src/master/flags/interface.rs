//! The address behind `--rpc_interface`.

use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

const AF_INET: u8 = 2;
const AF_NETLINK: i32 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const IFA_LOCAL: u16 = 2;
const IFA_LABEL: u16 = 3;

/// Bytes of the header of every netlink message.
const HEAD: usize = 16;
/// Bytes of the fixed part of an address message, behind the header.
const ADDRESS_HEAD: usize = 8;
/// Most reads for one answer; each returns some hundred addresses.
const MAX_READS: usize = 1000;

/// Returns the first IPv4 address of a network interface.
///
/// It asks the kernel for its list over netlink. The usual way, getifaddrs, needs unsafe code, and the source address
/// of a route is that of another interface where this one has no address.
pub fn interface_address(name: &str) -> io::Result<Ipv4Addr> {
    let failed = |why: io::Error| io::Error::new(why.kind(), format!("network interface '{name}': {why}"));
    lookup(name).map_err(failed)?.ok_or_else(|| {
        failed(io::Error::new(io::ErrorKind::NotFound, "there is none of that name with an IPv4 address"))
    })
}

fn lookup(name: &str) -> io::Result<Option<Ipv4Addr>> {
    let mut socket = Socket::new(Domain::from(AF_NETLINK), Type::RAW, None)?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    socket.write_all(&request())?;
    let mut buffer = vec![0; 64 << 10];
    for _ in 0..MAX_READS {
        let length = socket.read(&mut buffer)?;
        match search(&buffer[..length], name)? {
            Search::Found(address) => return Ok(Some(address)),
            Search::End => return Ok(None),
            Search::More => {}
        }
    }
    Ok(None)
}

/// Builds a request for all IPv4 addresses.
fn request() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + ADDRESS_HEAD);
    bytes.extend(((HEAD + ADDRESS_HEAD) as u32).to_ne_bytes());
    bytes.extend(RTM_GETADDR.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    bytes.extend([0; 8]); // sequence number and port: there is one request on this socket
    bytes.extend([AF_INET, 0, 0, 0, 0, 0, 0, 0]);
    bytes
}

/// Result of the messages of one read.
#[derive(Debug, PartialEq, Eq)]
enum Search {
    Found(Ipv4Addr),
    More,
    End,
}

/// Searches the messages of one read for an address of the interface.
fn search(mut messages: &[u8], name: &str) -> io::Result<Search> {
    while let (Some(length), Some(kind)) = (u32_at(messages, 0), u16_at(messages, 4)) {
        let length = length as usize;
        let Some(message) = messages.get(..length).filter(|_| length >= HEAD) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        match kind {
            NLMSG_DONE => return Ok(Search::End),
            NLMSG_ERROR => return Err(io::ErrorKind::PermissionDenied.into()),
            RTM_NEWADDR => {
                if let Some(address) = address_of(message.get(HEAD + ADDRESS_HEAD..).unwrap_or(&[]), name) {
                    return Ok(Search::Found(address));
                }
            }
            _ => {}
        }
        messages = messages.get(aligned(length)..).unwrap_or(&[]);
    }
    Ok(Search::More)
}

/// Returns the address in a list of attributes, if its label is the interface's name.
fn address_of(mut attributes: &[u8], name: &str) -> Option<Ipv4Addr> {
    let mut address = None;
    let mut is_it = false;
    while let (Some(length), Some(kind)) = (u16_at(attributes, 0), u16_at(attributes, 2)) {
        let data = attributes.get(4..usize::from(length))?;
        match kind {
            IFA_LOCAL => address = <[u8; 4]>::try_from(data).ok().map(Ipv4Addr::from),
            IFA_LABEL => is_it = data.strip_suffix(b"\0").unwrap_or(data) == name.as_bytes(),
            _ => {}
        }
        attributes = attributes.get(aligned(usize::from(length))..).unwrap_or(&[]);
    }
    address.filter(|_| is_it)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

/// Rounds up to a multiple of four, where messages and attributes start.
fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_address_of_the_loopback() {
        assert_eq!(interface_address("lo").unwrap(), Ipv4Addr::LOCALHOST);
        for name in ["no-such-if0", "", "l"] {
            let why = interface_address(name).unwrap_err();
            assert!(why.to_string().contains(name), "{why}");
        }
    }

    #[test]
    fn messages_that_lie_about_their_length_are_errors_or_nothing() {
        let mut message = vec![0; 24];
        message[4..6].copy_from_slice(&RTM_NEWADDR.to_ne_bytes());
        for length in [0_u32, 15, 25, u32::MAX] {
            message[..4].copy_from_slice(&length.to_ne_bytes());
            assert!(search(&message, "lo").is_err(), "{length}");
        }
        message[..4].copy_from_slice(&24_u32.to_ne_bytes());
        for attribute in [&[0, 0, 2, 0][..], &[255, 255, 2, 0], &[3, 0, 2, 0], &[4, 0], &[5, 0, 3, 0, 0]] {
            assert_eq!(address_of(attribute, "lo"), None);
        }
        assert_eq!(search(&message, "lo").unwrap(), Search::More);
        assert!(search(&message[..10], "lo").is_err());
    }
}
