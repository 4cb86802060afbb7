//! Questions to an agent about how it stands. Who asks need be no application.
use super::{ANSWER_TIMEOUT, unavailable};
use crate::protocol::{self, Account, Peer, Reply, Request, Rounds, Standing};
use catchment_provider_shm::seqpacket;
use catchment_verbs::VerbsError;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Instant;

/// Asks one agent again and again, over one connection: each is a thread of the agent, which takes part in what is
/// looked at.
#[derive(Debug)]
pub struct Inquiry {
    agent: String,
    socket: Option<OwnedFd>,
}

impl Inquiry {
    /// To the agent of this name. Nothing is asked yet.
    pub fn new(agent: impl Into<String>) -> Self {
        Self { agent: agent.into(), socket: None }
    }

    /// Returns the agent's name.
    #[must_use]
    pub fn agent(&self) -> &str {
        &self.agent
    }

    /// Asks how the agent stands, over the connection of the question before, or over a new one if that has ended: an
    /// agent that was started again is asked as the one before was.
    ///
    /// # Errors
    /// When there is no such agent, or it does not answer within 20 seconds.
    pub fn ask(&mut self) -> Result<Standing, VerbsError> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        if let Some(socket) = self.socket.take()
            && let Ok(standing) = ask(socket.as_fd(), deadline)
        {
            self.socket = Some(socket);
            return Ok(standing);
        }
        let connect = || seqpacket::connect(&protocol::address(&self.agent)?, deadline);
        let first = connect().and_then(|socket| Ok((ask(socket.as_fd(), deadline)?, socket)));
        let (standing, socket) = first.map_err(|error| unavailable(&self.agent, &error))?;
        self.socket = Some(socket);
        Ok(standing)
    }
}

fn ask(socket: BorrowedFd<'_>, deadline: Instant) -> io::Result<Standing> {
    protocol::send(socket, &Request::Status, &[])?;
    let mut all = Vec::new();
    loop {
        match protocol::receive(socket, protocol::REPLY_BYTES, deadline)? {
            Some((Reply::Accounts { applications }, _)) => all.extend(applications),
            Some((Reply::Status(standing), _)) => {
                let mut standing = *standing;
                all.append(&mut standing.applications);
                return Ok(Standing { applications: all, ..standing });
            }
            Some((Reply::Refused { reason }, _)) => return Err(io::Error::other(reason)),
            Some(_) => return Err(io::Error::other("it answered another question")),
            None => return Err(io::Error::other("it hung up before it had told all")),
        }
    }
}

/// Returns the accounts of the applications of an agent.
///
/// # Errors
/// As [`Inquiry::ask`].
pub fn status(agent: &str) -> Result<Vec<Account>, VerbsError> {
    Ok(Inquiry::new(agent).ask()?.applications)
}

/// Returns what an agent knows of those of other hosts.
///
/// # Errors
/// As [`status`].
pub fn peers(agent: &str) -> Result<Vec<Peer>, VerbsError> {
    Ok(Inquiry::new(agent).ask()?.peers)
}

/// Returns how an agent's rounds with those of other hosts stand; `None` if it has none.
///
/// # Errors
/// As [`status`].
pub fn rounds(agent: &str) -> Result<Option<Rounds>, VerbsError> {
    Ok(Inquiry::new(agent).ask()?.rounds)
}
