//! Sessions that end in other ways than with Goodbye and its answer.
use super::bad::{Bad, header};
use super::world::{World, eventually};
use catchment::session::check::NUMBER_MAX;
use catchment::session::message::{Goodbye, Message, Revoke, StreamEnd};
use catchment::session::refusal::{Refusal, RefusalCode};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A source does not wait for releases: its blocks must not pile up at the collector.
#[test]
fn blocks_written_over_unreleased_ones_end_the_session() {
    let stuck = Arc::new(Mutex::new(()));
    let held = stuck.lock().unwrap();
    let wait = stuck.clone();
    let good = Arc::new(Mutex::new(0u64));
    let count = good.clone();
    let world = World::start(move |c| {
        c.workers(2).lease(Duration::from_secs(600)).on_frame(move |frame| {
            if frame.device() == "bad" {
                drop(wait.lock().unwrap_or_else(PoisonError::into_inner));
            } else {
                *count.lock().unwrap() += 1;
            }
        })
    });
    let mut ringed = Bad::new(&world).ringed("bad", 8, 0);
    let in_flight = |name: &str| {
        let devices = world.collector.metrics().snapshot().devices;
        devices.iter().find(|d| d.name == name).unwrap().blocks_in_flight
    };
    let mut number = 0;
    for generation in 1..=200 {
        for slot in 0..8 {
            ringed.commit(slot, generation, &header(number, 10));
            number += 1;
        }
        // The collector takes the blocks of a round before the next.
        let has_ended = || world.refused("bad_message") > 0;
        eventually("a round", || has_ended() || in_flight("bad") >= number);
        if has_ended() {
            break;
        }
    }
    let refusal = ringed.bad.refusal();
    assert!(refusal.reason.contains("unreleased"), "{refusal}");
    assert!((1..=1040).contains(&in_flight("bad")), "{} blocks held", in_flight("bad"));
    // Nobody else may have the device while its frames are under way.
    let mut other = Bad::new(&world);
    let refusal = other.welcome(&["bad"], 8).unwrap_err();
    assert_eq!(refusal.code.as_str(), "device_in_use", "{refusal}");
    drop(other);
    drop(held);
    world.outlives(ringed, "a stuck sink");
    eventually("no blocks in flight", || in_flight("bad") == 0);
    assert!(*good.lock().unwrap() > 0);
    world.finish_uncounted();
}

#[test]
fn a_silent_source_loses_its_device_after_the_lease() {
    let world = World::start(|c| c.lease(Duration::from_millis(1000)));
    let silent = Bad::new(&world).ringed("cam", 8, 0);
    silent.commit_silently(silent.epoch(), 0, 1, &header(0, 10));
    let mut other = Bad::new(&world);
    let welcome = other.welcome(&["cam"], 8).expect("the device is free after the lease");
    // What the silent one had committed was delivered before.
    assert_eq!(world.frames("cam").len(), 1);
    assert_eq!(welcome.streams[0].next_packet, Some(1));
    world.finish_after((silent, other), "a silent source");
}

#[test]
fn blocks_committed_before_the_connection_closed_are_delivered() {
    let world = World::start(|c| c);
    let ringed = Bad::new(&world).ringed("cam", 8, 0);
    for slot in 0..8 {
        ringed.payload(slot, &header(0, 10), slot as u8);
        ringed.commit_silently(ringed.epoch(), slot, 1, &header(slot.into(), 10));
    }
    drop(ringed);
    eventually("eight frames", || world.frames("cam").len() == 8);
    let wanted: Vec<_> = (0..8u8).map(|n| (u64::from(n), vec![n; 10])).collect();
    assert_eq!(world.frames("cam"), wanted);
    world.settle("a closed connection");
    world.finish();
}

/// A release says that the frame is with the sink. What waits for an earlier frame is not, so its
/// source must find it unreleased when the session has ended.
#[test]
fn what_was_not_delivered_when_a_session_ends_is_not_released() {
    let world = World::start(|c| c);
    let mut ringed = Bad::new(&world).ringed("cam", 8, 0);
    ringed.commit(0, 1, &header(0, 10));
    ringed.commit(1, 1, &header(5, 10));
    eventually("the first frame", || world.frames("cam").len() == 1);
    let refusal = Refusal::new(RefusalCode::ShuttingDown, "a test", "none");
    let epoch = ringed.welcome.epoch;
    let revoke = Revoke::new(epoch, refusal);
    ringed.bad.send(&Message::Revoke(revoke));
    let mut next = Bad::new(&world);
    next.welcome(&["cam"], 8).expect("the device is free");
    assert!(ringed.is_released(0, 1) && !ringed.is_released(1, 1));
    assert_eq!(world.frames("cam").len(), 1);
    world.finish_after((ringed, next), "an early block");
}

/// Puts pages in the place of these that nobody can have: they are behind the end of a file.
fn take_pages(at: u64, bytes: usize) {
    use rustix::mm::{MapFlags, ProtFlags};
    let file = rustix::fs::memfd_create("short", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
    // SAFETY: the pages of a ring that only this test and the collector under test know.
    unsafe { rustix::mm::mmap(at as *mut _, bytes, prot, flags, &file, 0) }.unwrap();
}

/// As a source does that punches a hole where this host has no other page for it: a SIGBUS at the collector.
#[test]
fn issue_13_a_ring_that_loses_a_page_ends_its_session_only() {
    let world = World::start(|c| c);
    let mut ringed = Bad::new(&world).ringed("cam", 8, 0);
    ringed.commit(0, 1, &header(0, 10));
    eventually("the first frame", || world.frames("cam").len() == 1);
    // The collector is this process, so the address of its ring is one here.
    take_pages(ringed.welcome.ring.addr, ringed.layout.blocks_offset());
    ringed.commit(1, 1, &header(1, 10));
    let refusal = ringed.bad.refusal();
    assert_eq!(refusal.code.as_str(), "no_resource", "{refusal}");
    assert!(refusal.reason.contains("SIGBUS"), "{refusal}");
    world.finish_after(ringed, "a lost page");
}

/// A source that goes on committing after its session has ended does not keep it alive.
#[test]
fn a_source_that_never_stops_committing_does_not_hold_its_session() {
    let world = World::start(|c| c.lease(Duration::from_millis(1000)));
    let ringed = Bad::new(&world).ringed("cam", 64, 0);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let ringed = std::thread::scope(|scope| {
        let stop = &stop;
        let committing = scope.spawn(move || {
            let (mut slot, mut generation, mut number) = (0, 1, 0);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                if generation == 1 || ringed.is_released(slot, generation - 1) {
                    ringed.commit(slot, generation, &header(number, 10));
                    number += 1;
                    slot = (slot + 1) % 64;
                    generation += u64::from(slot == 0);
                }
            }
            ringed
        });
        // No ping: the lease ends the session while blocks keep coming.
        let mut other = Bad::new(&world);
        let welcome = other.welcome(&["cam"], 8);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let welcome = welcome.expect("the device is free after the lease");
        let next = welcome.streams[0].next_packet.unwrap();
        let frames = world.frames("cam");
        assert_eq!(frames.len() as u64, next);
        assert!(frames.iter().map(|(n, _)| *n).eq(0..next), "in order, none twice");
        committing.join().unwrap()
    });
    world.finish_after(ringed, "endless blocks");
}

#[test]
fn a_goodbye_for_frames_that_never_came_is_not_acknowledged() {
    let world = World::start(|c| c.lease(Duration::from_millis(1000)));
    let mut ringed = Bad::new(&world).ringed("cam", 8, 0);
    let epoch = ringed.welcome.epoch;
    let streams = vec![StreamEnd { stream: 0, end_packet: NUMBER_MAX }];
    ringed.bad.send(&Message::Goodbye(Goodbye { epoch, streams }));
    let refusal = ringed.bad.refusal();
    assert_eq!(refusal.code.as_str(), "timeout", "{refusal}");
    world.finish_after(ringed, "a goodbye");
}
