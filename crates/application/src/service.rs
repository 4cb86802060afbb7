//! A service that an application offers, and its callers.
use crate::connection::Connection;
use crate::domain::{Domain, Region, Rights};
use crate::{Error, wire};
use catchment_agent::{Incoming, Offer};
use catchment_channel::{Card, Channel, ChannelError};
use catchment_verbs::RtsAttr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a wait without limit waits at a time.
const WHILE: Duration = Duration::from_secs(3600);

/// A service. Dropping it withdraws it; its connections stay.
pub struct Service {
    domain: Arc<Domain>,
    offer: Arc<Offer>,
}

/// An application that calls a service, and waits for an answer: ten seconds. Dropped unanswered, it is turned away.
pub struct Caller {
    domain: Arc<Domain>,
    offer: Arc<Offer>,
    incoming: Incoming,
    is_answered: bool,
}

impl Service {
    pub(crate) fn new(domain: Arc<Domain>, offer: Offer) -> Self {
        Self { domain, offer: Arc::new(offer) }
    }

    /// Makes memory that all who are accepted from now on reach under this name; it is zero. Who shall have other rights
    /// calls another service.
    ///
    /// # Errors
    /// [`Error::Name`]; [`Error::Agent`] where the policy allows no more memory.
    pub fn region(&self, name: &str, bytes: usize, rights: Rights) -> Result<Region, Error> {
        self.domain.region(name, bytes, rights)
    }

    /// Waits for who calls. Each can be accepted on a thread of its own: that waits for the caller.
    ///
    /// # Errors
    /// [`Error::Agent`]: the agent has ended, or its policy does not allow the service any more.
    pub fn next(&self) -> Result<Caller, Error> {
        loop {
            if let Some(caller) = self.next_within(WHILE)? {
                return Ok(caller);
            }
        }
    }

    /// As [`Service::next`], for so long.
    ///
    /// # Errors
    /// As there.
    pub fn next_within(&self, patience: Duration) -> Result<Option<Caller>, Error> {
        let called = self.offer.next(Instant::now() + patience);
        let incoming = called.map_err(|error| Error::agent(&error))?;
        Ok(incoming.map(|incoming| Caller {
            domain: Arc::clone(&self.domain),
            offer: Arc::clone(&self.offer),
            incoming,
            is_answered: false,
        }))
    }

    /// Waits for who calls, and connects with him.
    ///
    /// # Errors
    /// As [`Service::next`] and [`Caller::accept`].
    pub fn accept(&self) -> Result<Connection, Error> {
        self.next()?.accept()
    }
}

impl Caller {
    /// Returns the caller's name in the policy of his agent.
    #[must_use]
    pub fn application(&self) -> &str {
        &self.incoming.application
    }

    /// Returns the number of his host, as `catchment agent status` shows it; nothing for this one.
    #[must_use]
    pub const fn host(&self) -> Option<u32> {
        self.incoming.host
    }

    /// Connects with the caller.
    ///
    /// # Errors
    /// [`Error::Caller`]: memory is missing, or he is gone. He learns the reason as far as he is there.
    pub fn accept(mut self) -> Result<Connection, Error> {
        let made = self.connect();
        self.is_answered = true;
        let number = self.incoming.number;
        let (card, channel) = match made {
            Ok(made) => made,
            Err(error) => {
                let _ = self.offer.reject(number, &error.to_string());
                return Err(self.failed(&error));
            }
        };
        self.offer.accept(number, &card).map_err(|error| self.failed(&error))?;
        let connected = Connection::new(channel, Arc::clone(&self.domain));
        let mut connection = connected.map_err(|error| self.failed(&error))?;
        let heard = connection.hear_regions().and_then(|()| connection.tell_regions());
        heard.map_err(|error| self.failed(&error))?;
        Ok(connection)
    }

    fn connect(&self) -> Result<(String, Channel), ChannelError> {
        let theirs: Card = self.incoming.card.parse()?;
        let resources = self.domain.acquire(wire::shape())?;
        let card = resources.card().to_string();
        Ok((card, Channel::connect(resources, &theirs, RtsAttr::default())?))
    }

    fn failed(&self, reason: &impl ToString) -> Error {
        let application = self.incoming.application.clone();
        Error::Caller { application, reason: reason.to_string() }
    }

    /// Turns the caller away, who learns the reason: 256 characters of it.
    ///
    /// # Errors
    /// [`Error::Agent`]: the agent has ended.
    pub fn reject(mut self, reason: &str) -> Result<(), Error> {
        self.is_answered = true;
        let told = self.offer.reject(self.incoming.number, reason);
        told.map_err(|error| Error::agent(&error))
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if !self.is_answered {
            let _ = self.offer.reject(self.incoming.number, "the service did not accept");
        }
    }
}
