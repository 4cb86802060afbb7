//! A collector that is attacked while a good source streams. Every case asserts that the attacker
//! is refused with a reason or does no harm, that the good stream arrives whole, and that nothing
//! of the attacker stays.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod hostile_common;

use catchment::session::check::NUMBER_MAX;
use catchment::session::message::{Connect, Goodbye, Message, Revoke, StreamEnd, StreamStart};
use catchment::session::refusal::{Refusal, RefusalCode};
use catchment_transfer::BlockHeader;
use catchment_transfer::header::{FLAG_CRC, FLAG_CUT};
use hostile_common::{Bad, Ringed, World, eventually, framed, header, json};
use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[test]
fn bytes_that_are_no_session_are_refused_with_a_reason() {
    let world = World::start(|c| c);
    let noise: Vec<u8> = (0..20_000u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let mut short = framed(r#"{"type":"hello"}"#);
    short.truncate(10);
    for (case, bytes, wanted) in [
        ("noise", noise, "bad_message"),
        (
            "HTTP",
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
            "bad_message",
        ),
        ("4 GiB", [0xff; 64].to_vec(), "bad_message"),
        ("no JSON", framed("not json at all"), "bad_message"),
        (
            "a message out of turn",
            framed(r#"{"type":"ping","epoch":1,"seq":0}"#),
            "unexpected_message",
        ),
        (
            "invalid UTF-8",
            b"\0\0\0\x04\xff\xfe\xfd\xfc".to_vec(),
            "bad_message",
        ),
    ] {
        let answer = world.raw(&bytes);
        assert!(answer.contains(wanted), "{case}: {answer}");
        world.settle(case);
    }
    // Cut in the middle, then closed: there is nobody to tell.
    let mut stream = TcpStream::connect(world.at()).unwrap();
    stream.write_all(&short).unwrap();
    drop(stream);
    world.settle("truncated message");
    assert!(world.refused("bad_message") >= 5);
    world.finish();
}

#[test]
fn hellos_that_no_source_says_are_refused_with_a_reason() {
    let world = World::start(|c| c);
    let bad = Bad::new(&world);
    let good = json(&Message::Hello(bad.hello(&["bad"], 8)));
    drop(bad);
    let two = good.replace(
        r#"{"name":"bad""#,
        r#"{"name":"twin","format":null,"policy":"block","next_packet":0},{"name":"twin""#,
    );
    let many = {
        let one = r#"{"name":"dNNNNN","format":null,"policy":"block","next_packet":0}"#;
        let all: Vec<_> = (0..65_537)
            .map(|i| one.replace("NNNNN", &i.to_string()))
            .collect();
        let (head, tail) = good.split_once(r#""devices":["#).unwrap();
        let tail = tail.split_once(']').unwrap().1;
        format!(r#"{head}"devices":[{}]{tail}"#, all.join(","))
    };
    for (case, text, wanted) in [
        (
            "version",
            good.replace(
                r#""protocol":{"min":2,"max":2}"#,
                r#""protocol":{"min":7,"max":9}"#,
            ),
            "protocol_version",
        ),
        (
            "a path as a name",
            good.replace(r#""name":"bad""#, r#""name":"../../etc""#),
            "bad_message",
        ),
        (
            "a hidden name",
            good.replace(r#""name":"bad""#, r#""name":".ssh""#),
            "bad_message",
        ),
        (
            "an empty name",
            good.replace(r#""name":"bad""#, r#""name":"""#),
            "bad_message",
        ),
        ("a name twice", two, "duplicate_device"),
        ("65,537 devices", many, "bad_message"),
        (
            "a policy that does not exist",
            good.replace(r#""policy":"block""#, r#""policy":"explode""#),
            "bad_message",
        ),
        (
            "a field too many",
            good.replacen('{', r#"{"admin":true,"#, 1),
            "bad_message",
        ),
        (
            "a ring without blocks",
            good.replace(r#""blocks":8"#, r#""blocks":0"#),
            "bad_message",
        ),
        (
            "a ring of 2^40 bytes",
            good.replace(r#""block_bytes":1024"#, r#""block_bytes":1099511627776"#),
            "bad_message",
        ),
        (
            "another host",
            good.replace(r#""boot_id":""#, r#""boot_id":"x"#),
            "no_path",
        ),
        (
            "a path MTU that does not exist",
            good.replace(
                r#""device":null"#,
                r#""device":null,"net":{"udp_port":4791,"path_mtu":1500,"extensions":0}"#,
            ),
            "bad_message",
        ),
        (
            "escape sequences in a reason",
            good.replace(
                r#""missing":[]"#,
                r#""missing":[{"provider":"roce","reason":"\u001b[2J"}]"#,
            ),
            "bad_message",
        ),
        (
            "escape sequences",
            good.replace("bad 1.0", "\\u001b[2J"),
            "bad_message",
        ),
    ] {
        assert_ne!(text, good, "{case}");
        let answer = world.raw(&framed(&text));
        assert!(
            answer.contains(&format!(r#""code":"{wanted}""#)),
            "{case}: {answer}"
        );
        assert!(!answer.contains('\u{1b}'), "{case}");
        world.settle(case);
    }
    assert!(world.frames("bad").is_empty());
    world.finish();
}

#[test]
fn connects_that_contradict_the_welcome_are_refused_with_a_reason() {
    let world = World::start(|c| c);
    type Change = fn(&mut Connect);
    let cases: [(&str, Change, &str); 6] = [
        ("wrong epoch", |c| c.epoch ^= 1, "wrong_epoch"),
        (
            "unknown stream",
            |c| c.streams[0].stream = 77,
            "unknown_stream",
        ),
        ("no streams", |c| c.streams.clear(), "unknown_stream"),
        (
            "a stream twice",
            |c| c.streams.push(c.streams[0]),
            "unknown_stream",
        ),
        (
            "nobody's queue pair",
            |c| c.endpoint.qpn ^= 0x5555,
            "no_path",
        ),
        (
            "another address than the Hello's",
            |c| c.endpoint.gid.0[3] ^= 0xff,
            "bad_message",
        ),
    ];
    for (case, change, wanted) in cases {
        let mut bad = Bad::new(&world);
        let welcome = bad.welcome(&["bad"], 8).unwrap();
        let mut connect = bad.connect(&welcome, 0);
        change(&mut connect);
        bad.send(&Message::Connect(connect));
        // A queue pair that does not exist is noticed where the provider looks for it.
        let refusal = match bad.recv() {
            Some(Message::Ready(_)) if wanted == "no_path" => None,
            Some(Message::Refused(refusal)) => Some(refusal),
            other => panic!("{case}: {other:?}"),
        };
        if let Some(refusal) = refusal {
            assert_eq!(refusal.code.as_str(), wanted, "{case}: {refusal}");
            assert!(!refusal.reason.is_empty() && !refusal.remedy.is_empty());
        }
        drop(bad);
        world.settle(case);
    }
    let mut bad = Bad::new(&world);
    let mut hello = bad.hello(&["bad"], 8);
    hello.providers[0].gid.0[3] ^= 0xff;
    let nobody = hello.providers[0].gid;
    let welcome = bad.introduce(hello).unwrap();
    let mut connect = bad.connect(&welcome, 0);
    connect.endpoint.gid = nobody;
    bad.send(&Message::Connect(connect));
    match bad.recv() {
        Some(Message::Refused(refusal)) => assert_eq!(refusal.code.as_str(), "no_path"),
        other => panic!("nobody's address: {other:?}"),
    }
    drop(bad);
    world.settle("nobody's address");
    // Where the collector has frames up to 2, nothing below may begin again.
    let ringed = Bad::new(&world).ringed("again", 8, 0);
    for (slot, number) in [(0, 0), (1, 1), (2, 2)] {
        ringed.commit(slot, 1, &header(number, 10));
    }
    eventually("three frames", || world.frames("again").len() == 3);
    drop(ringed);
    world.settle("the first session");
    let mut bad = Bad::new(&world);
    let welcome = bad.welcome(&["again"], 8).unwrap();
    assert_eq!(welcome.streams[0].next_packet, Some(3));
    let back = StreamStart {
        stream: 0,
        first_packet: 2,
    };
    let connect = Connect {
        streams: vec![back],
        ..bad.connect(&welcome, 3)
    };
    bad.send(&Message::Connect(connect));
    let refusal = bad.refusal();
    assert_eq!(refusal.code.as_str(), "bad_resume", "{refusal}");
    drop(bad);
    world.settle("first_packet below next_packet");
    assert!(world.refused("unknown_stream") >= 3 && world.refused("bad_resume") == 1);
    world.finish();
}

#[test]
fn a_thousand_connections_that_stop_at_any_point_stop_nobody() {
    let world = World::start(|c| c);
    let half = framed(r#"{"type":"hello","protocol":"#);
    let mut idle: Vec<_> = (0..1000)
        .map(|i| {
            let mut stream = TcpStream::connect(world.at()).unwrap();
            if i % 2 == 0 {
                let _ = stream.write_all(&half[..half.len() / 2]);
            }
            stream
        })
        .collect();
    // Others go further: they get a ring, and never connect to it.
    let mut rings: Vec<_> = (0..4).map(|_| Bad::new(&world)).collect();
    let mut welcomed = 0;
    for (i, bad) in rings.iter_mut().enumerate() {
        let hello = bad.hello(&[&format!("idle{i}")], 64);
        bad.send(&Message::Hello(hello));
        welcomed += u32::from(matches!(bad.recv(), Some(Message::Welcome(_))));
    }
    let before = Instant::now();
    // A newcomer gets in meanwhile.
    let ringed = loop {
        assert!(
            before.elapsed() < hostile_common::PATIENCE,
            "nobody gets in"
        );
        let mut bad = Bad::new(&world);
        if let Some(Message::Welcome(_)) = {
            let hello = bad.hello(&["late"], 8);
            bad.send(&Message::Hello(hello));
            bad.recv()
        } {
            break bad;
        }
        // Refused as busy: try again, as a source does.
        std::thread::sleep(Duration::from_millis(50));
    };
    println!(
        "{welcomed} of 4 had a ring; a newcomer got in after {:?}",
        before.elapsed()
    );
    drop(ringed);
    drop(rings);
    idle.clear();
    world.settle("a thousand connections");
    world.finish();
}

type Attack = fn(&Ringed);

/// What a source writes into its ring although no correct one does: the session ends, and says
/// what was wrong.
#[test]
fn blocks_that_no_source_writes_end_the_session_with_a_reason() {
    let world = World::start(|c| c.lease(Duration::from_millis(1000)));
    let cases: [(&str, Attack, &str); 14] = [
        (
            "more payload than the slot",
            |r| {
                r.commit(
                    0,
                    1,
                    &BlockHeader {
                        payload_bytes: 5000,
                        frame_bytes: 5000,
                        room_bytes: 5056,
                        ..header(0, 10)
                    },
                );
            },
            "5000 bytes of payload",
        ),
        (
            "more payload than its room",
            |r| {
                r.commit(
                    0,
                    1,
                    &BlockHeader {
                        payload_bytes: 900,
                        frame_bytes: 900,
                        ..header(0, 10)
                    },
                );
            },
            "900 bytes of payload",
        ),
        (
            "outside of the frame",
            |r| {
                r.commit(
                    0,
                    1,
                    &BlockHeader {
                        frame_offset: 11,
                        ..header(0, 10)
                    },
                );
            },
            "outside of a frame",
        ),
        (
            "an offset that overflows",
            |r| {
                r.commit(
                    0,
                    1,
                    &BlockHeader {
                        frame_offset: u64::MAX - 3,
                        frame_bytes: u64::MAX,
                        ..header(0, 10)
                    },
                );
            },
            "outside of a frame",
        ),
        (
            "stream 1 of one",
            |r| {
                r.commit(
                    0,
                    1,
                    &BlockHeader {
                        stream: 1,
                        ..header(0, 10)
                    },
                )
            },
            "stream 1",
        ),
        (
            "the last stream number",
            |r| {
                r.commit(
                    0,
                    1,
                    &BlockHeader {
                        stream: u32::MAX,
                        ..header(0, 10)
                    },
                )
            },
            "stream 4294967295",
        ),
        (
            "the last packet number",
            |r| r.commit(0, 1, &header(u64::MAX, 10)),
            "18446744073709551615",
        ),
        (
            "the last but one",
            |r| r.commit(0, 1, &header(u64::MAX - 1, 10)),
            "18446744073709551614",
        ),
        (
            "more skipped than there are",
            |r| {
                r.commit(
                    0,
                    1,
                    &BlockHeader {
                        skipped: 9,
                        ..header(8, 10)
                    },
                )
            },
            "skipped",
        ),
        (
            "a frame of 2^60 bytes",
            |r| {
                r.commit(
                    0,
                    1,
                    &BlockHeader {
                        frame_bytes: 1 << 60,
                        ..header(0, 10)
                    },
                );
            },
            "1152921504606846976",
        ),
        (
            "a checksum without its flag",
            |r| {
                r.commit(
                    0,
                    1,
                    &BlockHeader {
                        crc32c: 7,
                        ..header(0, 10)
                    },
                )
            },
            "checksum",
        ),
        (
            "an unknown flag",
            |r| {
                r.commit(
                    0,
                    1,
                    &BlockHeader {
                        flags: 4,
                        ..header(0, 10)
                    },
                )
            },
            "reserved",
        ),
        (
            "several WRITEs without a checksum",
            |r| {
                r.commit(
                    0,
                    1,
                    &BlockHeader {
                        flags: FLAG_CUT,
                        ..header(0, 10)
                    },
                )
            },
            "several WRITEs without a checksum",
        ),
        (
            "a gap that is never filled",
            |r| {
                for slot in 0..r.layout.blocks() {
                    r.commit(slot, 1, &header(100 + u64::from(slot) * 1_000_000_007, 10));
                }
            },
            "packet 0 of device bad",
        ),
    ];
    for (case, attack, wanted) in cases {
        let mut ringed = Bad::new(&world).ringed("bad", 8, 0);
        attack(&ringed);
        let refusal = ringed.refusal_while_alive();
        assert_eq!(refusal.code.as_str(), "bad_message", "{case}: {refusal}");
        assert!(refusal.reason.contains(wanted), "{case}: {refusal}");
        drop(ringed);
        world.settle(case);
        assert!(world.frames("bad").is_empty(), "{case}");
    }
    assert_eq!(world.refused("bad_message"), cases.len() as u64);
    world.finish();
}

/// What is simply not there: nothing is delivered, and the session goes on.
#[test]
fn blocks_that_are_not_valid_are_never_delivered() {
    let world = World::start(|c| c);
    let cases: [(&str, Attack); 7] = [
        ("another epoch", |r| {
            r.commit_as(r.epoch() ^ 1, 0, 1, 1, &header(0, 10))
        }),
        ("epoch 0", |r| r.commit_as(0, 0, 1, 1, &header(0, 10))),
        ("generation 0", |r| {
            r.commit_as(r.epoch(), 0, 0, 1, &header(0, 10))
        }),
        ("generation 2 of a fresh slot", |r| {
            r.commit_as(r.epoch(), 0, 2, 1, &header(0, 10))
        }),
        ("the last generation", |r| {
            r.commit_as(r.epoch(), 0, u64::MAX, 1, &header(0, 10))
        }),
        ("a commit word of another slot", |r| {
            r.commit_silently(r.epoch(), 3, 1, &header(0, 10));
            let from = r.layout.trailer_offset(3);
            let mut trailer = [0; 64];
            r.read(from, &mut trailer);
            r.write(r.layout.trailer_offset(4), &trailer);
            r.write(from, &[0; 64]);
            r.write(r.layout.full_offset() + 4, &[1]);
            r.ring();
        }),
        ("a wrong checksum", |r| {
            let wrong = BlockHeader {
                flags: FLAG_CRC,
                crc32c: 0xdead_beef,
                ..header(0, 10)
            };
            r.commit(0, 1, &wrong);
        }),
    ];
    for (i, (case, attack)) in cases.into_iter().enumerate() {
        let device = format!("bad{i}");
        let mut ringed = Bad::new(&world).ringed(&device, 8, 0);
        attack(&ringed);
        ringed.assert_alive();
        // Nothing shall happen in this time.
        std::thread::sleep(Duration::from_millis(30));
        ringed.assert_alive();
        // A correct block comes through all the same.
        ringed.payload(6, &header(1, 10), 0x5a);
        ringed.commit(
            6,
            1,
            &BlockHeader {
                skipped: 1,
                ..header(1, 10)
            },
        );
        eventually(case, || !world.frames(&device).is_empty());
        assert_eq!(world.frames(&device), [(1, vec![0x5a; 10])], "{case}");
        drop(ringed);
        world.settle(case);
    }
    assert_eq!(
        world
            .collector()
            .metrics()
            .snapshot()
            .totals
            .checksum_errors,
        1
    );
    world.finish();
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
        let bytes: Vec<u8> = (0..ringed.layout.total_bytes() / 8)
            .flat_map(|_| next().to_le_bytes())
            .collect();
        ringed.write(0, &bytes);
        ringed.ring();
        if round % 50 == 0 {
            ringed.assert_alive();
        }
    }
    assert!(world.frames("bad").is_empty());
    ringed.payload(9, &header(0, 10), 7);
    ringed.commit(9, 1, &header(0, 10));
    eventually("a correct block after the noise", || {
        world.frames("bad") == [(0, vec![7; 10])]
    });
    drop(ringed);
    world.settle("noise");
    world.finish();
}

#[test]
fn numbers_that_go_back_are_discarded_and_numbers_end_before_they_overflow() {
    let world = World::start(|c| c);
    let ringed = Bad::new(&world).ringed("back", 8, 5);
    for (slot, number) in [(0, 5), (1, 4), (2, 5), (3, 0), (4, 6)] {
        ringed.commit(slot, 1, &header(number, 10));
    }
    eventually("two frames", || world.frames("back").len() == 2);
    let numbers: Vec<u64> = world.frames("back").iter().map(|(n, _)| *n).collect();
    assert_eq!(numbers, [5, 6]);
    let duplicates = || {
        world
            .collector()
            .metrics()
            .snapshot()
            .totals
            .frames_duplicate
    };
    eventually("three discarded", || duplicates() == 3);
    drop(ringed);
    world.settle("backwards");

    let last = NUMBER_MAX - 1;
    let mut ringed = Bad::new(&world).ringed("end", 8, last);
    ringed.commit(0, 1, &header(last, 10));
    eventually("the last frame there can be", || {
        world.frames("end").len() == 1
    });
    ringed.commit(1, 1, &header(last + 1, 10));
    let refusal = ringed.bad.refusal();
    assert!(refusal.reason.contains("numbers end"), "{refusal}");
    drop(ringed);
    world.settle("the end of numbers");
    // The collector can still say where that device is.
    let mut bad = Bad::new(&world);
    let welcome = bad.welcome(&["end"], 8).unwrap();
    assert_eq!(welcome.streams[0].next_packet, Some(NUMBER_MAX));
    drop(bad);
    world.settle("asking again");
    world.finish();
}

/// Sums of what peers say must not overflow, at the metrics page least of all.
#[test]
fn gaps_of_any_size_do_not_upset_the_counters() {
    // It sends no pings, and takes its time.
    let world = World::start(|c| c.lease(Duration::from_secs(600)));
    let names: Vec<String> = (0..2100).map(|i| format!("gap{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for first in [0, NUMBER_MAX - 2] {
        let mut bad = Bad::new(&world);
        let welcome = bad.welcome(&names, 8).unwrap();
        let connect = bad.connect(&welcome, first);
        bad.send(&Message::Connect(connect));
        assert!(matches!(bad.recv(), Some(Message::Ready(_))));
        let ringed = bad.into_ringed(welcome);
        // Each device gets one frame, so that the collector knows where it is.
        for (i, _) in names.iter().enumerate() {
            let (slot, generation) = (i as u32 % 8, i as u64 / 8 + 1);
            let frame = BlockHeader {
                stream: i as u32,
                ..header(first, 10)
            };
            ringed.commit(slot, generation, &frame);
            eventually("the release", || ringed.is_released(slot, generation));
        }
        drop(ringed);
        world.settle("a gap");
    }
    let snapshot = world.collector().metrics().snapshot();
    assert_eq!(
        snapshot.totals.frames_lost,
        u64::MAX,
        "2,100 times 2^53 is more"
    );
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

/// A source does not wait for releases: its blocks must not pile up at the collector.
#[test]
fn blocks_written_over_unreleased_ones_end_the_session() {
    let stuck = Arc::new(Mutex::new(()));
    let held = stuck.lock().unwrap();
    let wait = stuck.clone();
    let good = Arc::new(Mutex::new(0u64));
    let count = good.clone();
    let world = World::start(move |c| {
        c.workers(2)
            .lease(Duration::from_secs(600))
            .on_frame(move |frame| {
                if frame.device() == "bad" {
                    drop(wait.lock().unwrap_or_else(PoisonError::into_inner));
                } else {
                    *count.lock().unwrap() += 1;
                }
            })
    });
    let mut ringed = Bad::new(&world).ringed("bad", 8, 0);
    let mut number = 0;
    for generation in 1..=200 {
        for slot in 0..8 {
            ringed.commit(slot, generation, &header(number, 10));
            number += 1;
        }
        // Lets the collector take the blocks of this round before the next, also on a machine that
        // has others to serve: one that saw none of the rounds would have nothing to complain of.
        std::thread::sleep(Duration::from_millis(2));
    }
    let refusal = ringed.bad.refusal();
    assert!(refusal.reason.contains("unreleased"), "{refusal}");
    let in_flight = |name: &str| {
        let devices = world.collector().metrics().snapshot().devices;
        devices
            .iter()
            .find(|d| d.name == name)
            .unwrap()
            .blocks_in_flight
    };
    assert!(
        (1..=1040).contains(&in_flight("bad")),
        "{} blocks held",
        in_flight("bad")
    );
    // Nobody else may have the device while its frames are under way.
    let mut other = Bad::new(&world);
    let refusal = other.welcome(&["bad"], 8).unwrap_err();
    assert_eq!(refusal.code.as_str(), "device_in_use", "{refusal}");
    drop(other);
    drop(held);
    drop(ringed);
    world.settle("a stuck sink");
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
    let welcome = other
        .welcome(&["cam"], 8)
        .expect("the device is free after the lease");
    // What the silent one had committed was delivered before.
    assert_eq!(world.frames("cam").len(), 1);
    assert_eq!(welcome.streams[0].next_packet, Some(1));
    drop((silent, other));
    world.settle("a silent source");
    world.finish();
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
    drop((ringed, next));
    world.settle("an early block");
    world.finish();
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
        assert!(
            frames.iter().map(|(n, _)| *n).eq(0..next),
            "in order, none twice"
        );
        committing.join().unwrap()
    });
    drop(ringed);
    world.settle("endless blocks");
    world.finish();
}

#[test]
fn a_goodbye_for_frames_that_never_came_is_not_acknowledged() {
    let world = World::start(|c| c.lease(Duration::from_millis(1000)));
    let mut ringed = Bad::new(&world).ringed("cam", 8, 0);
    let epoch = ringed.welcome.epoch;
    let streams = vec![StreamEnd {
        stream: 0,
        end_packet: NUMBER_MAX,
    }];
    ringed
        .bad
        .send(&Message::Goodbye(Goodbye { epoch, streams }));
    let refusal = ringed.bad.refusal();
    assert_eq!(refusal.code.as_str(), "timeout", "{refusal}");
    drop(ringed);
    world.settle("a goodbye");
    world.finish();
}

#[test]
fn memory_for_rings_is_bounded_over_all_sources() {
    let world = World::start(|c| c.ring_bytes_total(24 << 20));
    let mut first = Bad::new(&world);
    let mut hello = first.hello(&["a"], 1);
    hello.wish.block_bytes = 12 << 20;
    first.send(&Message::Hello(hello.clone()));
    assert!(matches!(first.recv(), Some(Message::Welcome(_))));
    let mut second = Bad::new(&world);
    hello.devices[0].name = "b".parse().unwrap();
    hello.instance = second.instance;
    second.send(&Message::Hello(hello));
    let refusal = second.refusal();
    assert_eq!(refusal.code.as_str(), "no_resource", "{refusal}");
    assert!(
        refusal.retry_after_ms.is_some() && refusal.reason.contains("25165824"),
        "{refusal}"
    );
    drop((first, second));
    world.settle("large rings");
    world.finish();
}
