//! What a source does that has not heard what it was told last: its earlier windows stand.
use crate::harness::{GBPS, Harness, MS, MS_AT_10, one_link, spec, transfer};
use catchment_control::admission::*;

fn progress(id: TransferId, left_bytes: u64, revision: u32) -> Input {
    Input::Progress { transfer: id, left_bytes, revision }
}

/// A link on which a transfer of 30 ms has what another leaves, 5 of 10 Gbit/s, then all of it.
fn raised() -> (Harness, TransferId, Grant, Grant) {
    let mut config = one_link(Rules::deadline());
    config.links[0].capacity_bps = 15 * GBPS;
    let mut harness = Harness::with_devices(config, 4);
    let (first, second) = (transfer(1, 1), transfer(2, 1));
    harness.request(0, first, 100 * MS_AT_10);
    let slow = harness.granted(0, second, 30 * MS_AT_10).expect("5 Gbit/s are free");
    assert_eq!(slow.rate_bps, 5 * GBPS);
    harness.done(10 * MS, first);
    let fast = harness.grant_of(second).expect("10 Gbit/s are free");
    assert!(fast.rate_bps == 10 * GBPS && fast.until_ns < slow.until_ns, "{slow:?} {fast:?}");
    (harness, second, slow, fast)
}

#[test]
fn a_window_that_was_raised_and_shortened_may_last_as_long_as_before() {
    let (mut harness, _, slow, fast) = raised();
    let others = [transfer(3, 1), transfer(4, 1)];
    let mut granted = [0; 2];
    for id in others {
        harness.request(11 * MS, id, 500 * MS_AT_10);
    }
    for at_ns in [fast.until_ns - MS, fast.until_ns, fast.until_ns + 1] {
        harness.timeout(at_ns);
        for (id, rate_bps) in others.iter().zip(&mut granted) {
            let grant = harness.grant_of(*id).filter(|grant| grant.from_ns < slow.until_ns);
            *rate_bps = grant.map_or(*rate_bps, |grant| grant.rate_bps);
        }
    }
    // It may still send at 5 Gbit/s.
    assert!(granted.iter().sum::<u64>() <= 10 * GBPS, "{granted:?}");
    harness.timeout(slow.until_ns);
    assert_eq!(harness.load_bps(), 15 * GBPS, "all of it when it is over");
}

#[test]
fn a_source_that_says_that_it_obeys_frees_the_rest_of_the_earlier_window() {
    let (mut harness, second, _, fast) = raised();
    let third = transfer(3, 1);
    harness.request(11 * MS, third, 500 * MS_AT_10);
    harness.handle(12 * MS, progress(second, 10 * MS_AT_10, fast.revision));
    harness.timeout(fast.until_ns - MS);
    let grant = harness.grant_of(third).expect("ahead of the end of the shorter window");
    assert_eq!(grant.from_ns, fast.until_ns);
}

#[test]
fn a_window_that_has_not_begun_is_not_moved_ahead_when_it_is_lowered() {
    let mut harness = Harness::with_devices(one_link(Rules::deadline()), 4);
    let links_full = [transfer(1, 1), transfer(2, 1)];
    let ends = links_full.map(|id| harness.granted(0, id, 20 * MS_AT_10).unwrap().until_ns);
    let third = transfer(3, 1);
    harness.request(0, third, 200 * MS_AT_10);
    harness.timeout(ends[0] - MS);
    let ahead = harness.grant_of(third).unwrap();
    assert_eq!((ahead.from_ns, ahead.rate_bps), (ends[0], 10 * GBPS));
    // The link carries less now, so it is lowered; the other two run until their ends.
    let slower = Input::Capacity { link: LinkId(0), capacity_bps: 5 * GBPS };
    harness.handle(ends[0] - MS / 2, slower);
    let lowered = harness.grant_of(third).unwrap();
    assert_eq!((lowered.from_ns, lowered.rate_bps), (ends[0], 5 * GBPS));
}

/// Its last window does not suffice, so it waits again before that is over, and gets a shorter one, of which it does not hear.
#[test]
fn a_window_stands_beside_a_shorter_one_for_the_rest() {
    let mut config = one_link(Rules::deadline());
    config.links[0].capacity_bps = 10 * GBPS;
    let mut harness = Harness::with_devices(config, 4);
    harness.handle(0, Input::Register { device: DeviceId(5), spec: spec(1, 4 * GBPS) });
    // Until long after all that follows.
    let (left_bytes, age_ns, finish) = (100 * MS_AT_10, 0, false);
    let (rate_bps, until_ns) = (2 * GBPS, 150 * MS);
    let elsewhere = transfer(3, 1);
    let adopt =
        Input::Adopt { transfer: elsewhere, left_bytes, age_ns, rate_bps, until_ns, finish };
    harness.handle(0, adopt);
    let (first, second, third) = (transfer(5, 1), transfer(1, 1), transfer(2, 1));
    harness.request(0, first, 100 * MS_AT_10);
    let long = harness.granted(0, second, 20 * MS_AT_10).expect("4 Gbit/s are free");
    assert_eq!(long.rate_bps, 4 * GBPS);
    harness.request(MS, third, 500 * MS_AT_10);
    let left_bytes = 10 * MS_AT_10 + MS_AT_10 / 10;
    harness.handle(25 * MS, progress(second, left_bytes, long.revision));
    harness.timeout(long.until_ns - MS);
    harness.done(long.until_ns - MS * 9 / 10, first);
    let short = harness.grant_of(second).expect("what the first one had is free");
    assert!(short.until_ns < long.until_ns && short.rate_bps == 4 * GBPS, "{short:?} {long:?}");
    harness.timeout(short.until_ns);
    // The source has not heard of it, and sends at 4 Gbit/s as before, beside 2 elsewhere.
    let beside = harness.grant_of(third).expect("what was held for the shorter one is free");
    assert_eq!((beside.from_ns, beside.rate_bps), (short.until_ns, 4 * GBPS));
    harness.timeout(long.until_ns);
    let grant = harness.grant_of(third).expect("all but what is used elsewhere");
    assert_eq!(grant.rate_bps, 8 * GBPS);
}

#[test]
fn what_a_dropped_transfer_may_still_send_stays_counted() {
    let mut config = one_link(Rules::deadline());
    config.classes[1].late = Late::Drop;
    let mut harness = Harness::with_devices(config, 1);
    let id = transfer(1, 1);
    let age_ns = 975 * MS;
    let ask = Input::Request { transfer: id, bytes: 20 * MS_AT_10, age_ns };
    harness.handle(1000 * MS, ask);
    let grant = harness.grant_of(id).unwrap();
    // It is slower than it should be, and nothing of it can come in time when its window runs out.
    harness.handle(1010 * MS, progress(id, 18 * MS_AT_10, grant.revision));
    harness.timeout(grant.until_ns - MS);
    harness.timeout(grant.until_ns - MS + 1);
    assert_eq!(harness.controller.transfers(), 0, "dropped");
    assert_eq!(harness.load_bps(), 10 * GBPS, "its window is not over");
    harness.be_silent(10);
    assert_eq!(harness.load_bps(), 0);
}

/// Returns the latest end of any window that a transfer gets while an urgent one comes and goes for 4 s, so
/// that its rate is lowered and raised. Its source says something as long as `heard` says so.
fn last_end_ns(heard: impl Fn(u64) -> bool) -> u64 {
    let mut config = one_link(Rules::deadline());
    config.links[0].capacity_bps = 15 * GBPS;
    let mut harness = Harness::with_devices(config, 1);
    let id = transfer(1, 1);
    let bytes = 5_000 * MS_AT_10;
    let mut grant = harness.granted(0, id, bytes).expect("the link is free");
    let mut last_ns = grant.until_ns;
    for step in 1..400 {
        let (now_ns, urgent) = (step * 10 * MS, transfer(0, step / 38));
        match step % 38 {
            18 => harness.request(now_ns, urgent, 95 * MS_AT_10),
            37 => harness.done(now_ns, urgent),
            9 | 28 if heard(now_ns) => harness.handle(now_ns, progress(id, bytes, grant.revision)),
            _ => harness.timeout(now_ns),
        };
        grant = harness.grant_of(id).unwrap_or(grant);
        last_ns = last_ns.max(grant.until_ns);
    }
    last_ns
}

#[test]
fn a_source_that_died_keeps_nothing_however_often_its_rate_changes() {
    let slack_ns = 3 * MS;
    let never = last_end_ns(|_| false);
    assert!(never <= 200 * MS + slack_ns, "one lease from its grant: {never}");
    let lately = last_end_ns(|now_ns| now_ns < 500 * MS);
    assert!(lately <= (500 + 400) * MS + slack_ns, "two from when it was heard: {lately}");
    assert!(last_end_ns(|_| true) > 4_000 * MS, "one that is heard goes on");
}
