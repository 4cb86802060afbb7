//! The shortest way through the provider: connect, WRITE, READ, map, watch.
use catchment_provider_shm::ShmProvider;
use catchment_verbs::*;
use std::{sync::Arc, time::Duration};

struct Side {
    context: Arc<dyn Context>,
    pd: Arc<dyn Pd>,
    cq: Arc<dyn Cq>,
    qp: Box<dyn Qp>,
}

fn side() -> Side {
    let context = ShmProvider::new().open("shm0").unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16, None).unwrap();
    let qp = pd
        .create_qp(QpInit {
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            max_send_wr: 16,
            max_recv_wr: 4,
            max_sge: 4,
            max_inline_bytes: 256,
            strict: true,
        })
        .unwrap();
    Side {
        context,
        pd,
        cq,
        qp,
    }
}

fn connect(side: &mut Side, peer: Endpoint) {
    let access = Access::REMOTE;
    side.qp.modify(QpTransition::ToInit { access }).unwrap();
    side.qp
        .modify(QpTransition::ToRtr(RtrAttr::new(peer)))
        .unwrap();
    side.qp
        .modify(QpTransition::ToRts(RtsAttr::default()))
        .unwrap();
}

#[test]
fn two_contexts_write_read_map_and_watch() {
    let (mut a, mut b) = (side(), side());
    let (ea, eb) = (a.qp.endpoint(), b.qp.endpoint());
    assert_ne!(a.context.gid(), b.context.gid());
    connect(&mut a, eb);
    connect(&mut b, ea);
    let all = Access::LOCAL_WRITE | Access::REMOTE;
    let local = a.pd.alloc_mr(4096, all).unwrap();
    let remote = b.pd.alloc_mr(4096, all).unwrap();
    local.region().whole().write_at(0, b"catchmen").unwrap();
    let sge = [Sge {
        addr: local.addr(),
        bytes: 8,
        lkey: local.lkey(),
    }];
    let at = |offset| RemoteAddr {
        addr: remote.addr() + offset,
        rkey: remote.rkey(),
    };
    let watch = remote.watch().unwrap();
    watch.arm();
    a.qp.post_send(&[
        SendWr::new(1, SendOp::Write(at(8)), Payload::Sges(&sge)).unsignaled(),
        SendWr::new(2, SendOp::Write(at(0)), Payload::Inline(&[1])),
    ])
    .unwrap();
    let mut out = [Completion::EMPTY; 4];
    assert_eq!(a.cq.poll(&mut out).unwrap(), 1);
    assert_eq!(out[0].wr_id, 2);
    assert!(out[0].result.is_ok(), "{:?}", out[0]);
    assert_eq!(watch.wait(Duration::ZERO).unwrap(), Wake::Rung);
    assert_eq!(watch.wait(Duration::ZERO).unwrap(), Wake::TimedOut);
    assert_eq!(&remote.region().whole().to_vec()[8..16], b"catchmen");

    let back = [Sge {
        addr: local.addr() + 64,
        bytes: 16,
        lkey: local.lkey(),
    }];
    a.qp.post_send(&[SendWr::new(3, SendOp::Read(at(0)), Payload::Sges(&back))])
        .unwrap();
    assert_eq!(a.cq.poll(&mut out).unwrap(), 1);
    assert!(out[0].result.is_ok(), "{:?}", out[0]);
    assert_eq!(&local.region().whole().to_vec()[72..80], b"catchmen");

    let window = a.qp.map_remote(at(128).addr, 64, at(0).rkey).unwrap();
    watch.arm();
    window.memory.memory().write_at(0, b"direct").unwrap();
    window.bell.ring();
    assert_eq!(watch.wait(Duration::ZERO).unwrap(), Wake::Rung);
    assert_eq!(&remote.region().whole().to_vec()[128..134], b"direct");

    let theirs = a.qp.watch_remote(remote.rkey()).unwrap();
    theirs.arm();
    remote.notify();
    assert_eq!(theirs.wait(Duration::ZERO).unwrap(), Wake::Rung);
    assert!(window.bell.is_valid());
    drop(remote);
    assert!(!window.bell.is_valid());
}
