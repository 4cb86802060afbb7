//! What is measured, by name: mechanisms over verbs, the floors, and other projects.
use anyhow::{Context as _, Result};
pub(crate) use catchment_mechanisms::Visit;
use catchment_mechanisms::{Protocol, Shape};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A protocol that moves blocks over verbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mechanism {
    /// Status bytes as in the paper.
    SbPaper,
    /// Status bytes as this library has them, data written from the source's own memory.
    Sb,
    /// The same, the collector's memory filled in place.
    SbInPlace,
    /// The paper's sliding window; a thread of its own takes acknowledgements.
    SwPaper,
    /// The same; whoever claims a block takes acknowledgements.
    SwPaperInline,
    /// A sliding window as fair as verbs allow.
    SwFair,
    /// The same with a bit for each block, so that blocks come back in any order.
    SwSack,
    /// The fair window without completions at the receiver: the end of a block announces it.
    SwFairTail,
    /// The same, the collector's memory filled in place.
    SwFairTailInPlace,
    /// Address, data, completion: three messages for each block.
    Rendezvous,
    /// TCP, busy polling, without Nagle's delay.
    Tcp,
    /// TCP, blocking calls, without Nagle's delay.
    TcpBlocking,
    /// iceoryx2, a queue that is full waits.
    Iceoryx2,
    /// Zenoh over TCP.
    ZenohTcp,
    /// Zenoh by its shared memory.
    ZenohShm,
    /// Aeron over its shared log buffers.
    Aeron,
    /// UCX, its own program.
    Ucx,
    /// iperf3, its own program.
    Iperf3,
    /// libfabric over TCP, its own program.
    LibfabricTcp,
    /// libfabric over shared memory, its own program.
    LibfabricShm,
}

impl Mechanism {
    /// As in a scenario.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mechanism::SbPaper => "sb-paper",
            Mechanism::Sb => "sb",
            Mechanism::SbInPlace => "sb-in-place",
            Mechanism::SwPaper => "sw-paper",
            Mechanism::SwPaperInline => "sw-paper-inline",
            Mechanism::SwFair => "sw-fair",
            Mechanism::SwSack => "sw-sack",
            Mechanism::SwFairTail => "sw-fair-tail",
            Mechanism::SwFairTailInPlace => "sw-fair-tail-in-place",
            Mechanism::Rendezvous => "rendezvous",
            Mechanism::Tcp => "tcp",
            Mechanism::TcpBlocking => "tcp-blocking",
            Mechanism::Iceoryx2 => "iceoryx2",
            Mechanism::ZenohTcp => "zenoh-tcp",
            Mechanism::ZenohShm => "zenoh-shm",
            Mechanism::Aeron => "aeron",
            Mechanism::Ucx => "ucx",
            Mechanism::Iperf3 => "iperf3",
            Mechanism::LibfabricTcp => "libfabric-tcp",
            Mechanism::LibfabricShm => "libfabric-shm",
        }
    }

    /// For a legend.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Mechanism::SbPaper => "status byte, paper",
            Mechanism::Sb => "status byte, product",
            Mechanism::SbInPlace => "status byte, in place",
            Mechanism::SwPaper => "window, paper",
            Mechanism::SwPaperInline => "window, paper, no ACK thread",
            Mechanism::SwFair => "window, fair",
            Mechanism::SwSack => "window, fair, SACK",
            Mechanism::SwFairTail => "window, fair, tail",
            Mechanism::SwFairTailInPlace => "window, fair, in place",
            Mechanism::Rendezvous => "rendezvous",
            Mechanism::Tcp => "TCP, polling",
            Mechanism::TcpBlocking => "TCP, blocking",
            Mechanism::Iceoryx2 => "iceoryx2",
            Mechanism::ZenohTcp => "Zenoh, TCP",
            Mechanism::ZenohShm => "Zenoh, shm",
            Mechanism::Aeron => "Aeron, IPC",
            Mechanism::Ucx => "UCX, put",
            Mechanism::Iperf3 => "iperf3",
            Mechanism::LibfabricTcp => "libfabric, TCP",
            Mechanism::LibfabricShm => "libfabric, shm",
        }
    }

    /// What it is where it is no mechanism of the transfer crate.
    pub(crate) fn peer(self) -> Option<What> {
        match self {
            Mechanism::Tcp => Some(What::Tcp),
            Mechanism::TcpBlocking => Some(What::TcpBlocking),
            Mechanism::Iceoryx2 => Some(What::Iceoryx2Credit),
            Mechanism::ZenohTcp => Some(What::ZenohTcp),
            Mechanism::ZenohShm => Some(What::ZenohShm),
            Mechanism::Aeron => Some(What::Aeron),
            Mechanism::Ucx => Some(What::Ucx),
            Mechanism::Iperf3 => Some(What::Program(External::Iperf3)),
            Mechanism::LibfabricTcp => Some(What::Program(External::LibfabricTcp)),
            Mechanism::LibfabricShm => Some(What::Program(External::LibfabricShm)),
            Mechanism::SbPaper
            | Mechanism::Sb
            | Mechanism::SbInPlace
            | Mechanism::SwPaper
            | Mechanism::SwPaperInline
            | Mechanism::SwFair
            | Mechanism::SwSack
            | Mechanism::SwFairTail
            | Mechanism::SwFairTailInPlace
            | Mechanism::Rendezvous => None,
        }
    }

    /// Whether the thread that the mechanism asks for is given to it.
    pub(crate) fn has_helper(self) -> bool {
        self == Mechanism::SwPaper
    }

    /// What it is in the transfer crate's catalog.
    fn protocol(self) -> Option<Protocol> {
        match self {
            Mechanism::SbPaper => Some(Protocol::SbPaper),
            Mechanism::Sb => Some(Protocol::Sb),
            Mechanism::SbInPlace => Some(Protocol::SbInPlace),
            Mechanism::SwPaper | Mechanism::SwPaperInline => Some(Protocol::SwPaper),
            Mechanism::SwFair => Some(Protocol::SwFair),
            Mechanism::SwSack => Some(Protocol::SwSack),
            Mechanism::SwFairTail => Some(Protocol::SwFairTail),
            Mechanism::SwFairTailInPlace => Some(Protocol::SwFairTailInPlace),
            Mechanism::Rendezvous => Some(Protocol::Rendezvous),
            Mechanism::Tcp
            | Mechanism::TcpBlocking
            | Mechanism::Iceoryx2
            | Mechanism::ZenohTcp
            | Mechanism::ZenohShm
            | Mechanism::Aeron
            | Mechanism::Ucx
            | Mechanism::LibfabricTcp
            | Mechanism::LibfabricShm
            | Mechanism::Iperf3 => None,
        }
    }

    /// Does something with the mechanism in this shape.
    ///
    /// # Errors
    /// For one that is no mechanism of the transfer crate; whatever is done with it.
    pub(crate) fn with<T, V: Visit<Out = Result<T>>>(self, shape: Shape, visit: V) -> Result<T> {
        let protocol = self.protocol();
        let protocol = protocol.with_context(|| format!("{self} does not move blocks over verbs"));
        protocol?.with(shape, visit)
    }
}

/// What moves the bytes.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Provider {
    /// Memory of one host.
    Shm,
    /// Software RoCE over UDP, between two network namespaces.
    Roce,
    /// A device in virtual time.
    Sim,
}

impl Provider {
    /// As in a scenario.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Provider::Shm => "shm",
            Provider::Roce => "roce",
            Provider::Sim => "sim",
        }
    }
}

/// A mechanism that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum What {
    /// Two processes hand one cache line to and fro: the floor of every latency.
    CacheLine,
    /// memcpy(3) of the same blocks in one process, without telling anybody.
    Memcpy,
    /// Catchment, data WRITE from the source's own registered block.
    OursCopy,
    /// Catchment, the collector's block filled in place.
    OursInPlace,
    /// iceoryx2 publish-subscribe; a full queue waits as iceoryx2 does (RetryUntilDelivered).
    Iceoryx2,
    /// iceoryx2 publish-subscribe; a shared counter tells the source when there is room.
    Iceoryx2Credit,
    /// TCP over loopback, busy polling.
    Tcp,
    /// TCP over loopback, blocking calls.
    TcpBlocking,
    /// A unix stream socket, blocking calls.
    Unix,
    /// Zenoh publish-subscribe over TCP.
    ZenohTcp,
    /// Zenoh publish-subscribe by its shared memory.
    ZenohShm,
    /// Aeron over its shared log buffers.
    Aeron,
    /// `ucx_perftest` over shared memory.
    Ucx,
    /// As `ours-copy`, status bytes read ahead: when half of the blocks are left.
    StatusReadPrefetched,
    /// As `ours-copy`, status bytes read when no block is left.
    StatusReadWhenEmpty,
    /// The paper's mechanism: one request at a time, blocks on a READ of all status bytes.
    Paper,
    /// A program of others that measures itself.
    #[value(skip)]
    Program(External),
    /// A mechanism of the transfer crate, by its common interface.
    #[value(skip)]
    Mechanism(Mechanism, Provider),
}

impl What {
    /// The name in the output.
    pub(crate) fn name(self) -> String {
        match (self, serde_json::to_value(self)) {
            (What::Mechanism(mechanism, _), _) => mechanism.name().to_owned(),
            (_, Ok(serde_json::Value::String(name))) => name,
            _ => format!("{self:?}"),
        }
    }

    /// What moves the bytes: a provider of verbs, or what stands in its place.
    pub(crate) fn provider(self) -> &'static str {
        match self {
            What::CacheLine | What::Memcpy => "none",
            What::OursCopy
            | What::OursInPlace
            | What::StatusReadPrefetched
            | What::StatusReadWhenEmpty
            | What::Paper => "shm",
            What::Iceoryx2 | What::Iceoryx2Credit => "iceoryx2",
            What::ZenohTcp | What::ZenohShm => "zenoh",
            What::Aeron => "aeron",
            What::Tcp | What::TcpBlocking | What::Unix => "kernel",
            What::Ucx => "ucx",
            What::Program(_) => "own",
            What::Mechanism(_, provider) => provider.name(),
        }
    }

    /// Whether there is a collector process.
    pub(crate) fn has_collector(self) -> bool {
        self != What::Memcpy
    }

    /// Whether it moves blocks, and not only a number.
    pub(crate) fn has_payload(self) -> bool {
        self != What::CacheLine
    }

    /// Whether waiting is busy polling, so that a role should have a whole core.
    pub(crate) fn polls(self) -> bool {
        !matches!(self, What::TcpBlocking | What::Unix) && !self.has_threads()
    }

    /// Whether it is a program of others that measures itself.
    pub(crate) fn is_program(self) -> bool {
        matches!(self, What::Ucx | What::Program(_))
    }

    /// Whether others' threads do a part of the work on the cores of the roles: they would starve
    /// beside a role that polls, or that has real-time priority.
    pub(crate) fn has_threads(self) -> bool {
        matches!(self, What::ZenohTcp | What::ZenohShm)
    }
}

/// A program of others, with the two sides bound to the cores of the roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum External {
    /// iperf3: one TCP stream over loopback.
    Iperf3,
    /// `fi_pingpong` of libfabric over TCP.
    LibfabricTcp,
    /// The same over shared memory.
    LibfabricShm,
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
