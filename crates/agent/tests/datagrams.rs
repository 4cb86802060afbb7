//! UD through an agent, beyond what the conformance suite tries.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod suite;

use catchment_agent::Agent;
use catchment_agent::policy::Policy;
use catchment_conformance::{Options, Side, connect, eventually, wait_one};
use catchment_verbs::{
    Destination, GRH_BYTES, Payload, PortAddr, QpState, QpTransition, SendOp, SendWr, Service,
    Services, VerbsError, WcStatus,
};
use suite::open;

fn agent(kind: &str, device: &str) -> (Agent, String) {
    let name = format!("datagrams-{kind}-{}", std::process::id());
    let text = format!(
        r#"{{"name": "{name}", "device": {device}, "applications": [
            {{"name": "asks", "datagrams": true}}, {{"name": "does-not"}}]}}"#
    );
    (Agent::start(Policy::parse(&text).unwrap()).unwrap(), name)
}

fn options() -> Options {
    Options { service: Service::Ud, bytes: 64 << 10, ..Options::default() }
}

fn sides(name: &str) -> (Side, Side) {
    let (mut a, mut b) =
        (Side::new(open(name, "asks"), &options()), Side::new(open(name, "asks"), &options()));
    connect((&mut a, &options()), (&mut b, &options()));
    (a, b)
}

/// S5.6: agents offer UD where their policy asks for it and the device has it; to nobody else.
#[test]
fn s5_6_datagrams_are_offered_when_they_are_asked_for() {
    let (_agent, name) = agent("asked", suite::ROCE[0]);
    assert_eq!(open(&name, "asks").caps().services, Services::RC | Services::UD);
    let without = open(&name, "does-not");
    assert_eq!(without.caps().services, Services::RC);
    let refused =
        without.alloc_pd().unwrap().create_ah(&PortAddr { gid: without.gid(), net: None });
    assert!(matches!(refused, Err(VerbsError::Service { asked: Service::Ud, .. })));
    let (_agent, name) = agent("lacking", suite::SHM[0]);
    assert_eq!(open(&name, "asks").caps().services, Services::RC);
}

/// S5.6: a datagram that fails stops the send queue, and nothing else; the queue goes on when it is told to.
#[test]
fn s5_6_a_datagram_that_fails_stops_the_send_queue() {
    let (_agent, name) = agent("stopped", suite::ROCE[0]);
    let (mut a, mut b) = sides(&name);
    let qkey = options().qkey;
    let to_b = a.pd.create_ah(&PortAddr::from(&b.qp.endpoint())).unwrap();
    let to_a = b.pd.create_ah(&PortAddr::from(&a.qp.endpoint())).unwrap();
    let at_b = SendOp::SendTo(Destination { ah: to_b.handle(), qpn: b.qp.qpn(), qkey });
    let at_a = SendOp::SendTo(Destination { ah: to_a.handle(), qpn: a.qp.qpn(), qkey });
    let mut wrong = [a.sge(0, 8)];
    wrong[0].lkey ^= 1 << 20;
    a.post(SendWr::new(1, at_b, Payload::Sges(&wrong)));
    let failed = wait_one(&*a.send_cq);
    assert_eq!((failed.wr_id, failed.result.unwrap_err().status), (1, WcStatus::LocalProtection));
    assert_eq!(a.qp.state(), QpState::Sqe);

    a.post_recv(2, &[a.sge(0, 100)]);
    b.put(0, b"received");
    b.run_ok(at_a, &[b.sge(0, 8)]);
    assert!(wait_one(&*a.recv_cq).result.is_ok());
    assert_eq!(a.get(GRH_BYTES, 8), b"received");

    a.qp.modify(QpTransition::ToRtsUnreliable).unwrap();
    assert_eq!(a.qp.state(), QpState::Rts);
    b.post_recv(3, &[b.sge(0, 100)]);
    a.put(0, b"as usual");
    a.run_ok(at_b, &[a.sge(0, 8)]);
    eventually("a datagram after SQE", || b.get(GRH_BYTES, 8) == b"as usual");
}
