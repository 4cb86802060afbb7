//! Windows: their ends, silence, pausing, paths.
use crate::harness::{GBPS, Harness, MS, MS_AT_10, one_link, spec, transfer};
use catchment_control::admission::*;

const GUARD: u64 = MS / 10;

/// Grants are pipelined (S2.22).
#[test]
fn a_window_has_the_length_of_the_transfer_and_the_next_begins_at_its_end() {
    let mut harness = Harness::with_devices(one_link(Rules::deadline()), 5);
    let first = harness.granted(0, transfer(1, 1), 20 * MS_AT_10).unwrap();
    assert_eq!(
        first,
        Grant { rate_bps: 10 * GBPS, from_ns: 0, until_ns: 20 * MS + GUARD, revision: 1 }
    );
    harness.request(0, transfer(2, 1), 100 * MS_AT_10);
    assert_eq!(harness.request(0, transfer(3, 1), 20 * MS_AT_10), []);
    let ahead_ns = first.until_ns - MS;
    assert_eq!(harness.next_ns, Some(ahead_ns));
    harness.timeout(ahead_ns);
    let next = harness.grant_of(transfer(3, 1)).unwrap();
    assert_eq!(next.from_ns, first.until_ns, "granted ahead, from the end of the other on");
}

/// What the link has is not idle while the grant is on its way.
#[test]
fn one_that_is_far_is_granted_so_long_ahead_that_it_begins_at_the_end_of_the_other() {
    let mut harness = Harness::new(one_link(Rules::deadline()));
    for (device, delay_ns) in [(1, 0), (2, 0), (3, 20 * MS)] {
        let spec = DeviceSpec { delay_ns, ..spec(1, 10 * GBPS) };
        harness.handle(0, Input::Register { device: DeviceId(device), spec });
    }
    harness.granted(0, transfer(3, 1), MS_AT_10).unwrap();
    harness.handle(41 * MS, Input::Done { transfer: transfer(3, 1) });
    let first = harness.granted(41 * MS, transfer(1, 1), 50 * MS_AT_10).unwrap();
    harness.request(41 * MS, transfer(2, 1), 100 * MS_AT_10);
    assert_eq!(harness.request(41 * MS, transfer(3, 2), 20 * MS_AT_10), []);
    harness.timeout(first.until_ns - 20 * MS);
    let next = harness.grant_of(transfer(3, 2)).unwrap();
    assert_eq!(next.from_ns, first.until_ns, "it comes when it holds");
}

#[test]
fn a_grant_holds_from_when_it_is_there() {
    let mut harness = Harness::new(one_link(Rules::deadline()));
    let spec = DeviceSpec { delay_ns: 3 * MS, report_delay_ns: 3 * MS, ..spec(1, 10 * GBPS) };
    harness.handle(0, Input::Register { device: DeviceId(1), spec });
    let grant = harness.granted(7 * MS, transfer(1, 1), 20 * MS_AT_10).unwrap();
    assert_eq!((grant.from_ns, grant.until_ns), (10 * MS, 30 * MS + GUARD));
}

#[test]
fn a_window_is_a_lease_at_most_and_prolonged_while_the_source_is_heard() {
    let mut harness = Harness::with_devices(one_link(Rules::deadline()), 2);
    let id = transfer(1, 1);
    let first = harness.granted(0, id, 300 * MS_AT_10).unwrap();
    assert_eq!(first.until_ns, 200 * MS + GUARD);
    let input = Input::Progress { transfer: id, left_bytes: 200 * MS_AT_10, revision: 1 };
    harness.handle(100 * MS, input.clone());
    let second = harness.grant_of(id).unwrap();
    assert_eq!((second.until_ns, second.revision), (300 * MS + GUARD, 2));
    assert_eq!(harness.handle(100 * MS, input), [], "an old revision changes nothing");
}

#[test]
fn silence_gives_capacity_back_at_the_end_of_the_window() {
    let mut harness = Harness::with_devices(one_link(Rules::deadline()), 3);
    for device in [1, 2] {
        harness.request(0, transfer(device, 1), 300 * MS_AT_10);
    }
    harness.request(0, transfer(3, 1), 20 * MS_AT_10);
    harness.timeout(200 * MS + GUARD);
    let grant = harness.grant_of(transfer(3, 1)).unwrap();
    assert!(grant.from_ns <= 200 * MS + GUARD);
    harness.be_silent(100);
    assert_eq!((harness.load_bps(), harness.controller.transfers()), (0, 0));
}

#[test]
fn a_source_that_wakes_after_its_window_asks_and_is_granted_what_is_left() {
    let mut harness = Harness::with_devices(one_link(Rules::deadline()), 1);
    let id = transfer(1, 1);
    harness.request(0, id, 300 * MS_AT_10);
    harness.timeout(250 * MS);
    assert_eq!(harness.load_bps(), 0);
    let grant = harness.granted(260 * MS, id, 150 * MS_AT_10).unwrap();
    assert_eq!(grant.until_ns, 410 * MS + GUARD);
}

/// Chunks are paused and go on (S2.22).
#[test]
fn the_urgent_one_waits_until_the_other_has_said_that_it_stopped() {
    let mut harness = Harness::with_devices(one_link(Rules::deadline()), 2);
    harness.request(0, transfer(1, 1), 150 * MS_AT_10);
    harness.request(1, transfer(2, 1), 150 * MS_AT_10);
    assert!(harness.granted(10 * MS, transfer(0, 1), 20 * MS_AT_10).is_none());
    let [(paused, revision)] = harness.pauses()[..] else { panic!("{:?}", harness.said) };
    assert_eq!(paused, transfer(2, 1), "the newer one");
    let left_bytes = 139 * MS_AT_10;
    let wrong = Input::Paused { transfer: paused, left_bytes, revision: revision - 1 };
    assert_eq!(harness.handle(11 * MS, wrong), []);
    harness.handle(11 * MS, Input::Paused { transfer: paused, left_bytes, revision });
    let grant = harness.grant_of(transfer(0, 1)).unwrap();
    assert_eq!((grant.from_ns, grant.rate_bps), (11 * MS, 10 * GBPS));
    harness.timeout(30 * MS + GUARD);
    let again = harness.grant_of(paused).unwrap();
    assert_eq!(again.from_ns, 31 * MS + GUARD, "it goes on when the urgent one ends");
}

#[test]
fn a_lost_pause_costs_the_rest_of_the_window_and_never_overlaps() {
    let mut harness = Harness::with_devices(one_link(Rules::deadline()), 2);
    for device in [1, 2] {
        harness.request(0, transfer(device, 1), 300 * MS_AT_10);
    }
    harness.request(10 * MS, transfer(0, 1), 20 * MS_AT_10);
    let over_ns = 200 * MS + GUARD;
    harness.timeout(over_ns - MS);
    assert_eq!(harness.grant_of(transfer(0, 1)).unwrap().from_ns, over_ns);
}

#[test]
fn a_pause_that_is_confirmed_after_the_window_is_a_request() {
    let mut harness = Harness::with_devices(one_link(Rules::deadline()), 2);
    for device in [1, 2] {
        harness.request(0, transfer(device, 1), 300 * MS_AT_10);
    }
    harness.request(190 * MS, transfer(0, 1), 20 * MS_AT_10);
    let [(transfer, revision)] = harness.pauses()[..] else { panic!("{:?}", harness.said) };
    harness.timeout(200 * MS + GUARD);
    let left_bytes = 101 * MS_AT_10;
    harness.handle(201 * MS, Input::Paused { transfer, left_bytes, revision });
    assert!(harness.grant_of(transfer).is_some(), "half of the link is free: {:?}", harness.said);
}

#[test]
fn a_predicted_pause_starts_the_urgent_one_after_a_chunk() {
    let rules = Rules { pausing: Pausing::Predicted, ..Rules::deadline() };
    let mut harness = Harness::with_devices(one_link(rules), 2);
    for device in [1, 2] {
        harness.request(0, transfer(device, 1), 150 * MS_AT_10);
    }
    let grant = harness.granted(10 * MS, transfer(0, 1), 20 * MS_AT_10).unwrap();
    let chunk_ns = (1_u64 << 20) * 8 / 10 + 1;
    assert_eq!(grant.from_ns, 10 * MS + chunk_ns + GUARD);
}

/// Rates are work-conserving (S2.22).
#[test]
fn what_is_left_of_a_link_goes_to_the_next_and_grows_when_more_is_free() {
    let mut config = one_link(Rules::deadline());
    config.links[0].capacity_bps = 15 * GBPS;
    let mut harness = Harness::with_devices(config, 2);
    harness.request(0, transfer(1, 1), 10 * MS_AT_10);
    let part = harness.granted(1, transfer(2, 1), 100 * MS_AT_10).unwrap();
    assert_eq!(part.rate_bps, 5 * GBPS);
    harness.done(9 * MS, transfer(1, 1));
    assert_eq!(harness.grant_of(transfer(2, 1)).unwrap().rate_bps, 10 * GBPS);
}

#[test]
fn a_lower_rate_counts_when_the_source_says_that_it_obeys() {
    let mut config = one_link(Rules::deadline());
    config.links[0].capacity_bps = 15 * GBPS;
    let mut harness = Harness::with_devices(config, 2);
    harness.request(0, transfer(1, 1), 150 * MS_AT_10);
    harness.request(1, transfer(0, 1), 50 * MS_AT_10);
    let lower = harness.grant_of(transfer(1, 1)).unwrap();
    assert_eq!(lower.rate_bps, 5 * GBPS);
    assert_eq!(harness.grant_of(transfer(0, 1)).unwrap().rate_bps, 5 * GBPS, "what is free now");
    assert_eq!(harness.load_bps(), 15 * GBPS);
    let (left_bytes, revision) = (149 * MS_AT_10, lower.revision);
    let transfer_1 = transfer(1, 1);
    harness.handle(MS, Input::Progress { transfer: transfer_1, left_bytes, revision });
    assert_eq!(harness.grant_of(transfer(0, 1)).unwrap().rate_bps, 10 * GBPS);
}

/// Several bottlenecks (S2.22).
#[test]
fn a_blocked_path_blocks_nobody_else() {
    let links = [10, 10, 20].map(|gbps| LinkConfig::new(gbps * GBPS)).to_vec();
    let paths = vec![vec![LinkId(0), LinkId(2)], vec![LinkId(1), LinkId(2)]];
    let rules = Rules { shares: None, ..Rules::deadline() };
    let mut harness = Harness::new(Config::new(links, paths, rules));
    for (device, path) in [(1, 0), (2, 0), (3, 1)] {
        let spec = DeviceSpec { path: PathId(path), ..spec(1, 10 * GBPS) };
        harness.handle(0, Input::Register { device: DeviceId(device), spec });
    }
    assert!(harness.granted(0, transfer(1, 1), 100 * MS_AT_10).is_some());
    assert!(harness.granted(1, transfer(2, 1), 100 * MS_AT_10).is_none());
    assert_eq!(harness.controller.headroom_bps(PathId(0)), Some(0));
    assert_eq!(harness.controller.headroom_bps(PathId(1)), Some(10 * GBPS));
    assert!(harness.granted(2, transfer(3, 1), 100 * MS_AT_10).is_some());
    assert_eq!(harness.controller.headroom_bps(PathId(9)), None);
}

#[test]
fn a_link_that_shrinks_takes_back_what_is_least_important() {
    let mut harness = Harness::with_devices(one_link(Rules::deadline()), 2);
    for device in [1, 2] {
        harness.request(u64::from(device), transfer(device, 1), 150 * MS_AT_10);
    }
    harness.handle(MS, Input::Capacity { link: LinkId(0), capacity_bps: 10 * GBPS });
    assert_eq!(harness.pauses().len(), 1);
    assert_eq!(harness.pauses()[0].0, transfer(2, 1));
}

#[test]
fn adopted_windows_stand_for_a_lease_at_most() {
    let mut config = one_link(Rules::deadline());
    config.recovering = true;
    config.links[0].safe_bps = 5 * GBPS;
    let mut harness = Harness::with_devices(config, 3);
    let (id, left_bytes) = (transfer(1, 7), 100 * MS_AT_10);
    let (rate_bps, until_ns) = (10 * GBPS, 5000 * MS);
    harness.handle(
        MS,
        Input::Adopt { transfer: id, left_bytes, age_ns: 0, rate_bps, until_ns, finish: false },
    );
    assert_eq!(harness.load_bps(), 10 * GBPS);
    let grant = harness.granted(2 * MS, transfer(2, 1), 10 * MS_AT_10).unwrap();
    assert_eq!(grant.rate_bps, 5 * GBPS, "what adopted windows and safe rates leave");
    harness.timeout(200 * MS);
    harness.timeout(201 * MS);
    assert_eq!(harness.load_bps(), 0);
    assert_eq!(harness.controller.headroom_bps(PathId(0)), Some(20 * GBPS));
}

#[test]
fn a_source_that_leaves_gives_everything_back_at_once() {
    let mut harness = Harness::with_devices(one_link(Rules::deadline()), 4);
    for device in 1..=4 {
        harness.request(0, transfer(device, 1), 100 * MS_AT_10);
    }
    harness.handle(MS, Input::Leave { source: SourceId(1) });
    assert_eq!((harness.load_bps(), harness.controller.transfers()), (0, 0));
    assert_eq!(harness.next_ns, None);
}

#[test]
fn a_source_whose_window_was_over_too_early_gets_another() {
    let mut harness = Harness::with_devices(one_link(Rules::deadline()), 1);
    let id = transfer(1, 1);
    let grant = harness.granted(0, id, 20 * MS_AT_10).unwrap();
    // Its last window suffices, but the grant came late: a part is left.
    let stopped = Input::Paused { transfer: id, left_bytes: MS_AT_10, revision: grant.revision };
    harness.handle(grant.until_ns - 1, stopped.clone());
    let next = harness.grant_of(id).unwrap();
    assert!(next.from_ns < grant.until_ns && next.until_ns > grant.until_ns, "{next:?}");
    assert_eq!(harness.load_bps(), next.rate_bps);
    // What it said of the earlier window says nothing of the new one.
    harness.handle(next.from_ns, stopped);
    assert_eq!(harness.load_bps(), next.rate_bps);
}
