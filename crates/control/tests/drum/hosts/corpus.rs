//! The corpus of the fuzz target `drum_host`, replayed, and bytes that the specification gives.
use catchment_control::drum::{Answered, Header, Message, Offer, Round};
use std::path::Path;

#[path = "../../../../../testing/fuzz/fuzz_targets/drum_host/checks.rs"]
mod checks;

#[test]
fn the_fuzz_corpus_does_no_harm() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/fuzz/corpus/drum_host");
    let files: Vec<_> = std::fs::read_dir(corpus).unwrap().collect();
    assert!(files.len() >= 3, "{} files", files.len());
    for file in files {
        let path = file.unwrap().path();
        println!("{}", path.display());
        checks::check(&std::fs::read(&path).unwrap());
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn messages_are_the_bytes_of_the_specification() {
    let header = Header {
        incarnation: 2,
        heard: 3,
        change: 4,
        sequence: 5,
        seen: 6,
        round: Round(0x1234),
        ..Header::default()
    };
    let offer = Offer {
        from: 7,
        to: 8,
        value: 1.0,
        inverse: 2.0,
        marginal: 0.5,
        elasticity: 3.0,
        held: 0.0,
    };
    let offers = Message::Offers(Header { still: true, alone: true, ..header }, vec![offer]);
    let first = "0000000200000003000000040000000000000005000000000000000600000000";
    let words = "00000007000000083f800000400000003f0000004040000000000000";
    assert_eq!(hex(&offers.encode()), format!("01020001{first}12340003{words}"));
    let answer = Answered {
        from: 7,
        to: 8,
        price: -1.0,
        value: 2.0,
        curvature: 0.5,
        worth: 3.0,
        edges: 9,
        grant: 1.5,
    };
    let answers = Message::Answers(Header { rise: 0.25, ..header }, vec![answer]);
    let first = "000000020000000300000004000000000000000500000000000000063e800000";
    let words = "0000000700000008bf800000400000003f00000040400000000000093fc00000";
    assert_eq!(hex(&answers.encode()), format!("02020001{first}12340000{words}"));
    let same = Message::Answers(Header { same: true, ..header }, Vec::new());
    assert!(hex(&same.encode()).ends_with("12340004"));
}
