//! The mechanism as the paper describes it, over the provider for processes of one host.
//!
//! Each way has a ring at its receiver and a queue pair. One thread fills a send block, posts it
//! with its status byte, takes the completion, and blocks on a READ of all status bytes when it
//! knows of no free block. The queues are as small as the paper says: 2 requests, 1 completion.
use super::queue_pair::{QueuePair, connect};
use super::{Link, StatusBytes, look_at};
use crate::control::Control;
use crate::job::{Job, Queues, Role, Wait};
use anyhow::{Result, bail};
use catchment_mechanisms::paper::{
    FillError, PaperBlock, PaperHeader, PaperLayout, PaperPool, PaperReceiver, PaperRing,
    PaperSender, PaperStep,
};
use catchment_provider_shm::ShmProvider;
use catchment_verbs::{Access, Context, Mr, Pd, Provider};
use std::sync::Arc;

/// Requests: the block and its status byte.
const MAX_SEND_WR: u32 = 2;
/// Only the last one of them completes.
const COMPLETIONS: u32 = 1;

/// The receiver posts nothing; a queue has at least one place.
const NOTHING_POSTED: u32 = 1;

/// A sender one way and a receiver the other way.
pub(crate) struct Paper {
    pool: Arc<PaperPool>,
    sender: PaperSender,
    receiver: PaperReceiver,
    received: Option<PaperBlock>,
    packet: u16,
    wait: Wait,
    role: Role,
    _way_in: QueuePair,
    _context: Arc<dyn Context>,
}

impl Paper {
    /// Opens the device, exchanges addresses and connects both ways.
    pub(crate) fn new(job: &Job, role: Role, control: &mut Control) -> Result<Paper> {
        let (out_blocks, in_blocks) = match role {
            Role::Source => (job.blocks, job.back_blocks()),
            Role::Collector => (job.back_blocks(), job.blocks),
        };
        let context = ShmProvider::new().open("shm0")?;
        let pd = context.alloc_pd()?;
        let mut out = QueuePair::new(&*context, &*pd, MAX_SEND_WR, COMPLETIONS)?;
        let mut way_in = QueuePair::new(&*context, &*pd, NOTHING_POSTED, NOTHING_POSTED)?;
        let (receiver, ring) = receiver(&*pd, layout(job, in_blocks)?)?;
        let ring = connect(control, &mut out, &mut way_in, &*ring)?;
        let ring = PaperRing {
            addr: ring.addr,
            rkey: ring.rkey,
        };
        let pool = pool(&*pd, layout(job, out_blocks)?)?;
        Ok(Paper {
            sender: PaperSender::new(out.qp, out.cq, Arc::clone(&pool), ring),
            pool,
            receiver,
            received: None,
            packet: 0,
            wait: job.wait,
            role,
            _way_in: way_in,
            _context: context,
        })
    }

    fn fill(&mut self, content: Option<&[u8]>) -> Result<()> {
        let header = PaperHeader {
            device: 0,
            packet: self.packet,
        };
        self.packet = self.packet.wrapping_add(1);
        loop {
            let filled = match content {
                Some(content) => self.pool.fill(header, content),
                // The block still has the data of the twin run.
                None => self.pool.fill_with(header, |_| {}),
            };
            match filled {
                Ok(_) => return Ok(()),
                Err(FillError::WouldBlock) => self.wait.pause(),
                Err(error) => return Err(error.into()),
            }
        }
    }

    #[inline]
    fn take(&self) -> PaperBlock {
        loop {
            match self.receiver.poll() {
                Some(block) => return block,
                None => self.wait.pause(),
            }
        }
    }
}

impl StatusBytes for Paper {
    fn reads(&self) -> u64 {
        self.sender.stats().status_reads
    }

    fn read(&mut self) -> Result<()> {
        let mut step = self.sender.refresh()?;
        while step == PaperStep::Busy {
            self.wait.pause();
            step = self.sender.step()?;
        }
        Ok(())
    }
}

impl Link for Paper {
    #[inline]
    fn send(&mut self, content: Option<&[u8]>) -> Result<()> {
        self.fill(content)?;
        let mut looked = false;
        loop {
            match self.sender.step()? {
                PaperStep::Sent(_) => return Ok(()),
                // A second look at once would mostly see the same.
                PaperStep::Synced if looked => self.wait.pause(),
                PaperStep::Synced => looked = true,
                PaperStep::Busy => self.wait.pause(),
                PaperStep::NoData => bail!("the paper's sender does not see the filled block"),
            }
        }
    }

    #[inline]
    fn recv(&mut self, content: Option<&mut Vec<u8>>) -> Result<()> {
        let block = self.take();
        look_at(block.payload(), content)?;
        self.received = Some(block);
        Ok(())
    }

    fn status_bytes(&mut self) -> Option<&mut dyn StatusBytes> {
        Some(self)
    }

    fn queues(&self) -> Option<Queues> {
        Some(match self.role {
            Role::Source => QueuePair::queues(MAX_SEND_WR, COMPLETIONS),
            Role::Collector => QueuePair::queues(NOTHING_POSTED, NOTHING_POSTED),
        })
    }

    #[inline]
    fn give_back(&mut self) -> Result<()> {
        self.received = None;
        Ok(())
    }
}

fn layout(job: &Job, blocks: usize) -> Result<PaperLayout> {
    let blocks = u32::try_from(blocks)?;
    Ok(PaperLayout::new(blocks, u32::try_from(job.bytes)?)?)
}

fn receiver(pd: &dyn Pd, layout: PaperLayout) -> Result<(PaperReceiver, Arc<dyn Mr>)> {
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let ring = pd.alloc_mr(layout.total_bytes(), rights)?;
    Ok((PaperReceiver::new(Arc::clone(&ring), layout, true)?, ring))
}

fn pool(pd: &dyn Pd, layout: PaperLayout) -> Result<Arc<PaperPool>> {
    let local = |bytes| pd.alloc_mr(bytes, Access::LOCAL_WRITE);
    let blocks = local(PaperPool::blocks_bytes(&layout))?;
    let control = local(PaperPool::control_bytes(&layout))?;
    Ok(PaperPool::new(blocks, control, layout)?)
}
