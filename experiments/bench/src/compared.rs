//! Every mechanism of `catchment-mechanisms`, by the name that `catchment bench` knows it by.
use catchment::perf::{Active, BlockMechanism, Measured, Passive, PerfError, STATUS_BYTE, Shape};
use catchment_mechanisms::Protocol;
use std::sync::OnceLock;

/// Returns the product's own, as its command measures them, then what they are compared with.
pub(crate) fn all() -> &'static [&'static dyn BlockMechanism] {
    static ALL: OnceLock<Vec<&'static dyn BlockMechanism>> = OnceLock::new();
    ALL.get_or_init(|| {
        let own = STATUS_BYTE.iter().copied();
        let others = Protocol::ALL
            .into_iter()
            .filter(|protocol| own.clone().all(|own| own.name() != protocol.name()))
            .map(|protocol| {
                let compared: &'static Compared = Box::leak(Box::new(Compared(protocol)));
                compared as &'static dyn BlockMechanism
            });
        own.clone().chain(others).collect()
    })
}

struct Compared(Protocol);

impl BlockMechanism for Compared {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn fills_in_place(&self) -> bool {
        matches!(self.0, Protocol::SbInPlace | Protocol::SwFairTailInPlace)
    }

    fn measure(&self, shape: Shape, side: Active<'_>) -> Result<Measured, PerfError> {
        self.0.with(shape, side)
    }

    fn serve(&self, shape: Shape, side: Passive<'_>) -> Result<(), PerfError> {
        self.0.with(shape, side)
    }
}
