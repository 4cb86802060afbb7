//! The states of a queue pair.
use crate::{ALL, Bench, Options, Side, assert_empty, connect, wait_some};
use QpState::{Err as Error, Init, Reset, Rtr, Rts, Sqd, Sqe};
use catchment_verbs::{
    Endpoint, Gid, ModifyError, Payload, PostFailure, QpState, QpTransition, RecvWr, RtrAttr,
    RtsAttr, SendOp, SendWr,
};
use std::time::{Duration, Instant};

/// Those that a program asks for on RC, which has no SQE.
const STATES: [QpState; 6] = [Reset, Init, Rtr, Rts, Sqd, Error];

/// IBTA 10.3.1, written down once more, independent of the crate under test.
const LEGAL: [(QpState, QpState); 18] = [
    (Reset, Reset),
    (Reset, Init),
    (Reset, Error),
    (Init, Reset),
    (Init, Init),
    (Init, Rtr),
    (Init, Error),
    (Rtr, Reset),
    (Rtr, Rts),
    (Rtr, Error),
    (Rts, Reset),
    (Rts, Rts),
    (Rts, Sqd),
    (Rts, Error),
    (Sqd, Reset),
    (Sqd, Rts),
    (Sqd, Error),
    (Error, Reset),
];

fn transition(to: QpState, peer: Endpoint) -> QpTransition {
    match to {
        Reset => QpTransition::ToReset,
        Init => QpTransition::ToInit { access: ALL },
        Rtr => QpTransition::ToRtr(RtrAttr::new(peer)),
        Rts => QpTransition::ToRts(RtsAttr::default()),
        Sqd => QpTransition::ToSqd,
        Sqe => panic!("no program asks for it"),
        Error => QpTransition::ToErr,
    }
}

/// To RTS, with patience for a peer that is connected late: on a busy machine the usual half second is over soon.
fn patient_rts() -> QpTransition {
    QpTransition::ToRts(RtsAttr { timeout: Duration::from_millis(500), ..RtsAttr::default() })
}

/// Brings a side into a state by legal transitions.
fn bring(side: &mut Side, to: QpState, peer: Endpoint) {
    let path: &[QpState] = match to {
        Reset => &[],
        Init => &[Init],
        Rtr => &[Init, Rtr],
        Rts => &[Init, Rtr, Rts],
        Sqd => &[Init, Rtr, Rts, Sqd],
        Sqe => panic!("only a failed send leads there"),
        Error => &[Init, Error],
    };
    for step in path {
        side.qp.modify(transition(*step, peer)).unwrap();
    }
    assert_eq!(side.qp.state(), to);
}

/// All thirty-six pairs; an illegal one changes nothing (S3.5).
pub fn only_the_transitions_of_the_specification_exist(bench: &Bench) {
    let options = Options { bytes: 64, ..Options::default() };
    for from in STATES {
        for to in STATES {
            let (mut a, b) = (bench.side(&options), bench.side(&options));
            let peer = b.qp.endpoint();
            bring(&mut a, from, peer);
            let result = a.qp.modify(transition(to, peer));
            // Error to Error is left out of figure 124; both answers are found in the field.
            if (from, to) == (Error, Error) {
                continue;
            }
            if LEGAL.contains(&(from, to)) {
                result.unwrap();
                assert_eq!(a.qp.state(), to, "from {from:?}");
            } else {
                assert!(
                    matches!(&result, Err(ModifyError::Illegal { from: f, to: t, .. })
                        if *f == from && *t == to),
                    "{from:?} to {to:?}: {result:?}"
                );
                assert_eq!(a.qp.state(), from);
            }
        }
    }
}

/// Sends need RTS, receives INIT; in the error state both are flushed.
pub fn wrong_states_take_no_requests(bench: &Bench) {
    for state in STATES {
        let options = Options::default();
        let (mut a, b) = (bench.side(&options), bench.side(&options));
        bring(&mut a, state, b.qp.endpoint());
        let sges = [a.sge(0, 8)];
        let wr = SendWr::new(1, SendOp::Write(b.remote(0)), Payload::Sges(&sges));
        let sent = a.qp.post_send(&[wr]);
        if matches!(state, Reset | Init | Rtr) {
            assert_eq!(sent.unwrap_err().reason, PostFailure::State(state));
            assert_empty(&*a.send_cq);
        } else {
            sent.unwrap();
        }
        let received = a.qp.post_recv(&[RecvWr { wr_id: 2, sges: &sges }]);
        if state == Reset {
            assert_eq!(received.unwrap_err().reason, PostFailure::State(state));
        } else {
            received.unwrap();
        }
        if state == Error {
            for cq in [&a.send_cq, &a.recv_cq] {
                let failure = crate::wait_one(&**cq).result.unwrap_err();
                assert_eq!(failure.status, catchment_verbs::WcStatus::Flushed);
            }
        }
    }
}

/// Numbers beyond their fields (S3.5).
pub fn attributes_out_of_range_are_refused(bench: &Bench) {
    let options = Options::default();
    let (mut a, b) = (bench.side(&options), bench.side(&options));
    let peer = b.qp.endpoint();
    bring(&mut a, Init, peer);
    for bad in [Endpoint { qpn: 1 << 24, ..peer }, Endpoint { psn: 1 << 24, ..peer }] {
        let result = a.qp.modify(transition(Rtr, bad));
        assert!(matches!(result, Err(ModifyError::Attribute { .. })), "{result:?}");
        assert_eq!(a.qp.state(), Init);
    }
    a.qp.modify(transition(Rtr, peer)).unwrap();
    let good = RtsAttr::default();
    for bad in [RtsAttr { retry_cnt: 8, ..good }, RtsAttr { rnr_retry: 8, ..good }] {
        let result = a.qp.modify(QpTransition::ToRts(bad));
        assert!(matches!(result, Err(ModifyError::Attribute { .. })), "{result:?}");
        assert_eq!(a.qp.state(), Rtr);
    }
}

/// SQD: what was posted before is done, what comes later waits for RTS.
pub fn a_drained_queue_holds_later_requests(bench: &Bench) {
    let (mut a, b) = bench.pair();
    let sges = [a.sge(0, 8)];
    a.put(0, b"draining");
    let write = |wr_id, at| SendWr::new(wr_id, SendOp::Write(b.remote(at)), Payload::Sges(&sges));
    a.post(write(1, 0));
    a.qp.modify(QpTransition::ToSqd).unwrap();
    assert_eq!(crate::wait_one(&*a.send_cq).wr_id, 1);
    a.post(write(2, 64));
    a.post(write(3, 128));
    for _ in 0..1000 {
        assert_empty(&*a.send_cq);
    }
    assert_eq!(b.get(64, 8), [0; 8]);
    a.qp.modify(QpTransition::ToRts(RtsAttr::default())).unwrap();
    let done = wait_some(&*a.send_cq, 2);
    assert_eq!([done[0].wr_id, done[1].wr_id], [2, 3]);
    assert!(done.iter().all(|c| c.result.is_ok()), "{done:?}");
    assert_eq!(b.get(128, 8), b"draining");
}

/// RESET forgets what was outstanding without completions; the same queue pairs connect again.
pub fn after_a_reset_everything_works_again(bench: &Bench) {
    let options = Options::default();
    let (mut a, mut b) = bench.pair();
    for round in 0..10u64 {
        let (sge, place) = (a.sge(0, 8), b.sge(64, 8));
        let wr = SendWr::new(round, SendOp::Send, Payload::Sges(std::slice::from_ref(&sge)));
        // These two find no receive, and vanish; so do the receives of the other side.
        a.post(wr);
        a.post(wr);
        a.post_recv(1, &[sge]);
        a.qp.modify(QpTransition::ToReset).unwrap();
        b.qp.modify(QpTransition::ToReset).unwrap();
        assert_empty(&*a.send_cq);
        assert_empty(&*a.recv_cq);
        connect((&mut a, &options), (&mut b, &options));
        a.put(0, &(round + 5).to_ne_bytes());
        b.post_recv(round, &[place]);
        let (sent, received) = crate::messages::transfer(&mut a, &mut b, wr);
        let all_well = sent.result.is_ok() && received.result.is_ok();
        assert!(all_well, "round {round}: {sent:?}, {received:?}");
        assert_eq!(b.get(64, 8), (round + 5).to_ne_bytes());
        a.run_ok(SendOp::Write(b.remote(8)), &[sge]);
        assert_eq!(b.get(8, 8), (round + 5).to_ne_bytes());
    }
}

/// The order in which the two sides go through their states does not matter, and requests posted
/// before the peer is ready are done when it is.
pub fn either_side_may_connect_first(bench: &Bench) {
    let options = Options::default();
    for early_rts in [false, true] {
        let (mut a, mut b) = (bench.side(&options), bench.side(&options));
        let (ea, eb) = (a.qp.endpoint(), b.qp.endpoint());
        bring(&mut b, Init, ea);
        bring(&mut a, Rtr, eb);
        let sges = [a.sge(0, 8)];
        a.put(0, b"early...");
        let wr = SendWr::new(1, SendOp::Write(b.remote(8)), Payload::Sges(&sges));
        if early_rts {
            a.qp.modify(patient_rts()).unwrap();
            a.post(wr);
        }
        b.qp.modify(transition(Rtr, ea)).unwrap();
        b.qp.modify(transition(Rts, ea)).unwrap();
        if !early_rts {
            a.qp.modify(transition(Rts, eb)).unwrap();
            a.post(wr);
        }
        let done = crate::wait_one(&*a.send_cq);
        assert!(done.result.is_ok(), "{done:?}");
        assert_eq!(b.get(8, 8), b"early...");
        b.run_ok(SendOp::Read(a.remote(0)), &[b.sge(100, 8)]);
        assert_eq!(b.get(100, 8), b"early...");
    }
}

/// A peer that does not exist: an error while connecting or of the first request, in time.
pub fn an_unknown_peer_is_an_error_and_not_a_hang(bench: &Bench) {
    let mut a = bench.side(&Options::default());
    let nobody = Endpoint {
        gid: Gid([0x5a; 16]),
        qpn: 77,
        psn: 0,
        net: bench.side(&Options::default()).qp.endpoint().net,
    };
    a.init(&Options::default());
    let start = Instant::now();
    match a.qp.modify(transition(Rtr, nobody)) {
        Err(ModifyError::Peer { .. }) => assert_eq!(a.qp.state(), Init),
        Err(other) => panic!("{other}"),
        Ok(()) => {
            a.qp.modify(transition(Rts, nobody)).unwrap();
            let remote = catchment_verbs::RemoteAddr { addr: 0, rkey: 1 };
            a.run_failing(SendOp::Write(remote), &[a.sge(0, 8)]);
        }
    }
    assert!(start.elapsed() < crate::PATIENCE);
}
