//! A source that sends at its safe rate registers with a new controller, which grants nothing yet.
use crate::ends::Ends;
use catchment_control::admission::source_side::{self, Config, Fallback, GoOn, LocalId};
use catchment_control::admission::{LinkId, SourceId};

const MS: u64 = 1_000_000;
const GBPS: u64 = 1_000_000_000;
const ID: LocalId = LocalId { device: 0, number: 1 };

/// A source with much to send, whose controller has died so long ago.
fn after_death(time_ms: u64) -> Ends {
    let mut ends = Ends::new();
    ends.source.configure(Config::new(Fallback::Safe { rate_bps: GBPS }));
    ends.pass(5 * MS);
    ends.ask(1_000_000_000);
    be_dead(&mut ends, time_ms);
    ends
}

fn be_dead(ends: &mut Ends, time_ms: u64) {
    each_tenth(ends, time_ms, |ends| ends.be_cut_off(MS / 10));
}

fn pass(ends: &mut Ends, time_ms: u64) {
    each_tenth(ends, time_ms, |ends| ends.pass(MS / 10));
}

/// Each chunk arrives when the next one begins.
fn each_tenth(ends: &mut Ends, time_ms: u64, pass: impl Fn(&mut Ends)) {
    for _ in 0..10 * time_ms {
        let before = ends.chunks.len();
        pass(ends);
        let begun = ends.chunks.len() - before;
        (0..begun).for_each(|_| ends.tell(source_side::Input::Sent { id: ID }));
    }
}

#[test]
fn it_goes_on_at_the_safe_rate_until_the_new_controller_may_grant() {
    let mut ends = after_death(300);
    assert!(ends.source.is_alone() && !ends.alone.is_empty());
    let (chunks, alone) = (ends.chunks.len(), ends.alone.len());
    ends.take_over();
    assert!(!ends.source.is_alone() && ends.source.goes_on());
    let (began_ns, grants_ns) = (ends.now_ns, ends.controller.quiet_until_ns());
    while ends.now_ns < grants_ns {
        pass(&mut ends, 1);
    }
    assert!(ends.source.counts().opened > 0 && !ends.source.goes_on());
    let last_ns = ends.alone.last().expect("it went").1;
    assert!(ends.alone[alone..].iter().all(|(rate_bps, _)| *rate_bps == GBPS));
    assert!(last_ns <= grants_ns, "all has left before something is granted");
    let bytes: u64 = ends.chunks[chunks..][..ends.alone.len() - alone].iter().sum();
    let most_bytes = GBPS / 8 * (grants_ns - began_ns) / 1_000_000_000;
    assert!((most_bytes / 10 * 9..=most_bytes).contains(&bytes), "{bytes} of {most_bytes}");
    let alone = ends.alone.len();
    pass(&mut ends, 20);
    assert_eq!(ends.alone.len(), alone, "from then on it is granted what it sends");
    assert!(ends.chunks.len() > chunks + alone);
}

#[test]
fn it_goes_on_at_the_lower_of_two_rates_and_at_no_higher_one_when_it_registers_again() {
    let mut ends = after_death(300);
    ends.safe_bps = GBPS / 2;
    ends.take_over();
    // The line is busy with what began before.
    pass(&mut ends, 50);
    assert_eq!(ends.alone.last().map(|chunk| chunk.0), Some(GBPS / 2));
    ends.safe_bps = 2 * GBPS;
    ends.take_over();
    pass(&mut ends, 50);
    assert_eq!(ends.alone.last().map(|chunk| chunk.0), Some(GBPS / 2));
}

#[test]
fn it_does_not_begin_that_way_nor_when_its_user_wants_otherwise() {
    // The lease is not over.
    let mut ends = after_death(100);
    ends.take_over();
    assert!(ends.controller.safe_ns(SourceId(5)).is_some() && !ends.source.goes_on());
    pass(&mut ends, 200);
    assert!(ends.alone.is_empty());
    for fallback in [Fallback::Stop, Fallback::Free] {
        let mut ends = after_death(100);
        ends.source.configure(Config::new(fallback));
        be_dead(&mut ends, 200);
        let alone = ends.alone.len();
        ends.take_over();
        assert!(!ends.source.goes_on());
        pass(&mut ends, 100);
        assert_eq!(ends.alone.len(), alone);
    }
}

#[test]
fn what_is_granted_ends_it() {
    let mut ends = after_death(300);
    ends.take_over();
    let (source, term, root, round_trip_ns) = (5, 2, crate::samples::ROOT, 0);
    // Longer than the controller waits, which no controller tells.
    let go_on = Some(GoOn { rate_bps: GBPS, until_ns: u64::MAX });
    ends.tell(source_side::Input::Registered { source, term, root, round_trip_ns, go_on });
    pass(&mut ends, 10);
    assert!(ends.source.goes_on());
    ends.take_over();
    ends.tell(source_side::Input::Registered { source, term, root, round_trip_ns, go_on });
    while ends.source.counts().grants < 2 {
        pass(&mut ends, 1);
    }
    let alone = ends.alone.len();
    assert!(!ends.source.goes_on());
    pass(&mut ends, 50);
    assert_eq!(ends.alone.len(), alone);
}

#[test]
fn a_controller_lets_nobody_go_on_beside_what_it_knows_to_be_in_use() {
    let mut ends = Ends::new();
    let safe = |ends: &Ends| ends.controller.safe_ns(SourceId(5));
    assert_eq!(safe(&ends), None, "it grants");
    ends.pass(5 * MS);
    ends.ask(1_000_000_000);
    ends.pass(2 * MS);
    ends.take_over();
    let told_ns = safe(&ends).expect("nothing is known of windows yet");
    assert!(told_ns < ends.controller.quiet_until_ns() - ends.now_ns, "clocks may differ");
    pass(&mut ends, 10);
    assert!(ends.controller.controller().load_bps(LinkId(0)) > Some(0));
    assert_eq!(safe(&ends), None, "a window of the one before");
    pass(&mut ends, 300);
    let (device, bytes, period_ns) = (0, 5_000_000, 40 * MS);
    ends.tell(source_side::Input::Periodic { device, bytes, period_ns });
    pass(&mut ends, 300);
    ends.take_over();
    pass(&mut ends, 10);
    assert!(ends.controller.rates(SourceId(5)).0 > 0, "a rate of the one before");
    assert_eq!(safe(&ends), None);
}
