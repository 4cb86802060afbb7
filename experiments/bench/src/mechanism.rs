//! What is measured, by name: mechanisms over verbs, the floors, and other projects.
use anyhow::{Result, bail};
pub(crate) use catchment_mechanisms::Visit;
use catchment_mechanisms::{Protocol, Shape};
use serde::{Deserialize, Serialize};

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
    derive_more::Display,
)]
#[display("{}", self.name())]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mechanism {
    /// Two processes hand one cache line to and fro: the floor of every latency.
    CacheLine,
    /// memcpy(3) of the same blocks in one process, without telling anybody.
    Memcpy,
    /// Catchment as its users have it, data WRITE from the source's own registered block.
    OursCopy,
    /// The same, the collector's block filled in place.
    OursInPlace,
    /// As `ours-copy`, status bytes read ahead: when half of the blocks are left.
    StatusReadPrefetched,
    /// As `ours-copy`, status bytes read when no block is left.
    StatusReadWhenEmpty,
    /// As `sb-paper`, its own copy being the only one.
    Paper,
    SbPaper,
    /// The same, the status bytes of both sides in an array each.
    SbPaperApart,
    /// The product's, blocks being filled by a copy.
    Sb,
    /// The same, each block with a CRC32C by which the receiver takes it.
    SbCrc,
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
    Tcp,
    TcpBlocking,
    Unix,
    /// Publish-subscribe; a full queue waits as iceoryx2 does (RetryUntilDelivered).
    Iceoryx2,
    /// The same; a shared counter tells the source when there is room.
    Iceoryx2Credit,
    Ucx,
    /// One TCP stream over loopback, which measures itself.
    Iperf3,
    /// The beam-diagnostics paper's client and server: three threads a side, asleep until an event.
    Duplex,
    /// TCP with as many threads and buffers.
    DuplexTcp,
    /// RoCE without a controller, strict priority at the bottleneck, simulated.
    Spq,
    /// RDMA-TCM as we read it.
    Tcm,
    /// P-RDMA-TCM as we read it.
    PTcm,
    /// The transmission controller as shipped, sources of 10 Gbit/s.
    Deadline,
    /// The same, sources of 20 Gbit/s.
    DeadlineFast,
    /// A queue pair and a completion queue for each connection, on a modelled NIC.
    Raw,
    /// Groups of five connections on one queue pair behind a lock, on a modelled NIC.
    Share,
    /// The agent's scheduler and shared queue pairs as they ship, on a modelled NIC.
    Drum,
    /// The distributed solver as shipped.
    Admm,
    /// Dual decomposition with the step of the DRUM paper.
    Subgradient,
    /// The same with the best step of a sweep.
    SubgradientBest,
}

/// What moves the bytes of a mechanism.
#[derive(Debug, Clone, Copy)]
enum By {
    /// A provider of verbs.
    Verbs(Protocol),
    /// Something of this name.
    Other(&'static str),
}

/// Name, text of a legend, and what moves the bytes, in the order of [`Mechanism`].
const MECHANISMS: [(&str, &str, By); 39] = [
    ("cache-line", "cache line", By::Other("none")),
    ("memcpy", "memcpy", By::Other("none")),
    ("ours-copy", "Catchment", By::Verbs(Protocol::Sb)),
    ("ours-in-place", "Catchment, in place", By::Verbs(Protocol::SbInPlace)),
    ("status-read-prefetched", "status read ahead", By::Verbs(Protocol::Sb)),
    ("status-read-when-empty", "status read when empty", By::Verbs(Protocol::Sb)),
    ("paper", "status byte, paper", By::Verbs(Protocol::SbPaper)),
    ("sb-paper", "status byte, paper", By::Verbs(Protocol::SbPaper)),
    ("sb-paper-apart", "status byte, paper, bytes apart", By::Verbs(Protocol::SbPaperApart)),
    ("sb", "status byte, product", By::Verbs(Protocol::Sb)),
    ("sb-crc", "status byte, product, CRC", By::Verbs(Protocol::SbCrc)),
    ("sb-in-place", "status byte, in place", By::Verbs(Protocol::SbInPlace)),
    ("sw-paper", "window, paper", By::Verbs(Protocol::SwPaper)),
    ("sw-paper-inline", "window, paper, no ACK thread", By::Verbs(Protocol::SwPaper)),
    ("sw-fair", "window, fair", By::Verbs(Protocol::SwFair)),
    ("sw-sack", "window, fair, SACK", By::Verbs(Protocol::SwSack)),
    ("sw-fair-tail", "window, fair, tail", By::Verbs(Protocol::SwFairTail)),
    ("sw-fair-tail-in-place", "window, fair, in place", By::Verbs(Protocol::SwFairTailInPlace)),
    ("rendezvous", "rendezvous", By::Verbs(Protocol::Rendezvous)),
    ("tcp", "TCP, polling", By::Other("kernel")),
    ("tcp-blocking", "TCP, blocking", By::Other("kernel")),
    ("unix", "unix socket", By::Other("kernel")),
    ("iceoryx2", "iceoryx2, own waiting", By::Other("iceoryx2")),
    ("iceoryx2-credit", "iceoryx2", By::Other("iceoryx2")),
    ("ucx", "UCX, put", By::Other("ucx")),
    ("iperf3", "iperf3", By::Other("own")),
    ("duplex", "duplex, three threads a side", By::Other("duplex")),
    ("duplex-tcp", "TCP, three threads a side", By::Other("duplex")),
    ("spq", "strict priority, no controller", By::Other("simulator")),
    ("tcm", "RDMA-TCM, our reading", By::Other("simulator")),
    ("p-tcm", "P-RDMA-TCM, our reading", By::Other("simulator")),
    ("deadline", "deadline, 10 Gbit/s", By::Other("simulator")),
    ("deadline-fast", "deadline, 20 Gbit/s", By::Other("simulator")),
    ("raw", "RAW", By::Other("simulator")),
    ("share", "SHARE", By::Other("simulator")),
    ("drum", "DRUM", By::Other("simulator")),
    ("admm", "ADMM", By::Other("solver")),
    ("subgradient", "sub-gradient, paper's step", By::Other("solver")),
    ("subgradient-best", "sub-gradient, best step", By::Other("solver")),
];

impl Mechanism {
    fn entry(self) -> (&'static str, &'static str, By) {
        MECHANISMS[self as usize]
    }

    pub(crate) fn name(self) -> &'static str {
        self.entry().0
    }

    pub(crate) fn label(self) -> &'static str {
        self.entry().1
    }

    /// Returns what moves the bytes where a provider of verbs would be this one.
    pub(crate) fn moved_by(self, provider: Provider) -> &'static str {
        match self.entry().2 {
            By::Verbs(_) => provider.name(),
            By::Other(name) => name,
        }
    }

    pub(crate) fn has_collector(self) -> bool {
        self != Self::Memcpy
    }

    /// Returns whether it moves blocks, and not only a number.
    pub(crate) fn has_payload(self) -> bool {
        self != Self::CacheLine
    }

    /// Returns whether waiting is busy polling, so that a role should have a whole core.
    pub(crate) fn polls(self) -> bool {
        !matches!(self, Self::TcpBlocking | Self::Unix | Self::Duplex | Self::DuplexTcp)
    }

    /// Returns whether it is a program of others that measures itself.
    pub(crate) fn is_program(self) -> bool {
        matches!(self, Self::Ucx | Self::Iperf3)
    }

    /// Returns whether the thread that the mechanism asks for is given to it.
    pub(crate) fn has_helper(self) -> bool {
        self == Self::SwPaper
    }

    /// Returns whether a block that is kept keeps those after it.
    pub(crate) fn gives_back_in_order(self) -> bool {
        let any_order = [
            Self::SbPaper,
            Self::SbPaperApart,
            Self::Sb,
            Self::SbCrc,
            Self::SbInPlace,
            Self::SwSack,
            Self::Rendezvous,
        ];
        !any_order.contains(&self)
    }

    pub(crate) fn with<T, V: Visit<Out = Result<T>>>(self, shape: Shape, visit: V) -> Result<T> {
        match self.entry().2 {
            By::Verbs(protocol) => protocol.with(shape, visit),
            By::Other(_) => bail!("{self} does not move blocks over verbs"),
        }
    }
}

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
    derive_more::Display,
)]
#[display("{}", self.name())]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Provider {
    Shm,
    Roce,
    /// The kernel's Soft-RoCE over libibverbs, in the guest of `cargo xtask lab`: functional evidence, no times.
    Rxe,
    /// A device in virtual time.
    Sim,
}

impl Provider {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Roce => "roce",
            Self::Rxe => "rxe",
            Self::Sim => "sim",
        }
    }

    /// Returns whether a role may have real-time priority: a device over a network has a thread on the core of its
    /// role, which would starve.
    pub(crate) fn allows_realtime(self) -> bool {
        self == Self::Shm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mechanism_has_the_entry_of_its_name() {
        for (place, (name, ..)) in MECHANISMS.into_iter().enumerate() {
            let mechanism: Mechanism = serde_json::from_value(name.into()).unwrap();
            assert_eq!((mechanism as usize, mechanism.name()), (place, name));
        }
    }
}
