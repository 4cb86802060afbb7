//! Answers that a third host forges, and what ends a connection between two of our stacks.
use crate::pair::{A, B, BOTH, End, KEY, LATENCY, Pair, Setup, losing, remote, sge};
use catchment_roce::wire::{Aeth, Bth, Headers, NakCode, Opcode, Packet, Syndrome};
use catchment_roce::{
    Arrival, Input, Psn, QpState, Recovery, RemoteAddr, SendOp, TransmitBatch, WcStatus,
};

/// First PSN of the requester.
const FIRST: u32 = 0xff_fff0;
const FATAL: [(NakCode, WcStatus); 3] = [
    (NakCode::InvalidRequest, WcStatus::RemoteInvalidRequest),
    (NakCode::RemoteAccess, WcStatus::RemoteAccess),
    (NakCode::RemoteOperation, WcStatus::RemoteOperation),
];

fn ours(recovery: Recovery) -> Setup {
    Setup { challenges: true, ..Setup::recovering(recovery) }
}

/// An answer to the requester, as anyone can make it who guesses the numbers.
fn answer(opcode: Opcode, psn: u32, syndrome: Syndrome) -> Headers {
    let mut headers = Headers::new(Bth::new(opcode, 0x11, Psn::new(psn)));
    headers.aeth = Some(Aeth { syndrome, msn: 0 });
    headers
}

fn nak(psn: u32, code: NakCode) -> Headers {
    answer(Opcode::RcAcknowledge, psn, Syndrome::Nak(code))
}

/// A requester with WRITEs of four packets in flight.
fn requester(setup: &Setup) -> End {
    let mut node = setup.end(A);
    node.post(1, SendOp::Write(remote(0)), &[sge(0, 1024)]);
    assert_eq!(node.transmit(1, &mut TransmitBatch::new(64)).len(), 4);
    node
}

fn sent(node: &mut End) -> Vec<(Opcode, u32, Vec<u8>)> {
    let packets = node.transmit(2, &mut TransmitBatch::new(64));
    let decoded = packets.iter().map(|bytes| {
        let Packet { headers, payload } = Packet::decode(bytes).unwrap();
        (headers.bth.opcode, headers.bth.psn.value(), payload.to_vec())
    });
    decoded.collect()
}

#[test]
fn the_nak_of_an_rnic_is_believed() {
    for (code, status) in FATAL {
        let mut node = requester(&Setup::default());
        node.deliver(2, &nak(FIRST + 2, code), &[]);
        assert_eq!(node.qp().state(), QpState::Err);
        assert_eq!(node.qp().error_cause(), Some(status));
    }
}

/// A third host sees neither stream, and sends a thousand NAKs with the right numbers.
#[test]
fn a_forged_nak_makes_one_challenge_and_ends_nothing() {
    for (recovery, (code, _)) in BOTH.into_iter().flat_map(|how| FATAL.map(|code| (how, code))) {
        let mut pair = ours(recovery).pair();
        pair[A].post(1, SendOp::Write(remote(0)), &[sge(0, 4096)]);
        pair.run_for(LATENCY / 2, |_, _| false);
        let now_ns = pair.now_ns();
        for psn in (FIRST..FIRST + 15).cycle().take(1000) {
            pair[A].deliver(now_ns, &nak(psn, code), &[]);
        }
        assert_eq!(pair[A].qp().state(), QpState::Rts);
        pair.run();
        assert_eq!(pair[A].succeeded(), [1]);
        assert_eq!(count(&pair, Opcode::Challenge), 1);
        assert_eq!(pair[A].qp().counters().forged_naks, 1);
        assert_eq!(pair[A].qp().counters().retransmitted, 0, "nothing was taken for acknowledged");
    }
}

fn count(pair: &Pair, opcode: Opcode) -> usize {
    let packets = pair.log.iter();
    packets.filter(|packet| packet.headers.bth.opcode == opcode).count()
}

/// Whoever does not see the challenge cannot answer it, and nobody else is believed.
#[test]
fn an_answer_without_the_number_of_the_challenge_is_dropped() {
    let mut node = requester(&ours(Recovery::SelectiveRepeat));
    let refused = answer(Opcode::ChallengeAnswer, FIRST, Syndrome::Nak(NakCode::RemoteAccess));
    node.deliver(2, &refused, &[0; 8]);
    assert_eq!(node.qp().counters().dropped, 1, "nothing was asked");
    node.deliver(2, &nak(FIRST, NakCode::RemoteAccess), &[]);
    let challenge = sent(&mut node);
    let [(Opcode::Challenge, FIRST, number)] = &challenge[..] else { panic!("{challenge:?}") };
    for wrong in [&[0; 8][..], &number[..7], &[], &[number.as_slice(), &[0; 4]].concat()] {
        node.deliver(2, &refused, wrong);
    }
    assert_eq!(node.qp().counters().dropped, 5);
    assert_eq!(node.qp().state(), QpState::Rts);
    node.deliver(2, &refused, number);
    assert_eq!(node.qp().error_cause(), Some(WcStatus::RemoteAccess));
    // Each challenge has a number of its own.
    let mut other = ours(Recovery::SelectiveRepeat).end(A);
    other.post(1, SendOp::Write(remote(0)), &[sge(0, 4)]);
    sent(&mut other);
    let mut numbers = Vec::new();
    for _ in 0..3 {
        other.deliver(2, &nak(FIRST, NakCode::RemoteAccess), &[]);
        let number = sent(&mut other).remove(0).2;
        other.deliver(2, &answer(Opcode::ChallengeAnswer, FIRST, Syndrome::ACK), &number);
        numbers.push(number);
    }
    numbers.dedup();
    assert_eq!(numbers.len(), 3);
}

/// Whatever single packet is lost, a true refusal is heard, with its reason.
#[test]
fn a_true_refusal_ends_the_connection_whatever_packet_is_lost() {
    let wrong = RemoteAddr { rkey: KEY ^ 1, ..remote(0) };
    for (recovery, lost) in BOTH.into_iter().flat_map(|how| (0..14).map(move |lost| (how, lost))) {
        let mut pair = ours(recovery).pair();
        pair[A].post(1, SendOp::Write(remote(0)), &[sge(0, 512)]);
        pair[A].post(2, SendOp::Write(wrong), &[sge(0, 512)]);
        pair[A].post(3, SendOp::Write(remote(0)), &[sge(0, 512)]);
        pair.run_losing(losing(|number| number == lost));
        let failed = (2, Some(WcStatus::RemoteAccess));
        let expected = [(1, None), failed, (3, Some(WcStatus::Flushed))];
        assert_eq!(pair[A].statuses(), expected, "{recovery:?}, packet {lost}");
        assert_eq!(pair[B].qp().state(), QpState::Err);
        assert_eq!(pair[A].qp().counters().forged_naks, 0);
    }
}

#[test]
fn a_refusal_is_repeated_only_for_who_asks_for_it() {
    let mut node = ours(Recovery::SelectiveRepeat).end(B);
    let mut bad = Headers::new(Bth::new(Opcode::RcWriteMiddle, 0x22, Psn::new(FIRST)));
    node.deliver(1, &bad, &[1; 256]);
    node.handle(1, Input::EndOfBatch);
    assert_eq!(sent(&mut node).len(), 1, "the NAK");
    bad.bth.psn = Psn::new(FIRST + 1);
    node.deliver(2, &bad, &[1; 256]);
    assert_eq!(sent(&mut node), [], "a later request");
    bad.bth.psn = Psn::new(FIRST);
    node.deliver(2, &bad, &[1; 256]);
    assert_eq!(sent(&mut node), [(Opcode::RcAcknowledge, FIRST, vec![])]);
    let challenge = answer(Opcode::Challenge, FIRST, Syndrome::Nak(NakCode::RemoteAccess));
    node.deliver(2, &challenge, &[7; 7]);
    assert_eq!(sent(&mut node), [], "no number");
    node.deliver(2, &challenge, &[7; 8]);
    assert_eq!(sent(&mut node), [(Opcode::ChallengeAnswer, FIRST, vec![7; 8])]);
}

/// A NAK counts for what is in flight and has left the driver, and for what it can be said of.
#[test]
fn naks_that_the_peer_cannot_have_sent_are_dropped() {
    let rnr = answer(Opcode::RcAcknowledge, FIRST, Syndrome::Rnr { timer: 0 });
    for recovery in BOTH {
        for psn in [FIRST - 1, FIRST + 4, FIRST + 100, 0] {
            let mut node = requester(&Setup::recovering(recovery));
            node.deliver(2, &nak(psn, NakCode::RemoteAccess), &[]);
            assert_eq!((node.qp().state(), node.qp().counters().dropped), (QpState::Rts, 1));
        }
        // Two of the four packets wait for the socket.
        let held_from = Some(Psn::new(FIRST + 2));
        for (psn, state) in [(FIRST + 2, QpState::Rts), (FIRST + 1, QpState::Err)] {
            let mut node = requester(&Setup::recovering(recovery));
            let headers = nak(psn, NakCode::RemoteAccess);
            let arrival = Arrival { held_from, ..Arrival::new(&headers, &[]) };
            node.handle(2, Input::Packet(arrival));
            assert_eq!(node.qp().state(), state, "{recovery:?}");
        }
        // A WRITE waits for no receive of ours.
        let mut node = requester(&ours(recovery));
        node.deliver(2, &rnr, &[]);
        assert_eq!(node.qp().counters().dropped, 1);
        assert_eq!(node.qp().counters().rnr_naks_received, 0);
    }
    // Selective repeat has SACKs.
    let mut node = requester(&ours(Recovery::SelectiveRepeat));
    node.deliver(2, &nak(FIRST + 3, NakCode::PsnSequence), &[]);
    assert_eq!(node.qp().counters().dropped, 1);
    assert_eq!(sent(&mut node), []);
}

/// An answer of a wrong kind or length ended the connection, too.
#[test]
fn forged_read_responses_of_a_wrong_length_end_nothing() {
    for recovery in BOTH {
        let mut pair = ours(recovery).pair();
        pair[B].fill(7);
        pair[A].post(1, SendOp::Read(remote(0)), &[sge(0, 1024)]);
        pair.run_for(LATENCY / 2, |_, _| false);
        let now_ns = pair.now_ns();
        let only = answer(Opcode::RcReadResponseOnly, FIRST, Syndrome::ACK);
        pair[A].deliver(now_ns, &only, b"short");
        let mut atomic = answer(Opcode::RcAtomicAcknowledge, FIRST, Syndrome::ACK);
        atomic.atomic_ack = Some(1);
        pair[A].deliver(now_ns, &atomic, &[]);
        pair.run();
        assert_eq!(pair[A].succeeded(), [1]);
        assert_eq!(pair[A].bytes()[..1024], pair[B].bytes()[..1024]);
    }
}

/// 25,000 notifications a second from a third host, to a sender whose packets no switch marks.
#[test]
fn congestion_notifications_need_packets_that_can_be_marked() {
    let forged = Headers::cnp(0x11);
    for reacts in [true, false] {
        let mut setup = ours(Recovery::SelectiveRepeat);
        setup.config.pacing.react_to_cnp = reacts;
        let mut node = requester(&setup);
        for n in 0..1000 {
            node.deliver(2 + n * 40_000, &forged, &[]);
        }
        let counters = *node.qp().counters();
        assert_eq!(counters.cnps_received, 1000);
        assert_eq!(counters.cnps_ignored == 1000, !reacts, "{counters:?}");
        assert_eq!(node.qp_mut().rate_bps(40_000_000).is_some(), reacts);
    }
}

/// The window of early packets is what the two ends agreed to.
#[test]
fn packets_ahead_of_the_agreed_window_are_neither_sent_nor_kept() {
    let mut setup = ours(Recovery::SelectiveRepeat);
    setup.window_packets = 8;
    let mut node = setup.end(A);
    node.post(1, SendOp::Write(remote(0)), &[sge(0, 100 * 256)]);
    assert_eq!(sent(&mut node).len(), 8);
    let mut node = Setup { psn: 500, ..setup }.end(B);
    node.receive(1, &[sge(0, 1000)]);
    for (psn, kept) in [(507, 1), (508, 1), (16_000, 1)] {
        let early = Headers::new(Bth::new(Opcode::RcSendOnly, 0x22, Psn::new(psn)));
        node.deliver(1, &early, b"early");
        assert_eq!(node.qp().counters().reordered, kept, "PSN {psn}");
    }
    assert_eq!(node.qp().counters().dropped, 2);
}
