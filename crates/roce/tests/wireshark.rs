//! Another reader of packets looks at ours: tshark opens a capture of every encoding.
use catchment_roce::wire::net::{Ipv4Id, NetHeader, source_port};
use catchment_roce::wire::{
    Aeth, AtomicEth, Bth, Deth, HeaderSet, Headers, NakCode, Opcode, ROCE_PORT, Reth, Syndrome,
    Transport, datagram, pad_bytes,
};
use catchment_roce::{Psn, pcap};
use std::process::Command;
use std::time::Duration;

/// Fields that tshark prints for each packet, tab-separated.
const FIELDS: &[&str] = &[
    "udp.srcport",
    "udp.dstport",
    "infiniband.bth.opcode",
    "infiniband.bth.destqp",
    "infiniband.bth.psn",
    "infiniband.bth.padcnt",
    "infiniband.reth.dmalen",
    "infiniband.aeth.syndrome",
    "infiniband.deth.srcqp",
    "infiniband.atomiceth.cmpdt",
    "infiniband.immdt",
    "infiniband.invariant.crc",
];

const DMA_BYTES: u32 = 0x0102_0304;
const COMPARE: u64 = 0x1112_1314_1516_1718;
const IMM: u32 = 0xa1a2_a3a4;
const SRC_QPN: u32 = 0x33;

struct Case {
    net: NetHeader,
    headers: Headers,
    payload: Vec<u8>,
    datagram: Vec<u8>,
}

fn nets() -> [NetHeader; 2] {
    let port = source_port(0x11, 0x22);
    [
        NetHeader::v4([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), port)
            .with_ipv4_id(Ipv4Id::new(7)),
        NetHeader::v6([0xfd; 16].into(), [0xfe; 16].into(), port),
    ]
}

fn syndromes(opcode: Opcode) -> Vec<Syndrome> {
    let mut all = vec![Syndrome::ACK];
    if opcode == Opcode::RcAcknowledge {
        all.extend([NakCode::PsnSequence, NakCode::InvalidRd].map(Syndrome::Nak));
        all.push(Syndrome::Rnr { timer: 12 });
    }
    all
}

/// All counts of pad bytes. Wireshark guesses what a SEND carries, and calls one malformed that is
/// shorter than its guess: those of the kernel, too. Longer ones it leaves alone.
fn payload_bytes(opcode: Opcode) -> &'static [usize] {
    match (opcode.has_payload(), opcode.is_send()) {
        (false, _) => &[0],
        (true, false) => &[0, 1, 2, 3, 1024],
        (true, true) => &[20, 21, 22, 23, 1024],
    }
}

/// Wireshark 4.0 knows all opcodes but that of CNP, and of course ours.
fn is_known(opcode: Opcode) -> bool {
    match opcode.transport() {
        Transport::Rc | Transport::Uc | Transport::Ud => true,
        Transport::Cnp | Transport::Extension => false,
    }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let known = Opcode::ALL.into_iter().filter(|opcode| is_known(*opcode));
    for (opcode, net) in known.flat_map(|opcode| nets().map(|net| (opcode, net))) {
        let payloads = payload_bytes(opcode);
        for (payload_bytes, syndrome) in payloads
            .iter()
            .flat_map(|bytes| syndromes(opcode).into_iter().map(move |s| (*bytes, s)))
        {
            let headers = headers(opcode, syndrome, cases.len() as u32);
            let payload = vec![0x5a; payload_bytes];
            let mut datagram = Vec::new();
            datagram::seal(&net, &headers, &payload, &mut datagram);
            cases.push(Case { net, headers, payload, datagram });
        }
    }
    cases
}

fn headers(opcode: Opcode, syndrome: Syndrome, psn: u32) -> Headers {
    let reth = Reth { va: 0x7f00_0000_1000, rkey: 0x1234, dma_bytes: DMA_BYTES };
    let atomic = AtomicEth { va: 0x7f00_0000_1000, rkey: 0x1234, swap_or_add: 5, compare: COMPARE };
    Headers {
        reth: Some(reth),
        atomic: Some(atomic),
        aeth: Some(Aeth { syndrome, msn: 9 }),
        atomic_ack: Some(3),
        imm: Some(IMM),
        ieth: Some(0x4321),
        deth: Some(Deth { qkey: 0x8001_0000, src_qpn: SRC_QPN }),
        ..Headers::new(Bth::new(opcode, 0x22, Psn::new(psn)))
    }
}

fn tshark(capture: &[u8], words: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture.pcap");
    std::fs::write(&path, capture).unwrap();
    let output = Command::new("tshark").arg("-n").arg("-r").arg(&path).args(words).output();
    let output = output.expect("tshark runs: `cargo xtask test --only tools` installs it");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

fn capture(cases: &[Case]) -> Vec<u8> {
    let mut bytes = pcap::file_header().to_vec();
    for (at, case) in cases.iter().enumerate() {
        let at = Duration::from_micros(1_500_000 * at as u64);
        pcap::append(&mut bytes, at, &case.net, &case.datagram);
    }
    bytes
}

/// The number that tshark shows for a field; none when the packet has no such field.
fn number(field: &str, shown: &str) -> Option<u64> {
    let (digits, radix) = match shown.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        // Bytes, not a number.
        None if field == "infiniband.immdt" => (shown, 16),
        None => (shown, 10),
    };
    (!digits.is_empty()).then(|| u64::from_str_radix(digits, radix).unwrap())
}

fn expected(case: &Case) -> Vec<Option<u64>> {
    let Headers { bth, aeth, .. } = case.headers;
    let if_has = |set, value: u64| bth.opcode.headers().has(set).then_some(value);
    vec![
        Some(case.net.src_port.into()),
        Some(ROCE_PORT.into()),
        Some((bth.opcode as u8).into()),
        Some(bth.dest_qpn.into()),
        Some(bth.psn.value().into()),
        Some(pad_bytes(case.payload.len()).into()),
        if_has(HeaderSet::RETH, DMA_BYTES.into()),
        if_has(HeaderSet::AETH, aeth.map_or(0, |aeth| aeth.syndrome.to_u8()).into()),
        if_has(HeaderSet::DETH, SRC_QPN.into()),
        if_has(HeaderSet::ATOMIC, COMPARE),
        if_has(HeaderSet::IMM, IMM.into()),
        case.datagram.last_chunk().copied().map(u32::from_be_bytes).map(u64::from),
    ]
}

#[test]
fn wireshark_reads_in_every_packet_what_was_written() {
    let cases = cases();
    let mut words = vec!["-T", "fields", "-E", "occurrence=f"];
    words.extend(FIELDS.iter().flat_map(|field| ["-e", *field]));
    let output = tshark(&capture(&cases), &words);
    assert_eq!(output.lines().count(), cases.len());
    for (line, case) in output.lines().zip(&cases) {
        let columns = FIELDS.iter().zip(line.split('\t'));
        let seen: Vec<_> = columns.map(|(field, shown)| number(field, shown)).collect();
        assert_eq!(seen, expected(case), "{:?} {FIELDS:?} {line}", case.headers.bth);
    }
}

#[test]
fn wireshark_finds_no_malformed_packet() {
    let cases = cases();
    assert!(cases.len() > 250, "{} packets", cases.len());
    assert_eq!(tshark(&capture(&cases), &["-Y", "_ws.malformed"]), "");
}

#[test]
fn wireshark_finds_a_malformed_packet_when_there_is_one() {
    let mut cases = cases();
    cases.truncate(1);
    cases[0].datagram.truncate(10);
    assert_ne!(tshark(&capture(&cases), &["-Y", "_ws.malformed"]), "");
}
