//! What an application and its agent say over their socket: one JSON object a message, with descriptors.
//! `docs/spec/agent.md` describes it.
mod hints;
mod standing;
mod transition;

use catchment_provider_shm::seqpacket;
use catchment_verbs::{Caps, Endpoint, Gid, NetEnd, Services, event};
pub use hints::Hints;
use serde::{Deserialize, Serialize};
pub use standing::{Account, By, Offered, Peer, Processor, Rounds, Standing};
use std::io;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;
pub use transition::Transition;

/// The version of this protocol. Others are refused.
pub const VERSION: u32 = 6;
/// Checks the version of who asks.
pub(crate) fn check_version(version: u32) -> Result<(), String> {
    if version == VERSION {
        return Ok(());
    }
    Err(format!(
        "the agent speaks version {VERSION} of its protocol, the application {version}: update the older one"
    ))
}

/// Most bytes of a message of an application.
pub const REQUEST_BYTES: usize = 2048;
/// Most bytes of a message of an agent: a status tells of applications and other agents.
pub const REPLY_BYTES: usize = 1 << 16;
/// Most applications that one message tells of.
pub const ACCOUNTS: usize = 32;

/// UDP port, path MTU and extensions of a port that has packets.
pub type Net = (u16, u32, u32);

/// Returns a port as messages have it.
#[must_use]
pub fn net_of(end: NetEnd) -> Net {
    (end.udp_port, end.path_mtu, end.extensions)
}

/// Returns the port of a message.
#[must_use]
pub fn net_end((udp_port, path_mtu, extensions): Net) -> NetEnd {
    NetEnd { udp_port, path_mtu, extensions, key: None }
}

/// What an application asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The first message.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The name in the policy.
        application: String,
    },
    /// The accounts of all applications; without a Hello.
    Status,
    /// Offers a service: the first message of a connection that is for it alone.
    Offer {
        /// [`VERSION`].
        version: u32,
        /// The name in the policy.
        application: String,
        /// The name of the service.
        service: String,
    },
    /// Takes a caller of the service.
    Accept {
        /// Its number.
        call: u64,
        /// For the caller.
        card: String,
    },
    /// Turns a caller of the service away.
    Reject {
        /// Its number.
        call: u64,
        /// Why, for people.
        reason: String,
    },
    /// Calls a service: the only message of its connection.
    Call(Call),
    /// What the application wants of its rate, in place of what it said before.
    Hint(Hints),
    /// A protection domain.
    AllocPd,
    /// The end of a protection domain.
    DropPd {
        /// Its number.
        pd: u32,
    },
    /// Registers memory. Comes with its descriptor.
    Register {
        /// The protection domain.
        pd: u32,
        /// Length.
        bytes: u64,
        /// Bits of [`Access`](catchment_verbs::Access).
        access: u32,
        /// It can be mapped for writing.
        writable: bool,
    },
    /// Revokes the keys of memory.
    Deregister {
        /// Its local key.
        lkey: u32,
    },
    /// A memory chunk.
    Chunk {
        /// What a region needs.
        bytes: u64,
    },
    /// Keys for a slice of a memory chunk.
    Bind {
        /// The protection domain.
        pd: u32,
        /// The number of the chunk.
        chunk: u32,
        /// Where the slice begins.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// Bits of [`Access`](catchment_verbs::Access).
        access: u32,
        /// The application still has these bytes: what is under way to them may arrive.
        again: bool,
    },
    /// The end of a memory chunk.
    DropChunk {
        /// Its number.
        chunk: u32,
    },
    /// An address handle.
    CreateAh {
        /// The protection domain.
        pd: u32,
        /// Address of the port, as [`Gid`] prints it.
        gid: String,
        /// As in [`Device`].
        net: Option<Net>,
    },
    /// The end of an address handle.
    DropAh {
        /// Its number.
        ah: u32,
    },
    /// A queue pair.
    CreateQp {
        /// The protection domain.
        pd: u32,
        /// Of UD; else of RC.
        datagrams: bool,
        /// Send requests.
        max_send_wr: u32,
        /// Receives.
        max_recv_wr: u32,
    },
    /// Another state.
    Modify {
        /// Its number.
        queue_pair: u32,
        /// The state, with what it needs.
        to: Transition,
    },
    /// The end of a queue pair.
    DestroyQp {
        /// Its number.
        queue_pair: u32,
    },
}

/// A call of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// [`VERSION`].
    pub version: u32,
    /// The name of the caller in the policy.
    pub application: String,
    /// The host, as people name it; empty: this one.
    pub host: String,
    /// Addresses of that host.
    pub addresses: Vec<IpAddr>,
    /// The name of the service.
    pub service: String,
    /// For the service.
    pub card: String,
}

/// What an agent answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Reply {
    /// To a Hello. Comes with the request pool, the agent's bell and the application's.
    Welcome(Device),
    /// To a Status, before it, where there are more applications than one message tells of.
    Accounts {
        /// At most [`ACCOUNTS`].
        applications: Vec<Account>,
    },
    /// To a Status. Of the accounts those that were not told before; at most [`ACCOUNTS`].
    Status(Box<Standing>),
    /// To an Offer: somebody calls.
    Called {
        /// Its number, for Accept or Reject.
        call: u64,
        /// The caller's name in the policy of its agent.
        application: String,
        /// The number of its host; none: this one.
        host: Option<u32>,
        /// What the caller gave.
        card: String,
    },
    /// To a Call.
    Accepted {
        /// What the service gave.
        card: String,
    },
    /// To AllocPd.
    Pd {
        /// Its number.
        pd: u32,
    },
    /// To Chunk. Comes with its descriptor.
    Chunk {
        /// Its number.
        chunk: u32,
        /// Its length.
        bytes: u64,
    },
    /// To Bind: requests that are under way name some of these bytes.
    Busy,
    /// To Register and Bind.
    Region {
        /// Key of local elements.
        lkey: u32,
        /// Key for peers.
        rkey: u32,
        /// Address of the first byte, for both.
        addr: u64,
    },
    /// To CreateAh.
    Ah {
        /// Its number.
        ah: u32,
    },
    /// To CreateQp.
    Created {
        /// Its number, by which the application names it: small, and given out again.
        queue_pair: u32,
        /// As [`Endpoint`] prints it.
        endpoint: String,
    },
    /// To Modify.
    Qp {
        /// As [`Endpoint`] prints it.
        endpoint: String,
    },
    /// Done.
    Done,
    /// Not done.
    Refused {
        /// Why, for people.
        reason: String,
    },
}

/// What the device below the agent can do, as far as applications get it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Address of its port, as [`Gid`] prints it.
    pub gid: String,
    /// Where there are packets.
    pub net: Option<Net>,
    /// As in [`Caps`].
    pub max_send_wr: u32,
    /// As in [`Caps`].
    pub max_recv_wr: u32,
    /// As in [`Caps`].
    pub max_message_bytes: u64,
    /// As in [`Caps`].
    pub max_rd_atomic: u32,
    /// As in [`Caps`].
    pub atomics: bool,
    /// As in [`Caps`].
    pub data_in_order: bool,
    /// As in [`Caps`].
    pub writes_in_order: bool,
    /// It has UD, and this application may use it.
    pub datagrams: bool,
    /// Bits of [`Access`](catchment_verbs::Access) that slices of memory chunks may have; none where there are no slices.
    pub slices: Option<u32>,
}

impl Device {
    /// Describes a device for applications, without slices and datagrams.
    #[must_use]
    pub fn new(caps: &Caps, gid: Gid, net: Option<NetEnd>, most: u32) -> Self {
        Self {
            slices: None,
            datagrams: false,
            gid: gid.to_string(),
            net: net.map(net_of),
            max_send_wr: most,
            max_recv_wr: caps.max_recv_wr.min(most),
            max_message_bytes: caps.max_message_bytes,
            max_rd_atomic: caps.max_rd_atomic,
            atomics: caps.atomics,
            // A message in chunks ends with its last word only where chunks stay in order.
            data_in_order: caps.data_in_order && caps.writes_in_order,
            writes_in_order: caps.writes_in_order,
        }
    }

    /// Returns what applications can do.
    #[must_use]
    pub fn caps(&self) -> Caps {
        Caps {
            services: if self.datagrams { Services::RC | Services::UD } else { Services::RC },
            max_send_wr: self.max_send_wr,
            max_recv_wr: self.max_recv_wr,
            max_sge: crate::entry::MAX_SGES as u32,
            max_inline_bytes: crate::entry::MAX_INLINE_BYTES as u32,
            max_cqe: 1 << 20,
            max_message_bytes: self.max_message_bytes,
            max_rd_atomic: self.max_rd_atomic,
            path_mtu: self.net.map(|(_, mtu, _)| mtu),
            atomics: self.atomics,
            send_invalidate: false,
            remote_invalidate: false,
            data_in_order: self.data_in_order,
            writes_in_order: self.writes_in_order,
            direct: false,
            doorbell: false,
            rate: None,
            strict_capacity: true,
        }
    }
}

/// Sends one message. Never waits.
///
/// # Errors
/// Those of sendmsg(2); a message that is too long.
pub fn send<T: Serialize>(
    fd: BorrowedFd<'_>,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    seqpacket::send(fd, &serde_json::to_vec(message)?, descriptors)
}

/// Sends one of several messages, once those before have left room for it.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] at the deadline, and those of [`send`].
pub fn send_in_turn<T: Serialize>(
    fd: BorrowedFd<'_>,
    message: &T,
    deadline: Instant,
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    loop {
        match seqpacket::send(fd, &bytes, &[]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            sent => return sent,
        }
        if !event::wait_writable(fd, deadline)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

/// Waits for a message of at most `most` bytes until the deadline; `None` if the other side is gone.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`], [`io::ErrorKind::InvalidData`] for bytes that are no message, and those of
/// recvmsg(2).
pub fn receive<T: for<'a> Deserialize<'a>>(
    fd: BorrowedFd<'_>,
    most: usize,
    deadline: Instant,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    if !event::wait_readable(fd, deadline)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut bytes = vec![0; most];
    let Some((len, descriptors)) = seqpacket::recv(fd, &mut bytes)? else { return Ok(None) };
    let message = serde_json::from_slice(&bytes[..len])
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Some((message, descriptors)))
}

/// Returns the address at which an agent of this name listens.
///
/// # Errors
/// When the name is too long.
pub fn address(agent: &str) -> io::Result<seqpacket::SocketAddrUnix> {
    seqpacket::abstract_address(&socket_name(agent))
}

/// Returns the abstract name of the socket of an agent of this name.
#[must_use]
pub fn socket_name(agent: &str) -> String {
    format!("catchment-agent-{agent}")
}

/// Returns the endpoint of a reply.
#[must_use]
pub fn endpoint(text: &str) -> Option<Endpoint> {
    text.parse().ok()
}
