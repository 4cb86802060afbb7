//! Runs are in virtual time, so figures are the same everywhere; the limits leave room for harmless
//! changes.
use super::*;
use crate::Chance;

const MS: Duration = Duration::from_millis(1);
/// Senders begin with full windows and get CNPs; by then they have settled.
const SETTLED: Range<Duration> =
    Range { start: Duration::from_millis(10), end: Duration::from_millis(30) };
/// The time between two notifications of a queue pair.
const CNP_INTERVAL: Duration = Duration::from_micros(50);

/// Returns the outcome after all have settled.
fn settled(case: &Case) -> Outcome {
    let outcome = Incast::new(case).observe(SETTLED);
    println!(
        "{:?}, {} senders: goodput {:.3}, fairness {:.3}, {outcome:?}",
        case.recovery,
        case.senders.len(),
        outcome.goodput(),
        outcome.fairness()
    );
    outcome
}

#[test]
fn one_sender_has_the_link_for_itself() {
    let outcome = settled(&Case::new(1));
    assert!(outcome.goodput() > 0.99, "{outcome:?}");
    assert_eq!((outcome.marked, outcome.cnps_sent), (0, 0));
}

#[test]
fn senders_that_hear_of_congestion_share_the_link_and_lose_nothing() {
    for recovery in [Recovery::SelectiveRepeat, Recovery::GoBackN] {
        for senders in [2, 8] {
            let outcome = settled(&Case { recovery, ..Case::new(senders) });
            assert!(outcome.goodput() > 0.9, "{outcome:?}");
            assert!(outcome.fairness() > 0.95, "{outcome:?}");
            assert_eq!((outcome.queue_full, outcome.retransmitted), (0, 0));
            assert!(outcome.cnps_received > 0, "{outcome:?}");
        }
    }
}

/// Whoever hears of congestion a round trip late must not take back more meanwhile than a notification took: go-back-N
/// would send the same packets into a full queue again and again.
#[test]
fn senders_half_a_millisecond_away_lose_little_and_get_on() {
    for recovery in [Recovery::SelectiveRepeat, Recovery::GoBackN] {
        let delay = Duration::from_micros(250);
        let case = Case { recovery, delay, queue_bytes: 1 << 20, ..Case::new(6) };
        let outcome = Incast::new(&case).observe(50 * MS..250 * MS);
        assert!(outcome.goodput() > 0.7, "{recovery:?}: {outcome:?}");
        let packets = 200 * RATE_BPS / 1000 / 8 / 1024;
        assert!(outcome.retransmitted < packets / 20, "{recovery:?}: {outcome:?}");
    }
}

#[test]
fn a_queue_pair_notifies_at_most_once_in_an_interval() {
    // Senders ignore CNPs, so every packet that arrives is marked.
    let deaf = Case { react_to_cnp: false, mark_above: Some(0), ..Case::new(2) };
    let outcome = settled(&deaf);
    let span = SETTLED.end - SETTLED.start;
    let most = (span.as_nanos() / CNP_INTERVAL.as_nanos()) as u64;
    // All packets of one of the two may be dropped.
    assert!((most * 9 / 10..=2 * most).contains(&outcome.cnps_sent), "{outcome:?}");
    assert!(outcome.marked > 10 * outcome.cnps_sent, "{outcome:?}");
}

#[test]
fn senders_that_do_not_listen_or_hear_nothing_overflow_the_queue() {
    let deaf = Case { react_to_cnp: false, ..Case::new(2) };
    let unmarked = Case { mark_above: None, ..Case::new(2) };
    for case in [deaf, unmarked] {
        let outcome = Incast::new(&case).observe(Duration::ZERO..SETTLED.end);
        assert!(outcome.queue_full > 100, "{outcome:?}");
        assert!(outcome.retransmitted > 0, "{outcome:?}");
        assert_eq!(outcome.cnps_sent > 0, case.mark_above.is_some());
    }
}

#[test]
fn lost_notifications_are_followed_by_others() {
    let outcome = settled(&Case { loss_back: Loss::Random(Chance::of(0.3)), ..Case::new(4) });
    assert!(outcome.cnps_received < outcome.cnps_sent, "{outcome:?}");
    assert!(outcome.goodput() > 0.85, "{outcome:?}");
    assert_eq!(outcome.queue_full, 0, "{outcome:?}");
}

/// One sender has the link to itself while another comes and goes.
#[test]
fn a_sender_makes_room_and_takes_it_back() {
    let mut case = Case::new(2);
    case.senders[1] = 5 * MS..25 * MS;
    let mut incast = Incast::new(&case);
    let alone = incast.observe(2 * MS..5 * MS);
    assert!(alone.shares[0] > 0.99, "{alone:?}");
    let together = incast.observe(15 * MS..25 * MS);
    assert!(together.fairness() > 0.9, "{together:?}");
    // The newcomer began with more than the queue holds, which slowed both down a lot.
    assert!(together.goodput() > 0.8, "{together:?}");
    // From half the rate, each 300 us adds a hundredth.
    let after = incast.observe(50 * MS..60 * MS);
    assert!(after.shares[0] > 0.99, "{after:?}");
    assert_eq!(after.shares[1], 0.0, "{after:?}");
}

/// A window alone would keep the queue full, and lose what does not fit.
#[test]
fn on_a_long_path_the_queue_before_the_bottleneck_stays_short() {
    let mut path = Incast::new(&Case {
        mark_above: None,
        narrow_bps: 200_000_000,
        delay: Duration::from_millis(25),
        queue_bytes: 512 << 10,
        timeout: Duration::from_millis(67),
        ..Case::new(1)
    });
    let second = Duration::from_secs(1);
    path.observe(Duration::ZERO..2 * second);
    let steady = path.observe(2 * second..6 * second);
    assert!(steady.goodput() >= 0.9, "{steady:?}");
    // 100,000 packets pass.
    assert!(steady.queue_full < 2_000, "{steady:?}");
}
