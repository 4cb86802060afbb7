//! The corpus of the fuzz target `roce_packet`, replayed: whatever was found once stays found.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../../../testing/fuzz/fuzz_targets/roce_packet/checks.rs"]
mod checks;

use std::path::Path;

#[test]
fn the_fuzz_corpus_does_no_harm() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/fuzz/corpus/roce");
    let mut files = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        checks::check(&std::fs::read(&path).unwrap());
        files += 1;
    }
    assert!(files > 200, "{files} files in {}", folder.display());
}
