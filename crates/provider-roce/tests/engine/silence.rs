//! A peer that is gone.
use crate::common::{any_port, open_two};

use catchment_conformance::{Options, PATIENCE, Random, connected};
use catchment_verbs::{Completion, Payload, QpState, RecvWr, SendOp, SendWr, Sge};
use std::time::{Duration, Instant};

/// Whatever was in flight when the peer vanished, requests fail after their retries.
#[test]
fn requests_to_a_peer_that_vanished_fail_in_time() {
    let options = Options::default();
    let mut random = Random::new(3);
    for round in 0..15 {
        let [ours, theirs] = open_two(["127.0.0.1"; 2], any_port());
        let (mut a, mut b) = connected((ours.clone(), &options), (theirs, &options));
        let until = Instant::now() + Duration::from_micros(random.below(20_000));
        let mut out = [Completion::EMPTY; 16];
        let mut n = 0;
        let remotes = [b.remote(0), a.remote(0)];
        while Instant::now() < until {
            n += 1;
            for (side, remote) in [&mut a, &mut b].into_iter().zip(remotes) {
                let sge = side.sge(0, 100_000);
                let short = Sge { bytes: 64, ..sge };
                let wr = |op, sge| SendWr::new(n, op, Payload::Sges(sge));
                let _full = side.qp.post_recv(&[RecvWr { wr_id: n, sges: &[sge] }]);
                let _full = side.qp.post_send(&[
                    wr(SendOp::Write(remote), std::slice::from_ref(&short)),
                    wr(SendOp::Read(remote), std::slice::from_ref(&short)),
                    wr(SendOp::Send, std::slice::from_ref(&sge)),
                ]);
                while side.send_cq.poll(&mut out).unwrap() > 0 {}
                while side.recv_cq.poll(&mut out).unwrap() > 0 {}
            }
        }
        drop(b);
        let sge = a.sge(0, 8);
        while a.qp.post_send(&[SendWr::new(n, SendOp::Send, Payload::Sges(&[sge]))]).is_err() {
            a.send_cq.poll(&mut out).unwrap();
        }
        let start = Instant::now();
        while a.qp.state() != QpState::Err {
            let counters = ours.counters();
            assert!(start.elapsed() < PATIENCE, "round {round}: not noticed; {counters:#?}");
            // Until the retries are over, which polling would not hasten.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
