//! The corpora of the fuzz targets `agent_entry`, `agent_inband`, `agent_peer` and `agent_slot`, replayed: whatever was found once stays found.

#[path = "../../../testing/fuzz/fuzz_targets/agent_entry/checks.rs"]
mod entries;
#[path = "../../../testing/fuzz/fuzz_targets/agent_inband/checks.rs"]
mod inband;
#[path = "../../../testing/fuzz/fuzz_targets/agent_peer/checks.rs"]
mod peers;
#[path = "../../../testing/fuzz/fuzz_targets/agent_slot/checks.rs"]
mod slots;

fn replay(corpus: &str, least: usize, check: impl Fn(&[u8])) {
    let folder = format!("{}/../../testing/fuzz/corpus/{corpus}", env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(folder).expect("the corpus is there");
    let mut count = 0;
    for file in files {
        let path = file.expect("the folder is readable").path();
        check(&std::fs::read(path).expect("the file is readable"));
        count += 1;
    }
    assert!(count >= least, "{count} files");
}

#[test]
fn the_fuzz_corpus_does_no_harm() {
    replay("agent_entry", 6, entries::check);
    replay("agent_inband", 15, inband::check);
    replay("agent_peer", 12, peers::check);
    replay("agent_slot", 6, slots::check);
}
