//! The addresses at which the ranks of a process are reached, and their form in the directory of a run.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};

use comm::processes::{Listeners, LocalAddress};
use config::TransportChoice;
use launcher::Address;

use crate::failure::Failure;

const TCP: &str = "tcp";
const LOCAL: &str = "local";

/// Addresses of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListeningAddresses {
    /// For processes of other machines.
    pub tcp: Option<SocketAddr>,
    /// For processes of the same machine.
    pub local: Option<LocalAddress>,
}

impl ListeningAddresses {
    /// Listens as `transport` asks. `rendezvous` is the address of process 0: the network that leads there is the one
    /// of the ranks.
    ///
    /// # Errors
    /// A system without sockets, and a rendezvous address that is unknown.
    pub fn listen(
        transport: TransportChoice,
        rendezvous: Option<&Address>,
        process: usize,
    ) -> Result<(Listeners, ListeningAddresses), Failure> {
        let failed =
            |error: std::io::Error| Failure::Work(format!("run.transport: this process cannot listen: {error}"));
        let (mut listeners, mut addresses) = (Listeners::default(), ListeningAddresses::default());
        let (is_local, is_tcp) = match transport {
            // Over MPI go pieces of long messages; frames take the sockets of `auto`.
            TransportChoice::Auto | TransportChoice::Mpi => (true, true),
            TransportChoice::SharedMemory => (true, false),
            TransportChoice::Tcp => (false, true),
        };
        if is_local {
            let (listener, address) = Listeners::open_local().map_err(failed)?;
            (listeners.local, addresses.local) = (Some(listener), Some(address));
        }
        if is_tcp {
            let listener =
                Listeners::open_tcp((own_address(rendezvous, process).map_err(failed)?, 0).into()).map_err(failed)?;
            addresses.tcp = Some(listener.local_addr().map_err(failed)?);
            listeners.tcp = Some(listener);
        }
        Ok((listeners, addresses))
    }

    /// As the directory of a run has them.
    pub fn to_texts(&self) -> Vec<String> {
        let tcp = self.tcp.iter().map(|address| format!("{TCP} {address}"));
        let local = self.local.iter().map(|LocalAddress { machine, name }| {
            let digits: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{LOCAL} {digits} {machine}")
        });
        tcp.chain(local).collect()
    }

    /// The inverse of [`ListeningAddresses::to_texts`]; `None` for texts of another form.
    pub fn from_texts(texts: &[String]) -> Option<ListeningAddresses> {
        let mut addresses = ListeningAddresses::default();
        for text in texts {
            match text.split_once(' ')? {
                (TCP, address) => addresses.tcp = Some(address.parse().ok()?),
                (LOCAL, rest) => {
                    let (digits, machine) = rest.split_once(' ')?;
                    addresses.local = Some(LocalAddress { machine: machine.into(), name: bytes(digits)? });
                }
                _ => return None,
            }
        }
        Some(addresses)
    }
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?, 16).ok())
        .collect()
}

/// The address of this host in the network in which process 0 listens.
///
/// # Errors
/// A rendezvous address that is unknown.
pub fn own_address(rendezvous: Option<&Address>, process: usize) -> std::io::Result<IpAddr> {
    let Some(Address { host, port }) = rendezvous else { return Ok(Ipv4Addr::LOCALHOST.into()) };
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    for first in (host.as_str(), *port).to_socket_addrs()? {
        let own = if process == 0 { Ok(first.ip()) } else { source_towards(first) };
        match own {
            Ok(address) => return Ok(address),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The source address of packets to `other`. Connecting a datagram socket sends nothing.
fn source_towards(other: SocketAddr) -> std::io::Result<IpAddr> {
    let any: SocketAddr = if other.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(other)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back() {
        let local = LocalAddress { machine: "boot net:[1]".into(), name: vec![0, 17, 255] };
        let both = ListeningAddresses { tcp: "[::1]:80".parse().ok(), local: Some(local.clone()) };
        let tcp = ListeningAddresses { local: None, ..both.clone() };
        let only_local = ListeningAddresses { tcp: None, local: Some(local) };
        for addresses in [both, tcp, only_local, ListeningAddresses::default()] {
            assert_eq!(ListeningAddresses::from_texts(&addresses.to_texts()), Some(addresses));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "tcp", "tcp 1.2.3.4", "local 0 m", "local zz m", "local 00", "pipe 7"] {
            assert_eq!(ListeningAddresses::from_texts(&[text.into()]), None, "{text}");
        }
    }

    #[test]
    fn ranks_listen_in_the_network_of_process_0() {
        let address: Address = "127.0.0.1:29400".parse().expect("an address");
        for process in [0, 3] {
            let (_, addresses) =
                ListeningAddresses::listen(TransportChoice::Tcp, Some(&address), process).expect("listeners");
            assert_eq!(addresses.tcp.map(|address| address.ip()), Some(Ipv4Addr::LOCALHOST.into()));
            assert_eq!(addresses.local, None);
        }
    }
}
