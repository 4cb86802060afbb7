//! Sending: messages into the peer's ring, and requests that must wait.
use crate::connection::Connection;
use crate::inbox::{BAD_RECEIVE, Kind, MAX_FRAGMENT_BYTES, RECORD_HEADER_BYTES, Record};
use crate::inner::Inner;
use crate::one_sided::{self, Obstacle};
use crate::payload::{Part, Source};
use crate::proto::Request;
use crate::qp_core::{LOST, QpCore};
use crate::remote::RemoteCache;
use crate::request::{Front, Outcome, Progress, Step, Waiting};
use crate::ring::{self, Count};
use catchment_verbs::{QpState, SendOp, WcStatus};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl QpCore {
    /// Executes the waiting requests, as far as possible.
    pub(crate) fn send_waiting(&self, inner: &mut Inner) -> Step {
        loop {
            let may_send = match self.state() {
                QpState::Rts => true,
                QpState::Sqd => inner.sends.front().is_some_and(|w| w.seq < inner.hold_from),
                QpState::Reset | QpState::Init | QpState::Rtr | QpState::Sqe | QpState::Err => {
                    false
                }
            };
            let Some(mut waiting) = may_send.then(|| inner.sends.pop_front()).flatten() else {
                return Step::Rest;
            };
            inner.opens = self.closed_until(inner, &mut waiting);
            if inner.opens.is_some() {
                inner.sends.push_front(waiting);
                return Step::Rest;
            }
            let outcome = match waiting.kept.source() {
                Ok(source) => {
                    let front = Front { op: &waiting.op, source, solicited: waiting.solicited };
                    self.attempt(inner, &front, &mut waiting.progress)
                }
                Err(status) => Outcome::Done(Err(status)),
            };
            let (wr_id, seq) = (waiting.wr_id, waiting.seq);
            let (signaled, opcode) = (waiting.signaled, waiting.op.opcode());
            // Back to the front: it is taken only when its completion is there.
            inner.sends.push_front(waiting);
            match outcome {
                Outcome::Wait => return Step::Rest,
                Outcome::Ask(connection, rkey) => return Step::Ask(connection, rkey),
                Outcome::Done(result) => {
                    let status = result.err();
                    self.complete_send(wr_id, seq, signaled, result.map(|n| (opcode, n)));
                    inner.pushed_send =
                        Some(inner.pushed_send.unwrap_or(false) || status.is_some());
                    self.pop_waiting(inner);
                    if let Some(status) = status {
                        self.blame(inner.connection.as_deref(), status);
                        self.fail_by_request(inner, inner.is_broken().then_some(LOST));
                    }
                }
            }
        }
    }

    /// Returns until when the rate limit holds this request back. Once passed, it stays so.
    fn closed_until(&self, inner: &mut Inner, waiting: &mut Waiting) -> Option<Instant> {
        let pace = inner.pace.as_mut()?;
        if waiting.op.is_read_or_atomic() || waiting.progress.paid {
            return None;
        }
        let closed = pace.take(waiting.kept.source().map_or(0, |source| source.bytes())).err();
        waiting.progress.paid = closed.is_none();
        closed
    }

    /// Reports to the peer that a request of ours was not allowed: its queue pair fails too
    /// (IBTA 9.7.5.2.4).
    pub(crate) fn blame(&self, connection: Option<&Connection>, status: WcStatus) {
        let code = if status == WcStatus::RemoteAccess {
            1
        } else if status == WcStatus::RemoteInvalidRequest {
            2
        } else {
            return;
        };
        if let Some((connection, link)) = connection.and_then(|c| Some((c, c.link().ok()?))) {
            link.notify(&Request::Fault { target: connection.facts.qpn, status: code });
        }
    }

    /// Tries to execute the request at the front.
    pub(crate) fn attempt(
        &self,
        inner: &mut Inner,
        front: &Front<'_>,
        progress: &mut Progress,
    ) -> Outcome {
        let Some(connection) = inner.connection.clone() else {
            let patience = inner.attributes.timeout * (u32::from(inner.attributes.retry_cnt) + 1);
            return wait_until(progress, patience, WcStatus::TransportRetryExceeded);
        };
        if !connection.is_alive() {
            return Outcome::Done(Err(WcStatus::TransportRetryExceeded));
        }
        if let Some((rkey, status)) = inner.refused.take()
            && one_sided::target(front.op).is_some_and(|(remote, _)| remote.rkey == rkey)
        {
            return Outcome::Done(Err(status));
        }
        if !one_sided::is_alone(front.op) {
            return self.attempt_message(inner, &connection, front, progress);
        }
        match one_sided::execute(&connection, &mut inner.cache, front.op, front.source) {
            Ok(bytes) => Outcome::Done(Ok(bytes)),
            Err(Obstacle::Failed(status)) => Outcome::Done(Err(status)),
            Err(Obstacle::Unknown(rkey)) => Outcome::Ask(connection, rkey),
        }
    }

    fn attempt_message(
        &self,
        inner: &mut Inner,
        connection: &Arc<Connection>,
        front: &Front<'_>,
        progress: &mut Progress,
    ) -> Outcome {
        if !progress.begun {
            match begin(inner, connection, front) {
                Begin::Begun => {
                    progress.begun = true;
                    progress.since = None;
                }
                Begin::NoRoom => return Outcome::Wait,
                Begin::NoReceive => return rnr(inner, connection, progress),
                Begin::Unknown(rkey) => return Outcome::Ask(Arc::clone(connection), rkey),
                Begin::Done(result) => return Outcome::Done(result),
            }
        }
        put_fragments(inner, connection, front, progress)
    }
}

/// Waits, but not longer than `patience`.
fn wait_until(progress: &mut Progress, patience: Duration, status: WcStatus) -> Outcome {
    let now = Instant::now();
    let since = *progress.since.get_or_insert(now);
    if now.saturating_duration_since(since) >= patience {
        Outcome::Done(Err(status))
    } else {
        Outcome::Wait
    }
}

/// Decides what happens to a message for which the peer has no receive posted.
fn rnr(inner: &Inner, connection: &Connection, progress: &mut Progress) -> Outcome {
    let retries = inner.attributes.rnr_retry;
    if retries >= 7 {
        return Outcome::Wait;
    }
    wait_until(progress, connection.rnr_timer() * u32::from(retries), WcStatus::RnrRetryExceeded)
}

enum Begin {
    Begun,
    NoRoom,
    NoReceive,
    Unknown(u32),
    Done(Result<u64, WcStatus>),
}

/// Finds the receive that the message takes, and performs the steps before its first byte.
fn begin(inner: &mut Inner, connection: &Arc<Connection>, front: &Front<'_>) -> Begin {
    let inbox = &connection.inbox;
    let posted = inbox.posted().observe();
    if inbox.recv_slots == 0 || (posted.wrapping_sub(inner.begun) as i64) <= 0 {
        return Begin::NoReceive;
    }
    match has_room(inner, connection, 0) {
        Ok(true) => {}
        Ok(false) => return Begin::NoRoom,
        Err(status) => return Begin::Done(Err(status)),
    }
    if let SendOp::WriteImm(_, imm) = front.op {
        // The immediate needs a receive, but no bytes of it.
        return write_imm(inner, connection, front, *imm);
    }
    let room = inbox.receive(inner.begun).load(Ordering::Relaxed);
    let (kind, status) = if room == BAD_RECEIVE {
        (Kind::Unusable, WcStatus::RemoteOperation)
    } else if front.source.bytes() > room {
        (Kind::TooLong, WcStatus::RemoteInvalidRequest)
    } else {
        inner.begun += 1;
        return Begin::Begun;
    };
    inner.begun += 1;
    put_record(inner, connection, &record(kind, front), |_| {});
    Begin::Done(Err(status))
}

fn write_imm(
    inner: &mut Inner,
    connection: &Arc<Connection>,
    front: &Front<'_>,
    imm: u32,
) -> Begin {
    match one_sided::execute(connection, &mut inner.cache, front.op, front.source) {
        Err(Obstacle::Unknown(rkey)) => Begin::Unknown(rkey),
        Err(Obstacle::Failed(status)) => Begin::Done(Err(status)),
        Ok(written) => {
            let note =
                Record { imm: Some(imm), message_bytes: written, ..record(Kind::WriteImm, front) };
            inner.begun += 1;
            put_record(inner, connection, &note, |_| {});
            Begin::Done(Ok(written))
        }
    }
}

fn record(kind: Kind, front: &Front<'_>) -> Record {
    Record {
        kind,
        last: true,
        solicited: front.solicited,
        imm: None,
        bytes: 0,
        message_bytes: front.source.bytes(),
    }
}

/// Returns whether a record with this payload fits now.
fn has_room(inner: &Inner, connection: &Connection, payload: usize) -> Result<bool, WcStatus> {
    let inbox = &connection.inbox;
    let needed = (RECORD_HEADER_BYTES + payload).next_multiple_of(RECORD_HEADER_BYTES) as u64;
    match ring::free_bytes(inbox.head(), inner.tail, inbox.ring_bytes.into()) {
        Ok(free) => Ok(free >= needed),
        Err(error) => {
            tracing::warn!(%error, "the peer's queue pair is broken");
            Err(WcStatus::RemoteOperation)
        }
    }
}

/// Puts a record that fits, and publishes it.
fn put_record(
    inner: &mut Inner,
    connection: &Connection,
    record: &Record,
    payload: impl FnOnce(u64),
) {
    let inbox = &connection.inbox;
    inbox.put(inner.tail, &record.encode());
    payload(inner.tail + RECORD_HEADER_BYTES as u64);
    inner.tail = inner.tail.wrapping_add(record.ring_bytes());
    inbox.tail().publish(inner.tail);
    inner.put = true;
}

/// Puts as much of a message as fits.
fn put_fragments(
    inner: &mut Inner,
    connection: &Connection,
    front: &Front<'_>,
    progress: &mut Progress,
) -> Outcome {
    let total = front.source.bytes();
    let imm = if let SendOp::SendImm(imm) = front.op { Some(*imm) } else { None };
    loop {
        let left = total - progress.sent;
        let bytes = left.min(MAX_FRAGMENT_BYTES as u64) as usize;
        match has_room(inner, connection, bytes) {
            Ok(true) => {}
            Ok(false) => return Outcome::Wait,
            Err(status) => return Outcome::Done(Err(status)),
        }
        let record = Record {
            last: bytes as u64 == left,
            imm,
            bytes: bytes as u32,
            ..record(Kind::Send, front)
        };
        let skip = progress.sent as usize;
        put_record(inner, connection, &record, |at| {
            front.source.parts(skip, bytes, |done, part| {
                let at = at.wrapping_add(done as u64);
                match part {
                    Part::Plain(data) => connection.inbox.put(at, data),
                    Part::Memory(memory) => connection.inbox.put_memory(at, memory),
                }
            });
        });
        progress.sent += bytes as u64;
        if record.last {
            return Outcome::Done(Ok(total));
        }
    }
}

/// Executes a one-sided request on the owner's thread, which may query the peer. Waiting requests
/// go through [`QpCore::attempt`].
pub(crate) fn execute_now(
    connection: &Arc<Connection>,
    cache: &mut RemoteCache,
    op: &SendOp,
    source: Source<'_>,
) -> Result<u64, WcStatus> {
    loop {
        match one_sided::execute(connection, cache, op, source) {
            Ok(bytes) => return Ok(bytes),
            Err(Obstacle::Failed(status)) => return Err(status),
            Err(Obstacle::Unknown(rkey)) => {
                cache.insert(crate::remote::RemoteMr::resolve(connection, rkey)?);
            }
        }
    }
}
