//! Whatever is encoded decodes to the same, and no bytes do harm.
use catchment_roce::Psn;
use catchment_roce::wire::datagram::{self, OpenError};
use catchment_roce::wire::net::{Ip, Ipv4Id, MAX_NET_BYTES, NetHeader};
use catchment_roce::wire::{
    Aeth, AtomicEth, Bth, Deth, HeaderSet, Headers, ICRC_BYTES, Icrc, MAX_HEADER_BYTES, Opcode,
    PKEY_DEFAULT, Packet, Reth, Syndrome, icrc, ip_id, pad_bytes,
};
use proptest::prelude::*;

const QPN: std::ops::Range<u32> = 0..1 << 24;

fn opcode() -> impl Strategy<Value = Opcode> {
    proptest::sample::select(&Opcode::ALL[..])
}

prop_compose! {
    fn bth()(opcode in opcode(), flags: [bool; 5], dest_qpn in QPN, psn: u32) -> Bth {
        let [solicited, mig_req, fecn, becn, ack_req] = flags;
        Bth { solicited, mig_req, fecn, becn, ack_req, ..Bth::new(opcode, dest_qpn, Psn::new(psn)) }
    }
}

prop_compose! {
    /// Headers that fit their opcode.
    fn headers()(
        bth in bth(),
        deth in (any::<u32>(), QPN),
        reth: (u64, u32, u32),
        atomic: (u64, u32, u64, u64),
        aeth in (any::<u8>(), QPN),
        words: (u64, u32, u32),
    ) -> Headers {
        let has = |set| bth.opcode.headers().has(set);
        let (qkey, src_qpn) = deth;
        let (va, rkey, dma_bytes) = reth;
        let (atomic_va, atomic_rkey, swap_or_add, compare) = atomic;
        let atomic = AtomicEth { va: atomic_va, rkey: atomic_rkey, swap_or_add, compare };
        let aeth = Aeth { syndrome: Syndrome::from_u8(aeth.0), msn: aeth.1 };
        let (atomic_ack, imm, ieth) = words;
        Headers {
            bth,
            deth: has(HeaderSet::DETH).then_some(Deth { qkey, src_qpn }),
            reth: has(HeaderSet::RETH).then_some(Reth { va, rkey, dma_bytes }),
            atomic: has(HeaderSet::ATOMIC).then_some(atomic),
            aeth: has(HeaderSet::AETH).then_some(aeth),
            atomic_ack: has(HeaderSet::ATOMIC_ACK).then_some(atomic_ack),
            imm: has(HeaderSet::IMM).then_some(imm),
            ieth: has(HeaderSet::IETH).then_some(ieth),
        }
    }
}

fn net() -> impl Strategy<Value = NetHeader> {
    let ports = (any::<u16>(), any::<u16>());
    let id =
        (any::<u16>(), any::<bool>()).prop_map(|(id, dont_fragment)| Ipv4Id { id, dont_fragment });
    let v4 = (any::<[u8; 4]>(), any::<[u8; 4]>(), id).prop_map(|(src, dst, id)| Ip::V4 {
        src: src.into(),
        dst: dst.into(),
        id,
    });
    let v6 = (any::<[u8; 16]>(), any::<[u8; 16]>())
        .prop_map(|(src, dst)| Ip::V6 { src: src.into(), dst: dst.into() });
    (prop_oneof![v4, v6], ports).prop_map(|(ip, (src_port, dst_port))| NetHeader {
        ip,
        src_port,
        dst_port,
    })
}

fn payload_of(opcode: Opcode) -> impl Strategy<Value = Vec<u8>> {
    let most = if opcode.has_payload() { 300 } else { 0 };
    proptest::collection::vec(any::<u8>(), 0..=most)
}

fn packet() -> impl Strategy<Value = (Headers, Vec<u8>)> {
    headers().prop_flat_map(|headers| (Just(headers), payload_of(headers.bth.opcode)))
}

fn sealed(net: &NetHeader, headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::new();
    datagram::seal(net, headers, payload, &mut datagram);
    datagram
}

proptest! {
    #[test]
    fn headers_decode_to_what_was_encoded(headers in headers(), behind: [u8; 3]) {
        let mut encoded = [0xa5; MAX_HEADER_BYTES];
        let bytes = headers.encode(&mut encoded);
        prop_assert_eq!(bytes, headers.bth.opcode.header_bytes());
        prop_assert!(encoded[bytes..].iter().all(|byte| *byte == 0xa5), "not one byte more");
        let mut whole = encoded[..bytes].to_vec();
        whole.extend(behind);
        prop_assert_eq!(Headers::decode(&whole), Ok((headers, bytes)));
        for cut in 0..bytes {
            prop_assert!(Headers::decode(&whole[..cut]).is_err(), "{} of {} bytes", cut, bytes);
        }
    }

    #[test]
    fn datagrams_open_to_what_was_sealed(net in net(), (headers, payload) in packet()) {
        let datagram = sealed(&net, &headers, &payload);
        prop_assert_eq!(datagram.len() % 4, 0);
        let packet = datagram::open(&net, &datagram, &mut ip_id::Solver::new()).unwrap();
        prop_assert_eq!(packet.payload, &payload[..]);
        let mut expected = headers;
        expected.bth.pad = pad_bytes(payload.len());
        prop_assert_eq!(packet.headers, expected);
    }

    #[test]
    fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..80), net in net()) {
        let _ = NetHeader::decode(&bytes);
        let _ = datagram::open(&net, &bytes, &mut ip_id::Solver::new());
        if let Ok((headers, header_bytes)) = Headers::decode(&bytes) {
            let mut encoded = [0; MAX_HEADER_BYTES];
            prop_assert_eq!(headers.encode(&mut encoded), header_bytes);
            prop_assert_eq!(Headers::decode(&encoded[..header_bytes]), Ok((headers, header_bytes)));
        }
        if let Ok(packet) = Packet::decode(&bytes) {
            prop_assert_eq!(pad_bytes(packet.payload.len()) & 3, packet.headers.bth.pad);
        }
    }

    /// Bytes that begin like a packet: most random ones have no opcode.
    #[test]
    fn no_bytes_after_an_opcode_do_harm(
        opcode in opcode(),
        pad in 0_u8..4,
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        let transport: Vec<u8> = [opcode as u8, pad << 4].into_iter().chain(bytes).collect();
        if let Ok(packet) = Packet::decode(&transport) {
            let len = opcode.header_bytes() + packet.payload.len() + usize::from(pad);
            prop_assert_eq!(len, transport.len());
            prop_assert!(opcode.has_payload() || len == opcode.header_bytes());
        }
    }

    #[test]
    fn ip_and_udp_headers_decode_to_what_was_encoded(
        net in net(),
        datagram in proptest::collection::vec(any::<u8>(), 0..100),
        trailer in proptest::collection::vec(any::<u8>(), 0..8),
    ) {
        let mut encoded = [0; MAX_NET_BYTES];
        let net_bytes = net.encode(datagram.len(), &mut encoded);
        prop_assert_eq!(net_bytes, net.bytes());
        let mut packet = encoded[..net_bytes].to_vec();
        packet.extend(&datagram);
        let whole = packet.len();
        packet.extend(trailer);
        prop_assert_eq!(NetHeader::decode(&packet), Ok((net, &datagram[..])));
        for cut in 0..whole {
            prop_assert!(NetHeader::decode(&packet[..cut]).is_err(), "{} of {} bytes", cut, whole);
        }
    }

    #[test]
    fn a_changed_bit_is_found_unless_routers_may_change_it(
        net in net(), (headers, payload) in packet(), position: prop::sample::Index,
    ) {
        let datagram = sealed(&net, &headers, &payload);
        let bit = position.index(8 * datagram.len());
        let mut changed = datagram.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let (transport, received) = icrc::split(&changed).unwrap();
        let verdict = icrc::verify(&net, transport, received);
        // Byte 4 of the BTH has the congestion bits.
        prop_assert_eq!(verdict.is_ok(), bit / 8 == 4, "bit {} of {:?}", bit, headers);
    }

    #[test]
    fn other_addresses_ports_or_lengths_have_another_icrc(
        net in net(), other in net(), (headers, payload) in packet(),
    ) {
        prop_assume!(net != other);
        let datagram = sealed(&net, &headers, &payload);
        let (transport, received) = icrc::split(&datagram).unwrap();
        prop_assert!(icrc::verify(&other, transport, received).is_err());
        let begun_for_more = Icrc::begin(&net, transport.len() + 4);
        let mut icrc = begun_for_more;
        icrc.headers(transport);
        prop_assert_ne!(icrc.finish(), received);
    }

    #[test]
    fn any_ipv4_identification_is_found(
        src: [u8; 4], dst: [u8; 4], id: u16, dont_fragment: bool, words in 3_usize..1100,
    ) {
        let id = Ipv4Id { id, dont_fragment };
        let net = NetHeader::v4(src.into(), dst.into(), 0xc123);
        let transport: Vec<u8> = (0..4 * words).map(|at| (at * 31) as u8).collect();
        let received = icrc::compute(&net.with_ipv4_id(id), &transport);
        let syndrome = icrc::compute(&net, &transport) ^ received;
        prop_assert_eq!(ip_id::solve(syndrome, transport.len()), Some(id));
        prop_assert_eq!(ip_id::Solver::new().verify(&net, &transport, received), Ok(Some(id)));
    }

    /// One solver, lengths that share its memory, and syndromes that mean nothing.
    #[test]
    fn what_a_solver_remembers_changes_nothing(
        questions in proptest::collection::vec((any::<u32>(), 0_usize..2000), 1..40),
    ) {
        let mut solver = ip_id::Solver::new();
        for (syndrome, transport_bytes) in questions {
            let expected = ip_id::solve(syndrome, transport_bytes);
            prop_assert_eq!(solver.solve(syndrome, transport_bytes), expected);
        }
    }
}

#[test]
fn a_damaged_ipv4_packet_passes_once_in_thirty_thousand() {
    let mut solver = ip_id::Solver::new();
    let rounds = 1_u32 << 21;
    let passed = (1..=rounds)
        .filter(|round| solver.solve(round.wrapping_mul(0x9e37_79b1), 1052).is_some())
        .count();
    let expected = (rounds >> 15) as usize;
    assert!((expected / 2..expected * 2).contains(&passed), "{passed}, about {expected} expected");
}

#[test]
fn only_the_default_partition_is_taken() {
    let net = NetHeader::v6([1; 16].into(), [2; 16].into(), 0xc000);
    for pkey in 0..=u16::MAX {
        let mut bth = Bth::new(Opcode::RcSendOnly, 17, Psn::new(3));
        bth.pkey = pkey;
        let datagram = sealed(&net, &Headers::new(bth), b"");
        assert_eq!(datagram.len(), Opcode::RcSendOnly.header_bytes() + ICRC_BYTES);
        let opened = datagram::open(&net, &datagram, &mut ip_id::Solver::new()).map(|_| ());
        let full_or_limited = [PKEY_DEFAULT, 0x7fff].contains(&pkey);
        let expected = if full_or_limited { Ok(()) } else { Err(OpenError::PartitionKey(pkey)) };
        assert_eq!(opened, expected);
    }
}
