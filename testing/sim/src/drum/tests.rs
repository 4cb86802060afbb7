//! The short forms of `bench drum-sim` and `soak drum`.
use super::row::Row;
use super::scenario::Scenario;
use super::soak::{Summary, one};
use super::trial::Trial;
use super::world::Wire;

fn run(loss: f64, late: f64, seed: u64) -> Vec<Row> {
    let wire =
        Wire { rtt_ns: 100_000, jitter_ns: 20_000, loss, double: loss / 5.0, late, carries: false };
    run_over(wire, 16, seed)
}

fn run_over(wire: Wire, hosts: usize, seed: u64) -> Vec<Row> {
    let small = Trial { hosts, apps_per_host: 20, active: 6, alpha: 1.0, wire, seed, watched: 40 };
    small.run().unwrap_or_else(|error| panic!("seed {seed}: {error}"))
}

#[test]
fn hosts_agree_after_every_change_and_are_still_after_that() {
    for row in run(0.0, 0.0, 1) {
        assert_eq!(row.over_capacity_unit_s, 0.0, "{row:?}");
        // Who is cut off takes what it would have alone.
        let least = if row.change == "cut" { 0.95 * row.fraction_alone } else { 0.995 };
        assert!(row.fraction_last.is_some_and(|last| last > least), "{row:?}");
        assert!(row.change != "still" || row.rounds == 0, "{row:?}");
    }
}

/// Hosts at rest, or on two sides of a cut, begin at different times, and some miss others at first. Where a round trip is
/// a round time, they waited for one another in turn from then on, two round times each.
#[test]
fn a_round_takes_a_round_time_whenever_hosts_begin() {
    let (rtt_ns, jitter_ns) = (5_000_000, 1_000_000);
    let wire = Wire { rtt_ns, jitter_ns, loss: 0.0, double: 0.0, late: 0.0, carries: false };
    for seed in 1..=4 {
        let rows = run_over(wire, 48, seed);
        for row in rows.iter().filter(|row| ["replaced", "joined"].contains(&row.change)) {
            let (rounds, us) = (row.rounds_to_995, row.virtual_us_to_995);
            let times = us.map(|us| us / ((rtt_ns + jitter_ns) as f64 / 1e3));
            let each = times.zip(rounds).map(|(times, rounds)| times / rounds as f64);
            assert!(each.is_some_and(|each| each <= 1.35), "seed {seed}, {each:?}: {row:?}");
        }
    }
}

#[test]
fn no_capacity_is_exceeded_whatever_happens_to_messages() {
    for (loss, late, seed) in [(0.1, 0.0, 2), (0.3, 0.02, 3)] {
        for row in run(loss, late, seed) {
            assert_eq!(row.over_capacity_unit_s, 0.0, "{row:?}");
            // Near the optimum in the end; with a third lost, not far from what hosts alone have.
            let least = if loss < 0.2 { 0.995 } else { 0.95 * row.fraction_alone };
            let last = row.fraction_last.unwrap_or(0.0);
            assert!(last > least || row.change == "cut", "{row:?}");
        }
    }
}

#[test]
fn thirty_seeds_keep_every_capacity_and_come_near_the_optimum_or_say_why_not() {
    let mut sum = Summary::default();
    for seed in 0..30 {
        for (_, scenario) in Scenario::KINDS {
            match one(scenario(seed)) {
                Ok((summary, _)) => sum += summary,
                Err(fault) => panic!("seed {seed}: {fault}"),
            }
        }
    }
    // They met what they are for.
    let Summary { changes, killed, restarted, stood_still, cut, fell_back, carried, .. } = sum;
    let met = [changes, killed, restarted, stood_still, cut, fell_back, carried];
    assert!(met.iter().all(|count| *count > 0), "{sum}");
    assert_eq!(
        one(Scenario::new(3)).map(|(_, hash)| hash),
        one(Scenario::new(3)).map(|(_, hash)| hash),
        "the same seed"
    );
}

/// Seed 39: the only sender of a receiver offered more than all of its capacity, was heard as if it offered just that, and
/// never lowered its offer. Seed 930: rounds that lead nowhere, with rates far below what hosts have alone. Seeds 4232, 9111
/// and 21305 exceeded a capacity, 5167 and 24919 came to rest too soon: who was still had not got the last answers, and its
/// lease went on with older grants and prices. Seed 29984: a host whose own last offers were older than a lease refused its
/// own answers, and counted them as taken.
#[test]
fn seeds_that_failed_once_pass() {
    for seed in [39, 930, 4232, 5167, 9111, 21305, 24919, 29984] {
        assert_eq!(one(Scenario::new(seed)).map(drop), Ok(()), "seed {seed}");
    }
}

#[test]
fn the_same_seed_has_the_same_trace() {
    let traces = |seed| run(0.1, 0.0, seed).into_iter().map(|row| row.trace_hash);
    assert!(traces(5).eq(traces(5)));
    assert!(!traces(5).eq(traces(6)));
}
