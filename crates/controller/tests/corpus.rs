//! The corpora of the fuzz targets `controller_config` and `store_answer`, replayed: whatever was found once stays found.

#[path = "../../../testing/fuzz/fuzz_targets/store_answer/checks.rs"]
mod answers;
#[path = "../../../testing/fuzz/fuzz_targets/controller_config/checks.rs"]
mod configs;

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
    replay("controller_config", 8, configs::check);
    replay("store_answer", 10, answers::check);
}
