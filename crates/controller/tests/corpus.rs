//! The corpora of the fuzz targets `controller_config` and `store_answer`, replayed: whatever was found once stays found.

use catchment_probe::corpus::replay;

#[path = "../../../testing/fuzz/fuzz_targets/store_answer/checks.rs"]
mod answers;
#[path = "../../../testing/fuzz/fuzz_targets/controller_config/checks.rs"]
mod configs;

#[test]
fn the_fuzz_corpus_does_no_harm() {
    replay("controller_config", 8, configs::check);
    replay("store_answer", 10, answers::check);
}
