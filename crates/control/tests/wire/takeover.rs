//! Another controller takes over.
use crate::ends::Ends;
use catchment_control::admission::source_side::{self, LocalId};
use catchment_control::admission::{LinkId, SourceId};

const MS: u64 = 1_000_000;
const LEASE_MS: u64 = 200;
const ID: LocalId = LocalId { device: 0, number: 1 };

/// Lets time pass, and everything leave at once that begins.
fn serve(ends: &mut Ends, time_ms: u64, left: &mut usize) {
    for _ in 0..2 * time_ms {
        ends.pass(MS / 2);
        while *left < ends.chunks.len() {
            *left += 1;
            ends.tell(source_side::Input::Sent { id: ID });
        }
    }
}

#[test]
fn a_new_controller_grants_nothing_while_windows_of_the_one_before_may_be_in_use() {
    let mut ends = Ends::new();
    let mut left = 0;
    ends.pass(5 * MS);
    let (id, bytes, ahead_bytes, age_ns, class) = (ID, 1_000_000_000, 0, 0, 1);
    ends.tell(source_side::Input::Ask { id, bytes, ahead_bytes, age_ns, class });
    serve(&mut ends, 5, &mut left);
    assert!(left > 0, "a window for a lease");
    ends.take_over();
    serve(&mut ends, LEASE_MS / 2, &mut left);
    let during = left;
    serve(&mut ends, LEASE_MS / 2, &mut left);
    assert!(left > during, "windows stand");
    // This source's window is over, which others' need not be that have not registered yet.
    let before = left;
    serve(&mut ends, 50, &mut left);
    assert_eq!(left, before, "nothing is granted to who has said that its window is over");
    serve(&mut ends, LEASE_MS, &mut left);
    assert!(left > before, "then it goes on");
}

#[test]
fn a_rate_that_is_in_use_goes_on_under_a_new_controller() {
    const RATE_BPS: u64 = 1_000_000_000;
    let mut ends = Ends::new();
    ends.pass(5 * MS);
    let (device, bytes, period_ns) = (0, 5_000_000, 40 * MS);
    ends.tell(source_side::Input::Periodic { device, bytes, period_ns });
    ends.pass(5 * MS);
    ends.take_over();
    for at_ms in 0..3 * LEASE_MS {
        ends.pass(MS);
        let rate = ends.source.rate(0).map(|rate| rate.rate_bps);
        assert_eq!(rate, Some(RATE_BPS), "{at_ms} ms after that");
    }
    assert_eq!(ends.controller.rates(SourceId(5)), (1, RATE_BPS));
    assert_eq!(ends.controller.controller().periodic_bps(LinkId(0)), Some(RATE_BPS));
}
