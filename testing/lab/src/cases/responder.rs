//! The kernel as responder: how it answers requests that a case sends packet by packet.
use super::Collector;
use crate::bytes::{pattern, same_bytes};
use crate::end::Options;
use crate::end::access::{LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE};
use crate::peer::rig::Rig;
use anyhow::{Context as _, Result, ensure};
use catchment_roce::Psn;
use catchment_roce::wire::{AtomicEth, Headers, NakCode, Opcode, Syndrome};

const MTU: usize = Options::DEFAULT.path_mtu as usize;

/// Packets, the last of which is refused, with the sizes of their payloads.
type Packets = fn(&Rig<'_>) -> Vec<(Headers, usize)>;

const READ_ONLY: u32 = LOCAL_WRITE | REMOTE_READ;
const WRITE_ONLY: u32 = LOCAL_WRITE | REMOTE_WRITE;
const ANY: Options = Options::DEFAULT;
const END: u64 = ANY.memory_bytes as u64;

pub(crate) fn add(cases: &mut Collector<'_>) {
    add_refusals(cases);
    let mut add = |name, options, run: fn(&mut Rig<'_>) -> Result<()>| {
        cases.by_hand(&format!("responder/{name}"), options, run);
    };
    add("WRITE ONLY of every pad and length", ANY, write_lengths);
    add("WRITE FIRST, MIDDLE, LAST", ANY, write_in_parts);
    add("WRITE train is acknowledged when asked", ANY, train);
    add("WRITE with immediate data", ANY, write_immediate);
    add("READ of several packets", ANY, read_long);
    add("zero bytes need no key", ANY, zero_bytes);
    add("SEND with and without immediate data", ANY, send);
    add("SEND with invalidate", ANY, send_invalidate);
    add("SEND longer than the receive", ANY, send_too_long);
    add("atomics", ANY, atomics);
    add("one NAK for a gap", ANY, gap);
    add("duplicate WRITE is not done again", ANY, duplicate_write);
    add("duplicate READ is answered again", ANY, duplicate_read);
    add("duplicate atomic gets the saved result", ANY, duplicate_atomic);
    let wrapping = Options { psn: 0x00ff_fffe, ..ANY };
    add("PSN wraps", wrapping, wrap);
    let slow = Options { min_rnr_timer: 14, ..ANY };
    add("RNR NAK until a receive is posted", slow, receiver_not_ready);
}

fn add_refusals(cases: &mut Collector<'_>) {
    for (name, options, code, packets) in REFUSALS {
        let name = format!("responder/refuses: {name}");
        cases.by_hand(&name, options, move |rig| refuse(rig, packets, code));
    }
}

const fn memory(memory_access: u32) -> Options {
    Options { memory_access, ..ANY }
}

const fn queue_pair(access: u32) -> Options {
    Options { access, ..ANY }
}

const WRITE: Packets = |rig| vec![(rig.request(Opcode::RcWriteOnly, 0, 16), 16)];
const READ: Packets = |rig| vec![(rig.request(Opcode::RcReadRequest, 0, 16), 0)];
const FETCH_ADD: Packets = |rig| vec![(atomic(rig, Opcode::RcFetchAdd, 0, 1, 0), 0)];
const COMPARE_SWAP: Packets = |rig| vec![(atomic(rig, Opcode::RcCompareSwap, 0, 1, 0), 0)];

/// What a queue pair with these options refuses, and with which NAK code.
#[rustfmt::skip]
const REFUSALS: [(&str, Options, NakCode, Packets); 17] = {
    use NakCode::{InvalidRequest, RemoteAccess};
    use Opcode::{
        RcFetchAdd, RcReadRequest, RcSendLast, RcWriteFirst, RcWriteMiddle, RcWriteOnly,
    };
    [
        ("unknown key", ANY, RemoteAccess, |rig| {
            let mut headers = rig.request(RcWriteOnly, 0, 16);
            set_rkey(&mut headers, 0x00ba_d000);
            vec![(headers, 16)]
        }),
        ("beyond the end", ANY, RemoteAccess, |rig| {
            vec![(rig.request(RcWriteOnly, END - 8, 16), 16)]
        }),
        ("before the start", ANY, RemoteAccess, |rig| {
            vec![(rig.request(RcWriteOnly, 8u64.wrapping_neg(), 16), 16)]
        }),
        ("READ beyond the end", ANY, RemoteAccess, |rig| {
            vec![(rig.request(RcReadRequest, END - 8, 16), 0)]
        }),
        ("memory that may not be written", memory(READ_ONLY), RemoteAccess, WRITE),
        ("memory that may not be read", memory(WRITE_ONLY), RemoteAccess, READ),
        ("memory without atomics", memory(WRITE_ONLY), RemoteAccess, FETCH_ADD),
        ("queue pair that may not be written", queue_pair(READ_ONLY), InvalidRequest, WRITE),
        ("queue pair that may not be read", queue_pair(WRITE_ONLY), InvalidRequest, READ),
        ("queue pair without atomics", queue_pair(WRITE_ONLY), InvalidRequest, COMPARE_SWAP),
        ("misaligned atomic", ANY, InvalidRequest, |rig| {
            vec![(atomic(rig, RcFetchAdd, 4, 1, 0), 0)]
        }),
        ("MIDDLE without FIRST", ANY, InvalidRequest, |rig| {
            vec![(rig.headers(RcWriteMiddle), MTU)]
        }),
        ("LAST without FIRST", ANY, InvalidRequest, |rig| vec![(rig.headers(RcSendLast), 8)]),
        ("message within a message", ANY, InvalidRequest, |rig| {
            let first = rig.request(RcWriteFirst, 0, 2 * MTU as u32);
            vec![(first, MTU), (rig.request(RcWriteOnly, 0, 8), 8)]
        }),
        ("short FIRST", ANY, InvalidRequest, |rig| {
            vec![(rig.request(RcWriteFirst, 0, 2 * MTU as u32), MTU - 4)]
        }),
        ("ONLY longer than its RETH says", ANY, InvalidRequest, |rig| {
            vec![(rig.request(RcWriteOnly, 0, 8), 16)]
        }),
        ("ONLY shorter than its RETH says", ANY, InvalidRequest, |rig| {
            vec![(rig.request(RcWriteOnly, 0, 16), 8)]
        }),
    ]
};

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
        va: rig.guest.card.addr + offset,
        rkey: rig.guest.card.rkey,
        swap_or_add,
        compare,
    });
    headers
}

fn refuse(rig: &mut Rig<'_>, packets: Packets, code: NakCode) -> Result<()> {
    rig.guest.put(0, &pattern(1, MTU))?;
    let packets = packets(rig);
    let mut last = rig.psn;
    // All packets but the last are valid and request no ACK.
    let count = packets.len();
    for (at, (headers, bytes)) in packets.into_iter().enumerate() {
        let mut headers = with_psn(headers, rig.psn);
        headers.bth.ack_req &= at + 1 == count;
        last = rig.send(&headers, &pattern(2, bytes))?;
    }
    rig.expect_nak(last, code)?;
    if count == 1 {
        rig.guest.expect_memory(0, &pattern(1, MTU))?;
    }
    rig.expect_state("Err")
}

fn write_lengths(rig: &mut Rig<'_>) -> Result<()> {
    let lengths = [1, 2, 3, 4, 5, 63, MTU - 1, MTU];
    for (at, bytes) in (1u8..).zip(lengths) {
        let data = pattern(at.into(), bytes);
        let psn = rig.write(u64::from(at), &data)?;
        let msn = rig.expect_ack(psn)?;
        ensure!(msn == u32::from(at), "the MSN is {msn} after {at} requests");
        rig.guest.expect_memory(usize::from(at), &data)?;
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
    rig.guest.expect_memory(0, &data)
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
    rig.guest.receive(7, 8192, 16)?;
    let data = pattern(7, 100);
    let mut headers = rig.request(Opcode::RcWriteOnlyWithImm, 0, 100);
    headers.imm = Some(0x1122_3344);
    let psn = rig.send(&headers, &data)?;
    rig.expect_ack(psn)?;
    let done = rig.expect_received()?;
    let seen = (done.wr_id, done.opcode.as_str(), done.bytes);
    ensure!(seen == (7, "RecvWriteImm", 100), "{done:?}");
    ensure!(done.imm == Some(0x1122_3344), "{done:x?}");
    rig.guest.expect_memory(0, &data)
}

fn read_long(rig: &mut Rig<'_>) -> Result<()> {
    let data = pattern(8, 3 * MTU + 5);
    rig.guest.put(16, &data)?;
    let headers = rig.request(Opcode::RcReadRequest, 16, data.len() as u32);
    rig.send(&headers, &[])?;
    expect_read(rig, headers.bth.psn, &data)?;
    rig.psn = headers.bth.psn.add(4);
    rig.expect_nothing().map(drop)
}

/// Receives the response to a READ: packets of one path MTU, with an AETH in the first and last.
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
        rig.guest.receive(wr_id as u64, 4096 * wr_id, 4096)?;
    }
    let data = pattern(9, 33);
    let mut only = rig.headers(Opcode::RcSendOnly);
    only.bth.ack_req = true;
    let psn = rig.send(&only, &data)?;
    rig.expect_ack(psn)?;
    let done = rig.expect_received()?;
    let seen = (done.wr_id, done.opcode.as_str(), done.bytes);
    ensure!(seen == (0, "Recv", 33), "{done:?}");
    rig.guest.expect_memory(0, &data)?;

    let long = pattern(10, MTU + 1);
    rig.send(&rig.headers(Opcode::RcSendFirst), &long[..MTU])?;
    let mut last = rig.headers(Opcode::RcSendLastWithImm);
    last.bth.ack_req = true;
    last.imm = Some(0xdead_0001);
    let psn = rig.send(&last, &long[MTU..])?;
    rig.expect_ack(psn)?;
    let done = rig.expect_received()?;
    let seen = (done.wr_id, done.bytes, done.imm);
    let expected = (1, long.len() as u64, Some(0xdead_0001));
    ensure!(seen == expected, "{done:x?}");
    rig.guest.expect_memory(4096, &long)
}

/// A key that a SEND invalidates is refused afterwards.
fn send_invalidate(rig: &mut Rig<'_>) -> Result<()> {
    let rkey = rig.guest.bind_window(4096)?;
    let mut write = rig.request(Opcode::RcWriteOnly, 0, 8);
    set_rkey(&mut write, rkey);
    let psn = rig.send(&write, &pattern(11, 8))?;
    rig.expect_ack(psn).context("WRITE through the window")?;
    rig.guest.receive(3, 8192, 64)?;
    let mut send = rig.headers(Opcode::RcSendOnlyWithInvalidate);
    send.bth.ack_req = true;
    send.ieth = Some(rkey);
    let psn = rig.send(&send, &pattern(12, 4))?;
    rig.expect_ack(psn)?;
    let done = rig.expect_received()?;
    ensure!(done.invalidated == Some(rkey), "{done:x?}");
    let again = with_psn(write, rig.psn);
    let psn = rig.send(&again, &pattern(13, 8))?;
    rig.expect_nak(psn, NakCode::RemoteAccess)?;
    rig.guest.expect_memory(0, &pattern(11, 8))
}

/// The standard asks for an invalid-request NAK; this kernel sends a remote operational error.
fn send_too_long(rig: &mut Rig<'_>) -> Result<()> {
    rig.guest.receive(4, 0, 16)?;
    let mut headers = rig.headers(Opcode::RcSendOnly);
    headers.bth.ack_req = true;
    let psn = rig.send(&headers, &pattern(14, 64))?;
    let came = rig.expect(Opcode::RcAcknowledge, psn)?;
    let code = came.headers.aeth.map(|aeth| aeth.syndrome);
    let allowed = [NakCode::InvalidRequest, NakCode::RemoteOperation];
    ensure!(allowed.iter().any(|nak| code == Some(Syndrome::Nak(*nak))), "the answer is {code:?}");
    rig.expect_state("Err")
}

fn atomics(rig: &mut Rig<'_>) -> Result<()> {
    rig.guest.put(64, &40u64.to_le_bytes())?;
    let add = atomic(rig, Opcode::RcFetchAdd, 64, 2, 0);
    do_atomic(rig, &add, 40)?;
    let swap = atomic(rig, Opcode::RcCompareSwap, 64, 1 << 40, 42);
    do_atomic(rig, &swap, 42)?;
    let fails = atomic(rig, Opcode::RcCompareSwap, 64, 7, 42);
    do_atomic(rig, &fails, 1 << 40)?;
    let wraps = atomic(rig, Opcode::RcFetchAdd, 64, u64::MAX, 0);
    do_atomic(rig, &wraps, 1 << 40)?;
    rig.guest.expect_memory(64, &((1u64 << 40) - 1).to_le_bytes())
}

fn do_atomic(rig: &mut Rig<'_>, headers: &Headers, before: u64) -> Result<()> {
    let psn = rig.send(headers, &[])?;
    let came = rig.expect(Opcode::RcAtomicAcknowledge, psn)?;
    let seen = came.headers.atomic_ack;
    ensure!(seen == Some(before), "the value before is {seen:?}, expected {before}");
    Ok(())
}

/// The first packet after a gap is answered by a NAK, later ones are not answered.
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
    ensure!(msn == 1, "the MSN is {msn}: packets after a gap were executed");
    rig.guest.expect_memory(0, &pattern(16, 8))
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
    rig.guest.expect_memory(0, &pattern(17, 16))
}

fn duplicate_read(rig: &mut Rig<'_>) -> Result<()> {
    let data = pattern(20, MTU + 9);
    rig.guest.put(0, &data)?;
    let headers = rig.request(Opcode::RcReadRequest, 0, data.len() as u32);
    for _ in 0..2 {
        rig.send(&headers, &[])?;
        expect_read(rig, headers.bth.psn, &data)?;
    }
    rig.psn = headers.bth.psn.add(2);
    rig.expect_nothing().map(drop)
}

fn duplicate_atomic(rig: &mut Rig<'_>) -> Result<()> {
    rig.guest.put(0, &5u64.to_le_bytes())?;
    let add = atomic(rig, Opcode::RcFetchAdd, 0, 1, 0);
    for _ in 0..3 {
        do_atomic(rig, &add, 5)?;
    }
    rig.guest.expect_memory(0, &6u64.to_le_bytes())?;
    rig.expect_nothing().map(drop)
}

fn wrap(rig: &mut Rig<'_>) -> Result<()> {
    for at in 0..5 {
        let psn = rig.write(at * 8, &pattern(21, 8))?;
        rig.expect_ack(psn)?;
    }
    ensure!(rig.psn == Psn::new(3), "the case did not wrap");
    let data = pattern(21, 8);
    rig.guest.expect_memory(32, &data)
}

/// Without a receive, a SEND is asked to wait, and may be sent again then.
fn receiver_not_ready(rig: &mut Rig<'_>) -> Result<()> {
    let mut headers = rig.headers(Opcode::RcSendOnly);
    headers.bth.ack_req = true;
    let psn = rig.send(&headers, &pattern(22, 24))?;
    rig.expect_answer(psn, Syndrome::Rnr { timer: 14 })?;
    rig.guest.receive(5, 0, 64)?;
    rig.send(&headers, &pattern(22, 24))?;
    rig.expect_ack(psn)?;
    let done = rig.expect_received()?;
    ensure!(done.wr_id == 5, "{done:?}");
    rig.guest.expect_memory(0, &pattern(22, 24))
}
