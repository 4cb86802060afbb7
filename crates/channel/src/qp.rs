//! QP management: the states that the queue pair of a channel goes through. INIT when its resources are
//! acquired, RTR and RTS once the peer's card is known and fits, ERR at the end.
use super::card::CardError;
use super::cleanup::Held;
use super::{Card, ChannelError, ChannelShape};
use crate::geometry::Geometry;
use catchment_verbs::{Access, ModifyError, Qp, QpTransition, RtrAttr, RtsAttr};

/// Lets the peer write messages, and read and write shared memory.
pub(super) fn init(qp: &mut dyn Qp) -> Result<(), ModifyError> {
    qp.modify(QpTransition::ToInit { access: Access::REMOTE_WRITE | Access::REMOTE_READ })
}

/// Brings the queue pair to RTS. A peer whose card does not fit changes nothing.
pub(super) fn bring_up(
    held: &mut Held,
    shape: &ChannelShape,
    geometry: &Geometry,
    peer: &Card,
    rts: RtsAttr,
) -> Result<(), ChannelError> {
    check_peer(shape, geometry, peer)?;
    if let Some(qp) = &mut held.qp {
        qp.modify(QpTransition::ToRtr(RtrAttr::new(peer.endpoint)))?;
        qp.modify(QpTransition::ToRts(rts))?;
    }
    Ok(())
}

/// Flushes all requests and refuses new ones. A failed queue pair stays in the error state.
pub(super) fn end(qp: &mut dyn Qp) {
    let _ = qp.modify(QpTransition::ToErr);
}

fn check_peer(shape: &ChannelShape, geometry: &Geometry, peer: &Card) -> Result<(), CardError> {
    if (peer.blocks, peer.payload_bytes) != (shape.blocks, shape.payload_bytes) {
        return Err(CardError::Shape {
            blocks: peer.blocks,
            payload_bytes: peer.payload_bytes,
            our_blocks: shape.blocks,
            our_payload_bytes: shape.payload_bytes,
        });
    }
    let needed = shape.shared_offset(geometry) as u64;
    if peer.memory.bytes < needed {
        return Err(CardError::Memory { given: peer.memory.bytes, needed });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Resources;
    use catchment_provider_shm::ShmProvider;
    use catchment_verbs::{Provider, QpState};

    fn acquired() -> (ChannelShape, Geometry, Held, Card) {
        let context = ShmProvider::new().open("shm0").unwrap();
        let resources = Resources::acquire(context, ChannelShape::new(4, 256)).unwrap();
        let card = resources.card();
        let (shape, geometry, held) = resources.into_parts();
        (shape, geometry, held, card)
    }

    /// S3.1: INIT with the resources, RTS with the peer's card, ERR at the end.
    #[test]
    fn s3_1_a_queue_pair_goes_from_init_over_rts_to_err() {
        let (shape, geometry, mut held, _) = acquired();
        let (.., peer) = acquired();
        let state = |held: &Held| held.qp.as_ref().unwrap().state();
        assert_eq!(state(&held), QpState::Init);
        // Its peer is gone by now; a queue pair that nobody answers is not ready.
        let gone = bring_up(&mut held, &shape, &geometry, &peer, RtsAttr::default());
        assert!(gone.is_err() && state(&held) != QpState::Rts, "{gone:?}");
        let ([(shape, geometry, mut ours, card), mut other], rts) =
            ([acquired(), acquired()], RtsAttr::default());
        bring_up(&mut ours, &shape, &geometry, &other.3, rts).unwrap();
        bring_up(&mut other.2, &shape, &geometry, &card, rts).unwrap();
        assert_eq!((state(&ours), state(&other.2)), (QpState::Rts, QpState::Rts));
        end(&mut **ours.qp.as_mut().unwrap());
        assert_eq!(state(&ours), QpState::Err);
    }

    /// S3.1: a card of another shape, or of too little memory, leaves the queue pair as it was.
    #[test]
    fn s3_1_a_card_that_does_not_fit_changes_no_state() {
        let (shape, geometry, mut held, card) = acquired();
        let mut small = card;
        small.memory.bytes -= geometry.total_bytes() as u64;
        for wrong in [Card { blocks: 5, ..card }, Card { payload_bytes: 255, ..card }, small] {
            let refused = bring_up(&mut held, &shape, &geometry, &wrong, RtsAttr::default());
            assert!(matches!(refused, Err(ChannelError::Card(_))), "{refused:?}");
            assert_eq!(held.qp.as_ref().unwrap().state(), QpState::Init);
        }
    }
}
