//! The product's mechanism: status bytes, with blocks that are copied or filled in place.
use super::mechanism::{BlockEnds, BlockMechanism, BlockPort, BlockShape, Ports, read_block};
use crate::PerfError;
use catchment_transfer::{
    BlockMeta, CopyMemory, QueueLimits, Receiver, ReceiverOptions, RemoteRing, ReserveError,
    RingLayout, Sender, SenderOptions,
};
use catchment_verbs::{Access, Context, Cq, Endpoint, Mr, Pd, Qp, QpInit, RtrAttr, RtsAttr, Watch};
use std::str::FromStr;
use std::sync::Arc;

/// The product's mechanism, both forms of it.
pub static STATUS_BYTE: &[&'static dyn BlockMechanism] =
    &[&StatusByte { in_place: false }, &StatusByte { in_place: true }];

/// Both ends of a measurement number their one session like this.
const EPOCH: u64 = 1;
const MAX_SEND_WR: u32 = 128;
const SEND_CQE: u32 = 64;
/// A status byte is written with as many bytes inline at most.
const MAX_INLINE_BYTES: u32 = 16;

struct StatusByte {
    in_place: bool,
}

impl BlockMechanism for StatusByte {
    fn name(&self) -> &'static str {
        if self.in_place { "sb-in-place" } else { "sb" }
    }

    fn fills_in_place(&self) -> bool {
        self.in_place
    }

    fn open(
        &self,
        context: &dyn Context,
        shape: BlockShape,
    ) -> Result<Box<dyn BlockPort>, PerfError> {
        let block_bytes = RingLayout::block_bytes_for(shape.bytes).map_err(PerfError::failed)?;
        let layout = RingLayout::new(shape.blocks, block_bytes).map_err(PerfError::failed)?;
        let pd = context.alloc_pd().map_err(PerfError::failed)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let memory = (!self.in_place).then(|| copy_memory(&*pd, &layout));
        Ok(Box::new(Port {
            sends: queue_pair(context, &*pd, MAX_SEND_WR, SEND_CQE)?,
            takes: queue_pair(context, &*pd, 1, 1)?,
            ring: pd.alloc_mr(layout.total_bytes(), access).map_err(PerfError::failed)?,
            memory: memory.transpose()?,
            limits: QueueLimits {
                max_send_wr: MAX_SEND_WR,
                max_inline_bytes: MAX_INLINE_BYTES,
                max_message_bytes: context.caps().max_message_bytes,
            },
            layout,
            remote: None,
        }))
    }
}

fn copy_memory(pd: &dyn Pd, layout: &RingLayout) -> Result<CopyMemory, PerfError> {
    let blocks_bytes = layout.blocks() as usize * layout.block_bytes() as usize;
    let blocks = pd.alloc_mr(blocks_bytes, Access::empty());
    let status = pd.alloc_mr(layout.status_bytes(), Access::LOCAL_WRITE);
    Ok(CopyMemory {
        blocks: blocks.map_err(PerfError::failed)?,
        status: status.map_err(PerfError::failed)?,
    })
}

type QueuePair = (Box<dyn Qp>, Arc<dyn Cq>);

fn queue_pair(
    context: &dyn Context,
    pd: &dyn Pd,
    max_send_wr: u32,
    cqe: u32,
) -> Result<QueuePair, PerfError> {
    let channel = context.create_channel().map_err(PerfError::failed)?;
    let cq = context.create_cq(cqe, Some(channel)).map_err(PerfError::failed)?;
    let init = QpInit {
        max_inline_bytes: MAX_INLINE_BYTES,
        strict: context.caps().strict_capacity,
        ..QpInit::rc(&cq, max_send_wr, 0)
    };
    Ok((pd.create_qp(init).map_err(PerfError::failed)?, cq))
}

/// Queues and memory of a side.
struct Port {
    sends: QueuePair,
    takes: QueuePair,
    ring: Arc<dyn Mr>,
    /// Only where blocks are copied.
    memory: Option<CopyMemory>,
    limits: QueueLimits,
    layout: RingLayout,
    /// The peer's ring, once connected.
    remote: Option<RemoteRing>,
}

impl BlockPort for Port {
    /// The sending port is an endpoint, the taking port `ENDPOINT ADDR:RKEY`.
    fn ports(&self) -> Ports {
        let (addr, rkey) = (self.ring.addr(), self.ring.rkey());
        Ports {
            sends: self.sends.0.endpoint().to_string(),
            takes: format!("{} {addr}:{rkey}", self.takes.0.endpoint()),
        }
    }

    fn connect(
        &mut self,
        peer: &Ports,
        agreed: &dyn Fn(Endpoint) -> Endpoint,
    ) -> Result<(), PerfError> {
        let (endpoint, addr, rkey) = ring_of(&peer.takes)
            .ok_or_else(|| PerfError::failed(format!("{:?} describes no ring", peer.takes)))?;
        let sender = peer.sends.parse().map_err(PerfError::failed)?;
        bring_up(&mut *self.sends.0, agreed(endpoint))?;
        bring_up(&mut *self.takes.0, agreed(sender))?;
        self.remote = Some(RemoteRing { addr, rkey, layout: self.layout });
        Ok(())
    }

    fn ends(self: Box<Self>) -> Result<Box<dyn BlockEnds>, PerfError> {
        let remote = self.remote.ok_or_else(|| PerfError::failed("not connected"))?;
        let ((qp, cq), options) = (self.sends, SenderOptions::default());
        let sender = match self.memory {
            None => Sender::in_place(qp, cq, remote, EPOCH, options),
            Some(memory) => Sender::copying(qp, cq, self.limits, memory, remote, EPOCH, options),
        };
        let receiver = Receiver::new(self.ring, self.layout, EPOCH, ReceiverOptions::default());
        Ok(Box::new(Ends {
            sender: sender.map_err(PerfError::failed)?,
            receiver: receiver.map_err(PerfError::failed)?,
            _connection: self.takes.0,
        }))
    }
}

fn ring_of(text: &str) -> Option<(Endpoint, u64, u32)> {
    let (endpoint, memory) = text.rsplit_once(' ')?;
    let (addr, rkey) = memory.split_once(':')?;
    Some((Endpoint::from_str(endpoint).ok()?, addr.parse().ok()?, rkey.parse().ok()?))
}

fn bring_up(qp: &mut dyn Qp, peer: Endpoint) -> Result<(), PerfError> {
    qp.connect(Access::REMOTE, RtrAttr::new(peer), RtsAttr::default()).map_err(PerfError::failed)
}

struct Ends {
    sender: Sender,
    receiver: Receiver,
    /// The ring can be reached as long as its queue pair lives.
    _connection: Box<dyn Qp>,
}

impl BlockEnds for Ends {
    fn try_send(&mut self, content: &[u8], packet: u64) -> Result<bool, PerfError> {
        let bytes = content.len() as u32;
        let block = match self.sender.reserve(0, bytes) {
            Ok(block) => block,
            Err(ReserveError::WouldBlock) => {
                self.progress()?;
                return Ok(false);
            }
            Err(error) => return Err(PerfError::failed(error)),
        };
        block.memory().write_at(0, content).map_err(PerfError::failed)?;
        let meta = BlockMeta {
            packet_number: packet,
            frame_bytes: u64::from(bytes),
            ..BlockMeta::default()
        };
        block.commit(&meta, false).map_err(PerfError::failed)?;
        Ok(true)
    }

    fn try_take(&mut self) -> Result<Option<u8>, PerfError> {
        let Some(block) = self.receiver.poll().map_err(PerfError::failed)? else { return Ok(None) };
        read_block(block.payload()).map(Some)
    }

    fn progress(&mut self) -> Result<(), PerfError> {
        self.sender.progress().map_err(PerfError::failed)
    }

    fn send_watch(&self) -> Option<Arc<dyn Watch>> {
        self.sender.free_watch()
    }

    fn take_watch(&self) -> Option<Arc<dyn Watch>> {
        self.receiver.watch()
    }
}
