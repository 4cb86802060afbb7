//! One end of a connection: a program that executes orders, line by line.
//!
//! An order is a line of JSON on its stdin, an answer a line on its stdout. Two programs execute them:
//! [`server`] with a device of any of our providers, and `guest/agent.py` with the kernel's through
//! pyverbs, which sets what our verbs leave to a provider. Cases use both through [`client`].
pub(crate) mod client;
pub(crate) mod server;

use anyhow::{Result, ensure};
use catchment_verbs::{RemoteAddr, SendOp, Success, WcStatus};
use serde::{Deserialize, Serialize};

pub(crate) const MEMORY_BYTES: usize = 4 << 20;

/// The answer to an order, or why it failed.
pub(crate) type Answer<T> = std::result::Result<T, String>;

/// Offsets and lengths are those of the memory that the last [`Order::Make`] registered. The answer is
/// empty where nothing else is documented.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Create a queue pair and register memory; destroy those created before. Returns a [`Card`].
    Make(Kind),
    /// Wait for an asynchronous event. Returns its text.
    Event,
    /// Connect to this endpoint; the counts are those of [`catchment_verbs::RtsAttr`].
    Connect {
        endpoint: String,
        retry_cnt: u8,
        rnr_retry: u8,
    },
    /// Move the queue pair to RTS with the options it was created with. Only in `agent.py`.
    ToRts {
        /// GIDs, written as IPv6 addresses.
        local: String,
        remote: String,
        qpn: u32,
    },
    /// Bind a memory window to the first bytes. Returns its rkey. Only in `agent.py`.
    BindWindow {
        bytes: usize,
    },
    /// Fill with bytes that depend on `seed`. Not in `agent.py`.
    Fill {
        offset: usize,
        bytes: usize,
        seed: u64,
    },
    /// Write bytes, given as hexadecimal digits.
    Put {
        offset: usize,
        hex: String,
    },
    /// Read bytes. Returns hexadecimal digits.
    Take {
        offset: usize,
        bytes: usize,
    },
    /// Returns the CRC-32 of the bytes, with the polynomial of zlib.
    Crc {
        offset: usize,
        bytes: usize,
    },
    Send(Vec<Request>),
    /// Send a datagram and wait for its completion.
    SendTo(Datagram),
    /// Returns the address of the sender in the network header at `offset`.
    Source {
        offset: usize,
    },
    Receive {
        wr_id: u64,
        offset: usize,
        bytes: usize,
    },
    /// Wait for completions, at most `limit_ms`. Returns those that arrived.
    Wait {
        /// Of receives, not of requests.
        receives: bool,
        count: usize,
        limit_ms: u64,
    },
    /// Returns the name of the queue pair's state.
    State,
    Revoke,
    Leave,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Connection,
    /// As above, where the peer may also invalidate the memory's rkey.
    Invalidable,
    /// Datagrams with this Q_Key; ready at once.
    Datagrams(u32),
    /// A queue pair that [`Order::ToRts`] connects. Only in `agent.py`.
    Kernel(Options),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Service {
    Rc,
    Uc,
}

/// Access rights, as libibverbs numbers them.
pub(crate) mod access {
    pub(crate) const LOCAL_WRITE: u32 = 1;
    pub(crate) const REMOTE_WRITE: u32 = 2;
    pub(crate) const REMOTE_READ: u32 = 4;
    pub(crate) const REMOTE_ATOMIC: u32 = 8;
    const MW_BIND: u32 = 16;
    pub(crate) const ALL: u32 = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | MW_BIND;
}

/// Attributes of the guest's queue pair and memory, encoded as in the IBTA specification.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Options {
    /// Rights of the peer, of [`access`].
    pub(crate) access: u32,
    /// Rights of the memory, of [`access`].
    pub(crate) memory_access: u32,
    pub(crate) service: Service,
    pub(crate) path_mtu: u32,
    /// The first PSN of the case.
    pub(crate) psn: u32,
    pub(crate) guest_psn: u32,
    /// The guest's ACK timeout, encoded.
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    /// The delay in the guest's RNR NAKs, encoded.
    pub(crate) min_rnr_timer: u8,
    pub(crate) memory_bytes: usize,
}

impl Options {
    /// Everything is allowed; timeouts are too long to matter.
    pub(crate) const DEFAULT: Self = Self {
        access: access::ALL,
        memory_access: access::ALL,
        service: Service::Rc,
        path_mtu: 1024,
        psn: 0x00a0_0000,
        guest_psn: 0x0050_0000,
        timeout: 20,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 12,
        memory_bytes: 64 << 10,
    };
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Card {
    /// As [`catchment_verbs::Endpoint`] is written; empty for [`Kind::Kernel`].
    pub(crate) endpoint: String,
    pub(crate) qpn: u32,
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) wr_id: u64,
    pub(crate) work: Work,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    pub(crate) signaled: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Datagram {
    pub(crate) endpoint: String,
    pub(crate) qkey: u32,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    pub(crate) imm: Option<u32>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Work {
    Write(Place),
    WriteImm(Place, u32),
    Read(Place),
    Send,
    SendImm(u32),
    SendInvalidate(u32),
    /// Compare with the first operand, swap in the second.
    CompareSwap(Place, u64, u64),
    FetchAdd(Place, u64),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Completed {
    pub(crate) wr_id: u64,
    /// The name of a [`catchment_verbs::WcStatus`], or `Success`, which the fields below need.
    pub(crate) status: String,
    /// Why it failed, as users read it; empty from `agent.py`.
    pub(crate) reason: String,
    /// The name of a [`catchment_verbs::WcOpcode`].
    pub(crate) opcode: String,
    pub(crate) bytes: u64,
    pub(crate) imm: Option<u32>,
    pub(crate) invalidated: Option<u32>,
    pub(crate) source_qpn: Option<u32>,
}

impl From<Place> for RemoteAddr {
    fn from(Place { addr, rkey }: Place) -> Self {
        Self { addr, rkey }
    }
}

impl From<Work> for SendOp {
    fn from(work: Work) -> Self {
        match work {
            Work::Write(at) => Self::Write(at.into()),
            Work::WriteImm(at, imm) => Self::WriteImm(at.into(), imm),
            Work::Read(at) => Self::Read(at.into()),
            Work::Send => Self::Send,
            Work::SendImm(imm) => Self::SendImm(imm),
            Work::SendInvalidate(rkey) => Self::SendInvalidate(rkey),
            Work::CompareSwap(at, compare, swap) => {
                Self::CompareSwap { remote: at.into(), compare, swap }
            }
            Work::FetchAdd(at, add) => Self::FetchAdd { remote: at.into(), add },
        }
    }
}

impl Completed {
    pub(crate) fn new(wr_id: u64, result: std::result::Result<Success, WcStatus>) -> Self {
        match result {
            Ok(success) => Self {
                wr_id,
                status: "Success".to_owned(),
                reason: String::new(),
                opcode: format!("{:?}", success.opcode),
                bytes: success.bytes,
                imm: success.imm,
                invalidated: success.invalidated_rkey(),
                source_qpn: success.source_qpn(),
            },
            Err(status) => Self {
                wr_id,
                status: format!("{status:?}"),
                reason: status.to_string(),
                ..Self::default()
            },
        }
    }

    pub(crate) fn with_status(self, status: &str) -> Result<Self> {
        let expected = self.status == status;
        ensure!(expected, "expected a completion with {status}, got {self:?}");
        Ok(self)
    }
}
