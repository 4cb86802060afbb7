//! A source that is not heard any more.
use crate::ends::Ends;
use catchment_control::admission::SourceId;

const MS: u64 = 1_000_000;
/// What takes 80 ms.
const BYTES: u64 = 100_000_000;

/// Seed 5009 of `cargo xtask soak control`: a refusal that the source had not heard of hid that it was silent, and all that it
/// had asked for was granted after its death.
#[test]
fn what_a_dead_source_waits_for_is_not_granted_one_after_the_other() {
    let mut ends = Ends::new();
    ends.pass(5 * MS);
    ends.ask_for(1, u64::MAX);
    ends.deliver();
    // It does not hear that this is too much, and is not heard for two leases.
    ends.be_cut_off(400 * MS);
    (2..14).for_each(|number| ends.ask_for(number, BYTES));
    ends.deliver();
    ends.be_cut_off(500 * MS);
    for _ in 0..10 {
        assert_eq!(ends.controller.granted_bps(SourceId(5)), 0, "{} ms", ends.now_ns / MS);
        ends.be_cut_off(50 * MS);
    }
}
