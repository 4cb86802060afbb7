//! A queue pair of an application, in the agent: what it was asked, and what the device has in its hands.
use crate::entry::{Data, Done, Event, MAX_SGES, Request, Work};
use crate::scheduler::{Chunk, ConnectionId};
use catchment_verbs::{
    Completion, Endpoint, Payload, Qp, RecvWr, RemoteAddr, SendOp, SendWr, Sge, WcOpcode, WcStatus,
};
use std::collections::VecDeque;

/// The bit of a `wr_id` that marks a receive.
const RECEIVE: u64 = 1 << 63;

/// A request of the send queue that is not served completely.
struct Send {
    seq: u64,
    op: SendOp,
    signaled: bool,
    fence: bool,
    solicited: bool,
    data: Data,
    /// A part of it failed, and the application knows.
    failed: bool,
}

/// A chunk in the device's hands.
struct Flying {
    number: u32,
    seq: u64,
    bytes: u64,
    last: bool,
    signaled: bool,
    opcode: WcOpcode,
    message_bytes: u64,
}

/// What became of a chunk.
pub(super) struct Landed {
    /// Its bytes, as the scheduler knows them.
    pub(super) bytes: u64,
    /// What the application is told, if anything.
    pub(super) event: Option<Event>,
    /// A request of the application ended.
    pub(super) ended: bool,
}

/// See the module.
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    /// Tells its requests from those of before a reset, and from others'.
    epoch: u32,
    /// `None` while its state is being changed.
    pub(super) qp: Option<Box<dyn Qp>>,
    /// Since RTR.
    pub(super) peer: Option<Endpoint>,
    most_sends: u32,
    most_receives: u32,
    sends: VecDeque<Send>,
    /// Behind a drained queue (SQD).
    held: VecDeque<Send>,
    pub(super) holds: bool,
    flying: VecDeque<Flying>,
    number: u32,
    receives: VecDeque<(u32, u64)>,
    /// While its state is being changed.
    waiting_receives: VecDeque<Request>,
    /// The last request whose failure the application knows; parts of it may still come back.
    reported: Option<u64>,
}

fn moved(to: RemoteAddr, by: u64) -> RemoteAddr {
    RemoteAddr { addr: to.addr.wrapping_add(by), ..to }
}

/// Returns the operation for a chunk of a request.
fn part_of(op: SendOp, chunk: &Chunk) -> SendOp {
    match op {
        SendOp::Write(to) => SendOp::Write(moved(to, chunk.offset)),
        SendOp::WriteImm(to, imm) if chunk.last => SendOp::WriteImm(moved(to, chunk.offset), imm),
        SendOp::WriteImm(to, _) => SendOp::Write(moved(to, chunk.offset)),
        SendOp::Read(from) => SendOp::Read(moved(from, chunk.offset)),
        SendOp::Send
        | SendOp::SendImm(_)
        | SendOp::SendInvalidate(_)
        | SendOp::SendTo(_)
        | SendOp::SendImmTo(..)
        | SendOp::CompareSwap { .. }
        | SendOp::FetchAdd { .. } => op,
    }
}

/// Returns whether an operation can be done in several.
fn splits(op: &SendOp) -> bool {
    matches!(op, SendOp::Write(_) | SendOp::WriteImm(..) | SendOp::Read(_))
}

/// An application has more requests outstanding than its queue holds.
#[derive(Debug)]
pub(super) struct TooMany;

impl Connection {
    pub(super) fn new(id: ConnectionId, epoch: u32, qp: Box<dyn Qp>, most: (u32, u32)) -> Self {
        Self {
            id,
            epoch,
            qp: Some(qp),
            peer: None,
            most_sends: most.0,
            most_receives: most.1,
            sends: VecDeque::new(),
            held: VecDeque::new(),
            holds: false,
            flying: VecDeque::new(),
            number: 0,
            receives: VecDeque::new(),
            waiting_receives: VecDeque::new(),
            reported: None,
        }
    }

    /// Returns how many bytes the scheduler must be told for a chunk list that is in the device's hands.
    pub(super) fn flying(&self) -> impl ExactSizeIterator<Item = u64> {
        self.flying.iter().map(|chunk| chunk.bytes)
    }

    /// Takes a request of the send queue; returns its length and whether it can be split, or nothing if it
    /// is held back.
    pub(super) fn ask(&mut self, request: &Request) -> Result<Option<(u64, bool)>, TooMany> {
        let Work::Send { op, signaled, fence, solicited } = request.work else { return Ok(None) };
        let outstanding = self.sends.len() + self.held.len() + self.unfinished();
        if outstanding >= self.most_sends as usize {
            return Err(TooMany);
        }
        let (seq, data) = (request.seq, request.data);
        let send = Send { seq, op, signaled, fence, solicited, data, failed: false };
        let shape = (data.bytes(), splits(&op) && data.inline().is_none());
        if self.holds {
            self.held.push_back(send);
            return Ok(None);
        }
        self.sends.push_back(send);
        Ok(Some(shape))
    }

    /// Returns how many requests were given to the device completely and are not done.
    fn unfinished(&self) -> usize {
        self.flying.iter().filter(|chunk| chunk.last).count()
    }

    /// Ends a drained queue; returns the shapes of what was held back.
    pub(super) fn release(&mut self) -> Vec<(u64, bool)> {
        self.holds = false;
        let shape =
            |send: &Send| (send.data.bytes(), splits(&send.op) && send.data.inline().is_none());
        let shapes = self.held.iter().map(shape).collect();
        self.sends.append(&mut self.held);
        shapes
    }

    /// Gives a chunk to the device. Returns what became of it, if it is already known.
    pub(super) fn post(&mut self, chunk: &Chunk) -> Option<Landed> {
        let send = self.sends.front_mut()?;
        let opcode = send.op.opcode();
        let message_bytes = send.data.bytes();
        let (seq, signaled) = (send.seq, send.signaled);
        let (sges, count): ([Sge; MAX_SGES], usize) = send.data.part(chunk.offset, chunk.bytes);
        let op = part_of(send.op, chunk);
        let payload = send.data.inline().map_or(Payload::Sges(&sges[..count]), Payload::Inline);
        self.number = self.number.wrapping_add(1);
        let wr_id = u64::from(self.epoch) << 32 | u64::from(self.number);
        let wr = SendWr {
            wr_id,
            op,
            payload,
            signaled: true,
            fence: send.fence && chunk.offset == 0,
            solicited: send.solicited && chunk.last,
        };
        let failed = send.failed;
        let posted = match &mut self.qp {
            Some(qp) if !failed => qp.post_send(&[wr]).is_ok(),
            _ => false,
        };
        if posted {
            let (number, bytes, last) = (self.number, chunk.bytes, chunk.last);
            let flying = Flying { number, seq, bytes, last, signaled, opcode, message_bytes };
            self.flying.push_back(flying);
        } else if !failed {
            send.failed = true;
            self.reported = Some(seq);
        }
        if chunk.last {
            self.sends.pop_front();
        }
        if posted {
            return None;
        }
        let status = (WcStatus::LocalQpOperation, 0);
        let event = Event::Sent(Done { seq, result: Err(status), imm: None });
        Some(Landed { bytes: chunk.bytes, event: (!failed).then_some(event), ended: !failed })
    }

    /// Gives a receive to the device, or keeps it until the state is changed.
    pub(super) fn post_receive(&mut self, request: Request) -> Result<(), TooMany> {
        let outstanding = self.receives.len() + self.waiting_receives.len();
        if outstanding >= self.most_receives as usize {
            return Err(TooMany);
        }
        self.waiting_receives.push_back(request);
        self.post_receives();
        Ok(())
    }

    /// Gives the receives that were kept to the device.
    pub(super) fn post_receives(&mut self) {
        let Some(qp) = &mut self.qp else { return };
        while let Some(request) = self.waiting_receives.pop_front() {
            self.number = self.number.wrapping_add(1);
            let wr_id = RECEIVE | u64::from(self.epoch) << 32 | u64::from(self.number);
            let posted = qp.post_recv(&[RecvWr { wr_id, sges: request.data.elements() }]);
            if posted.is_ok() {
                self.receives.push_back((self.number, request.seq));
            }
        }
    }

    /// Returns the epoch in a `wr_id`.
    pub(super) fn epoch_of(wr_id: u64) -> u32 {
        ((wr_id & !RECEIVE) >> 32) as u32
    }

    /// Returns whether this `wr_id` is that of a receive.
    pub(super) fn is_receive(wr_id: u64) -> bool {
        wr_id & RECEIVE != 0
    }

    /// Notes a completion of the device; `None` if it is of nothing that is outstanding.
    pub(super) fn complete(&mut self, done: &Completion) -> Option<Landed> {
        let number = done.wr_id as u32;
        if done.wr_id & RECEIVE == 0 {
            return self.complete_send(number, done);
        }
        let at = self.receives.iter().position(|(known, _)| *known == number)?;
        let (_, seq) = self.receives.remove(at)?;
        let (result, imm) = match done.result {
            Ok(success) => (Ok((success.opcode, success.bytes)), success.imm),
            Err(failure) => (Err((failure.status, failure.vendor_err)), None),
        };
        let event = Some(Event::Received(Done { seq, result, imm }));
        Some(Landed { bytes: 0, event, ended: false })
    }

    fn complete_send(&mut self, number: u32, done: &Completion) -> Option<Landed> {
        // The device is done in the order of posting.
        if self.flying.front().is_none_or(|chunk| chunk.number != number) {
            return None;
        }
        let chunk = self.flying.pop_front()?;
        let (seq, bytes) = (chunk.seq, chunk.bytes);
        let known = self.reported == Some(seq);
        let (result, ends) = match done.result {
            Ok(_) => (Ok((chunk.opcode, chunk.message_bytes)), chunk.last && !known),
            Err(failure) => (Err((failure.status, failure.vendor_err)), !known),
        };
        if result.is_err() {
            self.reported = Some(seq);
            // Nothing more of it is given to the device.
            if let Some(send) = self.sends.front_mut().filter(|send| send.seq == seq) {
                send.failed = true;
            }
        }
        let tells = ends && (chunk.signaled || result.is_err());
        let event = tells.then_some(Event::Sent(Done { seq, result, imm: None }));
        Some(Landed { bytes, event, ended: ends })
    }

    /// Forgets everything that is outstanding: its queue pair was reset.
    pub(super) fn reset(&mut self, epoch: u32) {
        self.epoch = epoch;
        self.sends.clear();
        self.held.clear();
        self.holds = false;
        self.flying.clear();
        self.receives.clear();
        self.waiting_receives.clear();
        self.reported = None;
    }
}
