//! Errors and waiting between our queue pair and the kernel's: keys, bounds, rights, missing
//! receives, silent peers.
use super::Collector;
use super::ours::GROUPS;
use crate::bytes::pattern;
use crate::end::access::{LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE};
use crate::end::{Options, Place, Work};
use crate::loss::{Chosen, Direction, Impairment};
use crate::peer::pair::{Ours, Pair, Side};
use anyhow::{Result, ensure};
use catchment_roce::{InitAttr, QpState, Queue};
use catchment_sim::roce::Rights;

const BYTES: usize = 64;

/// Offset at which the last byte lies beyond the end of either memory.
const BEYOND: u64 = (Ours::DEFAULT.both.memory_bytes - BYTES + 1) as u64;

/// Gives up after one RNR NAK, on either side.
const IMPATIENT: Ours = Ours {
    both: Options { rnr_retry: 1, min_rnr_timer: 1, ..Ours::DEFAULT.both },
    rnr_retry: 1,
    retry_cnt: 2,
    timeout: 10,
    ..Ours::DEFAULT
};

const NO_WRITE: Rights = Rights { write: false, ..Rights::ALL };
const NO_READ: Rights = Rights { read: false, ..Rights::ALL };
const NO_ATOMIC: Rights = Rights { atomic: false, ..Rights::ALL };

/// A name, what the peer's queue pair and its memory allow, the request, and its status.
type Refusal = (&'static str, [Rights; 2], fn(Place) -> Work, &'static str);

const REFUSALS: [Refusal; 9] = {
    const ANY: [Rights; 2] = [Rights::ALL; 2];
    const fn memory(rights: Rights) -> [Rights; 2] {
        [Rights::ALL, rights]
    }
    const fn queue_pair(rights: Rights) -> [Rights; 2] {
        [rights, Rights::ALL]
    }
    let (access, invalid) = ("RemoteAccess", "RemoteInvalidRequest");
    [
        ("unknown key", ANY, |at| Work::Write(Place { rkey: at.rkey ^ 0x0101_0100, ..at }), access),
        ("WRITE beyond the end", ANY, |at| Work::Write(beyond(at)), access),
        ("READ beyond the end", ANY, |at| Work::Read(beyond(at)), access),
        ("memory that may not be written", memory(NO_WRITE), Work::Write, access),
        ("memory that may not be read", memory(NO_READ), Work::Read, access),
        ("memory without atomics", memory(NO_ATOMIC), |at| Work::FetchAdd(at, 0), access),
        ("queue pair that may not be written", queue_pair(NO_WRITE), Work::Write, invalid),
        ("queue pair that may not be read", queue_pair(NO_READ), Work::Read, invalid),
        (
            "queue pair without atomics",
            queue_pair(NO_ATOMIC),
            |at| Work::CompareSwap(at, 0, 0),
            invalid,
        ),
    ]
};

pub(crate) fn add(cases: &mut Collector<'_>) {
    for (side, group) in GROUPS {
        let verb = if side == Side::Ours { "is refused" } else { "refuses" };
        for (name, rights, request, status) in REFUSALS {
            let name = format!("{group}/{verb}: {name}");
            cases.pair(&name, allowed(side.peer(), rights), move |pair| {
                refused(pair, side, request, status)
            });
        }
    }
    let mut add = |name, ours, run: fn(&mut Pair<'_>) -> Result<()>| cases.pair(name, ours, run);
    let patient = Ours::DEFAULT;
    add("ours asks/waits for a receive", patient, |pair| unready(pair, Side::Ours));
    add("ours answers/a receive comes late", patient, |pair| unready(pair, Side::Guest));
    add("ours asks/gives up waiting", IMPATIENT, |pair| never_ready(pair, Side::Ours));
    add("ours answers/never has a receive", IMPATIENT, |pair| never_ready(pair, Side::Guest));
    add("ours asks/SEND longer than the receive", patient, ask_too_long);
    add("ours answers/SEND longer than the receive", patient, answer_too_long);
    add("ours asks/nobody answers", IMPATIENT, ask_silence);
}

/// Returns the options with which `side` grants these rights to its queue pair and its memory.
fn allowed(side: Side, [queue_pair, memory]: [Rights; 2]) -> Ours {
    let Rights { write: remote_write, read: remote_read, atomic: remote_atomic } = queue_pair;
    let access = InitAttr { remote_write, remote_read, remote_atomic, ..Ours::DEFAULT.access };
    let both =
        Options { access: bits(queue_pair), memory_access: bits(memory), ..Ours::DEFAULT.both };
    match side {
        Side::Ours => Ours { access, rights: memory, ..Ours::DEFAULT },
        Side::Guest => Ours { both, ..Ours::DEFAULT },
    }
}

fn bits(rights: Rights) -> u32 {
    let bit = |allowed, bit| if allowed { bit } else { 0 };
    LOCAL_WRITE
        | bit(rights.write, REMOTE_WRITE)
        | bit(rights.read, REMOTE_READ)
        | bit(rights.atomic, REMOTE_ATOMIC)
}

fn beyond(place: Place) -> Place {
    Place { addr: place.addr + BEYOND, ..place }
}

/// The refused request fails, the one after it is flushed, and both queue pairs go to the error state.
fn refused(
    pair: &mut Pair<'_>,
    side: Side,
    request: fn(Place) -> Work,
    status: &str,
) -> Result<()> {
    pair.fill(side.peer(), 0, &pattern(1, BYTES))?;
    let place = pair.place(side.peer(), 0);
    let request = request(place);
    let is_atomic = matches!(request, Work::FetchAdd(..) | Work::CompareSwap(..));
    let bytes = if is_atomic { 8 } else { BYTES };
    pair.post(side, &[(request, 0, bytes), (Work::Write(place), 0, BYTES)])?;
    pair.expect_sent(side, status)?;
    pair.expect_sent(side, "Flushed")?;
    ensure!(pair.ours.qp.state() == QpState::Err);
    pair.expect_memory(side.peer(), 0, &pattern(1, BYTES))
}

fn unready(pair: &mut Pair<'_>, side: Side) -> Result<()> {
    let peer = side.peer();
    pair.fill(side, 0, &pattern(3, BYTES))?;
    let write = Work::Write(pair.place(peer, 4096));
    pair.post(side, &[(Work::Send, 0, BYTES), (write, 0, BYTES)])?;
    pair.linger_until(|counters| counters.rnr_naks_received + counters.rnr_naks_sent > 0)?;
    ensure!(pair.ours.completion().is_none(), "a request completed before there was a receive");
    pair.receive(peer, 1, 0, 4096)?;
    for opcode in ["Send", "Write"] {
        let done = pair.expect_sent(side, "Success")?;
        ensure!(done.opcode == opcode, "{done:?}");
    }
    pair.expect_received(peer, "Success")?;
    pair.expect_memory(peer, 0, &pattern(3, BYTES))
}

fn never_ready(pair: &mut Pair<'_>, side: Side) -> Result<()> {
    pair.post(side, &[(Work::Send, 0, BYTES)])?;
    pair.expect_sent(side, "RnrRetryExceeded").map(drop)
}

/// The standard asks for an invalid-request NAK; this kernel sends a remote operational error.
fn ask_too_long(pair: &mut Pair<'_>) -> Result<()> {
    pair.receive(Side::Guest, 1, 0, BYTES)?;
    pair.post(Side::Ours, &[(Work::Send, 0, 2 * BYTES)])?;
    let done = pair.wait(Side::Ours, Queue::Send)?;
    let allowed = ["RemoteOperation", "RemoteInvalidRequest"];
    ensure!(allowed.contains(&done.status.as_str()), "{done:?}");
    Ok(())
}

fn answer_too_long(pair: &mut Pair<'_>) -> Result<()> {
    pair.receive(Side::Ours, 1, 0, BYTES)?;
    pair.post(Side::Guest, &[(Work::Send, 0, 2 * BYTES)])?;
    pair.expect_sent(Side::Guest, "RemoteInvalidRequest")?;
    pair.expect_received(Side::Ours, "LocalLength").map(drop)
}

/// Every copy of the first packet is lost.
fn ask_silence(pair: &mut Pair<'_>) -> Result<()> {
    let (psn, _) = pair.first_psns();
    let impairment = Impairment {
        chosen: vec![Chosen { direction: Direction::ToGuest, psn, times: 1000 }],
        ..Impairment::default()
    };
    let lost = impairment.during(pair, |pair| {
        let write = Work::Write(pair.place(Side::Guest, 0));
        pair.post(Side::Ours, &[(write, 0, BYTES)])?;
        pair.expect_sent(Side::Ours, "TransportRetryExceeded").map(drop)
    })?;
    let tries = u64::from(IMPATIENT.retry_cnt) + 1;
    ensure!(lost.chosen >= tries, "the packet was sent only {} times", lost.chosen);
    Ok(())
}
