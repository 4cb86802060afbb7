//! The corpus of the fuzz target `agent_entry`, replayed: whatever was found once stays found.

#[path = "../../../testing/fuzz/fuzz_targets/agent_entry/checks.rs"]
mod checks;

#[test]
fn the_fuzz_corpus_does_no_harm() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testing/fuzz/corpus/agent_entry");
    let files = std::fs::read_dir(folder).expect("the corpus is there");
    let mut count = 0;
    for file in files {
        let path = file.expect("the folder is readable").path();
        checks::check(&std::fs::read(path).expect("the file is readable"));
        count += 1;
    }
    assert!(count >= 6, "{count} files");
}
