//! The state SQE of UC and UD: a failed send stops the send queue, and nothing else (IBTA 10.3.1).
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use catchment_conformance::{Bench, Options, Side, assert_empty, eventually, wait_one, wait_some};
use catchment_verbs::{
    Destination, Failure, ModifyError, Payload, PortAddr, QpState, QpTransition, SendOp, SendWr,
    Service, WcStatus,
};

fn pair(service: Service) -> (Bench, Side, Side) {
    let bench = common::bench("127.0.76.1", common::any_port());
    let options = Options { service, ..Options::default() };
    let (a, b) = bench.pair_with(&options, &options);
    (bench, a, b)
}

fn failures(side: &Side, count: usize) -> Vec<(u64, WcStatus)> {
    let all = wait_some(&*side.send_cq, count);
    let failure = |status: Result<_, Failure>| status.unwrap_err().status;
    all.into_iter().map(|one| (one.wr_id, failure(one.result))).collect()
}

/// S3.5: UC enters SQE by a send with a wrong local key. What was sent behind it and what is sent then is
/// flushed, messages of the peer come, only the transitions of the specification lead on, and after
/// RTS it sends again.
#[test]
fn s3_5_a_failed_send_stops_the_send_queue_and_nothing_else() {
    let (_bench, mut a, mut b) = pair(Service::Uc);
    let good = [a.sge(0, 8)];
    let mut wrong = good;
    wrong[0].lkey ^= 1 << 20;
    let write = SendOp::Write(b.remote(0));
    let all =
        [SendWr::new(1, write, Payload::Sges(&wrong)), SendWr::new(2, write, Payload::Sges(&good))];
    a.qp.post_send(&all).unwrap();
    let expected = [(1, WcStatus::LocalProtection), (2, WcStatus::Flushed)];
    assert_eq!(failures(&a, 2), expected);
    assert_eq!((a.qp.state(), b.qp.state()), (QpState::Sqe, QpState::Rts));
    a.qp.post_send(&[SendWr::new(3, write, Payload::Sges(&good))]).unwrap();
    assert_eq!(failures(&a, 1), [(3, WcStatus::Flushed)]);

    // Its receives go on.
    a.post_recv(4, &[a.sge(64, 8)]);
    b.put(0, b"received");
    b.run_ok(SendOp::Send, &[b.sge(0, 8)]);
    let received = wait_one(&*a.recv_cq);
    assert_eq!((received.wr_id, received.result.is_ok()), (4, true));
    assert_eq!(a.get(64, 8), b"received");

    let peer = b.qp.endpoint();
    for illegal in [QpTransition::ToRtrUc(peer), QpTransition::ToSqd] {
        let result = a.qp.modify(illegal);
        let from_sqe = matches!(result, Err(ModifyError::Illegal { from: QpState::Sqe, .. }));
        assert!(from_sqe, "{result:?}");
        assert_eq!(a.qp.state(), QpState::Sqe);
    }

    a.qp.modify(QpTransition::ToRtsUnreliable).unwrap();
    assert_eq!(a.qp.state(), QpState::Rts);
    a.put(0, b"as usual");
    a.run_ok(write, &good);
    eventually("a WRITE after SQE", || b.get(0, 8) == b"as usual");
    assert_empty(&*a.send_cq);
}

/// S3.5: UD too; and SQE can be left for the error state and for RESET.
#[test]
fn s3_5_a_datagram_that_fails_leads_to_sqe_from_where_error_and_reset_are_reached() {
    for to in [QpTransition::ToErr, QpTransition::ToReset] {
        let (_bench, mut a, b) = pair(Service::Ud);
        let mut wrong = [a.sge(0, 8)];
        wrong[0].lkey ^= 1 << 20;
        let ah = a.pd.create_ah(&PortAddr::from(&b.qp.endpoint())).unwrap();
        let peer = Destination { ah: ah.handle(), qpn: b.qp.qpn(), qkey: 0 };
        a.post(SendWr::new(1, SendOp::SendTo(peer), Payload::Sges(&wrong)));
        assert_eq!(failures(&a, 1), [(1, WcStatus::LocalProtection)]);
        assert_eq!(a.qp.state(), QpState::Sqe);
        a.qp.modify(to).unwrap();
        assert_eq!(a.qp.state(), to.target());
    }
}
