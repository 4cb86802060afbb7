//! What may be posted in which state, and what changes of state do to requests.
use crate::errors::sends;
use crate::pair::{A, B, End, Setup, losing, remote, sge};
use catchment_roce::{
    Config, ModifyError, Payload, PostFailure, Qp, QpState, Recovery, RecvWr, SendOp, SendWr,
    Service, WcStatus,
};

#[test]
fn limits_and_states_are_checked_when_posting() {
    let config = Config {
        max_send_wr: 2,
        max_recv_wr: 1,
        max_sge: 1,
        max_inline_bytes: 8,
        ..Config::new(1, Service::Rc)
    };
    let setup = Setup { config, ..Setup::default() };
    let mut fresh = Qp::new(config);
    let write = SendWr::new(1, SendOp::Write(remote(0)), Payload::Sges(&[]));
    let receive = RecvWr { wr_id: 1, sges: &[] };
    assert_eq!(fresh.post_send(&write), Err(PostFailure::State(QpState::Reset)));
    assert_eq!(fresh.post_recv(&receive), Err(PostFailure::State(QpState::Reset)));
    let mut node = setup.end(A);
    let post = |node: &mut End, op, payload| node.qp_mut().post_send(&SendWr::new(1, op, payload));
    let write = SendOp::Write(remote(0));
    let two = [sge(0, 1), sge(1, 1)];
    let limit = PostFailure::TooManySges { asked: 2, limit: 1 };
    assert_eq!(post(&mut node, write, Payload::Sges(&two)), Err(limit));
    let limit = PostFailure::InlineTooLong { asked: 9, limit: 8 };
    assert_eq!(post(&mut node, write, Payload::Inline(&[0; 9])), Err(limit));
    let refused = post(&mut node, SendOp::Read(remote(0)), Payload::Inline(&[0; 1]));
    assert!(matches!(refused, Err(PostFailure::Payload(_))));
    let add = SendOp::FetchAdd { remote: remote(4), add: 1 };
    let eight = [sge(0, 8)];
    let refused = post(&mut node, add, Payload::Sges(&eight));
    assert!(matches!(refused, Err(PostFailure::Payload(_))));
    node.post(1, write, &[]);
    node.post(2, write, &[]);
    assert_eq!(post(&mut node, write, Payload::Sges(&[])), Err(PostFailure::QueueFull(2)));
    node.receive(1, &[]);
    assert_eq!(node.qp_mut().post_recv(&receive), Err(PostFailure::QueueFull(1)));
    let wrong = node.qp_mut().init(Default::default());
    let want = ModifyError::Illegal { qpn: 0x11, from: QpState::Rts, to: QpState::Init };
    assert_eq!(wrong, Err(want));
}

#[test]
fn a_drained_queue_pair_finishes_what_it_began_and_goes_on_later() {
    let mut pair = Setup::default().pair();
    pair[A].post(1, SendOp::Write(remote(0)), &[sge(0, 1000)]);
    sends(&mut pair[A], 1);
    pair[A].qp_mut().sqd().unwrap();
    pair[A].post(2, SendOp::Write(remote(0)), &[sge(0, 1000)]);
    assert!(!pair[A].qp().is_drained());
    // What was sent above went nowhere: it is sent again.
    pair.run();
    assert_eq!(pair[A].succeeded(), [1]);
    assert!(pair[A].qp().is_drained());
    pair[A].qp_mut().resume().unwrap();
    pair.run();
    assert_eq!(pair[A].succeeded(), [1, 2]);
}

#[test]
fn errors_flush_and_reset_forgets() {
    let mut pair = Setup::default().pair();
    pair[A].post(1, SendOp::Write(remote(0)), &[sge(0, 1000)]);
    pair[A].qp_mut().set_error();
    pair[A].post(2, SendOp::Write(remote(0)), &[sge(0, 1000)]);
    pair[A].receive(3, &[]);
    pair.run();
    let flushed = Some(WcStatus::Flushed);
    assert_eq!(pair[A].statuses(), [(1, flushed), (2, flushed), (3, flushed)]);
    assert_eq!(pair.log.len(), 0);
    pair[A].qp_mut().reset();
    assert_eq!(pair[A].qp().state(), QpState::Reset);
    assert_eq!(pair[A].qp().send_queue_len(), 0);
}

#[test]
fn an_idle_queue_pair_is_small() {
    let setup = Setup::recovering(Recovery::SelectiveRepeat);
    let mut pair = Setup { region_bytes: 8 << 20, ..setup }.pair();
    let fresh = size_of::<Qp>() + pair[A].qp().heap_bytes();
    assert!(fresh < 4096, "{fresh}");
    pair[A].post(1, SendOp::Write(remote(0)), &[sge(0, 8 << 20)]);
    pair.run_losing(losing(|packet| packet % 50 == 7));
    assert_eq!(pair[A].succeeded(), [1]);
    for node in [&pair[A], &pair[B]] {
        let bytes = size_of::<Qp>() + node.qp().heap_bytes();
        println!("idle: {bytes} bytes");
        assert!(bytes < 10 << 10, "{bytes}");
    }
}
