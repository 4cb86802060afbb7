//! A hundred seeds, and what they must have met.
use super::options::one;
use super::world::Summary;

#[test]
fn s2_19_a_hundred_seeds_keep_every_link_and_serve_everybody() {
    let mut sum = Summary::default();
    for seed in 0..100 {
        match one(seed) {
            Ok((summary, _)) => sum += summary,
            Err(fault) => panic!("seed {seed}: {fault}"),
        }
    }
    // They met what they are for.
    let Summary { lost, alone, old_term, hints, missed, dropped, finished, .. } = sum;
    let Summary { faults, handed_over, joined, gone_on, .. } = sum;
    let met =
        [lost, alone, old_term, hints, missed, dropped, finished, faults, handed_over, joined];
    assert!(met.iter().chain([&gone_on]).all(|count| *count > 0), "{sum}");
}

#[test]
fn the_same_seed_has_the_same_trace() {
    for seed in [3, 17] {
        assert_eq!(one(seed).map(|(_, hash)| hash), one(seed).map(|(_, hash)| hash));
    }
    assert_ne!(one(3).map(|(_, hash)| hash), one(17).map(|(_, hash)| hash));
}
