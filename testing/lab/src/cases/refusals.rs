//! Errors and waiting between our queue pair and the kernel's: keys, bounds, rights, receives that
//! are not there, peers that are silent.

use super::Collector;
use crate::agent::{Access, Opcode as Work, Send, Status};
use crate::loss::{Chosen, Direction, Impairment};
use crate::peer::pair::{LONG, Ours, Pair};
use crate::peer::rig::{OUR_ADDR, OUR_RKEY, Options, pattern};
use anyhow::{Result, ensure};
use catchment_roce::{
    InitAttr, QpState, Queue, RemoteAccess, RemoteAddr, SendOp, WcOpcode, WcStatus,
};
use std::time::Duration;

const BYTES: usize = 64;

/// Longer than a few RNR timers.
const NOT_READY: Duration = Duration::from_millis(40);

const END: usize = Ours::DEFAULT.both.memory_bytes;

const fn guest_allows(access: &'static [Access], memory_access: &'static [Access]) -> Ours {
    Ours {
        both: Options {
            access,
            memory_access,
            ..Ours::DEFAULT.both
        },
        ..Ours::DEFAULT
    }
}

const fn we_allow(access: InitAttr, rights: &'static [RemoteAccess]) -> Ours {
    Ours {
        access,
        rights,
        ..Ours::DEFAULT
    }
}

/// Gives up after one RNR NAK, on either side.
const IMPATIENT: Ours = Ours {
    both: Options {
        rnr_retry: 1,
        min_rnr_timer: 1,
        ..Ours::DEFAULT.both
    },
    rnr_retry: 1,
    retry_cnt: 2,
    timeout: 10,
    ..Ours::DEFAULT
};

const ALL: &[Access] = Access::ALL;
const READABLE: &[Access] = &[Access::LocalWrite, Access::RemoteRead];
const WRITABLE: &[Access] = &[Access::LocalWrite, Access::RemoteWrite];
const EVERYTHING: InitAttr = Ours::DEFAULT.access;

/// A request that is refused, and what becomes of it.
struct Refusal<Request, Outcome> {
    name: &'static str,
    ours: Ours,
    request: Request,
    outcome: Outcome,
}

type OursRefused = Refusal<fn(RemoteAddr) -> SendOp, WcStatus>;

const ASK: &[OursRefused] = &[
    Refusal {
        name: "unknown key",
        ours: Ours::DEFAULT,
        request: |place| {
            SendOp::Write(RemoteAddr {
                rkey: 0x00ba_d000,
                ..place
            })
        },
        outcome: WcStatus::RemoteAccess,
    },
    Refusal {
        name: "WRITE beyond the end",
        ours: Ours::DEFAULT,
        request: |place| SendOp::Write(moved(place, END - BYTES + 1)),
        outcome: WcStatus::RemoteAccess,
    },
    Refusal {
        name: "READ beyond the end",
        ours: Ours::DEFAULT,
        request: |place| SendOp::Read(moved(place, END - BYTES + 1)),
        outcome: WcStatus::RemoteAccess,
    },
    Refusal {
        name: "memory that may not be written",
        ours: guest_allows(ALL, READABLE),
        request: SendOp::Write,
        outcome: WcStatus::RemoteAccess,
    },
    Refusal {
        name: "memory that may not be read",
        ours: guest_allows(ALL, WRITABLE),
        request: SendOp::Read,
        outcome: WcStatus::RemoteAccess,
    },
    Refusal {
        name: "queue pair that may not be written",
        ours: guest_allows(READABLE, ALL),
        request: SendOp::Write,
        outcome: WcStatus::RemoteInvalidRequest,
    },
    Refusal {
        name: "queue pair that may not be read",
        ours: guest_allows(WRITABLE, ALL),
        request: SendOp::Read,
        outcome: WcStatus::RemoteInvalidRequest,
    },
];

type GuestRefused = Refusal<fn(Send) -> Send, Status>;

const ANSWER: &[GuestRefused] = &[
    Refusal {
        name: "unknown key",
        ours: Ours::DEFAULT,
        request: |send| Send {
            rkey: OUR_RKEY ^ 1,
            ..send
        },
        outcome: Status::RemoteAccess,
    },
    Refusal {
        name: "WRITE beyond the end",
        ours: Ours::DEFAULT,
        request: beyond,
        outcome: Status::RemoteAccess,
    },
    Refusal {
        name: "READ beyond the end",
        ours: Ours::DEFAULT,
        request: |send| beyond(with(send, Work::Read)),
        outcome: Status::RemoteAccess,
    },
    Refusal {
        name: "memory that may not be written",
        ours: we_allow(EVERYTHING, &[RemoteAccess::Read]),
        request: |send| send,
        outcome: Status::RemoteAccess,
    },
    Refusal {
        name: "memory that may not be read",
        ours: we_allow(EVERYTHING, &[RemoteAccess::Write]),
        request: |send| with(send, Work::Read),
        outcome: Status::RemoteAccess,
    },
    Refusal {
        name: "memory without atomics",
        ours: we_allow(EVERYTHING, &[RemoteAccess::Write]),
        request: |send| with(send, Work::FetchAdd),
        outcome: Status::RemoteAccess,
    },
    Refusal {
        name: "queue pair that may not be written",
        ours: we_allow(
            InitAttr {
                remote_write: false,
                ..EVERYTHING
            },
            Ours::DEFAULT.rights,
        ),
        request: |send| send,
        outcome: Status::RemoteInvalidRequest,
    },
    Refusal {
        name: "queue pair that may not be read",
        ours: we_allow(
            InitAttr {
                remote_read: false,
                ..EVERYTHING
            },
            Ours::DEFAULT.rights,
        ),
        request: |send| with(send, Work::Read),
        outcome: Status::RemoteInvalidRequest,
    },
    Refusal {
        name: "queue pair without atomics",
        ours: we_allow(
            InitAttr {
                remote_atomic: false,
                ..EVERYTHING
            },
            Ours::DEFAULT.rights,
        ),
        request: |send| with(send, Work::CompareSwap),
        outcome: Status::RemoteInvalidRequest,
    },
];

/// Adds the cases.
pub fn add(cases: &mut Collector<'_>) {
    for refusal in ASK {
        let name = format!("ours asks/is refused: {}", refusal.name);
        cases.pair(&name, refusal.ours, |pair| ask(pair, refusal));
    }
    for refusal in ANSWER {
        let name = format!("ours answers/refuses: {}", refusal.name);
        cases.pair(&name, refusal.ours, |pair| answer(pair, refusal));
    }
    let mut add = |name, ours, run: fn(&mut Pair<'_>) -> Result<()>| cases.pair(name, ours, run);
    let patient = Ours::DEFAULT;
    add("ours asks/waits for a receive", patient, ask_unready);
    add("ours answers/a receive comes late", patient, answer_unready);
    add("ours asks/gives up waiting", IMPATIENT, ask_never_ready);
    add(
        "ours answers/never has a receive",
        IMPATIENT,
        answer_never_ready,
    );
    add(
        "ours asks/SEND longer than the receive",
        patient,
        ask_too_long,
    );
    add(
        "ours answers/SEND longer than the receive",
        patient,
        answer_too_long,
    );
    add("ours asks/nobody answers", IMPATIENT, ask_silence);
}

fn moved(place: RemoteAddr, bytes: usize) -> RemoteAddr {
    RemoteAddr {
        addr: place.addr + bytes as u64,
        ..place
    }
}

fn beyond(send: Send) -> Send {
    Send {
        remote_addr: OUR_ADDR + (END - BYTES + 1) as u64,
        ..send
    }
}

fn with(send: Send, opcode: Work) -> Send {
    let atomic = matches!(opcode, Work::FetchAdd | Work::CompareSwap);
    let length = if atomic { 8 } else { send.length };
    Send {
        opcode,
        length,
        ..send
    }
}

/// The refused request fails, the one behind it is flushed, both ends are in error.
fn ask(pair: &mut Pair<'_>, refusal: &OursRefused) -> Result<()> {
    pair.fill_guest(0, &pattern(1, BYTES))?;
    let place = pair.guest_place(0);
    pair.post_ours((refusal.request)(place), 0, BYTES)?;
    pair.post_ours(SendOp::Write(place), 0, BYTES)?;
    pair.expect_failure(refusal.outcome)?;
    pair.expect_failure(WcStatus::Flushed)?;
    ensure!(pair.ours.qp.state() == QpState::Err);
    pair.expect_guest_memory(0, &pattern(1, BYTES))
}

fn answer(pair: &mut Pair<'_>, refusal: &GuestRefused) -> Result<()> {
    pair.fill_ours(0, &pattern(2, BYTES));
    let write = pair.guest_work(Work::Write, BYTES);
    pair.post_guest(&[(refusal.request)(write), write])?;
    pair.expect_guest(refusal.outcome)?;
    pair.expect_guest(Status::Flushed)?;
    ensure!(pair.ours.qp.state() == QpState::Err);
    pair.expect_our_memory(0, &pattern(2, BYTES))
}

fn ask_unready(pair: &mut Pair<'_>) -> Result<()> {
    pair.fill_ours(0, &pattern(3, BYTES));
    pair.post_ours(SendOp::Send, 0, BYTES)?;
    pair.post_ours(SendOp::Write(pair.guest_place(4096)), 0, BYTES)?;
    pair.linger(NOT_READY)?;
    ensure!(pair.ours.completion().is_none(), "it completed too soon");
    pair.recv_guest(0, 4096, 1)?;
    for opcode in [WcOpcode::Send, WcOpcode::Write] {
        let success = pair.expect_ours(Queue::Send)?;
        ensure!(success.opcode == opcode, "{success:?}");
    }
    let counters = *pair.ours.qp.counters();
    ensure!(counters.rnr_naks_received > 0, "{counters:?}");
    pair.expect_guest_memory(0, &pattern(3, BYTES))
}

fn answer_unready(pair: &mut Pair<'_>) -> Result<()> {
    pair.fill_guest(0, &pattern(4, BYTES))?;
    let send = pair.guest_work(Work::Send, BYTES);
    pair.post_guest(&[send])?;
    pair.linger(NOT_READY)?;
    let counters = *pair.ours.qp.counters();
    ensure!(counters.rnr_naks_sent > 0, "{counters:?}");
    pair.recv_ours(0, 4096, 1)?;
    pair.expect_guest(Status::Success)?;
    pair.expect_ours(Queue::Recv)?;
    pair.expect_our_memory(0, &pattern(4, BYTES))
}

fn ask_never_ready(pair: &mut Pair<'_>) -> Result<()> {
    pair.post_ours(SendOp::Send, 0, BYTES)?;
    pair.expect_failure(WcStatus::RnrRetryExceeded)
}

fn answer_never_ready(pair: &mut Pair<'_>) -> Result<()> {
    let send = pair.guest_work(Work::Send, BYTES);
    pair.post_guest(&[send])?;
    pair.expect_guest(Status::RnrRetryExceeded).map(drop)
}

/// The standard wants an invalid request; this kernel says remote operation.
fn ask_too_long(pair: &mut Pair<'_>) -> Result<()> {
    pair.recv_guest(0, BYTES, 1)?;
    pair.post_ours(SendOp::Send, 0, 2 * BYTES)?;
    let completion = pair.wait_ours(LONG)?;
    let allowed = [WcStatus::RemoteOperation, WcStatus::RemoteInvalidRequest];
    ensure!(
        allowed
            .iter()
            .any(|status| completion.result == Err(*status)),
        "{completion:?}"
    );
    Ok(())
}

fn answer_too_long(pair: &mut Pair<'_>) -> Result<()> {
    pair.recv_ours(0, BYTES, 1)?;
    let send = pair.guest_work(Work::Send, 2 * BYTES);
    pair.post_guest(&[send])?;
    pair.expect_guest(Status::RemoteInvalidRequest)?;
    pair.expect_failure(WcStatus::LocalLength)
}

/// Every copy of the first packet is lost.
fn ask_silence(pair: &mut Pair<'_>) -> Result<()> {
    let (psn, _) = pair.first_psns();
    let impairment = Impairment {
        chosen: vec![Chosen {
            direction: Direction::ToGuest,
            psn,
            times: 1000,
        }],
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
