//! The page of the specification has bytes: they are what this code writes and reads.
use crate::samples::{GRANTED, ROOT, RUNNING};
use catchment_control::admission::wire::*;

const PAGE: &str = include_str!("../../../../docs/spec/admission.md");

/// Returns the hexadecimal digits of the fenced block that follows this line of the page.
fn vector(title: &str) -> String {
    let after = PAGE.split(&format!("**{title}**")).nth(1).unwrap_or_default();
    let block = after.split("```").nth(1).unwrap_or_default();
    block.trim_start_matches("text").split_whitespace().collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn check(title: &str, bytes: &[u8]) {
    assert_eq!(vector(title), hex(bytes), "{title}: the page, then what this code writes");
}

#[test]
fn the_datagrams_of_the_page_are_written_and_read() {
    let mut bytes = Vec::new();
    let mut seal = Seal::<SourceRecord>::new(&ROOT);
    seal.seal((1, 42, 5_000_000_000), &[RUNNING], &mut bytes).unwrap();
    check("Source, one record", &bytes);
    let (mut opener, mut records) = (Opener::<SourceRecord>::new(&ROOT), Vec::new());
    let header = opener.open(&bytes, &mut records).unwrap();
    assert_eq!((header.term, header.source, header.stamp_ns), (1, 42, 5_000_000_000));
    assert_eq!(records, [RUNNING]);

    let mut seal = Seal::<ControllerRecord>::new(&ROOT);
    seal.seal((1, 42, 77_000_000_000), &[GRANTED], &mut bytes).unwrap();
    check("Controller, one record", &bytes);

    // The sequence ends after 0: the second datagram has the next key.
    let mut seal = Seal::<SourceRecord>::new(&ROOT).with_sequence_max(0);
    seal.seal((1, 42, 5_000_000_000), &[], &mut bytes).unwrap();
    seal.seal((1, 42, 5_000_000_000), &[], &mut bytes).unwrap();
    check("Source, no record, key 1", &bytes);

    let ask = SourceRecord { number: 0, revision: 1, seen: 0, obeys: false, age_ns: 0, ..RUNNING };
    let wish = SourceState::Periodic { bytes: 500_000, period_ns: 40_000_000, held_bps: 0 };
    let renewing = SourceState::Renewing { devices: 100, rate_bps: 10_000_000_000 };
    let said = [
        SourceRecord { state: wish, ..ask },
        SourceRecord { state: renewing, device: 0, revision: 9, ..ask },
    ];
    let mut other = Vec::new();
    let delivered =
        SourceState::Delivered { acknowledged_bytes: 10_000_000_000, resent_bytes: 4096 };
    let delivered = SourceRecord { state: delivered, device: 0, revision: 5, ask: false, ..ask };
    let mut seal = Seal::<SourceRecord>::new(&ROOT);
    seal.seal((1, 42, 5_000_000_000), &[delivered], &mut other).unwrap();
    check("Source, delivered", &other);
    let mut seal = Seal::<SourceRecord>::new(&ROOT);
    seal.seal((1, 42, 5_000_000_000), &said, &mut other).unwrap();
    check("Source, rates", &other);

    let (number, revision, ask, missed_ns) = (0, 0, false, None);
    let none = ControllerRecord { number, revision, ask, missed_ns, ..GRANTED };
    let (rate_bps, lasts_ns) = (100_000_000, 999_000_000);
    let rate = Told::Rate { rate_bps, could_bps: 0, lasts_ns };
    let renewed = Told::Renewed { devices: 100, rate_bps: 10_000_000_000, lasts_ns };
    let told = [
        ControllerRecord { told: rate, seen: 1, ..none },
        ControllerRecord { told: renewed, seen: 9, device: 0, ..none },
    ];
    let mut seal = Seal::<ControllerRecord>::new(&ROOT);
    seal.seal((1, 42, 77_000_000_000), &told, &mut other).unwrap();
    check("Controller, rates", &other);

    let unknown = Header::read(&bytes).unwrap();
    check("Hint", &hint(&unknown, 9));
}
