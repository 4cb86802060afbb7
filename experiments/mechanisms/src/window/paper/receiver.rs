//! The receiving end.
use super::{Immediate, ImmediateFormat};
use crate::paper::{INSIDE, PaperHeader, PaperLayout};
use crate::{
    Counts, EndError, FirstError, InTurn, PeerFault, Port, ReceiveEnd, SetupError, Tag, TakenBlock,
};
use catchment_verbs::mem::VolatileSlice;
use catchment_verbs::wait::CqWatch;
use catchment_verbs::{
    Completion, Cq, Mr, Payload, Qp, RecvWr, RemoteAddr, SendOp, SendWr, Success, Watch, WcOpcode,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const RECEIVE: RecvWr<'static> = RecvWr { wr_id: 0, sges: &[] };

/// The receiving end of [`super::SwPaper`]. One thread at a time takes blocks; any thread releases
/// them, and they are acknowledged in turn.
pub struct SwPaperReceiver {
    shared: Arc<Shared>,
    format: ImmediateFormat,
    cq: Arc<dyn Cq>,
    watch: Arc<dyn Watch>,
    /// Blocks taken.
    taken: u64,
    counts: Counts,
}

struct Shared {
    layout: PaperLayout,
    memory: Arc<dyn Mr>,
    /// Whether the block in a position was released and not acknowledged.
    given_back: Box<[AtomicBool]>,
    /// Blocks acknowledged. Only the thread that has the link moves it.
    acknowledged: AtomicU64,
    /// The empty WRITE has completed.
    flushed: AtomicBool,
    link: InTurn<Link>,
    broken: FirstError,
}

struct Link {
    qp: Box<dyn Qp>,
    max_send_wr: u32,
    /// Requests posted since the last signaled one completed.
    posted: u32,
    /// The signaled one was posted.
    flushing: bool,
}

impl SwPaperReceiver {
    pub(super) fn new(layout: PaperLayout, mut port: Port) -> Result<Self, SetupError> {
        let memory = port.mr(0, "the blocks", layout.blocks_bytes())?;
        for _ in 0..layout.blocks() {
            port.qp.post_recv(&[RECEIVE])?;
        }
        let link =
            Link { qp: port.qp, max_send_wr: port.queues.max_send_wr, posted: 0, flushing: false };
        let given_back = (0..layout.blocks()).map(|_| AtomicBool::new(false));
        let watch = CqWatch::new(Arc::clone(&port.recv_cq), port.channel);
        Ok(Self {
            shared: Arc::new(Shared {
                layout,
                memory,
                given_back: given_back.collect(),
                acknowledged: AtomicU64::new(0),
                flushed: AtomicBool::new(false),
                link: InTurn::new(link),
                broken: FirstError::default(),
            }),
            format: ImmediateFormat::new(layout.blocks()),
            cq: port.recv_cq,
            watch: Arc::new(watch),
            taken: 0,
            counts: Counts::default(),
        })
    }

    /// Returns the block announced by an immediate.
    fn announced(&self, success: &Success) -> Result<Immediate, PeerFault> {
        let (WcOpcode::RecvWriteImm, Some(value)) = (success.opcode, success.imm) else {
            return Err(PeerFault::Message(success.bytes));
        };
        let error = PeerFault::Immediate(value);
        let immediate = self.format.decode(value).ok_or(error)?;
        let layout = &self.shared.layout;
        let next = (self.taken % u64::from(layout.blocks())) as u32;
        let written = u64::from(immediate.bytes) + PaperLayout::HEADER_BYTES as u64;
        let fits = immediate.bytes <= layout.payload_bytes() && success.bytes == written;
        if immediate.position == next && fits {
            return Ok(immediate);
        }
        Err(error)
    }

    fn poll(&mut self) -> Result<Option<SwPaperBlock>, EndError> {
        let mut out = [Completion::EMPTY];
        while self.cq.poll(&mut out)? > 0 {
            let [completion] = out;
            let success = completion.result.map_err(EndError::from)?;
            if success.opcode == WcOpcode::Write {
                self.shared.flushed.store(true, Ordering::Release);
                self.shared.acknowledge();
                continue;
            }
            return Ok(Some(self.block(self.announced(&success)?)?));
        }
        Ok(None)
    }

    fn block(&mut self, immediate: Immediate) -> Result<SwPaperBlock, EndError> {
        let acknowledged = self.shared.acknowledged.load(Ordering::Acquire);
        if self.taken - acknowledged >= u64::from(self.shared.layout.blocks()) {
            return Err(PeerFault::Overwritten(immediate.position).into());
        }
        let mut header = [0; PaperLayout::HEADER_BYTES];
        self.shared.block(immediate.position).read_at(0, &mut header).expect(INSIDE);
        self.taken += 1;
        self.counts.add_block(immediate.bytes.into());
        Ok(SwPaperBlock {
            shared: Arc::clone(&self.shared),
            header: PaperHeader::decode(header),
            immediate,
        })
    }
}

impl ReceiveEnd for SwPaperReceiver {
    type Block = SwPaperBlock;

    fn take(&mut self) -> Result<Option<SwPaperBlock>, EndError> {
        self.shared.broken.check()?;
        self.poll().map_err(|error| self.shared.broken.set(error))
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        Some(Arc::clone(&self.watch))
    }

    fn counts(&self) -> Counts {
        Counts { interactions: self.shared.acknowledged.load(Ordering::Relaxed), ..self.counts }
    }
}

impl Shared {
    fn block(&self, position: u32) -> VolatileSlice<'_> {
        let offset = position as usize * self.layout.stride();
        self.memory.region().slice(offset, self.layout.wire_bytes() as usize).expect(INSIDE)
    }

    fn give_back(&self, position: u32) {
        self.given_back[position as usize].store(true, Ordering::Release);
        self.acknowledge();
    }

    /// Returns whether something can be acknowledged, or an empty WRITE has completed.
    fn is_due(&self) -> bool {
        let next = self.acknowledged.load(Ordering::Relaxed) % u64::from(self.layout.blocks());
        let given_back = self.given_back[next as usize].load(Ordering::SeqCst);
        given_back || self.flushed.load(Ordering::SeqCst)
    }

    /// Acknowledges what was released in turn.
    fn acknowledge(&self) {
        let is_more_due = |rest| match rest {
            Rest::Nothing => self.is_due(),
            Rest::AfterFlush => self.flushed.load(Ordering::SeqCst),
        };
        if let Err(error) = self.link.work(|link| self.acknowledge_with(link), is_more_due) {
            self.broken.set(error);
        }
    }

    fn acknowledge_with(&self, link: &mut Link) -> Result<Rest, EndError> {
        if self.flushed.swap(false, Ordering::AcqRel) {
            link.posted = 0;
            link.flushing = false;
        }
        loop {
            let acknowledged = self.acknowledged.load(Ordering::Relaxed);
            let position = (acknowledged % u64::from(self.layout.blocks())) as u32;
            let given_back = &self.given_back[position as usize];
            if !given_back.load(Ordering::Acquire) {
                return Ok(Rest::Nothing);
            }
            if link.flushing {
                return Ok(Rest::AfterFlush);
            }
            if link.is_nearly_full() {
                link.flush()?;
                continue;
            }
            given_back.store(false, Ordering::Relaxed);
            // Before the acknowledgement: the sender may write as soon as it has that.
            self.acknowledged.store(acknowledged + 1, Ordering::Release);
            link.qp.post_recv(&[RECEIVE])?;
            link.acknowledge(position)?;
        }
    }
}

/// What is left to acknowledge.
enum Rest {
    Nothing,
    /// It must wait for the empty WRITE.
    AfterFlush,
}

impl Link {
    /// Returns whether only the entry for the empty WRITE is left.
    fn is_nearly_full(&self) -> bool {
        self.posted > 0 && self.posted + 1 >= self.max_send_wr
    }

    fn acknowledge(&mut self, position: u32) -> Result<(), EndError> {
        let bytes = position.to_be_bytes();
        self.qp.post_send(&[SendWr::new(0, SendOp::Send, Payload::Inline(&bytes)).unsignaled()])?;
        self.posted += 1;
        Ok(())
    }

    /// Posts a WRITE of nothing, whose completion frees the whole send queue. Its entry in the
    /// completion queue is that of the receive that is not reposted yet.
    fn flush(&mut self) -> Result<(), EndError> {
        let nowhere = RemoteAddr { addr: 0, rkey: 0 };
        let empty = SendWr::new(0, SendOp::Write(nowhere), Payload::Inline(&[]));
        self.qp.post_send(&[empty])?;
        self.posted += 1;
        self.flushing = true;
        Ok(())
    }
}

pub struct SwPaperBlock {
    shared: Arc<Shared>,
    header: PaperHeader,
    immediate: Immediate,
}

impl TakenBlock for SwPaperBlock {
    fn tag(&self) -> Tag {
        Tag { stream: self.header.device.into(), packet: self.header.packet.into() }
    }

    fn payload(&self) -> VolatileSlice<'_> {
        let block = self.shared.block(self.immediate.position);
        block.subslice(PaperLayout::HEADER_BYTES, self.immediate.bytes as usize).expect(INSIDE)
    }
}

impl Drop for SwPaperBlock {
    fn drop(&mut self) {
        self.shared.give_back(self.immediate.position);
    }
}
