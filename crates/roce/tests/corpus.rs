//! The corpus of the fuzz target `roce_packet`, replayed: whatever was found once stays found.

#[path = "../../../testing/fuzz/fuzz_targets/roce_packet/checks.rs"]
mod checks;

#[test]
fn the_fuzz_corpus_does_no_harm() {
    let files = crate::common::replay_corpus("roce", checks::check);
    assert!(files > 200, "{files} files");
}
