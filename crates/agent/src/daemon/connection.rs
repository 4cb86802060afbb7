//! A queue pair of an application, in the agent: what it was asked, and what the device has in its hands.
use super::own::OwnQp;
use super::send::Send;
use super::share::{Buffer, Shared};
use crate::entry::{Done, Event, MAX_INLINE_BYTES, Request, Work};
use crate::scheduler::{Chunk, ConnectionId};
use catchment_verbs::{
    Access, Ah, Completion, Cq, Endpoint, Payload, QpState, RecvWr, SendOp, SendWr, Service,
    WcOpcode,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// The bit of a `wr_id` that marks a receive. Below it is the number of the connection, and in the lower half
/// the number of the request in the device's hands.
const RECEIVE: u64 = 1 << 63;
/// Chunks, and about so many bytes, that are given to the device in one go.
const BATCH: usize = 16;
const BATCH_BYTES: u64 = 64 << 10;

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

/// A queue pair, its service and protection domain, and its completion queue if it has one of its own.
pub(super) struct NewQp {
    pub(super) qp: OwnQp,
    pub(super) service: Service,
    pub(super) pd: u32,
    pub(super) cq: Option<Arc<dyn Cq>>,
}

/// See the module.
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    /// The application that owns it, and its number there.
    pub(super) owner: usize,
    pub(super) queue_pair: u32,
    /// In the device.
    pub(super) qpn: u32,
    pub(super) service: Service,
    /// `None` while its state is being changed.
    pub(super) qp: Option<OwnQp>,
    /// The device said so when it was last asked.
    has_failed: bool,
    /// Who waits to change it next.
    pub(super) lenders: VecDeque<Sender<Option<OwnQp>>>,
    /// Of its own, in the mode `raw`.
    pub(super) cq: Option<Arc<dyn Cq>>,
    /// The protection domain, by the application's number, and what peers may do.
    pub(super) pd: u32,
    pub(super) access: Access,
    /// While it shares queue pairs with others.
    pub(super) shared: Option<Box<Shared>>,
    /// The life in which it shares no more: its peer had said so before it was known here that it does.
    pub(super) parts_in: Option<u64>,
    /// Since RTR.
    pub(super) peer: Option<Endpoint>,
    most_sends: u32,
    most_receives: u32,
    pub(super) sends: VecDeque<Send>,
    /// Behind a drained queue (SQD).
    held: VecDeque<Send>,
    pub(super) holds: bool,
    /// What its application knows of what it has in the device's hands.
    counted: usize,
    /// To be given to the device in one go: parts of the first of `sends`, in order.
    pub(super) planned: Vec<Chunk>,
    planned_bytes: u64,
    flying: VecDeque<Flying>,
    /// Requests that were given to the device completely and are not done.
    unfinished: usize,
    /// Tells requests in the device's hands from those of before a reset, and of the connection before it.
    pub(super) number: u32,
    receives: VecDeque<(u32, u64)>,
    /// While its state is being changed, or it shares queue pairs.
    pub(super) waiting_receives: VecDeque<Request>,
    /// The last request whose failure the application knows; parts of it may still come back.
    reported: Option<u64>,
    /// Buffers of inline data that are free.
    spare: Vec<Buffer>,
}

/// An application has more requests outstanding than its queue holds.
#[derive(Debug)]
pub(super) struct TooMany;

impl Connection {
    pub(super) fn new(
        id: ConnectionId,
        (owner, queue_pair): (usize, u32),
        number: u32,
        NewQp { qp, service, pd, cq }: NewQp,
        most: (u32, u32),
    ) -> Self {
        Self {
            id,
            owner,
            queue_pair,
            qpn: qp.qpn(),
            service,
            qp: Some(qp),
            has_failed: false,
            lenders: VecDeque::new(),
            cq,
            pd,
            access: Access::empty(),
            shared: None,
            parts_in: None,
            peer: None,
            most_sends: most.0,
            most_receives: most.1,
            sends: VecDeque::new(),
            held: VecDeque::new(),
            holds: false,
            counted: 0,
            planned: Vec::with_capacity(BATCH),
            planned_bytes: 0,
            flying: VecDeque::new(),
            unfinished: 0,
            number,
            receives: VecDeque::new(),
            waiting_receives: VecDeque::new(),
            reported: None,
            spare: Vec::new(),
        }
    }

    /// Returns how many bytes the scheduler must be told for a chunk list that is in the device's hands.
    pub(super) fn flying(&self) -> impl Iterator<Item = u64> {
        let planned = self.planned.iter().map(|chunk| chunk.bytes);
        self.flying.iter().map(|chunk| chunk.bytes).chain(planned)
    }

    /// Returns the numbers of its chunks in the device's hands.
    pub(super) fn flying_numbers(&self) -> impl Iterator<Item = u32> {
        self.flying.iter().map(|chunk| chunk.number)
    }

    /// Returns whether nothing of it is in the device's hands.
    #[inline]
    pub(super) fn is_drained(&self) -> bool {
        self.flying.is_empty()
    }

    /// Returns the requests of its send queue that are not done.
    pub(super) fn under_way(&self) -> usize {
        self.sends.len() + self.unfinished
    }

    /// Corrects the number of what its application has in the device's hands.
    #[inline]
    pub(super) fn count(&mut self, outstanding: &mut usize) {
        let now = self.flying.len() + self.receives.len();
        *outstanding = *outstanding + now - std::mem::replace(&mut self.counted, now);
    }

    /// Takes a request of the send queue, with its inline data and, of a datagram, its address handle; returns its length and
    /// whether it can be split, or nothing if it is held back.
    #[inline]
    pub(super) fn ask(
        &mut self,
        request: &Request,
        inline: &[u8],
        ah: Option<Arc<dyn Ah>>,
    ) -> Result<Option<(u64, bool)>, TooMany> {
        let Work::Send { op, signaled, fence, solicited } = request.work else { return Ok(None) };
        let outstanding = self.sends.len() + self.held.len() + self.unfinished;
        if outstanding >= self.most_sends as usize {
            return Err(TooMany);
        }
        let (seq, data) = (request.seq, request.data);
        let inline = data.is_inline().then(|| self.keep(inline));
        let _ah = ah;
        let send = Send { seq, op, signaled, fence, solicited, data, inline, _ah, failed: false };
        if self.holds {
            self.held.push_back(send);
            return Ok(None);
        }
        let shape = send.shape(self.shared.is_some());
        self.sends.push_back(send);
        Ok(Some(shape))
    }

    /// Keeps a buffer for later.
    pub(super) fn give_back(&mut self, bytes: Buffer) {
        self.spare.push(bytes);
    }

    fn keep(&mut self, inline: &[u8]) -> Buffer {
        let mut bytes = self.spare.pop().unwrap_or_else(|| Box::new([0; MAX_INLINE_BYTES]));
        let count = inline.len().min(MAX_INLINE_BYTES);
        bytes[..count].copy_from_slice(&inline[..count]);
        bytes
    }

    /// Ends a drained queue; returns the shapes of what was held back.
    pub(super) fn release(&mut self) -> Vec<(u64, bool)> {
        self.holds = false;
        let shares = self.shared.is_some();
        let shapes = self.held.iter().map(|send| send.shape(shares)).collect();
        self.sends.append(&mut self.held);
        shapes
    }

    /// Notes a chunk to be given to the device; returns whether it and those noted before must be given now.
    #[inline]
    pub(super) fn plan(&mut self, chunk: Chunk) -> bool {
        self.planned.push(chunk);
        self.planned_bytes += chunk.bytes;
        let is_part = chunk.offset > 0 || !chunk.last;
        is_part || self.planned.len() >= BATCH || self.planned_bytes >= BATCH_BYTES
    }

    /// Takes back what was planned, to plan it again.
    pub(super) fn unplan(&mut self) -> Vec<Chunk> {
        self.planned_bytes = 0;
        std::mem::take(&mut self.planned)
    }

    /// Gives the planned chunks to the device in one go. Tells what became of those of which it is already
    /// known.
    #[inline]
    pub(super) fn post_planned(&mut self, mut tell: impl FnMut(&Landed)) {
        self.planned_bytes = 0;
        let given = if self.planned.len() > 1 { self.post_together() } else { 0 };
        for at in given..self.planned.len() {
            let chunk = self.planned[at];
            if let Some(landed) = self.post(&chunk) {
                tell(&landed);
            }
        }
        self.planned.clear();
    }

    /// Gives planned chunks to the device; returns how many it took. The device tells of the last one, and of
    /// those of which the application wants to know: it is done with them in order.
    fn post_together(&mut self) -> usize {
        let (base, first) = (self.base(), self.number);
        let Some(qp) = &mut self.qp else { return 0 };
        if self.sends.front().is_none_or(|send| send.failed) {
            return 0;
        }
        let (last, mut part) = (self.planned.len() - 1, None);
        if let (Some(chunk), Some(send)) = (self.planned.last(), self.sends.get(last)) {
            part = send.own_elements(chunk);
        }
        let part = part.as_ref().map(|(sges, count)| &sges[..*count]);
        let mut requests = [SendWr::new(0, SendOp::Send, Payload::Sges(&[])); BATCH];
        let (mut count, planned) = (0, self.planned.iter().zip(&self.sends));
        for (request, (chunk, send)) in requests.iter_mut().zip(planned) {
            let wr_id = base | u64::from(first.wrapping_add(count as u32 + 1));
            let is_last = count == last;
            *request = send.request(chunk, wr_id, part.filter(|_| is_last));
            request.signaled = is_last || send.signaled;
            count += 1;
        }
        let posted = qp.post_send(&requests[..count]).map_or_else(|error| error.index, |()| count);
        for at in 0..posted {
            let chunk = self.planned[at];
            self.note(&chunk);
        }
        posted
    }

    /// Returns the part of a `wr_id` that is the connection.
    pub(super) fn base(&self) -> u64 {
        (self.id.index() as u64) << 32
    }

    /// Notes that the device has a chunk of the first request.
    #[inline]
    pub(super) fn note(&mut self, chunk: &Chunk) {
        self.number = self.number.wrapping_add(1);
        let Some(send) = self.sends.front() else { return };
        self.flying.push_back(Flying {
            number: self.number,
            seq: send.seq,
            bytes: chunk.bytes,
            last: chunk.last,
            signaled: send.signaled,
            opcode: send.op.opcode(),
            message_bytes: send.data.bytes(),
        });
        if chunk.last {
            self.unfinished += 1;
            self.pop_send();
        }
    }

    fn pop_send(&mut self) {
        if let Some(Send { inline: Some(bytes), .. }) = self.sends.pop_front() {
            self.spare.push(bytes);
        }
    }

    /// Asks the device whether its queue pair has failed; returns its number when that is news.
    pub(super) fn find_failed(&mut self) -> Option<u32> {
        let has_failed = self.qp.as_ref().is_some_and(|qp| qp.state() == QpState::Err);
        let was_known = std::mem::replace(&mut self.has_failed, has_failed);
        (has_failed && !was_known).then_some(self.qpn)
    }

    /// Gives a chunk to the device. Returns what became of it, if it is already known.
    fn post(&mut self, chunk: &Chunk) -> Option<Landed> {
        let wr_id = self.base() | u64::from(self.number.wrapping_add(1));
        let send = self.sends.front()?;
        let (seq, failed) = (send.seq, send.failed);
        let part = send.own_elements(chunk);
        let part = part.as_ref().map(|(sges, count)| &sges[..*count]);
        let request = send.request(chunk, wr_id, part);
        let posted = match &mut self.qp {
            Some(qp) if !failed => qp.post_send(&[request]).is_ok(),
            _ => false,
        };
        if posted {
            self.note(chunk);
            return None;
        }
        let status = send.refusal();
        if !failed {
            self.reported = Some(seq);
            if let Some(send) = self.sends.front_mut() {
                send.failed = true;
            }
        }
        if chunk.last {
            self.pop_send();
        }
        let event = Event::Sent(Done::new(seq, Err((status, 0))));
        Some(Landed { bytes: chunk.bytes, event: (!failed).then_some(event), ended: !failed })
    }

    /// Gives a receive to the device, or keeps it until the state is changed or while it shares.
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
        let base = self.base();
        let Some(qp) = self.qp.as_mut().filter(|qp| qp.takes_receives()) else { return };
        while let Some(request) = self.waiting_receives.pop_front() {
            self.number = self.number.wrapping_add(1);
            let wr_id = RECEIVE | base | u64::from(self.number);
            let posted = qp.post_recv(&[RecvWr { wr_id, sges: request.data.elements() }]);
            if posted.is_ok() {
                self.receives.push_back((self.number, request.seq));
            }
        }
    }

    /// Returns the number of the connection in a `wr_id`.
    #[inline]
    pub(super) fn place_of(wr_id: u64) -> usize {
        ((wr_id & !RECEIVE) >> 32) as usize
    }

    /// Returns whether this `wr_id` is that of a receive.
    #[inline]
    pub(super) fn is_receive(wr_id: u64) -> bool {
        wr_id & RECEIVE != 0
    }

    /// Notes that the device is done with a receive; `None` if it is not outstanding.
    pub(super) fn complete_receive(&mut self, done: &Completion) -> Option<Landed> {
        let number = done.wr_id as u32;
        let at = self.receives.iter().position(|(known, _)| *known == number)?;
        let (_, seq) = self.receives.remove(at)?;
        let done = match done.result {
            Ok(success) => Done {
                imm: success.imm,
                source_qpn: success.source_qpn(),
                ..Done::new(seq, Ok((success.opcode, success.bytes)))
            },
            Err(failure) => Done::new(seq, Err((failure.status, failure.vendor_err))),
        };
        let event = Some(Event::Received(done));
        Some(Landed { bytes: 0, event, ended: false })
    }

    /// Notes that the device is done with a chunk, and so with all before it: returns what became of the first
    /// of them, and in the end `None`, at once if it is not outstanding.
    #[inline]
    pub(super) fn complete_send(&mut self, done: &Completion) -> Option<Landed> {
        let number = done.wr_id as u32;
        let (first, newest) = (self.flying.front()?.number, self.flying.back()?.number);
        if number.wrapping_sub(first) > newest.wrapping_sub(first) {
            return None;
        }
        let chunk = self.flying.pop_front()?;
        self.unfinished -= usize::from(chunk.last);
        let (seq, bytes) = (chunk.seq, chunk.bytes);
        let known = self.reported == Some(seq);
        let failure = done.result.err().filter(|_| chunk.number == number);
        let (result, ends) = match failure {
            None => (Ok((chunk.opcode, chunk.message_bytes)), chunk.last && !known),
            Some(failure) => (Err((failure.status, failure.vendor_err)), !known),
        };
        if result.is_err() {
            self.reported = Some(seq);
            // Nothing more of it is given to the device.
            if let Some(send) = self.sends.front_mut().filter(|send| send.seq == seq) {
                send.failed = true;
            }
        }
        let tells = ends && (chunk.signaled || result.is_err());
        let event = tells.then_some(Event::Sent(Done::new(seq, result)));
        Some(Landed { bytes, event, ended: ends })
    }

    /// Forgets everything that is outstanding: its queue pair was reset. The number goes on.
    pub(super) fn reset(&mut self) {
        self.sends.clear();
        self.held.clear();
        self.holds = false;
        self.flying.clear();
        self.planned.clear();
        self.planned_bytes = 0;
        self.unfinished = 0;
        self.receives.clear();
        self.waiting_receives.clear();
        self.reported = None;
    }
}
