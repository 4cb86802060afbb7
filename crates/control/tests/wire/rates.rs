//! Rates of periodic devices, over both ends.
use crate::ends::Ends;
use catchment_control::admission::source_side::{self, LocalId};
use catchment_control::admission::{LinkId, SourceId};

const MS: u64 = 1_000_000;
const BYTES: u64 = 5_000_000;
const PERIOD_NS: u64 = 40 * MS;
/// A frame each period.
const RATE_BPS: u64 = 1_000_000_000;

fn want(ends: &mut Ends, bytes: u64) {
    ends.tell(source_side::Input::Periodic { device: 0, bytes, period_ns: PERIOD_NS });
}

fn reserved_bps(ends: &Ends) -> Option<u64> {
    ends.controller.controller().periodic_bps(LinkId(0))
}

/// Lets time pass, and everything leave at once that begins.
fn serve(ends: &mut Ends, number: u64, time_ms: u64, left: &mut usize) {
    let id = LocalId { device: 0, number };
    for _ in 0..2 * time_ms {
        ends.pass(MS / 2);
        while *left < ends.chunks.len() {
            *left += 1;
            ends.tell(source_side::Input::Sent { id });
        }
    }
}

#[test]
fn frames_of_a_device_with_a_rate_leave_without_asking() {
    let mut ends = Ends::new();
    ends.pass(5 * MS);
    want(&mut ends, BYTES);
    ends.pass(5 * MS);
    assert_eq!(ends.source.rate(0).map(|rate| rate.rate_bps), Some(RATE_BPS));
    let (mut transfers, mut left) = (0, 0);
    for number in 1..=100 {
        ends.ask_for(number, BYTES);
        serve(&mut ends, number, 40, &mut left);
        transfers += ends.controller.controller().transfers();
    }
    assert_eq!(ends.chunks.iter().sum::<u64>(), 100 * BYTES, "as many as the rate carries");
    assert_eq!((transfers, ends.source.transfers()), (0, 0), "nobody was asked");
    assert_eq!(ends.controller.rates(SourceId(5)), (1, RATE_BPS));
    let view = ends.controller.rate(SourceId(5), 0).expect("it is periodic");
    assert_eq!((view.wanted_bps, view.rate_bps), (RATE_BPS, RATE_BPS));
    want(&mut ends, 0);
    ends.pass(5 * MS);
    assert_eq!((ends.source.rate(0), reserved_bps(&ends)), (None, Some(0)), "given back");
    assert_eq!(ends.controller.rate(SourceId(5), 0), None);
}

#[test]
fn what_a_link_cannot_carry_is_answered_with_what_it_can() {
    let mut ends = Ends::new();
    ends.pass(5 * MS);
    want(&mut ends, 12 * BYTES);
    ends.pass(5 * MS);
    let rate = ends.source.rate(0).expect("it is wanted");
    assert_eq!((rate.rate_bps, rate.could_bps), (0, Some(9 * RATE_BPS)), "90 % of the link");
    let view = ends.controller.rate(SourceId(5), 0).expect("it is periodic");
    let told = (view.wanted_bps, view.rate_bps, view.could_bps);
    assert_eq!(told, (12 * RATE_BPS, 0, 9 * RATE_BPS), "as people are told");
    // It asks for each frame.
    ends.ask_for(1, BYTES);
    serve(&mut ends, 1, 40, &mut 0);
    assert_eq!(ends.chunks.iter().sum::<u64>(), BYTES);
    assert_eq!(ends.controller.classes()[1].on_time, 1);
}

#[test]
fn a_rate_is_not_used_when_nobody_answers_and_comes_back_with_the_answer() {
    let mut ends = Ends::new();
    ends.pass(5 * MS);
    want(&mut ends, BYTES);
    ends.pass(5 * MS);
    // Nothing passes any more, for two leases.
    let silent = |ends: &mut Ends, time_ms: u64| {
        for _ in 0..time_ms {
            ends.now_ns += MS;
            ends.tell(source_side::Input::Timeout);
            ends.to_controller.clear();
        }
    };
    silent(&mut ends, 190);
    assert_eq!(ends.source.rate(0).map(|rate| rate.rate_bps), Some(RATE_BPS), "for a lease");
    silent(&mut ends, 210);
    assert_eq!(ends.source.rate(0).map(|rate| rate.rate_bps), Some(0));
    assert!(ends.source.is_alone());
    ends.ask_for(1, BYTES);
    silent(&mut ends, 10);
    assert!(ends.chunks.is_empty(), "it was told to stop");
    // The controller has kept the rate for a second.
    ends.pass(250 * MS);
    assert_eq!(ends.source.rate(0).map(|rate| rate.rate_bps), Some(RATE_BPS));
    silent(&mut ends, 1500);
    ends.pass(MS);
    assert_eq!(reserved_bps(&ends), Some(0), "and then given it back");
    ends.pass(250 * MS);
    assert_eq!(ends.controller.rates(SourceId(5)), (1, RATE_BPS), "it is asked for again");
}
