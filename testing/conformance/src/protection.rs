//! Keys, bounds, rights and protection domains.
use crate::{ALL, Bench, Deviation, Options, eventually};
use catchment_probe::load::did;
use catchment_verbs::mem::Region;
use catchment_verbs::{
    Access, AsyncEvent, Mr, QpState, RemoteAddr, SendOp, Sge, VerbsError, WcStatus,
};
use std::collections::HashSet;
use std::sync::Arc;

/// lkey, both bounds, another protection domain, rights.
pub fn wrong_local_keys_are_refused(bench: &Bench) {
    let short = |mr: &Arc<dyn Mr>, offset: i64, bytes| Sge {
        addr: mr.addr().wrapping_add_signed(offset),
        bytes,
        lkey: mr.lkey(),
    };
    for case in 0..7 {
        let (mut a, b) = bench.pair();
        let end = a.mr.bytes() as i64;
        let other = a.context.alloc_pd().unwrap().alloc_mr(4096, ALL).unwrap();
        let read_only = a.pd.alloc_mr(4096, Access::empty()).unwrap();
        let write = SendOp::Write(b.remote(0));
        let (op, sge) = match case {
            0 => (write, Sge { lkey: a.mr.lkey() ^ 1 << 19, ..a.sge(0, 8) }),
            1 => (write, short(&a.mr, -1, 8)),
            2 => (write, short(&a.mr, end - 7, 8)),
            3 => (write, short(&other, 0, 8)),
            4 => (SendOp::Read(b.remote(0)), short(&read_only, 0, 8)),
            5 => (write, Sge { addr: u64::MAX - 3, ..a.sge(0, 8) }),
            _ => (SendOp::Read(b.remote(0)), short(&a.mr, end - 7, 8)),
        };
        let status = a.run_failing(op, &[sge]);
        let known = Deviation::WrongKeyBreaksTheQueuePair;
        bench.assert_status(status, WcStatus::LocalProtection, known);
        assert_eq!(a.qp.state(), QpState::Err, "case {case}");
        assert_eq!(b.get(0, 16), [0; 16], "case {case}");
    }
    // Reading from a region without rights is allowed: local reading always is.
    let (mut a, b) = bench.pair();
    let read_only = a.pd.alloc_mr(4096, Access::empty()).unwrap();
    a.run_ok(SendOp::Write(b.remote(0)), &[short(&read_only, 0, 8)]);
}

/// rkey, both bounds, another protection domain (S3.4).
pub fn wrong_remote_keys_are_refused(bench: &Bench) {
    for case in 0..6 {
        for read in [false, true] {
            let (mut a, b) = bench.pair();
            let other = b.context.alloc_pd().unwrap().alloc_mr(4096, ALL).unwrap();
            b.put(0, &[7; 64]);
            let end = b.mr.bytes();
            let good = b.remote(0);
            let at = match case {
                0 => RemoteAddr { rkey: good.rkey ^ 1 << 19, ..good },
                1 => RemoteAddr { addr: good.addr - 1, ..good },
                2 => b.remote(end - 7),
                3 => RemoteAddr { addr: other.addr(), rkey: other.rkey() },
                4 => RemoteAddr { addr: u64::MAX - 3, ..good },
                _ => RemoteAddr { rkey: 0, ..good },
            };
            let op = if read { SendOp::Read(at) } else { SendOp::Write(at) };
            let status = a.run_failing(op, &[a.sge(0, 8)]);
            assert_eq!(status, WcStatus::RemoteAccess, "case {case} read {read}");
            assert_eq!(a.qp.state(), QpState::Err);
            assert_eq!(b.get(0, 64), [7; 64]);
            assert_eq!(b.get(end - 8, 8), [0; 8]);
        }
    }
}

/// Each operation needs its own right on the region.
pub fn rights_of_the_region_are_enforced(bench: &Bench) {
    let needs = [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC];
    let atomics = bench.caps().atomics;
    for (n, right) in needs.into_iter().enumerate() {
        if n == 2 && !atomics {
            continue;
        }
        for allowed in [false, true] {
            let access = if allowed { right | Access::LOCAL_WRITE } else { ALL - right };
            let theirs = Options { access, ..Options::default() };
            let (mut a, b) = bench.pair_with(&Options::default(), &theirs);
            let result = a.run(catchment_verbs::SendWr::new(
                1,
                operation(n, b.remote(0)),
                catchment_verbs::Payload::Sges(&[a.sge(0, 8)]),
            ));
            let expected = if allowed { None } else { Some(WcStatus::RemoteAccess) };
            assert_eq!(result.err().map(|f| f.status), expected, "{right:?}");
        }
    }
}

fn operation(n: usize, remote: RemoteAddr) -> SendOp {
    match n {
        0 => SendOp::Write(remote),
        1 => SendOp::Read(remote),
        _ => SendOp::FetchAdd { remote, add: 1 },
    }
}

/// A queue pair that does not let the peer write refuses what its region would allow.
pub fn rights_of_the_queue_pair_are_enforced(bench: &Bench) {
    for n in 0..2 {
        let theirs = Options { qp_access: Access::empty(), ..Options::default() };
        let (mut a, b) = bench.pair_with(&Options::default(), &theirs);
        let status = a.run_failing(operation(n, b.remote(0)), &[a.sge(0, 8)]);
        // IBTA lets the responder choose between the two NAK codes.
        assert!(
            matches!(status, WcStatus::RemoteInvalidRequest | WcStatus::RemoteAccess),
            "{status:?}"
        );
    }
}

/// After deregistration no request succeeds, even if an earlier one did.
pub fn a_deregistered_region_is_out_of_reach(bench: &Bench) {
    let (mut a, b) = bench.pair();
    let region = Region::alloc(4096, Default::default()).unwrap();
    let mr = b.pd.reg_mr(region.clone(), ALL).unwrap();
    let at = RemoteAddr { addr: mr.addr(), rkey: mr.rkey() };
    a.put(0, b"12345678");
    let sge = a.sge(0, 8);
    a.run_ok(SendOp::Write(at), &[sge]);
    drop(mr);
    // A new registration of the same memory does not revive the old key.
    let again = b.pd.reg_mr(region.clone(), ALL).unwrap();
    assert_ne!(again.rkey(), at.rkey);
    a.put(0, b"abcdefgh");
    assert_eq!(a.run_failing(SendOp::Write(at), &[sge]), WcStatus::RemoteAccess);
    assert_eq!(&region.whole().to_vec()[..8], b"12345678");
}

/// IBTA 9.7.5.2.4: a remote access error fails the responder's queue pair too, and is reported.
pub fn the_responder_of_a_forbidden_request_fails_too(bench: &Bench) {
    let (mut a, b) = bench.pair();
    let mut wrong = b.remote(0);
    wrong.rkey ^= 1 << 18;
    a.run_failing(SendOp::Write(wrong), &[a.sge(0, 8)]);
    eventually("the responder to fail", || b.qp.state() == QpState::Err);
    let mut event = None;
    eventually("its event", || {
        event = b.context.async_event();
        event.is_some()
    });
    assert!(
        matches!(event, Some(AsyncEvent::QpFatal { qpn, .. }) if qpn == b.qp.qpn()),
        "{event:?}"
    );
}

/// No key is used twice in the life of a context, neither rkey nor lkey (S3.4).
pub fn keys_are_unique(bench: &Bench) {
    let pd = bench.open().alloc_pd().unwrap();
    let region = Region::alloc(64, Default::default()).unwrap();
    let (mut rkeys, mut lkeys, mut held) = (HashSet::new(), HashSet::new(), Vec::new());
    let keys = crate::rounds(100_000);
    for n in 0..keys {
        let mr = pd.reg_mr(region.clone(), ALL).unwrap();
        assert!(rkeys.insert(mr.rkey()), "rkey {:#x} twice", mr.rkey());
        assert!(lkeys.insert(mr.lkey()), "lkey {:#x} twice", mr.lkey());
        // Some stay, so that places are taken in a changing order.
        if n % 7 == 0 {
            held.push(mr);
        }
        if held.len() > 50 {
            held.swap_remove((n % 50) as usize);
        }
    }
    did("S3.4", keys, "registrations");
}

/// IBTA 10.6.3.1: remote writing needs local writing.
pub fn contradictory_rights_are_refused(bench: &Bench) {
    let pd = bench.open().alloc_pd().unwrap();
    for access in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC, Access::REMOTE] {
        assert!(pd.alloc_mr(64, access).is_err(), "{access:?}");
    }
    let ours = Region::alloc(64, Default::default()).unwrap();
    let read_only = Region::from_peer(ours.read_only_fd().unwrap(), 64, false).unwrap();
    assert!(pd.reg_mr(read_only.clone(), ALL).is_err());
    // Linux before 6.2 lets a device reach only what it may write.
    let refused = pd.reg_mr(read_only, Access::REMOTE_READ).err();
    assert!(matches!(refused, None | Some(VerbsError::Unsupported { .. })), "{refused:?}");
}
