//! All operations between our queue pair and the kernel's, both ways, for every path MTU.
use super::Collector;
use crate::bytes::pattern;
use crate::end::{Options, Place, Service, Work};
use crate::peer::pair::{Ours, Pair};
use crate::peer::rig::{OUR_ADDR, OUR_PLACE, OUR_RKEY};
use anyhow::{Result, ensure};
use catchment_roce::{AtomicOp, Queue, SendOp, WcOpcode, WriteLayout};

const PATH_MTUS: [u32; 3] = [256, 1024, 4096];
const LONGEST: usize = 1 << 20;
const IMMEDIATE: u32 = 0x0a0b_0c0d;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Write,
    WriteImm,
    Send,
    SendImm,
    Read,
}

use Operation::{Read, Send as SendMessage, SendImm, Write, WriteImm};

const OPERATIONS: [Operation; 5] = [Write, WriteImm, SendMessage, SendImm, Read];

pub(crate) fn add(cases: &mut Collector<'_>) {
    for path_mtu in PATH_MTUS {
        for operation in OPERATIONS {
            let name = format!("ours asks/{operation:?}, MTU {path_mtu}");
            let ours = with_mtu(path_mtu);
            cases.pair(&name, ours, move |pair| every_length(pair, operation, ask));
            let name = format!("ours answers/{operation:?}, MTU {path_mtu}");
            cases.pair(&name, ours, move |pair| every_length(pair, operation, answer));
        }
        let classic = Ours { layout: WriteLayout::Classic, ..with_mtu(path_mtu) };
        for operation in [Write, WriteImm] {
            let name = format!("ours asks/{operation:?} in FIRST, MIDDLE, LAST, MTU {path_mtu}");
            cases.pair(&name, classic, move |pair| every_length(pair, operation, ask));
        }
    }
    cases.pair("ours asks/atomics", Ours::DEFAULT, ask_atomics);
    cases.pair("ours answers/atomics", Ours::DEFAULT, answer_atomics);
    for operation in OPERATIONS {
        let name = format!("ours asks/{operation:?}, PSN wraps");
        cases.pair(&name, WRAPPING, move |pair| ask(pair, operation, 9000));
        let name = format!("ours answers/{operation:?}, PSN wraps");
        cases.pair(&name, WRAPPING, move |pair| answer(pair, operation, 9000));
    }
    for operation in [Write, WriteImm, SendMessage] {
        let name = format!("ours asks/{operation:?} over UC");
        cases.pair(&name, UNRELIABLE, move |pair| ask(pair, operation, 5000));
        let name = format!("ours answers/{operation:?} over UC");
        cases.pair(&name, UNRELIABLE, move |pair| answer(pair, operation, 5000));
    }
}

fn with_mtu(path_mtu: u32) -> Ours {
    let both = Options { path_mtu, ..Ours::DEFAULT.both };
    Ours { both, ..Ours::DEFAULT }
}

/// Both counters wrap within 9000 bytes at path MTU 1024.
const WRAPPING: Ours = Ours {
    both: Options { psn: 0x00ff_fffc, guest_psn: 0x00ff_fffb, ..Ours::DEFAULT.both },
    ..Ours::DEFAULT
};

const UNRELIABLE: Ours = Ours {
    both: Options { service: Service::Uc, ..Ours::DEFAULT.both },
    layout: WriteLayout::Classic,
    ..Ours::DEFAULT
};

fn every_length(
    pair: &mut Pair<'_>,
    operation: Operation,
    run: fn(&mut Pair<'_>, Operation, usize) -> Result<()>,
) -> Result<()> {
    let mtu = pair.path_mtu();
    for bytes in [0, 1, 2, 3, 5, mtu - 1, mtu, mtu + 1, 5 * mtu + 7, LONGEST] {
        run(pair, operation, bytes).map_err(|error| error.context(format!("{bytes} bytes")))?;
    }
    Ok(())
}

/// Ours is the requester: what it moves must arrive, and both sides must say so.
pub(crate) fn ask(pair: &mut Pair<'_>, operation: Operation, bytes: usize) -> Result<()> {
    let data = pattern(bytes as u64 ^ 0x5a, bytes);
    let place = pair.guest_place(0);
    let op = match operation {
        Write => SendOp::Write(place),
        WriteImm => SendOp::WriteImm(place, IMMEDIATE),
        SendMessage => SendOp::Send,
        SendImm => SendOp::SendImm(IMMEDIATE),
        Read => SendOp::Read(place),
    };
    if operation == Read {
        pair.guest.put(0, &data)?;
    } else {
        pair.fill_ours(0, &data)?;
    }
    if takes_receive(operation) {
        pair.guest.receive(77, 0, LONGEST)?;
    }
    pair.post_ours(op, 0, bytes)?;
    let success = pair.expect_ours(Queue::Send)?;
    ensure!(success.opcode == sent_as(operation), "{success:?}");
    if takes_receive(operation) {
        let done = pair.expect_guest_received()?;
        let imm = carries_immediate(operation).then_some(IMMEDIATE);
        let seen = (done.wr_id, done.bytes, done.imm);
        ensure!(seen == (77, bytes as u64, imm), "{done:x?}");
    }
    if operation == Read {
        return pair.expect_our_memory(0, &data);
    }
    pair.settle_guest(&data)?;
    pair.guest.expect_memory(0, &data)
}

pub(crate) fn answer(pair: &mut Pair<'_>, operation: Operation, bytes: usize) -> Result<()> {
    let data = pattern(bytes as u64 ^ 0xa5, bytes);
    let work = match operation {
        Write => Work::Write(OUR_PLACE),
        WriteImm => Work::WriteImm(OUR_PLACE, IMMEDIATE),
        SendMessage => Work::Send,
        SendImm => Work::SendImm(IMMEDIATE),
        Read => Work::Read(OUR_PLACE),
    };
    if operation == Read {
        pair.fill_ours(0, &data)?;
    } else {
        pair.guest.put(0, &data)?;
    }
    if takes_receive(operation) {
        pair.recv_ours(0, LONGEST, 78)?;
    }
    pair.guest.post(&[(work, 0, bytes)])?;
    let done = pair.expect_guest_sent("Success")?;
    let opcode = format!("{:?}", sent_as(operation));
    ensure!(done.opcode == opcode, "{done:?}");
    if takes_receive(operation) {
        let success = pair.expect_ours(Queue::Recv)?;
        ensure!(success.bytes == bytes as u64, "{success:?}");
        let expected = carries_immediate(operation).then_some(IMMEDIATE);
        ensure!(success.imm == expected, "{success:x?}");
    }
    if operation == Read {
        return pair.guest.expect_memory(0, &data);
    }
    pair.settle_ours(&data)?;
    pair.expect_our_memory(0, &data)
}

fn takes_receive(operation: Operation) -> bool {
    !matches!(operation, Write | Read)
}

fn carries_immediate(operation: Operation) -> bool {
    matches!(operation, WriteImm | SendImm)
}

fn sent_as(operation: Operation) -> WcOpcode {
    match operation {
        Write | WriteImm => WcOpcode::Write,
        SendMessage | SendImm => WcOpcode::Send,
        Read => WcOpcode::Read,
    }
}

/// An atomic operation, the value before it, and after it.
type Atomic = (AtomicOp, u64, u64);

const ATOMICS: &[Atomic] = &[
    (AtomicOp::FetchAdd(7), 35, 42),
    (swap(42, 1 << 60), 42, 1 << 60),
    (swap(42, 3), 1 << 60, 1 << 60),
    (AtomicOp::FetchAdd(u64::MAX), 1 << 60, (1 << 60) - 1),
];

const fn swap(compare: u64, swap: u64) -> AtomicOp {
    AtomicOp::CompareSwap { compare, swap }
}

const VALUE_AT: usize = 256;

fn ask_atomics(pair: &mut Pair<'_>) -> Result<()> {
    pair.guest.put(VALUE_AT, &35u64.to_ne_bytes())?;
    let remote = pair.guest_place(VALUE_AT);
    for &(op, before, after) in ATOMICS {
        let op = match op {
            AtomicOp::FetchAdd(add) => SendOp::FetchAdd { remote, add },
            AtomicOp::CompareSwap { compare, swap } => {
                SendOp::CompareSwap { remote, compare, swap }
            }
        };
        pair.post_ours(op, 0, 8)?;
        pair.expect_ours(Queue::Send)?;
        pair.expect_our_memory(0, &before.to_ne_bytes())?;
        pair.guest.expect_memory(VALUE_AT, &after.to_ne_bytes())?;
    }
    Ok(())
}

fn answer_atomics(pair: &mut Pair<'_>) -> Result<()> {
    pair.fill_ours(VALUE_AT, &35u64.to_ne_bytes())?;
    let place = Place { addr: OUR_ADDR + VALUE_AT as u64, rkey: OUR_RKEY };
    for &(op, before, after) in ATOMICS {
        let work = match op {
            AtomicOp::FetchAdd(add) => Work::FetchAdd(place, add),
            AtomicOp::CompareSwap { compare, swap } => Work::CompareSwap(place, compare, swap),
        };
        pair.guest.post(&[(work, 0, 8)])?;
        pair.expect_guest_sent("Success")?;
        pair.guest.expect_memory(0, &before.to_ne_bytes())?;
        pair.expect_our_memory(VALUE_AT, &after.to_ne_bytes())?;
    }
    Ok(())
}
