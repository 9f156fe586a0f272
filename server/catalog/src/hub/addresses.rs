//! The addresses to which a hub may redirect: it must not choose that this machine asks itself, its own network or a
//! cloud's metadata service, unless the hub is there too.

use std::{
    error::Error as StdError,
    net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs},
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use crate::network::NOT_FOLLOWED;

/// The metadata service of a cloud that has an address of a private network.
const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// How near an address is to this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Distance {
    /// Anywhere.
    Public,
    /// A private network.
    Network,
    /// This machine.
    Machine,
    /// A link without a router, where clouds have their metadata, or no single host.
    Never,
}

/// The addresses that are near enough: those no nearer than the hub itself.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    host: HubHost,
}

#[derive(Clone, Debug)]
enum HubHost {
    At(IpAddr),
    Named(String),
}

/// A name or an address that is not allowed.
#[derive(Debug, thiserror::Error)]
#[error("the hub redirects to {0}, an address of this machine or of its network, and {NOT_FOLLOWED}")]
pub(super) struct NearAddress(pub(super) String);

// === impl Reach ===

impl Reach {
    pub(super) fn of(endpoint: &Url) -> Self {
        let host = match endpoint.host() {
            Some(Host::Ipv4(address)) => HubHost::At(IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => HubHost::At(IpAddr::V6(address)),
            Some(Host::Domain(name)) => HubHost::Named(name.to_owned()),
            None => HubHost::Named(String::new()),
        };
        Self { host }
    }

    /// Whether an address is allowed. Looks up the name of the hub for one that is not public.
    pub(super) fn allows(&self, address: IpAddr) -> bool {
        match Distance::of(address) {
            Distance::Public => true,
            Distance::Never => false,
            near => match &self.host {
                HubHost::At(hub) => near <= Distance::of(*hub),
                HubHost::Named(name) => {
                    let found = (name.as_str(), 0).to_socket_addrs().into_iter().flatten();
                    found.map(|hub| Distance::of(hub.ip())).max().is_some_and(|hub| near <= hub)
                }
            },
        }
    }
}

impl Resolve for Reach {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.clone();
        Box::pin(async move {
            let shown = name.as_str().to_owned();
            let look_up = move || {
                let found = (name.as_str(), 0).to_socket_addrs()?;
                Ok::<Vec<SocketAddr>, std::io::Error>(found.filter(|found| reach.allows(found.ip())).collect())
            };
            let found = tokio::task::spawn_blocking(look_up).await??;
            if found.is_empty() {
                return Err(Box::new(NearAddress(shown)) as Box<dyn StdError + Send + Sync>);
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

// === impl Distance ===

impl Distance {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let [first, second, ..] = address.octets();
                if address.is_link_local() || address.is_multicast() || address.is_broadcast() || first == 0 {
                    Self::Never
                } else if address.is_loopback() {
                    Self::Machine
                } else if address.is_private() || (first == 100 && second & 0xc0 == 64) {
                    Self::Network
                } else {
                    Self::Public
                }
            }
            IpAddr::V6(address) => {
                if address.is_unicast_link_local()
                    || address.is_multicast()
                    || [METADATA, Ipv6Addr::UNSPECIFIED].contains(&address)
                {
                    Self::Never
                } else if address.is_loopback() {
                    Self::Machine
                } else if address.is_unique_local() {
                    Self::Network
                } else {
                    Self::Public
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_is_nearer_than_the_hub() {
        let allows = |hub: &str, address: &str| Reach::of(&Url::parse(hub).unwrap()).allows(address.parse().unwrap());
        let near = ["127.0.0.1", "::1", "::ffff:127.0.0.1"];
        let network = ["10.1.2.3", "192.168.0.1", "172.16.0.1", "100.64.0.1", "fd00::1"];
        let never =
            ["169.254.169.254", "fe80::1", "0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "ff02::1", "fd00:ec2::254"];
        for hub in ["https://8.8.8.8", "http://10.0.0.1", "http://127.0.0.1:1", "http://[::1]:1"] {
            assert!(allows(hub, "8.8.4.4") && allows(hub, "2001:db8::1"));
            assert!(never.iter().all(|address| !allows(hub, address)), "{hub}");
        }
        assert!(near.iter().chain(&network).all(|address| !allows("https://8.8.8.8", address)));
        assert!(network.iter().all(|address| allows("http://10.0.0.1", address)));
        assert!(near.iter().all(|address| !allows("http://10.0.0.1", address)));
        assert!(near.iter().chain(&network).all(|address| allows("http://127.0.0.1:1", address)));
        assert!(near.iter().all(|address| allows("http://localhost:1", address)));
    }
}
