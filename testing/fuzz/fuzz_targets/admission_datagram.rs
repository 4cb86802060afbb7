//! A datagram of the admission protocol, as it is and with a right code, and its records.
#![no_main]

use catchment_control::admission::wire::{
    Code, ControllerRecord, HEADER_BYTES, Header, OpenError, Opener, RECORD_BYTES, ROOT_BYTES,
    RECORDS_MAX, Seal, SourceRecord,
};
use libfuzzer_sys::fuzz_target;

const ROOT: [u8; ROOT_BYTES] = [7; ROOT_BYTES];

/// Records that can be read are written as the same bytes, and come as they were sent.
fn check<R: Code + Clone + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let mut good: Vec<R> = Vec::new();
    for record in bytes.chunks_exact(RECORD_BYTES) {
        if let Ok(read) = R::decode(record) {
            assert_eq!(read.encode()[..], *record);
            good.push(read);
        }
    }
    good.truncate(RECORDS_MAX);
    let (mut datagram, mut came) = (Vec::new(), Vec::<R>::new());
    Seal::new(&ROOT).seal((1, 2, 3), &good, &mut datagram).expect("the first");
    let mut opener = Opener::<R>::new(&ROOT);
    opener.open(&datagram, &mut came).expect("a datagram of the other end");
    assert_eq!(came, good);
    let again = opener.open(&datagram, &mut came);
    assert!(matches!(again, Err(OpenError::Replayed { .. })));
}

fuzz_target!(|bytes: &[u8]| {
    let mut records: Vec<SourceRecord> = Vec::new();
    assert!(Opener::new(&ROOT).open(bytes, &mut records).is_err(), "nobody has the key");
    assert!(records.is_empty());
    if Header::read(bytes).is_ok() {
        check::<SourceRecord>(&bytes[HEADER_BYTES..]);
        check::<ControllerRecord>(&bytes[HEADER_BYTES..]);
    }
});
