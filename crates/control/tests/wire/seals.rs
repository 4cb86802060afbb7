//! Who opens what: each datagram once, and only what the other end wrote.
use crate::samples::{GRANTED, ROOT, RUNNING, any_controller_record, any_source_record};
use catchment_control::admission::wire::*;
use proptest::prelude::*;

type Ends = (Seal<SourceRecord>, Opener<SourceRecord>);

fn ends() -> Ends {
    (Seal::new(&ROOT), Opener::new(&ROOT))
}

fn sealed(seal: &mut Seal<SourceRecord>, records: &[SourceRecord]) -> Vec<u8> {
    let mut bytes = Vec::new();
    seal.seal((1, 42, 5), records, &mut bytes).expect("a key is left");
    bytes
}

fn open(opener: &mut Opener<SourceRecord>, bytes: &[u8]) -> Result<Vec<SourceRecord>, OpenError> {
    let mut records = Vec::new();
    opener.open(bytes, &mut records).map(|_| records)
}

#[test]
fn a_datagram_is_opened_once_and_not_when_it_is_too_old() {
    let (mut seal, mut opener) = ends();
    let old = sealed(&mut seal, &[RUNNING]);
    let sent: Vec<_> = (0..1024).map(|_| sealed(&mut seal, &[RUNNING])).collect();
    assert!(open(&mut opener, &sent[1022]).is_ok());
    assert!(open(&mut opener, &sent[0]).is_ok());
    assert!(matches!(open(&mut opener, &sent[0]), Err(OpenError::Replayed { sequence: 1, .. })));
    // 1,023 behind the newest is in the window, 1,024 is not.
    assert!(open(&mut opener, &old).is_ok());
    let mut opener = ends().1;
    assert!(open(&mut opener, &sent[1023]).is_ok());
    assert!(matches!(open(&mut opener, &old), Err(OpenError::Replayed { sequence: 0, .. })));
}

#[test]
fn a_new_key_follows_before_the_sequence_ends_and_the_old_one_is_refused_then() {
    let (seal, mut opener) = ends();
    let mut seal = seal.with_sequence_max(1);
    let sent: Vec<_> = (0..6).map(|_| sealed(&mut seal, &[RUNNING])).collect();
    let epoch = |bytes: &[u8]| Header::read(bytes).unwrap().epoch;
    assert_eq!(sent.iter().map(|bytes| epoch(bytes)).collect::<Vec<_>>(), [0, 0, 1, 1, 2, 2]);
    assert!(open(&mut opener, &sent[0]).is_ok());
    // Key 2 comes after key 1 only.
    assert!(matches!(open(&mut opener, &sent[4]), Err(OpenError::Epoch { seen: 2, in_use: 0 })));
    assert!(open(&mut opener, &sent[3]).is_ok());
    assert!(open(&mut opener, &sent[2]).is_ok());
    assert!(matches!(open(&mut opener, &sent[1]), Err(OpenError::Epoch { seen: 0, in_use: 1 })));
    assert!(open(&mut opener, &sent[4]).is_ok());
}

#[test]
fn after_256_keys_nothing_is_written_any_more() {
    let mut seal = Seal::<SourceRecord>::new(&ROOT).with_sequence_max(0);
    let mut bytes = Vec::new();
    for _ in 0..256 {
        seal.seal((1, 1, 1), &[], &mut bytes).unwrap();
    }
    assert_eq!(seal.seal((1, 1, 1), &[], &mut bytes), Err(Exhausted));
}

#[test]
fn other_keys_and_the_other_direction_are_refused() {
    let mut opener = ends().1;
    let mut root = ROOT;
    root[31] ^= 1;
    let foreign = sealed(&mut Seal::new(&root), &[RUNNING]);
    assert_eq!(open(&mut opener, &foreign), Err(OpenError::Forged));
    let mut mirrored = Vec::new();
    Seal::<ControllerRecord>::new(&ROOT).seal((1, 42, 5), &[GRANTED], &mut mirrored).unwrap();
    let wrong = OpenError::WrongKind { seen: Kind::Controller };
    assert_eq!(open(&mut opener, &mirrored), Err(wrong));
    // With the kind of the source, its code is that of the other direction's key.
    mirrored[1] = 1;
    assert_eq!(open(&mut opener, &mirrored), Err(OpenError::Forged));
    assert!(open(&mut opener, &sealed(&mut ends().0, &[RUNNING])).is_ok());
}

#[test]
fn errors_name_what_was_wrong_and_what_was_seen() {
    let (mut seal, mut opener) = ends();
    let good = sealed(&mut seal, &[RUNNING]);
    let text = |bytes: &[u8]| Header::read(bytes).unwrap_err().to_string();
    assert_eq!(text(&good[..39]), "39 bytes are shorter than a header of 40");
    let changed = |at: usize, to: u8| {
        let mut bytes = good.clone();
        bytes[at] = to;
        bytes
    };
    assert_eq!(text(&changed(0, 2)), "version 2, this end speaks 1");
    assert_eq!(text(&changed(1, 9)), "kind 9, known are 1 to 3");
    assert_eq!(text(&changed(3, 25)), "25 records; at most 24, none in a hint");
    assert_eq!(text(&changed(3, 2)), "96 bytes with 2 records of 56 after a header of 40");
    // A record that is wrong, from an end that has the key: nothing of its datagram is taken.
    let bad = SourceRecord { revision: 0, ..RUNNING };
    let error = open(&mut opener, &sealed(&mut seal, &[RUNNING, bad])).unwrap_err();
    assert_eq!(error.to_string(), "record 1: revision 0");
    let record = RUNNING.encode();
    let text = |at: usize, to: u8| {
        let mut bytes = record;
        bytes[at] = to;
        SourceRecord::decode(&bytes).unwrap_err().to_string()
    };
    assert_eq!(text(0, 18), "state 18");
    assert_eq!(text(1, 3), "reason 3 in state 2");
    assert_eq!(text(2, 0x80), "flags 0x8003");
    assert_eq!(text(0, 1), "rate is 10000000000 in state 1");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn records_come_as_they_were_sent(
        source in prop::collection::vec(any_source_record(), 0..RECORDS_MAX),
        controller in prop::collection::vec(any_controller_record(), 0..RECORDS_MAX),
        ids in (any::<u32>(), any::<u32>(), any::<u64>()),
    ) {
        let mut bytes = Vec::new();
        Seal::new(&ROOT).seal(ids, &source, &mut bytes).unwrap();
        let mut came = Vec::new();
        let header = Opener::<SourceRecord>::new(&ROOT).open(&bytes, &mut came).unwrap();
        prop_assert_eq!(&came, &source);
        prop_assert_eq!((header.term, header.source, header.stamp_ns), ids);
        Seal::new(&ROOT).seal(ids, &controller, &mut bytes).unwrap();
        let mut came = Vec::new();
        Opener::<ControllerRecord>::new(&ROOT).open(&bytes, &mut came).unwrap();
        prop_assert_eq!(came, controller);
    }

    /// A record that was read is written as the same bytes: no byte is ignored.
    #[test]
    fn what_is_read_is_written_again(
        bytes in prop::collection::vec(any::<u8>(), RECORD_BYTES),
        state in 0..24_u8,
        small in prop::collection::vec(0..56_usize, 0..56),
    ) {
        let mut bytes = bytes;
        bytes[0] = state;
        small.into_iter().filter(|at| *at > 0).for_each(|at| bytes[at] = 0);
        if let Ok(record) = SourceRecord::decode(&bytes) {
            prop_assert_eq!(&record.encode()[..], &bytes[..]);
        }
        if let Ok(record) = ControllerRecord::decode(&bytes) {
            prop_assert_eq!(&record.encode()[..], &bytes[..]);
        }
    }

    #[test]
    fn a_changed_bit_is_noticed_and_the_datagram_still_counts_as_new(
        record in any_source_record(),
        at in 0..96_usize,
        bit in 0..8_u8,
    ) {
        let (mut seal, mut opener) = ends();
        let good = sealed(&mut seal, &[record]);
        let mut bad = good.clone();
        bad[at] ^= 1 << bit;
        prop_assert!(open(&mut opener, &bad).is_err());
        prop_assert_eq!(open(&mut opener, &good), Ok(vec![record]));
    }

    #[test]
    fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), like in any::<bool>()) {
        let (mut seal, mut opener) = ends();
        let mut bytes = bytes;
        if like && bytes.len() >= HEADER_BYTES {
            let records = (bytes.len() - HEADER_BYTES) / RECORD_BYTES;
            bytes.truncate(HEADER_BYTES + records * RECORD_BYTES);
            bytes[..4].copy_from_slice(&[VERSION, 1, 0, records as u8]);
        }
        prop_assert!(open(&mut opener, &bytes).is_err());
        prop_assert!(open(&mut opener, &sealed(&mut seal, &[RUNNING])).is_ok());
    }
}
