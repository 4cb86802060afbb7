//! An application, what it wants of its rate, and how it connects.
use crate::connection::Connection;
use crate::domain::{Domain, Region, Rights};
use crate::service::Service;
use crate::{Error, wire};
use catchment_agent::protocol::Hints;
use catchment_agent::{AgentOptions, Application as Agent};
use catchment_channel::Channel;
use catchment_channel::card::{Card, CardError};
use catchment_verbs::sync::Mutex;
use catchment_verbs::{RtsAttr, VerbsError};
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::Arc;

/// What an application wants of its rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Hint {
    /// Its weight: above 0, and at most that of the agent's policy, which counts without this.
    Weight(f64),
    /// The most that it is going to send and read, in bytes a second: others have the rest from the beginning, and need not
    /// wait until that is seen. What it does beyond that, it does of what they leave. Counts where hosts agree on rates.
    Demand(f64),
    /// Others take its rate as they need it: while they do it has a hundredth of the share that its weight gives.
    Preemptible(bool),
}

/// A process that is connected to its agent, under a name of the agent's policy. Clones are the same application to it.
#[derive(Clone)]
pub struct Application {
    agent: Agent,
    hints: Arc<Mutex<Hints>>,
}

impl Application {
    /// Connects to the agent of this host: `APPLICATION`, or `APPLICATION@AGENT` for one that is not called `agent0`.
    ///
    /// # Errors
    /// [`Error::Agent`]: there is none, or its policy does not serve this application and user.
    pub fn open(name: &str) -> Result<Self, Error> {
        let agent = Agent::open(&AgentOptions::from(name)).map_err(|error| Error::agent(&error))?;
        Ok(Self { agent, hints: Arc::default() })
    }

    /// Says what the application wants of its rate; of each kind the last one counts.
    ///
    /// # Errors
    /// [`Error::Agent`]: a number is out of range, or the weight above that of the policy. What was said before counts on.
    pub fn hint(&self, hint: Hint) -> Result<(), Error> {
        let mut hints = self.hints.lock();
        let mut new = *hints;
        match hint {
            Hint::Weight(weight) => new.weight = Some(weight),
            Hint::Demand(bytes_per_s) => new.demand_bytes_per_s = Some(bytes_per_s),
            Hint::Preemptible(preemptible) => new.preemptible = preemptible,
        }
        self.agent.hint(&new).map_err(|error| Error::agent(&error))?;
        *hints = new;
        Ok(())
    }

    /// Offers a service under a name that the agent's policy allows this application: its own, unless that says others.
    /// Dropping it withdraws it.
    ///
    /// # Errors
    /// [`Error::Agent`]: the policy does not allow it, or another process offers it.
    pub fn serve(&self, service: &str) -> Result<Service, Error> {
        let offer = self.agent.offer(service).map_err(|error| Error::agent(&error))?;
        Ok(Service::new(Domain::new(&self.agent)?, offer))
    }

    /// Connects to a service: of this host, for which `host` is empty, or of another one, by one of its addresses, a name
    /// that the system finds addresses for, or the name of its agent.
    ///
    /// # Errors
    /// [`Error::Connect`] with the reason.
    pub fn connect(&self, host: &str, service: &str) -> Result<Connection, Error> {
        self.dial()?.connect(host, service)
    }

    /// Prepares a connection for which this end has regions, too.
    ///
    /// # Errors
    /// [`Error::Agent`].
    pub fn dial(&self) -> Result<Dial, Error> {
        Ok(Dial { agent: self.agent.clone(), domain: Domain::new(&self.agent)? })
    }
}

/// A connection that is to be made, and the regions that its peer will reach at this end.
pub struct Dial {
    agent: Agent,
    domain: Arc<Domain>,
}

impl Dial {
    /// Makes memory that the peer reaches under this name; it is zero.
    ///
    /// # Errors
    /// [`Error::Name`]; [`Error::Agent`] where the policy allows no more memory.
    pub fn region(&self, name: &str, bytes: usize, rights: Rights) -> Result<Region, Error> {
        self.domain.region(name, bytes, rights)
    }

    /// Connects, as [`Application::connect`].
    ///
    /// # Errors
    /// As there.
    pub fn connect(self, host: &str, service: &str) -> Result<Connection, Error> {
        let failed = |reason: String| {
            let host =
                if host.is_empty() { "this host".to_owned() } else { format!("host {host}") };
            Error::Connect { service: service.to_owned(), host, reason }
        };
        let resources =
            self.domain.acquire(wire::shape()).map_err(|error| failed(error.to_string()))?;
        let card = resources.card().to_string();
        let called = self.agent.call((host, &addresses(host)), service, &card);
        let theirs = called.map_err(|error| failed(reason_of(error)))?;
        let theirs = theirs.parse().map_err(|error: CardError| failed(error.to_string()))?;
        let theirs: Card = theirs;
        let channel = Channel::connect(resources, &theirs, RtsAttr::default());
        let channel = channel.map_err(|error| failed(error.to_string()))?;
        let mut connection = Connection::new(channel, self.domain)?;
        connection.tell_regions()?;
        connection.hear_regions()?;
        Ok(connection)
    }
}

/// Returns the reason alone, without where it comes from: the error says that.
fn reason_of(error: VerbsError) -> String {
    let text = error.to_string();
    if let VerbsError::Unavailable { reason, .. } = error { reason } else { text }
}

/// Returns the addresses of a host; none where the system knows none: its agent may have that name.
fn addresses(host: &str) -> Vec<IpAddr> {
    if host.is_empty() {
        return Vec::new();
    }
    let found = (host, 0).to_socket_addrs();
    found.map(|all| all.map(|addr| addr.ip().to_canonical()).collect()).unwrap_or_default()
}
