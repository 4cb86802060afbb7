//! The sending thread of the paper's mechanism.
use super::protocol::{self, Choice, Sending, StatusBytes as _};
use super::{PaperPool, StatusMemory};
use crate::EndError;
use crate::paper::PaperLayout;
use catchment_transfer::protocol::SlotState;
use catchment_verbs::{Completion, Cq, Payload, Qp, RemoteAddr, SendOp, SendWr, Sge};
use std::sync::Arc;

/// What one step of the sending thread did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaperStep {
    /// The WRITEs of this block have completed.
    Sent(u32),
    /// A READ of the status bytes has completed.
    Synced,
    /// The last request has not completed yet.
    Busy,
    /// A remote block is free, and no filled block could go there.
    NoData,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PaperStats {
    pub blocks: u64,
    pub status_reads: u64,
    pub completions: u64,
}

#[derive(Debug, Clone, Copy)]
enum Posted {
    Block(u32),
    Read,
}

/// Sends filled blocks, one at a time: send queue 2, completion queue 1, receive queue 0.
pub struct PaperSender {
    qp: Box<dyn Qp>,
    cq: Arc<dyn Cq>,
    pool: Arc<PaperPool>,
    /// The receiver's ring. The layout is that of the pool.
    ring: RemoteAddr,
    sending: Sending,
    posted: Option<Posted>,
    stats: PaperStats,
}

impl PaperSender {
    pub fn new(qp: Box<dyn Qp>, cq: Arc<dyn Cq>, pool: Arc<PaperPool>, ring: RemoteAddr) -> Self {
        Self {
            qp,
            cq,
            pool,
            ring,
            sending: Sending::default(),
            posted: None,
            stats: PaperStats::default(),
        }
    }

    /// Makes a sender to a ring that another sender may have left in use (S1.19): no block counts as
    /// free before the status bytes were read.
    ///
    /// # Panics
    /// The layout has the bytes of both sides apart: what the sender before wrote is in an array that is not read.
    pub fn attach(
        qp: Box<dyn Qp>,
        cq: Arc<dyn Cq>,
        pool: Arc<PaperPool>,
        ring: RemoteAddr,
    ) -> Self {
        assert!(!pool.layout.is_apart(), "only the receiver's bytes are read");
        for block in 0..pool.layout.blocks() {
            pool.status2().store(block, SlotState::Unavailable);
        }
        Self::new(qp, cq, pool, ring)
    }

    /// Takes a completion, posts a block, or reads the status bytes when no free block is known. Never
    /// blocks; the caller waits between steps as its policy says.
    pub fn step(&mut self) -> Result<PaperStep, EndError> {
        if self.posted.is_none() {
            match self.sending.choose(&self.pool.status1(), &self.pool.status2()) {
                Choice::Block(block) => self.post_block(block)?,
                Choice::NoData => return Ok(PaperStep::NoData),
                Choice::NoneFree => self.post_read()?,
            }
        }
        self.complete()
    }

    /// RmFree: reads all status bytes, whether or not a free block is known. With a request outstanding
    /// it only polls for its completion, as [`PaperSender::step`] does.
    pub fn refresh(&mut self) -> Result<PaperStep, EndError> {
        if self.posted.is_none() {
            self.post_read()?;
        }
        self.complete()
    }

    /// Returns whether a request was posted whose completion was not taken yet.
    pub(super) fn is_busy(&self) -> bool {
        self.posted.is_some()
    }

    pub(super) fn has_work(&self) -> bool {
        let status1 = self.pool.status1();
        self.is_busy() || (0..status1.blocks()).any(|block| status1.is(block, SlotState::Full))
    }

    fn post_block(&mut self, block: u32) -> Result<(), EndError> {
        let layout: &PaperLayout = &self.pool.layout;
        let mr = &self.pool.blocks;
        let sge = [Sge {
            addr: mr.addr() + self.pool.block_offset(block) as u64,
            bytes: layout.wire_bytes(),
            lkey: mr.lkey(),
        }];
        let data = SendOp::Write(self.at(layout.block_offset(block)));
        let status = SendOp::Write(self.at(layout.status_offset() + block as usize));
        self.qp.post_send(&[
            SendWr::new(0, data, Payload::Sges(&sge)).unsignaled(),
            SendWr::new(1, status, Payload::Inline(&[self.pool.full_byte(block)])),
        ])?;
        self.posted = Some(Posted::Block(block));
        self.sending.posted(block, layout.blocks());
        Ok(())
    }

    /// Posts one READ of all status bytes into the second status memory.
    fn post_read(&mut self) -> Result<(), EndError> {
        let mr = &self.pool.control;
        let sge = [Sge {
            addr: mr.addr() + self.pool.status2_offset() as u64,
            bytes: self.pool.layout.blocks(),
            lkey: mr.lkey(),
        }];
        let from = SendOp::Read(self.at(self.pool.layout.released_offset()));
        self.qp.post_send(&[SendWr::new(2, from, Payload::Sges(&sge))])?;
        self.posted = Some(Posted::Read);
        self.stats.status_reads += 1;
        Ok(())
    }

    /// Takes a completion, if there is one.
    fn complete(&mut self) -> Result<PaperStep, EndError> {
        let mut out = [Completion::EMPTY];
        if self.cq.poll(&mut out)? == 0 {
            return Ok(PaperStep::Busy);
        }
        self.stats.completions += 1;
        out[0].result.map_err(EndError::from)?;
        Ok(match self.posted.take() {
            Some(Posted::Block(block)) => {
                protocol::completed(&self.pool.status1(), &self.pool.status2(), block);
                self.stats.blocks += 1;
                PaperStep::Sent(block)
            }
            Some(Posted::Read) => PaperStep::Synced,
            None => PaperStep::Busy,
        })
    }

    fn at(&self, offset: usize) -> RemoteAddr {
        RemoteAddr { addr: self.ring.addr + offset as u64, ..self.ring }
    }

    pub fn stats(&self) -> PaperStats {
        self.stats
    }

    pub fn memory_map(&self) -> [StatusMemory; 2] {
        let control = &self.pool.control;
        [(1, 0), (2, self.pool.status2_offset())].map(|(number, offset)| StatusMemory {
            number,
            addr: control.addr() + offset as u64,
            bytes: self.pool.layout.blocks(),
            access: control.access(),
        })
    }
}
