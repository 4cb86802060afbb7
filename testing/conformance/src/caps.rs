//! The capabilities are true.
use crate::queues::init_of;
use crate::{Bench, Options};
use catchment_verbs::{
    Access, Destination, ModifyError, Payload, PortAddr, PostFailure, QpInit, QpState,
    QpTransition, RtrAttr, RtsAttr, SendOp, SendWr, Service, VerbsError,
};

/// Each limit is reached and not passed.
pub fn limits_are_where_the_caps_say(bench: &Bench) {
    let a = bench.side(&Options::default());
    let caps = a.context.caps();
    let base = init_of(&a);
    type Set = fn(&mut QpInit, u32);
    let limits: [(u32, Set); 4] = [
        (caps.max_send_wr, |init, n| init.max_send_wr = n),
        (caps.max_recv_wr, |init, n| init.max_recv_wr = n),
        (caps.max_sge, |init, n| init.max_sge = n),
        (caps.max_inline_bytes, |init, n| init.max_inline_bytes = n),
    ];
    for (n, (limit, set)) in limits.into_iter().enumerate() {
        let mut init = base.clone();
        set(&mut init, limit);
        assert!(a.pd.create_qp(init.clone()).is_ok(), "limit {n} = {limit}");
        set(&mut init, limit + 1);
        let refused = a.pd.create_qp(init).err();
        assert!(
            matches!(refused, Some(VerbsError::Limit { asked, limit: l, .. })
                if asked == u64::from(limit) + 1 && l == u64::from(limit)),
            "limit {n}: {refused:?}"
        );
    }
    assert!(a.context.create_cq(0, None).is_err());
    let refused = a.context.create_cq(caps.max_cqe + 1, None).err();
    assert!(matches!(refused, Some(VerbsError::Limit { .. })), "{refused:?}");
    inline_of_the_largest_size_works(bench);
}

fn inline_of_the_largest_size_works(bench: &Bench) {
    let options = Options::default();
    let (mut a, mut b) = (bench.side(&options), bench.side(&options));
    let largest = a.context.caps().max_inline_bytes;
    let init = QpInit { max_inline_bytes: largest, max_send_wr: 4, ..init_of(&a) };
    a.qp = a.pd.create_qp(init).unwrap();
    crate::connect((&mut a, &options), (&mut b, &options));
    let data = crate::pattern(3, largest as usize);
    let op = SendOp::Write(b.remote(16));
    assert!(a.run(SendWr::new(1, op, Payload::Inline(&data))).is_ok());
    assert_eq!(b.get(16, data.len()), data);
    a.qp.modify(QpTransition::ToReset).unwrap();
}

/// Queues and channels of another device, and devices that do not exist.
pub fn objects_of_other_devices_are_refused(bench: &Bench) {
    let (a, b) = (bench.side(&Options::default()), bench.side(&Options::default()));
    assert!(a.pd.create_qp(init_of(&b)).is_err());
    let unknown = bench.provider.open("no such device").err();
    assert!(
        matches!(&unknown, Some(VerbsError::NoDevice { known, .. }) if known.contains(&bench.device)),
        "{unknown:?}"
    );
    let names: Vec<_> = bench.provider.devices().unwrap();
    assert!(names.iter().any(|device| device.name == bench.device));
}

const SERVICES: [Service; 3] = [Service::Rc, Service::Uc, Service::Ud];

/// A queue pair takes the operations and the transitions of its service, and names it when it
/// refuses others.
pub fn services_have_their_own_operations(bench: &Bench) {
    let caps = bench.caps();
    for service in SERVICES.into_iter().filter(|at| caps.services.has(*at)) {
        let options = Options { service, ..Options::default() };
        let (mut a, b) = (bench.side(&options), bench.side(&options));
        let peer = b.qp.endpoint();
        let of_others =
            transitions(peer).into_iter().filter(|transition| !transition.exists_on(service));
        for transition in of_others {
            let refused = a.qp.modify(transition).unwrap_err();
            assert!(
                matches!(refused, ModifyError::Service { service: s, .. } if s == service),
                "{transition:?}: {refused}"
            );
        }
        assert_eq!(a.qp.state(), QpState::Reset);
        a.connect(peer, &options);
        let at = b.remote(0);
        for op in operations(at).into_iter().filter(|op| !op.exists_on(service)) {
            let sges = [a.sge(0, 8)];
            let wr = SendWr::new(1, op, Payload::Sges(&sges));
            let refused = a.qp.post_send(&[wr]).unwrap_err().reason;
            assert_eq!(refused, PostFailure::Service(service), "{op:?}");
        }
        assert_eq!(a.qp.state(), QpState::Rts);
    }
}

fn transitions(peer: catchment_verbs::Endpoint) -> [QpTransition; 7] {
    [
        QpTransition::ToInit { access: Access::REMOTE },
        QpTransition::ToInitUd { qkey: 1 },
        QpTransition::ToRtr(RtrAttr::new(peer)),
        QpTransition::ToRtrUc(peer),
        QpTransition::ToRtrUd,
        QpTransition::ToRts(RtsAttr::default()),
        QpTransition::ToRtsUnreliable,
    ]
}

fn operations(at: catchment_verbs::RemoteAddr) -> [SendOp; 8] {
    let to = Destination { ah: 0, qpn: 2, qkey: 1 };
    [
        SendOp::Write(at),
        SendOp::WriteImm(at, 1),
        SendOp::Read(at),
        SendOp::Send,
        SendOp::SendInvalidate(at.rkey),
        SendOp::SendTo(to),
        SendOp::SendImmTo(to, 1),
        SendOp::FetchAdd { remote: at, add: 1 },
    ]
}

/// A service that the device lacks is refused with those that it has; so are address handles
/// without UD, and invalidation.
pub fn what_is_not_offered_is_refused(bench: &Bench) {
    let (mut a, b) = bench.pair();
    let caps = a.context.caps().clone();
    assert!(caps.services.has(Service::Rc));
    for service in SERVICES {
        if bench.offers_service(service) {
            continue;
        }
        let refused = a.pd.create_qp(QpInit { service, ..init_of(&a) }).err().unwrap();
        assert!(
            matches!(refused, VerbsError::Service { asked, offered }
                if asked == service && offered == caps.services),
            "{refused}"
        );
    }
    if !caps.services.has(Service::Ud) {
        let port = PortAddr::from(&b.qp.endpoint());
        assert!(matches!(a.pd.create_ah(&port).err(), Some(VerbsError::Service { .. })));
    }
    let rights = crate::ALL | Access::REMOTE_INVALIDATE;
    assert_eq!(b.pd.alloc_mr(64, rights).is_ok(), caps.remote_invalidate);
    if !caps.send_invalidate {
        let wr = SendWr::new(1, SendOp::SendInvalidate(b.mr.rkey()), Payload::Inline(&[]));
        let refused = a.qp.post_send(&[wr]).unwrap_err().reason;
        assert!(matches!(refused, PostFailure::NotOffered(_)), "{refused}");
    }
}
