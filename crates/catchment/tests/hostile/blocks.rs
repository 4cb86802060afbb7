//! What a source writes into its ring although no correct one does.
use super::bad::{Bad, Ringed, header};
use super::world::{World, eventually};
use catchment::session::check::NUMBER_MAX;
use catchment::session::collector_side::JUMP_MAX;
use catchment::session::message::Message;
use catchment_transfer::BlockHeader;
use catchment_transfer::header::{FLAG_CRC, FLAG_SEGMENTED, encode_trailer};
use catchment_transfer::protocol::commit_word;
use std::time::Duration;

/// Changes the length of the payload, and the room that the header says it has.
fn resize(header: &mut BlockHeader, bytes: u32, room_bytes: u32) {
    header.payload_bytes = bytes;
    header.frame_bytes = bytes.into();
    header.room_bytes = room_bytes;
}

/// What a source writes into its ring although no correct one does: the session ends, and says
/// what was wrong.
#[test]
fn blocks_that_no_source_writes_end_the_session_with_a_reason() {
    let world = World::start(|c| c.gap_limit(Duration::from_millis(1000)));
    type Change = fn(&mut BlockHeader);
    let cases: [(&str, Change, &str); 13] = [
        ("more payload than the slot", |h| resize(h, 5000, 5056), "5000 bytes of payload"),
        ("more payload than its room", |h| resize(h, 900, h.room_bytes), "900 bytes of payload"),
        ("outside of the frame", |h| h.frame_offset = 11, "outside of a frame"),
        (
            "an offset that overflows",
            |h| (h.frame_offset, h.frame_bytes) = (u64::MAX - 3, u64::MAX),
            "outside of a frame",
        ),
        ("stream 1 of one", |h| h.stream = 1, "stream 1"),
        ("the last stream number", |h| h.stream = u32::MAX, "stream 4294967295"),
        ("the last packet number", |h| h.packet_number = u64::MAX, "18446744073709551615"),
        ("the last but one", |h| h.packet_number = u64::MAX - 1, "18446744073709551614"),
        ("more skipped than there are", |h| (h.packet_number, h.skipped) = (8, 9), "skipped"),
        ("a frame of 2^60 bytes", |h| h.frame_bytes = 1 << 60, "1152921504606846976"),
        ("a checksum without its flag", |h| h.crc32c = 7, "checksum"),
        ("an unknown flag", |h| h.flags = 4, "reserved"),
        (
            "several WRITEs without a checksum",
            |h| h.flags = FLAG_SEGMENTED,
            "several WRITEs without a checksum",
        ),
    ];
    let ends_with = |case, attack: &dyn Fn(&Ringed), wanted| {
        let mut ringed = Bad::new(&world).ringed("bad", 8, 0);
        attack(&ringed);
        let refusal = ringed.refusal_while_alive();
        assert_eq!(refusal.code.as_str(), "bad_message", "{case}: {refusal}");
        assert!(refusal.reason.contains(wanted), "{case}: {refusal}");
        world.outlives(ringed, case);
        assert!(world.frames("bad").is_empty(), "{case}");
    };
    for (case, change, wanted) in cases {
        let mut wrong = header(0, 10);
        change(&mut wrong);
        ends_with(case, &|ringed| ringed.commit(0, 1, &wrong), wanted);
    }
    let leave_a_gap = |ringed: &Ringed| {
        for slot in 0..ringed.layout.blocks() {
            ringed.commit(slot, 1, &header(100 + u64::from(slot) * 1_000_000_007, 10));
        }
    };
    for _ in 0..8 {
        // What does not come may have been damaged beyond recognition: it is asked for again.
        let mut ringed = Bad::new(&world).ringed("bad", 8, 0);
        leave_a_gap(&ringed);
        let refusal = ringed.refusal_while_alive();
        assert_eq!(refusal.code.as_str(), "damaged", "{refusal}");
        world.outlives(ringed, "a gap");
    }
    ends_with("a gap that is never filled", &leave_a_gap, "packet 0 of device bad");
    assert_eq!(world.refused("bad_message"), cases.len() as u64 + 1);
    world.finish();
}

/// A frame that waits for a controller's leave is passed by newer ones: they wait for it, also for longer than a lease.
#[test]
fn frames_that_came_early_wait_for_one_that_its_source_may_not_send_yet() {
    let lease = Duration::from_millis(500);
    let world = World::start(|c| c.lease(lease));
    let mut ringed = Bad::new(&world).ringed("cam", 8, 0);
    for number in 1..4 {
        ringed.payload(number, &header(number.into(), 10), 0x5a);
        ringed.commit(number, 1, &header(number.into(), 10));
    }
    for _ in 0..12 {
        // Nothing may happen during this time.
        std::thread::sleep(lease / 4);
        ringed.assert_alive();
    }
    assert!(world.frames("cam").is_empty(), "the first one is not there");
    ringed.payload(0, &header(0, 10), 0x5a);
    ringed.commit(0, 1, &header(0, 10));
    eventually("all four", || world.frames("cam").len() == 4);
    let numbers: Vec<_> = world.frames("cam").into_iter().map(|(number, _)| number).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
    world.outlives(ringed, "a gap");
    world.finish();
}

/// What is simply not there: nothing is delivered, and the session goes on.
#[test]
fn blocks_that_are_not_valid_are_never_delivered() {
    let world = World::start(|c| c);
    type Attack = fn(&Ringed);
    let cases: [(&str, Attack); 6] = [
        ("another epoch", |r| r.commit_as(r.epoch() ^ 1, 0, 1, 1, &header(0, 10))),
        ("epoch 0", |r| r.commit_as(0, 0, 1, 1, &header(0, 10))),
        ("generation 0", |r| r.commit_as(r.epoch(), 0, 0, 1, &header(0, 10))),
        ("generation 2 of a fresh slot", |r| r.commit_as(r.epoch(), 0, 2, 1, &header(0, 10))),
        ("the last generation", |r| r.commit_as(r.epoch(), 0, u64::MAX, 1, &header(0, 10))),
        ("a commit word of another slot", |r| {
            // Never in slot 3 itself, where it would be taken.
            let words = header(0, 10).to_words();
            let commit = commit_word(r.epoch(), 3, 1, &words);
            r.write(r.layout.trailer_offset(4), &encode_trailer(&words, commit));
            r.write(r.layout.full_offset() + 4, &[1]);
            r.ring();
        }),
    ];
    for (i, (case, attack)) in cases.into_iter().enumerate() {
        let device = format!("bad{i}");
        let mut ringed = Bad::new(&world).ringed(&device, 8, 0);
        attack(&ringed);
        ringed.assert_alive();
        // Nothing may happen during this time.
        std::thread::sleep(Duration::from_millis(30));
        ringed.assert_alive();
        // A correct block comes through all the same.
        ringed.payload(6, &header(1, 10), 0x5a);
        ringed.commit(6, 1, &BlockHeader { skipped: 1, ..header(1, 10) });
        eventually(case, || !world.frames(&device).is_empty());
        assert_eq!(world.frames(&device), [(1, vec![0x5a; 10])], "{case}");
        world.outlives(ringed, case);
    }
    assert_eq!(world.collector.metrics().snapshot().totals.checksum_errors, 0);
    world.finish();
}

/// What is damaged is asked for again, unreleased, and lost when it is damaged every time.
#[test]
fn a_frame_with_a_wrong_checksum_is_asked_for_a_few_times_and_then_lost() {
    let world = World::start(|c| c);
    let wrong = BlockHeader { flags: FLAG_CRC, crc32c: 0xdead_beef, ..header(0, 10) };
    for _ in 0..8 {
        let mut ringed = Bad::new(&world).ringed("bad", 8, 0);
        ringed.commit(0, 1, &wrong);
        ringed.commit(1, 1, &header(1, 10));
        let refusal = ringed.bad.refusal();
        assert_eq!(refusal.code.as_str(), "damaged", "{refusal}");
        assert_eq!(refusal.retry_after_ms, Some(0), "{refusal}");
        assert!(refusal.reason.contains("packet 0 of device bad"), "{refusal}");
        let released = [0, 1].map(|slot| ringed.is_released(slot, 1));
        assert_eq!(released, [false; 2], "the source keeps both");
        world.outlives(ringed, "asked for again");
    }
    let mut ringed = Bad::new(&world).ringed("bad", 8, 0);
    ringed.commit(0, 1, &wrong);
    ringed.commit(1, 1, &header(1, 10));
    // So says a source that has lost a frame itself.
    ringed.commit(2, 1, &header(2, 0));
    ringed.commit(3, 1, &header(3, 10));
    eventually("the frames behind", || world.frames("bad").len() == 2);
    ringed.assert_alive();
    assert_eq!(world.frames("bad").iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1, 3]);
    let devices = world.collector.metrics().snapshot().devices;
    let bad = devices.iter().find(|device| device.name == "bad").unwrap().counters;
    assert_eq!((bad.frames_lost, bad.lost_damaged, bad.checksum_errors), (2, 2, 10));
    assert_eq!(bad.ledger().check("bad", "collector"), Ok(()));
    assert_eq!(bad.frames_numbered, 4);
    world.finish_after(ringed, "a lost frame");
}

#[test]
fn noise_over_the_whole_ring_does_no_harm() {
    let world = World::start(|c| c);
    let mut ringed = Bad::new(&world).ringed("bad", 64, 0);
    let mut state = 0x1234_5678_9abc_def0u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..200 {
        let bytes: Vec<u8> =
            (0..ringed.layout.total_bytes() / 8).flat_map(|_| next().to_le_bytes()).collect();
        ringed.write(0, &bytes);
        ringed.ring();
        if round % 50 == 0 {
            ringed.assert_alive();
        }
    }
    assert!(world.frames("bad").is_empty());
    ringed.payload(9, &header(0, 10), 7);
    ringed.commit(9, 1, &header(0, 10));
    eventually("a correct block after the noise", || world.frames("bad") == [(0, vec![7; 10])]);
    world.finish_after(ringed, "noise");
}

#[test]
fn numbers_that_go_back_are_discarded() {
    let world = World::start(|c| c);
    let ringed = Bad::new(&world).ringed("back", 8, 5);
    for (slot, number) in [(0, 5), (1, 4), (2, 5), (3, 0), (4, 6)] {
        ringed.commit(slot, 1, &header(number, 10));
    }
    eventually("two frames", || world.frames("back").len() == 2);
    let numbers: Vec<u64> = world.frames("back").iter().map(|(n, _)| *n).collect();
    assert_eq!(numbers, [5, 6]);
    let duplicates = || world.collector.metrics().snapshot().totals.frames_duplicate;
    eventually("three discarded", || duplicates() == 3);
    world.outlives(ringed, "backwards");

    let mut ringed = Bad::new(&world).ringed("end", 8, 0);
    ringed.commit(0, 1, &header(NUMBER_MAX, 10));
    let refusal = ringed.bad.refusal();
    assert!(refusal.reason.contains("numbers end"), "{refusal}");
    world.finish_after(ringed, "the end of numbers");
}

/// One who took the last numbers would end the device for all who come after.
#[test]
fn a_source_cannot_use_up_the_numbers_of_a_device() {
    let world = World::start(|c| c);
    for first in [JUMP_MAX + 1, NUMBER_MAX - 1] {
        let mut bad = Bad::new(&world);
        let welcome = bad.welcome(&["end"], 8).unwrap();
        assert_eq!(welcome.streams[0].next_packet, None);
        let connect = bad.connect(&welcome, first);
        bad.send(&Message::Connect(connect));
        let refusal = bad.refusal();
        assert_eq!(refusal.code.as_str(), "bad_resume", "{refusal}");
        assert!(refusal.reason.contains(&first.to_string()), "{refusal}");
        world.outlives(bad, "a jump");
    }
    let mut ringed = Bad::new(&world).ringed("end", 8, 0);
    ringed.commit(0, 1, &header(JUMP_MAX + 1, 10));
    let refusal = ringed.bad.refusal();
    assert!(refusal.reason.contains("too far"), "{refusal}");
    world.outlives(ringed, "a jump in the ring");
    let ringed = Bad::new(&world).ringed("end", 8, 0);
    ringed.commit(0, 1, &header(0, 10));
    eventually("the first frame", || world.frames("end").len() == 1);
    world.finish_after(ringed, "a source without jumps");
}

/// The largest gaps there can be are counted, and take no memory.
#[test]
fn gaps_of_any_size_do_not_upset_the_counters() {
    // It sends no pings, and takes its time.
    let world = World::start(|c| c.lease(Duration::from_secs(600)));
    let names: Vec<String> = (0..2100).map(|i| format!("gap{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for first in [0, JUMP_MAX] {
        let mut bad = Bad::new(&world);
        let welcome = bad.welcome(&names, 8).unwrap();
        let connect = bad.connect(&welcome, first);
        bad.send(&Message::Connect(connect));
        assert!(matches!(bad.recv(), Some(Message::Ready(_))));
        let ringed = bad.into_ringed(welcome);
        // Each device gets one frame, so that the collector knows where it is.
        for (i, _) in names.iter().enumerate() {
            let (slot, generation) = (i as u32 % 8, i as u64 / 8 + 1);
            let frame = BlockHeader { stream: i as u32, ..header(first, 10) };
            ringed.commit(slot, generation, &frame);
            eventually("the release", || ringed.is_released(slot, generation));
        }
        world.outlives(ringed, "a gap");
    }
    let snapshot = world.collector.metrics().snapshot();
    assert_eq!(snapshot.totals.frames_lost, 2100 * (JUMP_MAX - 1));
    world.finish();
}

#[test]
fn frames_that_are_never_complete_are_not_delivered_and_hold_nothing() {
    let world = World::start(|c| c);
    for round in 0..10u64 {
        let ringed = Bad::new(&world).ringed("bad", 8, round);
        let part = |offset| BlockHeader {
            frame_bytes: 1 << 29,
            frame_offset: offset,
            ..header(round, 500)
        };
        ringed.commit(0, 1, &part(0));
        ringed.commit(1, 1, &part(500));
        ringed.commit(2, 1, &part(9000));
        // The collector may take the blocks before the source is gone, or after.
        std::thread::sleep(Duration::from_millis(5));
        drop(ringed);
    }
    world.settle("partial frames");
    assert!(world.frames("bad").is_empty());
    world.finish();
}
