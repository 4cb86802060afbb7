//! All operations between our queue pair and the kernel's, either as requester, for every path MTU.
use super::Collector;
use crate::bytes::pattern;
use crate::end::{Options, Place, Service, Work};
use crate::peer::pair::{Ours, Pair, Side};
use anyhow::{Context as _, Result, ensure};
use catchment_roce::{WcOpcode, WriteLayout};

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

/// The side that asks, and the group of its cases.
pub(crate) const GROUPS: [(Side, &str); 2] =
    [(Side::Ours, "ours asks"), (Side::Guest, "ours answers")];

pub(crate) fn add(cases: &mut Collector<'_>) {
    for path_mtu in PATH_MTUS {
        for operation in OPERATIONS {
            for (side, group) in GROUPS {
                let name = format!("{group}/{operation:?}, MTU {path_mtu}");
                let ours = with_mtu(path_mtu);
                cases.pair(&name, ours, move |pair| every_length(pair, side, operation));
            }
        }
        let classic = Ours { layout: WriteLayout::Classic, ..with_mtu(path_mtu) };
        for operation in [Write, WriteImm] {
            let name = format!("ours asks/{operation:?} in FIRST, MIDDLE, LAST, MTU {path_mtu}");
            cases.pair(&name, classic, move |pair| every_length(pair, Side::Ours, operation));
        }
    }
    for (side, group) in GROUPS {
        let name = format!("{group}/atomics");
        cases.pair(&name, Ours::DEFAULT, move |pair| atomics(pair, side));
    }
    let mut add = |operation, what, ours, bytes| {
        for (side, group) in GROUPS {
            let name = format!("{group}/{operation:?}{what}");
            cases.pair(&name, ours, move |pair| ask(pair, side, operation, bytes));
        }
    };
    for operation in OPERATIONS {
        add(operation, ", PSN wraps", WRAPPING, 9000);
    }
    for operation in [Write, WriteImm, SendMessage] {
        add(operation, " over UC", UNRELIABLE, 5000);
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

fn every_length(pair: &mut Pair<'_>, side: Side, operation: Operation) -> Result<()> {
    let mtu = pair.path_mtu();
    for bytes in [0, 1, 2, 3, 5, mtu - 1, mtu, mtu + 1, 5 * mtu + 7, LONGEST] {
        ask(pair, side, operation, bytes).with_context(|| format!("{bytes} bytes"))?;
    }
    Ok(())
}

/// Lets `side` request an operation: what it moves must arrive, and both sides must report it.
pub(crate) fn ask(
    pair: &mut Pair<'_>,
    side: Side,
    operation: Operation,
    bytes: usize,
) -> Result<()> {
    let (peer, data) = (side.peer(), pattern(bytes as u64 ^ 0x5a, bytes));
    let there = pair.place(peer, 0);
    let work = match operation {
        Write => Work::Write(there),
        WriteImm => Work::WriteImm(there, IMMEDIATE),
        SendMessage => Work::Send,
        SendImm => Work::SendImm(IMMEDIATE),
        Read => Work::Read(there),
    };
    let (from, to) = if operation == Read { (peer, side) } else { (side, peer) };
    pair.fill(from, 0, &data)?;
    if takes_receive(operation) {
        pair.receive(peer, 77, 0, LONGEST)?;
    }
    pair.post(side, &[(work, 0, bytes)])?;
    let done = pair.expect_sent(side, "Success")?;
    ensure!(done.opcode == format!("{:?}", sent_as(operation)), "{done:?}");
    if takes_receive(operation) {
        let done = pair.expect_received(peer, "Success")?;
        let imm = carries_immediate(operation).then_some(IMMEDIATE);
        let seen = (done.wr_id, done.bytes, done.imm);
        ensure!(seen == (77, bytes as u64, imm), "{done:x?}");
    }
    pair.settle(to, &data)?;
    pair.expect_memory(to, 0, &data)
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
type Atomic = (fn(Place) -> Work, u64, u64);

const ATOMICS: [Atomic; 4] = [
    (|at| Work::FetchAdd(at, 7), 35, 42),
    (|at| Work::CompareSwap(at, 42, 1 << 60), 42, 1 << 60),
    (|at| Work::CompareSwap(at, 42, 3), 1 << 60, 1 << 60),
    (|at| Work::FetchAdd(at, u64::MAX), 1 << 60, (1 << 60) - 1),
];

const VALUE_AT: usize = 256;

fn atomics(pair: &mut Pair<'_>, side: Side) -> Result<()> {
    pair.fill(side.peer(), VALUE_AT, &35u64.to_ne_bytes())?;
    ATOMICS.into_iter().try_for_each(|atomic| do_atomic(pair, side, atomic))
}

fn do_atomic(pair: &mut Pair<'_>, side: Side, (work, before, after): Atomic) -> Result<()> {
    let there = pair.place(side.peer(), VALUE_AT);
    pair.post(side, &[(work(there), 0, 8)])?;
    pair.expect_sent(side, "Success")?;
    pair.expect_memory(side, 0, &before.to_ne_bytes())?;
    pair.expect_memory(side.peer(), VALUE_AT, &after.to_ne_bytes())
}

pub(crate) fn count_up(pair: &mut Pair<'_>, side: Side) -> Result<()> {
    pair.fill(side.peer(), VALUE_AT, &41u64.to_ne_bytes())?;
    do_atomic(pair, side, (|at| Work::FetchAdd(at, 1), 41, 42))
}
