//! What must hold for any bytes in a slot: shared by the fuzz target and the ordinary test of its corpus.
use catchment_agent::entry::{COMPLETION_BYTES, MAX_SGES, Notice, REQUEST_BYTES, Request};

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
    let Some(request) = Request::decode(bytes) else { return };
    let written = request.encode().expect("what was read can be written");
    assert_eq!(Request::decode(&written), Some(request));
    let data = &request.data;
    let (whole, step) = (data.bytes(), data.bytes().div_ceil(7).max(1));
    let mut seen = 0;
    while data.inline().is_none() && seen < whole {
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
