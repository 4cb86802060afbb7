//! A responder walks stale, expected, duplicate and future requests, and does not believe its peer.
use crate::pair::{B, BASE, BOTH, End, KEY, Setup, sge};
use catchment_roce::wire::{
    AtomicEth, Bth, Headers, NakCode, Opcode, Operation, Packet, PathMtu, Reth, Syndrome,
};
use catchment_roce::{Input, Psn, QpState, Recovery, TransmitBatch};

/// A responder that expects PSN 500, path MTU 256.
fn responder(recovery: Recovery) -> End {
    Setup { psn: 500, ..Setup::recovering(recovery) }.end(B)
}

fn request(opcode: Opcode, psn: u32) -> Headers {
    let mut headers = Headers::new(Bth::new(opcode, 0x22, Psn::new(psn)));
    headers.bth.ack_req = true;
    headers
}

fn write(opcode: Opcode, psn: u32, offset: u64, bytes: u32) -> Headers {
    let mut headers = request(opcode, psn);
    headers.reth = Some(Reth { va: BASE + offset, rkey: KEY, dma_bytes: bytes });
    headers
}

fn atomic(opcode: Opcode, psn: u32, va: u64, add: u64) -> Headers {
    let mut headers = request(opcode, psn);
    headers.atomic = Some(AtomicEth { va, rkey: KEY, swap_or_add: add, compare: 0 });
    headers
}

fn give(node: &mut End, headers: &Headers, payload: &[u8]) {
    node.deliver(1, headers, payload);
}

/// Ends the batch and returns the answers: opcode, PSN, syndrome, MSN, payload.
fn answers(node: &mut End) -> Vec<(Opcode, u32, Syndrome, u32, Vec<u8>)> {
    node.handle(1, Input::EndOfBatch);
    let packets = node.transmit(1, &mut TransmitBatch::new(512));
    let decoded = packets.iter().map(|bytes| {
        let Packet { headers, payload } = Packet::decode(bytes).unwrap();
        let (syndrome, msn) =
            headers.aeth.map_or((Syndrome::ACK, 0), |aeth| (aeth.syndrome, aeth.msn));
        (headers.bth.opcode, headers.bth.psn.value(), syndrome, msn, payload.to_vec())
    });
    decoded.collect()
}

/// Answers without payloads.
fn replies(node: &mut End) -> Vec<(u32, Syndrome, u32)> {
    answers(node).into_iter().map(|(_, psn, syndrome, msn, _)| (psn, syndrome, msn)).collect()
}

const SEQUENCE: Syndrome = Syndrome::Nak(NakCode::PsnSequence);
const INVALID: Syndrome = Syndrome::Nak(NakCode::InvalidRequest);
const ACCESS: Syndrome = Syndrome::Nak(NakCode::RemoteAccess);

#[test]
fn one_nak_for_a_gap_and_silence_until_the_missing_packet_comes() {
    let mut node = responder(Recovery::GoBackN);
    let only = |psn| write(Opcode::RcWriteOnly, psn, 0, 4);
    give(&mut node, &only(500), b"good");
    assert_eq!(replies(&mut node), [(500, Syndrome::ACK, 1)]);
    for psn in [502, 503, 504, 502] {
        give(&mut node, &only(psn), b"evil");
    }
    assert_eq!(replies(&mut node), [(501, SEQUENCE, 1)]);
    give(&mut node, &only(505), b"evil");
    assert_eq!(replies(&mut node), []);
    assert_eq!(&node.bytes()[..4], b"good");
    give(&mut node, &only(501), b"next");
    assert_eq!(replies(&mut node), [(501, Syndrome::ACK, 2)]);
    give(&mut node, &only(503), b"evil");
    assert_eq!(replies(&mut node), [(502, SEQUENCE, 2)]);
}

#[test]
fn a_duplicate_is_acknowledged_with_the_newest_psn_and_not_executed() {
    for recovery in BOTH {
        let mut node = responder(recovery);
        give(&mut node, &write(Opcode::RcWriteOnly, 500, 0, 4), b"old.");
        give(&mut node, &write(Opcode::RcWriteOnly, 501, 0, 4), b"new.");
        assert_eq!(replies(&mut node), [(501, Syndrome::ACK, 2)]);
        let mut again = write(Opcode::RcWriteOnly, 500, 0, 4);
        again.bth.ack_req = false;
        give(&mut node, &again, b"old.");
        assert_eq!(replies(&mut node), [(501, Syndrome::ACK, 2)]);
        assert_eq!(&node.bytes()[..4], b"new.");
        node.receive(1, &[sge(100, 10)]);
        give(&mut node, &request(Opcode::RcSendOnly, 400), b"ghost");
        assert_eq!(replies(&mut node), [(501, Syndrome::ACK, 2)]);
        assert_eq!(node.qp().recv_queue_len(), 1);
    }
}

/// Linux's rdma_rxe takes an ACK with the PSN of a READ whose answer was lost for that answer, and
/// completes it without data.
#[test]
fn a_duplicate_write_acknowledges_no_later_read_whose_answer_may_be_lost() {
    for recovery in BOTH {
        let mut node = responder(recovery);
        give(&mut node, &write(Opcode::RcWriteOnly, 500, 0, 4), b"data");
        give(&mut node, &write(Opcode::RcReadRequest, 501, 0, 4), &[]);
        give(&mut node, &write(Opcode::RcWriteOnly, 502, 8, 4), b"more");
        assert_eq!(answers(&mut node).len(), 3);
        give(&mut node, &write(Opcode::RcWriteOnly, 500, 0, 4), b"data");
        assert_eq!(replies(&mut node), [(500, Syndrome::ACK, 3)]);
        give(&mut node, &write(Opcode::RcWriteOnly, 502, 8, 4), b"more");
        assert_eq!(replies(&mut node), [(502, Syndrome::ACK, 3)]);
    }
}

#[test]
fn a_duplicate_atomic_gets_the_saved_result() {
    for recovery in BOTH {
        let mut node = responder(recovery);
        for index in 0..16 {
            give(&mut node, &atomic(Opcode::RcFetchAdd, 500 + index, BASE, 1), &[]);
        }
        assert_eq!(answers(&mut node).len(), 16);
        for index in [0, 7, 15] {
            give(&mut node, &atomic(Opcode::RcFetchAdd, 500 + index, BASE, 1), &[]);
        }
        assert_eq!(answers(&mut node).len(), 3);
        assert_eq!(node.bytes()[..8], 16u64.to_ne_bytes());
        give(&mut node, &atomic(Opcode::RcFetchAdd, 499, BASE, 1), &[]);
        assert_eq!(answers(&mut node).len(), 0, "one that was never executed");
    }
}

#[test]
fn a_duplicate_read_is_executed_again_if_it_lies_in_the_old_one() {
    for recovery in BOTH {
        let mut node = responder(recovery);
        node.fill(1);
        let read = |psn, offset, bytes| write(Opcode::RcReadRequest, psn, offset, bytes);
        give(&mut node, &read(500, 0, 1000), &[]);
        assert_eq!(answers(&mut node).len(), 4);
        give(&mut node, &read(502, 512, 488), &[]);
        let again = answers(&mut node);
        let opcodes: Vec<Opcode> = again.iter().map(|answer| answer.0).collect();
        assert_eq!(opcodes, [Opcode::RcReadResponseFirst, Opcode::RcReadResponseLast]);
        assert_eq!(again[0].1, 502);
        assert_eq!(again[0].4, node.bytes()[512..768]);
        let counters = node.qp().counters();
        assert_eq!((counters.packets_sent, counters.responses_repeated), (6, 2));
        let outside = [
            read(502, 0, 488),
            read(502, 512, 489),
            read(500, 0, 1001),
            read(499, 0, 100),
            Headers {
                reth: Some(Reth { va: BASE + 512, rkey: KEY + 1, dma_bytes: 10 }),
                ..read(502, 512, 10)
            },
        ];
        for bad in outside {
            give(&mut node, &bad, &[]);
            assert_eq!(answers(&mut node), [], "{bad:?}");
        }
        assert_eq!(node.qp().state(), QpState::Rts);
    }
}

#[test]
fn answers_come_in_the_order_of_requests() {
    for recovery in BOTH {
        let mut node = responder(recovery);
        give(&mut node, &write(Opcode::RcWriteOnly, 500, 0, 4), b"abcd");
        give(&mut node, &write(Opcode::RcReadRequest, 501, 0, 600), &[]);
        give(&mut node, &write(Opcode::RcWriteOnly, 504, 0, 4), b"efgh");
        give(&mut node, &atomic(Opcode::RcFetchAdd, 505, BASE + 64, 1), &[]);
        give(&mut node, &write(Opcode::RcWriteOnly, 506, 0, 4), b"ijkl");
        let order: Vec<_> = answers(&mut node)
            .into_iter()
            .map(|(opcode, psn, _, msn, _)| (opcode.operation(), psn, msn))
            .collect();
        let want = [
            (Operation::Acknowledge, 500, 1),
            (Operation::ReadResponse, 501, 2),
            (Operation::ReadResponse, 502, 0),
            (Operation::ReadResponse, 503, 2),
            (Operation::Acknowledge, 504, 3),
            (Operation::AtomicAcknowledge, 505, 4),
            (Operation::Acknowledge, 506, 5),
        ];
        assert_eq!(order, want);
    }
}

#[test]
fn early_packets_are_kept_and_reported_under_selective_repeat_only() {
    let mut node = responder(Recovery::SelectiveRepeat);
    for psn in [503, 501, 504] {
        give(&mut node, &write(Opcode::RcWriteOnly, psn, u64::from(psn - 500) * 4, 4), b"kept");
    }
    let sack = answers(&mut node);
    assert_eq!(sack.len(), 1);
    assert_eq!((sack[0].0, sack[0].1), (Opcode::Sack, 499));
    // 501, 503, 504: bits 0, 2 and 3 after the missing 500.
    assert_eq!(sack[0].4, [0, 0, 0, 0, 0b1101, 0, 0, 0]);
    assert_eq!(node.bytes()[4..8], [0; 4], "nothing is visible before its turn");
    give(&mut node, &write(Opcode::RcWriteOnly, 500, 0, 4), b"miss");
    assert_eq!(&node.bytes()[..8], b"misskept");
    assert_eq!(node.bytes()[8..20], [0; 12]);
    let sack = answers(&mut node);
    assert_eq!((sack[0].1, sack[0].4[4]), (501, 0b11));
    give(&mut node, &write(Opcode::RcWriteOnly, 502, 8, 4), b"last");
    assert_eq!(replies(&mut node), [(504, Syndrome::ACK, 5)]);
    assert_eq!(&node.bytes()[..20], b"misskeptlastkeptkept");
}

/// A third host that guesses numbers ahead of the expected one.
#[test]
fn early_packets_that_cannot_be_legal_are_dropped_and_end_nothing() {
    let mut node = responder(Recovery::SelectiveRepeat);
    let wrong_key = |opcode| {
        let mut headers = write(opcode, 501, 0, 4);
        headers.reth = headers.reth.map(|reth| Reth { rkey: KEY ^ 1, ..reth });
        headers
    };
    let forged = [
        (wrong_key(Opcode::RcWriteOnly), &b"evil"[..]),
        (wrong_key(Opcode::RcReadRequest), &[]),
        (write(Opcode::RcWriteOnly, 502, 1 << 20, 4), b"evil"),
        (write(Opcode::RcWriteFirst, 503, 0, 4), b"evil"),
        (write(Opcode::RcReadRequest, 504, 0, u32::MAX), &[]),
        (request(Opcode::RcReadRequest, 504), &[]),
        (request(Opcode::RcSendOnly, 505), &[1; 257]),
        (atomic(Opcode::RcFetchAdd, 506, BASE + 4, 1), &[]),
        (atomic(Opcode::RcCompareSwap, 506, 8, 1), &[]),
    ];
    for (headers, payload) in &forged {
        give(&mut node, headers, payload);
    }
    let counters = node.qp().counters();
    assert_eq!((counters.dropped, counters.reordered), (forged.len() as u64, 0));
    assert_eq!(answers(&mut node), []);
    give(&mut node, &write(Opcode::RcWriteOnly, 500, 0, 4), b"good");
    assert_eq!(replies(&mut node), [(500, Syndrome::ACK, 1)]);
    assert_eq!(node.bytes()[..8], *b"good\0\0\0\0");
}

#[test]
fn a_kept_packet_that_does_not_continue_the_stream_is_asked_for_again() {
    let mut node = responder(Recovery::SelectiveRepeat);
    node.receive(1, &[sge(0, 2)]);
    // Legal in itself: the end of a WRITE, and a message too long for the receive.
    give(&mut node, &request(Opcode::RcWriteLast, 501), b"evil");
    give(&mut node, &request(Opcode::RcSendOnly, 502), b"long");
    assert_eq!(node.qp().counters().reordered, 2);
    answers(&mut node);
    for (psn, bytes) in [(500, b"good"), (501, b"next"), (502, b"last")] {
        let offset = u64::from(psn - 500) * 4;
        give(&mut node, &write(Opcode::RcWriteOnly, psn, offset, 4), bytes);
        // The cumulative acknowledgement says that the next one is missing.
        assert_eq!(answers(&mut node)[0].1, psn);
    }
    assert_eq!(&node.bytes()[..12], b"goodnextlast");
    assert_eq!((node.qp().state(), node.qp().counters().dropped), (QpState::Rts, 2));
}

#[test]
fn the_reorder_buffer_is_bounded() {
    let mut node = responder(Recovery::SelectiveRepeat);
    let far = 500 + node.qp().config().window_packets;
    give(&mut node, &write(Opcode::RcWriteOnly, far, 0, 4), b"far.");
    assert_eq!(answers(&mut node), []);
    assert_eq!(node.qp().counters().dropped, 1);
    for psn in (501..far).step_by(37) {
        give(&mut node, &write(Opcode::RcWriteOnly, psn, 0, 256), &[1; 256]);
    }
    let bytes = node.qp().heap_bytes();
    assert!(bytes < 8 << 20, "{bytes}");
}

/// On a path that holds tens of thousands of packets a SACK has as many bits. What SACKs say stays a small part of what
/// comes: at 16 packets each it was 130 bytes for each packet here, and both ends did little else.
#[test]
fn the_further_what_is_kept_reaches_the_rarer_it_is_reported() {
    const PACKETS: u32 = 32_000;
    let mut node = responder(Recovery::SelectiveRepeat);
    let mut bytes = 0;
    for first in (501..501 + PACKETS).step_by(16) {
        for psn in first..first + 16 {
            let mut headers = write(Opcode::RcWriteOnly, psn, 0, 4);
            headers.bth.ack_req = false;
            give(&mut node, &headers, b"kept");
        }
        bytes += answers(&mut node).iter().map(|answer| answer.4.len()).sum::<usize>();
    }
    assert_eq!(node.qp().counters().reordered, u64::from(PACKETS));
    let each = bytes as f64 / f64::from(PACKETS);
    assert!((1.0..32.0).contains(&each), "{each} bytes of SACKs for each packet");
}

/// Checks a fresh responder's answer to a request, and that it has failed then.
fn refuses(headers: &Headers, payload: &[u8], syndrome: Syndrome) {
    for recovery in BOTH {
        let mut node = responder(recovery);
        node.receive(1, &[sge(0, 1000)]);
        give(&mut node, headers, payload);
        assert_eq!(replies(&mut node), [(500, syndrome, 0)], "{headers:?}");
        assert_eq!(node.qp().state(), QpState::Err, "{headers:?}");
        assert!(node.bytes().iter().all(|&byte| byte == 0));
        give(&mut node, &write(Opcode::RcWriteOnly, 501, 0, 4), b"late");
        assert_eq!(answers(&mut node), []);
    }
}

#[test]
fn what_the_standard_forbids_is_refused() {
    let only = Opcode::RcWriteOnly;
    let full = [1; 256];
    // Sequence of opcodes, and lengths.
    refuses(&request(Opcode::RcSendMiddle, 500), &full, INVALID);
    refuses(&request(Opcode::RcWriteLast, 500), &full, INVALID);
    refuses(&request(Opcode::RcSendFirst, 500), &full[..255], INVALID);
    refuses(&request(Opcode::RcSendOnly, 500), &[1; 257], INVALID);
    refuses(&write(only, 500, 0, 5), b"1234", INVALID);
    refuses(&write(only, 500, 0, 3), b"1234", INVALID);
    refuses(&write(Opcode::RcWriteFirst, 500, 0, 255), &full, INVALID);
    // Keys, ranges, alignment.
    refuses(&write(only, 500, (1 << 20) - 2, 4), b"1234", ACCESS);
    refuses(&write(only, 500, u64::MAX - BASE - 1, 4), b"1234", ACCESS);
    refuses(&write(Opcode::RcWriteFirst, 500, (1 << 20) - 256, 300), &full, ACCESS);
    refuses(&write(Opcode::RcReadRequest, 500, 1 << 20, 1), &[], ACCESS);
    refuses(&write(Opcode::RcReadRequest, 500, 0, u32::MAX), &[], INVALID);
    refuses(&atomic(Opcode::RcCompareSwap, 500, BASE + 4, 1), &[], INVALID);
    refuses(&atomic(Opcode::RcFetchAdd, 500, 8, 1), &[], ACCESS);
}

#[test]
fn messages_do_not_interleave() {
    for next in [
        write(Opcode::RcWriteOnly, 501, 0, 4),
        write(Opcode::RcWriteMiddle, 501, 0, 4),
        request(Opcode::RcSendFirst, 501),
        write(Opcode::RcReadRequest, 501, 0, 4),
        atomic(Opcode::RcFetchAdd, 501, BASE, 1),
    ] {
        let mut node = responder(Recovery::GoBackN);
        node.receive(1, &[sge(0, 1000)]);
        let mut first = request(Opcode::RcSendFirst, 500);
        first.bth.ack_req = false;
        give(&mut node, &first, &[1; 256]);
        give(&mut node, &next, &[1; 256][..if next.bth.opcode.has_payload() { 256 } else { 0 }]);
        assert_eq!(replies(&mut node), [(501, INVALID, 0)], "{next:?}");
    }
}

#[test]
fn empty_requests_need_no_key() {
    for recovery in BOTH {
        let mut node = responder(recovery);
        let nowhere = |opcode, psn| Headers {
            reth: Some(Reth { va: u64::MAX, rkey: 0, dma_bytes: 0 }),
            ..request(opcode, psn)
        };
        give(&mut node, &nowhere(Opcode::RcWriteOnly, 500), &[]);
        give(&mut node, &nowhere(Opcode::RcReadRequest, 501), &[]);
        let said = answers(&mut node);
        assert_eq!(said.len(), 2);
        assert_eq!(said[1].0, Opcode::RcReadResponseOnly);
    }
}

#[test]
fn more_reads_at_once_than_agreed_are_refused() {
    let mut node = responder(Recovery::GoBackN);
    for index in 0..17 {
        give(&mut node, &write(Opcode::RcReadRequest, 500 + index, 0, 4), &[]);
    }
    assert_eq!(replies(&mut node).last(), Some(&(516, INVALID, 16)));
}

#[test]
fn packets_of_other_kinds_partitions_and_extensions_are_dropped() {
    let mut node = responder(Recovery::GoBackN);
    let mut foreign = write(Opcode::RcWriteOnly, 500, 0, 4);
    foreign.bth.pkey = 0x1234;
    let others = [
        foreign,
        write(Opcode::UcWriteOnly, 500, 0, 4),
        request(Opcode::UdSendOnly, 500),
        request(Opcode::Sack, 500),
    ];
    for headers in &others {
        give(&mut node, headers, b"1234");
        assert_eq!(answers(&mut node), [], "{headers:?}");
    }
    assert_eq!(node.qp().counters().dropped, others.len() as u64);
}

#[test]
fn a_long_read_is_answered_batch_by_batch() {
    let mut node = responder(Recovery::GoBackN);
    node.fill(3);
    let bytes = 100 * 256;
    give(&mut node, &write(Opcode::RcReadRequest, 500, 0, bytes), &[]);
    let mut batch = TransmitBatch::new(8);
    let mut data = Vec::new();
    let packets_each = std::iter::from_fn(|| {
        let packets = node.transmit(1, &mut batch);
        for packet in &packets {
            data.extend_from_slice(Packet::decode(packet).unwrap().payload);
        }
        (!packets.is_empty()).then_some(packets.len())
    });
    let packets_each: Vec<usize> = packets_each.collect();
    assert!(packets_each.iter().all(|&packets| packets <= 8), "{packets_each:?}");
    assert!(packets_each.len() > 12, "{packets_each:?}");
    assert_eq!(data, node.bytes()[..bytes as usize]);
    assert_eq!(PathMtu::Mtu256.bytes(), 256);
}
