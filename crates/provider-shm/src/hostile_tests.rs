//! A peer that writes arbitrary data into the memory that it shares with us.
use crate::handles::ShmContext;
use crate::inbox::{Inbox, Kind, RECORD_HEADER_BYTES, Record};
use crate::ring::Count;
use catchment_conformance::{Options, Side, connected};
use catchment_verbs::{Completion, Cq, Payload, QpState, SendOp, SendWr, WcStatus};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A sender, a receiver, and what the receiver shares with it.
fn pair() -> (Side, Side, Inbox) {
    let options =
        Options { max_send_wr: 16, max_recv_wr: 16, bytes: 1 << 16, ..Options::default() };
    let [left, right] = [(); 2].map(|()| ShmContext::open().unwrap());
    let (a, b) = connected((Arc::new(left), &options), (Arc::new(right.clone()), &options));
    let inbox = right.state().queue_pair(b.qp.qpn()).unwrap().lock().inbox.clone();
    (a, b, inbox)
}

fn receive(side: &mut Side, bytes: usize) {
    side.post_recv(1, &[side.sge(0, bytes)]);
}

/// Polls until the queue stays empty.
fn poll(cq: &Arc<dyn Cq>) -> Vec<Completion> {
    let (mut all, mut out) = (Vec::new(), [Completion::EMPTY; 8]);
    while let n @ 1.. = cq.poll(&mut out).unwrap() {
        all.extend_from_slice(&out[..n]);
    }
    all
}

#[test]
fn a_tail_that_cannot_be_breaks_the_queue_pair_only() {
    for lie in [65_537, u64::MAX, 1 << 63, 16] {
        let (_a, mut b, inbox) = pair();
        receive(&mut b, 64);
        inbox.tail().publish(lie);
        let done = poll(&b.recv_cq);
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
        let (_a, mut b, inbox) = pair();
        b.mr.region().whole().fill(0xee).unwrap();
        for _ in 0..4 {
            receive(&mut b, 100);
        }
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
        poll(&b.recv_cq);
        let memory = b.mr.region().whole().to_vec();
        assert!(memory[100..].iter().all(|byte| *byte == 0xee));
    }
}

#[test]
fn a_message_without_a_receive_waits_and_harms_nobody() {
    let (_a, mut b, inbox) = pair();
    let record = Record {
        kind: Kind::Send,
        last: true,
        solicited: false,
        imm: None,
        bytes: 3,
        message_bytes: 3,
    };
    inbox.put(0, &record.encode());
    inbox.put(RECORD_HEADER_BYTES as u64, b"abc");
    inbox.tail().publish(record.ring_bytes());
    assert_eq!(poll(&b.recv_cq), []);
    receive(&mut b, 64);
    assert_eq!(poll(&b.recv_cq)[0].result.unwrap().bytes, 3);
    assert_eq!(&b.mr.region().whole().to_vec()[..3], b"abc");
}

#[test]
fn a_receiver_that_lies_breaks_the_sender_only() {
    type Lie = fn(&Inbox);
    let lies: [(Lie, Option<WcStatus>); 3] = [
        // More taken than was sent.
        (|inbox| inbox.head().publish(99), Some(WcStatus::RemoteOperation)),
        // More posted than possible: the message is sent, and no receive takes it.
        (|inbox| inbox.posted().publish(u64::MAX >> 1), None),
        // A receive of any length.
        (
            |inbox| inbox.receive(0).store(3, Ordering::Relaxed),
            Some(WcStatus::RemoteInvalidRequest),
        ),
    ];
    for (n, (lie, expected)) in lies.into_iter().enumerate() {
        let (mut a, mut b, inbox) = pair();
        receive(&mut b, 64);
        lie(&inbox);
        let sges = [a.sge(0, 8)];
        a.qp.post_send(&[SendWr::new(1, SendOp::Send, Payload::Sges(&sges))]).unwrap();
        let done = poll(&a.send_cq);
        assert_eq!(done.len(), 1, "lie {n}");
        assert_eq!(done[0].result.err().map(|f| f.status), expected, "lie {n}");
    }
}
