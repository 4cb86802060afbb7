//! The paper's mechanism behind the common interface.
use super::{
    PaperBlock, PaperHeader, PaperPool, PaperReceiver, PaperSender, PaperStats, PaperStep,
    device_of,
};
use crate::paper::PaperLayout;
use crate::{
    ClaimError, Counts, EndError, EndNeeds, Features, FirstError, Mechanism, MemoryNeed, Offer,
    Port, QueueNeeds, ReceiveEnd, SendEnd, SetupError, Shape, TakenBlock,
};
use catchment_transfer::LayoutError;
use catchment_verbs::mem::VolatileSlice;
use catchment_verbs::{Access, Mr, Qp, RemoteAddr, Watch};
use std::sync::{Arc, Mutex};

/// The status-byte mechanism as published, with one thread that fills and sends. Queues are as small
/// as the paper says: 2 requests and 1 completion, no receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaperStatusByte {
    pub shape: Shape,
    /// Whether the status bytes of both sides are in an array each, unlike the paper's.
    pub is_apart: bool,
}

impl PaperStatusByte {
    pub fn new(shape: Shape) -> Self {
        Self { shape, is_apart: false }
    }

    fn layout(&self) -> Result<PaperLayout, LayoutError> {
        let Shape { blocks, payload_bytes, .. } = self.shape;
        if self.is_apart {
            PaperLayout::apart(blocks, payload_bytes)
        } else {
            PaperLayout::new(blocks, payload_bytes)
        }
    }
}

impl Mechanism for PaperStatusByte {
    type Sender = PaperSendEnd;
    type Receiver = PaperReceiveEnd;

    fn shape(&self) -> Shape {
        self.shape
    }

    fn features(&self) -> Features {
        Features {
            any_length: false,
            in_order: false,
            out_of_order_release: true,
            many_claims: true,
            stream_bits: 8,
            packet_bits: 16,
        }
    }

    fn sender_needs(&self) -> Result<EndNeeds, LayoutError> {
        let layout = self.layout()?;
        Ok(EndNeeds {
            queues: QueueNeeds {
                max_send_wr: 2,
                max_recv_wr: 0,
                send_cqe: 1,
                recv_cqe: 0,
                max_inline_bytes: 1,
            },
            memory: vec![
                MemoryNeed::new("send blocks", layout.blocks_bytes(), Access::empty()),
                MemoryNeed::new(
                    "two arrays of status bytes",
                    PaperPool::control_bytes(&layout),
                    Access::LOCAL_WRITE,
                ),
            ],
        })
    }

    fn receiver_needs(&self) -> Result<EndNeeds, LayoutError> {
        Ok(EndNeeds::passive(self.layout()?.total_bytes()))
    }

    fn sender(&self, port: Port, peer: &Offer) -> Result<PaperSendEnd, SetupError> {
        let layout = self.layout()?;
        let blocks = port.mr(0, "send blocks", 0)?;
        let pool = PaperPool::new(blocks, port.mr(1, "two arrays of status bytes", 0)?, layout)?;
        let ring = peer.memory(0, "the ring", layout.total_bytes())?;
        let ring = RemoteAddr { addr: ring.addr, rkey: ring.rkey };
        Ok(PaperSendEnd {
            sender: PaperSender::new(port.qp, port.send_cq, Arc::clone(&pool), ring),
            pool,
            committed: 0,
            would_blocks: 0,
            broken: FirstError::default(),
        })
    }

    fn receiver(&self, port: Port, _: &Offer) -> Result<PaperReceiveEnd, SetupError> {
        let ring = port.mr(0, "the ring", 0)?;
        Ok(PaperReceiveEnd {
            receiver: PaperReceiver::new(Arc::clone(&ring), self.layout()?, true)?,
            ring,
            counts: Counts::default(),
            _qp: Mutex::new(port.qp),
        })
    }
}

/// The sending end, on one thread: it fills and sends by turns.
pub struct PaperSendEnd {
    pool: Arc<PaperPool>,
    sender: PaperSender,
    committed: u64,
    would_blocks: u64,
    broken: FirstError,
}

pub struct PaperClaim {
    pool: Arc<PaperPool>,
    block: u32,
    device: u8,
    published: bool,
}

impl Drop for PaperClaim {
    fn drop(&mut self) {
        if !self.published {
            self.pool.unclaim(self.block);
        }
    }
}

impl PaperSendEnd {
    pub fn stats(&self) -> PaperStats {
        self.sender.stats()
    }

    /// Sends filled blocks until it would have to wait. A READ posted here is a wait: the next call
    /// uses its result. The result of one posted before is used at once: there may be no next call.
    fn drive(&mut self) -> Result<(), EndError> {
        self.broken.check()?;
        let advanced = self.advance();
        self.keep(advanced)
    }

    /// Keeps the first failure for all later calls.
    fn keep<T>(&self, result: Result<T, EndError>) -> Result<T, EndError> {
        result.map_err(|error| self.broken.set(error))
    }

    fn advance(&mut self) -> Result<(), EndError> {
        let mut was_under_way = self.sender.is_busy();
        loop {
            match self.sender.step()? {
                PaperStep::Sent(_) => {}
                PaperStep::Synced if was_under_way => {}
                PaperStep::Synced | PaperStep::Busy | PaperStep::NoData => return Ok(()),
            }
            was_under_way = false;
        }
    }

    /// Sends filled blocks as far as free slots are known, and reads the status bytes only while there
    /// is something to send. The result of a READ that is done at once is used at once.
    fn send_filled(&mut self) -> Result<(), EndError> {
        let mut has_looked = false;
        while self.sender.has_work() {
            match self.sender.step()? {
                PaperStep::Sent(_) => {}
                PaperStep::Synced if !has_looked => has_looked = true,
                PaperStep::Synced | PaperStep::Busy | PaperStep::NoData => break,
            }
        }
        Ok(())
    }
}

impl SendEnd for PaperSendEnd {
    type Claim = PaperClaim;

    fn claim(&mut self, stream: u32, bytes: u32) -> Result<PaperClaim, ClaimError> {
        let limit = self.pool.layout.payload_bytes();
        if bytes != limit {
            return Err(ClaimError::Length { asked: bytes, limit, exactly: true });
        }
        let device = device_of(stream)?;
        self.broken.check()?;
        let block = match self.pool.claim() {
            Some(block) => Some(block),
            None => {
                self.drive()?;
                self.pool.claim()
            }
        };
        let Some(block) = block else {
            self.would_blocks += 1;
            return Err(ClaimError::WouldBlock);
        };
        Ok(PaperClaim { pool: Arc::clone(&self.pool), block, device, published: false })
    }

    fn memory<'a>(&'a self, claim: &'a PaperClaim) -> VolatileSlice<'a> {
        self.pool.payload(claim.block)
    }

    fn commit(&mut self, mut claim: PaperClaim, packet: u64) -> Result<(), EndError> {
        self.pool.publish(claim.block, PaperHeader { device: claim.device, packet: packet as u16 });
        claim.published = true;
        self.committed += 1;
        let sent = self.send_filled();
        self.keep(sent)
    }

    fn progress(&mut self) -> Result<(), EndError> {
        self.drive()
    }

    fn look(&mut self) -> Result<Option<bool>, EndError> {
        let refreshed = self.sender.refresh();
        Ok(Some(self.keep(refreshed)? == PaperStep::Synced))
    }

    /// Counts one interaction for each block and each READ.
    fn counts(&self) -> Counts {
        Counts {
            blocks: self.committed,
            payload_bytes: self.committed * u64::from(self.pool.layout.payload_bytes()),
            interactions: self.committed + self.sender.stats().status_reads,
            would_blocks: self.would_blocks,
        }
    }
}

pub struct PaperReceiveEnd {
    receiver: PaperReceiver,
    ring: Arc<dyn Mr>,
    counts: Counts,
    /// The connection lives as long as its queue pair.
    _qp: Mutex<Box<dyn Qp>>,
}

impl ReceiveEnd for PaperReceiveEnd {
    type Block = PaperBlock;

    fn take(&mut self) -> Result<Option<PaperBlock>, EndError> {
        let block = self.receiver.poll();
        if let Some(block) = &block {
            self.counts.add_block(block.payload().bytes() as u64);
        }
        Ok(block)
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        self.ring.watch()
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}
