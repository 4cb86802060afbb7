//! Registers with a controller. Connecting may take seconds, in which windows go on: hence a thread.
use super::Granting;
use catchment_session::io::{Address, ClientSecurity};
use catchment_session::registration::{
    Admitted, Register, RegisterError, RegisteredDevice, Secret, register,
};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// Time for one attempt.
const LIMIT: Duration = Duration::from_secs(5);
/// The same, where another controller may answer.
const LIMIT_OF_SEVERAL: Duration = Duration::from_secs(1);
/// Between two attempts to register, the least.
pub(super) const RETRY_LEAST: Duration = Duration::from_millis(250);

/// A socket for datagrams to any host; it is connected when the controller is known.
pub(super) fn any_socket() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))
        .or_else(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// What became of a registration.
pub(super) struct Registration {
    /// The place of the controller.
    pub(super) at: usize,
    /// It was to know the source while it stands by.
    pub(super) standby: bool,
    pub(super) result: Result<Admitted, RegisterError>,
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

    pub(super) const fn security(&self) -> &ClientSecurity {
        &self.security
    }

    /// Returns a controller, by its place among those that stand in for each other.
    pub(super) fn address_of(&self, at: usize) -> &Address {
        &self.addresses[at]
    }

    /// Returns the place of the controller that is asked.
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    /// Asks this controller from now on.
    pub(super) const fn follow(&mut self, at: usize) {
        self.at = at;
    }

    pub(super) const fn controllers(&self) -> usize {
        self.addresses.len()
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

    /// Tries once with a controller, and hands the result to the thread that waits for it. With `standby` one that
    /// stands by is to know the source too.
    pub(super) fn start(
        &self,
        at: usize,
        standby: bool,
        term: u32,
        granting: &Arc<Granting>,
    ) -> io::Result<()> {
        let (wish, granting) = (self.clone(), granting.clone());
        let work = Register { term, standby, ..wish.register.clone() };
        let spawned =
            std::thread::Builder::new().name("catchment-reg".to_owned()).spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let Ok(runtime) = runtime else { return };
                let limit = if wish.has_others() { LIMIT_OF_SEVERAL } else { LIMIT };
                let asked = register(wish.address_of(at), &wish.security, work, limit);
                let result = runtime.block_on(asked);
                granting.registrations.lock().push(Registration { at, standby, result });
                granting.ring();
            });
        spawned.map(drop)
    }
}
