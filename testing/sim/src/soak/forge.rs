//! Packets of an attacker that knows addresses, queue pair numbers, keys and the ICRC, but no PSN.
//!
//! They must change nothing: their PSNs are far from those that a queue pair expects, or their
//! queue pair does not exist.
use crate::roce::seal;
use crate::{Frame, Random};
use catchment_roce::Psn;
use catchment_roce::wire::net::{NetHeader, source_port};
use catchment_roce::wire::{
    Aeth, AtomicEth, Bth, Headers, MAX_HEADER_BYTES, NakCode, Opcode, Reth, Syndrome, pad_bytes,
};
use std::net::Ipv6Addr;

/// The destination of a forged packet, and the source it claims.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Victim {
    pub(crate) address: Ipv6Addr,
    pub(crate) qpn: u32,
    pub(crate) peer_address: Ipv6Addr,
    pub(crate) peer_qpn: u32,
    /// The first PSNs of both directions, responder's and requester's.
    pub(crate) first_psns: [Psn; 2],
    /// A region to which peers have rights.
    pub(crate) rkey: u32,
    pub(crate) addr: u64,
    pub(crate) path_mtu: usize,
}

/// Runs have fewer packets than this, so a PSN this far from the first is never expected.
const FAR: u32 = 1 << 22;

pub(crate) fn forge(victim: &Victim, random: &mut Random) -> Frame {
    let opcode = loop {
        // CNPs carry no PSN, so a forged one has an effect.
        match random.pick(&Opcode::ALL) {
            Some(Opcode::Cnp) | None => {}
            Some(opcode) => break opcode,
        }
    };
    let mut payload = vec![0; payload_bytes(opcode, victim, random)];
    random.fill(&mut payload);
    let headers = headers(opcode, payload.len(), victim, random);
    let mut bytes = [0; MAX_HEADER_BYTES];
    let length = headers.encode(&mut bytes);
    let port = source_port(victim.peer_qpn, victim.qpn);
    let net = NetHeader::v6(victim.peer_address, victim.address, port);
    let pad = usize::from(pad_bytes(payload.len()));
    let pieces = std::iter::once(&payload[..]);
    seal(&net, &bytes[..length], pieces, payload.len(), pad)
}

fn payload_bytes(opcode: Opcode, victim: &Victim, random: &mut Random) -> usize {
    match random.below(3) {
        _ if !opcode.has_payload() => 0,
        0 => victim.path_mtu,
        _ => random.index(2 * victim.path_mtu),
    }
}

fn headers(opcode: Opcode, payload: usize, victim: &Victim, random: &mut Random) -> Headers {
    let first = victim.first_psns[random.index(2)];
    let far = random.between(u64::from(FAR), u64::from(Psn::MASK - FAR));
    let known = random.below(8) > 0;
    let (qpn, psn) = match known {
        true => (victim.qpn, first.add(far as u32)),
        false => (victim.qpn ^ 0x40_0000, first),
    };
    let mut bth = Bth::new(opcode, qpn, psn);
    bth.ack_req = random.below(2) == 0;
    bth.pad = pad_bytes(payload);
    let word = random.next_u64();
    let rkey = random.pick(&[victim.rkey, word as u32]).unwrap_or(0);
    let mut headers = Headers::new(bth);
    headers.reth = Some(Reth {
        va: victim.addr,
        rkey,
        dma_bytes: random.pick(&[payload as u32, 8, word as u32]).unwrap_or(0),
    });
    headers.atomic = Some(AtomicEth { va: victim.addr, rkey, swap_or_add: word, compare: 0 });
    headers.aeth = Some(Aeth {
        syndrome: random.pick(&SYNDROMES).unwrap_or(SYNDROMES[0]),
        msn: word as u32 & Psn::MASK,
    });
    headers.atomic_ack = Some(word);
    headers.imm = Some(word as u32);
    headers.ieth = Some(rkey);
    headers
}

const SYNDROMES: [Syndrome; 6] = [
    Syndrome::Ack { credits: 31 },
    Syndrome::Rnr { timer: 1 },
    Syndrome::Nak(NakCode::PsnSequence),
    Syndrome::Nak(NakCode::InvalidRequest),
    Syndrome::Nak(NakCode::RemoteAccess),
    Syndrome::Nak(NakCode::RemoteOperation),
];
