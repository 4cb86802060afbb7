//! In which order the paper's sender looks, asks and lets go.
use super::*;
use catchment_mechanisms::paper::protocol::{Choice, Sending, StatusBytes};
use catchment_probe::trace::{Kind, Trace};
use catchment_transfer::protocol::SlotState::{self, Free, Full};
use std::cell::RefCell;
use std::sync::atomic::AtomicBool;

/// A completion queue whose completions can be held back: they wait in the provider's queue.
struct HeldBack {
    cq: Arc<dyn Cq>,
    held: AtomicBool,
}

impl Cq for HeldBack {
    fn poll(&self, out: &mut [Completion]) -> Result<usize, CqError> {
        if self.held.load(Ordering::SeqCst) { Ok(0) } else { self.cq.poll(out) }
    }

    fn req_notify(&self, solicited_only: bool) {
        self.cq.req_notify(solicited_only);
    }

    fn capacity(&self) -> u32 {
        self.cq.capacity()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self.cq.as_any()
    }
}

/// The paper's ends, with what the sender posts and when its completions are seen.
struct Watched {
    pool: Arc<PaperPool>,
    control: Arc<dyn Mr>,
    sender: PaperSender,
    receiver: PaperReceiver,
    trace: Arc<Trace>,
    completions: Arc<HeldBack>,
    blocks: usize,
    _collector: Side,
}

impl Watched {
    fn new(blocks: u32) -> Self {
        let layout = PaperLayout::new(blocks, 64).unwrap();
        let (mut source, mut collector) = (side(2, 0, 1), side(1, 0, 1));
        connect(&mut source, &mut collector);
        let ring = ring_mr(&collector.pd, layout.total_bytes());
        let (pool, control) = pool_and_control(&source, layout);
        let (qp, trace) = Trace::of(source.qp, 1000);
        let completions = Arc::new(HeldBack { cq: source.cq, held: AtomicBool::new(false) });
        let cq = Arc::clone(&completions) as Arc<dyn Cq>;
        Self {
            sender: PaperSender::new(qp, cq, Arc::clone(&pool), at(&ring)),
            receiver: PaperReceiver::new(ring, layout, true).unwrap(),
            pool,
            control,
            trace,
            completions,
            blocks: blocks as usize,
            _collector: collector,
        }
    }

    /// The bytes of the first and of the second status memory.
    fn statuses(&self) -> [Vec<u8>; 2] {
        let control = self.control.region().whole().to_vec();
        let map = self.sender.memory_map();
        map.map(|area| {
            let start = (area.addr - self.control.addr()) as usize;
            control[start..start + self.blocks].to_vec()
        })
    }

    fn fill(&self, packet: u16) -> Result<u32, FillError> {
        self.pool.fill(PaperHeader { device: 0, packet }, &[packet as u8; 64])
    }

    fn step(&mut self) -> PaperStep {
        self.sender.step().unwrap()
    }
}

/// RmFree is one READ of all N status bytes, however many blocks go, and whether or not one came back.
#[test]
fn s1_3_a_call_is_one_read_of_as_many_bytes_as_there_are_blocks() {
    for blocks in [1, 3, 5, 64, 1000] {
        let mut paper = Watched::new(blocks);
        for packet in 0..2 * blocks as u16 {
            paper.fill(packet).unwrap();
            send_one(&mut paper.sender);
            assert_eq!(paper.receiver.poll().unwrap().header().packet, packet);
        }
        let in_a_run = paper.trace.requests().reads;
        assert_eq!(in_a_run, 1, "{blocks} blocks: one in two rounds, and none for a block");
        for _ in 0..3 {
            while paper.sender.refresh().unwrap() != PaperStep::Synced {}
        }
        assert_eq!(paper.trace.requests().reads, in_a_run + 3);
        let first = paper.trace.first();
        for read in first.iter().filter(|posted| posted.kind == Kind::Read) {
            assert_eq!(read.bytes, u64::from(blocks));
        }
    }
}

/// The status of the receiver's block first, then that of the send block; and what it does when it has
/// to wait for the one or for the other.
#[test]
fn s1_11_the_second_status_is_checked_first_and_both_ways_wait() {
    let log = RefCell::new(Vec::new());
    let choose = |first: [SlotState; 3], second: [SlotState; 3]| {
        let area = |memory, bytes| Recorded { memory, bytes, log: &log };
        let choice = Sending::default().choose(&area(1, first), &area(2, second));
        (choice, log.take())
    };
    let (choice, looks) = choose([Free, Free, Full], [Full, Free, Free]);
    assert_eq!(choice, Choice::Block(2));
    assert_eq!(looks, [(2, 0), (1, 0), (2, 1), (1, 1), (2, 2), (1, 2)]);
    assert_eq!(choose([Free; 3], [Free; 3]).0, Choice::NoData);
    assert_eq!(choose([Full; 3], [Full; 3]).0, Choice::NoneFree);
    // Nothing to send and nothing free: the receiver's block decides.
    assert_eq!(choose([Free; 3], [Full; 3]).0, Choice::NoneFree);

    let mut paper = Watched::new(2);
    // It waits for a filled block: nothing is posted, however often it looks.
    for _ in 0..100 {
        assert_eq!(paper.step(), PaperStep::NoData);
    }
    assert_eq!(paper.trace.requests().calls, 0);
    for packet in 0..2 {
        paper.fill(packet).unwrap();
        send_one(&mut paper.sender);
    }
    // It waits for a block of the receiver: READs, and no WRITE.
    paper.fill(2).unwrap();
    let writes = paper.trace.requests().writes;
    while paper.trace.requests().reads < 10 {
        assert!(!matches!(paper.step(), PaperStep::Sent(_)));
    }
    assert_eq!(paper.trace.requests().writes, writes);
    drop(paper.receiver.poll().unwrap());
    send_one(&mut paper.sender);
    assert_eq!(paper.trace.requests().writes, writes + 2);
}

/// Status bytes that note who looks at them.
struct Recorded<'a> {
    memory: u8,
    bytes: [SlotState; 3],
    log: &'a RefCell<Vec<(u8, u32)>>,
}

impl StatusBytes for Recorded<'_> {
    fn blocks(&self) -> u32 {
        3
    }

    fn load(&self, block: u32) -> u8 {
        self.log.borrow_mut().push((self.memory, block));
        self.bytes[block as usize] as u8
    }

    fn store(&self, _: u32, state: SlotState) {
        panic!("choosing stores {state:?}");
    }
}

/// Before the completion the device may still read the send block: nobody may fill it, and the sender
/// posts nothing else. What the receiver sees does not count.
#[test]
fn s1_13_statuses_change_with_the_completion_and_not_before() {
    let mut paper = Watched::new(1);
    paper.completions.held.store(true, Ordering::SeqCst);
    assert_eq!(paper.fill(7), Ok(0));
    for _ in 0..100 {
        assert_eq!(paper.step(), PaperStep::Busy);
        assert_eq!(paper.statuses(), [[1], [0]]);
        assert_eq!(paper.fill(8), Err(FillError::WouldBlock));
    }
    let requests = paper.trace.requests();
    assert_eq!((requests.calls, requests.writes, requests.reads), (1, 2, 0));
    // The block is there, and is given back, while its completion is not seen.
    while paper.receiver.poll().is_none() {}
    assert_eq!(paper.step(), PaperStep::Busy);
    assert_eq!(paper.statuses(), [[1], [0]]);
    paper.completions.held.store(false, Ordering::SeqCst);
    send_one(&mut paper.sender);
    assert_eq!(paper.statuses(), [[0], [1]]);
    assert_eq!(paper.fill(8), Ok(0));
    assert_eq!(paper.statuses(), [[1], [1]]);
}
