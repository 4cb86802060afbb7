//! SEND with invalidate.
use crate::messages::transfer;
use crate::{ALL, Bench, Deviation, Options, Side, eventually};
use catchment_verbs::{
    Access, Payload, QpState, RemoteAddr, SendOp, SendWr, Success, WcOpcode, WcStatus,
};

const RIGHTS: Access = ALL.union(Access::REMOTE_INVALIDATE);

/// Two sides, the regions of the second having these rights.
fn pair(bench: &Bench, rights: Access) -> Option<(Side, Side)> {
    let caps = bench.caps();
    let may = caps.remote_invalidate || !rights.contains(Access::REMOTE_INVALIDATE);
    let both = bench.offers("SEND with invalidate", caps.send_invalidate)
        && bench.offers("regions that peers may invalidate", may);
    let theirs = Options { access: rights, ..Options::default() };
    both.then(|| bench.pair_with(&Options::default(), &theirs))
}

fn invalidate(a: &mut Side, b: &mut Side, rkey: u32) -> (Result<(), WcStatus>, Option<Success>) {
    let (sge, place) = (a.sge(0, 5), b.sge(64, 64));
    b.post_recv(3, &[place]);
    let sges = [sge];
    let wr = SendWr::new(2, SendOp::SendInvalidate(rkey), Payload::Sges(&sges));
    let (sent, received) = transfer(a, b, wr);
    assert_eq!(received.wr_id, 3);
    (sent.result.map(|_| ()).map_err(|failure| failure.status), received.result.ok())
}

/// The receiver learns which key; afterwards no peer reaches the region, but the owner does.
pub fn an_invalidated_key_is_dead_for_peers(bench: &Bench) {
    let Some((mut a, mut b)) = pair(bench, RIGHTS) else { return };
    let kept = b.pd.alloc_mr(4096, RIGHTS).unwrap();
    a.put(0, b"alive");
    let sge = a.sge(0, 5);
    a.run_ok(SendOp::Write(b.remote(0)), &[sge]);
    assert_eq!(b.get(0, 5), b"alive");
    let rkey = b.mr.rkey();
    let (sent, received) = invalidate(&mut a, &mut b, rkey);
    assert_eq!(sent, Ok(()));
    let expected = Success::plain(WcOpcode::Recv, 5).invalidating(rkey);
    assert_eq!(received, Some(expected));
    assert_eq!(expected.invalidated_rkey(), Some(rkey));
    assert_eq!(b.get(64, 5), b"alive");
    // The owner uses it on, and other regions are as they were.
    b.post_recv(4, &[b.sge(128, 64)]);
    let wr = SendWr::new(5, SendOp::Send, Payload::Inline(b"local"));
    assert!(transfer(&mut a, &mut b, wr).1.result.is_ok());
    assert_eq!(b.get(128, 5), b"local");
    let (addr, rkey) = (kept.addr(), kept.rkey());
    a.run_ok(SendOp::Write(RemoteAddr { addr, rkey }), &[sge]);
    assert_eq!(a.run_failing(SendOp::Write(b.remote(0)), &[sge]), WcStatus::RemoteAccess);
    assert_eq!(a.qp.state(), QpState::Err);
}

/// A region that was registered without the right: the SEND fails, and breaks both sides.
pub fn a_key_without_the_right_stays(bench: &Bench) {
    let Some((mut a, mut b)) = pair(bench, ALL) else { return };
    let rkey = b.mr.rkey();
    let (sent, received) = invalidate(&mut a, &mut b, rkey);
    let acknowledged = bench.deviations.contains(&Deviation::InvalidationIsAcknowledgedFirst);
    assert!(sent == Err(WcStatus::RemoteAccess) || (acknowledged && sent == Ok(())), "{sent:?}");
    assert_eq!(received, None);
    eventually("the receiver in error", || b.qp.state() == QpState::Err);
}

/// A key can be taken away once.
pub fn a_dead_key_cannot_be_invalidated(bench: &Bench) {
    let Some((mut a, mut b)) = pair(bench, RIGHTS) else { return };
    let rkey = b.mr.rkey();
    assert_eq!(invalidate(&mut a, &mut b, rkey).0, Ok(()));
    let (sent, received) = invalidate(&mut a, &mut b, rkey);
    assert_eq!((sent, received), (Err(WcStatus::RemoteAccess), None));
    eventually("both sides in error", || {
        a.qp.state() == QpState::Err && b.qp.state() == QpState::Err
    });
}
