//! What is refused, and that idle devices cost nothing.
use crate::harness::{GBPS, Harness, MS, MS_AT_10, one_link, spec, transfer};
use catchment_control::admission::*;

#[test]
fn what_makes_no_sense_is_refused_with_a_reason() {
    let mut config = one_link(Rules::deadline());
    (config.devices_max, config.transfers_max) = (2, 1);
    let mut harness = Harness::with_devices(config, 1);
    let register = |device, spec| Input::Register { device: DeviceId(device), spec };
    let usual = || spec(1, GBPS);
    let request = |id, bytes| Input::Request { transfer: id, bytes, age_ns: 0 };
    let foreign = DeviceSpec { source: SourceId(2), ..usual() };
    let cases = [
        (request(transfer(9, 1), 1), Refusal::UnknownDevice),
        (request(transfer(1, 1), 0), Refusal::Size),
        (request(transfer(1, 1), u64::MAX), Refusal::Size),
        (register(9, usual()), Refusal::TooManyDevices),
        (register(1, foreign), Refusal::ForeignDevice),
        (register(1, DeviceSpec { path: PathId(1), ..usual() }), Refusal::UnknownPath),
        (register(1, DeviceSpec { class: ClassId(2), ..usual() }), Refusal::UnknownClass),
        (register(1, spec(1, 0)), Refusal::NoRate),
        (register(1, DeviceSpec { weight: 0, ..usual() }), Refusal::NoRate),
        (Input::Capacity { link: LinkId(1), capacity_bps: 1 }, Refusal::UnknownLink),
    ];
    for (input, reason) in cases {
        harness.handle(0, input.clone());
        assert_eq!(harness.refusal(), Some(reason), "{input:?}");
    }
    assert!(harness.granted(0, transfer(1, 1), MS_AT_10).is_some());
    harness.request(0, transfer(1, 2), MS_AT_10);
    assert_eq!(harness.refusal(), Some(Refusal::TooManyTransfers));
    assert_eq!(harness.controller.transfers(), 1);
}

#[test]
fn a_path_cannot_change_under_a_transfer() {
    let mut config = one_link(Rules::deadline());
    config.paths.push(vec![LinkId(0)]);
    let mut harness = Harness::with_devices(config, 1);
    harness.request(0, transfer(1, 1), MS_AT_10);
    let spec = DeviceSpec { path: PathId(1), ..spec(1, GBPS) };
    let input = Input::Register { device: DeviceId(1), spec };
    harness.handle(0, input.clone());
    assert_eq!(harness.refusal(), Some(Refusal::Busy));
    harness.done(MS, transfer(1, 1));
    assert_eq!(harness.handle(MS, input), []);
}

#[test]
fn an_absurd_age_counts_as_the_greatest() {
    let mut config = one_link(Rules::deadline());
    config.links[0].capacity_bps = 10 * GBPS;
    config.age_max_ns = 100 * MS;
    let mut harness = Harness::with_devices(config, 3);
    let now_ns = 10_000 * MS;
    harness.request(now_ns, transfer(3, 1), 10 * MS_AT_10);
    let ask = |device, age_ns| {
        let transfer = transfer(device, 1);
        Input::Request { transfer, bytes: 10 * MS_AT_10, age_ns }
    };
    harness.handle(now_ns, ask(1, 100 * MS));
    harness.handle(now_ns, ask(2, u64::MAX));
    harness.done(now_ns + MS, transfer(3, 1));
    assert!(harness.grant_of(transfer(1, 1)).is_some(), "as old, and first");
}

#[test]
fn configurations_are_checked() {
    let good = one_link(Rules::deadline());
    assert_eq!(good.check(), Ok(()));
    let path = |links: &[u16]| {
        let paths = vec![links.iter().map(|link| LinkId(*link)).collect()];
        Config { paths, ..good.clone() }.check()
    };
    for links in [&[][..], &[1], &[0, 0]] {
        assert_eq!(path(links), Err(ConfigError::Path(PathId(0))), "{links:?}");
    }
    assert_eq!(Config { classes: Vec::new(), ..good.clone() }.check(), Err(ConfigError::Count));
    assert_eq!(Config { lease_ns: 0, ..good.clone() }.check(), Err(ConfigError::Range));
    assert_eq!(Config { small_percent: 101, ..good }.check(), Err(ConfigError::Range));
}

#[test]
fn s2_21_a_hundred_thousand_idle_devices_have_no_timer_and_say_nothing() {
    let mut harness = Harness::with_devices(one_link(Rules::deadline()), 100_000);
    assert_eq!((harness.next_ns, harness.controller.transfers()), (None, 0));
    assert!(harness.granted(MS, transfer(77_777, 1), MS_AT_10).is_some());
    harness.done(2 * MS, transfer(77_777, 1));
    assert_eq!((harness.next_ns, harness.controller.transfers()), (None, 0));
}
