//! Resource management: device, protection domain, queues, memory.
use super::cleanup::Held;
use super::{Card, ChannelError, cleanup};
use crate::geometry::{EXPOSED, Geometry};
use crate::{ChannelShape, Mode, RemoteMemory};
use catchment_transfer::layout::LINE_BYTES;
use catchment_verbs::{Access, CompletionChannel, Context, Pd, QpInit, VerbsError};
use std::sync::{Arc, Weak};

/// Everything that an end needs, acquired.
pub struct Resources {
    shape: ChannelShape,
    geometry: Geometry,
    card: Card,
    held: Held,
}

impl Resources {
    /// Acquires everything, with the queue pair in INIT.
    ///
    /// # Errors
    /// [`ChannelError::Resource`] with what the device refused. What was acquired before is released
    /// then.
    pub fn acquire(context: Arc<dyn Context>, shape: ChannelShape) -> Result<Self, ChannelError> {
        Self::acquire_with(context, shape, None)
    }

    fn acquire_with(
        context: Arc<dyn Context>,
        shape: ChannelShape,
        pd: Option<&Arc<dyn Pd>>,
    ) -> Result<Self, ChannelError> {
        let geometry = shape.geometry()?;
        let mut held = Held { context: Some(Arc::clone(&context)), ..Held::default() };
        match fill(&mut held, (&*context, pd), &shape, &geometry) {
            Ok(card) => Ok(Self { shape, geometry, card, held }),
            Err(error) => {
                // Nothing else uses any of it.
                let _ = cleanup::release(held);
                Err(error)
            }
        }
    }

    /// As [`Resources::acquire`], in a protection domain of this device that the program keeps: what it has registered there
    /// the peer can reach, too.
    ///
    /// # Errors
    /// As there.
    pub fn acquire_in(
        context: Arc<dyn Context>,
        pd: &Arc<dyn Pd>,
        shape: ChannelShape,
    ) -> Result<Self, ChannelError> {
        Self::acquire_with(context, shape, Some(pd))
    }

    /// Returns its sizes.
    pub fn shape(&self) -> &ChannelShape {
        &self.shape
    }

    /// Returns the card for the peer.
    pub fn card(&self) -> Card {
        self.card
    }

    /// Releases everything.
    ///
    /// # Errors
    /// [`ChannelError::StillUsed`] with what the program still holds.
    pub fn release(self) -> Result<(), ChannelError> {
        Ok(cleanup::release(self.held)?)
    }

    /// Returns the completion channel, to wake its sleeper.
    pub(super) fn sleeper(&self) -> Option<Weak<dyn CompletionChannel>> {
        self.held.channel.as_ref().map(Arc::downgrade)
    }

    pub(super) fn into_parts(self) -> (ChannelShape, Geometry, Held) {
        (self.shape, self.geometry, self.held)
    }
}

/// Fills in `held` step by step. When a step fails, the rest stays for the cleanup.
fn fill(
    held: &mut Held,
    (context, pd): (&dyn Context, Option<&Arc<dyn Pd>>),
    shape: &ChannelShape,
    geometry: &Geometry,
) -> Result<Card, ChannelError> {
    if shape.mode == Mode::Write && !context.caps().data_in_order {
        return Err(ChannelError::Order);
    }
    let refused = |what| move |source: VerbsError| ChannelError::Resource { what, source };
    let pd = if let Some(pd) = pd {
        // Not this end's to release.
        pd
    } else {
        held.pd.insert(context.alloc_pd().map_err(refused("a protection domain"))?)
    };
    let channel = context.create_channel();
    let channel = channel.map_err(refused("a completion channel"))?;
    held.channel = Some(Arc::clone(&channel));
    let entries = shape.max_send_wr + shape.receives();
    let cq = context.create_cq(entries, Some(channel)).map_err(refused("a completion queue"))?;
    held.cq = Some(Arc::clone(&cq));
    let shared_bytes = shape.shared_bytes as usize;
    let reachable = if shape.mode == Mode::Send && shared_bytes == 0 {
        Access::LOCAL_WRITE
    } else {
        Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ
    };
    let exposed_bytes = shape.shared_offset(geometry) + shared_bytes;
    for (what, bytes, access) in [
        ("memory for the peer", exposed_bytes, reachable),
        ("send blocks", geometry.total_bytes(), Access::empty()),
        ("memory to READ into", shared_bytes.max(1), Access::LOCAL_WRITE),
    ] {
        held.memory.push(pd.alloc_mr(bytes, access).map_err(refused(what))?);
    }
    let queues = QpInit::rc(&cq, shape.max_send_wr, shape.receives());
    let init = QpInit { max_inline_bytes: LINE_BYTES, ..queues };
    let qp = held.qp.insert(pd.create_qp(init).map_err(refused("a queue pair"))?);
    super::qp::init(&mut **qp)?;
    let exposed = &held.memory[EXPOSED];
    Ok(Card {
        endpoint: qp.endpoint(),
        memory: RemoteMemory {
            addr: exposed.addr(),
            rkey: exposed.rkey(),
            bytes: exposed.bytes() as u64,
        },
        blocks: shape.blocks,
        payload_bytes: shape.payload_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use catchment_probe::census::{Census, Object};
    use catchment_provider_shm::ShmProvider;
    use catchment_verbs::Provider;

    /// S3.1: everything is there once, the card describes it, and nothing is left when it is released; a
    /// shape that cannot be takes nothing.
    #[test]
    fn s3_1_resources_are_acquired_described_and_released() {
        let (context, census) = Census::of(ShmProvider::new().open("shm0").unwrap());
        let shape = ChannelShape::new(4, 256).with_shared(4096);
        let resources = Resources::acquire(Arc::clone(&context), shape).unwrap();
        assert_eq!((census.alive(Object::Qp), census.alive(Object::Mr)), (1, 3));
        let card = resources.card();
        assert_eq!((card.blocks, card.payload_bytes), (4, 256));
        let slots = shape.geometry().unwrap().total_bytes() as u64;
        assert_eq!(card.memory.bytes, slots + 4096);
        resources.release().unwrap();
        let too_many = ChannelShape::new(crate::MAX_BLOCKS + 1, 256);
        let refused = Resources::acquire(Arc::clone(&context), too_many).map(drop);
        assert!(matches!(refused, Err(ChannelError::Blocks(_))), "{refused:?}");
        let pd = context.alloc_pd().unwrap();
        let within = Resources::acquire_in(Arc::clone(&context), &pd, shape).unwrap();
        assert_eq!((census.alive(Object::Qp), census.alive(Object::Mr)), (1, 3));
        within.release().unwrap();
        drop((pd, context));
        assert_eq!(census.total(), 0);
    }
}
