//! What who keeps the sessions asks of the rest of the agent.
use super::message::{RemoteRegion, Slots};
use super::slot_qp::SlotQp;
use crate::inband::Numbers;

/// A queue pair of an application of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Local {
    pub(crate) key: u64,
    pub(crate) queue_pair: u32,
    /// At the device: the other number is given out again.
    pub(crate) qpn: u32,
    /// Another one each time that it is connected: what was said of the last time is of no meaning any more.
    pub(crate) life: u64,
}

/// What is to be done with queue pairs of the device, which takes a while.
pub(crate) enum Make {
    /// An end of a shared one, of a host and a number, to be offered.
    Offer(u32, u32),
    /// An end that is connected with the one offered.
    Accept(u32, u32, String),
    /// Connects the end that was offered, and uses it.
    Finish(u32, u32, String),
    /// Uses the end that was accepted.
    Use(u32, u32),
    /// Ends it.
    Forget(u32, u32),
    /// Lets the queue pair of its own, of a connection, receive.
    Receive(Local),
    /// Lets it send.
    Send(Local),
    /// Slots for a host, under a number, and a queue pair for them.
    OpenSlots(u32, u32),
    /// Connects them with what the host announced.
    ConnectSlots(u32, u32, Slots),
    /// Ends them, where they are not in use.
    ForgetSlots(u32, u32),
    /// Ends those that were in use.
    EndSlots(SlotQp),
}

/// What became of slots, of a host and a number.
pub(crate) enum SlotNews {
    /// They are made; nothing if the device does not tell of what is written.
    Made(u32, u32, Option<Slots>),
    /// They are connected.
    Connected(u32, u32, SlotQp),
    /// They are not.
    Failed(u32, u32),
    /// All are to fail. For tests.
    Break,
}

/// The rate of an application.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rate {
    pub(crate) key: u64,
    pub(crate) bytes_per_s: f64,
    /// The first of those that send to the same hosts: one may have there what another leaves.
    pub(crate) pool: u64,
}

/// What the engine is told.
pub(crate) enum Verdict {
    /// A connection stops sharing, as its peer does.
    Part(Local),
    /// The peer of a connection does not share queue pairs with it.
    NotShared(Local),
    /// Both do not share any more: its receives are of its own from now on.
    Release(Local),
    /// A peer asks for a region by the key that an application gave it.
    KeyAsked { at: Local, host: u32, rkey: u32 },
    /// What a key of a peer gives.
    Key { at: Local, rkey: u32, region: Option<RemoteRegion> },
    /// A region of a host ends.
    Revoke { host: u32, rkey: u32 },
    /// The other end of a shared queue pair is gone.
    SharedQpLost(u32, u32),
    /// Both ends of one are gone: another may take its place.
    SharedQpFree(u32, u32),
    /// No shared queue pair with a host can be made.
    NoSharedQp(u32),
    /// A host is gone, or has another life.
    SharedQpsGone(u32),
    /// The rate of each application.
    Rates(Vec<Rate>),
    /// A queue pair leads to a host that is gone.
    Fail(u64, u32),
    /// What data carry from now on, once each.
    Carry(Vec<Carry>),
}

/// What the next message of a connection carries.
pub(crate) struct Carry {
    /// The engine's number of the application.
    pub(crate) key: u64,
    pub(crate) queue_pair: u32,
    pub(crate) numbers: Numbers,
}
