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
    derive_more::Display,
)]
#[display("{}", self.name())]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mechanism {
    SbPaper,
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
    Tcp,
    TcpBlocking,
    Iceoryx2,
    Ucx,
    Iperf3,
}

/// What a mechanism is: one of `catchment-mechanisms`, or of another project.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Verbs(Protocol),
    Peer(What),
}

/// Name in a scenario, text of a legend, and kind, in the order of [`Mechanism`].
const MECHANISMS: [(&str, &str, Kind); 15] = [
    ("sb-paper", "status byte, paper", Kind::Verbs(Protocol::SbPaper)),
    ("sb", "status byte, product", Kind::Verbs(Protocol::Sb)),
    ("sb-in-place", "status byte, in place", Kind::Verbs(Protocol::SbInPlace)),
    ("sw-paper", "window, paper", Kind::Verbs(Protocol::SwPaper)),
    ("sw-paper-inline", "window, paper, no ACK thread", Kind::Verbs(Protocol::SwPaper)),
    ("sw-fair", "window, fair", Kind::Verbs(Protocol::SwFair)),
    ("sw-sack", "window, fair, SACK", Kind::Verbs(Protocol::SwSack)),
    ("sw-fair-tail", "window, fair, tail", Kind::Verbs(Protocol::SwFairTail)),
    ("sw-fair-tail-in-place", "window, fair, in place", Kind::Verbs(Protocol::SwFairTailInPlace)),
    ("rendezvous", "rendezvous", Kind::Verbs(Protocol::Rendezvous)),
    ("tcp", "TCP, polling", Kind::Peer(What::Tcp)),
    ("tcp-blocking", "TCP, blocking", Kind::Peer(What::TcpBlocking)),
    ("iceoryx2", "iceoryx2", Kind::Peer(What::Iceoryx2Credit)),
    ("ucx", "UCX, put", Kind::Peer(What::Ucx)),
    ("iperf3", "iperf3", Kind::Peer(What::Iperf3)),
];

impl Mechanism {
    fn entry(self) -> (&'static str, &'static str, Kind) {
        MECHANISMS[self as usize]
    }

    pub(crate) fn name(self) -> &'static str {
        self.entry().0
    }

    pub(crate) fn label(self) -> &'static str {
        self.entry().1
    }

    /// What it is where it is no mechanism of the transfer crate.
    pub(crate) fn peer(self) -> Option<What> {
        match self.entry().2 {
            Kind::Peer(what) => Some(what),
            Kind::Verbs(_) => None,
        }
    }

    /// Returns whether the thread that the mechanism asks for is given to it.
    pub(crate) fn has_helper(self) -> bool {
        self == Self::SwPaper
    }

    /// Returns whether a block that is kept keeps those after it.
    pub(crate) fn gives_back_in_order(self) -> bool {
        let any_order = [Self::SbPaper, Self::Sb, Self::SbInPlace, Self::SwSack, Self::Rendezvous];
        !any_order.contains(&self)
    }

    pub(crate) fn with<T, V: Visit<Out = Result<T>>>(self, shape: Shape, visit: V) -> Result<T> {
        match self.entry().2 {
            Kind::Verbs(protocol) => protocol.with(shape, visit),
            Kind::Peer(_) => bail!("{self} does not move blocks over verbs"),
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
    /// A device in virtual time.
    Sim,
}

impl Provider {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Roce => "roce",
            Self::Sim => "sim",
        }
    }
}

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
    Tcp,
    TcpBlocking,
    Unix,
    Ucx,
    /// As `ours-copy`, status bytes read ahead: when half of the blocks are left.
    StatusReadPrefetched,
    /// As `ours-copy`, status bytes read when no block is left.
    StatusReadWhenEmpty,
    /// The paper's mechanism: one request at a time, blocks on a READ of all status bytes.
    Paper,
    /// iperf3: one TCP stream over loopback, which measures itself.
    #[value(skip)]
    Iperf3,
    /// A mechanism of the transfer crate, by its common interface.
    #[value(skip)]
    Mechanism(Mechanism, Provider),
}

impl What {
    pub(crate) fn name(self) -> String {
        match (self, serde_json::to_value(self)) {
            (Self::Mechanism(mechanism, _), _) => mechanism.name().to_owned(),
            (_, Ok(serde_json::Value::String(name))) => name,
            _ => format!("{self:?}"),
        }
    }

    /// What moves the bytes: a provider of verbs, or what stands in its place.
    pub(crate) fn provider(self) -> &'static str {
        match self {
            Self::CacheLine | Self::Memcpy => "none",
            Self::OursCopy
            | Self::OursInPlace
            | Self::StatusReadPrefetched
            | Self::StatusReadWhenEmpty
            | Self::Paper => "shm",
            Self::Iceoryx2 | Self::Iceoryx2Credit => "iceoryx2",
            Self::Tcp | Self::TcpBlocking | Self::Unix => "kernel",
            Self::Ucx => "ucx",
            Self::Iperf3 => "own",
            Self::Mechanism(_, provider) => provider.name(),
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
        !matches!(self, Self::TcpBlocking | Self::Unix)
    }

    /// Returns whether it is a program of others that measures itself.
    pub(crate) fn is_program(self) -> bool {
        matches!(self, Self::Ucx | Self::Iperf3)
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
