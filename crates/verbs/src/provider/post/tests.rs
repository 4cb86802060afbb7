use super::*;
use crate::{
    Caps, Cq, CqError, Destination, MAX_24_BITS, MAX_QKEY, Payload, PostFailure, QpInit, QpState,
    RecvWr, RemoteAddr, SendWr, Service, Services, Sge,
};
use std::any::Any;

/// A queue that stays empty; no check reads it.
struct Empty;

impl Cq for Empty {
    fn poll(&self, _: &mut [Completion]) -> Result<usize, CqError> {
        Ok(0)
    }

    fn req_notify(&self, _: bool) {}

    fn capacity(&self) -> u32 {
        1
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(crate) fn caps() -> Caps {
    Caps {
        services: Services::all(),
        max_send_wr: 4,
        max_recv_wr: 2,
        max_sge: 3,
        max_inline_bytes: 16,
        max_cqe: 100,
        max_message_bytes: 1000,
        max_rd_atomic: 16,
        path_mtu: None,
        atomics: true,
        send_invalidate: true,
        remote_invalidate: true,
        data_in_order: true,
        writes_in_order: true,
        direct: false,
        doorbell: false,
        rate: None,
        strict_capacity: true,
    }
}

/// As large as [`caps`] allows.
pub(crate) fn init() -> QpInit {
    let caps = caps();
    QpInit {
        service: Service::Rc,
        send_cq: Arc::new(Empty),
        recv_cq: Arc::new(Empty),
        max_send_wr: caps.max_send_wr,
        max_recv_wr: caps.max_recv_wr,
        max_sge: caps.max_sge,
        max_inline_bytes: caps.max_inline_bytes,
        strict: true,
    }
}

const REMOTE: RemoteAddr = RemoteAddr { addr: 0, rkey: 1 };
const ATOMIC_OPS: [SendOp; 2] = [
    SendOp::FetchAdd { remote: REMOTE, add: 1 },
    SendOp::CompareSwap { remote: REMOTE, compare: 0, swap: 1 },
];

fn sge(bytes: u32) -> Sge {
    Sge { addr: 0, bytes, lkey: 1 }
}

fn check(op: SendOp, payload: Payload<'_>) -> Result<(), PostFailure> {
    init().limits(&caps()).check_send(QpState::Rts, 0, &SendWr::new(0, op, payload))
}

#[test]
fn requests_need_a_state_that_takes_them() {
    let limits = init().limits(&caps());
    let send = SendWr::new(0, SendOp::Send, Payload::Sges(&[]));
    let recv = RecvWr { wr_id: 0, sges: &[] };
    for state in QpState::ALL {
        let (sends, receives) = (state.takes_send(), state.takes_recv());
        let refused = Err(PostFailure::State(state));
        let expected = |takes: bool| if takes { Ok(()) } else { refused };
        assert_eq!(limits.check_send(state, 0, &send), expected(sends));
        assert_eq!(limits.check_recv(state, 0, &recv), expected(receives));
    }
}

#[test]
fn a_full_queue_takes_nothing() {
    let limits = init().limits(&caps());
    let send = SendWr::new(0, SendOp::Send, Payload::Sges(&[]));
    let recv = RecvWr { wr_id: 0, sges: &[] };
    assert_eq!(limits.check_send(QpState::Rts, 3, &send), Ok(()));
    let full = limits.check_send(QpState::Rts, 4, &send);
    assert_eq!(full, Err(PostFailure::QueueFull(4)));
    assert_eq!(limits.check_recv(QpState::Rts, 1, &recv), Ok(()));
    let full = limits.check_recv(QpState::Rts, 2, &recv);
    assert_eq!(full, Err(PostFailure::QueueFull(2)));
}

#[test]
fn sizes_go_to_their_limit_and_not_beyond() {
    let write = SendOp::Write(REMOTE);
    assert_eq!(check(write, Payload::Inline(&[0; 16])), Ok(()));
    let long = PostFailure::InlineTooLong { asked: 17, limit: 16 };
    assert_eq!(check(write, Payload::Inline(&[0; 17])), Err(long));
    let three = [sge(300), sge(300), sge(400)];
    assert_eq!(check(write, Payload::Sges(&three)), Ok(()));
    let long = PostFailure::MessageTooLong { asked: 1001, limit: 1000 };
    assert_eq!(check(write, Payload::Sges(&[sge(1), sge(1000)])), Err(long));
    let many = PostFailure::TooManySges { asked: 4, limit: 3 };
    assert_eq!(check(write, Payload::Sges(&[sge(1); 4])), Err(many));
    let limits = init().limits(&caps());
    let recv = RecvWr { wr_id: 0, sges: &[sge(1); 4] };
    assert_eq!(limits.check_recv(QpState::Init, 0, &recv), Err(many));
}

#[test]
fn what_brings_bytes_back_cannot_be_inline() {
    let wrong = |result| matches!(result, Err(PostFailure::Payload(_)));
    assert!(wrong(check(SendOp::Read(REMOTE), Payload::Inline(&[0; 8]))));
    assert_eq!(check(SendOp::Read(REMOTE), Payload::Sges(&[sge(8)])), Ok(()));
    for op in ATOMIC_OPS {
        assert!(wrong(check(op, Payload::Inline(&[0; 8]))));
        assert!(wrong(check(op, Payload::Sges(&[sge(7)]))));
        assert!(wrong(check(op, Payload::Sges(&[]))));
        assert_eq!(check(op, Payload::Sges(&[sge(4), sge(4)])), Ok(()));
    }
}

#[test]
fn what_brings_bytes_back_writes_locally() {
    for op in ATOMIC_OPS.into_iter().chain([SendOp::Read(REMOTE)]) {
        assert_eq!(local_rights(&op), Access::LOCAL_WRITE);
    }
    for op in [
        SendOp::Write(REMOTE),
        SendOp::WriteImm(REMOTE, 1),
        SendOp::Send,
        SendOp::SendImm(1),
        SendOp::SendInvalidate(1),
        SendOp::SendTo(TO),
        SendOp::SendImmTo(TO, 1),
    ] {
        assert_eq!(local_rights(&op), Access::empty());
    }
}

const TO: Destination = Destination { ah: 0, qpn: MAX_24_BITS, qkey: MAX_QKEY };

fn all_operations() -> [SendOp; 10] {
    [
        SendOp::Write(REMOTE),
        SendOp::WriteImm(REMOTE, 1),
        SendOp::Read(REMOTE),
        SendOp::Send,
        SendOp::SendImm(1),
        SendOp::SendInvalidate(1),
        SendOp::SendTo(TO),
        SendOp::SendImmTo(TO, 1),
        ATOMIC_OPS[0],
        ATOMIC_OPS[1],
    ]
}

#[test]
fn each_service_takes_its_own_operations() {
    for service in [Service::Rc, Service::Uc, Service::Ud] {
        let init = QpInit { service, ..init() };
        let limits = init.limits(&caps());
        for op in all_operations() {
            let sges = [sge(8)];
            let wr = SendWr::new(0, op, Payload::Sges(&sges));
            let expected =
                if op.exists_on(service) { Ok(()) } else { Err(PostFailure::Service(service)) };
            assert_eq!(limits.check_send(QpState::Rts, 0, &wr), expected, "{op:?}");
        }
    }
}

#[test]
fn an_invalidation_that_is_not_offered_is_refused() {
    let limits = init().limits(&Caps { send_invalidate: false, ..caps() });
    let wr = SendWr::new(0, SendOp::SendInvalidate(1), Payload::Inline(&[]));
    assert!(matches!(limits.check_send(QpState::Rts, 0, &wr), Err(PostFailure::NotOffered(_))));
}

#[test]
fn a_datagram_fits_a_packet_and_goes_to_a_queue_pair() {
    let caps = Caps { path_mtu: Some(256), max_inline_bytes: 512, ..caps() };
    let init = QpInit { service: Service::Ud, max_inline_bytes: 512, ..init() };
    let limits = init.limits(&caps);
    let check = |to, payload| {
        limits.check_send(QpState::Rts, 0, &SendWr::new(0, SendOp::SendTo(to), payload))
    };
    let (fits, long) = ([sge(256)], [sge(256), sge(1)]);
    assert_eq!(check(TO, Payload::Sges(&fits)), Ok(()));
    assert_eq!(check(TO, Payload::Inline(&[0; 256])), Ok(()));
    assert_eq!(
        check(TO, Payload::Sges(&long)),
        Err(PostFailure::MessageTooLong { asked: 257, limit: 256 })
    );
    assert_eq!(
        check(TO, Payload::Inline(&[0; 257])),
        Err(PostFailure::InlineTooLong { asked: 257, limit: 256 })
    );
    let (qpn, qkey) = (MAX_24_BITS + 1, MAX_QKEY + 1);
    for wrong in [Destination { qpn, ..TO }, Destination { qkey, ..TO }] {
        let refused = check(wrong, Payload::Inline(&[]));
        assert!(matches!(refused, Err(PostFailure::Destination(_))));
    }
}

#[test]
fn polling_one_completion_frees_all_requests_before_it() {
    let credits = Arc::new(WorkQueueCredits::default());
    let entry = |seq| CqEntry {
        completion: Completion { wr_id: seq + 100, ..Completion::EMPTY },
        credits: Arc::clone(&credits),
        seq,
    };
    assert_eq!(credits.outstanding(5), 5);
    assert_eq!(entry(2).polled().wr_id, 102);
    assert_eq!(credits.outstanding(5), 2);
    // One of before a reset, polled late: it frees nothing twice.
    entry(0).polled();
    assert_eq!(credits.outstanding(5), 2);
    credits.free_before(5);
    assert_eq!(credits.outstanding(5), 0);
}
