//! Messages of a connection that shares queue pairs: a SEND becomes WRITEs into the receive that the peer's agent told
//! of, and both agents know the receive by its number. Nobody waits for a receive of another one, and nothing is copied.
use super::checks::{Need, check, lies_in, translate};
use super::connection::{Connection, Landed};
use super::send::Send;
use super::share::{Regions, Shared, Stage};
use super::shared_qps::{Posted, SharedQps};
use crate::entry::{Data, Done, Event, MAX_SGES, Request};
use crate::inband::{Message, RECEIVES, Receives, Told, fitting};
use crate::matching::{Piece, Receive};
use crate::scheduler::Chunk;
use catchment_verbs::{Access, QpTransition, RemoteAddr, SendOp, WcOpcode};

/// The number of tries that stands for any number of them.
const PATIENT: u8 = 7;

/// Returns whether an operation takes a receive of the peer.
pub(super) const fn takes_receive(op: &SendOp) -> bool {
    matches!(op, SendOp::Send | SendOp::SendImm(_) | SendOp::WriteImm(..))
}

/// A message that is known to succeed, as WRITEs: where to, and from where.
pub(super) struct Plan {
    writes: [(RemoteAddr, Data); MAX_SGES],
    count: usize,
    bytes: u64,
    is_send: bool,
    imm: Option<u32>,
}

impl Plan {
    /// Returns what the last chunk of a message becomes, or what it needs.
    pub(super) fn new(
        send: &Send,
        chunk: &Chunk,
        (regions, pd): (&Regions, u32),
        shared: &Shared,
    ) -> Result<Self, Need> {
        let Some(receive) = shared.receives.first() else {
            let waits = shared.is_patient || !shared.is_told;
            // The queue pair of its own counts its tries.
            return Err(if waits { Need::Receive } else { Need::Apart });
        };
        let nowhere = (RemoteAddr::default(), Data::Inline(0));
        let mut plan = Self {
            writes: [nowhere; MAX_SGES],
            count: 0,
            bytes: send.data.bytes(),
            is_send: true,
            imm: None,
        };
        if let SendOp::WriteImm(_, imm) = send.op {
            let (op, data) = check(send, chunk, (regions, pd), shared)?;
            let SendOp::Write(remote) = op else { return Err(Need::Apart) };
            (plan.writes[0], plan.count) = ((remote, data), 1);
            (plan.is_send, plan.imm) = (false, Some(imm));
            return Ok(plan);
        }
        plan.imm = if let SendOp::SendImm(imm) = send.op { Some(imm) } else { None };
        // It is too long for its receive: the queue pairs of their own say what that means.
        let (pieces, count) = receive.fill(plan.bytes).ok_or(Need::Apart)?;
        let mut offset = 0;
        for piece in &pieces[..count] {
            let region = shared.keys.get(&piece.rkey).ok_or(Need::Key(piece.rkey))?;
            let region = region.as_ref().ok_or(Need::Apart)?;
            let fits = lies_in(piece.addr, piece.bytes.into(), region.addr, region.bytes);
            fits.then_some(()).ok_or(Need::Apart)?;
            let data = part(&send.data, offset, piece.bytes);
            let data = translate(&data, regions, pd, false).ok_or(Need::Apart)?;
            let remote = RemoteAddr { addr: piece.addr, rkey: region.rkey };
            plan.writes[plan.count] = (remote, data);
            plan.count += 1;
            offset += u64::from(piece.bytes);
        }
        if count == 0 {
            // Its keys are checked all the same.
            translate(&send.data, regions, pd, false).ok_or(Need::Apart)?;
        }
        Ok(plan)
    }

    /// Returns whether one request tells all: a SEND without immediate into one piece.
    fn is_one(&self) -> bool {
        self.is_send && self.imm.is_none() && self.count <= 1
    }
}

/// A message that its peer's agent tells of is longer than its receive: no agent that obeys sends it.
#[derive(Debug, Clone, Copy)]
pub(super) struct TooLong {
    pub(super) bytes: u64,
    pub(super) room: u64,
}

/// Returns the part of some data; of inline data, its length.
fn part(data: &Data, offset: u64, bytes: u32) -> Data {
    if data.is_inline() {
        return Data::Inline(bytes as u16);
    }
    let (elements, count) = data.part(offset, bytes.into());
    Data::Elements(elements, count as u8)
}

/// Returns a receive as the agent of the peer is told of it.
fn describe(request: &Request, regions: &Regions, pd: u32) -> Receive {
    let (mut pieces, mut count) = ([Piece::default(); MAX_SGES], 0);
    for sge in request.data.elements() {
        let region = regions.get(&sge.lkey).filter(|region| {
            let fits =
                lies_in(sge.addr, sge.bytes.into(), region.mr.addr(), region.mr.bytes() as u64);
            fits && region.pd == pd && region.access.contains(Access::LOCAL_WRITE)
        });
        let Some(region) = region else { return Receive::unfit() };
        if sge.bytes > 0 {
            pieces[count] = Piece { addr: sge.addr, bytes: sge.bytes, rkey: region.rkey };
            count += 1;
        }
    }
    Receive::new(&pieces[..count]).unwrap_or(Receive::unfit())
}

impl Connection {
    /// Returns whether the next request takes a receive, and nothing of it binds the connection to a queue pair.
    pub(super) fn begins_message(&self) -> bool {
        let is_message = |send: &Send| takes_receive(&send.op);
        self.is_drained() && self.sends.front().is_some_and(is_message)
    }

    /// Gives a message to a shared queue pair.
    pub(super) fn post_message(&mut self, chunk: &Chunk, plan: &Plan, shared_qps: &mut SharedQps) {
        let (base, peer) = (self.base(), self.peer.map_or(0, |peer| peer.qpn));
        let wr_id = base | u64::from(self.number.wrapping_add(1));
        let (Some(shared), Some(send)) = (&mut self.shared, self.sends.front_mut()) else { return };
        let (place, number) = (shared.place, shared.receives.advance());
        let Plan { is_send, bytes, imm, .. } = *plan;
        let told = Told { number, is_send, bytes, imm };
        let message = Some((self.qpn, told));
        let numbers = shared.carries.take();
        let is_one = plan.is_one() && numbers.is_none();
        (shared.group, shared.has_sent) = (Some(place), true);
        let mut fence = send.fence && chunk.offset == 0;
        let inline = send.inline.take();
        let mut offset = 0;
        for (remote, data) in &plan.writes[..plan.count] {
            let mut posted = Posted::new(base, SendOp::Write(*remote), *data);
            posted.is_silent = true;
            (posted.fence, fence) = (fence, false);
            if let (Data::Inline(count), Some(bytes)) = (data, &inline) {
                let mut copy = shared_qps.take_buffer();
                let count = usize::from(*count);
                copy[..count].copy_from_slice(&bytes[offset..offset + count]);
                (posted.inline, offset) = (Some(copy), offset + count);
            }
            if is_one {
                (posted.op, posted.wr_id) = (SendOp::WriteImm(*remote, peer), wr_id);
                (posted.is_silent, posted.message) = (false, message);
            }
            shared_qps.push(place, posted);
        }
        if plan.count == 0 || !is_one {
            let done = Message::Done { from: self.qpn, told, numbers };
            let buffer = shared_qps.take_buffer();
            let posted = Posted::message(wr_id, peer, &done, buffer);
            shared_qps.push(place, Posted { message, fence, is_silent: false, ..posted });
        }
        if let Some(bytes) = inline {
            self.give_back(bytes);
        }
        self.note(chunk);
    }

    /// Tells the peer's agent of receives that it does not know; `answer`: and that these are all that there are.
    pub(super) fn announce(
        &mut self,
        regions: &Regions,
        shared_qps: &mut SharedQps,
        answer: bool,
    ) -> Option<usize> {
        let (base, from, pd) = (self.base(), self.qpn, self.pd);
        let to = self.peer?.qpn;
        let shared = self.shared.as_mut().filter(|one| one.is_open && one.stage == Stage::Open)?;
        if shared.announced == self.waiting_receives.len() && !answer {
            return None;
        }
        let place = shared_qps.place(shared.host)?;
        while shared.announced < self.waiting_receives.len() {
            let mut all = [Receive::unfit(); RECEIVES];
            let known = shared.announced;
            let waiting = self.waiting_receives.range(known..).take(RECEIVES);
            let mut count = 0;
            for (receive, request) in all.iter_mut().zip(waiting) {
                *receive = describe(request, regions, pd);
                count += 1;
            }
            let count = fitting(&all[..count]);
            let first = shared.taken.wrapping_add(known as u32);
            let receives = Receives::Given(&all[..count]);
            shared_qps.say(place, base, to, &Message::Posted { from, first, receives });
            shared.announced += count;
        }
        if answer {
            shared_qps.say(place, base, to, &Message::Open { from, answer });
        }
        Some(place)
    }

    /// Notes how long it waits for receives of its peer.
    pub(super) fn note_patience(&mut self, transition: &Option<QpTransition>) {
        if let (Some(shared), Some(QpTransition::ToRts(attr))) = (&mut self.shared, transition) {
            shared.is_patient = attr.rnr_retry == PATIENT;
        }
    }

    /// Asks how many messages the peer has taken, behind all that it has told, if it waits to hear that.
    pub(super) fn ask_taken(&self, shared_qps: &mut SharedQps) -> Option<usize> {
        let shared = self.shared.as_ref().filter(|shared| shared.is_unsure)?;
        let (from, to) = (self.qpn, self.peer?.qpn);
        shared_qps.say(shared.place, self.base(), to, &Message::Ask { from });
        Some(shared.place)
    }

    /// Begins to stop sharing, if it was told to before it was known to share.
    pub(super) fn part_if_told(&mut self) {
        let told = self.parts_in.take();
        if let Some(shared) = self.shared.as_mut().filter(|shared| told == Some(shared.life)) {
            shared.stage = Stage::Parting;
        }
    }

    /// It does not share any more: its peer's agent is told of nothing that it was told before.
    pub(super) fn forget_shared(&mut self, shared_qps: &mut SharedQps) {
        let at = self.id.index();
        if self.shared.take().is_some() {
            shared_qps.give_up(|wr_id| Self::place_of(wr_id) == at);
        }
    }

    /// Returns the number of the next message of the peer.
    pub(super) fn next_message(&self) -> u32 {
        self.shared.as_ref().map_or(0, |shared| shared.taken)
    }

    /// Says that this end shares; once, when there is a queue pair to say it over.
    pub(super) fn open(&mut self, shared_qps: &mut SharedQps) -> Option<usize> {
        let (base, from, to) = (self.base(), self.qpn, self.peer?.qpn);
        let shared = self.shared.as_mut().filter(|shared| !shared.has_opened)?;
        let place = shared_qps.place(shared.host)?;
        shared.has_opened = true;
        shared_qps.say(place, base, to, &Message::Open { from, answer: false });
        Some(place)
    }

    /// A message of the peer is in its receive. One that was told of before changes nothing.
    ///
    /// # Errors
    /// [`TooLong`], when it cannot be there.
    pub(super) fn take_message(&mut self, told: &Told) -> Result<Option<Landed>, TooLong> {
        let Told { number, is_send, bytes, imm } = *told;
        let Some(shared) = &mut self.shared else { return Ok(None) };
        if shared.announced == 0 || number != shared.taken {
            return Ok(None);
        }
        let Some(receive) = self.waiting_receives.front() else { return Ok(None) };
        let (seq, room) = (receive.seq, receive.data.bytes());
        if is_send && bytes > room {
            return Err(TooLong { bytes, room });
        }
        self.waiting_receives.pop_front();
        shared.announced -= 1;
        shared.taken = shared.taken.wrapping_add(1);
        let opcode = if is_send { WcOpcode::Recv } else { WcOpcode::RecvWriteImm };
        let event = Event::Received(Done { imm, ..Done::new(seq, Ok((opcode, bytes))) });
        Ok(Some(Landed { bytes: 0, event: Some(event), ended: false }))
    }
}
