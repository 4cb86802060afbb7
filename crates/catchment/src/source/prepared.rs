//! A source's queue pair before it is connected, and how it becomes a link.
use super::driver::{self, Completions};
use super::link::Link;
use super::proof::{self, ProofError};
use crate::observe::QueueSizes;
use crate::session::refusal::{Refusal, RefusalCode};
use catchment_granting::{Granting, NewLink};
use catchment_transfer::{
    CopyMemory, Permit, PostingGate, QueueLimits, RemoteRing, Sender, SenderError, SenderOptions,
};
use catchment_verbs::{
    Access, CompletionChannel, Context, Cq, Endpoint, ModifyError, Pd, Qp, QpInit, QpTransition,
    RtrAttr, RtsAttr, VerbsError,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Send requests outstanding at once where blocks are copied, if nothing else is said.
pub const SEND_WRS: u32 = 256;
/// Send requests for each place in the completion queue: those between are unsignaled.
const WRS_PER_COMPLETION: u32 = 4;
/// Receives: frames come and go by WRITEs and READs only.
const RECEIVES: u32 = 0;
/// Inline bytes of a request: status bytes of neighbouring blocks.
const INLINE_BYTES: u32 = 64;

/// A queue pair that may be offered to the collector.
pub struct Prepared {
    pd: Arc<dyn Pd>,
    cq: Arc<dyn Cq>,
    qp: Box<dyn Qp>,
    direct: bool,
    max_send_wr: u32,
    max_message_bytes: u64,
    max_inline_bytes: u32,
    /// Bytes that a packet counts besides its payload, where the rate can be limited.
    overhead_bytes: Option<u32>,
    /// Where completions are announced, if requests take time.
    channel: Option<Arc<dyn CompletionChannel>>,
}

/// What a queue pair is to be connected to.
pub struct Target {
    /// The collector's queue pair, with what the session has agreed on.
    pub endpoint: Endpoint,
    /// Its memory.
    pub ring: RemoteRing,
    /// Of the path, if it leaves this host: then it is proven.
    pub path_mtu: Option<u32>,
    /// Set once the result is no longer wanted.
    pub cancelled: Arc<AtomicBool>,
}

/// How frames travel over a link.
pub(super) struct LinkOptions {
    pub(super) epoch: u64,
    pub(super) streams: u32,
    pub(super) in_place: bool,
    pub(super) permit: Option<Arc<dyn Permit>>,
    pub(super) checksum: bool,
    pub(super) granting: Option<Arc<Granting>>,
}

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The provider refused.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// The queue pair did not change its state.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// The ring and the queue pair do not fit.
    #[error(transparent)]
    Sender(#[from] SenderError),
    /// Packets do not pass.
    #[error(transparent)]
    Proof(#[from] ProofError),
    /// The operating system refused a thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

impl LinkError {
    /// Returns the refusal for the collector where the path failed.
    pub fn refusal(&self) -> Refusal {
        let remedy = "fix the path between the two, or let the source try another one";
        Refusal::new(RefusalCode::PathFailed, self.to_string(), remedy)
    }

    /// The path MTU that did not pass, although smaller packets did.
    pub fn too_large(&self) -> Option<u32> {
        let Self::Proof(ProofError::TooLarge { path_mtu, .. }) = self else { return None };
        Some(*path_mtu)
    }
}

impl Prepared {
    /// Makes a queue pair in state INIT, on which so many requests may be outstanding.
    pub fn new(context: &Arc<dyn Context>, max_send_wr: u32) -> Result<Self, LinkError> {
        let pd = context.alloc_pd()?;
        let caps = context.caps();
        let direct = caps.direct;
        let max_inline_bytes = INLINE_BYTES.min(caps.max_inline_bytes);
        let channel = (!direct).then(|| context.create_channel()).transpose()?;
        let completions = (max_send_wr / WRS_PER_COMPLETION).max(1);
        let cq = context.create_cq(completions, channel.clone())?;
        let mut qp = pd.create_qp(QpInit {
            max_inline_bytes,
            strict: caps.strict_capacity,
            ..QpInit::rc(&cq, max_send_wr, RECEIVES)
        })?;
        qp.modify(QpTransition::ToInit { access: Access::empty() })?;
        Ok(Self {
            pd,
            cq,
            qp,
            direct,
            max_send_wr,
            max_message_bytes: caps.max_message_bytes,
            max_inline_bytes,
            overhead_bytes: caps.rate.map(|rate| rate.packet_overhead_bytes),
            channel,
        })
    }

    /// Returns this side's address, for the collector.
    pub fn endpoint(&self) -> Endpoint {
        self.qp.endpoint()
    }

    /// What its queues hold.
    pub fn queues(&self) -> QueueSizes {
        QueueSizes { send: self.max_send_wr, receive: RECEIVES, completions: self.cq.capacity() }
    }

    /// Connects to the collector's queue pair, which is ready by now, and proves that packets pass.
    /// Blocks as long as that takes.
    pub fn reach(&mut self, target: &Target) -> Result<(), LinkError> {
        let peer = target.endpoint;
        self.qp.modify(QpTransition::ToRtr(RtrAttr::new(peer)))?;
        self.qp.modify(QpTransition::ToRts(RtsAttr::default()))?;
        let Some(path_mtu) = target.path_mtu else { return Ok(()) };
        let cancelled = || target.cancelled.load(Ordering::Relaxed);
        let local = self.qp.endpoint();
        let mut proof = proof::PathProof {
            cq: &*self.cq,
            qp: &mut *self.qp,
            ring: &target.ring,
            ends: (local, peer),
            cancelled: &cancelled,
        };
        Ok(proof.prove(&*self.pd, path_mtu)?)
    }

    /// The same, and makes all ready for frames.
    pub(super) fn connect(
        mut self,
        target: Target,
        options: &LinkOptions,
    ) -> Result<Arc<Link>, LinkError> {
        self.reach(&target)?;
        let ring = target.ring;
        let sending = SenderOptions {
            max_streams: options.streams,
            quota: quota(ring.layout.blocks(), options.streams),
            ..SenderOptions::default()
        };
        let quota = sending.quota as usize;
        let completions =
            self.channel.take().map(|channel| Completions { cq: self.cq.clone(), channel });
        let (wire_factor, paces) =
            (self.wire_factor(target.path_mtu), self.overhead_bytes.is_some());
        let gate = options.granting.as_ref().map(|granting| granting.gate(ring.layout.blocks()));
        // What is filled in place cannot be held.
        let sender = if options.in_place && self.direct && gate.is_none() {
            Sender::in_place(self.qp, self.cq, ring, options.epoch, sending)?
        } else {
            self.copying(ring, options.epoch, sending)?
        };
        let sender = match &options.permit {
            Some(permit) => sender.with_permit(Arc::clone(permit)),
            None => sender,
        };
        let sender = match &gate {
            Some(gate) => sender.with_gate(Arc::clone(gate) as Arc<dyn PostingGate>),
            None => sender,
        };
        if let (Some(granting), Some(gate)) = (&options.granting, &gate) {
            let (gate, sender) = (gate.clone(), sender.clone());
            let is_immediate = completions.is_none();
            granting.add(NewLink { gate, sender, wire_factor, paces, is_immediate });
        }
        let channel = completions.as_ref().map(|c| Arc::clone(&c.channel));
        let link = Arc::new(Link::new(sender, quota, options.checksum, channel, gate));
        if let Some(completions) = completions {
            driver::start(&link, completions).map_err(LinkError::Thread)?;
        }
        Ok(link)
    }

    /// Returns how many bytes the rate of the queue pair counts for each byte of payload.
    fn wire_factor(&self, path_mtu: Option<u32>) -> f64 {
        let mtu = f64::from(path_mtu.unwrap_or(4096));
        1.0 + f64::from(self.overhead_bytes.unwrap_or(0)) / mtu
    }

    fn copying(
        self,
        ring: RemoteRing,
        epoch: u64,
        options: SenderOptions,
    ) -> Result<Sender, LinkError> {
        let layout = ring.layout;
        let bytes = layout.blocks() as usize * layout.block_bytes() as usize;
        let memory = CopyMemory {
            blocks: self.pd.alloc_mr(bytes, Access::LOCAL_WRITE)?,
            status: self.pd.alloc_mr(layout.status_bytes(), Access::LOCAL_WRITE)?,
        };
        let limits = QueueLimits {
            max_send_wr: self.max_send_wr,
            max_inline_bytes: self.max_inline_bytes,
            max_message_bytes: self.max_message_bytes,
        };
        Ok(Sender::copying(self.qp, self.cq, limits, memory, ring, epoch, options)?)
    }
}

/// Blocks that one stream may have outstanding: its share, and at least one. So a slow device
/// leaves the others theirs.
fn quota(blocks: u32, streams: u32) -> u32 {
    (blocks / streams.max(1)).max(1)
}
