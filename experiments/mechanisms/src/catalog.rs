//! The mechanisms by name, for programs that let their user choose.
use super::{CopyMode, Shape, StatusByte};
use crate::paper::PaperStatusByte;
use crate::rendezvous::Rendezvous;
use crate::window::fair::{Form, SwFair};
use crate::window::paper::SwPaper;
pub use catchment_perf::blocks::Visit;

/// A mechanism without its sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// Status bytes as this library has them, data written from the sender's own memory.
    Sb,
    /// The same, the receiver's memory filled in place.
    SbInPlace,
    /// The product's, with a CRC32C in each block that the receiver checks.
    SbCrc,
    /// Status bytes as in the paper.
    SbPaper,
    /// The same, the bytes of both sides in an array each.
    SbPaperApart,
    /// The paper's sliding window.
    SwPaper,
    /// A sliding window as fair as verbs allow.
    SwFair,
    /// The same with a bit for each block, so that blocks come back in any order.
    SwSack,
    /// The fair window without completions at the receiver: the end of a block announces it.
    SwFairTail,
    /// The same, the receiver's memory filled in place.
    SwFairTailInPlace,
    /// Address, data, completion: three messages for each block.
    Rendezvous,
}

impl Protocol {
    pub const ALL: [Self; 11] = [
        Self::Sb,
        Self::SbInPlace,
        Self::SbCrc,
        Self::SbPaper,
        Self::SbPaperApart,
        Self::SwPaper,
        Self::SwFair,
        Self::SwSack,
        Self::SwFairTail,
        Self::SwFairTailInPlace,
        Self::Rendezvous,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Sb => "sb",
            Self::SbInPlace => "sb-in-place",
            Self::SbCrc => "sb-crc",
            Self::SbPaper => "sb-paper",
            Self::SbPaperApart => "sb-paper-apart",
            Self::SwPaper => "sw-paper",
            Self::SwFair => "sw-fair",
            Self::SwSack => "sw-sack",
            Self::SwFairTail => "sw-fair-tail",
            Self::SwFairTailInPlace => "sw-fair-tail-in-place",
            Self::Rendezvous => "rendezvous",
        }
    }

    pub fn with<V: Visit>(self, shape: Shape, visit: V) -> V::Out {
        match self {
            Self::Sb => visit.visit(StatusByte::new(shape, CopyMode::Copy)),
            Self::SbInPlace => visit.visit(StatusByte::new(shape, CopyMode::InPlace)),
            Self::SbCrc => {
                let checked =
                    StatusByte { has_crc: true, ..StatusByte::new(shape, CopyMode::Copy) };
                visit.visit(checked)
            }
            Self::SbPaper => visit.visit(PaperStatusByte::new(shape)),
            Self::SbPaperApart => {
                visit.visit(PaperStatusByte { is_apart: true, ..PaperStatusByte::new(shape) })
            }
            Self::SwPaper => visit.visit(SwPaper::new(shape)),
            Self::SwFair => visit.visit(SwFair::new(shape, Form::WriteImm)),
            Self::SwSack => visit.visit(SwFair::new(shape, Form::Selective)),
            Self::SwFairTail => visit.visit(SwFair::new(shape, Form::Tail)),
            Self::SwFairTailInPlace => visit.visit(SwFair::new(shape, Form::TailInPlace)),
            Self::Rendezvous => visit.visit(Rendezvous::new(shape)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mechanism;

    struct ShapeOf;

    impl Visit for ShapeOf {
        type Out = Shape;

        fn visit<M: Mechanism>(self, mechanism: M) -> Shape {
            mechanism.shape()
        }
    }

    #[test]
    fn every_protocol_has_a_name_of_its_own_and_the_shape_asked_for() {
        let shape = Shape { blocks: 3, payload_bytes: 256 };
        for protocol in Protocol::ALL {
            let same = Protocol::ALL.into_iter().filter(|one| one.name() == protocol.name());
            assert_eq!(same.count(), 1, "{protocol:?}");
            assert_eq!(protocol.with(shape, ShapeOf), shape);
        }
    }
}
