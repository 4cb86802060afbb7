//! Devices that go.
use super::{Cable, PATIENCE, event, eventually};
use catchment_verbs::{
    AsyncEvent, Completion, Payload, QpState, QpTransition, SendOp, SendWr, VerbsError, WcStatus,
};
use std::process::Command;

/// `rdma link delete` while queue pairs are connected and a thread sleeps: the removal waits for us,
/// and we notice.
pub(super) fn removed() {
    let cable = Cable::new();
    let (mut a, b) = cable.pair();
    let sges = [a.sge(0, 8)];
    // It finds no receive, and waits.
    a.post(SendWr::new(7, SendOp::Send, Payload::Sges(&sges)));
    a.post_recv(8, &sges);
    a.send_cq.req_notify(false);
    let mut removal = Command::new("rdma").args(["link", "delete", &cable.device]).spawn().unwrap();
    assert!(a.channel.wait(PATIENCE).unwrap(), "the sleeper must wake");
    event(&*a.context, |event| *event == AsyncEvent::DeviceFatal);
    event(
        &*a.context,
        |event| matches!(event, AsyncEvent::QpFatal { reason, .. } if reason.contains("removed")),
    );
    assert_eq!(a.qp.state(), QpState::Err);
    // Later requests fail like those before.
    a.post(SendWr::new(9, SendOp::Send, Payload::Sges(&sges)));
    for (cq, ids) in [(&a.send_cq, &[7, 9][..]), (&a.recv_cq, &[8][..])] {
        let mut seen = Vec::new();
        let mut out = [Completion::EMPTY; 4];
        eventually("flushed requests", || {
            let taken = cq.poll(&mut out).unwrap();
            for done in &out[..taken] {
                assert_eq!(done.result.unwrap_err().status, WcStatus::Flushed);
                seen.push(done.wr_id);
            }
            seen.len() == ids.len()
        });
        assert_eq!(seen, ids);
    }
    a.qp.modify(QpTransition::ToReset).unwrap();
    assert!(a.qp.modify(QpTransition::ToInit { access: catchment_conformance::ALL }).is_err());
    let again = super::provider().open_device(&cable.device).err().unwrap();
    assert!(
        matches!(again, VerbsError::NoDevice { .. } | VerbsError::Unavailable { .. }),
        "{again}"
    );
    drop((a, b));
    assert!(removal.wait().unwrap().success());
    cable.add_device();
    drop(cable.pair());
}
