//! One end of a connection over our verbs: a program that does what it is told, line by line.
//!
//! It opens a device of any provider, so the ends of a case can run over different ones, on
//! different hosts. [`server`] is the program, [`client`] tells it what to do. An order is a line of
//! JSON on its stdin, an answer one on its stdout.

pub mod client;
mod measure;
pub mod server;

use serde::{Deserialize, Serialize};

/// Bytes of registered memory at an end.
pub const MEMORY_BYTES: usize = 4 << 20;

/// What an end can be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Make a queue pair and register memory; what was made before ends. Answered by a card.
    Make(Kind),
    /// Wait for an asynchronous event, and say what it is.
    Event,
    /// Say how many nanoseconds a thread takes to wake another one that sleeps.
    WakeUp,
    /// Do this with what was made.
    Do(Task),
}

/// What a queue pair and its memory are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A reliable connection.
    Connection,
    /// The same, and the peer may invalidate the memory's key.
    Invalidable,
    /// Datagrams with this Q_Key; ready at once.
    Datagrams(u32),
}

/// What an end can be told to do with its queue pair and its memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Connect to this endpoint, and send again so often without answer, or without receive.
    Connect {
        /// As [`catchment_verbs::Endpoint`] is written.
        endpoint: String,
        /// As in [`catchment_verbs::RtsAttr`].
        retry_cnt: u8,
        /// As in [`catchment_verbs::RtsAttr`].
        rnr_retry: u8,
    },
    /// Fill the memory at `offset` with bytes that depend on `seed`.
    Fill {
        /// First byte.
        offset: usize,
        /// How many.
        bytes: usize,
        /// Which.
        seed: u64,
    },
    /// Say whether these bytes are there.
    See {
        /// First byte.
        offset: usize,
        /// How many.
        bytes: usize,
        /// Which.
        seed: u64,
    },
    /// Say which number of eight bytes stands there.
    Number {
        /// First byte.
        offset: usize,
    },
    /// Post requests, all at once.
    Send(Vec<Request>),
    /// Send a datagram, and wait until the device is done with it.
    SendTo(Datagram),
    /// Say which address the datagram came from whose network header stands at `offset`.
    Source {
        /// First byte.
        offset: usize,
    },
    /// Post a receive.
    Receive {
        /// Comes back in the completion.
        wr_id: u64,
        /// First byte.
        offset: usize,
        /// How many.
        bytes: usize,
    },
    /// Wait for completions.
    Wait {
        /// Of receives, not of requests.
        receives: bool,
        /// How many.
        count: usize,
    },
    /// Post WRITEs of so many bytes to this place and behind it, and say how that went.
    Stream {
        /// As much memory as an end has.
        place: Place,
        /// How many bytes each.
        bytes: usize,
        /// How many at once.
        outstanding: u64,
        /// How long.
        millis: u64,
    },
    /// WRITE 64 bytes to this place when the peer has written here, or, if this end `asks`, before;
    /// then say what a WRITE took.
    PingPong {
        /// Where the peer looks.
        place: Place,
        /// How often.
        rounds: u64,
        /// This end begins.
        asks: bool,
    },
    /// Say in which state the queue pair is.
    State,
    /// Deregister the memory.
    Revoke,
    /// Destroy the queue pair.
    Leave,
}

/// What an end answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It is done.
    Done,
    /// What the peer must know.
    Card(Card),
    /// Completions in their order.
    Completions(Vec<Completed>),
    /// Words for a person, or the name of something.
    Text(String),
    /// A number.
    Number(u64),
    /// What a stream was.
    Measured(Measured),
    /// What small WRITEs took.
    Trips(Trips),
    /// It cannot be done, for this reason.
    Refused(String),
}

/// What a peer must know to reach an end and its memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// As [`catchment_verbs::Endpoint`] is written.
    pub endpoint: String,
    /// Address of the memory.
    pub addr: u64,
    /// Key of the memory.
    pub rkey: u32,
}

/// What a stream of WRITEs moved and cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Payload that is acknowledged.
    pub bytes: u64,
    /// From the first request to the last completion.
    pub wall_ns: u64,
    /// What all processors of the machine worked in this time, whatever for.
    pub busy_ns: u64,
}

/// What WRITEs to and fro took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trips {
    /// One of them, the median; 0 at the end that answers.
    pub write_ns: u64,
    /// How often the threads of this end gave a processor away, for all of them.
    pub switches: u64,
}

/// A request for the send queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub work: Work,
    /// First byte of the local memory.
    pub offset: usize,
    /// How many.
    pub bytes: usize,
    /// Make a completion when it succeeds.
    pub signaled: bool,
}

/// A datagram of this end's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Datagram {
    /// The peer, as [`catchment_verbs::Endpoint`] is written.
    pub endpoint: String,
    /// The Q_Key that it carries.
    pub qkey: u32,
    /// First byte.
    pub offset: usize,
    /// How many.
    pub bytes: usize,
    /// Immediate data.
    pub imm: Option<u32>,
}

/// A place in the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Its address.
    pub addr: u64,
    /// The key.
    pub rkey: u32,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// RDMA WRITE.
    Write(Place),
    /// RDMA WRITE with this immediate data.
    WriteImm(Place, u32),
    /// RDMA READ.
    Read(Place),
    /// SEND.
    Send,
    /// SEND with this immediate data.
    SendImm(u32),
    /// SEND that takes this key away from the peers of its owner.
    SendInvalidate(u32),
    /// Puts the second number there if the first is there.
    CompareSwap(Place, u64, u64),
    /// Adds.
    FetchAdd(Place, u64),
}

/// A completion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completed {
    /// Of the request.
    pub wr_id: u64,
    /// The name of its status; `Success` if it has done its work.
    pub status: String,
    /// The reason as a user reads it; empty after a success.
    pub reason: String,
    /// Bytes moved, after a success.
    pub bytes: u64,
    /// Immediate data.
    pub imm: Option<u32>,
    /// The key that the peer has invalidated.
    pub invalidated: Option<u32>,
    /// The queue pair that a datagram came from.
    pub source_qpn: Option<u32>,
}
