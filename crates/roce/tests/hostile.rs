//! The fuzz target `roce_responder`, without a fuzzer: its corpus, and scripts by chance.

#[path = "../../../testing/fuzz/fuzz_targets/roce_responder/checks.rs"]
mod checks;

use proptest::prelude::*;

#[test]
fn the_fuzz_corpus_does_no_harm() {
    let files = crate::common::replay_corpus("roce_responder", checks::check);
    assert!(files > 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn a_hostile_peer_changes_nothing_that_it_may_not(
        script in proptest::collection::vec(any::<u8>(), 0..1200)
    ) {
        checks::check(&script);
    }
}
