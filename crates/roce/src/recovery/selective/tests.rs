use super::super::rto::Rto;
use super::*;
use crate::counters::Counters;

/// Payload of every packet here.
const BYTES: u16 = 1024;
const RTT: u64 = 1_000_000;
/// When a peer that was silent is probed.
const LATE: u64 = 90_000 * RTT;

struct Bench {
    rto: Rto,
    counters: Counters,
    engine: Selective,
}

impl Bench {
    /// Creates an engine that has sent PSNs 100 to 119, one each microsecond.
    fn new() -> Self {
        let mut bench = Self {
            rto: Rto::default(),
            counters: Counters::default(),
            engine: Selective::new(Psn::new(100)),
        };
        (0..20)
            .for_each(|i| bench.engine.on_sent(Psn::new(100 + i), 1, BYTES, u64::from(i) * 1000));
        bench
    }

    fn with(&mut self, now_ns: u64, act: impl FnOnce(&mut Selective, &mut Clock<'_>)) {
        let mut clock = Clock { now_ns, rto: &mut self.rto, counters: &mut self.counters };
        act(&mut self.engine, &mut clock);
    }

    /// Handles a SACK: in order up to `cumulative`, and these are kept.
    fn sack(&mut self, now_ns: u64, cumulative: u32, kept: &[u32]) {
        let mut payload = vec![0; 12];
        for psn in kept {
            let bit = (psn - cumulative - 2) as usize;
            payload[4 + bit / 8] |= 1 << (bit % 8);
        }
        let cumulative = Psn::new(cumulative);
        let sack = Sack::decode(cumulative, &payload).unwrap();
        self.with(now_ns, |engine, clock| {
            engine.on_kept(&sack);
            if cumulative.distance_from(engine.una) >= 0 {
                engine.on_ack(cumulative, clock);
            }
            engine.on_sack(&sack, clock);
        });
    }

    /// Acknowledges half, and long after that sends a probe; returns the round trip from before it.
    fn probe_late(&mut self) -> u64 {
        self.sack(RTT, 109, &[]);
        assert!(self.engine.probe());
        assert_eq!(self.resend(LATE), [119]);
        self.rto.srtt_ns().unwrap()
    }

    /// Retransmits what is lost and returns the PSNs.
    fn resend(&mut self, now_ns: u64) -> Vec<u32> {
        let mut sent = Vec::new();
        while let Some(psn) = self.engine.next_lost() {
            self.engine.on_sent(psn, 1, BYTES, now_ns);
            sent.push(psn.value());
        }
        sent
    }
}

#[test]
fn what_arrived_or_is_lost_is_no_longer_in_flight() {
    let mut bench = Bench::new();
    assert_eq!(bench.engine.settled_bytes, 0);
    bench.sack(RTT, 101, &[103, 104, 105, 108]);
    // 102 is lost, 103, 104, 105 and 108 are kept.
    assert_eq!(bench.engine.settled_bytes, 5 * u64::from(BYTES));
    assert_eq!(bench.resend(RTT), [102]);
    assert_eq!(bench.engine.settled_bytes, 4 * u64::from(BYTES));
    bench.sack(2 * RTT, 119, &[]);
    assert_eq!(bench.engine.settled_bytes, 0);
}

#[test]
fn a_packet_is_lost_when_three_later_ones_arrived() {
    let mut bench = Bench::new();
    bench.sack(RTT, 101, &[103]);
    assert_eq!(bench.resend(RTT), []);
    bench.sack(RTT, 101, &[103, 104]);
    assert_eq!(bench.resend(RTT), []);
    bench.sack(RTT, 101, &[103, 104, 105, 108]);
    assert_eq!(bench.resend(RTT), [102]);
    bench.sack(RTT, 101, &[103, 104, 105, 108, 109]);
    assert_eq!(bench.resend(RTT), [106]);
    assert_eq!(bench.engine.una, Psn::new(102));
}

#[test]
fn a_packet_is_lost_when_one_later_arrived_and_time_went_by() {
    let mut bench = Bench::new();
    bench.sack(RTT, 117, &[119]);
    assert_eq!(bench.resend(RTT), []);
    let loss_ns = bench.engine.loss_time_ns.unwrap();
    assert!((RTT..RTT * 5 / 4).contains(&loss_ns), "{loss_ns}");
    bench.with(loss_ns, |engine, clock| engine.detect(clock));
    assert_eq!(bench.resend(loss_ns), [118]);
    assert_eq!(bench.engine.loss_time_ns, None);
}

#[test]
fn a_lost_retransmission_is_found_by_what_was_sent_after_it() {
    let mut bench = Bench::new();
    bench.sack(RTT, 99, &[101, 102, 103]);
    assert_eq!(bench.resend(RTT), [100]);
    bench.sack(RTT + 1, 99, &[101, 102, 103, 104, 105, 106, 107, 108]);
    assert_eq!(bench.resend(RTT + 1), [], "all of these were sent before it");
    (120..124).for_each(|psn| bench.engine.on_sent(Psn::new(psn), 1, BYTES, RTT + 2));
    let kept: Vec<u32> = (101..123).collect();
    bench.sack(2 * RTT, 99, &kept);
    assert_eq!(bench.resend(2 * RTT), [100]);
    bench.with(3 * RTT, |engine, clock| engine.on_ack(Psn::new(123), clock));
    assert_eq!(bench.engine.next(), Psn::new(124));
    assert_eq!(bench.counters.spurious, 0);
}

#[test]
fn a_loss_that_was_none_makes_it_more_patient() {
    let mut bench = Bench::new();
    bench.sack(RTT, 99, &[101, 102, 103]);
    assert_eq!(bench.resend(RTT), [100]);
    bench.sack(RTT + 1000, 107, &[]);
    assert_eq!(bench.counters.spurious, 1);
    bench.sack(RTT + 2000, 107, &[109, 110, 111, 112, 113]);
    assert_eq!(bench.resend(RTT + 2000), []);
    bench.sack(RTT + 2000, 107, &[109, 110, 111, 112, 113, 114]);
    assert_eq!(bench.resend(RTT + 2000), [108]);
}

#[test]
fn what_follows_the_cumulative_psn_is_missing_whatever_was_said_before() {
    let mut bench = Bench::new();
    bench.sack(RTT, 99, &[101, 102]);
    bench.sack(RTT, 100, &[102]);
    assert_eq!(bench.resend(RTT), [101]);
}

#[test]
fn a_probe_is_the_last_packet_and_a_timeout_all_that_is_not_kept() {
    let mut bench = Bench::new();
    bench.sack(RTT, 116, &[118]);
    assert_eq!(bench.resend(RTT), []);
    assert!(bench.engine.probe());
    assert_eq!(bench.resend(RTT), [119]);
    bench.engine.on_timeout();
    assert_eq!(bench.resend(RTT), [117, 119]);
}

#[test]
fn answers_of_reads_are_no_packets() {
    let mut bench = Bench::new();
    bench.engine.on_sent(Psn::new(120), 50, BYTES, 1);
    assert_eq!(bench.engine.next(), Psn::new(170));
    bench.engine.on_timeout();
    assert_eq!(bench.resend(RTT).last(), Some(&120));
    bench.with(RTT, |engine, clock| engine.on_ack(Psn::new(169), clock));
    assert_eq!(bench.engine.una, bench.engine.next());
}

#[test]
fn acknowledged_packets_leave_nothing_behind() {
    let mut bench = Bench::new();
    for round in 0..1000u32 {
        let base = 120 + round * 100;
        (0..100).for_each(|i| bench.engine.on_sent(Psn::new(base + i), 1, BYTES, 1));
        bench.with(2, |engine, clock| engine.on_ack(Psn::new(base + 99), clock));
    }
    assert!(bench.engine.log.is_empty() && bench.engine.slots.is_empty());
    assert!(bench.engine.heap_bytes() < 16 << 10);
}

/// The acknowledgement of all was lost; a probe brings it again, and says nothing of how long the way of the others takes.
#[test]
fn an_acknowledgement_that_came_late_for_a_lost_one_is_no_round_trip() {
    let mut bench = Bench::new();
    let before = bench.probe_late();
    assert!(before <= RTT);
    bench.sack(LATE + RTT, 119, &[]);
    assert_eq!(bench.rto.srtt_ns(), Some(before));
}

/// As above, where what came before the probe has a gap: the answer names the probe beside those that arrived long ago.
#[test]
fn an_answer_to_a_probe_tells_no_round_trip_of_what_arrived_long_before() {
    let mut bench = Bench::new();
    let before = bench.probe_late();
    bench.sack(LATE + RTT, 112, &[114, 119]);
    assert_eq!(bench.rto.srtt_ns(), Some(before));
    bench.resend(LATE + RTT);
    bench.sack(LATE + 2 * RTT, 119, &[]);
    assert_eq!((bench.rto.srtt_ns(), bench.engine.answered), (Some(before), None));
}

/// A peer that has no receive for the probe says by that what arrived before it.
#[test]
fn a_refusal_of_a_probe_tells_no_round_trip_of_what_arrived_long_before() {
    let mut bench = Bench::new();
    let before = bench.probe_late();
    bench.engine.on_answered(Psn::new(119));
    bench.with(LATE + RTT, |engine, clock| engine.on_ack(Psn::new(118), clock));
    assert_eq!(bench.rto.srtt_ns(), Some(before));
}

/// Before a round trip was measured, what is known is only that none takes longer.
#[test]
fn the_first_round_trip_replaces_what_was_a_bound() {
    let mut bench = Bench::new();
    bench.engine.on_timeout();
    bench.resend(9_000 * RTT);
    bench.sack(9_001 * RTT, 118, &[]);
    assert_eq!(bench.rto.srtt_ns(), Some(9_001 * RTT));
    // Nor is who answers sooner than that too soon for an answer.
    assert!(bench.engine.probe());
    assert_eq!(bench.resend(9_002 * RTT), [119]);
    bench.sack(9_003 * RTT, 119, &[]);
    assert_eq!(bench.counters.spurious, 0);
    bench.engine.on_sent(Psn::new(120), 1, BYTES, 10_000 * RTT);
    bench.sack(10_001 * RTT, 120, &[]);
    assert_eq!(bench.rto.srtt_ns(), Some(RTT));
}
