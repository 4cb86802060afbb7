//! The kernel as responder: what it answers to requests that a case sends by hand.

use super::Collector;
use crate::agent::{Access, Kind, Status};
use crate::peer::rig::{LIMIT, Options, Rig, pattern, same_bytes};
use anyhow::{Context as _, Result, ensure};
use catchment_roce::Psn;
use catchment_roce::wire::{AtomicEth, Headers, NakCode, Opcode, Syndrome};

/// Payload of a full packet with the options that most cases use.
const MTU: usize = Options::DEFAULT.path_mtu as usize;

/// Requests that are refused: how the guest is set up, what is sent, and the answer.
struct Refused {
    name: &'static str,
    options: Options,
    packets: fn(&Rig<'_>) -> Vec<(Headers, usize)>,
    code: NakCode,
}

const READ_ONLY: &[Access] = &[Access::LocalWrite, Access::RemoteRead];
const WRITE_ONLY: &[Access] = &[Access::LocalWrite, Access::RemoteWrite];

const REFUSED: &[Refused] = &[
    Refused {
        name: "unknown key",
        options: Options::DEFAULT,
        packets: |rig| {
            let mut headers = rig.request(Opcode::RcWriteOnly, 0, 16);
            set_rkey(&mut headers, 0x00ba_d000);
            vec![(headers, 16)]
        },
        code: NakCode::RemoteAccess,
    },
    Refused {
        name: "beyond the end",
        options: Options::DEFAULT,
        packets: |rig| {
            let end = Options::DEFAULT.memory_bytes as u64;
            vec![(rig.request(Opcode::RcWriteOnly, end - 8, 16), 16)]
        },
        code: NakCode::RemoteAccess,
    },
    Refused {
        name: "before the start",
        options: Options::DEFAULT,
        packets: |rig| {
            vec![(
                rig.request(Opcode::RcWriteOnly, 8u64.wrapping_neg(), 16),
                16,
            )]
        },
        code: NakCode::RemoteAccess,
    },
    Refused {
        name: "READ beyond the end",
        options: Options::DEFAULT,
        packets: |rig| {
            let end = Options::DEFAULT.memory_bytes as u64;
            vec![(rig.request(Opcode::RcReadRequest, end - 8, 16), 0)]
        },
        code: NakCode::RemoteAccess,
    },
    Refused {
        name: "memory that may not be written",
        options: Options {
            memory_access: READ_ONLY,
            ..Options::DEFAULT
        },
        packets: |rig| vec![(rig.request(Opcode::RcWriteOnly, 0, 16), 16)],
        code: NakCode::RemoteAccess,
    },
    Refused {
        name: "memory that may not be read",
        options: Options {
            memory_access: WRITE_ONLY,
            ..Options::DEFAULT
        },
        packets: |rig| vec![(rig.request(Opcode::RcReadRequest, 0, 16), 0)],
        code: NakCode::RemoteAccess,
    },
    Refused {
        name: "memory without atomics",
        options: Options {
            memory_access: WRITE_ONLY,
            ..Options::DEFAULT
        },
        packets: |rig| vec![(atomic(rig, Opcode::RcFetchAdd, 0, 1, 0), 0)],
        code: NakCode::RemoteAccess,
    },
    Refused {
        name: "queue pair that may not be written",
        options: Options {
            access: READ_ONLY,
            ..Options::DEFAULT
        },
        packets: |rig| vec![(rig.request(Opcode::RcWriteOnly, 0, 16), 16)],
        code: NakCode::InvalidRequest,
    },
    Refused {
        name: "queue pair that may not be read",
        options: Options {
            access: WRITE_ONLY,
            ..Options::DEFAULT
        },
        packets: |rig| vec![(rig.request(Opcode::RcReadRequest, 0, 16), 0)],
        code: NakCode::InvalidRequest,
    },
    Refused {
        name: "queue pair without atomics",
        options: Options {
            access: WRITE_ONLY,
            ..Options::DEFAULT
        },
        packets: |rig| vec![(atomic(rig, Opcode::RcCompareSwap, 0, 1, 0), 0)],
        code: NakCode::InvalidRequest,
    },
    Refused {
        name: "misaligned atomic",
        options: Options::DEFAULT,
        packets: |rig| vec![(atomic(rig, Opcode::RcFetchAdd, 4, 1, 0), 0)],
        code: NakCode::InvalidRequest,
    },
    Refused {
        name: "MIDDLE without FIRST",
        options: Options::DEFAULT,
        packets: |rig| vec![(rig.headers(Opcode::RcWriteMiddle), MTU)],
        code: NakCode::InvalidRequest,
    },
    Refused {
        name: "LAST without FIRST",
        options: Options::DEFAULT,
        packets: |rig| vec![(rig.headers(Opcode::RcSendLast), 8)],
        code: NakCode::InvalidRequest,
    },
    Refused {
        name: "message within a message",
        options: Options::DEFAULT,
        packets: |rig| {
            let first = rig.request(Opcode::RcWriteFirst, 0, 2 * MTU as u32);
            vec![(first, MTU), (rig.request(Opcode::RcWriteOnly, 0, 8), 8)]
        },
        code: NakCode::InvalidRequest,
    },
    Refused {
        name: "short FIRST",
        options: Options::DEFAULT,
        packets: |rig| {
            let first = rig.request(Opcode::RcWriteFirst, 0, 2 * MTU as u32);
            vec![(first, MTU - 4)]
        },
        code: NakCode::InvalidRequest,
    },
    Refused {
        name: "ONLY longer than its RETH says",
        options: Options::DEFAULT,
        packets: |rig| vec![(rig.request(Opcode::RcWriteOnly, 0, 8), 16)],
        code: NakCode::InvalidRequest,
    },
    Refused {
        name: "ONLY shorter than its RETH says",
        options: Options::DEFAULT,
        packets: |rig| vec![(rig.request(Opcode::RcWriteOnly, 0, 16), 8)],
        code: NakCode::InvalidRequest,
    },
];

/// Adds the cases.
pub fn add(cases: &mut Collector<'_>) {
    for refused in REFUSED {
        let name = format!("responder/refuses: {}", refused.name);
        cases.by_hand(&name, refused.options, |rig| refuse(rig, refused));
    }
    for (name, options, run) in SINGLE {
        cases.by_hand(&format!("responder/{name}"), *options, run);
    }
}

type Single = (&'static str, Options, fn(&mut Rig<'_>) -> Result<()>);

const SINGLE: &[Single] = &[
    (
        "WRITE ONLY of every pad and length",
        Options::DEFAULT,
        write_lengths,
    ),
    (
        "WRITE FIRST, MIDDLE, LAST",
        Options::DEFAULT,
        write_in_parts,
    ),
    (
        "WRITE train is acknowledged when asked",
        Options::DEFAULT,
        train,
    ),
    (
        "WRITE with immediate data",
        Options::DEFAULT,
        write_immediate,
    ),
    ("READ of several packets", Options::DEFAULT, read_long),
    ("zero bytes need no key", Options::DEFAULT, zero_bytes),
    (
        "SEND with and without immediate data",
        Options::DEFAULT,
        send,
    ),
    ("SEND with invalidate", Options::DEFAULT, send_invalidate),
    (
        "SEND longer than the receive",
        Options::DEFAULT,
        send_too_long,
    ),
    ("atomics", Options::DEFAULT, atomics),
    ("one NAK for a gap", Options::DEFAULT, gap),
    (
        "duplicate WRITE is not done again",
        Options::DEFAULT,
        duplicate_write,
    ),
    (
        "duplicate READ is answered again",
        Options::DEFAULT,
        duplicate_read,
    ),
    (
        "duplicate atomic gets the saved result",
        Options::DEFAULT,
        duplicate_atomic,
    ),
    (
        "PSN wraps",
        Options {
            psn: 0x00ff_fffe,
            ..Options::DEFAULT
        },
        wrap,
    ),
    (
        "RNR NAK until a receive is posted",
        Options {
            min_rnr_timer: 14,
            ..Options::DEFAULT
        },
        receiver_not_ready,
    ),
];

fn set_rkey(headers: &mut Headers, rkey: u32) {
    if let Some(reth) = &mut headers.reth {
        reth.rkey = rkey;
    }
}

fn with_psn(mut headers: Headers, psn: Psn) -> Headers {
    headers.bth.psn = psn;
    headers
}

fn atomic(rig: &Rig<'_>, opcode: Opcode, offset: u64, swap_or_add: u64, compare: u64) -> Headers {
    let mut headers = rig.headers(opcode);
    headers.bth.ack_req = true;
    headers.atomic = Some(AtomicEth {
        va: rig.guest.memory.addr + offset,
        rkey: rig.guest.memory.rkey,
        swap_or_add,
        compare,
    });
    headers
}

fn refuse(rig: &mut Rig<'_>, refused: &Refused) -> Result<()> {
    rig.fill(0, &pattern(1, MTU))?;
    let packets = (refused.packets)(rig);
    let mut last = rig.psn;
    // All but the last packet are sound, and ask for no answer.
    let count = packets.len();
    for (at, (headers, bytes)) in packets.into_iter().enumerate() {
        let mut headers = with_psn(headers, rig.psn);
        headers.bth.ack_req &= at + 1 == count;
        last = rig.send(&headers, &pattern(2, bytes))?;
    }
    rig.expect_nak(last, refused.code)?;
    if count == 1 {
        rig.expect_memory(0, &pattern(1, MTU))?;
    }
    rig.expect_state("err")
}

fn write_lengths(rig: &mut Rig<'_>) -> Result<()> {
    let lengths = [1, 2, 3, 4, 5, 63, MTU - 1, MTU];
    for (at, bytes) in (1..).zip(lengths) {
        let data = pattern(at, bytes);
        let psn = rig.write(u64::from(at), &data)?;
        let msn = rig.expect_ack(psn)?;
        ensure!(msn == u32::from(at), "the MSN is {msn} after {at} requests");
        rig.expect_memory(usize::from(at), &data)?;
    }
    Ok(())
}

fn write_in_parts(rig: &mut Rig<'_>) -> Result<()> {
    let data = pattern(5, 2 * MTU + 7);
    let mut first = rig.request(Opcode::RcWriteFirst, 0, data.len() as u32);
    first.bth.ack_req = false;
    rig.send(&first, &data[..MTU])?;
    rig.send(&rig.headers(Opcode::RcWriteMiddle), &data[MTU..2 * MTU])?;
    let mut last = rig.headers(Opcode::RcWriteLast);
    last.bth.ack_req = true;
    let psn = rig.send(&last, &data[2 * MTU..])?;
    let msn = rig.expect_ack(psn)?;
    ensure!(msn == 1, "the MSN is {msn} after one message");
    rig.expect_memory(0, &data)
}

fn train(rig: &mut Rig<'_>) -> Result<()> {
    let data = pattern(6, 64);
    for at in 1..=65 {
        let mut headers = rig.request(Opcode::RcWriteOnly, 64 * at, 64);
        headers.bth.ack_req = [32, 64, 65].contains(&at);
        rig.send(&headers, &data)?;
    }
    let first = Psn::new(Options::DEFAULT.psn);
    for asked in [32, 64, 65] {
        let msn = rig.expect_ack(first.add(asked - 1))?;
        ensure!(msn == asked, "the MSN is {msn} after {asked} requests");
    }
    rig.expect_nothing().map(drop)
}

fn write_immediate(rig: &mut Rig<'_>) -> Result<()> {
    rig.post_recv(8192, 16, 7)?;
    let data = pattern(7, 100);
    let mut headers = rig.request(Opcode::RcWriteOnlyWithImm, 0, 100);
    headers.imm = Some(0x1122_3344);
    let psn = rig.send(&headers, &data)?;
    rig.expect_ack(psn)?;
    let entry = rig.expect_completion(Status::Success)?;
    let seen = (entry.wr_id, entry.opcode, entry.byte_len);
    ensure!(seen == (7, Kind::ReceiveWriteImm, 100), "{entry:?}");
    expect_immediate(entry.imm_data, 0x1122_3344)?;
    rig.expect_memory(0, &data)
}

/// pyverbs shows the four bytes as they are on the wire, read as a number of the host.
fn expect_immediate(seen: u32, sent: u32) -> Result<()> {
    ensure!(
        u32::from_be(seen) == sent,
        "the immediate data is {:#x}, sent was {sent:#x}",
        u32::from_be(seen)
    );
    Ok(())
}

fn read_long(rig: &mut Rig<'_>) -> Result<()> {
    let data = pattern(8, 3 * MTU + 5);
    rig.fill(16, &data)?;
    let headers = rig.request(Opcode::RcReadRequest, 16, data.len() as u32);
    rig.send(&headers, &[])?;
    expect_read(rig, headers.bth.psn, &data)?;
    rig.psn = headers.bth.psn.add(4);
    rig.expect_nothing().map(drop)
}

/// Receives the answer to a READ: one packet for each path MTU, with an AETH in the first and last.
fn expect_read(rig: &mut Rig<'_>, psn: Psn, data: &[u8]) -> Result<()> {
    let count = data.len().div_ceil(MTU).max(1);
    let mut seen = Vec::new();
    for at in 0..count {
        let opcode = match at {
            0 if count == 1 => Opcode::RcReadResponseOnly,
            0 => Opcode::RcReadResponseFirst,
            _ if at + 1 == count => Opcode::RcReadResponseLast,
            _ => Opcode::RcReadResponseMiddle,
        };
        let came = rig.expect(opcode, psn.add(at as u32))?;
        if let Some(aeth) = came.headers.aeth {
            ensure!(aeth.syndrome == Syndrome::ACK, "{:?}", aeth.syndrome);
        }
        seen.extend(came.payload);
    }
    same_bytes(&seen, data)
}

fn zero_bytes(rig: &mut Rig<'_>) -> Result<()> {
    let mut write = rig.request(Opcode::RcWriteOnly, 0, 0);
    set_rkey(&mut write, 0);
    let psn = rig.send(&write, &[])?;
    rig.expect_ack(psn)?;
    let mut read = rig.request(Opcode::RcReadRequest, 0, 0);
    set_rkey(&mut read, 0);
    let psn = rig.send(&read, &[])?;
    expect_read(rig, psn, &[])
}

fn send(rig: &mut Rig<'_>) -> Result<()> {
    for wr_id in 0..2 {
        rig.post_recv(4096 * wr_id, 4096, wr_id as u64)?;
    }
    let data = pattern(9, 33);
    let mut only = rig.headers(Opcode::RcSendOnly);
    only.bth.ack_req = true;
    let psn = rig.send(&only, &data)?;
    rig.expect_ack(psn)?;
    let entry = rig.expect_completion(Status::Success)?;
    let seen = (entry.wr_id, entry.opcode, entry.byte_len);
    ensure!(seen == (0, Kind::Receive, 33), "{entry:?}");
    rig.expect_memory(0, &data)?;

    let long = pattern(10, MTU + 1);
    rig.send(&rig.headers(Opcode::RcSendFirst), &long[..MTU])?;
    let mut last = rig.headers(Opcode::RcSendLastWithImm);
    last.bth.ack_req = true;
    last.imm = Some(0xdead_0001);
    let psn = rig.send(&last, &long[MTU..])?;
    rig.expect_ack(psn)?;
    let entry = rig.expect_completion(Status::Success)?;
    ensure!(
        (entry.wr_id, entry.byte_len) == (1, long.len() as u32),
        "{entry:?}"
    );
    expect_immediate(entry.imm_data, 0xdead_0001)?;
    rig.expect_memory(4096, &long)
}

/// A key that a SEND invalidates is refused afterwards.
fn send_invalidate(rig: &mut Rig<'_>) -> Result<()> {
    let rkey = rig.guest.bind_window(rig.agent, 4096)?;
    let mut write = rig.request(Opcode::RcWriteOnly, 0, 8);
    set_rkey(&mut write, rkey);
    let psn = rig.send(&write, &pattern(11, 8))?;
    rig.expect_ack(psn).context("WRITE through the window")?;
    rig.post_recv(8192, 64, 3)?;
    let mut send = rig.headers(Opcode::RcSendOnlyWithInvalidate);
    send.bth.ack_req = true;
    send.ieth = Some(rkey);
    let psn = rig.send(&send, &pattern(12, 4))?;
    rig.expect_ack(psn)?;
    let entry = rig.expect_completion(Status::Success)?;
    // The completion flag of this kernel is not the one that verbs have for it; the key is there.
    ensure!(entry.imm_data == rkey, "no invalidated key: {entry:?}");
    let again = with_psn(write, rig.psn);
    let psn = rig.send(&again, &pattern(13, 8))?;
    rig.expect_nak(psn, NakCode::RemoteAccess)?;
    rig.expect_memory(0, &pattern(11, 8))
}

/// The standard wants an invalid request; this kernel says remote operation.
fn send_too_long(rig: &mut Rig<'_>) -> Result<()> {
    rig.post_recv(0, 16, 4)?;
    let mut headers = rig.headers(Opcode::RcSendOnly);
    headers.bth.ack_req = true;
    let psn = rig.send(&headers, &pattern(14, 64))?;
    let came = rig.expect(Opcode::RcAcknowledge, psn)?;
    let code = came.headers.aeth.map(|aeth| aeth.syndrome);
    let allowed = [NakCode::InvalidRequest, NakCode::RemoteOperation];
    ensure!(
        allowed.iter().any(|nak| code == Some(Syndrome::Nak(*nak))),
        "the answer is {code:?}"
    );
    rig.expect_state("err")
}

fn atomics(rig: &mut Rig<'_>) -> Result<()> {
    rig.fill(64, &40u64.to_le_bytes())?;
    let add = atomic(rig, Opcode::RcFetchAdd, 64, 2, 0);
    do_atomic(rig, &add, 40)?;
    let swap = atomic(rig, Opcode::RcCompareSwap, 64, 1 << 40, 42);
    do_atomic(rig, &swap, 42)?;
    let fails = atomic(rig, Opcode::RcCompareSwap, 64, 7, 42);
    do_atomic(rig, &fails, 1 << 40)?;
    let wraps = atomic(rig, Opcode::RcFetchAdd, 64, u64::MAX, 0);
    do_atomic(rig, &wraps, 1 << 40)?;
    rig.expect_memory(64, &((1u64 << 40) - 1).to_le_bytes())
}

fn do_atomic(rig: &mut Rig<'_>, headers: &Headers, before: u64) -> Result<()> {
    let psn = rig.send(headers, &[])?;
    expect_atomic(rig, psn, before)
}

fn expect_atomic(rig: &mut Rig<'_>, psn: Psn, before: u64) -> Result<()> {
    let came = rig.expect(Opcode::RcAtomicAcknowledge, psn)?;
    let seen = came.headers.atomic_ack;
    ensure!(
        seen == Some(before),
        "the value before is {seen:?}, expected {before}"
    );
    Ok(())
}

/// The packet after a lost one is answered by one NAK, those after it by none.
fn gap(rig: &mut Rig<'_>) -> Result<()> {
    let lost = rig.request(Opcode::RcWriteOnly, 0, 8);
    let missing = rig.psn;
    rig.psn = missing.next();
    for at in 1..4 {
        rig.write(8 * at, &pattern(15, 8))?;
    }
    rig.expect_nak(missing, NakCode::PsnSequence)?;
    rig.psn = missing;
    let psn = rig.send(&lost, &pattern(16, 8))?;
    let msn = rig.expect_ack(psn)?;
    ensure!(msn == 1, "the MSN is {msn}: packets behind a gap were done");
    rig.expect_memory(0, &pattern(16, 8))
}

fn duplicate_write(rig: &mut Rig<'_>) -> Result<()> {
    let first = rig.write(0, &pattern(17, 16))?;
    rig.expect_ack(first)?;
    let second = rig.write(64, &pattern(18, 16))?;
    rig.expect_ack(second)?;
    let again = with_psn(rig.request(Opcode::RcWriteOnly, 0, 16), first);
    rig.wire.send(&again, &pattern(19, 16))?;
    let msn = rig.expect_ack(second)?;
    ensure!(msn == 2, "the MSN is {msn}: the duplicate counted");
    rig.expect_memory(0, &pattern(17, 16))
}

fn duplicate_read(rig: &mut Rig<'_>) -> Result<()> {
    let data = pattern(20, MTU + 9);
    rig.fill(0, &data)?;
    let headers = rig.request(Opcode::RcReadRequest, 0, data.len() as u32);
    for _ in 0..2 {
        rig.send(&headers, &[])?;
        expect_read(rig, headers.bth.psn, &data)?;
    }
    rig.psn = headers.bth.psn.add(2);
    rig.expect_nothing().map(drop)
}

fn duplicate_atomic(rig: &mut Rig<'_>) -> Result<()> {
    rig.fill(0, &5u64.to_le_bytes())?;
    let add = atomic(rig, Opcode::RcFetchAdd, 0, 1, 0);
    for _ in 0..3 {
        do_atomic(rig, &add, 5)?;
    }
    rig.expect_memory(0, &6u64.to_le_bytes())?;
    rig.expect_nothing().map(drop)
}

fn wrap(rig: &mut Rig<'_>) -> Result<()> {
    for at in 0..5 {
        let psn = rig.write(at * 8, &pattern(21, 8))?;
        rig.expect_ack(psn)?;
    }
    ensure!(rig.psn == Psn::new(3), "the case did not wrap");
    let data = pattern(21, 8);
    rig.expect_memory(32, &data)
}

/// Without a receive, a SEND is asked to wait, and may be sent again then.
fn receiver_not_ready(rig: &mut Rig<'_>) -> Result<()> {
    let mut headers = rig.headers(Opcode::RcSendOnly);
    headers.bth.ack_req = true;
    let psn = rig.send(&headers, &pattern(22, 24))?;
    rig.expect_answer(psn, Syndrome::Rnr { timer: 14 })?;
    rig.post_recv(0, 64, 5)?;
    rig.send(&headers, &pattern(22, 24))?;
    rig.expect_ack(psn)?;
    let found = rig.agent.poll(rig.guest.cq, 1, LIMIT)?;
    ensure!(
        found.first().is_some_and(|entry| entry.wr_id == 5),
        "{found:?}"
    );
    rig.expect_memory(0, &pattern(22, 24))
}
