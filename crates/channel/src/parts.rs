//! A connected channel in its parts.
use super::cleanup::Held;
use super::inbound::{Inbound, Wake, Words};
use super::operations::Operations;
use super::outbound::{Outbound, Window};
use super::resources::Resources;
use super::shape::ChannelShape;
use super::{Card, ChannelError, cleanup, qp};
use crate::{EndError, Mode};
use catchment_verbs::{CompletionChannel, Cq, RtsAttr};
use std::sync::Arc;

/// A connected channel in its parts, for several threads: one sends, one takes completions, one
/// takes messages.
pub struct Parts {
    /// Its sizes.
    pub shape: ChannelShape,
    /// Posts requests, from any thread.
    pub operations: Arc<Operations>,
    /// Outgoing messages.
    pub outbound: Outbound,
    /// Incoming messages.
    pub inbound: Inbound,
    /// Where everything completes.
    pub cq: Arc<dyn Cq>,
    /// Sleep on it until something completes.
    pub channel: Arc<dyn CompletionChannel>,
    /// Device objects that live as long as the parts; ends them ([`Held::close`]).
    pub held: Held,
}

impl Parts {
    /// Connects to the peer of this card and posts all receives, in [`Mode::WriteImm`]. Sends nothing: once
    /// the peer has done the same, both may send.
    ///
    /// # Errors
    /// [`ChannelError`] with the step that failed. Everything was released then.
    pub fn connect(
        resources: Resources,
        peer: &Card,
        rts: RtsAttr,
        wake: Box<Wake>,
    ) -> Result<Self, ChannelError> {
        match resources.shape().mode {
            Mode::WriteImm => Self::connect_any(resources, peer, rts, wake),
            mode @ (Mode::Write | Mode::Send) => {
                let _ = resources.release();
                Err(ChannelError::Parts(mode))
            }
        }
    }

    pub(super) fn connect_any(
        resources: Resources,
        peer: &Card,
        rts: RtsAttr,
        wake: Box<Wake>,
    ) -> Result<Self, ChannelError> {
        let card = resources.card();
        let (shape, geometry, mut held) = resources.into_parts();
        if let Err(error) = qp::bring_up(&mut held, &shape, &geometry, peer, rts) {
            // Nothing else uses any of it.
            let _ = cleanup::release(held);
            return Err(error);
        }
        let (Some(qp), Some(cq), Some(channel)) = (held.qp.take(), &held.cq, &held.channel) else {
            return Err(ChannelError::End(EndError::PeerGone));
        };
        let memory = std::mem::take(&mut held.memory);
        let offset = shape.shared_offset(&geometry);
        let operations = Operations::new(qp, memory, peer.memory, offset, &shape);
        let window = Arc::new(Window::new(geometry));
        let is_write = shape.mode == Mode::Write;
        let (slots, arriving) = (Arc::clone(operations.slots()), shape.arriving(&geometry));
        let words = is_write.then(|| Words {
            epoch: epoch(peer, &card),
            credit_offset: shape.credit_offset(&geometry),
        });
        let parts = Self {
            shape,
            outbound: Outbound::new(Arc::clone(&window), is_write.then(|| epoch(&card, peer))),
            inbound: Inbound::new(arriving, slots, window, wake, words),
            operations: Arc::new(operations),
            cq: Arc::clone(cq),
            channel: Arc::clone(channel),
            held,
        };
        let posted = match shape.mode {
            Mode::WriteImm | Mode::Write => parts.operations.receives(shape.receives()),
            Mode::Send => parts.operations.receive_at(&arriving, 0..shape.receives()),
        };
        if let Err(error) = posted {
            let _ = parts.close();
            return Err(error.into());
        }
        Ok(parts)
    }

    /// Ends the connection and releases everything in the order of dependencies: queue pair, memory,
    /// completion queue, device.
    ///
    /// # Errors
    /// [`ChannelError::StillUsed`] with what the program still holds.
    pub fn close(self) -> Result<(), ChannelError> {
        let Self { shape: _, operations, outbound, inbound, cq, channel, held } = self;
        drop((outbound, inbound, cq, channel));
        held.close(operations)
    }
}

/// Returns what the commit words of a sender have besides slot, generation and header.
fn epoch(sender: &Card, receiver: &Card) -> u64 {
    u64::from(receiver.memory.rkey) << 32 | u64::from(sender.endpoint.psn)
}
