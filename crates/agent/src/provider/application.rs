//! What an application asks of its agent beside verbs: another rate, and peers by the names of their services.
use super::handles::AgentContext;
use super::link::{Link, dial};
use super::{ANSWER_TIMEOUT, AgentOptions, INFO};
use crate::protocol::{self, Call, Hints, REPLY_BYTES, Reply, Request, VERSION};
use catchment_verbs::{Context, VerbsError};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Addresses of a host that an agent is told of.
const MOST_ADDRESSES: usize = 8;

/// An application that is connected to its agent. Clones are the same application to it; the last handle, and the last
/// object of its [`Application::context`], ends the connection.
#[derive(Clone)]
pub struct Application {
    options: AgentOptions,
    context: AgentContext,
}

impl Application {
    /// Connects to the agent.
    ///
    /// # Errors
    /// [`VerbsError::Unavailable`]: there is no such agent, or its policy does not serve this application and user.
    pub fn open(options: &AgentOptions) -> Result<Self, VerbsError> {
        Ok(Self { options: options.clone(), context: AgentContext::open(options)? })
    }

    /// Returns the device of the agent, for verbs.
    pub fn context(&self) -> Arc<dyn Context> {
        Arc::new(self.context.clone())
    }

    /// Says what the application wants of its rate, in place of what it said before.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`]: a number is out of range, or the weight above that of the policy. What was said before
    /// counts on.
    pub fn hint(&self, hints: &Hints) -> Result<(), VerbsError> {
        // JSON has no such numbers.
        hints.check(&self.options.application, f64::INFINITY).map_err(VerbsError::Invalid)?;
        let answer = self.context.link().call(&Request::Hint(*hints), &[]);
        answer.map(drop).map_err(|reason| VerbsError::Invalid(format!("the agent: {reason}")))
    }

    /// Offers a service under a name that the policy allows. Dropping it withdraws it.
    ///
    /// # Errors
    /// [`VerbsError::Unavailable`]: the policy does not allow it, or another process offers it.
    pub fn offer(&self, service: &str) -> Result<Offer, VerbsError> {
        let (application, service) = (self.options.application.clone(), service.to_owned());
        let request = Request::Offer { version: VERSION, application, service };
        let socket = dial(&self.options.agent)?;
        let answer = ask(&socket, &request, Instant::now() + ANSWER_TIMEOUT)?;
        (answer == Reply::Done).then_some(Offer { socket }).ok_or_else(misfit)
    }

    /// Calls a service of a host: gives it a card, and returns that of the service. The host goes by one of its addresses,
    /// or by the name of its agent; empty is this host.
    ///
    /// # Errors
    /// [`VerbsError::Unavailable`] with the reason: no session with an agent there, no such service, or it refuses.
    pub fn call(
        &self,
        (host, addresses): (&str, &[IpAddr]),
        service: &str,
        card: &str,
    ) -> Result<String, VerbsError> {
        let call = Call {
            version: VERSION,
            application: self.options.application.clone(),
            host: host.to_owned(),
            addresses: addresses.iter().copied().take(MOST_ADDRESSES).collect(),
            service: service.to_owned(),
            card: card.to_owned(),
        };
        // Longer than the agent waits for the service.
        let deadline = Instant::now() + 2 * ANSWER_TIMEOUT;
        let answer = ask(&dial(&self.options.agent)?, &Request::Call(call), deadline)?;
        let Reply::Accepted { card } = answer else { return Err(misfit()) };
        Ok(card)
    }
}

fn unavailable(reason: impl Into<String>) -> VerbsError {
    VerbsError::Unavailable { provider: INFO.name, reason: reason.into() }
}

fn misfit() -> VerbsError {
    unavailable(Link::misfit())
}

fn ask(socket: &OwnedFd, request: &Request, deadline: Instant) -> Result<Reply, VerbsError> {
    let exchange = || {
        protocol::send(socket.as_fd(), request, &[])?;
        protocol::receive(socket.as_fd(), REPLY_BYTES, deadline)
    };
    let answer: io::Result<Option<(Reply, Vec<OwnedFd>)>> = exchange();
    match answer {
        Ok(Some((Reply::Refused { reason }, _))) => Err(unavailable(reason)),
        Ok(Some((reply, _))) => Ok(reply),
        Ok(None) => Err(unavailable("the agent ended the connection")),
        Err(error) => Err(unavailable(format!("the agent does not answer: {error}"))),
    }
}

/// A service that is offered. Dropping it withdraws it.
#[derive(Debug)]
pub struct Offer {
    socket: OwnedFd,
}

/// Somebody who calls a service; unanswered for ten seconds he is told that it does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    /// For [`Offer::accept`] and [`Offer::reject`].
    pub number: u64,
    /// His name in the policy of his agent.
    pub application: String,
    /// The number of his host, as `agent status` shows it; nothing: this one.
    pub host: Option<u32>,
    /// His card.
    pub card: String,
}

impl Offer {
    /// Waits for who calls, until the deadline.
    ///
    /// # Errors
    /// [`VerbsError::Unavailable`]: the agent has ended, or does not let the application offer this any more.
    pub fn next(&self, deadline: Instant) -> Result<Option<Incoming>, VerbsError> {
        match protocol::receive(self.socket.as_fd(), REPLY_BYTES, deadline) {
            Ok(Some((Reply::Called { call, application, host, card }, _))) => {
                Ok(Some(Incoming { number: call, application, host, card }))
            }
            Ok(Some((Reply::Refused { reason }, _))) => Err(unavailable(reason)),
            Ok(Some(_)) => Err(misfit()),
            Ok(None) => Err(unavailable("the agent has ended, or its policy has changed")),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(None),
            Err(error) => Err(unavailable(format!("the service's connection: {error}"))),
        }
    }

    /// Takes who called, with this card for him.
    ///
    /// # Errors
    /// [`VerbsError::Unavailable`]: the agent has ended.
    pub fn accept(&self, call: u64, card: &str) -> Result<(), VerbsError> {
        self.answer(&Request::Accept { call, card: card.to_owned() })
    }

    /// Turns who called away, with a reason of at most 256 characters.
    ///
    /// # Errors
    /// As [`Offer::accept`].
    pub fn reject(&self, call: u64, reason: &str) -> Result<(), VerbsError> {
        self.answer(&Request::Reject { call, reason: reason.chars().take(256).collect() })
    }

    fn answer(&self, answer: &Request) -> Result<(), VerbsError> {
        let deadline = Instant::now() + Duration::from_secs(1);
        let sent = protocol::send_in_turn(self.socket.as_fd(), answer, deadline);
        sent.map_err(|error| unavailable(format!("the service's connection: {error}")))
    }
}
