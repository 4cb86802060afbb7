//! What a controller has to do at the load of the RDMA-TCM paper: 12 sources of 10 Gbit/s, frames of 24,883,200 bytes over
//! 20 Gbit/s, 66 a second. Then nothing waits for it, and whatever wakes it takes most of its time.
use crate::ends::Ends;
use crate::shared::World;
use catchment_control::admission::source_side::{Input, LocalId};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const GBPS: u64 = 1_000_000_000;
const SOURCES: usize = 12;
const FRAME_BYTES: u64 = 24_883_200;
const FRAMES: u64 = 66;
/// Until the drift of the clocks is known a window ends some 0.1 ms before what it was granted for, and its source says so.
const KNOWN: u64 = 20;
const SECONDS: u64 = 10;

/// It takes a request and an end, and answers both; each second the round trip of each source is measured, which takes an
/// answer of the source. A timer would come before a source says that its window is over, and one a lease after each request.
#[test]
fn a_grant_takes_two_datagrams_each_way_and_no_timer() {
    let mut world = World::new(SOURCES, (20 * GBPS, 10 * GBPS), None);
    world.pass(SECOND);
    let mut before = [0; 3];
    for number in 0..(KNOWN + SECONDS) * FRAMES {
        if number == KNOWN * FRAMES {
            before = world.work;
        }
        world.ask(number as usize % SOURCES, FRAME_BYTES);
        world.pass(SECOND / FRAMES);
    }
    let [came, sent, timeouts] = [0, 1, 2].map(|at| world.work[at] - before[at]);
    let grants = SECONDS * FRAMES;
    assert!(came <= 2 * grants + SECONDS * SOURCES as u64, "{came} datagrams came");
    assert!(sent <= 2 * grants, "{sent} were sent");
    assert!(timeouts <= grants / 100, "{timeouts} timers");
}

/// Sends what leaves in 0.4 ms, which measures the round trip.
fn send_one(ends: &mut Ends) {
    ends.ask_for(1, 500_000);
    ends.pass(MS);
    assert_eq!(ends.chunks.len(), 1);
    ends.tell(Input::Sent { id: LocalId { device: 0, number: 1 } });
    ends.pass(MS);
    assert_eq!(ends.source.transfers(), 0);
}

/// All has begun, and its end comes before anybody would repeat that.
#[test]
fn what_ends_soon_is_answered_twice() {
    let mut ends = Ends::new();
    ends.pass(6 * MS);
    let before = ends.controller.counts().sent;
    send_one(&mut ends);
    assert_eq!(ends.controller.counts().sent - before, 2, "the grant, and that it has ended");
}

/// Who asks repeats that until it is answered, so what answers it need not be repeated too.
#[test]
fn a_grant_that_is_lost_comes_when_its_source_asks_again() {
    let mut ends = Ends::new();
    ends.pass(6 * MS);
    send_one(&mut ends);
    let before = ends.controller.counts().sent;
    // 8 ms: what is left of its window is used.
    ends.ask_for(2, 10_000_000);
    ends.deliver();
    assert_eq!((ends.chunks.len(), ends.controller.counts().sent - before), (1, 1), "it is lost");
    ends.pass(3 * MS);
    assert!(ends.chunks.len() > 1);
    assert_eq!(ends.controller.counts().sent - before, 2, "an answer to each request");
}
