//! Messages and connections that no source makes, up to the point where there is a ring.
use super::bad::{Bad, framed, header, json};
use super::world::{PATIENCE, World, eventually};
use catchment::session::message::{Connect, Message, StreamStart};
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[test]
fn bytes_that_are_no_session_are_refused_with_a_reason() {
    let world = World::start(|c| c);
    let noise: Vec<u8> =
        (0..20_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut short = framed(r#"{"type":"hello"}"#);
    short.truncate(10);
    for (case, bytes, wanted) in [
        ("noise", noise, "bad_message"),
        ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), "bad_message"),
        ("4 GiB", [0xff; 64].to_vec(), "bad_message"),
        ("no JSON", framed("not json at all"), "bad_message"),
        (
            "a message out of turn",
            framed(r#"{"type":"ping","epoch":1,"seq":0}"#),
            "unexpected_message",
        ),
        ("invalid UTF-8", b"\0\0\0\x04\xff\xfe\xfd\xfc".to_vec(), "bad_message"),
    ] {
        let answer = world.raw(&bytes);
        assert!(answer.contains(wanted), "{case}: {answer}");
        world.settle(case);
    }
    // Cut in the middle, then closed: there is nobody to tell.
    let mut stream = TcpStream::connect(world.at()).unwrap();
    stream.write_all(&short).unwrap();
    world.outlives(stream, "truncated message");
    assert!(world.refused("bad_message") >= 5);
    world.finish();
}

/// Cases: what to replace in a correct Hello, by what, and the code of the refusal.
const REPLACED: &str = r#"
version | "protocol":{"min":3,"max":3} | "protocol":{"min":7,"max":9} | protocol_version
a path as a name | "name":"bad" | "name":"../../etc" | bad_message
a hidden name | "name":"bad" | "name":".ssh" | bad_message
an empty name | "name":"bad" | "name":"" | bad_message
a policy that does not exist | "policy":"block" | "policy":"explode" | bad_message
a field too many | { | {"admin":true, | bad_message
a ring without blocks | "blocks":8 | "blocks":0 | bad_message
a ring of 2^40 bytes | "block_bytes":1024 | "block_bytes":1099511627776 | bad_message
another host | "boot_id":" | "boot_id":"x | no_path
a path MTU that does not exist | "device":null | "device":null,"net":{"udp_port":4791,"path_mtu":1500,"extensions":0} | bad_message
escape sequences in a reason | "missing":[] | "missing":[{"provider":"roce","reason":"\u001b[2J"}] | bad_message
escape sequences | bad 1.0 | \u001b[2J | bad_message
"#;

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
        let all: Vec<_> = (0..65_537).map(|i| one.replace("NNNNN", &i.to_string())).collect();
        let (head, tail) = good.split_once(r#""devices":["#).unwrap();
        let tail = tail.split_once(']').unwrap().1;
        format!(r#"{head}"devices":[{}]{tail}"#, all.join(","))
    };
    let replaced = REPLACED.trim().lines().map(|row| {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [case, from, to, wanted] = cells[..] else {
            panic!("four cells: {row}");
        };
        (case, good.replacen(from, to, 1), wanted)
    });
    let made = [("a name twice", two, "duplicate_device"), ("65,537 devices", many, "bad_message")];
    for (case, text, wanted) in replaced.chain(made) {
        assert_ne!(text, good, "{case}");
        let answer = world.raw(&framed(&text));
        assert!(answer.contains(&format!(r#""code":"{wanted}""#)), "{case}: {answer}");
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
        ("unknown stream", |c| c.streams[0].stream = 77, "unknown_stream"),
        ("no streams", |c| c.streams.clear(), "unknown_stream"),
        ("a stream twice", |c| c.streams.push(c.streams[0]), "unknown_stream"),
        ("nobody's queue pair", |c| c.endpoint.qpn ^= 0x5555, "no_path"),
        ("another address than the Hello's", |c| c.endpoint.gid.0[3] ^= 0xff, "bad_message"),
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
        world.outlives(bad, case);
    }
    let mut bad = Bad::new(&world);
    let mut hello = bad.hello(&["bad"], 8);
    hello.providers[0].gid.0[3] ^= 0xff;
    let nobody = hello.providers[0].gid;
    let welcome = bad.introduce(hello).unwrap();
    let mut connect = bad.connect(&welcome, 0);
    connect.endpoint.gid = nobody;
    bad.send(&Message::Connect(connect));
    let answer = bad.recv();
    let Some(Message::Refused(refusal)) = answer else { panic!("nobody's address: {answer:?}") };
    assert_eq!(refusal.code.as_str(), "no_path");
    world.outlives(bad, "nobody's address");
    // Where the collector has frames up to 2, nothing below may begin again.
    let ringed = Bad::new(&world).ringed("again", 8, 0);
    for (slot, number) in [(0, 0), (1, 1), (2, 2)] {
        ringed.commit(slot, 1, &header(number, 10));
    }
    eventually("three frames", || world.frames("again").len() == 3);
    world.outlives(ringed, "the first session");
    let mut bad = Bad::new(&world);
    let welcome = bad.welcome(&["again"], 8).unwrap();
    assert_eq!(welcome.streams[0].next_packet, Some(3));
    let back = StreamStart { stream: 0, first_packet: 2 };
    let connect = Connect { streams: vec![back], ..bad.connect(&welcome, 3) };
    bad.send(&Message::Connect(connect));
    let refusal = bad.refusal();
    assert_eq!(refusal.code.as_str(), "bad_resume", "{refusal}");
    world.outlives(bad, "first_packet below next_packet");
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
        welcomed += u32::from(bad.welcome(&[&format!("idle{i}")], 64).is_ok());
    }
    let before = Instant::now();
    // A newcomer gets in meanwhile.
    let ringed = loop {
        assert!(before.elapsed() < PATIENCE, "nobody gets in");
        let mut bad = Bad::new(&world);
        if bad.welcome(&["late"], 8).is_ok() {
            break bad;
        }
        // Refused as busy: try again, as a source does.
        std::thread::sleep(Duration::from_millis(50));
    };
    println!("{welcomed} of 4 had a ring; a newcomer got in after {:?}", before.elapsed());
    drop(ringed);
    drop(rings);
    idle.clear();
    world.settle("a thousand connections");
    world.finish();
}

#[test]
fn memory_for_rings_is_bounded_over_all_sources() {
    let world = World::start(|c| c.ring_bytes_total(24 << 20));
    let mut first = Bad::new(&world);
    let mut hello = first.hello(&["a"], 1);
    hello.wish.block_bytes = 12 << 20;
    first.introduce(hello.clone()).unwrap();
    let mut second = Bad::new(&world);
    hello.devices[0].name = "b".parse().unwrap();
    hello.instance = second.identity.instance();
    let refusal = second.introduce(hello).unwrap_err();
    assert_eq!(refusal.code.as_str(), "no_resource", "{refusal}");
    assert!(refusal.retry_after_ms.is_some() && refusal.reason.contains("25165824"), "{refusal}");
    world.finish_after((first, second), "large rings");
}
