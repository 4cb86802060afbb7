//! Errors and waiting between our queue pair and the kernel's: keys, bounds, rights, receives that
//! are not there, peers that are silent.
use super::Collector;
use crate::bytes::pattern;
use crate::end::access::{self, LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE};
use crate::end::{Options, Place, Work};
use crate::loss::{Chosen, Direction, Impairment};
use crate::peer::pair::{LONG, Ours, Pair};
use crate::peer::rig::{OUR_ADDR, OUR_PLACE, OUR_RKEY};
use anyhow::{Result, ensure};
use catchment_roce::{InitAttr, QpState, Queue, RemoteAddr, SendOp, WcOpcode, WcStatus};
use catchment_sim::roce::Rights;

const BYTES: usize = 64;
const END: usize = Ours::DEFAULT.both.memory_bytes;

/// A place where the last byte lies behind our memory.
const BEYOND: Place = Place { addr: OUR_ADDR + (END - BYTES + 1) as u64, ..OUR_PLACE };

const fn guest_allows(access: u32, memory_access: u32) -> Ours {
    Ours { both: Options { access, memory_access, ..Ours::DEFAULT.both }, ..Ours::DEFAULT }
}

const fn we_allow(access: InitAttr, rights: Rights) -> Ours {
    Ours { access, rights, ..Ours::DEFAULT }
}

/// Gives up after one RNR NAK, on either side.
const IMPATIENT: Ours = Ours {
    both: Options { rnr_retry: 1, min_rnr_timer: 1, ..Ours::DEFAULT.both },
    rnr_retry: 1,
    retry_cnt: 2,
    timeout: 10,
    ..Ours::DEFAULT
};

const ALL: u32 = access::ALL;
const READABLE: u32 = LOCAL_WRITE | REMOTE_READ;
const WRITABLE: u32 = LOCAL_WRITE | REMOTE_WRITE;
const READ: Rights = Rights { read: true, ..Rights::LOCAL };
const WRITE: Rights = Rights { write: true, ..Rights::LOCAL };
const EVERYTHING: InitAttr = Ours::DEFAULT.access;

type Ask = fn(RemoteAddr) -> SendOp;

pub(crate) fn add(cases: &mut Collector<'_>) {
    add_refused(cases);
    add_refusing(cases);
    let mut add = |name, ours, run: fn(&mut Pair<'_>) -> Result<()>| cases.pair(name, ours, run);
    let patient = Ours::DEFAULT;
    add("ours asks/waits for a receive", patient, ask_unready);
    add("ours answers/a receive comes late", patient, answer_unready);
    add("ours asks/gives up waiting", IMPATIENT, ask_never_ready);
    add("ours answers/never has a receive", IMPATIENT, answer_never_ready);
    add("ours asks/SEND longer than the receive", patient, ask_too_long);
    add("ours answers/SEND longer than the receive", patient, answer_too_long);
    add("ours asks/nobody answers", IMPATIENT, ask_silence);
}

fn add_refused(cases: &mut Collector<'_>) {
    let (access, invalid) = (WcStatus::RemoteAccess, WcStatus::RemoteInvalidRequest);
    let any = Ours::DEFAULT;
    let mut add = |name, ours, status, request: Ask| {
        let name = format!("ours asks/is refused: {name}");
        cases.pair(&name, ours, move |pair| ask(pair, request, status));
    };
    add("unknown key", any, access, |place| {
        SendOp::Write(RemoteAddr { rkey: 0x00ba_d000, ..place })
    });
    add("WRITE beyond the end", any, access, |place| SendOp::Write(moved(place, END - BYTES + 1)));
    add("READ beyond the end", any, access, |place| SendOp::Read(moved(place, END - BYTES + 1)));
    let (write, read): (Ask, Ask) = (SendOp::Write, SendOp::Read);
    let memory = |access| guest_allows(ALL, access);
    let queue_pair = |access| guest_allows(access, ALL);
    add("memory that may not be written", memory(READABLE), access, write);
    add("memory that may not be read", memory(WRITABLE), access, read);
    add("queue pair that may not be written", queue_pair(READABLE), invalid, write);
    add("queue pair that may not be read", queue_pair(WRITABLE), invalid, read);
}

fn add_refusing(cases: &mut Collector<'_>) {
    let (access, invalid) = ("RemoteAccess", "RemoteInvalidRequest");
    let any = Ours::DEFAULT;
    let mut add = |name, ours, status, request| {
        let name = format!("ours answers/refuses: {name}");
        cases.pair(&name, ours, move |pair| answer(pair, request, status));
    };
    let unknown = Place { rkey: OUR_RKEY ^ 1, ..OUR_PLACE };
    let (write, read) = (Work::Write(OUR_PLACE), Work::Read(OUR_PLACE));
    let (fetch_add, swap) = (Work::FetchAdd(OUR_PLACE, 0), Work::CompareSwap(OUR_PLACE, 0, 0));
    add("unknown key", any, access, Work::Write(unknown));
    add("WRITE beyond the end", any, access, Work::Write(BEYOND));
    add("READ beyond the end", any, access, Work::Read(BEYOND));
    let memory = |rights| we_allow(EVERYTHING, rights);
    add("memory that may not be written", memory(READ), access, write);
    add("memory that may not be read", memory(WRITE), access, read);
    add("memory without atomics", memory(WRITE), access, fetch_add);
    let queue_pair = |access| we_allow(access, Ours::DEFAULT.rights);
    let no_write = InitAttr { remote_write: false, ..EVERYTHING };
    let no_read = InitAttr { remote_read: false, ..EVERYTHING };
    let no_atomic = InitAttr { remote_atomic: false, ..EVERYTHING };
    add("queue pair that may not be written", queue_pair(no_write), invalid, write);
    add("queue pair that may not be read", queue_pair(no_read), invalid, read);
    add("queue pair without atomics", queue_pair(no_atomic), invalid, swap);
}

fn moved(place: RemoteAddr, bytes: usize) -> RemoteAddr {
    RemoteAddr { addr: place.addr + bytes as u64, ..place }
}

/// The refused request fails, the one behind it is flushed, both ends are in error.
fn ask(pair: &mut Pair<'_>, request: Ask, status: WcStatus) -> Result<()> {
    pair.guest.put(0, &pattern(1, BYTES))?;
    let place = pair.guest_place(0);
    pair.post_ours(request(place), 0, BYTES)?;
    pair.post_ours(SendOp::Write(place), 0, BYTES)?;
    pair.expect_failure(status)?;
    pair.expect_failure(WcStatus::Flushed)?;
    ensure!(pair.ours.qp.state() == QpState::Err);
    pair.guest.expect_memory(0, &pattern(1, BYTES))
}

fn answer(pair: &mut Pair<'_>, request: Work, status: &str) -> Result<()> {
    pair.fill_ours(0, &pattern(2, BYTES))?;
    let is_atomic = matches!(request, Work::FetchAdd(..) | Work::CompareSwap(..));
    let bytes = if is_atomic { 8 } else { BYTES };
    let refused = (request, 0, bytes);
    pair.guest.post(&[refused, (Work::Write(OUR_PLACE), 0, BYTES)])?;
    pair.expect_guest_sent(status)?;
    pair.expect_guest_sent("Flushed")?;
    ensure!(pair.ours.qp.state() == QpState::Err);
    pair.expect_our_memory(0, &pattern(2, BYTES))
}

fn ask_unready(pair: &mut Pair<'_>) -> Result<()> {
    pair.fill_ours(0, &pattern(3, BYTES))?;
    pair.post_ours(SendOp::Send, 0, BYTES)?;
    pair.post_ours(SendOp::Write(pair.guest_place(4096)), 0, BYTES)?;
    pair.linger_until(|counters| counters.rnr_naks_received > 0)?;
    ensure!(pair.ours.completion().is_none(), "it completed too soon");
    pair.guest.receive(1, 0, 4096)?;
    for opcode in [WcOpcode::Send, WcOpcode::Write] {
        let success = pair.expect_ours(Queue::Send)?;
        ensure!(success.opcode == opcode, "{success:?}");
    }
    pair.guest.expect_memory(0, &pattern(3, BYTES))
}

fn answer_unready(pair: &mut Pair<'_>) -> Result<()> {
    pair.guest.put(0, &pattern(4, BYTES))?;
    pair.guest.post(&[(Work::Send, 0, BYTES)])?;
    pair.linger_until(|counters| counters.rnr_naks_sent > 0)?;
    pair.recv_ours(0, 4096, 1)?;
    pair.expect_guest_sent("Success")?;
    pair.expect_ours(Queue::Recv)?;
    pair.expect_our_memory(0, &pattern(4, BYTES))
}

fn ask_never_ready(pair: &mut Pair<'_>) -> Result<()> {
    pair.post_ours(SendOp::Send, 0, BYTES)?;
    pair.expect_failure(WcStatus::RnrRetryExceeded)
}

fn answer_never_ready(pair: &mut Pair<'_>) -> Result<()> {
    pair.guest.post(&[(Work::Send, 0, BYTES)])?;
    pair.expect_guest_sent("RnrRetryExceeded").map(drop)
}

/// The standard wants an invalid request; this kernel says remote operation.
fn ask_too_long(pair: &mut Pair<'_>) -> Result<()> {
    pair.guest.receive(1, 0, BYTES)?;
    pair.post_ours(SendOp::Send, 0, 2 * BYTES)?;
    let completion = pair.wait_ours(LONG)?;
    let allowed = [WcStatus::RemoteOperation, WcStatus::RemoteInvalidRequest];
    ensure!(allowed.iter().any(|status| completion.result == Err(*status)), "{completion:?}");
    Ok(())
}

fn answer_too_long(pair: &mut Pair<'_>) -> Result<()> {
    pair.recv_ours(0, BYTES, 1)?;
    pair.guest.post(&[(Work::Send, 0, 2 * BYTES)])?;
    pair.expect_guest_sent("RemoteInvalidRequest")?;
    pair.expect_failure(WcStatus::LocalLength)
}

/// Every copy of the first packet is lost.
fn ask_silence(pair: &mut Pair<'_>) -> Result<()> {
    let (psn, _) = pair.first_psns();
    let impairment = Impairment {
        chosen: vec![Chosen { direction: Direction::ToGuest, psn, times: 1000 }],
        ..Impairment::default()
    };
    let lost = impairment.during(pair, |pair| {
        pair.post_ours(SendOp::Write(pair.guest_place(0)), 0, BYTES)?;
        pair.expect_failure(WcStatus::TransportRetryExceeded)
    })?;
    let tries = u64::from(IMPATIENT.retry_cnt) + 1;
    ensure!(lost.chosen >= tries, "it was sent {} times", lost.chosen);
    Ok(())
}
