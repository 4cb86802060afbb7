//! RDMA operations: READ and WRITE of shared memory, and the requests that messages are made of.
//!
//! Any thread may post: a `Qp` has no lock, so it is locked here, as libibverbs does inside.
use super::error::OperationError;
use super::shape::ChannelShape;
use crate::geometry::{EXPOSED, Geometry, OUTGOING, SCRATCH};
use crate::{EndError, FirstError, Mode, PeerFault, RemoteMemory};
use catchment_verbs::mem::VolatileSlice;
use catchment_verbs::sync::Mutex;
use catchment_verbs::{
    Completion, Mr, Payload, Qp, QpState, RecvWr, RemoteAddr, SendOp, SendWr, Sge, WcOpcode,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A READ or WRITE in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) u64);

/// Posts requests to the peer of one queue pair.
pub struct Operations {
    posting: Mutex<Posting>,
    memory: Vec<Arc<dyn Mr>>,
    remote: RemoteMemory,
    mode: Mode,
    /// Where the shared memory begins, at either end.
    shared_offset: u64,
    max_send_wr: u64,
    /// Requests that are done: all up to this one.
    done: AtomicU64,
    broken: FirstError,
}

struct Posting {
    qp: Box<dyn Qp>,
    posted: u64,
    /// Requests posted since the last signaled one.
    unsignaled: u64,
}

/// What completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Requests up to this one are done.
    Done(Ticket),
    /// A message or a notice arrived.
    Came {
        /// The immediate.
        imm: u32,
        /// Bytes of it; 0 for a notice.
        bytes: u64,
        /// The receive that it took, in [`Mode::Send`].
        receive: u64,
    },
}

/// Free send queue entries that a request needs: READs and WRITEs leave two for a notice and a
/// message, a notice leaves one for a message.
const ONE_SIDED: u64 = 3;
const NOTICE: u64 = 2;
const MESSAGE: u64 = 1;

/// Receives that are posted with one call.
const RECEIVES: usize = 32;
/// Immediates need no memory.
const RECEIVE: RecvWr<'static> = RecvWr { wr_id: 0, sges: &[] };
const INSIDE: &str = "inside of the checked memory";

impl Operations {
    pub(super) fn new(
        qp: Box<dyn Qp>,
        memory: Vec<Arc<dyn Mr>>,
        remote: RemoteMemory,
        shared_offset: usize,
        shape: &ChannelShape,
    ) -> Self {
        Self {
            posting: Mutex::new(Posting { qp, posted: 0, unsignaled: 0 }),
            memory,
            remote,
            mode: shape.mode,
            shared_offset: shared_offset as u64,
            max_send_wr: shape.max_send_wr.into(),
            done: AtomicU64::new(0),
            broken: FirstError::default(),
        }
    }

    /// Returns the memory of this end that the peer may READ and WRITE.
    pub fn shared(&self) -> VolatileSlice<'_> {
        let whole = self.memory[EXPOSED].region().whole();
        let offset = self.shared_offset as usize;
        whole.subslice(offset, whole.bytes() - offset).expect(INSIDE)
    }

    /// Returns the memory of this end that READs fill and WRITEs are taken from.
    pub fn scratch(&self) -> VolatileSlice<'_> {
        self.memory[SCRATCH].region().whole()
    }

    pub(super) fn slots(&self) -> &Arc<dyn Mr> {
        &self.memory[EXPOSED]
    }

    pub(super) fn outgoing(&self) -> VolatileSlice<'_> {
        self.memory[OUTGOING].region().whole()
    }

    /// READs `bytes` bytes at `from` of the peer's shared memory into [`Operations::scratch`] at `to`.
    /// They are there when the ticket is done.
    ///
    /// # Errors
    /// [`OperationError`]; nothing was posted then.
    pub fn read(&self, from: u64, to: usize, bytes: u32) -> Result<Ticket, OperationError> {
        let scratch = (&*self.memory[SCRATCH], to);
        self.read_other((&self.shared_there(), from), scratch, bytes)
    }

    /// WRITEs `bytes` bytes at `from` of [`Operations::scratch`] to the peer's shared memory at `to`.
    /// They may be changed when the ticket is done.
    ///
    /// # Errors
    /// [`OperationError`]; nothing was posted then.
    pub fn write(&self, from: usize, to: u64, bytes: u32) -> Result<Ticket, OperationError> {
        let scratch = (&*self.memory[SCRATCH], from);
        self.write_other(scratch, (&self.shared_there(), to), bytes)
    }

    /// As [`Operations::read`], from other memory of the peer into other memory of this end's protection domain: each with
    /// an offset.
    ///
    /// # Errors
    /// As there.
    pub fn read_other(
        &self,
        from: (&RemoteMemory, u64),
        to: (&dyn Mr, usize),
        bytes: u32,
    ) -> Result<Ticket, OperationError> {
        self.one_sided(SendOp::Read(place(from, bytes)?), to, bytes)
    }

    /// As [`Operations::write`], from other memory of this end's protection domain to other memory of the peer: each with
    /// an offset.
    ///
    /// # Errors
    /// As there.
    pub fn write_other(
        &self,
        from: (&dyn Mr, usize),
        to: (&RemoteMemory, u64),
        bytes: u32,
    ) -> Result<Ticket, OperationError> {
        self.one_sided(SendOp::Write(place(to, bytes)?), from, bytes)
    }

    /// Returns the peer's shared memory.
    fn shared_there(&self) -> RemoteMemory {
        let RemoteMemory { addr, rkey, bytes } = self.remote;
        let bytes = bytes.saturating_sub(self.shared_offset);
        RemoteMemory { addr: addr + self.shared_offset, rkey, bytes }
    }

    fn one_sided(
        &self,
        op: SendOp,
        (local, offset): (&dyn Mr, usize),
        bytes: u32,
    ) -> Result<Ticket, OperationError> {
        if local.region().slice(offset, bytes as usize).is_err() {
            return Err(OperationError::Local { offset, bytes, available: local.bytes() });
        }
        let sge = [Sge { addr: local.addr() + offset as u64, bytes, lkey: local.lkey() }];
        self.post(op, Payload::Sges(&sge), true, ONE_SIDED)?.ok_or(OperationError::QueueFull)
    }

    /// Returns whether a READ or WRITE is done.
    pub fn is_done(&self, ticket: Ticket) -> bool {
        ticket.0 <= self.done.load(Ordering::Acquire)
    }

    /// Returns whether all signaled requests are done.
    pub fn is_idle(&self) -> bool {
        let posting = self.posting.lock();
        posting.posted - posting.unsignaled <= self.done.load(Ordering::Acquire)
    }

    /// Returns whether the queue has room for a message.
    pub fn has_room_for_message(&self) -> bool {
        self.has_room(MESSAGE)
    }

    /// Returns whether the queue has room for a notice, and for a message after it.
    pub fn has_room_for_notice(&self) -> bool {
        self.has_room(NOTICE)
    }

    fn has_room(&self, places: u64) -> bool {
        self.places(&self.posting.lock()) >= places
    }

    fn places(&self, posting: &Posting) -> u64 {
        self.max_send_wr - (posting.posted - self.done.load(Ordering::Acquire))
    }

    /// Posts a request, if the queue has so many free entries.
    fn post(
        &self,
        op: SendOp,
        payload: Payload<'_>,
        signaled: bool,
        places: u64,
    ) -> Result<Option<Ticket>, EndError> {
        self.alive()?;
        let mut posting = self.posting.lock();
        if self.places(&posting) < places {
            return Ok(None);
        }
        let due = (posting.unsignaled + 1) * 2 >= self.max_send_wr;
        let mut request = SendWr::new(posting.posted + 1, op, payload);
        request.signaled = signaled || due;
        posting.qp.post_send(&[request]).map_err(|error| self.fail(error.into()))?;
        posting.posted += 1;
        posting.unsignaled = if request.signaled { 0 } else { posting.unsignaled + 1 };
        Ok(Some(Ticket(posting.posted)))
    }

    /// Sends a block of ours: into the peer's slots, at the same place, or into its next receive.
    pub(super) fn message(
        &self,
        offset: usize,
        bytes: u32,
        imm: u32,
        signaled: bool,
    ) -> Result<Option<Ticket>, EndError> {
        let outgoing = &self.memory[OUTGOING];
        let sge = [Sge { addr: outgoing.addr() + offset as u64, bytes, lkey: outgoing.lkey() }];
        let to = self.remote.at(offset);
        let op = match self.mode {
            Mode::WriteImm => SendOp::WriteImm(to, imm),
            Mode::Write => SendOp::Write(to),
            Mode::Send => SendOp::SendImm(imm),
        };
        self.post(op, Payload::Sges(&sge), signaled, MESSAGE)
    }

    /// Writes how many messages of the peer were released to its credit word, at this offset of its memory.
    pub(super) fn credit(&self, offset: usize, count: u64) -> Result<Option<Ticket>, EndError> {
        let op = SendOp::Write(self.remote.at(offset));
        self.post(op, Payload::Inline(&count.to_le_bytes()), false, NOTICE)
    }

    /// Sends an immediate alone.
    pub(super) fn notice(&self, imm: u32) -> Result<Option<Ticket>, EndError> {
        self.post(SendOp::SendImm(imm), Payload::Inline(&[]), false, NOTICE)
    }

    /// Posts so many receives. A new channel has posted [`super::ChannelShape::receives`]; the thread
    /// that takes messages reposts those used up, before the messages count as released.
    ///
    /// # Errors
    /// [`EndError`]; the session is over.
    pub fn receives(&self, count: u32) -> Result<(), EndError> {
        let mut left = count as usize;
        let mut posting = self.posting.lock();
        while left > 0 {
            let list = [RECEIVE; RECEIVES];
            let now = left.min(RECEIVES);
            posting.qp.post_recv(&list[..now]).map_err(|error| self.fail(error.into()))?;
            left -= now;
        }
        Ok(())
    }

    /// Posts receives for whole slots, at these places ([`Mode::Send`]).
    pub(super) fn receive_at(
        &self,
        geometry: &Geometry,
        places: impl IntoIterator<Item = u32>,
    ) -> Result<(), EndError> {
        let slots = self.slots();
        let mut posting = self.posting.lock();
        for place in places {
            let addr = slots.addr() + geometry.slot_offset(place) as u64;
            let sge = [Sge { addr, bytes: geometry.block_bytes(), lkey: slots.lkey() }];
            let receive = RecvWr { wr_id: place.into(), sges: &sge };
            posting.qp.post_recv(&[receive]).map_err(|error| self.fail(error.into()))?;
        }
        Ok(())
    }

    /// Notes a completion, and returns what completed.
    ///
    /// # Errors
    /// [`EndError`]: the request failed, or the peer sent an unexpected message. The session is over.
    pub fn note(&self, completion: &Completion) -> Result<Event, EndError> {
        let success = match completion.result {
            Ok(success) => success,
            Err(failure) => return Err(self.fail(failure.into())),
        };
        let message = || self.fail(PeerFault::Message(success.bytes).into());
        match success.opcode {
            WcOpcode::Write | WcOpcode::Read | WcOpcode::Send => {
                self.done.fetch_max(completion.wr_id, Ordering::AcqRel);
                Ok(Event::Done(Ticket(completion.wr_id)))
            }
            // Where messages are none, its bytes are in no receive.
            WcOpcode::RecvWriteImm if self.mode != Mode::WriteImm => Err(message()),
            WcOpcode::RecvWriteImm | WcOpcode::Recv => {
                let imm = success.imm.ok_or_else(message)?;
                Ok(Event::Came { imm, bytes: success.bytes, receive: completion.wr_id })
            }
            WcOpcode::CompareSwap | WcOpcode::FetchAdd => Err(message()),
        }
    }

    /// Checks the session, with the state of the queue pair.
    ///
    /// # Errors
    /// The first error, or that the peer is gone.
    pub fn check(&self) -> Result<(), EndError> {
        self.alive()?;
        if self.posting.lock().qp.state() == QpState::Err {
            return Err(self.fail(EndError::PeerGone));
        }
        Ok(())
    }

    /// Returns the first error, if there was one.
    ///
    /// # Errors
    /// That one.
    #[inline]
    pub fn alive(&self) -> Result<(), EndError> {
        self.broken.check()
    }

    /// Ends the session, and returns the first error, as every later call does.
    #[cold]
    pub fn fail(&self, error: EndError) -> EndError {
        self.broken.set(error)
    }

    /// Changes the state of the queue pair.
    pub fn with_qp<T>(&self, change: impl FnOnce(&mut dyn Qp) -> T) -> T {
        change(&mut *self.posting.lock().qp)
    }

    pub(super) fn into_parts(self) -> (Box<dyn Qp>, Vec<Arc<dyn Mr>>) {
        (self.posting.into_inner().qp, self.memory)
    }
}

/// Returns the address of bytes of the peer's memory, which has them.
fn place((memory, offset): (&RemoteMemory, u64), bytes: u32) -> Result<RemoteAddr, OperationError> {
    let available = memory.bytes;
    let end = offset.checked_add(bytes.into());
    if end.is_none_or(|end| end > available) {
        return Err(OperationError::Remote { offset, bytes: bytes.into(), available });
    }
    Ok(memory.at(offset as usize))
}

#[cfg(test)]
mod tests {
    use crate::{Channel, ChannelShape, OperationError, Resources};
    use catchment_provider_shm::ShmProvider;
    use catchment_verbs::{Provider, RtsAttr};

    /// S3.1: READs and WRITEs move bytes of the shared memories, and none beyond their ends.
    #[test]
    fn s3_1_operations_stay_within_the_memory_of_both_ends() {
        let shape = ChannelShape::new(2, 64).with_shared(100);
        let ends = [(); 2]
            .map(|()| Resources::acquire(ShmProvider::new().open("shm0").unwrap(), shape).unwrap());
        let cards = [ends[1].card(), ends[0].card()];
        let mut cards = cards.iter();
        let [mut a, b] = ends
            .map(|end| Channel::connect(end, cards.next().unwrap(), RtsAttr::default()).unwrap());
        a.operations().scratch().write_at(0, b"forty two").unwrap();
        let ticket = a.write(0, 91, 9).unwrap();
        while !a.operations().is_done(ticket) {
            assert!(a.take().unwrap().is_none());
        }
        let mut there = [0; 9];
        b.operations().shared().read_at(91, &mut there).unwrap();
        assert_eq!(&there, b"forty two");
        let beyond = a.write(0, 92, 9);
        assert!(matches!(beyond, Err(OperationError::Remote { available: 100, .. })), "{beyond:?}");
        let beyond = a.read(0, 92, 9);
        assert!(matches!(beyond, Err(OperationError::Local { available: 100, .. })), "{beyond:?}");
    }
}
