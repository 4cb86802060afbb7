//! Peers that end, or revoke what they granted.
use super::{Cable, assert_says, reason};
use catchment_verbs::{SendOp, WcStatus};

pub(super) fn gone() {
    let cable = Cable::new();
    let (mut a, b) = cable.pair();
    let (theirs, at) = (b.qp.endpoint(), b.remote(0));
    drop(b);
    assert_eq!(a.run_failing(SendOp::Write(at), &[a.sge(0, 8)]), WcStatus::TransportRetryExceeded);
    let ours = format!("queue pair {} to queue pair {}", a.qp.qpn(), theirs.qpn);
    assert_says(
        &reason(&*a.context),
        &[
            &ours,
            &cable.address.to_string(),
            &theirs.gid.to_string(),
            "does not answer",
            "process has ended",
            "4791",
        ],
    );
}

pub(super) fn revoked() {
    let cable = Cable::new();
    let (mut a, b) = cable.pair();
    let (theirs, at) = (b.qp.endpoint(), b.remote(0));
    let sge = a.sge(0, 8);
    a.run_ok(SendOp::Write(at), &[sge]);
    let catchment_conformance::Side { mr, qp, .. } = b;
    drop(mr);
    assert_eq!(a.run_failing(SendOp::Write(at), &[sge]), WcStatus::RemoteAccess);
    let peer = format!("queue pair {} at {}", theirs.qpn, cable.address);
    assert_says(
        &reason(&*a.context),
        &[&peer, "rkey is revoked", "the first request is acknowledged"],
    );
    drop(qp);
}
