//! The mechanisms of the transfer crate by name.
use catchment_transfer::{
    mechanism::{self, Shape, StatusByte, Way},
    window::{
        fair::{Form, SwFair},
        paper::SwPaper,
    },
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A protocol that moves blocks over verbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mechanism {
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
}

/// Something to do with a mechanism, whichever it is.
pub(crate) trait Visit {
    type Out;
    fn visit<M>(self, mechanism: M) -> Self::Out
    where
        M: mechanism::Mechanism + Copy + Send + 'static,
        M::Sender: 'static,
        M::Receiver: 'static;
}

impl Mechanism {
    /// As in a scenario.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mechanism::Sb => "sb",
            Mechanism::SbInPlace => "sb-in-place",
            Mechanism::SwPaper => "sw-paper",
            Mechanism::SwPaperInline => "sw-paper-inline",
            Mechanism::SwFair => "sw-fair",
            Mechanism::SwSack => "sw-sack",
            Mechanism::SwFairTail => "sw-fair-tail",
            Mechanism::SwFairTailInPlace => "sw-fair-tail-in-place",
        }
    }

    /// For a legend.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Mechanism::Sb => "status byte, product",
            Mechanism::SbInPlace => "status byte, in place",
            Mechanism::SwPaper => "window, paper",
            Mechanism::SwPaperInline => "window, paper, no ACK thread",
            Mechanism::SwFair => "window, fair",
            Mechanism::SwSack => "window, fair, SACK",
            Mechanism::SwFairTail => "window, fair, tail",
            Mechanism::SwFairTailInPlace => "window, fair, in place",
        }
    }

    /// Whether the thread that the mechanism asks for is given to it.
    pub(crate) fn has_helper(self) -> bool {
        self == Mechanism::SwPaper
    }

    /// Whether blocks are filled in the peer's memory.
    pub(crate) fn is_in_place(self) -> bool {
        matches!(self, Mechanism::SbInPlace | Mechanism::SwFairTailInPlace)
    }

    /// Does something with the mechanism in this shape.
    pub(crate) fn with<V: Visit>(self, shape: Shape, visit: V) -> V::Out {
        match self {
            Mechanism::Sb => visit.visit(StatusByte::new(shape, Way::Copy)),
            Mechanism::SbInPlace => visit.visit(StatusByte::new(shape, Way::InPlace)),
            Mechanism::SwPaper | Mechanism::SwPaperInline => visit.visit(SwPaper::new(shape)),
            Mechanism::SwFair => visit.visit(SwFair::new(shape, Form::WriteImm)),
            Mechanism::SwSack => visit.visit(SwFair::new(shape, Form::Selective)),
            Mechanism::SwFairTail => visit.visit(SwFair::new(shape, Form::Tail)),
            Mechanism::SwFairTailInPlace => visit.visit(SwFair::new(shape, Form::TailInPlace)),
        }
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
