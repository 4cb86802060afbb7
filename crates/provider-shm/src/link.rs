//! The connection to another context: queries its service thread, and notices its death.
use crate::proto::{MESSAGE_BYTES, Refusal, Reply, Request, VERSION, other_version};
use crate::socket;
use crate::tables::{BELLS_BYTES, VALID_BYTES};
use catchment_verbs::mem::{MemError, Region};
use catchment_verbs::sync::Mutex;
use catchment_verbs::wait::barrier;
use catchment_verbs::{Gid, Watch, event};
use rustix::event::epoll;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long an answer may take. A service thread never waits for others, but on a busy machine it
/// may not get a processor for more than a second; the end of a process is noticed at once.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Set in the epoll data of connections to peers.
pub(crate) const LINK: u64 = 1 << 63;

/// A request to a peer failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The connection failed.
    #[error("{0}")]
    Io(io::Error),
    /// No answer in time.
    #[error("its process did not answer within {ANSWER_TIMEOUT:?}")]
    TimedOut,
    /// The process is gone.
    #[error("its process is gone")]
    Gone,
    /// An answer that does not match the request.
    #[error("its answer is malformed; both sides must run the same version")]
    Protocol,
    /// An answer in another version of this protocol.
    #[error(
        "it speaks version {0} of the shared memory handshake, this process version {VERSION}: update \
         the older one"
    )]
    Version(u16),
    /// This process has no descriptor for an answer.
    #[error("this process has no file descriptor left; raise its limit (ulimit -n)")]
    NoDescriptor,
    /// Memory that cannot be mapped safely.
    #[error("its memory cannot be used: {0}")]
    Memory(#[from] MemError),
    /// An earlier exchange succeeded only at the peer.
    #[error("it is connected with this queue pair, which does not know of it; reset both")]
    Stale,
    /// The peer refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> Self {
        if socket::is_exhausted(&error) { Self::NoDescriptor } else { Self::Io(error) }
    }
}

/// A connection to another context, shared by all queue pairs to it.
pub(crate) struct PeerLink {
    pub(crate) gid: Gid,
    pub(crate) id: u64,
    fd: OwnedFd,
    dead: AtomicBool,
    calls: Mutex<()>,
    /// The peer's table of valid keys.
    pub(crate) valid: Arc<Region>,
    /// The peer's flags.
    pub(crate) bells: Arc<Region>,
    /// Whether this process need make no fence before it looks whether the peer sleeps on one of its regions. A peer
    /// that has promised that in vain misses its own wake-ups.
    pub(crate) fences_for_us: bool,
    watches: Mutex<Vec<Weak<dyn Watch>>>,
}

impl PeerLink {
    /// Connects and identifies this context.
    pub(crate) fn connect(ours: Gid, peer: Gid, id: u64) -> Result<Self, CallError> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let fd = socket::connect(peer, deadline)?;
        let hello = Request::Hello { gid: ours, peer }.encode();
        let sent = socket::send(fd.as_fd(), &hello, &[]);
        // A peer may have refused the connection before it saw the Hello.
        let (reply, descriptors) = match (receive(fd.as_fd(), deadline), sent) {
            (Err(CallError::Gone | CallError::Io(_)), Err(error)) => return Err(error.into()),
            (answer, _) => answer?,
        };
        let fences_for_writers = match reply {
            Reply::Hello { fences_for_writers } => fences_for_writers,
            Reply::Refused(reason) => return Err(reason.into()),
            Reply::Qp(_) | Reply::Known | Reply::Region { .. } => return Err(CallError::Protocol),
        };
        let [valid, bells]: [OwnedFd; 2] =
            descriptors.try_into().map_err(|_| CallError::Protocol)?;
        Ok(Self {
            gid: peer,
            id,
            fd,
            dead: AtomicBool::new(false),
            calls: Mutex::new(()),
            valid: Region::from_peer(valid, VALID_BYTES, false)?,
            bells: Region::from_peer(bells, BELLS_BYTES, true)?,
            fences_for_us: fences_for_writers && barrier::available(),
            watches: Mutex::new(Vec::new()),
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns whether a page of the peer's keys could not be had. One of its bells is no reason to end
    /// anything: every peer of that context may take it away, and what is lost are wake-ups.
    pub(crate) fn is_broken(&self) -> bool {
        self.valid.is_broken()
    }

    /// Returns whether the peer is known to be gone.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Marks the peer as gone, or as misbehaving: no more calls, and its watchers wake up.
    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::Release);
        // The other side and our own service thread see a hang-up.
        let _ = rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Both);
        for watch in self.watches.lock().drain(..).filter_map(|w| w.upgrade()) {
            watch.wake();
        }
    }

    /// Makes the service thread notice when this peer is gone.
    pub(crate) fn watch_hang_up(&self, epoll_fd: &OwnedFd) -> io::Result<()> {
        let data = epoll::EventData::new_u64(LINK | self.id);
        epoll::add(epoll_fd, &self.fd, data, epoll::EventFlags::RDHUP)?;
        Ok(())
    }

    /// Remembers a watch to wake when the peer dies.
    pub(crate) fn add_watch(&self, watch: Weak<dyn Watch>) {
        let mut watches = self.watches.lock();
        watches.retain(|w| w.strong_count() > 0);
        watches.push(watch);
    }

    /// Sends a request, and waits up to [`ANSWER_TIMEOUT`] for the answer. Never called with a lock
    /// held that a service thread takes.
    pub(crate) fn call(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), CallError> {
        let _one_at_a_time = self.calls.lock();
        if self.is_dead() {
            return Err(CallError::Gone);
        }
        let answer = self.exchange(request, descriptors);
        if answer.is_err() {
            // A late answer would be taken for that of the next request.
            self.die();
        }
        match answer? {
            (Reply::Refused(reason), _) => Err(reason.into()),
            other => Ok(other),
        }
    }

    fn exchange(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), CallError> {
        socket::send(self.fd(), &request.encode(), descriptors)?;
        receive(self.fd(), Instant::now() + ANSWER_TIMEOUT)
    }

    /// Sends a message without an answer. Never blocks; lost if the peer does not listen.
    pub(crate) fn notify(&self, request: &Request) {
        let _ = socket::send(self.fd(), &request.encode(), &[]);
    }
}

fn receive(fd: BorrowedFd<'_>, deadline: Instant) -> Result<(Reply, Vec<OwnedFd>), CallError> {
    if !event::wait_readable(fd, deadline)? {
        return Err(CallError::TimedOut);
    }
    let mut bytes = [0; MESSAGE_BYTES];
    let received = match socket::recv(fd, &mut bytes) {
        // It was closed with something unread; its last answer stands behind this error.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
            socket::recv(fd, &mut bytes)
        }
        received => received,
    };
    let (len, descriptors) = received?.ok_or(CallError::Gone)?;
    let Some(reply) = Reply::decode(&bytes[..len]) else {
        return Err(other_version(&bytes[..len]).map_or(CallError::Protocol, CallError::Version));
    };
    if reply.descriptors() != descriptors.len() {
        return Err(CallError::Protocol);
    }
    Ok((reply, descriptors))
}
