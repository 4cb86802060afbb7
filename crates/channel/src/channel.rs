//! The channel itself, as one thread drives it: messages out, messages in, READs and WRITEs.
use super::bell::Bell;
use super::error::OperationError;
use super::inbound::{Arrival, Message, Slots};
use super::operations::{Event, Operations, Ticket};
use super::outbound::Filler;
use super::parts::Parts;
use super::resources::Resources;
use super::{Card, ChannelError};
use crate::geometry::Geometry;
use crate::{ClaimError, Counts, EndError, Mode, PeerFault, Tag};
use catchment_verbs::mem::VolatileSlice;
use catchment_verbs::wait::CqWatch;
use catchment_verbs::{Completion, RtsAttr, Watch};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// Completions taken with one call.
const POLL: usize = 16;
/// Empty polls between two checks of the queue pair's state.
const CHECK_EVERY: u32 = 256;

/// A duplex channel that one thread drives. Other threads may release messages; the peer learns of
/// it with the next call here.
pub struct Channel {
    parts: Parts,
    filler: Filler,
    slots: Arc<Slots>,
    geometry: Geometry,
    /// Messages of the peer whose release was announced to it.
    announced: u64,
    /// Who wakes whom, and how many of those are in the peer's credit word, where nothing tells of WRITEs.
    bell: Option<Bell>,
    credited: u64,
    /// Receives that completed since the last list was posted.
    consumed: u32,
    ready: VecDeque<Message>,
    watch: Arc<CqWatch>,
    claims: u64,
    /// Polls that found nothing.
    empty: u32,
    sent: Counts,
    taken: Counts,
}

/// A claimed message of a [`Channel`].
#[derive(Debug)]
#[must_use = "a claimed message is sent only by a commit"]
pub struct MessageClaim {
    number: u64,
    stream: u32,
    bytes: u32,
}

impl Channel {
    /// Connects to the peer of this card. Sends nothing: once the peer has done the same, both may
    /// send.
    ///
    /// # Errors
    /// [`ChannelError`] with the step that failed. Everything was released then.
    pub fn connect(resources: Resources, peer: &Card, rts: RtsAttr) -> Result<Self, ChannelError> {
        let sleeper = resources.sleeper();
        // Weak: a message that is kept holds this, and must not hold the completion channel.
        let wake = move || {
            if let Some(channel) = sleeper.as_ref().and_then(Weak::upgrade) {
                channel.wake();
            }
        };
        let geometry = resources.shape().geometry()?;
        let parts = Parts::connect_any(resources, peer, rts, Box::new(wake))?;
        let watch = CqWatch::new(Arc::clone(&parts.cq), Arc::clone(&parts.channel));
        Ok(Self {
            slots: Arc::clone(parts.inbound.slots()),
            filler: parts.outbound.filler(),
            ready: VecDeque::with_capacity(2 * parts.shape.blocks as usize),
            geometry: parts.shape.arriving(&geometry),
            bell: (parts.shape.mode == Mode::Write).then(|| Bell::new(parts.shape.blocks)),
            announced: 0,
            credited: 0,
            consumed: 0,
            watch: Arc::new(watch),
            claims: 0,
            empty: 0,
            sent: Counts::default(),
            taken: Counts::default(),
            parts,
        })
    }

    /// Returns the READs and WRITEs of shared memory.
    pub fn operations(&self) -> &Operations {
        &self.parts.operations
    }

    /// READs `bytes` of the peer's shared memory, as [`Operations::read`] does. Takes completions
    /// first if the queue is full.
    ///
    /// # Errors
    /// [`OperationError`]; `QueueFull` if that made no room.
    pub fn read(&mut self, from: u64, to: usize, bytes: u32) -> Result<Ticket, OperationError> {
        self.post(|operations| operations.read(from, to, bytes))
    }

    /// WRITEs to the peer's shared memory, as [`Operations::write`] does.
    ///
    /// # Errors
    /// As for [`Channel::read`].
    pub fn write(&mut self, from: usize, to: u64, bytes: u32) -> Result<Ticket, OperationError> {
        self.post(|operations| operations.write(from, to, bytes))
    }

    /// Posts a request; takes completions first if the queue is full.
    fn post(
        &mut self,
        post: impl Fn(&Operations) -> Result<Ticket, OperationError>,
    ) -> Result<Ticket, OperationError> {
        match post(self.operations()) {
            Err(OperationError::QueueFull) => {
                self.poll()?;
                post(self.operations())
            }
            other => other,
        }
    }

    /// Returns whether a READ or WRITE is done. Takes completions first if it is not known to be.
    ///
    /// # Errors
    /// [`EndError`]; the session is over.
    pub fn is_done(&mut self, ticket: Ticket) -> Result<bool, EndError> {
        if self.operations().is_done(ticket) {
            return Ok(true);
        }
        self.poll()?;
        Ok(self.operations().is_done(ticket))
    }

    /// Checks the connection every [`CHECK_EVERY`] empty polls: nothing else shows that the peer is
    /// gone.
    fn note_empty(&mut self) -> Result<(), EndError> {
        self.empty = self.empty.wrapping_add(1);
        if self.empty.is_multiple_of(CHECK_EVERY) {
            self.parts.operations.check()?;
        }
        Ok(())
    }

    /// Takes completions. Returns whether there were any.
    fn poll(&mut self) -> Result<bool, EndError> {
        self.parts.operations.alive()?;
        let mut out = [Completion::EMPTY; POLL];
        let polled = self.parts.cq.poll(&mut out);
        let n = polled.map_err(|error| self.parts.operations.fail(error.into()))?;
        for completion in &out[..n] {
            if let Event::Came { imm, bytes, receive } = self.parts.operations.note(completion)? {
                self.came(imm, bytes, receive as u32)?;
            }
        }
        self.ring()?;
        let found = self.look()?;
        self.say_sleep()?;
        Ok(found || n > 0)
    }

    fn came(&mut self, imm: u32, bytes: u64, place: u32) -> Result<(), EndError> {
        let Parts { operations, inbound, outbound, shape, .. } = &mut self.parts;
        let fail = |error| operations.fail(error);
        match &mut self.bell {
            None if shape.mode == Mode::Send => {
                let Arrival { block, .. } = inbound.received(imm, bytes, place).map_err(fail)?;
                if block.is_none() {
                    operations.receive_at(&self.geometry, [place])?;
                }
                self.ready.extend(block);
                return Ok(());
            }
            None => {
                let Arrival { block, .. } = inbound.arrived(imm, bytes).map_err(fail)?;
                self.ready.extend(block);
            }
            Some(_) if bytes > 0 => return Err(fail(PeerFault::Message(bytes).into())),
            Some(bell) => {
                let written = outbound.sent() + self.credited;
                bell.hear(imm, written).map_err(|fault| fail(fault.into()))?;
            }
        }
        self.consumed += 1;
        if self.consumed >= shape.receive_list() {
            operations.receives(self.consumed)?;
            self.consumed = 0;
        }
        Ok(())
    }

    /// Takes messages that nothing tells of. Returns whether there were any.
    fn look(&mut self) -> Result<bool, EndError> {
        if self.bell.is_none() {
            return Ok(false);
        }
        let Parts { operations, inbound, .. } = &mut self.parts;
        let before = self.ready.len();
        while self.ready.len() < before + POLL
            && let Some(message) = inbound.look().map_err(|error| operations.fail(error))?
        {
            self.ready.push_back(message);
        }
        let found = self.ready.len() > before;
        if found && let Some(bell) = &mut self.bell {
            bell.rise();
        }
        Ok(found)
    }

    /// Rings the peer if that is due and the queue has room. What is due stays so.
    fn ring(&mut self) -> Result<(), EndError> {
        if let Some(bell) = &mut self.bell
            && let Some(imm) = bell.ring()
            && self.parts.operations.notice(imm)?.is_some()
        {
            bell.note_ring();
        }
        Ok(())
    }

    /// Says that this end sleeps, if it is about to and the peer does not know. Returns whether it does.
    fn say_sleep(&mut self) -> Result<bool, EndError> {
        self.ring()?;
        let Some(bell) = &mut self.bell else { return Ok(true) };
        if bell.ring().is_some() {
            return Ok(false);
        }
        let Some(imm) = bell.sleep(self.parts.inbound.seen()) else { return Ok(true) };
        if self.parts.operations.notice(imm)?.is_none() {
            return Ok(false);
        }
        bell.note_sleep();
        Ok(true)
    }

    /// Announces releases to the peer, if that is due.
    fn announce(&mut self) -> Result<(), EndError> {
        let is_due = self.slots.is_due() || (self.bell.is_some() && self.credited < self.announced);
        if !is_due || !self.parts.operations.has_room_for_notice() {
            return Ok(());
        }
        let count = self.take_given_back()?;
        let Parts { operations, outbound, shape, .. } = &self.parts;
        if let Some(bell) = &mut self.bell {
            let at = shape.credit_offset(&self.geometry);
            if operations.credit(at, self.announced)?.is_some() {
                self.credited = self.announced;
                bell.note_write();
                self.taken.interactions += 1;
            }
            self.ring()?;
        } else if count > 0 && outbound.announce(operations, count)? {
            self.taken.interactions += 1;
        }
        Ok(())
    }

    /// Returns how many releases to announce now; they count as announced, and their receives are posted again.
    fn take_given_back(&mut self) -> Result<u32, EndError> {
        let before = self.announced;
        let count = self.slots.take_given_back(&mut self.announced);
        if self.parts.shape.mode == Mode::Send {
            let places = self.slots.places(before, count);
            self.parts.operations.receive_at(&self.geometry, places)?;
        }
        Ok(count)
    }

    /// Releases everything in the order of dependencies: queue pair, memory, completion queue,
    /// device.
    ///
    /// # Errors
    /// [`ChannelError::StillUsed`] with what the program still holds: messages that were taken.
    pub fn close(self) -> Result<(), ChannelError> {
        let Self { parts, slots, ready, watch, .. } = self;
        drop((ready, slots, watch));
        parts.close()
    }
}

/// Incoming messages.
impl Channel {
    /// Takes the next message of the peer, if there is one. Never blocks. Dropping the message, on
    /// any thread, releases its slot to the peer.
    ///
    /// # Errors
    /// [`EndError`]; the session is over.
    pub fn take(&mut self) -> Result<Option<Message>, EndError> {
        if self.ready.is_empty() {
            self.poll()?;
        }
        let block = self.ready.pop_front();
        self.slots.set_idle(block.is_none());
        self.announce()?;
        match &block {
            Some(block) => self.taken.add_block(block.payload().bytes() as u64),
            None => self.note_empty()?,
        }
        Ok(block)
    }

    /// Takes a message that was found before the session ended, without a look for more: what had arrived is not lost.
    pub fn take_found(&mut self) -> Option<Message> {
        self.ready.pop_front()
    }

    /// Says that this end is about to sleep, where the peer must know to wake it ([`Mode::Write`]). To be called
    /// before a sleep on [`Channel::watch`], and before it is armed. False: not now, as the queue is full; look again.
    ///
    /// # Errors
    /// [`EndError`]; the session is over.
    pub fn rest(&mut self) -> Result<bool, EndError> {
        if let Some(bell) = &mut self.bell {
            bell.rest();
        }
        self.say_sleep()
    }

    /// Rings when anything completes: a message of the peer, or a request of this end. Before a sleep on it
    /// [`Channel::rest`] must be called.
    pub fn watch(&self) -> Arc<dyn Watch> {
        Arc::clone(&self.watch) as Arc<dyn Watch>
    }

    /// Returns what was taken. One interaction for every notice of released slots that went without a
    /// message.
    pub fn taken(&self) -> Counts {
        self.taken
    }
}

/// Outgoing messages.
impl Channel {
    /// Claims the next slot of the peer for a message of `bytes` bytes. Never blocks. A later claim
    /// replaces one that was not committed.
    ///
    /// # Errors
    /// [`ClaimError::WouldBlock`] while every slot is in use, [`ClaimError::Length`] for more bytes
    /// than a slot holds; after any other error the session is over.
    pub fn claim(&mut self, stream: u32, bytes: u32) -> Result<MessageClaim, ClaimError> {
        let limit = self.parts.shape.payload_bytes;
        if bytes > limit {
            return Err(ClaimError::Length { asked: bytes, limit, exactly: false });
        }
        self.parts.operations.alive()?;
        if !self.may_send() {
            self.poll()?;
        }
        if !self.may_send() {
            self.sent.would_blocks += 1;
            self.parts.operations.check()?;
            return Err(ClaimError::WouldBlock);
        }
        self.claims += 1;
        Ok(MessageClaim { number: self.claims, stream, bytes })
    }

    fn may_send(&self) -> bool {
        let operations = &self.parts.operations;
        self.filler.is_free(operations) && operations.has_room_for_message()
    }

    /// Returns the memory of a claimed message: exactly the bytes that a commit sends.
    pub fn memory<'a>(&'a self, claim: &'a MessageClaim) -> VolatileSlice<'a> {
        self.filler.payload(&self.parts.operations, claim.bytes)
    }

    /// Sends a claimed message under this number.
    ///
    /// # Errors
    /// [`EndError::StaleClaim`] and [`EndError::Packet`] leave the session as it was; after any other
    /// error it is over.
    pub fn commit(&mut self, claim: MessageClaim, packet: u64) -> Result<(), EndError> {
        self.commit_with(claim, packet, false).map(drop)
    }

    /// As [`Channel::commit`]; the ticket is done when the message, and so all before it, is in the peer's memory.
    ///
    /// # Errors
    /// As there.
    pub fn commit_last(&mut self, claim: MessageClaim, packet: u64) -> Result<Ticket, EndError> {
        self.commit_with(claim, packet, true)
    }

    fn commit_with(
        &mut self,
        claim: MessageClaim,
        packet: u64,
        tells: bool,
    ) -> Result<Ticket, EndError> {
        if claim.number != self.claims {
            return Err(EndError::StaleClaim);
        }
        let filled = self.filler.finish(Tag { stream: claim.stream, packet }, claim.bytes)?;
        // It cannot be committed twice.
        self.claims += 1;
        // Where nothing tells of messages there is no immediate for it either.
        let given_back = if self.bell.is_none() { self.take_given_back()? } else { 0 };
        let Parts { outbound, operations, .. } = &mut self.parts;
        let sent = outbound.send(operations, &filled, given_back, tells)?;
        debug_assert!(sent.is_some(), "the claim has left room for it");
        if let Some(bell) = &mut self.bell {
            bell.note_write();
            self.ring()?;
        }
        self.sent.add_block(claim.bytes.into());
        Ok(sent.unwrap_or_default())
    }

    /// Takes completions and announces released slots to the peer. Call it now and then while nothing
    /// is claimed or taken.
    ///
    /// # Errors
    /// [`EndError`]; the session is over.
    pub fn progress(&mut self) -> Result<(), EndError> {
        self.poll()?;
        self.announce()?;
        self.parts.operations.check()
    }

    /// Returns what was sent. One interaction a message.
    pub fn sent(&self) -> Counts {
        Counts { interactions: self.sent.blocks, ..self.sent }
    }
}
