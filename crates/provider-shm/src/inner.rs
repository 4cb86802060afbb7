//! What the lock of a queue pair protects: the inbox, the peer, and requests that wait.
use crate::connection::Connection;
use crate::inbox::Inbox;
use crate::link::PeerLink;
use crate::pace::Pace;
use crate::payload::Piece;
use crate::remote::RemoteCache;
use crate::request::Waiting;
use catchment_verbs::{Access, Endpoint, Gid, RtsAttr, WcStatus};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A posted receive.
pub(crate) struct PostedRecv {
    pub(crate) wr_id: u64,
    pub(crate) seq: u64,
    pub(crate) pieces: Vec<Piece>,
    /// Its capacity in bytes; `None` if its elements are not usable.
    pub(crate) room: Option<u64>,
    pub(crate) filled: u64,
}

/// The peer, from RTR on.
pub(crate) struct Peer {
    pub(crate) endpoint: Endpoint,
    /// Our connection to its service thread. Closed when it has connected to ours and nothing is
    /// ever posted here: then one socket serves both.
    pub(crate) link: Option<Arc<PeerLink>>,
    /// It was not ready when we connected, so it connects to us.
    pub(crate) comes: bool,
    /// The number of its connection to our service thread, once it connected.
    pub(crate) asker: Option<u64>,
}

/// What the lock protects.
pub(crate) struct Inner {
    pub(crate) inbox: Inbox,
    pub(crate) inbox_id: u64,
    /// The inbox's descriptor, until the peer has it.
    pub(crate) inbox_fd: Option<Arc<OwnedFd>>,
    /// A request was posted, or the peer's memory mapped: the link stays open.
    pub(crate) asks: bool,
    pub(crate) peer: Option<Peer>,
    pub(crate) connection: Option<Arc<Connection>>,
    pub(crate) access: Access,
    pub(crate) rnr_timer: Duration,
    pub(crate) attributes: RtsAttr,
    /// Requests that could not be executed when they were posted, oldest first.
    pub(crate) sends: VecDeque<Waiting>,
    /// Requests from this number on wait until the queue leaves SQD.
    pub(crate) hold_from: u64,
    /// Bytes put into the peer's ring so far, and messages begun.
    pub(crate) tail: u64,
    pub(crate) begun: u64,
    /// Something was put, taken or posted since the peer was last rung for it.
    pub(crate) put: bool,
    pub(crate) taken: bool,
    pub(crate) recvs: VecDeque<PostedRecv>,
    /// Receives posted into this inbox so far.
    pub(crate) posted: u64,
    /// Bytes taken out of our ring so far.
    pub(crate) head: u64,
    /// Keys for requests that waited; the owner's thread has its own.
    pub(crate) cache: RemoteCache,
    /// The rate limit, if there is one.
    pub(crate) pace: Option<Pace>,
    /// When the request at the front may leave, if it waits for the rate limit only.
    pub(crate) opens: Option<Instant>,
    /// A key that the peer refused, for the request that needed it.
    pub(crate) refused: Option<(u32, WcStatus)>,
    /// Completions were pushed; threads that wait for failures or solicited events must be
    /// notified.
    pub(crate) pushed_send: Option<bool>,
    pub(crate) pushed_recv: Option<bool>,
}

impl Inner {
    pub(crate) fn new((inbox, fd): (Inbox, OwnedFd), inbox_id: u64) -> Self {
        Self {
            inbox,
            inbox_id,
            inbox_fd: Some(Arc::new(fd)),
            asks: false,
            peer: None,
            connection: None,
            access: Access::empty(),
            rnr_timer: Duration::ZERO,
            attributes: RtsAttr::default(),
            sends: VecDeque::new(),
            hold_from: u64::MAX,
            tail: 0,
            begun: 0,
            put: false,
            taken: false,
            recvs: VecDeque::new(),
            posted: 0,
            head: 0,
            cache: RemoteCache::default(),
            pace: None,
            opens: None,
            refused: None,
            pushed_send: None,
            pushed_recv: None,
        }
    }

    /// Installs the connection that either side created, unless there is one already.
    pub(crate) fn connect(&mut self, connection: Connection) {
        self.inbox_fd = None;
        self.connection.get_or_insert_with(|| Arc::new(connection));
    }

    /// Returns whether a page of the memory between the two queue pairs could not be had.
    pub(crate) fn is_broken(&self) -> bool {
        let connection = self.connection.as_ref();
        self.inbox.is_broken()
            || self.cache.is_broken()
            || connection.is_some_and(|c| c.is_broken())
    }

    /// Returns the connection, if there is no link to its peer.
    pub(crate) fn unlinked(&self) -> Option<(Arc<Connection>, Gid)> {
        let peer = self.peer.as_ref().filter(|peer| peer.link.is_none())?;
        Some((self.connection.clone()?, peer.endpoint.gid))
    }
}
