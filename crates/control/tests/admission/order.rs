//! Who goes first.
use crate::harness::{GBPS, Harness, MS, MS_AT_10, one_link, transfer};
use catchment_control::admission::*;

const FRAME: u64 = 20 * MS_AT_10;
/// So that what is a second old was generated after the beginning.
const BEGIN: u64 = 5000 * MS;

/// Fills the link with two transfers, lets others ask, and returns in which order these are granted.
fn order(rules: Rules, asks: &[(TransferId, u64)]) -> Vec<TransferId> {
    let mut harness = Harness::with_devices(one_link(rules), 9);
    for device in [8, 9] {
        assert!(harness.granted(0, transfer(device, 1), FRAME).is_some());
    }
    for (at, (id, age_ns)) in (1..).zip(asks) {
        let input = Input::Request { transfer: *id, bytes: FRAME, age_ns: *age_ns };
        assert_eq!(harness.handle(at, input), []);
    }
    let mut running = vec![transfer(8, 1), transfer(9, 1)];
    let mut order = Vec::new();
    while order.len() < asks.len() {
        let now_ns = 20 * MS * (order.len() as u64 + 1);
        harness.done(now_ns, running.remove(0));
        let next = asks.iter().find(|(id, _)| harness.grant_of(*id).is_some()).expect("a grant").0;
        order.push(next);
        running.push(next);
    }
    order
}

#[test]
fn s2_5_fifo_serves_in_the_order_of_requests() {
    let asks = [(transfer(3, 1), 0), (transfer(0, 1), 0), (transfer(1, 1), 500)];
    assert_eq!(order(Rules::fifo(10 * GBPS), &asks), asks.map(|(id, _)| id));
}

#[test]
fn s2_6_priority_grants_no_low_one_while_a_high_one_waits() {
    let (low, high) = (transfer(3, 1), transfer(0, 1));
    let asks = [(low, 900), (transfer(2, 1), 0), (high, 0)];
    assert_eq!(order(Rules::priority(10 * GBPS), &asks), [high, low, transfer(2, 1)]);
}

/// Age order (S2.22).
#[test]
fn the_oldest_event_goes_first_whenever_it_asked() {
    let rules = Rules { order: Order::ClassAge, ..Rules::priority(10 * GBPS) };
    let asks = [(transfer(1, 1), 0), (transfer(2, 1), 50_000), (transfer(3, 1), 20_000)];
    assert_eq!(order(rules, &asks), [2, 3, 1].map(|device| transfer(device, 1)));
}

#[test]
fn s2_7_without_pausing_a_grant_runs_to_its_end() {
    let mut harness = Harness::with_devices(one_link(Rules::priority(10 * GBPS)), 3);
    harness.request(0, transfer(1, 1), FRAME);
    harness.request(0, transfer(2, 1), FRAME);
    assert_eq!(harness.request(MS, transfer(0, 1), FRAME), []);
    harness.done(20 * MS, transfer(1, 1));
    assert_eq!(harness.grant_of(transfer(0, 1)).unwrap().rate_bps, 10 * GBPS);
}

#[test]
fn s2_4_a_slot_is_given_whole_or_not_at_all() {
    let mut config = one_link(Rules::fifo(10 * GBPS));
    config.links[0].capacity_bps = 19 * GBPS;
    let mut harness = Harness::with_devices(config, 3);
    assert!(harness.granted(0, transfer(1, 1), FRAME).is_some());
    assert!(harness.granted(0, transfer(2, 1), FRAME).is_none());
    assert_eq!(harness.load_bps(), 10 * GBPS);
}

#[test]
fn s2_18_a_gap_keeps_a_slot_idle_after_each_grant() {
    let rules = Rules { gap_ns: 2_250_000, ..Rules::priority(10 * GBPS) };
    let mut harness = Harness::with_devices(one_link(rules), 4);
    for device in 1..=3 {
        harness.request(0, transfer(device, 1), FRAME);
    }
    assert_eq!(harness.done(20 * MS, transfer(1, 1)), []);
    assert_eq!(harness.next_ns, Some(22_250_000));
    assert_eq!(harness.timeout(22_249_999), []);
    harness.timeout(22_250_000);
    assert!(harness.grant_of(transfer(3, 1)).is_some());
}

/// Demotion and bypass (S2.22).
#[test]
fn a_late_transfer_goes_behind_and_never_blocks_newer_ones_of_its_device() {
    let mut config = one_link(Rules::deadline());
    config.links[0].capacity_bps = 10 * GBPS;
    let mut harness = Harness::with_devices(config, 3);
    let event = 150 * MS_AT_10;
    harness.request(BEGIN, transfer(3, 1), event);
    let input = Input::Request { transfer: transfer(1, 1), bytes: event, age_ns: 950 * MS };
    harness.handle(BEGIN + MS, input);
    assert!(harness.missed(transfer(1, 1)), "it has 50 ms for 150 ms");
    assert!(harness.grant_of(transfer(1, 1)).is_none(), "oldest, but late");
    harness.request(BEGIN + 2 * MS, transfer(2, 1), event);
    harness.request(BEGIN + 3 * MS, transfer(1, 2), event);
    harness.done(BEGIN + 150 * MS, transfer(3, 1));
    assert!(harness.grant_of(transfer(2, 1)).is_some());
    harness.done(BEGIN + 300 * MS, transfer(2, 1));
    assert!(harness.grant_of(transfer(1, 2)).is_some(), "it overtakes the late one");
    harness.done(BEGIN + 450 * MS, transfer(1, 2));
    assert!(harness.grant_of(transfer(1, 1)).is_some(), "late ones keep a turn");
    assert!(!harness.missed(transfer(1, 1)), "told once");
}

#[test]
fn without_overtaking_a_late_transfer_holds_its_device() {
    let mut config = one_link(Rules { overtaking: false, ..Rules::deadline() });
    config.links[0].capacity_bps = 10 * GBPS;
    let mut harness = Harness::with_devices(config, 3);
    let event = 150 * MS_AT_10;
    harness.request(BEGIN, transfer(3, 1), event);
    let input = Input::Request { transfer: transfer(1, 1), bytes: event, age_ns: 950 * MS };
    harness.handle(BEGIN + MS, input);
    harness.request(BEGIN + 2 * MS, transfer(1, 2), event);
    harness.request(BEGIN + 3 * MS, transfer(2, 1), event);
    harness.done(BEGIN + 150 * MS, transfer(3, 1));
    assert!(harness.grant_of(transfer(2, 1)).is_some());
    harness.done(BEGIN + 300 * MS, transfer(2, 1));
    assert!(harness.grant_of(transfer(1, 1)).is_some());
}

#[test]
fn the_deadline_is_told_as_missed_when_it_is_and_not_before() {
    let mut config = one_link(Rules::deadline());
    config.links[0].capacity_bps = 10 * GBPS;
    let mut harness = Harness::with_devices(config, 3);
    harness.request(BEGIN, transfer(3, 1), 250_000 * MS_AT_10);
    assert!(harness.missed(transfer(3, 1)), "250 s do not fit into one");
    harness.handle(BEGIN, Input::Cancel { transfer: transfer(3, 1) });
    let first = harness.granted(BEGIN, transfer(1, 1), 900 * MS_AT_10).unwrap();
    harness.request(BEGIN + 1, transfer(2, 1), 300 * MS_AT_10);
    // 1 s - 300 ms - the guard, from the request on.
    let latest_ns = BEGIN + 1 + 1000 * MS - 300 * MS - MS / 10;
    let mut revision = first.revision;
    for after_ms in [150, 300, 450, 600] {
        let left_bytes = (900 - after_ms) * MS_AT_10;
        let input = Input::Progress { transfer: transfer(1, 1), left_bytes, revision };
        harness.handle(BEGIN + after_ms * MS, input);
        revision = harness.grant_of(transfer(1, 1)).unwrap().revision;
    }
    assert_eq!(harness.timeout(latest_ns - 1), []);
    assert_eq!(harness.timeout(latest_ns), []);
    harness.timeout(latest_ns + 1);
    assert!(harness.missed(transfer(2, 1)), "{:?}", harness.said);
}

#[test]
fn one_that_runs_too_slowly_is_told_when_that_is_certain() {
    let mut config = one_link(Rules::deadline());
    config.links[0].capacity_bps = 15 * GBPS;
    let mut harness = Harness::with_devices(config, 3);
    harness.granted(BEGIN, transfer(0, 1), 250 * MS_AT_10).unwrap();
    let (id, bytes, age_ns) = (transfer(2, 1), 220 * MS_AT_10, 700 * MS);
    harness.handle(BEGIN, Input::Request { transfer: id, bytes, age_ns });
    assert_eq!(harness.grant_of(id).unwrap().rate_bps, 5 * GBPS);
    assert!(!harness.missed(id), "at 10 Gbit/s it has 80 ms to spare");
    // At half the rate a millisecond is lost in two.
    harness.timeout(BEGIN + 160 * MS);
    assert!(!harness.missed(id));
    harness.timeout(BEGIN + 160 * MS + 1);
    assert!(harness.missed(id), "{:?}", harness.said);
}

#[test]
fn a_class_may_drop_late_transfers_or_keep_their_place() {
    let mut config = one_link(Rules::deadline());
    config.classes[1].late = Late::Drop;
    let mut harness = Harness::with_devices(config, 3);
    let input = |device| Input::Request {
        transfer: transfer(device, 1),
        bytes: 300 * MS_AT_10,
        age_ns: 850 * MS,
    };
    harness.handle(1000 * MS, input(1));
    assert!(matches!(harness.said[..], [Output::Missed { dropped: true, .. }]));
    assert_eq!(harness.controller.transfers(), 0);
    harness.handle(1000 * MS, input(0));
    assert!(harness.missed(transfer(0, 1)), "urgent ones are told");
    assert!(harness.grant_of(transfer(0, 1)).is_some(), "and keep their place");
}

#[test]
fn what_has_begun_is_finished_however_late_and_what_runs_is_dropped_only_when_it_waits_again() {
    let mut config = one_link(Rules::deadline());
    config.classes[1].late = Late::Drop;
    let mut harness = Harness::with_devices(config, 3);
    let (id, bytes, age_ns) = (transfer(1, 1), 300 * MS_AT_10, 850 * MS);
    harness.handle(1000 * MS, Input::Finish { transfer: id, bytes, age_ns });
    assert!(harness.missed(id) && harness.grant_of(id).is_some(), "{:?}", harness.said);
    harness.done(1000 * MS, id);
    // Of a controller before.
    let adopted = |device, finish| Input::Adopt {
        transfer: transfer(device, 2),
        left_bytes: bytes,
        age_ns,
        rate_bps: GBPS,
        until_ns: 1100 * MS,
        finish,
    };
    harness.handle(1000 * MS, adopted(1, true));
    harness.handle(1000 * MS, adopted(2, false));
    for (device, dropped) in [(1, false), (2, true)] {
        let transfer = transfer(device, 2);
        harness.handle(1150 * MS, Input::Request { transfer, bytes, age_ns: 1000 * MS });
        let said =
            harness.said.iter().any(|one| matches!(one, Output::Missed { dropped: true, .. }));
        assert_eq!((said, harness.grant_of(transfer).is_some()), (dropped, !dropped), "{device}");
    }
    harness.be_silent(100);
    // It is told that it is late while it runs, and that it is dropped when it has to wait.
    let id = transfer(3, 1);
    let grant = harness.granted(2000 * MS, id, 400 * MS_AT_10).unwrap();
    assert!(!harness.missed(id));
    harness.handle(2010 * MS, Input::Capacity { link: LinkId(0), capacity_bps: 2 * GBPS });
    assert!(harness.missed(id), "at a fifth of the rate it cannot be there: {:?}", harness.said);
    let revision = harness.grant_of(id).unwrap().revision;
    assert!(revision > grant.revision);
    let left_bytes = 300 * MS_AT_10;
    harness.handle(2020 * MS, Input::Paused { transfer: id, left_bytes, revision });
    assert!(matches!(harness.said[..], [Output::Missed { dropped: true, .. }]));
}

#[test]
fn one_that_runs_and_is_only_to_be_finished_makes_room_for_one_that_waits() {
    let mut harness = Harness::with_devices(one_link(Rules::deadline()), 9);
    let (first, second, waits) = (transfer(8, 1), transfer(9, 1), transfer(1, 1));
    for id in [first, second] {
        assert!(harness.granted(0, id, FRAME).is_some());
    }
    assert_eq!(harness.request(1, waits, FRAME), []);
    harness.handle(2, Input::Finish { transfer: first, bytes: FRAME, age_ns: 0 });
    let pauses = harness.pauses();
    assert!(matches!(pauses[..], [(paused, _)] if paused == first), "{:?}", harness.said);
    let (_, revision) = pauses[0];
    harness.handle(3, Input::Paused { transfer: first, left_bytes: FRAME, revision });
    assert!(harness.grant_of(waits).is_some(), "{:?}", harness.said);
}
