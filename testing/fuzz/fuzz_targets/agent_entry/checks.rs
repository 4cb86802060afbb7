//! What must hold for any bytes in a slot: shared by the fuzz target and the ordinary test of its corpus.
use catchment_agent::entry::{COMPLETION_BYTES, HEAD_BYTES, MAX_SGES, Notice, REST_BYTES, Request};

/// An entry, head and rest together.
const REQUEST_BYTES: usize = HEAD_BYTES + REST_BYTES;

/// Checks each entry of an input: first as requests, then as completions. The last is filled up with zeros.
pub(crate) fn check(bytes: &[u8]) {
    bytes.chunks(REQUEST_BYTES).for_each(|entry| check_request(&filled(entry)));
    bytes.chunks(COMPLETION_BYTES).for_each(|entry| check_notice(&filled(entry)));
}

fn filled<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut whole = [0; N];
    whole[..bytes.len()].copy_from_slice(bytes);
    whole
}

/// A request that was read is written and read as the same; its chunks are its bytes, each once.
fn check_request(bytes: &[u8; REQUEST_BYTES]) {
    let (head, rest) = bytes.split_at(HEAD_BYTES);
    let head: [u8; HEAD_BYTES] = filled(head);
    let count = Request::rest_bytes(&head);
    let Some(request) = Request::decode(&head, &rest[..count]) else { return };
    let written = request.head().expect("what was read can be written");
    let (more, more_bytes) = request.rest();
    let mut again = [0; REST_BYTES];
    again[..more_bytes].copy_from_slice(&more[..more_bytes]);
    let again_bytes = Request::rest_bytes(&written);
    assert_eq!(again_bytes, count, "the rest is as long");
    assert_eq!(Request::decode(&written, &again[..again_bytes]), Some(request));
    let data = &request.data;
    let (whole, step) = (data.bytes(), data.bytes().div_ceil(7).max(1));
    let mut seen = 0;
    while !data.is_inline() && seen < whole {
        let (part, count) = data.part(seen, step);
        assert!((1..=MAX_SGES).contains(&count), "{count} elements");
        let bytes: u64 = part[..count].iter().map(|sge| u64::from(sge.bytes)).sum();
        assert_eq!(bytes, step.min(whole - seen), "a chunk has all of its bytes");
        seen += bytes;
    }
}

fn check_notice(bytes: &[u8; COMPLETION_BYTES]) {
    let Some(notice) = Notice::decode(bytes) else { return };
    assert_eq!(Notice::decode(&notice.encode()), Some(notice));
}
