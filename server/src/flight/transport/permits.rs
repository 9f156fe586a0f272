//! Permits for open connections, of all clients and of each address. A few connections over a limit are accepted, so that
//! their calls are rejected with a reason.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use crate::flight::status;

/// Connections over a limit that are answered at a time.
const REJECTED_MAX: usize = 64;

/// Lifetime of such a connection, and the time after which its client may retry.
pub(super) const REJECTED_TIME: Duration = Duration::from_secs(2);

/// Permits for open connections. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ConnectionPermits {
    limit: usize,
    free: Arc<Semaphore>,
    rejected: Arc<Semaphore>,
    addresses: Arc<AddressCounts>,
}

/// Open connections by address.
#[derive(Debug)]
struct AddressCounts {
    limit: usize,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// One of the open connections of an address; dropping it frees its place.
#[derive(Debug)]
pub(super) struct AddressPermit {
    addresses: Arc<AddressCounts>,
    address: IpAddr,
}

/// The permit of a new connection.
pub(super) enum ConnectionPermit {
    Taken(
        #[expect(dead_code, reason = "held until the connection closes")] OwnedSemaphorePermit,
        #[expect(dead_code, reason = "held until the connection closes")] Option<AddressPermit>,
    ),
    /// No permit is free: its calls are rejected with this status.
    Rejected(#[expect(dead_code, reason = "held until the connection closes")] OwnedSemaphorePermit, Status),
}

impl ConnectionPermits {
    /// Permits for `limit` connections, and for `address_limit` from one address.
    pub fn new(limit: usize, address_limit: usize) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        let addresses = AddressCounts { limit: address_limit, open: Mutex::default() };
        Self {
            limit,
            free: Arc::new(Semaphore::new(limit)),
            rejected: Arc::new(Semaphore::new(REJECTED_MAX)),
            addresses: Arc::new(addresses),
        }
    }

    /// A permit for a connection from an address, which Unix sockets do not have; none if many connections over a limit
    /// are being answered.
    pub(super) fn acquire(&self, address: Option<IpAddr>) -> Option<ConnectionPermit> {
        let over = match Arc::clone(&self.free).try_acquire_owned() {
            Ok(free) => match address.map(|address| self.addresses.acquire(address)).transpose() {
                Ok(address) => return Some(ConnectionPermit::Taken(free, address)),
                Err(address) => format!(
                    "{} connections of {address} are open, the limit of an address (--connections-per-address)",
                    self.addresses.limit
                ),
            },
            Err(_) => format!("{0} connections are open, the limit is {0} (--connections-max)", self.limit),
        };
        let place = Arc::clone(&self.rejected).try_acquire_owned().ok()?;
        let reason = format!("{over}: close one, or try again in {} s", REJECTED_TIME.as_secs());
        Some(ConnectionPermit::Rejected(place, status::overloaded(&reason, REJECTED_TIME.as_millis() as u64)))
    }
}

impl ConnectionPermit {
    /// The status of each call, if the connection is over a limit.
    pub(super) fn rejection(&self) -> Option<&Status> {
        match self {
            Self::Taken(..) => None,
            Self::Rejected(_, status) => Some(status),
        }
    }
}

// === impl AddressCounts ===

impl AddressCounts {
    /// A permit for one more connection, or the address whose limit is reached.
    fn acquire(self: &Arc<Self>, address: IpAddr) -> Result<AddressPermit, IpAddr> {
        let address = network(address);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(address).or_insert(0);
        if *count >= self.limit {
            return Err(address);
        }
        *count += 1;
        Ok(AddressPermit { addresses: Arc::clone(self), address })
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let mut open = self.addresses.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

/// The address by which connections are counted: a machine with IPv6 usually has all addresses of 64 leading bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_own_limit() {
        let permits = ConnectionPermits::new(5, 2);
        let reason = |address: &str| {
            let permit = permits.acquire(Some(address.parse().unwrap())).unwrap();
            (permit.rejection().map(|status| status.message().to_owned()), permit)
        };
        let (_, first) = reason("10.0.0.1");
        let (_, _second) = reason("::ffff:10.0.0.1");
        let (over, _) = reason("10.0.0.1");
        assert!(over.unwrap().contains("2 connections of 10.0.0.1 are open"));
        let (none, _six) = reason("2001:db8::1");
        let (also_none, _seven) = reason("2001:db8::ffff:2");
        assert_eq!((none, also_none), (None, None));
        let (over, _) = reason("2001:db8::3");
        assert!(over.unwrap().contains("--connections-per-address"));
        let _fifth = permits.acquire(None);
        assert!(permits.acquire(None).unwrap().rejection().unwrap().message().contains("--connections-max"));
        drop(first);
        assert_eq!(reason("10.0.0.1").0, None);
        assert_eq!(permits.addresses.open.lock().unwrap().len(), 2);
    }
}
