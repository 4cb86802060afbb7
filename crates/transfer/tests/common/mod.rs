//! Two ends, connected, over the provider that the test file names.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::disallowed_methods,
    reason = "a test fails by panicking"
)]

use catchment_transfer::*;
use catchment_verbs::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const EPOCH: u64 = 0x5eed_0001;

/// One end: everything that a sender or a receiver is made of.
pub struct Side {
    pub context: Arc<dyn Context>,
    pub pd: Arc<dyn Pd>,
    pub cq: Arc<dyn Cq>,
    pub qp: Box<dyn Qp>,
}

pub fn side(send: u32, recv: u32, cq: u32) -> Side {
    side_at(crate::context(), [send, recv, cq])
}

/// As [`side`], at this device.
pub fn side_at(context: Arc<dyn Context>, capacities: [u32; 3]) -> Side {
    let pd = context.alloc_pd().unwrap();
    Side::new(context, pd, capacities)
}

impl Side {
    fn new(context: Arc<dyn Context>, pd: Arc<dyn Pd>, [send, recv, cq]: [u32; 3]) -> Self {
        let cq = context.create_cq(cq, None).unwrap();
        let init = QpInit { max_inline_bytes: 16, strict: true, ..QpInit::rc(&cq, send, recv) };
        Self { qp: pd.create_qp(init).unwrap(), context, pd, cq }
    }

    /// Connects to this peer.
    pub fn go_up(&mut self, peer: Endpoint) {
        self.qp.connect(Access::REMOTE, RtrAttr::new(peer), RtsAttr::default()).unwrap();
    }

    /// Another queue pair over the same context and memory.
    pub fn second(&self) -> Self {
        Self::new(Arc::clone(&self.context), Arc::clone(&self.pd), [1, 0, 1])
    }
}

pub fn connect(a: &mut Side, b: &mut Side) {
    let (ea, eb) = (a.qp.endpoint(), b.qp.endpoint());
    a.go_up(eb);
    b.go_up(ea);
}

/// How a sender moves blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    InPlace,
    Copy { send: u32, cq: u32 },
}

pub const COPY: Mode = Mode::Copy { send: 64, cq: 16 };

/// A sender and a receiver that belong together.
pub struct Pair {
    pub sender: Sender,
    pub receiver: Receiver,
    /// Keeps the receiver's end of the connection.
    pub collector: Collector,
}

/// The receiver's end without its ring.
pub struct Collector {
    pub context: Arc<dyn Context>,
    pub qp: Box<dyn Qp>,
    pub cq: Arc<dyn Cq>,
}

pub fn ring_mr(pd: &Arc<dyn Pd>, bytes: usize) -> Arc<dyn Mr> {
    pd.alloc_mr(bytes, Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ).unwrap()
}

/// The memory of a copying sender to a ring of this shape.
pub fn copy_memory(pd: &Arc<dyn Pd>, layout: &RingLayout) -> CopyMemory {
    let blocks = layout.blocks() as usize * layout.block_bytes() as usize;
    let mr = |bytes| pd.alloc_mr(bytes, Access::LOCAL_WRITE).unwrap();
    CopyMemory { blocks: mr(blocks), status: mr(layout.status_bytes()) }
}

pub fn make_sender(
    source: Side,
    remote: RemoteRing,
    mode: Mode,
    options: SenderOptions,
) -> Result<Sender, SenderError> {
    let layout = remote.layout;
    match mode {
        Mode::InPlace => Sender::in_place(source.qp, source.cq, remote, EPOCH, options),
        Mode::Copy { send, .. } => {
            let memory = copy_memory(&source.pd, &layout);
            let limits = QueueLimits {
                max_send_wr: send,
                max_inline_bytes: 16,
                max_message_bytes: source.context.caps().max_message_bytes,
            };
            Sender::copying(source.qp, source.cq, limits, memory, remote, EPOCH, options)
        }
    }
}

/// A receiver of a fresh ring, and the ring as its peer sees it.
pub fn ring(pd: &Arc<dyn Pd>, layout: RingLayout) -> (Receiver, RemoteRing) {
    let mr = ring_mr(pd, layout.total_bytes());
    let remote = RemoteRing { addr: mr.addr(), rkey: mr.rkey(), layout };
    (Receiver::new(mr, layout, EPOCH, ReceiverOptions::default()).unwrap(), remote)
}

pub fn pair_with(mode: Mode, layout: RingLayout, options: SenderOptions) -> Pair {
    let (send, cq) = match mode {
        Mode::InPlace => (2, 1),
        Mode::Copy { send, cq } => (send, cq),
    };
    let (mut source, mut collector) = (side(send, 0, cq), side(1, 0, 1));
    connect(&mut source, &mut collector);
    let (receiver, remote) = ring(&collector.pd, layout);
    Pair {
        sender: make_sender(source, remote, mode, options).unwrap(),
        receiver,
        collector: Collector { context: collector.context, qp: collector.qp, cq: collector.cq },
    }
}

pub fn pair(mode: Mode, blocks: u32, payload_bytes: u32) -> Pair {
    let block_bytes = RingLayout::block_bytes_for(payload_bytes).unwrap();
    pair_with(mode, RingLayout::new(blocks, block_bytes).unwrap(), SenderOptions::default())
}

/// Claims a block, however long it takes. Yields: the machine may have one processor.
pub fn reserve(sender: &Sender, stream: u32, bytes: u32) -> WriteBlock {
    loop {
        match sender.reserve(stream, bytes) {
            Ok(block) => return block,
            Err(ReserveError::WouldBlock | ReserveError::Quota { .. }) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Claims a block, fills it, and commits it as a whole frame of this number.
pub fn send(sender: &Sender, stream: u32, number: u64, payload: &[u8], crc: bool) {
    let mut block = reserve(sender, stream, payload.len() as u32);
    block.write_at(0, payload).unwrap();
    let meta = whole(number, block.bytes());
    block.commit(&meta, crc).unwrap();
}

/// Repeats a step until it returns something.
pub fn until<T>(what: &str, mut step: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = step() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// Takes a block, however long it takes.
pub fn receive(receiver: &Receiver) -> ReceivedBlock {
    until("no block came", || receiver.poll().unwrap())
}

/// Takes a block that this thread has committed, however long it takes: it posts the block, if that
/// found the queue full.
pub fn bring(sender: &Sender, receiver: &Receiver) -> ReceivedBlock {
    until("no block came", || {
        sender.progress().unwrap();
        receiver.poll().unwrap()
    })
}

/// Commits a block as a whole frame of this number.
pub fn commit(block: WriteBlock, number: u64) {
    let meta = whole(number, block.bytes());
    block.commit(&meta, false).unwrap();
}

/// A frame of one block.
pub fn whole(packet_number: u64, bytes: u32) -> BlockMeta {
    BlockMeta { packet_number, frame_bytes: u64::from(bytes), ..BlockMeta::default() }
}
