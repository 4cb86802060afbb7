//! What the agent can be asked, with the names that `guest/agent.py` has for it.

use super::Handle;
use serde::Serialize;

/// Access rights of memory and of queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// The owner's device may write, as receives do.
    LocalWrite,
    /// Peers may write.
    RemoteWrite,
    /// Peers may read.
    RemoteRead,
    /// Peers may do atomic operations.
    RemoteAtomic,
    /// Windows may be bound to it.
    MwBind,
}

impl Access {
    /// Every right that a peer can have.
    pub const ALL: &'static [Self] = &[
        Self::LocalWrite,
        Self::RemoteWrite,
        Self::RemoteRead,
        Self::RemoteAtomic,
        Self::MwBind,
    ];
}

/// Transport services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
}

/// Operations of the send queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Opcode {
    /// SEND.
    Send,
    /// SEND with immediate data.
    SendImm,
    /// SEND that invalidates the key in `rkey` at the peer.
    SendInv,
    /// RDMA WRITE.
    #[default]
    Write,
    /// RDMA WRITE with immediate data.
    WriteImm,
    /// RDMA READ.
    Read,
    /// Compare and swap of 8 bytes.
    CompareSwap,
    /// Fetch and add of 8 bytes.
    FetchAdd,
}

/// How a queue pair of the guest is connected.
#[derive(Clone, Debug, Serialize)]
pub struct Connect<'a> {
    /// The queue pair.
    pub qp: Handle,
    /// The guest's GID, written as an IPv6 address.
    pub local: &'a str,
    /// The peer's GID.
    pub remote: &'a str,
    /// The peer's queue pair number.
    pub qpn: u32,
    /// The first PSN that the peer sends.
    pub rq_psn: u32,
    /// The first PSN that the guest sends.
    pub sq_psn: u32,
    /// Path MTU in bytes.
    pub path_mtu: u32,
    /// What the peer may do.
    pub access: &'a [Access],
    /// Local ACK timeout as coded by the standard: 4.096 µs times 2 to this power.
    pub timeout: u8,
    /// Retries after a timeout or a NAK.
    pub retry_cnt: u8,
    /// Retries after an RNR NAK; 7 stands for no end.
    pub rnr_retry: u8,
    /// The code of the pause that the guest's RNR NAKs ask for.
    pub min_rnr_timer: u8,
    /// READs and atomics in flight, either way.
    pub rd_atomic: u8,
}

/// A work request of the guest's send queue.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Send {
    /// What to do.
    pub opcode: Opcode,
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Local memory.
    pub mr: Handle,
    /// Start in the local memory, in bytes.
    pub offset: usize,
    /// Bytes.
    pub length: usize,
    /// Where at the peer, for one-sided operations.
    pub remote_addr: u64,
    /// The key of the peer's memory.
    pub rkey: u32,
    /// Immediate data as pyverbs takes it.
    pub imm: u32,
    /// What is compared (compare and swap) or added (fetch and add).
    pub first: u64,
    /// What is swapped in.
    pub second: u64,
    /// Whether success makes a completion.
    pub signaled: bool,
    /// Whether it waits for READs and atomics before it.
    pub fence: bool,
}

impl Send {
    /// A signaled request that names no remote memory.
    #[must_use]
    pub fn new(opcode: Opcode, mr: Handle, offset: usize, length: usize) -> Self {
        Self {
            opcode,
            wr_id: 0,
            mr,
            offset,
            length,
            remote_addr: 0,
            rkey: 0,
            imm: 0,
            first: 0,
            second: 0,
            signaled: true,
            fence: false,
        }
    }
}

/// A request, named by `op`.
#[derive(Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(super) enum Request<'a> {
    Hello,
    MakePd,
    MakeCq {
        entries: u32,
    },
    MakeMr {
        pd: Handle,
        bytes: usize,
        access: &'a [Access],
    },
    MakeQp {
        pd: Handle,
        cq: Handle,
        transport: Transport,
        send_wr: u32,
        recv_wr: u32,
    },
    BindWindow {
        pd: Handle,
        cq: Handle,
        qp: Handle,
        mr: Handle,
        offset: usize,
        length: usize,
        access: &'a [Access],
    },
    Connect(&'a Connect<'a>),
    State {
        qp: Handle,
    },
    PostRecv {
        qp: Handle,
        mr: Handle,
        offset: usize,
        length: usize,
        wr_id: u64,
    },
    PostSend {
        qp: Handle,
        requests: &'a [Send],
    },
    Poll {
        cq: Handle,
        count: usize,
        timeout_ms: u64,
    },
    WriteMemory {
        mr: Handle,
        offset: usize,
        data: String,
    },
    ReadMemory {
        mr: Handle,
        offset: usize,
        length: usize,
    },
    CrcMemory {
        mr: Handle,
        offset: usize,
        length: usize,
    },
    Counters,
    Impair {
        rules: &'a str,
        to_guest: &'a str,
        from_guest: &'a str,
    },
    Lost,
    Log,
    Destroy {
        objects: &'a [Handle],
    },
}
