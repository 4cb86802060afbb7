//! The two ports of a side, and what the other side must know of them.
use super::mechanism::Mechanism;
use super::port::{EndNeeds, Offer, Port, Ports};
use crate::PerfError;
use crate::endpoint::LocalDevice;

/// The ports of a side: one to send from, one to take at.
pub(super) struct PortPair {
    pub(super) sends: Port,
    pub(super) takes: Port,
}

impl PortPair {
    pub(super) fn open<M: Mechanism>(
        device: &LocalDevice,
        mechanism: M,
    ) -> Result<Self, PerfError> {
        let pd = device.context.alloc_pd().map_err(PerfError::failed)?;
        let port = |needs: Result<EndNeeds, _>| {
            let needs = needs.map_err(PerfError::failed)?;
            Port::open(&*device.context, &*pd, &needs).map_err(PerfError::failed)
        };
        Ok(Self {
            sends: port(mechanism.sender_needs())?,
            takes: port(mechanism.receiver_needs())?,
        })
    }

    pub(super) fn describe(&self) -> Ports {
        Ports { sends: self.sends.offer().to_string(), takes: self.takes.offer().to_string() }
    }

    /// Connects both to the other side's; returns where that takes and from where it sends.
    pub(super) fn connect(
        &mut self,
        peer: &Ports,
        device: &LocalDevice,
    ) -> Result<[Offer; 2], PerfError> {
        let offer = |text: &str| {
            let offer: Offer = text.parse().map_err(PerfError::failed)?;
            let endpoint = (device.agree)(offer.endpoint);
            Ok::<_, PerfError>(Offer { endpoint, ..offer })
        };
        let (to, from) = (offer(&peer.takes)?, offer(&peer.sends)?);
        self.sends.connect(&to).map_err(PerfError::failed)?;
        self.takes.connect(&from).map_err(PerfError::failed)?;
        Ok([to, from])
    }
}
