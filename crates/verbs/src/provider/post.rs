//! Checks of requests, and which slots of a work queue are free.
use crate::{
    Access, Caps, Completion, Destination, MAX_QKEY, Payload, PostFailure, QpInit, QpState, RecvWr,
    SendOp, SendWr, Service, provider::MAX_24_BITS,
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// What the requests of one queue pair may be. Never changes in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Send requests outstanding at once.
    pub max_send_wr: u32,
    /// Receive requests outstanding at once.
    pub max_recv_wr: u32,
    /// Scatter-gather elements of a request.
    pub max_sge: u32,
    /// Bytes of inline data of a request.
    pub max_inline_bytes: u32,
    /// Bytes of a message.
    pub max_message_bytes: u64,
    /// The service.
    pub service: Service,
    /// Operations that can be posted with elements, and inline: a bit each.
    with_sges: u16,
    with_inline: u16,
}

/// The bit of an operation.
#[inline]
fn bit(op: &SendOp) -> u16 {
    1 << match op {
        SendOp::Write(_) => 0,
        SendOp::WriteImm(..) => 1,
        SendOp::Read(_) => 2,
        SendOp::Send => 3,
        SendOp::SendImm(_) => 4,
        SendOp::SendInvalidate(_) => 5,
        SendOp::SendTo(_) => 6,
        SendOp::SendImmTo(..) => 7,
        SendOp::CompareSwap { .. } => 8,
        SendOp::FetchAdd { .. } => 9,
    }
}

const WRITES: u16 = 0b11;
const READ: u16 = 1 << 2;
const SENDS: u16 = 0b11 << 3;
const SEND_INVALIDATE: u16 = 1 << 5;
const DATAGRAMS: u16 = 0b11 << 6;
const ATOMICS: u16 = 0b11 << 8;

impl Limits {
    /// Of a queue pair with exactly the capacities that were asked for.
    pub fn new(init: &QpInit, caps: &Caps) -> Limits {
        let datagram_bytes = caps.path_mtu.filter(|_| init.service == Service::Ud);
        let with_sges = match init.service {
            Service::Rc if caps.send_invalidate => {
                WRITES | READ | SENDS | ATOMICS | SEND_INVALIDATE
            }
            Service::Rc => WRITES | READ | SENDS | ATOMICS,
            Service::Uc => WRITES | SENDS,
            Service::Ud => DATAGRAMS,
        };
        Limits {
            max_send_wr: init.max_send_wr,
            max_recv_wr: init.max_recv_wr,
            max_sge: init.max_sge,
            max_inline_bytes: datagram_bytes.map_or(init.max_inline_bytes, |most| {
                most.min(init.max_inline_bytes)
            }),
            max_message_bytes: datagram_bytes.map_or(caps.max_message_bytes, u64::from),
            service: init.service,
            with_sges,
            with_inline: with_sges & !(READ | ATOMICS),
        }
    }

    /// Whether a queue pair in this state with `outstanding` sends ([`Account::outstanding`]) takes
    /// a send. The regions that it names are for the provider to look up.
    ///
    /// # Errors
    /// The first rule that it breaks.
    #[inline]
    pub fn check_send(
        &self,
        state: QpState,
        outstanding: u64,
        wr: &SendWr<'_>,
    ) -> Result<(), PostFailure> {
        if !state.takes_send() {
            return Err(PostFailure::State(state));
        }
        check_room(outstanding, self.max_send_wr)?;
        self.check_operation(wr)?;
        match wr.payload {
            Payload::Inline(data) => self.check_inline(data.len()),
            Payload::Sges(sges) => {
                self.check_sges(sges.len())?;
                self.check_message(wr.payload.bytes())
            }
        }
    }

    /// As [`Limits::check_send`], for a receive.
    ///
    /// # Errors
    /// The first rule that it breaks.
    #[inline]
    pub fn check_recv(
        &self,
        state: QpState,
        outstanding: u64,
        wr: &RecvWr<'_>,
    ) -> Result<(), PostFailure> {
        if !state.takes_recv() {
            return Err(PostFailure::State(state));
        }
        check_room(outstanding, self.max_recv_wr)?;
        self.check_sges(wr.sges.len())
    }

    /// Whether the queue pair has the operation, and the operation can have this payload.
    #[inline]
    fn check_operation(&self, wr: &SendWr<'_>) -> Result<(), PostFailure> {
        let allowed = match wr.payload {
            Payload::Inline(_) => self.with_inline,
            Payload::Sges(_) => self.with_sges,
        };
        let bit = bit(&wr.op);
        if allowed & bit == 0 {
            return Err(self.refusal(&wr.op));
        }
        if bit & (ATOMICS | DATAGRAMS) != 0 {
            return check_special(wr);
        }
        Ok(())
    }

    #[cold]
    fn refusal(&self, op: &SendOp) -> PostFailure {
        let service = self.service;
        if !op.exists_on(service) {
            return PostFailure::Service { service };
        }
        if self.with_sges & bit(op) == 0 {
            return PostFailure::NotOffered("SEND with invalidate (Caps::send_invalidate)");
        }
        PostFailure::Payload("a READ or an atomic cannot be inline")
    }

    #[inline]
    fn check_sges(&self, asked: usize) -> Result<(), PostFailure> {
        if asked <= self.max_sge as usize {
            return Ok(());
        }
        Err(PostFailure::TooManySges {
            asked,
            limit: self.max_sge,
        })
    }

    #[inline]
    fn check_inline(&self, asked: usize) -> Result<(), PostFailure> {
        if asked <= self.max_inline_bytes as usize {
            return Ok(());
        }
        Err(PostFailure::InlineTooLong {
            asked,
            limit: self.max_inline_bytes,
        })
    }

    #[inline]
    fn check_message(&self, asked: u64) -> Result<(), PostFailure> {
        if asked <= self.max_message_bytes {
            return Ok(());
        }
        Err(PostFailure::MessageTooLong {
            asked,
            limit: self.max_message_bytes,
        })
    }
}

#[inline]
fn check_room(outstanding: u64, capacity: u32) -> Result<(), PostFailure> {
    if outstanding < u64::from(capacity) {
        return Ok(());
    }
    Err(PostFailure::QueueFull { capacity })
}

/// What only atomics and datagrams must keep.
fn check_special(wr: &SendWr<'_>) -> Result<(), PostFailure> {
    match wr.op.destination() {
        Some(to) => check_destination(to),
        None if wr.payload.bytes() != 8 => Err(PostFailure::Payload(
            "an atomic needs exactly eight local bytes",
        )),
        None => Ok(()),
    }
}

fn check_destination(to: &Destination) -> Result<(), PostFailure> {
    let why = if to.qpn > MAX_24_BITS {
        "a queue pair number has 24 bits"
    } else if to.qkey > MAX_QKEY {
        "a Q_Key of a program has 31 bits"
    } else {
        return Ok(());
    };
    Err(PostFailure::Destination(why))
}

/// The rights that the local regions of an operation need.
#[inline]
pub fn local_rights(op: &SendOp) -> Access {
    match op {
        SendOp::Read(_) | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => {
            Access::LOCAL_WRITE
        }
        SendOp::Write(_)
        | SendOp::WriteImm(..)
        | SendOp::Send
        | SendOp::SendImm(_)
        | SendOp::SendInvalidate(_)
        | SendOp::SendTo(_)
        | SendOp::SendImmTo(..) => Access::empty(),
    }
}

/// How many requests of one work queue have left it. They are numbered from 0 in the order of
/// posting, and complete in that order.
#[derive(Debug, Default)]
pub struct Account {
    freed: AtomicU64,
}

impl Account {
    /// Requests that still occupy the queue, of `posted` ever posted.
    #[inline]
    pub fn outstanding(&self, posted: u64) -> u64 {
        posted - self.freed.load(Ordering::Acquire)
    }

    /// Requests that have left the queue.
    #[inline]
    pub fn freed(&self) -> u64 {
        self.freed.load(Ordering::Acquire)
    }

    /// All requests before number `end` are free. Numbers may come in any order.
    #[inline]
    pub fn free_before(&self, end: u64) {
        self.freed.fetch_max(end, Ordering::AcqRel);
    }
}

/// A completion in its queue, with the request that polling it frees.
#[derive(Debug)]
pub struct Entry {
    /// What the application will see.
    pub completion: Completion,
    /// The work queue of the request.
    pub account: Arc<Account>,
    /// The number of the request there.
    pub seq: u64,
}

impl Entry {
    /// Hands out the completion: its request, and all before it, leave the work queue.
    #[inline]
    pub fn polled(self) -> Completion {
        self.account.free_before(self.seq + 1);
        self.completion
    }
}

#[cfg(test)]
pub(super) mod tests;
