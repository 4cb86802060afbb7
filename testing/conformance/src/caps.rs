//! The capabilities tell the truth.
use crate::{Bench, Options, queues::init_of};
use catchment_verbs::{Payload, QpInit, QpTransition, SendOp, SendWr, VerbsError};

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
    assert!(
        matches!(refused, Some(VerbsError::Limit { .. })),
        "{refused:?}"
    );
    inline_of_the_largest_size_works(bench);
}

fn inline_of_the_largest_size_works(bench: &Bench) {
    let options = Options::default();
    let (mut a, mut b) = (bench.side(&options), bench.side(&options));
    let largest = a.context.caps().max_inline_bytes;
    let init = QpInit {
        max_inline_bytes: largest,
        max_send_wr: 4,
        ..init_of(&a)
    };
    a.qp = a.pd.create_qp(init).unwrap();
    crate::connect((&mut a, &options), (&mut b, &options));
    let data = crate::pattern(3, largest as usize);
    let op = SendOp::Write(b.remote(16));
    let done = a.run(SendWr::new(1, op, Payload::Inline(&data)));
    assert!(done.is_ok());
    assert_eq!(b.get(16, data.len()), data);
    a.qp.modify(QpTransition::ToReset).unwrap();
}

/// Queues and channels of another device, and devices that do not exist.
pub fn objects_of_other_devices_are_refused(bench: &Bench) {
    let (a, b) = (
        bench.side(&Options::default()),
        bench.side(&Options::default()),
    );
    assert!(a.pd.create_qp(init_of(&b)).is_err());
    let unknown = bench.provider.open("no such device").err();
    assert!(
        matches!(&unknown, Some(VerbsError::NoDevice { known, .. }) if known.contains(&bench.device)),
        "{unknown:?}"
    );
    let names: Vec<_> = bench.provider.devices().unwrap();
    assert!(names.iter().any(|device| device.name == bench.device));
}
