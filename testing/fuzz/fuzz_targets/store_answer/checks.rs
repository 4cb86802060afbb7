//! What must hold for any answer of a store: shared by the fuzz target and the ordinary test of its corpus.
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use catchment_controller::leader::answer::{
    ADDRESS_BYTES_MAX, Granted, KeptAlive, LEFT_MAX, Txn, Watched, read,
};
use catchment_controller::leader::{Campaign, Candidate};
use serde_json::json;

/// A refusal is one line, for a log.
const REFUSAL_BYTES_MAX: usize = 4096;

/// Checks an input as an answer, and as what each key of the store holds.
pub(crate) fn check(bytes: &[u8]) {
    let line = String::from_utf8_lossy(bytes);
    is_plain(read::<Watched>(&line));
    is_plain(read::<KeptAlive>(&line).map(|kept| kept.is_there()));
    is_plain(read::<Granted>(&line).and_then(|granted| granted.lease(2)));
    check_txn(&line);
    let value = BASE64.encode(bytes);
    let key =
        |value: &str| json!({"response_range": {"kvs": [{"value": value, "mod_revision": "7"}]}});
    let term = key("Nw==");
    for responses in [[key(&value), term.clone(), json!({})], [json!({}), key(&value), json!({})]] {
        check_txn(&json!({"responses": responses}).to_string());
    }
    check_txn(&json!({"responses": [{}, term, key(&value)]}).to_string());
}

fn check_txn(line: &str) {
    let looked = is_plain(read::<Txn>(line).and_then(|txn| txn.looked()));
    if let Some(looked) = looked {
        looked.seen.leader.iter().for_each(check_candidate);
        assert!(looked.seen.left.is_none_or(|left| left <= LEFT_MAX), "{:?}", looked.seen.left);
    }
    if let Some(Campaign::Led(Some(leader))) =
        is_plain(read::<Txn>(line).and_then(|txn| txn.campaign()))
    {
        check_candidate(&leader);
    }
}

/// Whoever leads has an address that can be shown.
fn check_candidate(leader: &Candidate) {
    let address = &leader.address;
    assert!((1..=ADDRESS_BYTES_MAX).contains(&address.len()), "{} bytes", address.len());
    assert!(address.bytes().all(|byte| byte.is_ascii_graphic()), "{address:?}");
}

/// Returns what was read; a refusal can be shown.
fn is_plain<T>(read: Result<T, String>) -> Option<T> {
    read.map_err(|why| {
        assert!(!why.is_empty() && why.len() <= REFUSAL_BYTES_MAX, "{} bytes", why.len());
        assert!(!why.contains(char::is_control), "{why:?}");
    })
    .ok()
}
