//! A third host, in a network namespace of its own: it sees neither stream, and sends packets with the
//! addresses of others through a raw socket.
use catchment_conformance::{Options, Side, connected, eventually, pattern, wait_one};
use catchment_netns::{Namespace, VethPair, with_privilege};
use catchment_provider_roce::{DeviceCounters, DropReason, RoceContext, RoceOptions, RoceProvider};
use catchment_roce::wire::net::{Ipv4Id, MAX_NET_BYTES, NetHeader};
use catchment_roce::wire::{
    Aeth, Bth, Headers, NakCode, Opcode, ROCE_PORT, Reth, Syndrome, datagram, icrc,
};
use catchment_roce::{Counters, Psn};
use catchment_verbs::{Endpoint, Payload, QpState, RemoteAddr, SendOp, SendWr, WcStatus};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeSet;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// Two devices at a cable, and a third host that reaches the left one.
struct Hosts {
    a: Side,
    b: Side,
    left: Arc<RoceContext>,
    right: Arc<RoceContext>,
    third: Socket,
    pair: VethPair,
    _far: Namespace,
}

impl Hosts {
    fn new(options: &RoceOptions) -> Self {
        let pair = VethPair::new(9000).unwrap();
        let far = Namespace::new().unwrap();
        far.ip(&[
            "link",
            "add",
            "far0",
            "type",
            "veth",
            "peer",
            "name",
            "far1",
            "netns",
            &pair.left.path(),
        ])
        .unwrap();
        for (host, device, address) in
            [(&far, "far0", "10.98.0.1/24"), (&pair.left, "far1", "10.98.0.2/24")]
        {
            host.ip(&["addr", "add", address, "dev", device]).unwrap();
            host.ip(&["link", "set", device, "up"]).unwrap();
        }
        far.ip(&["route", "add", &format!("{}/32", VethPair::LEFT_V4), "via", "10.98.0.2"])
            .unwrap();
        let raw = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(libc::IPPROTO_RAW)));
        let third = far.run(raw).unwrap().unwrap();
        let open = |at: &Namespace, address: IpAddr| {
            let provider = RoceProvider::new(options.clone());
            at.run(|| provider.open_device(&address.to_string())).unwrap().unwrap()
        };
        let left = open(&pair.left, VethPair::LEFT_V4);
        let right = open(&pair.right, VethPair::RIGHT_V4);
        let options = Options::default();
        let (a, b) = connected((left.clone(), &options), (right.clone(), &options));
        Self { a, b, left, right, third, pair, _far: far }
    }

    /// Sends the left host a packet that claims to come from the right one.
    fn forge(&self, source_port: u16, headers: &Headers, payload: &[u8]) {
        let v4 = |address: IpAddr| match address {
            IpAddr::V4(v4) => v4,
            IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        };
        let (from, to) = (v4(VethPair::RIGHT_V4), v4(VethPair::LEFT_V4));
        // The kernel replaces the identification 0.
        let net = NetHeader::v4(from, to, source_port).with_ipv4_id(Ipv4Id::new(1));
        let mut transport = Vec::new();
        datagram::seal(&net, headers, payload, &mut transport);
        let mut network = [0; MAX_NET_BYTES];
        let bytes = net.encode(transport.len(), &mut network);
        self.inject(&[&network[..bytes], &transport].concat());
    }

    /// Sends the left host this packet, from the IP header on.
    fn inject(&self, packet: &[u8]) {
        let to = SocketAddr::new(VethPair::LEFT_V4, ROCE_PORT).into();
        // The network needs a moment before the first packet passes.
        eventually("sending a packet", || self.third.send_to(packet, &to).is_ok());
    }

    fn counters(&self) -> DeviceCounters {
        self.left.counters()
    }
}

fn nak(to: &Endpoint, psn: u32, code: NakCode) -> Headers {
    let mut headers = Headers::new(Bth::new(Opcode::RcAcknowledge, to.qpn, Psn::new(psn)));
    headers.aeth = Some(Aeth { syndrome: Syndrome::Nak(code), msn: 0 });
    headers
}

/// It guesses queue pair, PSN and port, and ends nothing; what the peer says itself is believed.
#[test]
fn a_nak_of_a_third_host_ends_no_connection() {
    with_privilege("attacker::a_nak_of_a_third_host_ends_no_connection", || {
        let mut hosts = Hosts::new(&RoceOptions::default());
        let (ours, theirs) = (hosts.a.qp.endpoint(), hosts.b.qp.endpoint());
        let port = theirs.net.unwrap().source_port().unwrap();
        // Nobody has a receive for it: it stays in flight.
        hosts.a.put(0, &pattern(1, 8));
        let sge = [hosts.a.sge(0, 8)];
        hosts.a.post(SendWr::new(1, SendOp::Send, Payload::Sges(&sge)));
        eventually("the SEND to be refused", || hosts.counters().protocol.rnr_naks_received > 0);

        // Every port but one is not the peer's.
        for wrong in [ROCE_PORT, port ^ 1, port ^ 0x2000] {
            hosts.forge(wrong, &nak(&ours, ours.psn, NakCode::RemoteAccess), &[]);
        }
        eventually("three packets", || hosts.counters().dropped(DropReason::WrongPort) == 3);
        assert_eq!(hosts.counters().protocol.forged_naks, 0);

        for code in [NakCode::RemoteAccess, NakCode::InvalidRequest, NakCode::RemoteOperation] {
            let before = hosts.counters().protocol.forged_naks;
            hosts.forge(port, &nak(&ours, ours.psn, code), &[]);
            eventually("a challenge", || hosts.counters().protocol.forged_naks > before);
        }
        assert_eq!(hosts.a.qp.state(), QpState::Rts);
        // Its own answers to challenges that it does not see.
        let mut answer = nak(&ours, ours.psn, NakCode::RemoteAccess);
        answer.bth.opcode = Opcode::ChallengeAnswer;
        let before = hosts.counters().protocol.dropped;
        for guess in 0..100u64 {
            hosts.forge(port, &answer, &guess.to_be_bytes());
        }
        eventually("guesses", || hosts.counters().protocol.dropped >= before + 100);

        let room = [hosts.b.sge(64, 8)];
        hosts.b.post_recv(2, &room);
        assert!(wait_one(&*hosts.b.recv_cq).result.is_ok());
        assert!(wait_one(&*hosts.a.send_cq).result.is_ok());
        assert_eq!(hosts.b.get(64, 8), pattern(1, 8));

        let RemoteAddr { addr, rkey } = hosts.b.remote(0);
        let wrong = RemoteAddr { addr, rkey: rkey ^ 1 };
        let status = hosts.a.run_failing(SendOp::Write(wrong), &sge);
        assert_eq!(status, WcStatus::RemoteAccess);
        assert_eq!(hosts.right.counters().protocol.fatal_naks_sent, 1);
    });
}

/// Packets of ours are not marked as ECN capable unless asked for, so no switch has anything to notify of.
#[test]
fn congestion_notifications_of_a_third_host_change_nothing() {
    with_privilege("attacker::congestion_notifications_of_a_third_host_change_nothing", || {
        let mut hosts = Hosts::new(&RoceOptions::default());
        let port = hosts.b.qp.endpoint().net.unwrap().source_port().unwrap();
        let cnp = Headers::cnp(hosts.a.qp.qpn());
        for round in 0..200u8 {
            (0..10).for_each(|_| hosts.forge(port, &cnp, &[]));
            hosts.a.put(0, &[round; 4096]);
            let sge = [hosts.a.sge(0, 4096)];
            hosts.a.run_ok(SendOp::Write(hosts.b.remote(0)), &sge);
        }
        eventually("2,000 CNPs", || hosts.counters().protocol.cnps_received == 2000);
        assert_eq!(hosts.counters().protocol.cnps_ignored, 2000);
    });
}

/// The port that the endpoint tells is the one on the wire, and queue pairs spread over several.
#[test]
fn packets_leave_from_the_port_that_the_peer_was_told() {
    with_privilege("attacker::packets_leave_from_the_port_that_the_peer_was_told", || {
        let mut hosts = Hosts::new(&RoceOptions::default());
        let raw = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP));
        let wire = hosts.pair.right.run(raw).unwrap().unwrap();
        wire.set_nonblocking(true).unwrap();
        let told = hosts.a.qp.endpoint().net.unwrap().source_port().unwrap();
        let sge = [hosts.a.sge(0, 8)];
        hosts.a.run_ok(SendOp::Write(hosts.b.remote(0)), &sge);
        // IP header without options, then the source port.
        let mut packet = [0; 2048];
        let bytes = (&wire).read(&mut packet).unwrap();
        assert!(bytes > 28, "{bytes}");
        assert_eq!(u16::from_be_bytes([packet[20], packet[21]]), told);
        let options = Options::default();
        let others: Vec<_> = (0..64).map(|_| Side::new(hosts.left.clone(), &options)).collect();
        let ports =
            others.iter().map(|side| side.qp.endpoint().net.unwrap().source_port().unwrap());
        let ports: BTreeSet<u16> = ports.collect();
        assert!(ports.len() >= 4 && ports.iter().all(|port| *port >= 0xc000), "{ports:?}");
        assert!(told >= 0xc000);
    });
}

/// It knows all numbers, ports and keys of memory, and has copies of what went by: only the key is missing.
#[test]
fn a_third_host_changes_nothing_of_an_authenticated_connection() {
    with_privilege("attacker::a_third_host_changes_nothing_of_an_authenticated_connection", || {
        let options = RoceOptions { authenticate: true, ..RoceOptions::default() };
        let mut hosts = Hosts::new(&options);
        let raw = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP));
        let wire = hosts.pair.left.run(raw).unwrap().unwrap();
        let (ours, theirs) = (hosts.a.qp.endpoint(), hosts.b.qp.endpoint());
        let port = theirs.net.unwrap().source_port().unwrap();
        hosts.a.put(0, &pattern(1, 20_000));
        let sge = [hosts.a.sge(0, 20_000)];
        hosts.a.run_ok(SendOp::Write(hosts.b.remote(0)), &sge);
        assert!(hosts.b.get(0, 20_000) == pattern(1, 20_000));

        let forged = every_kind(&ours, &theirs, &hosts.a.remote(0));
        let before = hosts.counters();
        for (headers, payload) in &forged {
            hosts.forge(port, headers, payload);
            // With 24 bytes where counter and tag stand.
            hosts.forge(port, headers, &[payload.as_slice(), &[9; 24]].concat());
        }
        let dropped = 2 * forged.len() as u64;
        eventually("forged packets", || hosts.counters().dropped(DropReason::Forged) == dropped);

        // The acknowledgement that went by, once more, and altered with a right ICRC.
        let mut packet = [0; 4096];
        let bytes = (&wire).read(&mut packet).unwrap();
        // The UDP checksum is not there yet: a network card would have added it.
        packet[26..28].fill(0);
        let (net, sealed) = NetHeader::decode(&packet[..bytes]).unwrap();
        hosts.inject(&packet[..bytes]);
        eventually("a replay", || hosts.counters().dropped(DropReason::Replayed) == 1);
        let (transport, _) = icrc::split(sealed).unwrap();
        // Another PSN, another counter, another tag.
        for (at, count) in [(11, 1), (transport.len() - 17, 2), (transport.len() - 1, 3)] {
            let mut altered = transport.to_vec();
            altered[at] ^= 0x40;
            let net = net.with_ipv4_id(Ipv4Id::new(1));
            let icrc = icrc::compute(&net, &altered).to_le_bytes();
            let mut network = [0; MAX_NET_BYTES];
            let head = net.encode(altered.len() + icrc.len(), &mut network);
            hosts.inject(&[&network[..head], &altered, &icrc].concat());
            let dropped = |reason| hosts.counters().dropped(reason);
            let all = || dropped(DropReason::Forged) + dropped(DropReason::Replayed);
            eventually("an altered packet", || all() == 2 * forged.len() as u64 + 1 + count);
        }
        // On a busy machine an acknowledgement of ours may have come twice, so not all of them are compared.
        let seen = |counters: &DeviceCounters| {
            let Counters { rnr_naks_received, sequence_naks_received, .. } = counters.protocol;
            let Counters { cnps_received, bytes_received, reordered, .. } = counters.protocol;
            let naks = (rnr_naks_received, sequence_naks_received, counters.protocol.forged_naks);
            (naks, cnps_received, bytes_received, reordered)
        };
        assert_eq!(seen(&hosts.counters()), seen(&before), "no queue pair saw any of it");
        assert!(hosts.a.get(0, 20_000) == pattern(1, 20_000));
        hosts.b.run_ok(SendOp::Read(hosts.a.remote(0)), &[hosts.b.sge(30_000, 20_000)]);
        assert!(hosts.b.get(30_000, 20_000) == pattern(1, 20_000));
    });
}

/// A packet of each kind that would do something, with the right numbers.
fn every_kind(ours: &Endpoint, theirs: &Endpoint, at: &RemoteAddr) -> Vec<(Headers, Vec<u8>)> {
    let request = |opcode| {
        let mut headers = Headers::new(Bth::new(opcode, ours.qpn, Psn::new(theirs.psn)));
        headers.reth = Some(Reth { va: at.addr, rkey: at.rkey, dma_bytes: 4 });
        headers
    };
    let answer = |syndrome| {
        let mut headers = nak(ours, ours.psn, NakCode::RemoteAccess);
        headers.aeth = Some(Aeth { syndrome, msn: 0 });
        (headers, Vec::new())
    };
    let syndromes = [
        Syndrome::ACK,
        Syndrome::Rnr { timer: 0 },
        Syndrome::Nak(NakCode::PsnSequence),
        Syndrome::Nak(NakCode::RemoteAccess),
    ];
    let mut all: Vec<_> = syndromes.map(answer).into();
    all.push((Headers::cnp(ours.qpn), Vec::new()));
    all.push((request(Opcode::RcReadRequest), Vec::new()));
    for opcode in [Opcode::RcWriteOnly, Opcode::RcSendOnly, Opcode::Challenge] {
        all.push((request(opcode), b"evil".to_vec()));
    }
    all
}
