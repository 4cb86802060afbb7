//! A small part of the cells as a snapshot, and what holds in every run.
use super::cell::{Cell, LINK_BPS, Links, Method, SECOND_NS};
use super::packet::Carrier;
use super::row::{Goal, Shown};
use super::trace::{Event, FRAME_BYTES, Mix};
use super::{added, knee, ladder, packets, step, untold, world};
use catchment_control::admission::{Pausing, Rules};
use catchment_probe::random::Random;

const SNAPSHOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/admission.txt");

fn cell(method: Method, load: f64, seconds: u64) -> Cell {
    let (links, mix, seeds) = (Links::Pool(1), Mix::Events, vec![1]);
    Cell { method, links, mix, load, seeds, seconds, carrier: None }
}

fn methods() -> Vec<Method> {
    let shipped = [LINK_BPS / 2, LINK_BPS].map(ladder::shipped);
    ladder::papers().into_iter().chain(ladder::steps()).chain(shipped).collect()
}

/// Grants for frames and for events (S2.8), with the paper's overhead and without (S2.18).
#[test]
fn cells_are_as_they_were() {
    let mut table = String::new();
    for method in methods() {
        for load in [0.5, 0.9] {
            let cell = cell(method.clone(), load, 40);
            table.push_str(&cell.row(&cell.run()).line());
            table.push('\n');
        }
    }
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(SNAPSHOT, &table).unwrap();
    }
    let snapshot = std::fs::read_to_string(SNAPSHOT).unwrap();
    assert!(
        table == snapshot,
        "cells have changed; if for the better, UPDATE_SNAPSHOTS=1 cargo test -p catchment-sim\n\
         was:\n{snapshot}is:\n{table}"
    );
}

#[test]
fn every_event_arrives_and_no_link_is_ever_exceeded() {
    let links = [Links::Pool(1), Links::TwoHops];
    for (method, links) in
        methods().into_iter().flat_map(|method| links.map(|one| (method.clone(), one)))
    {
        let cell = Cell { links, ..cell(method, 0.8, 20) };
        let pooled = cell.run();
        let row = cell.row(&pooled);
        assert_eq!(pooled.over_capacity_bits, 0.0, "{}", row.line());
        assert_eq!(pooled.unfinished, 0, "{}", row.line());
    }
}

/// What a source says late, after the end of its window, is heard too, over 2 to 20 ms (S2.20).
#[test]
fn nobody_is_forgotten_however_long_messages_take() {
    for (rtt_ns, pausing) in [
        (2_000_000, Pausing::Confirmed),
        (20_000_000, Pausing::Confirmed),
        (20_000_000, Pausing::Predicted),
    ] {
        let mut method = Method { rtt_ns, ..ladder::shipped(LINK_BPS) };
        method.rules.pausing = pausing;
        let cell = cell(method, 0.95, 120);
        let pooled = cell.run();
        let (row, told) = (cell.row(&pooled), pooled.missed_told);
        assert_eq!((pooled.unfinished, told), (0, pooled.missed), "{}", row.line());
    }
}

/// The knees over round trips of 0.1 to 20 ms: the paper's controller loses most of what it carries, ours little.
#[test]
fn s2_20_knees_over_round_trips_are_those_of_the_model() {
    let find = |method| {
        let cell = Cell { seeds: vec![1, 2], ..cell(method, 0.0, 400) };
        let row = knee::find(&cell).swap_remove(0);
        let goal = row.beside_model().expect("a round trip of the model");
        println!("{} {goal:?}", row.line());
        goal.held()
    };
    let held: Vec<bool> = knee::trips().into_iter().map(find).collect();
    assert_eq!(held, [true; 11]);
}

#[test]
fn rates_follow_a_link_and_a_lone_stream_waits_for_its_first_frame_only() {
    for rtt_ns in [500_000, 20_000_000] {
        let method = Method { rtt_ns, ..ladder::shipped(LINK_BPS / 2) };
        for row in step::rows(&method, 1) {
            assert!(row.goals().iter().all(Goal::held), "{}", row.line());
        }
        for row in added::rows(&method) {
            assert!(row.goals().iter().all(Goal::held), "{}", row.line());
        }
    }
}

#[test]
fn whoever_is_late_was_told_and_nobody_else() {
    let ours = methods().into_iter().filter(|method| method.name == "deadline" && !method.by_frame);
    for (method, load) in ours.flat_map(|method| [(method.clone(), 0.7), (method, 0.95)]) {
        let cell = cell(method, load, 60);
        let pooled = cell.run();
        let told = (pooled.missed_told, pooled.told_in_vain);
        assert_eq!(told, (pooled.missed, 0), "{}", cell.row(&pooled).line());
    }
}

/// Whole events one after the other at the rate of the link are a queue with one server and constant
/// service: each begins when it is there and the one before it has left.
#[test]
fn sojourn_times_are_those_of_a_queue_with_one_server() {
    let rules = Rules { shares: None, demotion: false, ..Rules::deadline() };
    let method = Method { rules, rtt_ns: 0, guard_ns: 0, ..ladder::shipped(LINK_BPS) };
    let (load, seconds) = (0.7, 4000);
    let service_ns = 15 * FRAME_BYTES * 8 * SECOND_NS / LINK_BPS;
    let rate = load * SECOND_NS as f64 / service_ns as f64;
    let times = super::trace::poisson(rate, seconds * SECOND_NS, &mut Random::new(1));
    let event =
        |(at, at_ns): (u32, u64)| Event { at_ns, device: 1 + at % 11, class: 1, frames: 15 };
    let trace: Vec<Event> = (0..).zip(times).map(event).collect();
    let outcome = world::run(&cell(method, load, seconds).setup(), &trace);
    let mut free_ns = 0;
    let mut longest_ns = 0;
    for (event, end) in trace.iter().zip(&outcome.ends) {
        free_ns = free_ns.max(event.at_ns) + service_ns;
        let done_ns = end.done_ns.unwrap();
        assert!(done_ns.abs_diff(free_ns) < 10_000, "{event:?} at {done_ns}, not {free_ns}");
        longest_ns = longest_ns.max(done_ns - event.at_ns);
        free_ns = done_ns;
    }
    assert!(longest_ns > 5 * service_ns, "a queue was there: {longest_ns}");
}

/// Level `packet` agrees with level `chunk` on the same events; a controller loses no packet, who sends without one does
/// (S2.1).
#[test]
fn packets_of_a_controller_are_not_dropped_and_others_are() {
    let mut seen = Vec::new();
    for (method, carrier) in packets::methods() {
        if !["fifo", "deadline", "spq", "selective-repeat"].contains(&method.name) {
            continue;
        }
        if method.nic_bps == LINK_BPS {
            continue;
        }
        let chunk = cell(method, 0.66, 1);
        let packet = Cell { carrier: Some(carrier), ..chunk.clone() };
        let row = packet.row(&packet.run());
        let dropped = row.packets_dropped.unwrap();
        assert_eq!(dropped == 0, carrier.controlled, "{}", row.line());
        if carrier.controlled {
            let chunk = chunk.row(&chunk.run());
            assert!(row.furthest_from(&chunk) <= 0.01, "{} {}", row.line(), chunk.line());
            assert_eq!((row.operations_failed, row.over_capacity_bit_s), (Some(0), Some(0.0)));
        }
        seen.push(row.method);
    }
    assert_eq!(seen, ["fifo", "deadline", "spq", "selective-repeat"]);
}

/// Credits of five collectors know nothing of the link before them.
#[test]
fn only_who_knows_the_link_that_collectors_share_drops_nothing_there() {
    for (method, links, carrier) in packets::several() {
        let cell = Cell { links, carrier: Some(carrier), ..cell(method, 0.87, 1) };
        let row = cell.row(&cell.run());
        let exceeds = links == Links::Collectors { count: 5, known: false };
        let dropped = row.packets_dropped.unwrap();
        assert_eq!(dropped > 0, exceeds, "{} {}", row.links, row.line());
        assert_eq!(row.packets_missing, Some(dropped), "{} {}", row.links, row.line());
    }
}

/// Frames of a tolerant event of a [`crowd`].
const CROWD_FRAMES: u64 = 4;

/// Returns four tolerant events at once, more than the link carries, and urgent ones meanwhile.
fn crowd() -> Vec<Event> {
    let frames = CROWD_FRAMES;
    let tolerant = (1..5).map(|device| Event { at_ns: 150_000_000, device, class: 1, frames });
    let urgent = [180_000_000, 230_000_000];
    let urgent = urgent.map(|at_ns| Event { at_ns, device: 0, class: 0, frames: 1 });
    tolerant.chain(urgent).collect()
}

/// Strict priority without a controller: the queue of the tolerant class overflows, that of the urgent one never
/// does, and its frames come as fast as their NIC sends them. Beside the time from the generation there is the time
/// from when transmission begins. What the bottleneck counts as dropped is what the ends miss, to the packet (S2.12); NAKs
/// are fewer: one for a gap, however long it is.
#[test]
fn s2_10_s2_13_strict_priority_drops_tolerant_packets_and_no_urgent_one() {
    let run = |(method, carrier): (Method, Carrier)| {
        let cell = Cell { carrier: Some(carrier), ..cell(method, 1.0, 1) };
        let pooled = cell.run_on(std::iter::once(crowd()));
        let found = pooled.packets.expect("level packet");
        assert_eq!(found.missing(), Some(found.dropped_in_all()));
        assert!(found.naks > 0 && found.naks < found.dropped_in_all() / 2, "{found:?}");
        assert!(found.resent >= found.dropped_in_all(), "{found:?}");
        (found.dropped, cell.row(&pooled))
    };
    let ([urgent, tolerant], row) = run(packets::strict_priority());
    assert!(tolerant > 1_000 && urgent == 0, "{}", row.line());
    assert_eq!(row.judged.urgent_on_time, 1.0, "{}", row.line());
    let sending_ms = row.judged.tolerant_sending_ms_p50.unwrap();
    assert!(sending_ms >= event_ms(), "{sending_ms} {}", row.line());
    let is_plain = |(method, _): &(Method, Carrier)| method.name == "plain";
    let plain = packets::methods().into_iter().find(is_plain).expect("one queue for all");
    let ([urgent, _], row) = run(plain);
    assert!(urgent > 0, "in one queue it loses some, and they are counted: {}", row.line());
}

/// Returns the time that a tolerant event takes at the rate of a NIC.
fn event_ms() -> f64 {
    (CROWD_FRAMES * FRAME_BYTES) as f64 * 8e3 / (LINK_BPS / 2) as f64
}

/// Who waits for a grant has a latency from the generation that is longer than the one from when transmission begins
/// (S2.13).
#[test]
fn what_an_event_waits_before_its_transmission_begins_is_in_its_latency_alone() {
    let cell = cell(ladder::shipped(LINK_BPS / 2), 1.0, 1);
    let row = cell.row(&cell.run_on(std::iter::once(crowd())));
    let [sending_ms, latency_ms] =
        [row.judged.tolerant_sending_ms_p50, row.judged.tolerant_ms_p50].map(Option::unwrap);
    assert!(sending_ms >= event_ms(), "{sending_ms} {}", row.line());
    assert!(latency_ms > sending_ms + event_ms() / 2.0, "two of four wait first: {}", row.line());
}

#[test]
fn a_link_that_carries_half_of_what_it_is_said_to_is_found_out_and_nothing_is_lost() {
    let ms = 1_000_000;
    let course = untold::Course {
        link_bps: 500_000_000,
        rtt_ns: ms / 2,
        chunk_bytes: 1 << 18,
        halved_ns: 500 * ms,
        back_ns: 1_500 * ms,
        end_ns: 1_600 * ms,
    };
    let found = untold::run(&course);
    let settled_ns = found.fits_ns(&course).expect("it is found out") - course.halved_ns;
    assert!(settled_ns <= 401 * ms, "two leases and a round trip: {settled_ns}");
    assert!(found.packets_dropped > 0 && found.lowered > 0);
    assert_eq!(found.frames_lost, 0);
    let used = found.used(course.halved_ns + settled_ns, course.back_ns, course.link_bps / 2);
    assert!(used > 0.8, "what it carries is used: {used}");
}
