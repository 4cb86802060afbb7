//! What works of a host's sending: it falls to what was served while rates were not kept, and climbs again.
use catchment_control::drum::{Behind, Working};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const SPAN: u64 = 100 * MS;
const STATED: u64 = 2_000_000_000;

/// A host, and what was counted at it.
struct Sender {
    working: Working,
    now_ns: u64,
    counts: Behind,
}

impl Sender {
    fn new() -> Self {
        Self { working: Working::new(STATED, 0), now_ns: 0, counts: Behind::default() }
    }

    /// Lets so many spans pass, with looks every 10 ms, in which so much of the time was behind, so much a second was
    /// served in it and so much of what was given was lost. Returns what worked after each change.
    fn pass(&mut self, spans: u64, behind: f64, bytes_per_s: u64, lost: f64) -> Vec<u64> {
        let mut changes = Vec::new();
        for _ in 0..10 * spans {
            self.now_ns += SPAN / 10;
            let ns = ((SPAN / 10) as f64 * behind) as u64;
            let served = u128::from(bytes_per_s) * u128::from(ns) / 1_000_000_000;
            self.counts.ns += ns;
            self.counts.served_bytes += served as u64;
            self.counts.lost_bytes += (served as f64 * lost / (1.0 - lost)) as u64;
            if self.working.look(self.now_ns, self.counts) {
                changes.push(self.working.bytes_per_s());
            }
        }
        changes
    }
}

#[test]
fn what_was_served_while_rates_were_not_kept_works_and_a_little_more_each_second() {
    let mut sender = Sender::new();
    assert_eq!(sender.pass(1, 1.0, 1_000_000_000, 0.5), [0; 0], "it may pass");
    let changes = sender.pass(2, 1.0, 1_000_000_000, 0.5);
    assert_eq!(changes, [980_000_000], "what is counted next was sent at the rates before");
    // A hundredth of itself each step, and 5 % of what is stated a second from half of that on.
    let changes = sender.pass(5, 0.0, 0, 0.0);
    let first = [989_800_000, 999_698_000, 1_009_694_980, 1_019_694_980, 1_029_694_980];
    assert_eq!(changes, first);
    let changes = sender.pass(100, 0.0, 0, 0.0);
    assert_eq!((changes.len(), changes.last()), (98, Some(&STATED)));
}

#[test]
fn what_is_far_below_what_is_stated_is_climbed_from_by_a_hundredth_at_a_time() {
    let mut sender = Sender::new();
    assert_eq!(sender.pass(6, 1.0, 100_000_000, 0.9), [STATED / 16, 98_000_000]);
    assert_eq!(sender.pass(2, 0.0, 0, 0.0), [98_980_000, 99_969_800]);
}

#[test]
fn rates_that_are_kept_nearly_or_most_of_the_time_are_no_reason() {
    for (behind, lost) in [(1.0, 0.0), (1.0, 0.009), (0.89, 0.5), (0.0, 0.0)] {
        let mut sender = Sender::new();
        assert_eq!(sender.pass(50, behind, STATED / 2, lost), [0; 0], "{behind} {lost}");
    }
}

#[test]
fn one_bad_span_is_no_reason() {
    let mut sender = Sender::new();
    for _ in 0..10 {
        assert_eq!(sender.pass(1, 1.0, STATED / 4, 0.7), [0; 0]);
        assert_eq!(sender.pass(1, 1.0, STATED, 0.0), [0; 0]);
    }
}

/// What the core did beside in one of two spans is not what the host can send.
#[test]
fn the_better_of_two_bad_spans_counts() {
    for both in [[0.8, 1.0], [1.0, 0.8]] {
        let mut sender = Sender::new();
        let spans = both.map(|part| sender.pass(1, 1.0, (STATED as f64 / 2.0 * part) as u64, 0.5));
        assert_eq!(spans, [vec![], vec![980_000_000]], "{both:?}");
    }
}

#[test]
fn nothing_is_said_of_a_time_in_which_nobody_looked() {
    let mut sender = Sender::new();
    sender.pass(1, 1.0, STATED / 4, 0.7);
    let (ns, served_bytes) = (4 * SPAN, STATED / 100);
    sender.counts = Behind { ns: sender.counts.ns + ns, served_bytes, lost_bytes: u64::MAX / 2 };
    assert!(!sender.working.look(sender.now_ns + ns, sender.counts));
    assert_eq!(sender.working.bytes_per_s(), STATED);
}

#[test]
fn who_sleeps_has_climbed_when_it_wakes() {
    let mut sender = Sender::new();
    assert_eq!(sender.pass(3, 1.0, STATED / 2, 0.5).len(), 1);
    assert!(sender.working.look(sender.now_ns + 60_000 * MS, sender.counts));
    assert_eq!(sender.working.bytes_per_s(), STATED);
}

proptest! {
    /// Whatever is counted: what works is never more than is stated, never nothing, rises by a hundredth a span at the
    /// most, and falls only to what was served in the better of two spans, or a sixteenth of what worked, never in two spans that follow each other.
    #[test]
    fn it_rises_slowly_and_falls_to_what_was_served(
        spans in prop::collection::vec((0.0..1.0f64, 0..4 * STATED, 0.0..0.99f64), 1..100),
    ) {
        let mut sender = Sender::new();
        let (mut fell, mut better) = (false, 0);
        for (behind, bytes_per_s, lost) in spans {
            let before = sender.working.bytes_per_s();
            // Mostly all of the time.
            let changes = sender.pass(1, (2.0 * behind).min(1.0), bytes_per_s, lost);
            prop_assert!(changes.len() <= 1);
            let after = sender.working.bytes_per_s();
            prop_assert!((1..=STATED).contains(&after));
            prop_assert!(after <= before + before / 100 + 1);
            let falls = after < before;
            prop_assert!(!(falls && fell), "twice in a row");
            if falls {
                let kept = (bytes_per_s.max(better) as f64 * 0.98).max(before as f64 / 16.0);
                prop_assert!((after as f64 - kept).abs() <= 1e-4 * kept + 2.0, "{after} of {kept}");
                prop_assert!(behind >= 0.45 && lost >= 0.0099);
            }
            (fell, better) = (falls, bytes_per_s);
        }
    }
}
