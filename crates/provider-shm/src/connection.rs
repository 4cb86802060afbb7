//! What a queue pair knows of its peer.
use crate::inbox::Inbox;
use crate::link::{CallError, PeerLink};
use crate::proto::QpFacts;
use crate::socket;
use crate::tables::SharedWord;
use catchment_verbs::{Access, event};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The peer's queue pair.
pub(crate) struct Connection {
    /// `None` while this side requests nothing of the peer.
    link: OnceLock<Arc<PeerLink>>,
    pub(crate) facts: QpFacts,
    /// What the peer's queue pair allows us to do.
    pub(crate) access: Access,
    /// The peer's inbox, for our messages.
    pub(crate) inbox: Inbox,
    alive: SharedWord,
    recv_bell: Option<OwnedFd>,
    send_bell: Option<OwnedFd>,
}

impl Connection {
    /// Creates a connection from the peer's message. The descriptors are checked and mapped here.
    pub(crate) fn new(
        link: Option<Arc<PeerLink>>,
        facts: QpFacts,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Self, CallError> {
        let mut descriptors = descriptors.into_iter();
        let fd = descriptors.next().ok_or(CallError::Protocol)?;
        let inbox = Inbox::from_peer(fd, facts.ring_bytes, facts.recv_slots)
            .ok_or(CallError::Protocol)??;
        let mut channel = |bit| {
            let bell = (facts.channels & bit != 0).then(|| descriptors.next()).flatten();
            bell.map(socket::never_waiting).transpose()
        };
        Ok(Self {
            link: link.map_or_else(OnceLock::new, OnceLock::from),
            facts,
            access: Access::from_bits_truncate(facts.access),
            alive: inbox.alive_word()?,
            inbox,
            recv_bell: channel(QpFacts::RECV_CHANNEL)?,
            send_bell: channel(QpFacts::SEND_CHANNEL)?,
        })
    }

    /// Returns the link for requests to the peer, if this side has ever posted one.
    pub(crate) fn link(&self) -> Result<&Arc<PeerLink>, CallError> {
        self.link.get().ok_or(CallError::Gone)
    }

    pub(crate) fn set_link(&self, link: Arc<PeerLink>) {
        let _ = self.link.set(link);
    }

    /// Returns whether a page of what the peer shares for all requests could not be had.
    pub(crate) fn is_broken(&self) -> bool {
        self.inbox.is_broken() || self.link.get().is_some_and(|link| link.is_broken())
    }

    /// Returns whether the peer's queue pair accepts requests.
    #[inline]
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.get().load(Ordering::Acquire) == 1
    }

    /// Returns how long to wait when the peer has no receive posted.
    pub(crate) fn rnr_timer(&self) -> Duration {
        Duration::from_micros(self.facts.rnr_timer_us.into())
    }

    /// Wakes the peer's thread that waits for messages.
    pub(crate) fn ring_receiver(&self) {
        if let Some(bell) = &self.recv_bell {
            event::ring(bell);
        }
    }

    /// Wakes the peer's thread that waits until its messages are taken.
    pub(crate) fn ring_sender(&self) {
        if let Some(bell) = &self.send_bell {
            event::ring(bell);
        }
    }
}
