//! The golden packets, read from their files, and the corpus of the fuzz targets.
use catchment_roce::wire::net::{Ip, NetHeader};
use serde_json::Value;
use std::path::Path;

/// A golden packet: what a sender put on the wire, and what an independent decoder saw in it.
pub(crate) struct Vector {
    pub(crate) label: String,
    pub(crate) packet: Vec<u8>,
    pub(crate) valid: bool,
    pub(crate) note: String,
    pub(crate) icrc: Option<u32>,
    pub(crate) fields: Value,
}

/// The file of packets captured from the kernel and a prototype.
pub(crate) const CAPTURED: &str = "vectors.json";
/// The file of packets that an independent encoder made, for opcodes without a capture.
pub(crate) const COMPUTED: &str = "vectors_computed.json";

pub(crate) fn vectors(file: &str) -> Vec<Vector> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let document: Value = serde_json::from_str(&text).unwrap();
    let vectors: Vec<_> = document["vectors"].as_array().unwrap().iter().map(vector).collect();
    assert_eq!(document["count"], vectors.len(), "{file}");
    vectors
}

/// Calls `check` with every file of a fuzz target's corpus, and returns how many there are.
pub(crate) fn replay_corpus(target: &str, check: fn(&[u8])) -> usize {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/fuzz/corpus");
    let files = std::fs::read_dir(corpus.join(target)).unwrap();
    let replay = |file: std::io::Result<std::fs::DirEntry>| {
        let path = file.unwrap().path();
        println!("{}", path.display());
        check(&std::fs::read(&path).unwrap());
    };
    files.map(replay).count()
}

fn vector(value: &Value) -> Vector {
    let text = |key: &str| value[key].as_str().unwrap_or_default();
    let version = &value["fields"]["ip"]["version"];
    Vector {
        label: format!("{} {} over IPv{version}", value["id"], text("name")),
        packet: unhex(text("hex")),
        valid: value["valid"].as_bool().unwrap(),
        note: text("note").to_owned(),
        icrc: u32::from_str_radix(text("icrc"), 16).ok(),
        fields: value["fields"].clone(),
    }
}

fn unhex(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().as_chunks::<2>().0.iter();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}

/// The number of a field that JSON holds as a number or as "0x..."; none when it is missing.
pub(crate) fn number(field: &Value) -> Option<u64> {
    let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    field.as_u64().or_else(|| hex(field.as_str()?))
}

impl Vector {
    /// IP and UDP headers, and the payload of the datagram.
    pub(crate) fn datagram(&self) -> (NetHeader, &[u8]) {
        NetHeader::decode(&self.packet).unwrap_or_else(|e| panic!("{}: {e}", self.label))
    }

    /// Whether the packet came over IPv4.
    pub(crate) fn is_ipv4(&self) -> bool {
        matches!(self.datagram().0.ip, Ip::V4 { .. })
    }
}
