//! The conformance suite on the provider in virtual time, whose clock advances when polled.
use catchment_conformance::{Bench, CASES, processes, start};
use catchment_sim::verbs::{Fabric, Pace, Times};
use std::sync::Arc;

/// Cases that cannot run here: a second process has another fabric, time does not advance while a
/// program only reads memory, waiting takes no real time, and a device needs few descriptors.
const NOT_HERE: [&str; 8] = [
    "rates::a_limit_can_be_taken_away_while_requests_wait",
    "rates::a_limit_outlives_a_reset",
    "resources::objects_may_be_dropped_in_any_order",
    "messages::a_sender_gives_up_without_a_receive",
    "processes::two_processes_do_everything",
    "processes::a_killed_peer_is_noticed_every_time",
    "ordering::the_last_word_of_a_write_comes_last",
    "ordering::a_later_write_is_seen_later",
];

fn bench() -> Bench {
    let fabric = Fabric::new(Times::usual(), Pace::WhenPolled);
    Bench::new(Arc::new(fabric.provider()), "sim0")
}

#[test]
fn the_provider_in_virtual_time_does_what_verbs_say() {
    let mut left_out = 0;
    for (name, case) in CASES {
        if NOT_HERE.iter().any(|not_here| name.replace(' ', "") == *not_here) {
            left_out += 1;
            continue;
        }
        eprintln!("{name}");
        case(&bench());
    }
    assert_eq!(left_out, NOT_HERE.len());
}

/// What the case of that name does first.
#[test]
fn objects_may_be_dropped_in_any_order() {
    start("drops").says("done");
}

/// Runs the second process of a case; does nothing in the first.
#[test]
fn conformance_child() {
    processes::child(&bench());
}
