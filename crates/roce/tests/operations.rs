//! Every operation between two queue pairs, without loss and with every single packet lost.
use crate::pair::{A, B, BOTH, KEY, Pair, Setup, losing, losing_to, remote, sge};
use catchment_roce::wire::{Opcode, Operation};
use catchment_roce::{Config, Payload, Recovery, SendOp, SendWr, Service, WcOpcode, WriteLayout};
use catchment_sim::roce::{Cable, Rights};
use std::time::Duration;

/// A pair with a bit of everything posted at A and receives at B, which has a second region to be
/// invalidated; its key too.
fn with_everything(setup: &Setup) -> (Pair, u32) {
    let mut pair = setup.pair();
    let b = &mut pair[B];
    let second = b.space().register(vec![0; 8], Rights::ALL);
    b.fill(2);
    b.put(8000, &5u64.to_ne_bytes());
    b.receive(100, &[sge(900_000, 300), sge(901_000, 2000)]);
    b.receive(101, &[]);
    b.receive(102, &[sge(903_000, 10)]);
    b.receive(103, &[sge(904_000, 256)]);
    let a = &mut pair[A];
    a.fill(1);
    a.post(1, SendOp::Write(remote(0)), &[sge(0, 3000)]);
    a.post(2, SendOp::Send, &[sge(3000, 700), sge(5000, 1)]);
    a.post(3, SendOp::WriteImm(remote(10_000), 0xdead_beef), &[sge(10_000, 1000)]);
    a.post(4, SendOp::Read(remote(50_000)), &[sge(50_000, 999), sge(60_000, 2000)]);
    a.post(5, SendOp::FetchAdd { remote: remote(8000), add: 7 }, &[sge(70_000, 8)]);
    let swap = SendOp::CompareSwap { remote: remote(8000), compare: 12, swap: 99 };
    a.post(6, swap, &[sge(70_008, 8)]);
    a.post(7, SendOp::SendImm(42), &[sge(0, 10)]);
    a.post(8, SendOp::SendInvalidate(second), &[sge(0, 256)]);
    a.post(9, SendOp::Write(remote(0)), &[]);
    a.post(10, SendOp::Read(remote(0)), &[]);
    let inline = Payload::Inline(b"hello, this is a short inline payload");
    a.qp_mut().post_send(&SendWr::new(11, SendOp::Write(remote(20_000)), inline)).unwrap();
    let quiet = SendWr::new(12, SendOp::Write(remote(30_000)), Payload::Sges(&[]));
    a.qp_mut().post_send(&quiet.unsignaled()).unwrap();
    let fenced = [sge(50_000, 8)];
    let mut fenced = SendWr::new(13, SendOp::Write(remote(40_000)), Payload::Sges(&fenced));
    fenced.fence = true;
    a.qp_mut().post_send(&fenced).unwrap();
    (pair, second)
}

/// What must be there afterwards, whatever was lost.
fn check_everything((pair, second): &(Pair, u32), why: &str) {
    let (a, b) = (&pair[A], &pair[B]);
    assert_eq!(a.succeeded(), (1..=11).chain([13]).collect::<Vec<_>>(), "{why}");
    assert_eq!(b.succeeded(), [100, 101, 102, 103], "{why}");
    let (am, bm) = (a.bytes(), b.bytes());
    assert_eq!(bm[..3000], am[..3000], "{why}");
    assert_eq!(bm[900_000..900_300], am[3000..3300], "{why}");
    assert_eq!(bm[901_000..901_400], am[3300..3700], "{why}");
    assert_eq!(bm[901_400], am[5000], "{why}");
    assert_eq!(bm[10_000..11_000], am[10_000..11_000], "{why}");
    assert_eq!(am[50_000..50_999], bm[50_000..50_999], "{why}");
    assert_eq!(am[60_000..62_000], bm[50_999..52_999], "{why}");
    assert_eq!(am[70_000..70_008], 5u64.to_ne_bytes(), "{why}");
    assert_eq!(am[70_008..70_016], 12u64.to_ne_bytes(), "{why}");
    assert_eq!(bm[8000..8008], 99u64.to_ne_bytes(), "{why}");
    assert_eq!(&bm[20_000..20_005], b"hello", "{why}");
    assert_eq!(bm[40_000..40_008], bm[50_000..50_008], "{why}");
    assert!(!b.is_remote(*second), "{why}");
    let received: Vec<_> = b.completions().iter().map(|c| c.result.unwrap()).collect();
    assert_eq!((received[0].opcode, received[0].bytes), (WcOpcode::Recv, 701));
    assert_eq!((received[1].opcode, received[1].bytes), (WcOpcode::RecvWriteImm, 1000));
    assert_eq!(received[1].imm, Some(0xdead_beef));
    assert_eq!((received[2].imm, received[2].bytes), (Some(42), 10));
    assert_eq!(received[3].invalidated_rkey(), Some(*second));
}

fn setups() -> impl Iterator<Item = Setup> {
    let layouts = [WriteLayout::Train, WriteLayout::Classic];
    BOTH.into_iter().flat_map(move |recovery| {
        layouts.into_iter().map(move |write_layout| Setup {
            config: Config { write_layout, ..Config::new(0, Service::Rc) },
            ..Setup::recovering(recovery)
        })
    })
}

#[test]
fn everything_works_without_loss() {
    for setup in setups() {
        let mut whole = with_everything(&setup);
        whole.0.run();
        check_everything(&whole, "no loss");
        let pair = whole.0;
        let counters = pair[A].qp().counters();
        assert_eq!((counters.retransmitted, counters.timeouts), (0, 0));
        assert_eq!(counters.reads_repeated, 0);
        let counters = pair[B].qp().counters();
        assert_eq!((counters.duplicates, counters.responses_repeated), (0, 0));
        assert!(pair[A].qp().is_drained());
        assert_eq!(pair[A].qp().next_timeout(), None);
    }
}

#[test]
fn everything_works_whichever_packet_is_lost() {
    for setup in setups() {
        let (mut whole, _) = with_everything(&setup);
        whole.run();
        for (lost, packet) in whole.log.iter().enumerate() {
            let mut pair = with_everything(&setup);
            pair.0.run_losing(losing(|packet| packet == lost as u64 + 1));
            let why = format!("{:?}: packet {lost} lost: {packet:?}", setup.recovery);
            check_everything(&pair, &why);
        }
    }
}

#[test]
fn everything_works_whichever_two_packets_are_lost() {
    for setup in setups() {
        for (first, gap) in (0..60).flat_map(|first| [1, 2, 5, 17].map(|gap| (first, gap))) {
            let mut pair = with_everything(&setup);
            pair.0.run_losing(losing(|packet| packet == first || packet == first + gap));
            let why = format!("{:?}: packets {first} and {gap} later lost", setup.recovery);
            check_everything(&pair, &why);
        }
    }
}

#[test]
fn everything_works_when_every_packet_comes_twice() {
    for setup in setups() {
        let cable = Cable { twin: Some(Duration::from_micros(3)), ..setup.cable };
        let mut pair = with_everything(&Setup { cable, ..setup });
        pair.0.run();
        check_everything(&pair, "all doubled");
    }
}

#[test]
fn a_long_write_is_a_train_of_equal_packets_or_a_classic_message() {
    for setup in setups() {
        let mut pair = setup.pair();
        pair[A].fill(3);
        pair[A].post(1, SendOp::Write(remote(0)), &[sge(0, 1000)]);
        pair.run();
        let opcodes = pair.opcodes(B);
        match setup.config.write_layout {
            WriteLayout::Train => assert_eq!(opcodes, [Opcode::RcWriteOnly; 4]),
            WriteLayout::Classic => {
                use Opcode::{RcWriteFirst, RcWriteLast, RcWriteMiddle};
                assert_eq!(opcodes, [RcWriteFirst, RcWriteMiddle, RcWriteMiddle, RcWriteLast]);
            }
        }
        assert_eq!(pair[B].bytes()[..1000], pair[A].bytes()[..1000]);
        assert_eq!(pair.log[0].headers.reth.unwrap().rkey, KEY);
    }
}

#[test]
fn a_train_asks_for_acknowledgements_now_and_then_and_at_its_end() {
    let unlimited = Config::new(0, Service::Rc);
    for config in [
        Config { ack_interval: 32, ..unlimited },
        Config { ack_bytes: 32 * 256, ..unlimited },
        Config { window_packets: 64, ..unlimited },
    ] {
        let mut pair = Setup { config, ..Setup::default() }.pair();
        pair[A].post(1, SendOp::Write(remote(0)), &[sge(0, 256 * 65)]);
        pair.run();
        let asked: Vec<bool> = pair.sent(B).map(|sent| sent.headers.bth.ack_req).collect();
        assert_eq!(asked.len(), 65);
        assert!(asked[64]);
        let longest = asked.split(|&asks| asks).map(<[bool]>::len).max();
        assert!(longest < Some(32), "{longest:?}");
        assert!(asked.iter().filter(|&&asks| asks).count() <= 4);
    }
}

#[test]
fn packets_that_arrive_together_are_acknowledged_once() {
    let mut pair = Setup::default().pair();
    for wr_id in 0..40 {
        pair[A].post(wr_id, SendOp::Write(remote(0)), &[sge(0, 64)]);
    }
    pair.run();
    assert_eq!(pair[A].succeeded(), (0..40).collect::<Vec<_>>());
    assert_eq!(pair.opcodes(A), [Opcode::RcAcknowledge]);
}

#[test]
fn the_peer_sees_no_selective_acknowledgement_unless_it_agreed() {
    for recovery in BOTH {
        let mut pair = Setup::recovering(recovery).pair();
        pair[A].post(1, SendOp::Write(remote(0)), &[sge(0, 256 * 100)]);
        pair.run_losing(losing_to(B, |packet| packet % 20 == 7));
        assert_eq!(pair[A].succeeded(), [1]);
        let sacks = pair.opcodes(A).iter().filter(|o| o.operation() == Operation::Sack).count();
        assert_eq!(sacks > 0, recovery == Recovery::SelectiveRepeat);
    }
}

#[test]
fn selective_repeat_sends_again_only_what_was_lost() {
    let mut pair = Setup::recovering(Recovery::SelectiveRepeat).pair();
    pair[A].fill(9);
    pair[A].post(1, SendOp::Write(remote(0)), &[sge(0, 256 * 1000)]);
    let mut lost = 0;
    let mut loses = losing_to(B, |packet| packet % 50 == 7);
    pair.run_losing(|to, headers| {
        let loses = loses(to, headers);
        lost += u64::from(loses);
        loses
    });
    assert_eq!(pair[B].bytes()[..256_000], pair[A].bytes()[..256_000]);
    assert_eq!(pair[A].qp().counters().retransmitted, lost);
    assert_eq!(pair[A].qp().counters().timeouts, 0);
    assert_eq!(pair[B].qp().counters().duplicates, 0);
}
