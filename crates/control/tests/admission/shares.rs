//! Shares of devices and classes, small transfers, periodic streams.
use crate::harness::{GBPS, Harness, MS, MS_AT_10, one_link, spec, transfer};
use catchment_control::admission::*;

const SECOND: u64 = 1000 * MS;

/// Returns a configuration of 10 Gbit/s with shares that allow for this much.
fn shared(depth_ns: u64) -> Config {
    let mut config = one_link(Rules::deadline());
    config.links[0].capacity_bps = 10 * GBPS;
    config.rules.shares =
        Some(Shares { device_wait_ns: depth_ns, class_depth_ns: depth_ns, ..Shares::default() });
    config
}

#[test]
fn a_device_that_wants_more_than_the_others_leave_goes_behind_them() {
    // All that both want takes longer than a second if they send at once: device 1 is beyond its share.
    let mut harness = Harness::with_devices(shared(SECOND), 2);
    harness.request(0, transfer(2, 1), 100 * MS_AT_10);
    harness.request(1, transfer(1, 1), 400 * MS_AT_10);
    harness.request(2, transfer(1, 2), 200 * MS_AT_10);
    harness.request(3, transfer(2, 2), 100 * MS_AT_10);
    harness.done(100 * MS, transfer(2, 1));
    assert!(harness.grant_of(transfer(1, 1)).is_some(), "older, and within its share");
    harness.done(500 * MS, transfer(1, 1));
    assert!(harness.grant_of(transfer(2, 2)).is_some(), "newer, but within its share");
    harness.done(600 * MS, transfer(2, 2));
    assert!(harness.grant_of(transfer(1, 2)).is_some(), "nobody else wants the link");
}

#[test]
fn what_others_leave_unused_is_everybodys() {
    // Device 1 takes the link for a minute, ten times an equal part of it; then another wants something.
    let mut harness = Harness::with_devices(shared(SECOND), 10);
    for number in 1..=60 {
        let begin_ns = number * SECOND;
        harness.request(begin_ns, transfer(1, number), 900 * MS_AT_10);
        harness.done(begin_ns + 900 * MS, transfer(1, number));
    }
    let now_ns = 61 * SECOND;
    harness.request(now_ns, transfer(3, 1), 100 * MS_AT_10);
    harness.request(now_ns + 1, transfer(1, 61), 200 * MS_AT_10);
    harness.request(now_ns + 2, transfer(2, 1), 200 * MS_AT_10);
    harness.done(now_ns + 100 * MS, transfer(3, 1));
    assert!(harness.grant_of(transfer(1, 61)).is_some(), "{:?}", harness.said);
}

#[test]
fn weights_divide_the_share() {
    // 520 ms beside another device take 1.04 s at half of the link, 700 ms at three quarters.
    for (weight, within) in [(1, false), (3, true)] {
        let mut harness = Harness::new(shared(SECOND));
        for (device, weight) in [(1, weight), (2, 1)] {
            let spec = DeviceSpec { weight, ..spec(1, 10 * GBPS) };
            harness.handle(0, Input::Register { device: DeviceId(device), spec });
        }
        harness.request(0, transfer(2, 1), 100 * MS_AT_10);
        harness.request(1, transfer(1, 1), 520 * MS_AT_10);
        harness.request(2, transfer(2, 2), 100 * MS_AT_10);
        harness.done(100 * MS, transfer(2, 1));
        assert_eq!(harness.grant_of(transfer(1, 1)).is_some(), within, "weight {weight}");
    }
}

#[test]
fn a_class_beyond_its_share_counts_as_the_next_one() {
    let mut harness = Harness::new(shared(SECOND));
    for (device, class) in [(1, 0), (2, 0), (3, 1)] {
        let spec = spec(class, 10 * GBPS);
        harness.handle(0, Input::Register { device: DeviceId(device), spec });
    }
    harness.request(0, transfer(1, 1), 90 * MS_AT_10);
    harness.request(1, transfer(3, 1), 90 * MS_AT_10);
    // Half of 10 Gbit is 500 ms: 90 of them are used.
    harness.request(2, transfer(2, 1), 450 * MS_AT_10);
    harness.done(90 * MS, transfer(1, 1));
    assert!(
        harness.grant_of(transfer(3, 1)).is_some(),
        "older than the urgent one beyond the share"
    );
}

#[test]
fn a_class_pays_for_what_stays_idle_until_it_may_begin() {
    // Half of 10 Gbit is 500 ms. Of these 400 and 45 are sent; with a round trip of 50 ms before each the
    // second is beyond.
    for (delay_ns, within) in [(0, true), (25 * MS, false)] {
        let mut harness = Harness::new(shared(SECOND));
        for (device, class) in [(1, 0), (2, 0), (3, 1)] {
            let spec = DeviceSpec { delay_ns, ..spec(class, 10 * GBPS) };
            harness.handle(0, Input::Register { device: DeviceId(device), spec });
        }
        harness.request(0, transfer(1, 1), 400 * MS_AT_10);
        harness.request(1, transfer(3, 1), 90 * MS_AT_10);
        harness.request(2, transfer(2, 1), 45 * MS_AT_10);
        harness.done(90 * MS, transfer(1, 1));
        assert_eq!(harness.grant_of(transfer(2, 1)).is_some(), within, "delay {delay_ns} ns");
    }
}

#[test]
fn small_transfers_have_two_percent_of_a_link_at_most() {
    let mut harness = Harness::new(one_link(Rules::deadline()));
    let with = |small_bps| DeviceSpec { small_bps, ..spec(1, 10 * GBPS) };
    let register = |device, spec| Input::Register { device: DeviceId(device), spec };
    assert_eq!(harness.handle(0, register(1, with(GBPS / 5))), []);
    assert_eq!(harness.controller.headroom_bps(PathId(0)), Some(20 * GBPS - GBPS / 5));
    harness.handle(0, register(2, with(GBPS / 5 + 1)));
    assert_eq!(harness.refusal(), Some(Refusal::SmallFull));
    assert_eq!(
        harness.handle(0, register(1, with(2 * GBPS / 5))),
        [],
        "its own does not count twice"
    );
    harness.handle(0, Input::Leave { source: SourceId(1) });
    assert_eq!(harness.controller.headroom_bps(PathId(0)), Some(20 * GBPS));
}

#[test]
fn a_periodic_stream_has_its_rate_while_its_source_renews() {
    let mut harness = Harness::with_devices(one_link(Rules::deadline()), 2);
    let periodic = |device, bytes| Input::Periodic {
        device: DeviceId(device),
        bytes,
        period_ns: MS,
        held: false,
    };
    let rate = |harness: &Harness| match harness.said[..] {
        [Output::Rate { rate_bps, until_ns, .. }] => (rate_bps, until_ns),
        _ => panic!("{:?}", harness.said),
    };
    assert_eq!(harness.handle(0, periodic(1, MS_AT_10)), []);
    let guard_ns = MS / 10;
    harness.timeout(guard_ns);
    assert_eq!(rate(&harness), (10 * GBPS, SECOND + guard_ns));
    assert_eq!(harness.controller.headroom_bps(PathId(0)), Some(10 * GBPS));
    harness.handle(0, periodic(2, MS_AT_10));
    assert_eq!(harness.refusal(), Some(Refusal::Rate { could_have_bps: 8 * GBPS }), "90 % of 20");
    harness.handle(SECOND / 2, Input::Renew { source: SourceId(1) });
    let renewed = |devices, rate_bps, until_ns| {
        [Output::Renewed { source: SourceId(1), devices, rate_bps, until_ns }]
    };
    assert_eq!(harness.said, renewed(1, 10 * GBPS, SECOND * 3 / 2));
    harness.timeout(SECOND + guard_ns);
    assert_eq!(harness.controller.headroom_bps(PathId(0)), Some(10 * GBPS));
    harness.timeout(SECOND * 3 / 2);
    assert_eq!(harness.controller.headroom_bps(PathId(0)), Some(20 * GBPS));
    assert_eq!(harness.next_ns, None);
    let renew = Input::Renew { source: SourceId(1) };
    assert_eq!(harness.handle(SECOND * 2, renew), renewed(0, 0, SECOND * 2), "none has one");
}

#[test]
fn a_rate_begins_when_windows_leave_room_for_it() {
    let mut harness = Harness::with_devices(one_link(Rules::deadline()), 3);
    let granted = [1, 2].map(|device| {
        harness.granted(0, transfer(device, 1), 1000 * MS_AT_10).expect("the link is idle")
    });
    let (device, bytes, period_ns, held) = (DeviceId(3), MS_AT_10, MS, false);
    harness.handle(MS, Input::Periodic { device, bytes, period_ns, held });
    let told = |said: &[Output]| said.iter().any(|one| matches!(one, Output::Rate { .. }));
    assert!(!told(&harness.said), "windows have all of the link: {:?}", harness.said);
    let paused = harness.pauses();
    assert_eq!(paused.len(), 1, "half of the link: {:?}", harness.said);
    let left_bytes = 900 * MS_AT_10;
    let (transfer, revision) = paused[0];
    assert!(revision > granted[0].revision.min(granted[1].revision));
    harness.handle(2 * MS, Input::Paused { transfer, left_bytes, revision });
    assert!(!told(&harness.said), "what it sent may be on its way");
    harness.timeout(2 * MS + MS / 10);
    assert!(told(&harness.said), "the other has stopped: {:?}", harness.said);
    let load_bps = harness.load_bps();
    assert!(load_bps <= 10 * GBPS, "{load_bps}");
}

#[test]
fn rates_that_do_not_fit_a_smaller_link_end_when_they_are_renewed() {
    let mut harness = Harness::with_devices(one_link(Rules::deadline()), 2);
    for device in [1, 2].map(DeviceId) {
        let (bytes, period_ns, held) = (MS_AT_10 / 2, MS, false);
        harness.handle(0, Input::Periodic { device, bytes, period_ns, held });
    }
    harness.timeout(MS / 2);
    harness.handle(MS, Input::Capacity { link: LinkId(0), capacity_bps: 8 * GBPS });
    assert_eq!(harness.controller.periodic_bps(LinkId(0)), Some(10 * GBPS), "until it is told");
    harness.handle(2 * MS, Input::Renew { source: SourceId(1) });
    let could_have_bps = 8 * GBPS / 10 * 9 - 5 * GBPS;
    assert_eq!(harness.refusal(), Some(Refusal::Rate { could_have_bps }));
    assert_eq!(harness.controller.rates(SourceId(1)), (1, 5 * GBPS));
}
