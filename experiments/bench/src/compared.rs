//! Every mechanism of `catchment-mechanisms`, as the product's block test wants it.
use catchment::perf::{
    BlockEnds, BlockMechanism, BlockPort, BlockShape, PerfError, Ports, STATUS_BYTE, read_block,
};
use catchment_mechanisms::{
    ClaimError, Mechanism, Offer, Port, Protocol, ReceiveEnd, SendEnd, Shape, TakenBlock, Visit,
};
use catchment_verbs::{Context, Endpoint, Pd, Watch};
use std::sync::{Arc, OnceLock};

/// All there are: the product's own, as its command measures them, then what they are compared with.
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

    fn open(
        &self,
        context: &dyn Context,
        shape: BlockShape,
    ) -> Result<Box<dyn BlockPort>, PerfError> {
        let pd = context.alloc_pd().map_err(PerfError::failed)?;
        let shape = Shape { blocks: shape.blocks, payload_bytes: shape.bytes };
        self.0.with(shape, Open { context, pd: &*pd })
    }
}

struct Open<'a> {
    context: &'a dyn Context,
    pd: &'a dyn Pd,
}

impl Visit for Open<'_> {
    type Out = Result<Box<dyn BlockPort>, PerfError>;

    fn visit<M: Mechanism>(self, mechanism: M) -> Self::Out {
        let port = |needs| Port::open(self.context, self.pd, &needs).map_err(PerfError::failed);
        Ok(Box::new(TwoPorts {
            sends: port(mechanism.sender_needs().map_err(PerfError::failed)?)?,
            takes: port(mechanism.receiver_needs().map_err(PerfError::failed)?)?,
            mechanism,
            peer: None,
        }))
    }
}

struct TwoPorts<M> {
    mechanism: M,
    sends: Port,
    takes: Port,
    /// Where the peer takes and where it sends, once connected.
    peer: Option<(Offer, Offer)>,
}

impl<M> BlockPort for TwoPorts<M>
where
    M: Mechanism + 'static,
    M::Sender: 'static,
    M::Receiver: 'static,
{
    fn ports(&self) -> Ports {
        Ports { sends: self.sends.offer().to_string(), takes: self.takes.offer().to_string() }
    }

    fn connect(
        &mut self,
        peer: &Ports,
        agreed: &dyn Fn(Endpoint) -> Endpoint,
    ) -> Result<(), PerfError> {
        let offer = |text: &str| {
            let offer: Offer = text.parse().map_err(PerfError::failed)?;
            let endpoint = agreed(offer.endpoint);
            Ok::<_, PerfError>(Offer { endpoint, ..offer })
        };
        let (to, from) = (offer(&peer.takes)?, offer(&peer.sends)?);
        self.sends.connect(&to).map_err(PerfError::failed)?;
        self.takes.connect(&from).map_err(PerfError::failed)?;
        self.peer = Some((to, from));
        Ok(())
    }

    fn ends(self: Box<Self>) -> Result<Box<dyn BlockEnds>, PerfError> {
        let (to, from) = self.peer.ok_or_else(|| PerfError::failed("not connected"))?;
        let sender = self.mechanism.sender(self.sends, &to);
        let receiver = self.mechanism.receiver(self.takes, &from);
        Ok(Box::new(Ends::<M> {
            sender: sender.map_err(PerfError::failed)?,
            receiver: receiver.map_err(PerfError::failed)?,
        }))
    }
}

struct Ends<M: Mechanism> {
    sender: M::Sender,
    receiver: M::Receiver,
}

impl<M: Mechanism> BlockEnds for Ends<M> {
    fn try_send(&mut self, content: &[u8], packet: u64) -> Result<bool, PerfError> {
        let claim = match self.sender.claim(0, content.len() as u32) {
            Ok(claim) => claim,
            Err(ClaimError::WouldBlock) => {
                self.progress()?;
                return Ok(false);
            }
            Err(error) => return Err(PerfError::failed(error)),
        };
        self.sender.memory(&claim).write_at(0, content).map_err(PerfError::failed)?;
        self.sender.commit(claim, packet).map_err(PerfError::failed)?;
        Ok(true)
    }

    fn try_take(&mut self) -> Result<Option<u8>, PerfError> {
        let Some(block) = self.receiver.take().map_err(PerfError::failed)? else { return Ok(None) };
        read_block(block.payload()).map(Some)
    }

    fn progress(&mut self) -> Result<(), PerfError> {
        self.sender.progress().map_err(PerfError::failed)
    }

    fn send_watch(&self) -> Option<Arc<dyn Watch>> {
        self.sender.watch()
    }

    fn take_watch(&self) -> Option<Arc<dyn Watch>> {
        self.receiver.watch()
    }
}
