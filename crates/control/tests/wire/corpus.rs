//! The corpus of the fuzz target: whatever was found once stays found.
use catchment_control::admission::source_side::{Standby, StandbyOutput};
use catchment_control::admission::wire::*;
use std::path::Path;

fn reads_back<R: Code>(record: &[u8]) -> bool {
    let read = R::decode(record);
    read.is_ok_and(|read| {
        assert_eq!(read.encode()[..], *record);
        true
    })
}

#[test]
fn the_fuzz_corpus_does_no_harm() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/fuzz/corpus/admission");
    let (mut files, mut whole, mut records) = (0, 0, 0);
    for entry in std::fs::read_dir(&corpus).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        let root = [7; ROOT_BYTES];
        let mut opened: Vec<SourceRecord> = Vec::new();
        assert!(Opener::new(&root).open(&bytes, &mut opened).is_err());
        assert!(opened.is_empty());
        let mut standby = Standby::new(1_000_000_000, 2, &root, 0);
        standby.handle(1_000_000_000, 0, Some(&bytes));
        let leads = matches!(standby.poll(), StandbyOutput::Leads { .. });
        assert!(!leads, "nobody has the key");
        files += 1;
        if Header::read(&bytes).is_ok() {
            whole += 1;
            for record in bytes[HEADER_BYTES..].chunks_exact(RECORD_BYTES) {
                records += usize::from(reads_back::<SourceRecord>(record));
                records += usize::from(reads_back::<ControllerRecord>(record));
            }
        }
    }
    assert!(files >= 11 && whole >= 9 && records >= 36, "{files} files, {whole}, {records}");
}
