//! Registers with a controller. Connecting may take seconds, in which windows go on: hence a thread.
use super::Granting;
use catchment_session::io::{Address, ClientSecurity};
use catchment_session::registration::{Register, RegisteredDevice, Secret, register};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// Time for one attempt.
const LIMIT: Duration = Duration::from_secs(5);
/// The same, where another controller may answer.
const LIMIT_OF_SEVERAL: Duration = Duration::from_secs(1);
/// Between two attempts to register, the least.
pub(super) const RETRY_LEAST: Duration = Duration::from_millis(250);
/// DSCP CS6.
const CONTROL_TOS: u8 = 48 << 2;

/// A socket for datagrams to any host; it is connected when the controller is known.
pub(super) fn any_socket() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))
        .or_else(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// A socket for datagrams to a controller.
pub(super) fn socket_to(to: SocketAddr) -> io::Result<UdpSocket> {
    let socket = match to {
        SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?,
        SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?,
    };
    socket.set_nonblocking(true)?;
    let _ = match to {
        SocketAddr::V4(_) => rustix::net::sockopt::set_ip_tos(&socket, CONTROL_TOS),
        SocketAddr::V6(_) => rustix::net::sockopt::set_ipv6_tclass(&socket, CONTROL_TOS.into()),
    };
    socket.connect(to)?;
    Ok(socket)
}

/// What a source says when it registers.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    /// Controllers that stand in for each other; there is at least one.
    addresses: Vec<Address>,
    /// The one that is asked.
    at: usize,
    security: ClientSecurity,
    register: Register,
}

impl Wish {
    pub(super) fn new(
        addresses: Vec<Address>,
        security: ClientSecurity,
        collector: String,
        devices: Vec<RegisteredDevice>,
    ) -> io::Result<Self> {
        let process = Secret::random().map_err(|_| io::Error::other("no random bytes"))?;
        Ok(Self {
            addresses,
            at: 0,
            security,
            register: Register::new(process, collector, devices),
        })
    }

    /// Returns the controller that is asked.
    pub(super) fn address(&self) -> &Address {
        &self.addresses[self.at]
    }

    /// Asks another controller from now on, if there are several; returns the pause before the next attempt.
    pub(super) fn turn(&mut self, pause: Duration) -> Duration {
        self.at = (self.at + 1) % self.addresses.len();
        if self.has_others() { pause.min(RETRY_LEAST) } else { pause }
    }

    /// Returns whether there are several controllers.
    pub(super) fn has_others(&self) -> bool {
        self.addresses.len() > 1
    }

    pub(super) fn devices(&self) -> usize {
        self.register.devices.len()
    }

    /// Tries once, and hands the result to the thread that waits for it.
    pub(super) fn start(&self, term: u32, granting: &Arc<Granting>) -> io::Result<()> {
        let (wish, granting) = (self.clone(), granting.clone());
        let work = Register { term, ..wish.register.clone() };
        let spawned =
            std::thread::Builder::new().name("catchment-reg".to_owned()).spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let Ok(runtime) = runtime else { return };
                let limit = if wish.has_others() { LIMIT_OF_SEVERAL } else { LIMIT };
                let asked = register(wish.address(), &wish.security, work, limit);
                let result = runtime.block_on(asked);
                granting.registrations.lock().push(result);
                granting.ring();
            });
        spawned.map(drop)
    }
}
