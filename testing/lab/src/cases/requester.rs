//! The kernel as requester: what it sends, and how it handles answers that a case sends packet by
//! packet.
use super::Collector;
use crate::bytes::{pattern, same_bytes};
use crate::end::{Options, Request, Work};
use crate::peer::rig::{LIMIT, OUR_ADDR, OUR_PLACE, OUR_RKEY, Rig};
use anyhow::{Context as _, Result, bail, ensure};
use catchment_roce::Psn;
use catchment_roce::wire::aeth::rnr_timer;
use catchment_roce::wire::{Bth, Headers, NakCode, Opcode, Syndrome};
use std::time::{Duration, Instant};

const MTU: usize = Options::DEFAULT.path_mtu as usize;
const WRITE: Work = Work::Write(OUR_PLACE);
const SHORT_WRITE: (Work, usize, usize) = (WRITE, 0, 16);
const IMMEDIATE: u32 = 0x0102_0304;
const ANY: Options = Options::DEFAULT;

/// Gives up early: after three timeouts of 4.2 ms.
const IMPATIENT: Options = Options { timeout: 10, retry_cnt: 2, ..ANY };

pub(crate) fn add(cases: &mut Collector<'_>) {
    let mut add = |name, options, run: fn(&mut Rig<'_>) -> Result<()>| {
        cases.by_hand(&format!("requester/{name}"), options, run);
    };
    add("WRITE of every length", ANY, write_lengths);
    add("WRITE with immediate data", ANY, |rig| {
        immediate(rig, Work::WriteImm(OUR_PLACE, IMMEDIATE), Opcode::RcWriteLastWithImm)
    });
    add("SEND with immediate data", ANY, |rig| {
        immediate(rig, Work::SendImm(IMMEDIATE), Opcode::RcSendLastWithImm)
    });
    add("SEND with invalidate", ANY, send_invalidate);
    add("READ", ANY, read);
    let quick = Options { timeout: 14, ..ANY };
    add("READ whose answer has a gap", quick, read_gap);
    add("atomics", ANY, atomics);
    add("one ACK for several requests", ANY, coalesced);
    add("goes back after a NAK", ANY, goes_back);
    add("waits after an RNR NAK", ANY, waits);
    let once = Options { rnr_retry: 0, ..ANY };
    add("gives up after RNR NAKs", once, gives_up_waiting);
    add("sends again and gives up in silence", IMPATIENT, gives_up);
    let small = Options { path_mtu: 256, ..ANY };
    add("asks for ACKs within a long message", small, asks_within);
    let wrapping = Options { guest_psn: 0x00ff_ffff, ..ANY };
    add("PSN wraps", wrapping, wraps);
    for (name, code, status) in [
        ("invalid request", NakCode::InvalidRequest, "RemoteInvalidRequest"),
        ("remote access", NakCode::RemoteAccess, "RemoteAccess"),
        ("remote operation", NakCode::RemoteOperation, "RemoteOperation"),
    ] {
        let name = format!("requester/fails after NAK: {name}");
        cases.by_hand(&name, ANY, move |rig| fails(rig, code, status));
    }
}

/// Receives the packets of one message and checks its segmentation. Returns the payload and the last
/// headers.
fn message(rig: &mut Rig<'_>, psn: Psn, bytes: usize) -> Result<(Vec<u8>, Headers)> {
    let count = bytes.div_ceil(MTU).max(1);
    let mut payload = Vec::new();
    for at in 0..count {
        let came = rig.receive()?;
        let Bth { opcode, psn: seen, mig_req, ack_req, .. } = came.headers.bth;
        let expected = psn.add(at as u32);
        ensure!(seen == expected, "PSN {seen} came, expected {expected}");
        let place = (opcode.starts_message(), opcode.ends_message());
        let last = at + 1 == count;
        ensure!(place == (at == 0, last), "packet {at} of {count} is {opcode:?}");
        ensure!(!mig_req, "this kernel sends MigReq 0");
        ensure!(!last || ack_req, "the last packet does not request an ACK");
        if at == 0 && opcode.is_write() {
            let reth = came.headers.reth.context("no RETH")?;
            let seen = (reth.va, reth.rkey, reth.dma_bytes as usize);
            ensure!(seen == (OUR_ADDR, OUR_RKEY, bytes), "{reth:?}");
        }
        payload.extend(came.payload);
        if last {
            return Ok((payload, came.headers));
        }
    }
    bail!("a message has at least one packet")
}

fn write_lengths(rig: &mut Rig<'_>) -> Result<()> {
    let mut psn = rig.guest_psn;
    for (msn, bytes) in (1..).zip([0, 1, 3, MTU - 1, MTU, MTU + 1, 4 * MTU + 2]) {
        let data = pattern(msn.into(), bytes);
        rig.guest.put(0, &data)?;
        rig.guest.post(&[(WRITE, 0, bytes)])?;
        let (seen, last) = message(rig, psn, bytes)?;
        same_bytes(&seen, &data)?;
        rig.answer(last.bth.psn, Syndrome::ACK, msn)?;
        let done = rig.expect_sent("Success")?;
        ensure!(done.opcode == "Write", "{done:?}");
        psn = last.bth.psn.next();
    }
    Ok(())
}

fn immediate(rig: &mut Rig<'_>, work: Work, opcode: Opcode) -> Result<()> {
    let bytes = MTU + 10;
    let data = pattern(2, bytes);
    rig.guest.put(0, &data)?;
    rig.guest.post(&[(work, 0, bytes)])?;
    let (seen, last) = message(rig, rig.guest_psn, bytes)?;
    same_bytes(&seen, &data)?;
    ensure!(last.bth.opcode == opcode, "{:?}", last.bth.opcode);
    ensure!(last.imm == Some(IMMEDIATE), "{:x?}", last.imm);
    rig.answer(last.bth.psn, Syndrome::ACK, 1)?;
    rig.expect_sent("Success").map(drop)
}

fn send_invalidate(rig: &mut Rig<'_>) -> Result<()> {
    rig.guest.post(&[(Work::SendInvalidate(OUR_RKEY), 0, 8)])?;
    let (_, last) = message(rig, rig.guest_psn, 8)?;
    ensure!(last.bth.opcode == Opcode::RcSendOnlyWithInvalidate);
    ensure!(last.ieth == Some(OUR_RKEY), "the key is {:x?}", last.ieth);
    rig.answer(last.bth.psn, Syndrome::ACK, 1)?;
    rig.expect_sent("Success").map(drop)
}

fn read_request(rig: &mut Rig<'_>, psn: Psn, va: u64, bytes: usize) -> Result<()> {
    let came = rig.expect(Opcode::RcReadRequest, psn)?;
    let reth = came.headers.reth.context("no RETH")?;
    let seen = (reth.va, reth.rkey, reth.dma_bytes as usize);
    ensure!(seen == (va, OUR_RKEY, bytes), "{reth:x?}");
    Ok(())
}

fn respond(rig: &Rig<'_>, opcode: Opcode, psn: Psn, payload: &[u8]) -> Result<()> {
    rig.wire.send(&rig.response(opcode, psn, Syndrome::ACK, 1), payload)
}

fn read(rig: &mut Rig<'_>) -> Result<()> {
    let (psn, data) = (rig.guest_psn, pattern(3, 2 * MTU + 11));
    rig.guest.post(&[(Work::Read(OUR_PLACE), 32, data.len())])?;
    read_request(rig, psn, OUR_ADDR, data.len())?;
    let (first, rest) = data.split_at(MTU);
    let (middle, last) = rest.split_at(MTU);
    respond(rig, Opcode::RcReadResponseFirst, psn, first)?;
    respond(rig, Opcode::RcReadResponseMiddle, psn.add(1), middle)?;
    respond(rig, Opcode::RcReadResponseLast, psn.add(2), last)?;
    let done = rig.expect_sent("Success")?;
    ensure!(done.opcode == "Read", "{done:?}");
    rig.guest.expect_memory(32, &data)
}

/// After a gap, the kernel waits for its timeout, then asks for what is missing.
fn read_gap(rig: &mut Rig<'_>) -> Result<()> {
    let (psn, data) = (rig.guest_psn, pattern(4, 2 * MTU + 11));
    rig.guest.post(&[(Work::Read(OUR_PLACE), 0, data.len())])?;
    read_request(rig, psn, OUR_ADDR, data.len())?;
    let (first, rest) = data.split_at(MTU);
    let (middle, last) = rest.split_at(MTU);
    respond(rig, Opcode::RcReadResponseFirst, psn, first)?;
    respond(rig, Opcode::RcReadResponseLast, psn.add(2), last)?;
    let missing = psn.add(1);
    read_request(rig, missing, OUR_ADDR + MTU as u64, rest.len())?;
    respond(rig, Opcode::RcReadResponseMiddle, missing, middle)?;
    respond(rig, Opcode::RcReadResponseLast, psn.add(2), last)?;
    rig.expect_sent("Success")?;
    rig.guest.expect_memory(0, &data)
}

fn atomics(rig: &mut Rig<'_>) -> Result<()> {
    let works = [
        (Work::FetchAdd(OUR_PLACE, 5), Opcode::RcFetchAdd, (5, 0), 0x0102_0304_0506_0708u64),
        (Work::CompareSwap(OUR_PLACE, 6, 7), Opcode::RcCompareSwap, (7, 6), 6),
    ];
    for (at, (work, opcode, operands, before)) in (0..).zip(works) {
        let (psn, offset) = (rig.guest_psn.add(at), 8 * at as usize);
        rig.guest.post(&[(work, offset, 8)])?;
        let came = rig.expect(opcode, psn)?;
        let seen = came.headers.atomic.context("no AtomicETH")?;
        ensure!((seen.swap_or_add, seen.compare) == operands, "{seen:?}");
        let mut headers = rig.response(Opcode::RcAtomicAcknowledge, psn, Syndrome::ACK, 1);
        headers.atomic_ack = Some(before);
        rig.wire.send(&headers, &[])?;
        rig.expect_sent("Success")?;
        rig.guest.expect_memory(offset, &before.to_le_bytes())?;
    }
    Ok(())
}

/// Posts short WRITEs and receives them.
fn short_writes(rig: &mut Rig<'_>, count: u32) -> Result<()> {
    rig.guest.post(&vec![SHORT_WRITE; count as usize])?;
    (0..count).try_for_each(|at| message(rig, rig.guest_psn.add(at), 16).map(drop))
}

fn all_succeed(rig: &mut Rig<'_>, count: u32) -> Result<()> {
    (0..count).try_for_each(|_| rig.expect_sent("Success").map(drop))
}

fn coalesced(rig: &mut Rig<'_>) -> Result<()> {
    short_writes(rig, 5)?;
    rig.answer(rig.guest_psn.add(4), Syndrome::ACK, 5)?;
    all_succeed(rig, 5)
}

/// A NAK for the second of three packets: the second and third are retransmitted, the first is not.
fn goes_back(rig: &mut Rig<'_>) -> Result<()> {
    short_writes(rig, 3)?;
    let missing = rig.guest_psn.next();
    rig.answer(missing, Syndrome::Nak(NakCode::PsnSequence), 1)?;
    message(rig, missing, 16)?;
    message(rig, missing.next(), 16)?;
    rig.answer(missing.next(), Syndrome::ACK, 3)?;
    all_succeed(rig, 3)
}

fn waits(rig: &mut Rig<'_>) -> Result<()> {
    const TIMER: u8 = 22;
    rig.guest.post(&[(Work::Send, 0, 16)])?;
    let (_, headers) = message(rig, rig.guest_psn, 16)?;
    let start = Instant::now();
    rig.answer(headers.bth.psn, Syndrome::Rnr { timer: TIMER }, 0)?;
    message(rig, rig.guest_psn, 16)?;
    let waited = start.elapsed();
    // The kernel's timers round to 4 ms.
    let least = rnr_timer(TIMER).saturating_sub(Duration::from_millis(4));
    ensure!(waited >= least, "the retransmission came after {waited:?}, not {least:?}");
    rig.answer(headers.bth.psn, Syndrome::ACK, 1)?;
    rig.expect_sent("Success").map(drop)
}

fn gives_up_waiting(rig: &mut Rig<'_>) -> Result<()> {
    rig.guest.post(&[(Work::Send, 0, 16)])?;
    let (_, headers) = message(rig, rig.guest_psn, 16)?;
    rig.answer(headers.bth.psn, Syndrome::Rnr { timer: 1 }, 0)?;
    rig.expect_sent("RnrRetryExceeded")?;
    rig.expect_state("Err")
}

fn gives_up(rig: &mut Rig<'_>) -> Result<()> {
    let request = |signaled| Request { wr_id: 0, work: WRITE, offset: 0, bytes: 16, signaled };
    rig.guest.send(vec![request(false), request(true)])?;
    rig.expect_sent("TransportRetryExceeded")?;
    rig.expect_sent("Flushed")?;
    let mut copies = 0;
    while let Some(came) = rig.wire.receive(Duration::ZERO)? {
        copies += u32::from(came.headers.bth.psn == rig.guest_psn);
    }
    let tries = u32::from(IMPATIENT.retry_cnt) + 1;
    ensure!(copies == tries, "the packet was sent {copies} times instead of {tries}");
    rig.expect_state("Err")
}

/// A sender that requested ACKs only at the end would stall once its window is full.
fn asks_within(rig: &mut Rig<'_>) -> Result<()> {
    let bytes = 60 << 10;
    rig.guest.post(&[(WRITE, 0, bytes); 3])?;
    let (mut completed, mut asked_within) = (0, false);
    while completed < 3 {
        let came = rig.wire.receive(LIMIT)?.context("the guest stopped sending")?;
        let bth = came.headers.bth;
        completed += u32::from(bth.opcode.ends_message());
        asked_within |= bth.ack_req && !bth.opcode.ends_message();
        if bth.ack_req {
            rig.answer(bth.psn, Syndrome::ACK, completed)?;
        }
    }
    all_succeed(rig, 3)?;
    ensure!(asked_within, "no packet within a message requested an ACK");
    Ok(())
}

fn wraps(rig: &mut Rig<'_>) -> Result<()> {
    let bytes = 3 * MTU;
    rig.guest.post(&[(WRITE, 0, bytes)])?;
    let (_, last) = message(rig, rig.guest_psn, bytes)?;
    ensure!(last.bth.psn == Psn::new(1), "the case did not wrap");
    rig.answer(last.bth.psn, Syndrome::ACK, 1)?;
    rig.expect_sent("Success").map(drop)
}

fn fails(rig: &mut Rig<'_>, code: NakCode, status: &str) -> Result<()> {
    short_writes(rig, 2)?;
    rig.answer(rig.guest_psn, Syndrome::Nak(code), 0)?;
    rig.expect_sent(status)?;
    rig.expect_sent("Flushed")?;
    rig.expect_state("Err")
}
