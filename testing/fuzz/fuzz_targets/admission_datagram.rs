//! A datagram of the admission protocol, as it is and with a right code, and its records; and the source's end of a session
//! with a controller that stands by.
#![no_main]

use catchment_control::admission::source_side::{Standby, StandbyOutput};
use catchment_control::admission::wire::{
    Code, ControllerRecord, HEADER_BYTES, Header, OpenError, Opener, RECORD_BYTES, RECORDS_MAX,
    ROOT_BYTES, Seal, SourceRecord,
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

/// Whoever has no key makes nobody lead; a controller of a higher term does, whatever it says besides.
fn stand_by(bytes: &[u8]) {
    let (now_ns, source) = (1_000_000_000, 2);
    let mut standby = Standby::new(now_ns, source, &ROOT, 0);
    let leads = |standby: &mut Standby| {
        for _ in 0..100 {
            match standby.poll() {
                StandbyOutput::Leads { term } => return Some(term),
                StandbyOutput::Timeout(due_ns) => {
                    assert!(due_ns >= now_ns);
                    return None;
                }
                StandbyOutput::Transmit(_) | StandbyOutput::Register => {}
            }
        }
        panic!("it never comes to rest");
    };
    standby.handle(now_ns, 0, Some(bytes));
    assert_eq!(leads(&mut standby), None, "nobody has the key");
    let Ok(header) = Header::read(bytes) else { return };
    let none: [ControllerRecord; 0] = [];
    let mut datagram = Vec::new();
    Seal::new(&ROOT).seal((header.term, source, 3), &none, &mut datagram).expect("the first");
    standby.handle(now_ns, 0, Some(&datagram));
    assert_eq!(leads(&mut standby), (header.term > 0).then_some(header.term));
}

fuzz_target!(|bytes: &[u8]| {
    stand_by(bytes);
    let mut records: Vec<SourceRecord> = Vec::new();
    assert!(Opener::new(&ROOT).open(bytes, &mut records).is_err(), "nobody has the key");
    assert!(records.is_empty());
    if Header::read(bytes).is_ok() {
        check::<SourceRecord>(&bytes[HEADER_BYTES..]);
        check::<ControllerRecord>(&bytes[HEADER_BYTES..]);
    }
});
