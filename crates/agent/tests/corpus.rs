//! The corpora of the fuzz targets `agent_entry`, `agent_inband`, `agent_peer` and `agent_slot`, replayed: whatever was found once stays found.

use catchment_probe::corpus::replay;

#[path = "../../../testing/fuzz/fuzz_targets/agent_entry/checks.rs"]
mod entries;
#[path = "../../../testing/fuzz/fuzz_targets/agent_inband/checks.rs"]
mod inband;
#[path = "../../../testing/fuzz/fuzz_targets/agent_peer/checks.rs"]
mod peers;
#[path = "../../../testing/fuzz/fuzz_targets/agent_slot/checks.rs"]
mod slots;

#[test]
fn the_fuzz_corpus_does_no_harm() {
    replay("agent_entry", 6, entries::check);
    replay("agent_inband", 15, inband::check);
    replay("agent_peer", 14, peers::check);
    replay("agent_slot", 6, slots::check);
}
