//! The product's mechanism behind the common interface: a thin shell with nothing of its own.
use super::mechanism::{Features, Mechanism, ReceiveEnd, SendEnd, Shape, TakenBlock};
use super::port::{EndNeeds, MemoryNeed, Offer, Port, QueueNeeds};
use super::setup_error::SetupError;
use catchment_channel::{ClaimError, Counts, EndError, Tag};
use catchment_transfer::{
    BlockMeta, Broken, CommitFailure, CopyMemory, LayoutError, PeerMisbehaved, QueueLimits,
    ReceivedBlock, Receiver, ReceiverOptions, RemoteRing, ReserveError, RingLayout, Sender,
    SenderOptions, WriteBlock,
};
use catchment_verbs::mem::VolatileSlice;
use catchment_verbs::{Access, Qp, Watch};
use std::sync::Arc;

/// How blocks get into the receiver's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyMode {
    /// They are filled there ([`catchment_verbs::Caps::direct`]).
    InPlace,
    /// They are filled in send blocks and written by requests.
    Copy,
}

/// The product's status-byte mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusByte {
    /// Its sizes.
    pub shape: Shape,
    /// How blocks get into the receiver's memory.
    pub mode: CopyMode,
    /// Send requests outstanding at once; one more than a block has WRITEs, at least 2.
    pub max_send_wr: u32,
    /// Completions of them; at least 1.
    pub send_cqe: u32,
    /// When to look for released slots, and quotas.
    pub options: SenderOptions,
    /// Number of the session: the same at both ends.
    pub epoch: u64,
    /// Whether each block has a CRC32C, by which the receiver takes it.
    pub has_crc: bool,
}

impl StatusByte {
    /// Returns it with the queues and options that the product has.
    pub fn new(shape: Shape, mode: CopyMode) -> Self {
        Self {
            shape,
            mode,
            max_send_wr: 128,
            send_cqe: 64,
            options: SenderOptions::default(),
            epoch: 1,
            has_crc: false,
        }
    }

    fn layout(&self) -> Result<RingLayout, LayoutError> {
        RingLayout::new(self.shape.blocks, RingLayout::block_bytes_for(self.shape.payload_bytes)?)
    }
}

/// Where the status bytes go is at most as long as this inline.
const MAX_INLINE_BYTES: u32 = 16;

impl Mechanism for StatusByte {
    type Sender = StatusByteSender;
    type Receiver = StatusByteReceiver;

    fn shape(&self) -> Shape {
        self.shape
    }

    fn features(&self) -> Features {
        Features {
            any_length: true,
            in_order: false,
            out_of_order_release: true,
            many_claims: true,
            stream_bits: 32,
            packet_bits: 64,
        }
    }

    fn sender_needs(&self) -> Result<EndNeeds, LayoutError> {
        let layout = self.layout()?;
        let copies = [
            MemoryNeed::new(
                "send blocks",
                layout.blocks() as usize * layout.block_bytes() as usize,
                Access::empty(),
            ),
            MemoryNeed::new("copy of the status bytes", layout.status_bytes(), Access::LOCAL_WRITE),
        ];
        Ok(EndNeeds {
            queues: QueueNeeds {
                max_send_wr: self.max_send_wr,
                max_recv_wr: 0,
                send_cqe: self.send_cqe,
                recv_cqe: 0,
                max_inline_bytes: MAX_INLINE_BYTES,
            },
            memory: match self.mode {
                CopyMode::InPlace => Vec::new(),
                CopyMode::Copy => copies.to_vec(),
            },
        })
    }

    fn receiver_needs(&self) -> Result<EndNeeds, LayoutError> {
        Ok(EndNeeds::passive(self.layout()?.total_bytes()))
    }

    fn sender(&self, port: Port, peer: &Offer) -> Result<StatusByteSender, SetupError> {
        let layout = self.layout()?;
        let ring = peer.memory(0, "the ring", layout.total_bytes())?;
        let remote = RemoteRing { addr: ring.addr, rkey: ring.rkey, layout };
        let (epoch, options) = (self.epoch, self.options);
        let sender = match self.mode {
            CopyMode::InPlace => Sender::in_place(port.qp, port.send_cq, remote, epoch, options)?,
            CopyMode::Copy => {
                let limits = QueueLimits {
                    max_send_wr: port.queues.max_send_wr,
                    max_inline_bytes: port.queues.max_inline_bytes,
                    max_message_bytes: port.max_message_bytes,
                };
                let memory = CopyMemory {
                    blocks: port.mr(0, "send blocks", 0)?,
                    status: port.mr(1, "the copy of the status bytes", 0)?,
                };
                let (qp, cq) = (port.qp, port.send_cq);
                Sender::copying(qp, cq, limits, memory, remote, epoch, options)?
            }
        };
        Ok(StatusByteSender { sender, has_crc: self.has_crc })
    }

    fn receiver(&self, port: Port, _: &Offer) -> Result<StatusByteReceiver, SetupError> {
        let ring = port.mr(0, "the ring", 0)?;
        let options = ReceiverOptions { crc_decides: self.has_crc };
        let receiver = Receiver::new(ring, self.layout()?, self.epoch, options)?;
        Ok(StatusByteReceiver {
            receiver: Arc::new(receiver),
            _qp: Arc::new(std::sync::Mutex::new(port.qp)),
        })
    }
}

/// The product's [`Sender`]. Clones are handles to the same one, for threads of their own.
#[derive(Clone)]
pub struct StatusByteSender {
    sender: Sender,
    has_crc: bool,
}

impl StatusByteSender {
    /// Returns the product's type.
    pub fn inner(&self) -> &Sender {
        &self.sender
    }
}

impl SendEnd for StatusByteSender {
    type Claim = WriteBlock;

    #[inline]
    fn claim(&mut self, stream: u32, bytes: u32) -> Result<WriteBlock, ClaimError> {
        self.sender.reserve(stream, bytes).map_err(not_claimed)
    }

    #[inline]
    fn memory<'a>(&'a self, claim: &'a WriteBlock) -> VolatileSlice<'a> {
        claim.memory()
    }

    #[inline]
    fn commit(&mut self, claim: WriteBlock, packet: u64) -> Result<(), EndError> {
        let meta = BlockMeta {
            packet_number: packet,
            frame_bytes: u64::from(claim.bytes()),
            ..BlockMeta::default()
        };
        claim.commit(&meta, self.has_crc).map_err(|e| not_sent(e.reason))
    }

    fn progress(&mut self) -> Result<(), EndError> {
        self.sender.progress().map_err(broken)
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        self.sender.free_watch()
    }

    /// An interaction a block, and one for every look at the status bytes.
    fn counts(&self) -> Counts {
        let stats = self.sender.stats();
        Counts {
            blocks: stats.blocks,
            payload_bytes: stats.payload_bytes,
            interactions: stats.blocks + stats.status_reads,
            would_blocks: stats.would_blocks + stats.quota_refusals,
        }
    }
}

/// The product's [`Receiver`]. Clones are handles to the same one, for threads of their own.
#[derive(Clone)]
pub struct StatusByteReceiver {
    receiver: Arc<Receiver>,
    /// The connection lives as long as its queue pair.
    _qp: Arc<std::sync::Mutex<Box<dyn Qp>>>,
}

impl StatusByteReceiver {
    /// Returns the product's type.
    pub fn inner(&self) -> &Receiver {
        &self.receiver
    }
}

impl ReceiveEnd for StatusByteReceiver {
    type Block = ReceivedBlock;

    #[inline]
    fn take(&mut self) -> Result<Option<ReceivedBlock>, EndError> {
        self.receiver.poll().map_err(misbehaved)
    }

    #[inline]
    fn take_next(&mut self) -> Result<Option<ReceivedBlock>, EndError> {
        self.receiver.poll_next().map_err(misbehaved)
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        self.receiver.watch()
    }

    fn counts(&self) -> Counts {
        let stats = self.receiver.stats();
        Counts { blocks: stats.blocks, payload_bytes: stats.payload_bytes, ..Counts::default() }
    }
}

impl TakenBlock for ReceivedBlock {
    #[inline]
    fn tag(&self) -> Tag {
        Tag { stream: self.header().stream, packet: self.header().packet_number }
    }

    #[inline]
    fn payload(&self) -> VolatileSlice<'_> {
        Self::payload(self)
    }

    fn hold(&mut self) {
        Self::hold(self);
    }
}

fn broken(broken: Broken) -> EndError {
    match broken {
        Broken::Completion(status) => EndError::Completion(status),
        Broken::Post(error) => EndError::Post(error),
        Broken::Cq(error) => EndError::Cq(error),
        Broken::PeerGone => EndError::PeerGone,
        _ => EndError::Closed,
    }
}

fn misbehaved(fault: PeerMisbehaved) -> EndError {
    EndError::Peer(fault.into())
}

fn not_claimed(error: ReserveError) -> ClaimError {
    match error {
        // A share of the blocks is used up, or a permit says to wait: ask again later.
        ReserveError::WouldBlock | ReserveError::Quota { .. } | ReserveError::Paused => {
            ClaimError::WouldBlock
        }
        ReserveError::TooLong { asked, limit } => {
            ClaimError::Length { asked, limit, exactly: false }
        }
        ReserveError::Stream { stream, limit } => ClaimError::Stream { stream, limit },
        ReserveError::Broken(reason) => ClaimError::End(broken(reason)),
        ReserveError::Refused(_) | _ => ClaimError::End(EndError::Closed),
    }
}

fn not_sent(failure: CommitFailure) -> EndError {
    match failure {
        CommitFailure::Broken(reason) => broken(reason),
        CommitFailure::Meta(reason) => EndError::Packet(reason),
        _ => EndError::Closed,
    }
}
