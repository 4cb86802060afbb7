//! Golden packets: the kernel's, a prototype's and an independent encoder's.
use crate::common::{CAPTURED, COMPUTED, Vector, number, vectors};
use catchment_roce::wire::datagram::{self, OpenError};
use catchment_roce::wire::icrc::IcrcMismatch;
use catchment_roce::wire::net::{Ip, MAX_NET_BYTES, NetHeader};
use catchment_roce::wire::{
    DropReason, Headers, Icrc, MAX_HEADER_BYTES, Opcode, Packet, ROCE_PORT, Transport, icrc, ip_id,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

fn all() -> Vec<Vector> {
    vectors(CAPTURED).into_iter().chain(vectors(COMPUTED)).collect()
}

fn valid() -> impl Iterator<Item = Vector> {
    all().into_iter().filter(|vector| vector.valid)
}

fn open(vector: &Vector) -> Result<Packet<'_>, OpenError> {
    let (net, datagram) = vector.datagram();
    datagram::open(&net, datagram, &mut ip_id::Solver::new())
}

fn packet(vector: &Vector) -> Packet<'_> {
    open(vector).unwrap_or_else(|error| panic!("{}: {error}", vector.label))
}

/// What the independent decoder calls the headers, as JSON of the same form.
fn fields(headers: &Headers) -> Vec<(&'static str, Value)> {
    let bth = headers.bth;
    let hex = |number: u64| Value::from(format!("{number:#x}"));
    let mut fields = vec![(
        "bth",
        json!({
            "opcode": bth.opcode as u8, "se": u8::from(bth.solicited),
            "migreq": u8::from(bth.mig_req), "pad": bth.pad, "tver": 0, "pkey": bth.pkey,
            "fecn": u8::from(bth.fecn), "becn": u8::from(bth.becn), "dest_qpn": bth.dest_qpn,
            "ack_req": u8::from(bth.ack_req), "psn": bth.psn.value(),
        }),
    )];
    fields.extend(
        headers.deth.map(|deth| ("deth", json!({"qkey": deth.qkey, "src_qpn": deth.src_qpn}))),
    );
    fields.extend(headers.reth.map(|reth| {
        let va = hex(reth.va);
        ("reth", json!({"va": va, "rkey": reth.rkey, "dma_len": reth.dma_bytes}))
    }));
    fields.extend(headers.atomic.map(|atomic| {
        let (swap_or_add, compare) = (hex(atomic.swap_or_add), hex(atomic.compare));
        let va = hex(atomic.va);
        (
            "atomiceth",
            json!({
                "va": va, "rkey": atomic.rkey, "swap_or_add": swap_or_add, "compare": compare,
            }),
        )
    }));
    fields.extend(
        headers
            .aeth
            .map(|aeth| ("aeth", json!({"syndrome": aeth.syndrome.to_u8(), "msn": aeth.msn}))),
    );
    fields.extend(headers.atomic_ack.map(|orig| ("atomicacketh", json!({"orig": hex(orig)}))));
    fields.extend(headers.imm.map(|imm| ("immdt", json!({"imm": hex(imm.into())}))));
    fields.extend(headers.ieth.map(|rkey| ("ieth", json!({"rkey": rkey}))));
    fields
}

#[test]
fn fields_and_payload_are_what_an_independent_decoder_saw() {
    for vector in valid() {
        let packet = packet(&vector);
        let from = number(&vector.fields["payload_offset"]).unwrap() as usize;
        let payload = &vector.packet[from..from + packet.payload.len()];
        assert_eq!(packet.payload, payload, "{}", vector.label);
        let seen = fields(&packet.headers);
        for (header, ours) in &seen {
            let theirs = &vector.fields[header];
            for (field, value) in ours.as_object().unwrap() {
                let same = theirs[field] == *value;
                assert!(same, "{}: {header}.{field} {value} {theirs}", vector.label);
            }
        }
        let theirs = vector.fields.as_object().unwrap().keys();
        let headers: BTreeSet<_> = theirs
            .map(String::as_str)
            .filter(|key| {
                !["ip", "udp", "payload_len", "payload_offset", "icrc_wire"].contains(key)
            })
            .collect();
        let ours: BTreeSet<_> = seen.iter().map(|(header, _)| *header).collect();
        assert_eq!(ours, headers, "{}", vector.label);
        let payload_bytes = number(&vector.fields["payload_len"]);
        assert_eq!(payload_bytes, Some(packet.payload.len() as u64), "{}", vector.label);
    }
}

/// Byte for byte: BTH, payload, ICRC, as in the reference vectors (S3.13).
#[test]
fn a_decoded_packet_encodes_to_the_same_bytes() {
    for vector in valid() {
        let (net, theirs) = vector.datagram();
        let packet = packet(&vector);
        let mut ours = Vec::new();
        datagram::seal(&net, &packet.headers, packet.payload, &mut ours);
        assert_eq!(ours, theirs, "{}", vector.label);
    }
}

#[test]
fn the_icrc_is_right_in_one_piece_and_in_many() {
    for vector in valid() {
        let (net, datagram) = vector.datagram();
        let (transport, received) = icrc::split(datagram).unwrap();
        assert_eq!(icrc::compute(&net, transport), received, "{}", vector.label);
        assert_eq!(vector.icrc, Some(received), "{}", vector.label);
        assert_eq!(icrc::verify(&net, transport, received), Ok(()));
        let pieces = in_pieces(&net, &packet(&vector), transport.len());
        assert_eq!(pieces, received, "{}", vector.label);
    }
}

#[test]
fn a_wrong_icrc_is_refused_with_both_numbers() {
    let wrong = |vector: &Vector| vector.note == "icrc" || vector.note.contains("wrong ICRC");
    let mut count = 0;
    for vector in all().into_iter().filter(wrong) {
        let (net, datagram) = vector.datagram();
        let (transport, received) = icrc::split(datagram).unwrap();
        let computed = icrc::compute(&net, transport);
        let mismatch = icrc::verify(&net, transport, received);
        assert_eq!(mismatch, Err(IcrcMismatch { received, computed }), "{}", vector.label);
        count += 1;
    }
    assert!(count > 10, "{count} packets");
}

/// As a sender computes it: a begun one that is kept, encoded headers, payload in two pieces, pad.
fn in_pieces(net: &NetHeader, packet: &Packet<'_>, transport_bytes: usize) -> u32 {
    let begun = Icrc::begin(net, transport_bytes);
    let mut encoded = [0; MAX_HEADER_BYTES];
    let header_bytes = packet.headers.encode(&mut encoded);
    let (front, back) = packet.payload.split_at(packet.payload.len() / 3);
    let mut icrc = begun;
    icrc.headers(&encoded[..header_bytes]);
    icrc.payload(front);
    icrc.payload(back);
    icrc.pad(packet.headers.bth.pad);
    icrc.finish()
}

/// Bits of an IP packet that routers may change (CA17-22 of IBTA annex A17), and so the ICRC may
/// not see, as bytes with the bits of each.
fn variant_bits(ipv4: bool) -> Vec<(usize, u8)> {
    // Type of service, time to live, checksum; or traffic class, flow label, hop limit.
    let (ip, udp) = if ipv4 {
        (vec![(1, 0xff), (8, 0xff), (10, 0xff), (11, 0xff)], 20)
    } else {
        (vec![(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff)], 40)
    };
    // UDP checksum; the byte of the BTH with FECN and BECN.
    let rest = [(udp + 6, 0xff), (udp + 7, 0xff), (udp + 8 + 4, 0xff)];
    ip.into_iter().chain(rest).collect()
}

fn arrives(packet: &[u8]) -> bool {
    let Ok((net, datagram)) = NetHeader::decode(packet) else { return false };
    let (transport, received) = icrc::split(datagram).unwrap();
    icrc::verify(&net, transport, received).is_ok()
}

#[test]
fn every_bit_is_covered_but_those_that_routers_change() {
    for ipv4 in [true, false] {
        let variant = variant_bits(ipv4);
        let short = |vector: &Vector| vector.is_ipv4() == ipv4 && vector.packet.len() < 100;
        for vector in valid().filter(short) {
            for bit in 0..8 * vector.packet.len() {
                let (byte, mask) = (bit / 8, 1 << (bit % 8));
                let mut changed = vector.packet.clone();
                changed[byte] ^= mask;
                let free = variant.iter().any(|(at, bits)| *at == byte && bits & mask != 0);
                assert_eq!(arrives(&changed), free, "{}: bit {bit}", vector.label);
            }
        }
    }
}

#[test]
fn a_congestion_notification_is_that_of_the_standard() {
    let mut count = 0;
    for vector in valid() {
        let headers = packet(&vector).headers;
        if headers.bth.opcode == Opcode::Cnp {
            assert_eq!(headers, Headers::cnp(headers.bth.dest_qpn), "{}", vector.label);
            count += 1;
        }
    }
    assert_eq!(count, 2);
}

#[test]
fn the_ipv4_identification_comes_out_of_the_icrc() {
    let mut solver = ip_id::Solver::new();
    let mut distinct = BTreeSet::new();
    for vector in valid().filter(Vector::is_ipv4) {
        let (net, datagram) = vector.datagram();
        let (transport, received) = icrc::split(datagram).unwrap();
        let Ip::V4 { id, .. } = net.ip else { unreachable!() };
        assert_eq!(solver.verify(&net, transport, received), Ok(Some(id)), "{}", vector.label);
        assert_eq!(number(&vector.fields["ip"]["id"]), Some(id.id.into()), "{}", vector.label);
        distinct.insert(id.id);
    }
    assert!(distinct.len() > 20, "the kernel's identifications differ: {distinct:?}");
}

/// UDP port 4791 among them (S3.13).
#[test]
fn ip_and_udp_headers_encode_as_they_were() {
    let mut same = 0;
    for vector in valid() {
        let (net, datagram) = vector.datagram();
        assert_eq!(net.dst_port, ROCE_PORT, "{}", vector.label);
        let mut encoded = [0; MAX_NET_BYTES];
        let net_bytes = net.encode(datagram.len(), &mut encoded);
        let mut theirs = vector.packet[..net_bytes].to_vec();
        match net.ip {
            // Another type of service or time to live has another checksum.
            Ip::V4 { .. } if theirs[1] != 0 || theirs[8] != 64 => continue,
            Ip::V4 { .. } => {}
            // Traffic class, flow label and hop limit are the sender's choice.
            Ip::V6 { .. } => {
                theirs[..4].copy_from_slice(&[0x60, 0, 0, 0]);
                theirs[7] = 64;
            }
        }
        // So is the UDP checksum.
        theirs[net_bytes - 2..].fill(0);
        assert_eq!(encoded[..net_bytes], theirs, "{}", vector.label);
        same += 1;
    }
    assert!(same > 150, "{same} compared");
}

/// The destination of the packet without a receiver.
const UNKNOWN_QPN: u32 = 0x3333;

/// As a receiver with reliable connections only decides.
fn drop_reason(vector: &Vector) -> Option<DropReason> {
    let bth = match open(vector) {
        Ok(packet) => packet.headers.bth,
        Err(error) => return Some(error.reason()),
    };
    if bth.dest_qpn == UNKNOWN_QPN {
        return Some(DropReason::UnknownQp);
    }
    match bth.opcode.transport() {
        Transport::Rc | Transport::Cnp => None,
        Transport::Uc | Transport::Ud | Transport::Extension => Some(DropReason::WrongTransport),
    }
}

#[test]
fn what_the_kernel_drops_is_dropped_for_the_same_reason() {
    let mut seen = BTreeSet::new();
    for vector in vectors(CAPTURED) {
        let expected = if vector.valid { None } else { Some(kernel_reason(&vector.note)) };
        assert_eq!(drop_reason(&vector), expected, "{}", vector.label);
        seen.extend(expected);
    }
    assert_eq!(seen.len(), 5, "{seen:?}");
}

fn kernel_reason(note: &str) -> DropReason {
    let (_, reason) = note.split_once("silently: ").unwrap();
    match reason {
        "wrong ICRC" => DropReason::Icrc,
        "P_Key does not match the default partition" => DropReason::PartitionKey,
        "unknown QPN" => DropReason::UnknownQp,
        "TVer != 0" => DropReason::TransportVersion,
        // The packet is a UD SEND ONLY, which a reliable connection does not take.
        "unknown opcode" => DropReason::WrongTransport,
        other => panic!("no rule for {other:?}"),
    }
}

#[test]
fn what_the_computed_packets_break_is_found() {
    let mut seen = BTreeSet::new();
    for vector in vectors(COMPUTED).iter().filter(|vector| !vector.valid) {
        let reason = open(vector).unwrap_err().reason();
        assert_eq!(reason.name(), vector.note, "{}", vector.label);
        seen.insert(reason);
    }
    let expected = [
        DropReason::TooShort,
        DropReason::Misaligned,
        DropReason::UnknownOpcode,
        DropReason::TransportVersion,
        DropReason::UnexpectedPayload,
        DropReason::Icrc,
        DropReason::PartitionKey,
    ];
    assert_eq!(seen, expected.into());
}

#[test]
fn every_opcode_has_golden_packets_over_both_versions_of_ip() {
    for ipv4 in [true, false] {
        let there: BTreeSet<u8> = valid()
            .filter(|vector| vector.is_ipv4() == ipv4)
            .map(|vector| packet(&vector).headers.bth.opcode as u8)
            .collect();
        let expected: BTreeSet<u8> = Opcode::ALL.iter().map(|opcode| *opcode as u8).collect();
        assert_eq!(there, expected, "IPv4: {ipv4}");
    }
}

#[test]
fn the_golden_packets_are_in_the_fuzz_corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/fuzz/corpus/roce");
    let files = std::fs::read_dir(&folder).unwrap();
    let there: BTreeSet<Vec<u8>> =
        files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    // Long payloads teach a fuzzer nothing.
    for vector in all().iter().filter(|vector| vector.packet.len() <= 400) {
        assert!(there.contains(&vector.packet), "{} is missing", vector.label);
    }
}
