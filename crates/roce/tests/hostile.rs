//! The fuzz target `roce_responder`, without a fuzzer: its corpus, and scripts by chance.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../../../testing/fuzz/fuzz_targets/roce_responder/checks.rs"]
mod checks;

use proptest::prelude::*;
use std::path::Path;

#[test]
fn the_fuzz_corpus_does_no_harm() {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/fuzz/corpus/roce_responder");
    let mut files = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        checks::check(&std::fs::read(&path).unwrap());
        files += 1;
    }
    assert!(files > 0, "no files in {}", folder.display());
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
