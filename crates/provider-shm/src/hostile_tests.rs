//! A peer that writes anything into the memory that it shares with us.
use crate::handles::ShmContext;
use crate::inbox::{Inbox, Kind, RECORD_HEADER_BYTES, Record};
use crate::ring::Count;
use catchment_verbs::{
    Access, Completion, Context, Cq, Mr, Payload, Pd, Qp, QpInit, QpState, RecvWr, RtrAttr,
    RtsAttr, SendOp, SendWr, Sge, WcStatus,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const ALL: Access = Access::LOCAL_WRITE.union(Access::REMOTE);

struct Side {
    qp: Box<dyn Qp>,
    mr: Arc<dyn Mr>,
    cq: Arc<dyn Cq>,
    _pd: Arc<dyn Pd>,
    context: ShmContext,
}

fn side() -> Side {
    let context = ShmContext::open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(64, None).unwrap();
    let queues = QpInit::rc(&cq, 16, 16);
    let qp = pd.create_qp(QpInit { max_sge: 2, max_inline_bytes: 64, strict: true, ..queues });
    Side { qp: qp.unwrap(), mr: pd.alloc_mr(1 << 16, ALL).unwrap(), cq, _pd: pd, context }
}

fn pair() -> (Side, Side) {
    let (mut a, mut b) = (side(), side());
    let (ea, eb) = (a.qp.endpoint(), b.qp.endpoint());
    for (side, peer) in [(&mut a, eb), (&mut b, ea)] {
        side.qp.connect(Access::REMOTE, RtrAttr::new(peer), RtsAttr::default()).unwrap();
    }
    (a, b)
}

impl Side {
    fn inbox(&self) -> Inbox {
        self.context.state().queue_pair(self.qp.qpn()).unwrap().lock().inbox.clone()
    }

    fn receive(&mut self, bytes: u32) {
        let sges = [Sge { addr: self.mr.addr(), bytes, lkey: self.mr.lkey() }];
        self.qp.post_recv(&[RecvWr { wr_id: 1, sges: &sges }]).unwrap();
    }

    /// Polls until nothing comes.
    fn poll(&self) -> Vec<Completion> {
        let (mut all, mut out) = (Vec::new(), [Completion::EMPTY; 8]);
        while let n @ 1.. = self.cq.poll(&mut out).unwrap() {
            all.extend_from_slice(&out[..n]);
        }
        all
    }
}

#[test]
fn a_tail_that_cannot_be_breaks_the_queue_pair_only() {
    for lie in [65_537, u64::MAX, 1 << 63, 16] {
        let (_a, mut b) = pair();
        b.receive(64);
        b.inbox().tail().publish(lie);
        let done = b.poll();
        assert_eq!(b.qp.state(), QpState::Err, "tail {lie}");
        let status = done[0].result.unwrap_err().status;
        assert_eq!((done.len(), status), (1, WcStatus::Flushed));
        assert!(b.context.async_event().is_some());
    }
}

#[test]
fn random_records_never_leave_the_receive_buffer() {
    let mut seed = 1u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        seed >> 33
    };
    for _ in 0..300 {
        let (_a, mut b) = pair();
        b.mr.region().whole().fill(0xee).unwrap();
        for _ in 0..4 {
            b.receive(100);
        }
        let inbox = b.inbox();
        let mut tail = 0;
        for _ in 0..20 {
            let mut header = [0; RECORD_HEADER_BYTES];
            header[0] = (random() % 6) as u8;
            header[1] = random() as u8;
            header[2] = (random() % 3) as u8;
            header[8..12].copy_from_slice(&((random() % 200) as u32).to_le_bytes());
            if random() % 10 == 0 {
                header[8..12].copy_from_slice(&(random() as u32).to_le_bytes());
            }
            inbox.put(tail, &header);
            tail += random() % 8 * 32;
        }
        inbox.tail().publish(tail);
        b.poll();
        let memory = b.mr.region().whole().to_vec();
        assert!(memory[100..].iter().all(|byte| *byte == 0xee));
    }
}

#[test]
fn a_message_without_a_receive_waits_and_harms_nobody() {
    let (_a, mut b) = pair();
    let record = Record {
        kind: Kind::Send,
        last: true,
        solicited: false,
        imm: None,
        bytes: 3,
        message_bytes: 3,
    };
    let inbox = b.inbox();
    inbox.put(0, &record.encode());
    inbox.put(RECORD_HEADER_BYTES as u64, b"abc");
    inbox.tail().publish(record.ring_bytes());
    assert_eq!(b.poll(), []);
    b.receive(64);
    assert_eq!(b.poll()[0].result.unwrap().bytes, 3);
    assert_eq!(&b.mr.region().whole().to_vec()[..3], b"abc");
}

#[test]
fn a_receiver_that_lies_breaks_the_sender_only() {
    type Lie = fn(&Inbox);
    let lies: [(Lie, Option<WcStatus>); 3] = [
        // More taken than was sent.
        (|inbox| inbox.head().publish(99), Some(WcStatus::RemoteOperation)),
        // More posted than can be: the message goes, and nobody takes it.
        (|inbox| inbox.posted().publish(u64::MAX >> 1), None),
        // A receive of any length.
        (
            |inbox| inbox.receive(0).store(3, Ordering::Relaxed),
            Some(WcStatus::RemoteInvalidRequest),
        ),
    ];
    for (n, (lie, expected)) in lies.into_iter().enumerate() {
        let (mut a, mut b) = pair();
        b.receive(64);
        lie(&b.inbox());
        let sges = [Sge { addr: a.mr.addr(), bytes: 8, lkey: a.mr.lkey() }];
        a.qp.post_send(&[SendWr::new(1, SendOp::Send, Payload::Sges(&sges))]).unwrap();
        let done = a.poll();
        assert_eq!(done.len(), 1, "lie {n}");
        assert_eq!(done[0].result.err().map(|f| f.status), expected, "lie {n}");
    }
}
