//! What people are told of a device that waits.
use crate::harness::{GBPS, Harness, MS, MS_AT_10, one_link, transfer};
use catchment_control::admission::*;

/// 20 ms of a sender of 10 Gbit/s.
const FRAME: u64 = 20 * MS_AT_10;

fn explain(harness: &Harness, device: u32) -> Explanation {
    harness.controller.explain(DeviceId(device)).expect("something waits or runs")
}

#[test]
fn a_waiting_device_is_told_the_full_link_what_goes_first_and_when_it_begins() {
    let mut harness = Harness::with_devices(one_link(Rules::deadline()), 9);
    // Device 5 waits behind two older ones that run, one older one that waits, and an urgent one.
    for device in [1, 2, 3, 5] {
        let age_ns = u64::from(10 - device) * MS;
        let id = transfer(device, 1);
        harness.handle(9 * MS, Input::Request { transfer: id, bytes: FRAME, age_ns });
    }
    harness.request(9 * MS, transfer(0, 1), MS_AT_10);
    let told = explain(&harness, 5);
    assert_eq!((told.transfer, told.doing), (transfer(5, 1), Doing::Waiting));
    assert_eq!((told.age_ns, told.left_bytes, told.rate_bps), (5 * MS, FRAME, 0));
    assert_eq!((told.link, told.load_bps, told.capacity_bps), (LinkId(0), 20 * GBPS, 20 * GBPS));
    let before = |class| told.before.get(&ClassId(class)).copied().unwrap_or_default();
    assert_eq!(before(0), Before { transfers: 1, bytes: MS_AT_10 });
    assert_eq!(before(1), Before { transfers: 3, bytes: 3 * FRAME });
    // 61 ms of 10 Gbit/s in all, at 20 Gbit/s; then 20 ms of its own.
    assert_eq!(told.starts_in_ns, 30 * MS + MS / 2);
    assert_eq!(told.spare_ns, (1000 * MS - 5 * MS - told.starts_in_ns - 20 * MS).cast_signed());
    assert!(!told.is_surplus && !told.is_lowered && !told.is_demoted);
}

#[test]
fn what_comes_later_is_not_before_it_and_what_runs_says_when() {
    let mut harness = Harness::with_devices(one_link(Rules::deadline()), 9);
    for (device, age_ns) in [(1, 3 * MS), (2, 2 * MS), (3, MS)] {
        let id = transfer(device, 1);
        harness.handle(9 * MS, Input::Request { transfer: id, bytes: FRAME, age_ns });
    }
    let first = explain(&harness, 1);
    assert_eq!((first.doing, first.rate_bps), (Doing::Granted, 10 * GBPS));
    assert!(first.before.is_empty(), "{:?}", first.before);
    assert_eq!(explain(&harness, 3).before.values().map(|before| before.transfers).sum::<u64>(), 2);
    assert_eq!(harness.controller.explain(DeviceId(7)), None, "nothing of it waits");
    assert_eq!(harness.controller.explain(DeviceId(700)), None, "there is no such device");
}

#[test]
fn one_that_cannot_be_in_time_is_told_how_much_too_late_it_comes() {
    let mut harness = Harness::with_devices(one_link(Rules::deadline()), 9);
    for device in [1, 2] {
        harness.request(5000 * MS, transfer(device, 1), FRAME);
    }
    let late = transfer(3, 1);
    let input = Input::Request { transfer: late, bytes: FRAME, age_ns: 1100 * MS };
    harness.handle(5000 * MS, input);
    assert!(harness.missed(late));
    let told = explain(&harness, 3);
    assert!(told.is_demoted);
    assert!(told.spare_ns <= -(100 * MS).cast_signed(), "{}", told.spare_ns);
    assert_eq!(told.before[&ClassId(1)].transfers, 2, "those that can be in time");
}

/// A window that begins when another one ends is granted before that: a link carries one of them at a time.
#[test]
fn a_window_that_begins_later_is_not_in_force() {
    let mut config = one_link(Rules::deadline());
    config.links[0].capacity_bps = 10 * GBPS;
    let mut harness = Harness::with_devices(config, 2);
    harness.request(0, transfer(1, 1), FRAME);
    harness.request(0, transfer(2, 1), FRAME);
    let in_force_bps = |harness: &Harness| harness.controller.in_force_bps(LinkId(0));
    let next = loop {
        assert_eq!(in_force_bps(&harness), Some(10 * GBPS));
        let due_ns = harness.next_ns.expect("the first window ends");
        harness.timeout(due_ns);
        if let Some(next) = harness.grant_of(transfer(2, 1)) {
            assert!(next.from_ns > due_ns, "ahead of its window");
            break next;
        }
    };
    assert_eq!((harness.load_bps(), in_force_bps(&harness)), (20 * GBPS, Some(10 * GBPS)));
    harness.timeout(next.from_ns);
    assert_eq!(in_force_bps(&harness), Some(10 * GBPS));
    harness.be_silent(100);
    assert_eq!(in_force_bps(&harness), Some(0));
    assert_eq!(harness.controller.in_force_bps(LinkId(9)), None);
}
