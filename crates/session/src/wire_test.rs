use super::*;
use crate::samples;
use proptest::prelude::*;
use std::path::Path;

fn framed(json: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(json.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend_from_slice(json);
    bytes
}

/// Feeds `bytes` in pieces that end at `cuts` and returns all messages, or the first error.
fn decode_in_pieces(bytes: &[u8], cuts: &[usize], limit: u32) -> Result<Vec<Message>, DecodeError> {
    let mut decoder = Decoder::new(limit);
    let mut messages = Vec::new();
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    ends.push(bytes.len());
    ends.sort_unstable();
    let mut start = 0;
    for end in ends {
        let mut piece = &bytes[start..end];
        start = end;
        while let Some(message) = decoder.decode(&mut piece)? {
            messages.push(message);
        }
        assert!(piece.is_empty(), "a decoder without message leaves nothing");
        assert!(decoder.held_bytes() <= (limit as usize).max(CHUNK_BYTES));
    }
    decoder.finish()?;
    Ok(messages)
}

fn parse_error(json: &str) -> String {
    parse(json.as_bytes()).unwrap_err().to_string()
}

#[test]
fn an_endpoint_on_a_network_says_what_it_takes() {
    let net = r#""psn":16777215,"net":{"udp_port":4791,"path_mtu":4096,"extensions":1}}"#;
    let text = altered(MessageKind::Connect, "\"psn\":16777215}", net);
    let mut expected = samples::connect();
    expected.endpoint.net =
        Some(catchment_verbs::NetEnd { extensions: 1, ..catchment_verbs::NetEnd::of_rnic(4096) });
    assert_eq!(parse(text.as_bytes()), Ok(Message::Connect(expected.clone())));
    let key = r#""extensions":1,"key":"000102030405060708090a0b0c0d0e0f"}"#;
    let with_key = text.replacen("\"extensions\":1}", key, 1);
    let bytes: [u8; 16] = std::array::from_fn(|at| at as u8);
    let net = expected.endpoint.net.as_mut().unwrap();
    net.key = Some(catchment_verbs::PacketKey(bytes));
    assert_eq!(parse(with_key.as_bytes()), Ok(Message::Connect(expected)));
    assert!(parse_error(&with_key.replacen("0e0f", "0e", 1)).contains("32 hexadecimal digits"));
    for (from, to, field) in [
        ("4096", "1500", "endpoint.net.path_mtu is 1500"),
        ("4791", "0", "endpoint.net.udp_port is 0"),
        ("4791", "65536", "65536"),
    ] {
        let error = parse_error(&text.replacen(from, to, 1));
        assert!(error.contains(field), "{error}");
    }
}

#[test]
fn every_message_has_exactly_its_golden_bytes() {
    let golden = samples::golden();
    let kinds: Vec<MessageKind> = golden.iter().map(|(message, _)| message.kind()).collect();
    assert_eq!(kinds, MessageKind::ALL, "one golden message per kind");
    for (message, json) in golden {
        let mut bytes = Vec::new();
        encode(&message, &mut bytes).unwrap();
        assert_eq!(bytes, framed(json.as_bytes()), "{json}");
        let decoded = decode_in_pieces(&bytes, &[], HELLO_BYTES_MAX);
        assert_eq!(decoded, Ok(vec![message]));
    }
}

#[test]
fn the_specification_shows_the_golden_messages() {
    let spec = include_str!("../../../docs/spec/session.md");
    for (_, json) in samples::golden() {
        assert!(spec.contains(json), "docs/spec/session.md lacks {json}");
    }
}

#[test]
fn every_json_line_of_the_specification_is_a_message() {
    let spec = include_str!("../../../docs/spec/session.md");
    let lines = spec.lines().filter(|line| line.starts_with("{\"type\""));
    assert!(lines.clone().count() >= 11);
    for line in lines {
        assert!(parse(line.as_bytes()).is_ok(), "{line}");
    }
}

#[test]
fn members_may_come_in_any_order_and_type_need_not_be_first() {
    let json = r#" { "seq" : 3, "type":"ping" ,"epoch":9}"#;
    let ping = crate::message::Ping { epoch: 9, seq: 3 };
    assert_eq!(parse(json.as_bytes()), Ok(Message::Ping(ping)));
}

#[test]
fn malformed_messages_say_what_was_wrong() {
    for (json, expected) in [
        ("[1]", "not a JSON object"),
        ("\"x\"", "not a JSON object"),
        ("{}", "missing field `type`"),
        (r#"{"type":5}"#, "invalid type"),
        (r#"{"type":"ping","type":"ping","epoch":1,"seq":1}"#, "duplicate field"),
        (r#"{"type":"dance"}"#, "message type \"dance\" is unknown"),
        (r#"{"type":"ping","epoch":1}"#, "missing field `seq`"),
        (r#"{"type":"ping","epoch":1,"seq":1,"x":2}"#, "unknown field `x`"),
        (r#"{"type":"ping","epoch":1,"seq":1,"seq":2}"#, "duplicate field `seq`"),
        (r#"{"type":"ping","epoch":0,"seq":1}"#, "epoch is 0; 1 to 4294967295"),
        (r#"{"type":"ping","epoch":-1,"seq":1}"#, "invalid value"),
        (r#"{"type":"ping","epoch":1.5,"seq":1}"#, "invalid type"),
        (r#"{"type":"ping","epoch":4294967296,"seq":1}"#, "invalid value"),
        (r#"{"type":"ping","epoch":1,"seq":1}x"#, "trailing characters"),
        ("{\"type\":\"\u{1b}[2J\"}", "control character"),
        ("{\"type\":\"\\u001b[2J\"}", "\\u{1b}[2J"),
    ] {
        let error = parse_error(json);
        assert!(error.contains(expected), "{json}: {error}");
    }
    let error = parse(b"{\"type\":\"\xff\"}").unwrap_err();
    assert_eq!(error, DecodeError::Utf8(9));
}

/// The golden message of `kind` with one piece of its text replaced.
fn altered(kind: MessageKind, from: &str, to: &str) -> String {
    let (_, json) = samples::golden().into_iter().find(|(m, _)| m.kind() == kind).unwrap();
    assert!(json.contains(from), "{json} lacks {from}");
    json.replacen(from, to, 1)
}

/// Pieces of the golden messages, what to put in their place, and what the error must say. `LONG` is
/// a text beyond every limit.
const OUT_OF_RANGE: &str = r#"
hello | "min":3 | "min":0 | protocol.min is 0
hello | "attempt":3 | "attempt":0 | attempt is 0
sink_report | "refusing":1 | "refusing":0 | refusing is 0
hello | catchment 0.1.0 |  | software is ""
hello | catchment 0.1.0 | a\u0007b | software is
hello | ea4a6c63 | ea4a6c6 | 64 hexadecimal digits
challenge | 3031 | 30 | 32 hexadecimal digits
proof | f0f8 | x0f8 | 128 hexadecimal digits
hello | 0f4b6a9e-7 | 0f4b6a9e 7 | host.boot_id
hello | 4026531840 | 9007199254740992 | host.netns is 9007199254740992
hello | "cam0" | "../x" | contains '/'
hello | "cam0" | ".x" | starts with a dot
hello | 640x480:rgb24 |  | devices[0].format
hello | drop_oldest | drop | unknown variant
hello | 250 | 9007199254740992 | devices[1].next_packet
hello | "shm" | "SHM" | providers[0].name
hello | abab | ab | 32 hexadecimal digits
hello | "shm0" | "" | providers[0].device
hello | 4791 | 0 | providers[1].net.udp_port is 0
hello | "path_mtu":4096,"ext | "path_mtu":1500,"ext | providers[1].net.path_mtu is 1500
hello | "ibverbs" | "IB" | missing[0].provider
hello | libibverbs.so.1 is not installed | LONG | missing[0].reason
hello | packets of 4096 bytes did not pass |  | failed[0].reason
hello | "collector":"ibverbs" | "collector":"" | failed[0].path.collector
hello | "path_mtu":4096} | "path_mtu":1} | failed[0].path.path_mtu is 1
welcome | "path_mtu":null | "path_mtu":9000 | path.path_mtu is 9000
welcome | "source":"shm" | "source":"s m" | path.source
hello | "blocks":64 | "blocks":0 | wish.blocks is 0
hello | "blocks":64 | "blocks":65537 | wish.blocks is 65537
hello | 1048576 | 64 | wish.block_bytes is 64
hello | 1048576 | 1048577 | wish.block_bytes is 1048577
hello | 1048576 | 67108928 | wish.block_bytes is 67108928
welcome | "epoch":7 | "epoch":0 | epoch is 0
welcome | "blocks":64 | "blocks":0 | ring.blocks is 0
welcome | "qpn":17 | "qpn":16777216 | endpoint.qpn is 16777216
welcome | 16777215 | 16777216 | endpoint.psn is 16777216
welcome | "lease_ms":3000 | "lease_ms":99 | lease_ms is 99
welcome | 240 | 9007199254740992 | streams[1].next_packet
connect | 245 | 9007199254740992 | streams[1].first_packet
refused | another live source sends device cam0 | LONG | reason is
refused | device_in_use |  | code is ""
revoke | the collector is being stopped |  | reason is ""
source_stats | 1250000 | 9007199254740992 | cpu_us
source_stats | 4608000 | 9007199254740992 | streams[0].sent_bytes
goodbye | 300 | 9007199254740992 | streams[0].end_packet
goodbye_ack | 53 | 9007199254740992 | delivered[1].frames
"#;

#[test]
fn every_range_is_checked() {
    let long = "x".repeat(1_025);
    for row in OUT_OF_RANGE.trim().lines() {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [kind, from, to, field] = cells[..] else {
            panic!("four cells: {row}");
        };
        let to = if to == "LONG" { &long } else { to };
        let kind = kind_of(kind).unwrap();
        let error = parse_error(&altered(kind, from, to));
        assert!(error.contains(field), "{kind} {from} -> {to}: {error}");
    }
    let empty = altered(
        MessageKind::Hello,
        r#"{"name":"shm","gid":"ababababababababababababababab01","device":"shm0"},{"name":"roce","gid":"ababababababababababababababab03","device":null,"net":{"udp_port":4791,"path_mtu":4096,"extensions":1}}"#,
        "",
    );
    assert!(parse_error(&empty).contains("providers is 0; 1 to 16"));
}

#[test]
fn lists_stop_at_their_limit() {
    let entry = r#"{"stream":1,"end_packet":2}"#;
    let many = vec![entry; crate::message::DEVICES_MAX + 1].join(",");
    let json = format!(r#"{{"type":"goodbye","epoch":1,"streams":[{many}]}}"#);
    assert!(parse_error(&json).contains("more than 65536 elements"));
}

#[test]
fn the_largest_hello_can_be_read_and_answered() {
    let mut hello = samples::hello();
    let device = |i: usize| crate::message::Device {
        name: format!("camera-{i:05}").parse().unwrap(),
        format: Some("640x480:rgb24".to_owned()),
        policy: crate::message::Policy::DropNewest,
        next_packet: u64::from(u32::MAX),
    };
    hello.devices = (0..crate::message::DEVICES_MAX).map(device).collect();
    let mut bytes = Vec::new();
    encode(&Message::Hello(hello.clone()), &mut bytes).unwrap();
    let decoded = decode_in_pieces(&bytes, &[1 << 20, 3 << 20], HELLO_BYTES_MAX).unwrap();
    assert_eq!(decoded, vec![Message::Hello(hello)]);

    let mut welcome = samples::welcome();
    let grant = |i: usize| crate::message::StreamGrant {
        device: format!("{i:064}").parse().unwrap(),
        stream: u32::MAX,
        next_packet: Some(crate::check::NUMBER_MAX),
    };
    welcome.streams = (0..crate::message::DEVICES_MAX).map(grant).collect();
    encode(&Message::Welcome(welcome), &mut Vec::new()).unwrap();
}

#[test]
fn a_message_that_is_too_long_to_send_leaves_the_buffer_as_it_was() {
    let mut hello = samples::hello();
    let device = |i: usize| crate::message::Device {
        name: format!("{i:064}").parse().unwrap(),
        ..samples::hello().devices[0].clone()
    };
    hello.devices = (0..crate::message::DEVICES_MAX).map(device).collect();
    let mut bytes = b"before".to_vec();
    let error = encode(&Message::Hello(hello), &mut bytes).unwrap_err();
    assert!(matches!(error, EncodeError::TooLong { .. }), "{error}");
    assert_eq!(bytes, b"before");
}

#[test]
fn a_short_kind_may_not_be_long() {
    let spaces = " ".repeat(SHORT_BYTES_MAX as usize);
    let json = format!(r#"{{"type":"ping","epoch":1,"seq":1{spaces}}}"#);
    let error = parse(json.as_bytes()).unwrap_err();
    assert!(matches!(error, DecodeError::TooLong { .. }), "{error}");
}

#[test]
fn a_length_beyond_the_limit_is_refused_before_any_byte_is_held() {
    let mut decoder = Decoder::new(SHORT_BYTES_MAX);
    let error = decoder.decode(&mut &u32::MAX.to_be_bytes()[..]).unwrap_err();
    assert!(error.to_string().contains("4294967295 bytes"), "{error}");
    assert_eq!(decoder.held_bytes(), 0);
    let mut decoder = Decoder::new(SHORT_BYTES_MAX);
    assert!(decoder.decode(&mut &[0, 0, 0, 0, 1][..]).is_err());
}

#[test]
fn an_announced_length_reserves_nothing() {
    let mut decoder = Decoder::new(HELLO_BYTES_MAX);
    let mut input = &[&HELLO_BYTES_MAX.to_be_bytes()[..], b"{"].concat()[..];
    assert_eq!(decoder.decode(&mut input), Ok(None));
    assert!(decoder.held_bytes() <= CHUNK_BYTES);
}

#[test]
fn a_raised_limit_takes_what_was_too_long() {
    let bytes = framed(format!(r#"{{"type":"ready","epoch":1{}}}"#, " ".repeat(100)).as_bytes());
    let mut decoder = Decoder::new(50);
    let mut input = &bytes[..];
    assert!(matches!(decoder.decode(&mut input), Err(DecodeError::Length { .. })));
    decoder.set_limit(SHORT_BYTES_MAX);
    assert!(matches!(decoder.decode(&mut input), Ok(Some(Message::Ready(_)))));
}

#[test]
fn nothing_is_read_after_a_wrong_message() {
    let mut bytes = framed(b"{}");
    encode(&samples::golden()[5].0, &mut bytes).unwrap();
    let mut decoder = Decoder::new(SHORT_BYTES_MAX);
    let mut input = &bytes[..];
    let error = decoder.decode(&mut input).unwrap_err();
    assert_eq!(decoder.decode(&mut input), Err(error));
}

#[test]
fn strangers_are_recognised() {
    for (bytes, word) in [
        (&b"GET / HTTP/1.1\r\n"[..], "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01", "TLS"),
        (b"SSH-2.0-OpenSSH", "SSH"),
    ] {
        let error = decode_in_pieces(bytes, &[], HELLO_BYTES_MAX).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!(error.refusal().code, RefusalCode::BadMessage);
    }
}

#[test]
fn a_truncated_message_says_how_much_came() {
    let bytes = framed(b"{\"type\":\"ready\",\"epoch\":1}");
    let error = decode_in_pieces(&bytes[..10], &[], SHORT_BYTES_MAX).unwrap_err();
    let (have, expected) = (10, bytes.len());
    assert_eq!(error, DecodeError::Truncated { have, expected });
    let error = decode_in_pieces(&bytes[..3], &[], SHORT_BYTES_MAX).unwrap_err();
    let (have, expected) = (3, 4);
    assert_eq!(error, DecodeError::Truncated { have, expected });
}

#[test]
fn versions_are_negotiated_before_unknown_members_matter() {
    let newer = altered(MessageKind::Hello, r#"{"min":3,"max":3}"#, r#"{"min":4,"max":5,"x":0}"#)
        .replace("\"wish\"", "\"colour\":\"red\",\"wish\"");
    let refusal = parse(newer.as_bytes()).unwrap_err().refusal();
    assert_eq!(refusal.code, RefusalCode::ProtocolVersion);
    assert!(refusal.is_permanent());
    assert_eq!(refusal.remedy, "update the collector to the source's version");
    let ours = format!("the collector is {} and speaks session protocol 3", crate::SOFTWARE);
    let theirs = "the source is catchment 0.1.0 and speaks session protocols 4 to 5";
    assert_eq!(refusal.reason, format!("{theirs}, {ours}"));
    let both = altered(MessageKind::Hello, r#"{"min":3,"max":3}"#, r#"{"min":1,"max":9}"#);
    assert!(parse(both.as_bytes()).is_ok());
    // As the version before this one wrote it, which had other members too.
    let older = r#"{"type":"hello","protocol":{"min":2,"max":2},"software":"catchment 0.0.9","instance":"0123456789abcdef"}"#;
    let refusal = parse(older.as_bytes()).unwrap_err().refusal();
    assert_eq!(refusal.remedy, "update the source to the collector's version");
    let theirs = "the source is catchment 0.0.9 and speaks session protocol 2";
    assert_eq!(refusal.reason, format!("{theirs}, {ours}"));
}

#[test]
fn the_common_version_is_the_newest_of_both() {
    let range = |min, max| ProtocolRange { min, max };
    assert_eq!(range(1, 3).common(range(2, 5)), Some(3));
    assert_eq!(range(4, 5).common(range(1, 4)), Some(4));
    assert_eq!(range(1, 1).common(range(2, 5)), None);
}

/// The corpus of the fuzz targets: whatever was found once stays found.
#[test]
fn the_fuzz_corpus_does_no_harm() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/fuzz/corpus/session");
    let mut files = 0;
    for entry in std::fs::read_dir(&corpus).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        for limit in [SHORT_BYTES_MAX, LONG_BYTES_MAX] {
            let whole = decode_in_pieces(&bytes, &[], limit);
            let pieces = decode_in_pieces(&bytes, &[1, 3, 5, 8, 13, 21, 34, 55], limit);
            assert_eq!(whole, pieces, "{}", path.display());
        }
        files += 1;
    }
    assert!(files >= 20, "{files} files in {}", corpus.display());
}

fn any_message() -> impl Strategy<Value = Message> {
    let golden = samples::golden();
    (0..golden.len()).prop_map(move |i| golden[i].0.clone())
}

proptest! {
    #[test]
    fn any_bytes_in_any_pieces_give_one_answer(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        cuts in proptest::collection::vec(any::<usize>(), 0..10),
        length in proptest::option::of(0_u32..400),
    ) {
        let mut bytes = bytes;
        if let Some(length) = length {
            bytes.splice(0..0, length.to_be_bytes());
        }
        let whole = decode_in_pieces(&bytes, &[], 1_000);
        prop_assert_eq!(whole, decode_in_pieces(&bytes, &cuts, 1_000));
    }

    #[test]
    fn any_messages_in_any_pieces_arrive(
        messages in proptest::collection::vec(any_message(), 0..8),
        cuts in proptest::collection::vec(any::<usize>(), 0..20),
    ) {
        let mut bytes = Vec::new();
        for message in &messages {
            encode(message, &mut bytes).unwrap();
        }
        prop_assert_eq!(decode_in_pieces(&bytes, &cuts, SHORT_BYTES_MAX), Ok(messages));
    }

    #[test]
    fn a_damaged_message_is_refused_or_read_to_one_that_can_be_sent(
        message in any_message(),
        damage in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = Vec::new();
        encode(&message, &mut bytes).unwrap();
        let json = &mut bytes[HEADER_BYTES..];
        for (at, value) in damage {
            let at = at % json.len();
            json[at] = value;
        }
        match parse(json) {
            Ok(read) => prop_assert!(encode(&read, &mut Vec::new()).is_ok()),
            Err(error) => {
                let text = error.to_string();
                prop_assert!(!text.chars().any(char::is_control), "{text:?}");
                prop_assert!(error.refusal().reason.chars().count() <= 1_024);
            }
        }
    }
}
