//! UD: datagrams.
use crate::{Bench, Options, Side, assert_empty, pattern, wait_one};
use catchment_verbs::{
    Ah, Destination, GRH_BYTES, Payload, PortAddr, PostFailure, Qp, QpState, SendOp, SendWr,
    Service, Success, WcOpcode, source_gid,
};
use std::sync::Arc;
use std::time::Duration;

fn options(qkey: u32) -> Options {
    Options { service: Service::Ud, qkey, ..Options::default() }
}

/// A side that is ready.
fn ready(mut side: Side, qkey: u32) -> Side {
    side.connect(side.qp.endpoint(), &options(qkey));
    side
}

fn side(bench: &Bench, qkey: u32) -> Side {
    ready(bench.side(&options(qkey)), qkey)
}

/// Two sides with the Q_Keys 1 and 2.
fn pair(bench: &Bench) -> Option<(Side, Side)> {
    bench.offers_service(Service::Ud).then(|| (side(bench, 1), side(bench, 2)))
}

/// The path from one side to another, and the other as a destination.
fn path_to(from: &Side, to: &Side, qkey: u32) -> (Arc<dyn Ah>, Destination) {
    let port = PortAddr::from(&to.qp.endpoint());
    let ah = from.pd.create_ah(&port).unwrap();
    assert_eq!(*ah.to(), port);
    let destination = Destination { ah: ah.handle(), qpn: to.qp.qpn(), qkey };
    (ah, destination)
}

/// Sends a datagram of these bytes, and waits until the sender is done with it.
fn send(a: &mut Side, op: SendOp, data: &[u8]) {
    a.put(0, data);
    let done = a.run_ok(op, &[a.sge(0, data.len())]);
    assert_eq!(done, Success::plain(WcOpcode::Send, data.len() as u64));
}

/// Receives the next datagram into memory at 0, which must be this one.
fn expect(b: &mut Side, sender: &dyn Qp, data: &[u8], imm: Option<u32>) {
    let done = wait_one(&*b.recv_cq);
    let bytes = (GRH_BYTES + data.len()) as u64;
    let expected = Success::plain(WcOpcode::Recv, bytes).with_imm(imm).from_qpn(sender.qpn());
    assert_eq!(done.result, Ok(expected));
    assert_eq!(expected.source_qpn(), Some(sender.qpn()));
    assert!(b.get(GRH_BYTES, data.len()) == data);
    assert_eq!(source_gid(&b.get(0, GRH_BYTES).try_into().unwrap()), Some(sender.endpoint().gid));
}

fn receive(b: &mut Side) {
    let place = b.sge(0, 8192);
    b.put(0, &[0; 8192]);
    b.post_recv(5, &[place]);
}

/// To several queue pairs from one, with and without immediate data, of all lengths; and back.
pub fn datagrams_arrive_with_their_sender(bench: &Bench) {
    let Some((mut a, mut b)) = pair(bench) else { return };
    let mut c = side(bench, 3);
    let mtu = a.context.caps().path_mtu.unwrap() as usize;
    let (_to_b, b_at) = path_to(&a, &b, 2);
    let (_to_c, c_at) = path_to(&a, &c, 3);
    for bytes in [0, 1, 31, 200, mtu] {
        let data = pattern(bytes as u64, bytes);
        for (to, at) in [(&mut b, b_at), (&mut c, c_at)] {
            receive(to);
            send(&mut a, SendOp::SendTo(at), &data);
            expect(to, &*a.qp, &data, None);
            receive(to);
            send(&mut a, SendOp::SendImmTo(at, 0xfeed_0001), &data);
            expect(to, &*a.qp, &data, Some(0xfeed_0001));
        }
    }
    let inline = *b"inline";
    receive(&mut b);
    a.run(SendWr::new(1, SendOp::SendTo(b_at), Payload::Inline(&inline))).unwrap();
    expect(&mut b, &*a.qp, &inline, None);
    let (_back, a_at) = path_to(&b, &a, 1);
    receive(&mut a);
    send(&mut b, SendOp::SendTo(a_at), b"and back");
    expect(&mut a, &*b.qp, b"and back", None);
}

/// A datagram with a wrong Q_Key does not arrive; one with the receiver's does.
pub fn a_wrong_qkey_is_dropped(bench: &Bench) {
    let Some((mut a, mut b)) = pair(bench) else { return };
    let (_path, right) = path_to(&a, &b, 2);
    receive(&mut b);
    let wrong = Destination { qkey: 3, ..right };
    send(&mut a, SendOp::SendTo(wrong), b"wrong");
    send(&mut a, SendOp::SendTo(right), b"right");
    expect(&mut b, &*a.qp, b"right", None);
    assert_empty(&*b.recv_cq);
    assert_eq!((a.qp.state(), b.qp.state()), (QpState::Rts, QpState::Rts));
}

/// One byte more than a packet holds is refused when it is posted.
pub fn a_datagram_fits_one_packet(bench: &Bench) {
    let Some((mut a, b)) = pair(bench) else { return };
    let (_path, to) = path_to(&a, &b, 2);
    let mtu = a.context.caps().path_mtu.unwrap();
    let sges = [a.sge(0, mtu as usize), a.sge(0, 1)];
    let wr = SendWr::new(1, SendOp::SendTo(to), Payload::Sges(&sges));
    let refused = a.qp.post_send(&[wr]).unwrap_err();
    let too_long = PostFailure::MessageTooLong { asked: u64::from(mtu) + 1, limit: mtu.into() };
    assert_eq!((refused.index, refused.reason), (0, too_long));
    assert_empty(&*a.send_cq);
    assert_eq!(a.qp.state(), QpState::Rts);
}

/// A datagram without a receive is dropped silently; the next one is taken.
pub fn a_datagram_without_a_receive_is_dropped(bench: &Bench) {
    let Some((mut a, mut b)) = pair(bench) else { return };
    let mut other = ready(Side::new(b.context.clone(), &options(2)), 2);
    let (_to_b, b_at) = path_to(&a, &b, 2);
    let (_to_other, other_at) = path_to(&a, &other, 2);
    send(&mut a, SendOp::SendTo(b_at), b"lost");
    receive(&mut other);
    send(&mut a, SendOp::SendTo(other_at), b"behind it");
    expect(&mut other, &*a.qp, b"behind it", None);
    // The device has the one before it too, but may process another queue pair later.
    std::thread::sleep(Duration::from_millis(20));
    receive(&mut b);
    send(&mut a, SendOp::SendTo(b_at), b"found");
    expect(&mut b, &*a.qp, b"found", None);
    assert_eq!((a.qp.state(), b.qp.state()), (QpState::Rts, QpState::Rts));
}

/// What cannot be a destination is refused when it is posted, and nothing is broken.
pub fn destinations_are_checked(bench: &Bench) {
    let Some((mut a, mut b)) = pair(bench) else { return };
    let (ah, right) = path_to(&a, &b, 2);
    let other_pd = a.context.alloc_pd().unwrap();
    let foreign = other_pd.create_ah(ah.to()).unwrap();
    let (gone, gone_at) = path_to(&a, &b, 2);
    drop(gone);
    for wrong in [
        gone_at,
        Destination { ah: foreign.handle(), ..right },
        Destination { qpn: 1 << 24, ..right },
        Destination { qkey: 1 << 31, ..right },
    ] {
        let wr = SendWr::new(1, SendOp::SendTo(wrong), Payload::Inline(b"x"));
        let refused = a.qp.post_send(&[wr]).unwrap_err().reason;
        assert!(matches!(refused, PostFailure::Destination(_)), "{wrong:?}: {refused:?}");
    }
    receive(&mut b);
    send(&mut a, SendOp::SendTo(right), b"right");
    expect(&mut b, &*a.qp, b"right", None);
}

/// A datagram that was posted before its address handle was dropped is still sent.
pub fn a_datagram_outlives_its_address_handle(bench: &Bench) {
    let Some((mut a, mut b)) = pair(bench) else { return };
    for _ in 0..20 {
        receive(&mut b);
        let (ah, to) = path_to(&a, &b, 2);
        a.put(0, b"in transit");
        let sge = a.sge(0, 10);
        a.post(SendWr::new(1, SendOp::SendTo(to), Payload::Sges(&[sge])));
        drop(ah);
        expect(&mut b, &*a.qp, b"in transit", None);
        assert!(wait_one(&*a.send_cq).result.is_ok());
    }
}
