//! The mechanisms of the transfer crate by name.
use crate::job::{External, What};
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
