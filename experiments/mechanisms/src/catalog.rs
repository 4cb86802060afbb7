//! The mechanisms by name, for programs that let their user choose.
use super::{Mechanism, Shape, StatusByte, Way};
use crate::paper::PaperStatusByte;
use crate::rendezvous::Rendezvous;
use crate::window::fair::{Form, SwFair};
use crate::window::paper::SwPaper;

/// A mechanism without its sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// Status bytes as this library has them, data written from the sender's own memory.
    Sb,
    /// The same, the receiver's memory filled in place.
    SbInPlace,
    /// Status bytes as in the paper.
    SbPaper,
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

pub trait Visit {
    type Out;
    fn visit<M: Mechanism>(self, mechanism: M) -> Self::Out;
}

impl Protocol {
    pub const ALL: [Protocol; 9] = [
        Protocol::Sb,
        Protocol::SbInPlace,
        Protocol::SbPaper,
        Protocol::SwPaper,
        Protocol::SwFair,
        Protocol::SwSack,
        Protocol::SwFairTail,
        Protocol::SwFairTailInPlace,
        Protocol::Rendezvous,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Protocol::Sb => "sb",
            Protocol::SbInPlace => "sb-in-place",
            Protocol::SbPaper => "sb-paper",
            Protocol::SwPaper => "sw-paper",
            Protocol::SwFair => "sw-fair",
            Protocol::SwSack => "sw-sack",
            Protocol::SwFairTail => "sw-fair-tail",
            Protocol::SwFairTailInPlace => "sw-fair-tail-in-place",
            Protocol::Rendezvous => "rendezvous",
        }
    }

    pub fn with<V: Visit>(self, shape: Shape, visit: V) -> V::Out {
        match self {
            Protocol::Sb => visit.visit(StatusByte::new(shape, Way::Copy)),
            Protocol::SbInPlace => visit.visit(StatusByte::new(shape, Way::InPlace)),
            Protocol::SbPaper => visit.visit(PaperStatusByte::new(shape)),
            Protocol::SwPaper => visit.visit(SwPaper::new(shape)),
            Protocol::SwFair => visit.visit(SwFair::new(shape, Form::WriteImm)),
            Protocol::SwSack => visit.visit(SwFair::new(shape, Form::Selective)),
            Protocol::SwFairTail => visit.visit(SwFair::new(shape, Form::Tail)),
            Protocol::SwFairTailInPlace => visit.visit(SwFair::new(shape, Form::TailInPlace)),
            Protocol::Rendezvous => visit.visit(Rendezvous::new(shape)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
