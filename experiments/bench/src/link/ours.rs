//! Catchment's own transfer over the provider for processes of one host.
//!
//! Each way has a ring at its receiver and a queue pair. Blocks carry no checksum and no capture
//! time: no other mechanism here computes one.
use super::queue_pair::{MAX_INLINE_BYTES, QueuePair, connect};
use super::{Link, Prepared, StatusBytes, look_at};
use crate::control::Control;
use crate::job::{Job, Queues, Role, Wait};
use crate::mechanism::What;
use anyhow::Result;
use catchment_provider_shm::ShmProvider;
use catchment_transfer::{
    BlockMeta, CopyMemory, QueueLimits, ReceivedBlock, Receiver, ReceiverOptions, Refill,
    RemoteRing, ReserveError, RingLayout, Sender, SenderOptions, Waiter, WriteBlock,
};
use catchment_verbs::{Access, Context, Pd, Provider};
use std::sync::Arc;

const EPOCH: u64 = 0x0ddc_0ffe_e15e_55ed;
const LIMITS: QueueLimits = QueueLimits {
    max_send_wr: 128,
    max_inline_bytes: MAX_INLINE_BYTES,
    max_message_bytes: u64::MAX,
};

/// A sender one way and a receiver the other way.
pub(crate) struct Ours {
    sender: Sender,
    receiver: Receiver,
    received: Option<ReceivedBlock>,
    waiter: Waiter,
    /// What is copied into the peer's block; nothing where blocks of our own are sent.
    prepared: Option<Prepared>,
    bytes: usize,
    packet_number: u64,
    wait: Wait,
    _way_in: QueuePair,
    _context: Arc<dyn Context>,
}

impl Ours {
    /// Opens the device, exchanges addresses and connects both ways.
    pub(crate) fn new(job: &Job, role: Role, control: &mut Control) -> Result<Ours> {
        let (out_blocks, in_blocks) = match role {
            Role::Source => (job.blocks, job.back_blocks()),
            Role::Collector => (job.back_blocks(), job.blocks),
        };
        let context = ShmProvider::new().open("shm0")?;
        let pd = context.alloc_pd()?;
        let mut out = QueuePair::new(&*context, &*pd, LIMITS.max_send_wr, LIMITS.max_send_wr)?;
        let mut way_in = QueuePair::new(&*context, &*pd, LIMITS.max_send_wr, LIMITS.max_send_wr)?;
        let receiver = receiver(&*pd, layout(job, in_blocks)?)?;
        let ring = connect(control, &mut out, &mut way_in, &**receiver.mr())?;
        let remote = RemoteRing {
            addr: ring.addr,
            rkey: ring.rkey,
            layout: layout(job, out_blocks)?,
        };
        let copies = job.what != What::OursInPlace;
        Ok(Ours {
            sender: sender(&*pd, job, out, remote)?,
            receiver,
            received: None,
            waiter: Waiter::new(job.wait.policy(), crate::host::cores()),
            prepared: (!copies).then(|| Prepared::new(job.bytes, out_blocks)),
            bytes: job.bytes,
            packet_number: 0,
            wait: job.wait,
            _way_in: way_in,
            _context: context,
        })
    }

    #[inline]
    fn reserve(&self) -> Result<WriteBlock> {
        loop {
            match self.sender.reserve(0, self.bytes as u32) {
                Ok(block) => return Ok(block),
                Err(ReserveError::WouldBlock) => self.wait.pause(),
                Err(error) => return Err(error.into()),
            }
        }
    }

    #[inline]
    fn take(&mut self) -> Result<ReceivedBlock> {
        loop {
            let found = if self.waiter.wants_complete_poll() {
                self.receiver.poll()?
            } else {
                self.receiver.poll_next()?
            };
            if let Some(block) = found {
                self.waiter.found();
                return Ok(block);
            }
            self.waiter.empty();
            self.wait.pause();
        }
    }
}

impl StatusBytes for Ours {
    fn reads(&self) -> u64 {
        self.sender.stats().status_reads
    }

    fn read(&mut self) -> Result<()> {
        // The provider has done a READ when it is posted, and the sender takes its completion.
        Ok(self.sender.refresh()?)
    }
}

impl Link for Ours {
    #[inline]
    fn send(&mut self, content: Option<&[u8]>) -> Result<()> {
        let mut block = self.reserve()?;
        match (content, &mut self.prepared) {
            (Some(content), _) => block.write_at(0, content)?,
            (None, Some(prepared)) => block.write_at(0, prepared.take())?,
            (None, None) => {}
        }
        let meta = BlockMeta {
            packet_number: self.packet_number,
            frame_bytes: self.bytes as u64,
            ..BlockMeta::default()
        };
        self.packet_number += 1;
        block.commit(&meta, false)?;
        Ok(())
    }

    #[inline]
    fn recv(&mut self, content: Option<&mut Vec<u8>>) -> Result<()> {
        let block = self.take()?;
        look_at(block.payload(), content)?;
        self.received = Some(block);
        Ok(())
    }

    fn status_bytes(&mut self) -> Option<&mut dyn StatusBytes> {
        Some(self)
    }

    fn queues(&self) -> Option<Queues> {
        // Both ways have the same.
        Some(QueuePair::queues(LIMITS.max_send_wr, LIMITS.max_send_wr))
    }

    #[inline]
    fn give_back(&mut self) -> Result<()> {
        self.received = None;
        Ok(())
    }
}

fn layout(job: &Job, blocks: usize) -> Result<RingLayout> {
    let block_bytes = RingLayout::block_bytes_for(u32::try_from(job.bytes)?)?;
    Ok(RingLayout::new(u32::try_from(blocks)?, block_bytes)?)
}

fn receiver(pd: &dyn Pd, layout: RingLayout) -> Result<Receiver> {
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let ring = pd.alloc_mr(layout.total_bytes(), rights)?;
    Ok(Receiver::new(
        ring,
        layout,
        EPOCH,
        ReceiverOptions::default(),
    )?)
}

/// What the two rows are about; nothing else has a policy of its own.
fn refill(job: &Job) -> Option<Refill> {
    let ahead = Refill::Ahead {
        threshold: job.blocks as u32 / 2,
    };
    if job.what == What::StatusReadPrefetched {
        return Some(ahead);
    }
    (job.what == What::StatusReadWhenEmpty).then_some(Refill::WhenEmpty)
}

fn sender(pd: &dyn Pd, job: &Job, out: QueuePair, remote: RemoteRing) -> Result<Sender> {
    let options = SenderOptions {
        refill: refill(job),
        ..SenderOptions::default()
    };
    if job.what == What::OursInPlace {
        return Ok(Sender::in_place(out.qp, out.cq, remote, EPOCH, options)?);
    }
    let layout = remote.layout;
    let blocks = layout.blocks() as usize * layout.block_bytes() as usize;
    let memory = CopyMemory {
        blocks: pd.alloc_mr(blocks, Access::empty())?,
        status: pd.alloc_mr(layout.status_bytes(), Access::LOCAL_WRITE)?,
    };
    Ok(Sender::copying(
        out.qp, out.cq, LIMITS, memory, remote, EPOCH, options,
    )?)
}
