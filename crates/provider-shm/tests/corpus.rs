//! The corpus of the fuzz target `shm_handshake`, replayed: whatever was found once stays found.

#[path = "../../../testing/fuzz/fuzz_targets/shm_handshake/checks.rs"]
mod checks;

#[test]
fn the_fuzz_corpus_does_no_harm() {
    catchment_probe::corpus::replay("shm_handshake", 8, checks::check);
}
