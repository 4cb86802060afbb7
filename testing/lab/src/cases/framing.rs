//! Which packets the kernel accepts, and which it drops silently.
use super::Collector;
use crate::bytes::pattern;
use crate::end::Options;
use crate::peer::rig::Rig;
use crate::peer::wire::encode;
use anyhow::{Result, ensure};
use catchment_roce::wire::{Bth, Headers, Opcode, ROCE_PORT};

const BYTES: usize = 32;

type Change<T> = (&'static str, fn(&mut T));

/// Changes to a valid packet, made before its ICRC is computed, that make the kernel drop it.
const SPOILS: &[Change<Vec<u8>>] = &[
    ("unknown queue pair", |packet| packet[5..8].fill(0xfe)),
    ("transport version 1", |packet| packet[1] |= 1),
    ("foreign partition", |packet| {
        packet[2..4].copy_from_slice(&[0x92, 0x34]);
    }),
    ("reserved opcode", |packet| packet[0] = 0x1f),
    ("opcode of UC", |packet| {
        packet[0] = Opcode::UcWriteOnly as u8;
    }),
    ("opcode of UD", |packet| {
        packet[0] = Opcode::UdSendOnly as u8;
    }),
    ("half a BTH", |packet| packet.truncate(8)),
    ("half a RETH", |packet| packet.truncate(20)),
];

/// Header fields of a valid WRITE that may have any value.
const FREE: &[Change<Headers>] = &[
    ("MigReq 0", |headers| headers.bth.mig_req = false),
    ("MigReq 1", |headers| headers.bth.mig_req = true),
    ("limited partition", |headers| headers.bth.pkey = 0x7fff),
    ("FECN", |headers| headers.bth.fecn = true),
    ("BECN", |headers| headers.bth.becn = true),
    ("solicited", |headers| headers.bth.solicited = true),
];

pub(crate) fn add(cases: &mut Collector<'_>) {
    for (name, spoil) in SPOILS {
        let name = format!("framing/dropped: {name}");
        cases.by_hand(&name, Options::DEFAULT, |rig| dropped(rig, *spoil));
    }
    for (name, set) in FREE {
        let name = format!("framing/taken: {name}");
        cases.by_hand(&name, Options::DEFAULT, |rig| {
            let mut headers = rig.request(Opcode::RcWriteOnly, 0, BYTES as u32);
            set(&mut headers);
            taken(rig, &headers)
        });
    }
    let mut add = |name, run: fn(&mut Rig<'_>) -> Result<()>| {
        cases.by_hand(name, Options::DEFAULT, run);
    };
    add("framing/dropped: wrong ICRC", wrong_icrc);
    add("framing/dropped: damaged payload", damaged_payload);
    add("framing/ignored: CNP", congestion_notification);
    add("framing/taken: any hop limit and traffic class", changed_on_the_way);
    add("framing/answers go to port 4791", answers_go_to_the_port);
}

fn dropped(rig: &mut Rig<'_>, spoil: fn(&mut Vec<u8>)) -> Result<()> {
    let headers = rig.request(Opcode::RcWriteOnly, 0, BYTES as u32);
    let mut transport = encode(&headers, &pattern(2, BYTES));
    spoil(&mut transport);
    no_effect(rig, |rig| rig.wire.send_transport(&transport))
}

fn wrong_icrc(rig: &mut Rig<'_>) -> Result<()> {
    let headers = rig.request(Opcode::RcWriteOnly, 0, BYTES as u32);
    let transport = encode(&headers, &pattern(2, BYTES));
    no_effect(rig, |rig| rig.wire.send_datagram(&transport, 0x0bad_c0de))
}

/// The ICRC is that of the packet before a bit of its payload changed.
fn damaged_payload(rig: &mut Rig<'_>) -> Result<()> {
    let headers = rig.request(Opcode::RcWriteOnly, 0, BYTES as u32);
    let transport = encode(&headers, &pattern(2, BYTES));
    let mut damaged = transport.clone();
    if let Some(last) = damaged.last_mut() {
        *last ^= 0x10;
    }
    no_effect(rig, |rig| rig.wire.send_with_icrc_of(&damaged, &transport))
}

fn congestion_notification(rig: &mut Rig<'_>) -> Result<()> {
    let mut bth = Bth::new(Opcode::Cnp, rig.guest.card.qpn, rig.psn);
    bth.becn = true;
    no_effect(rig, |rig| rig.wire.send(&Headers::new(bth), &[]))
}

fn no_effect(rig: &mut Rig<'_>, send: impl Fn(&mut Rig<'_>) -> Result<()>) -> Result<()> {
    rig.guest.put(0, &pattern(1, BYTES))?;
    send(rig)?;
    let msn = rig.expect_nothing()?;
    ensure!(msn == 1, "the MSN is {msn}: more than one request counted");
    rig.guest.expect_memory(0, &pattern(1, BYTES))
}

fn taken(rig: &mut Rig<'_>, headers: &Headers) -> Result<()> {
    let psn = rig.send(headers, &pattern(3, BYTES))?;
    rig.expect_ack(psn)?;
    rig.guest.expect_memory(0, &pattern(3, BYTES))
}

fn changed_on_the_way(rig: &mut Rig<'_>) -> Result<()> {
    rig.wire.set_changeable(3, 0x58)?;
    let headers = rig.request(Opcode::RcWriteOnly, 0, BYTES as u32);
    let outcome = taken(rig, &headers);
    rig.wire.set_changeable(64, 0)?;
    outcome
}

/// Answers go to port 4791 from whichever port a request came.
fn answers_go_to_the_port(rig: &mut Rig<'_>) -> Result<()> {
    let headers = rig.request(Opcode::RcWriteOnly, 0, BYTES as u32);
    rig.wire.send_from(50_001, &headers, &pattern(4, BYTES))?;
    let came = rig.expect(Opcode::RcAcknowledge, headers.bth.psn)?;
    ensure!(
        came.src_port >= 0xc000 && came.src_port != ROCE_PORT,
        "the answer came from port {}",
        came.src_port
    );
    rig.guest.expect_memory(0, &pattern(4, BYTES))
}
