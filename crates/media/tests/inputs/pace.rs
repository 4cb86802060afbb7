//! Pacing in virtual time: never early, no drift, and what happens after a stop.
use catchment_media::format::FrameRate;
use catchment_media::input::pace::{LatePolicy, Pace, Pacer, spread_phase};
use proptest::prelude::*;
use std::time::{Duration, Instant};

const CATCH_UP: LatePolicy = LatePolicy::CatchUp { burst: Duration::from_secs(1) };
const MS: Duration = Duration::from_millis(1);

fn rate(text: &str) -> FrameRate {
    text.parse().unwrap()
}

fn pacer(fps: &str, policy: LatePolicy) -> (Instant, Pacer) {
    let start = Instant::now();
    (start, Pacer::new(rate(fps), start, Duration::ZERO, policy))
}

/// Sleeps exactly as told and collects when which frame was given.
fn run(pacer: &mut Pacer, mut now: Instant, frames: usize) -> Vec<(u64, Instant)> {
    let mut given = Vec::new();
    while given.len() < frames {
        match pacer.poll(now) {
            Pace::Wait(wait) => {
                assert!(!wait.is_zero(), "a wait of nothing spins");
                now += wait;
            }
            Pace::Due { number, skipped, late } => {
                assert_eq!((skipped, late), (0, Duration::ZERO));
                given.push((number, now));
            }
        }
    }
    given
}

#[test]
fn a_million_frames_at_29_97_do_not_drift() {
    let (start, mut pacer) = pacer("30000/1001", CATCH_UP);
    let given = run(&mut pacer, start, 1_000_001);
    let (number, at) = given[1_000_000];
    assert_eq!(number, 1_000_000);
    // 1,000,000 frames take 33,366.6666... s; summing rounded periods would be off by 0.67 ms.
    assert_eq!(at - start, Duration::new(33_366, 666_666_667));
    assert!(given.windows(2).all(|pair| pair[1].0 == pair[0].0 + 1));
}

#[test]
fn phases_spread_devices_over_one_period() {
    let start = Instant::now();
    let phases: Vec<Duration> = (0..12).map(|index| spread_phase(rate("25"), index, 12)).collect();
    assert_eq!(phases[0], Duration::ZERO);
    assert_eq!(phases[3], 10 * MS);
    assert!(phases.iter().all(|phase| *phase < 40 * MS));
    let mut pacer = Pacer::new(rate("25"), start, phases[3], CATCH_UP);
    assert_eq!(pacer.poll(start), Pace::Wait(10 * MS));
    let due: Vec<Duration> = run(&mut pacer, start, 3).iter().map(|(_, at)| *at - start).collect();
    assert_eq!(due, [10 * MS, 50 * MS, 90 * MS]);
    assert_eq!(spread_phase(rate("25"), 0, 0), Duration::ZERO);
}

#[test]
fn catching_up_gives_every_overdue_frame_then_goes_on_in_time() {
    let (start, mut pacer) = pacer("100", CATCH_UP);
    let late = start + 55 * MS;
    for number in 0..6 {
        assert_eq!(
            pacer.poll(late),
            Pace::Due { number, skipped: 0, late: (55 - 10 * number as u32) * MS }
        );
    }
    assert_eq!(pacer.poll(late), Pace::Wait(5 * MS));
}

#[test]
fn a_long_stop_is_caught_up_only_as_far_as_the_burst() {
    let (start, mut pacer) = pacer("100", LatePolicy::CatchUp { burst: 30 * MS });
    let late = start + Duration::from_secs(3600);
    let mut given = Vec::new();
    while let Pace::Due { number, skipped: 0, .. } = pacer.poll(late) {
        given.push(number);
    }
    assert_eq!(given, [0, 1, 2, 3], "30 ms of frames, none left out");
    assert_eq!(pacer.poll(late), Pace::Wait(10 * MS));
}

#[test]
fn skipping_gives_the_latest_and_counts_the_others() {
    let (start, mut pacer) = pacer("100", LatePolicy::Skip);
    assert_eq!(pacer.poll(start), Pace::Due { number: 0, skipped: 0, late: Duration::ZERO });
    assert_eq!(pacer.poll(start + 55 * MS), Pace::Due { number: 5, skipped: 4, late: 5 * MS });
    assert_eq!(pacer.poll(start + 55 * MS), Pace::Wait(5 * MS));
    // A deadline met to the nanosecond is met.
    assert_eq!(
        pacer.poll(start + 60 * MS),
        Pace::Due { number: 6, skipped: 0, late: Duration::ZERO }
    );
}

proptest! {
    #[test]
    fn never_early_never_backwards(
        num in 1u32..=100_000, den in 1u32..=100_000, phase_us in 0u64..1_000_000, skip in any::<bool>(),
        steps in prop::collection::vec(0u64..3_000_000, 1..60),
    ) {
        let rate = FrameRate::new(num, den).unwrap();
        let (start, phase) = (Instant::now(), Duration::from_micros(phase_us));
        let policy = if skip { LatePolicy::Skip } else { LatePolicy::CatchUp { burst: 500 * MS } };
        let mut pacer = Pacer::new(rate, start, phase, policy);
        let (mut now, mut next) = (start, 0);
        for step in steps {
            now += Duration::from_micros(step);
            match pacer.poll(now) {
                Pace::Wait(wait) => {
                    prop_assert!(!wait.is_zero());
                    now += wait;
                }
                Pace::Due { number, skipped, late } => {
                    prop_assert_eq!(number, next + skipped);
                    // Exact in integers: number * den / num seconds <= time since phase.
                    let since = (now - start).saturating_sub(phase).as_nanos();
                    prop_assert!(u128::from(number) * u128::from(den) * 1_000_000_000 <= since * u128::from(num));
                    prop_assert!(now - start >= late);
                    if skip {
                        prop_assert!(late <= rate.time_of(1));
                    }
                    next = number + 1;
                }
            }
        }
    }
}
