//! The channel itself, as one thread drives it: messages out, messages in, READs and WRITEs.
use super::cleanup::Held;
use super::error::OperationError;
use super::inbound::{Arrival, Inbound, Message, Slots, Wake};
use super::operations::{Event, Operations, Ticket};
use super::outbound::{Filler, Outbound, Window};
use super::resources::{ChannelShape, Resources};
use super::{Card, ChannelError, cleanup, qp};
use crate::{ClaimError, Counts, EndError, Tag};
use catchment_verbs::mem::VolatileSlice;
use catchment_verbs::wait::CqWatch;
use catchment_verbs::{Completion, CompletionChannel, Cq, RtsAttr, Watch};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// Completions taken with one call.
const POLL: usize = 16;
/// Empty polls between two checks of the queue pair's state.
const CHECK_EVERY: u32 = 256;

/// A connected channel in its parts, for several threads: one sends, one takes completions, one
/// takes messages.
pub struct Parts {
    /// Its sizes.
    pub shape: ChannelShape,
    /// Posts requests, from any thread.
    pub operations: Arc<Operations>,
    /// Outgoing messages.
    pub outbound: Outbound,
    /// Incoming messages.
    pub inbound: Inbound,
    /// Where everything completes.
    pub cq: Arc<dyn Cq>,
    /// Sleep on it until something completes.
    pub channel: Arc<dyn CompletionChannel>,
    /// Device objects that live as long as the parts; ends them ([`Held::close`]).
    pub held: Held,
}

impl Parts {
    /// Connects to the peer of this card and posts all receives. Sends nothing: once the peer has
    /// done the same, both may send.
    ///
    /// # Errors
    /// [`ChannelError`] with the step that failed. Everything was released then.
    pub fn connect(
        resources: Resources,
        peer: &Card,
        rts: RtsAttr,
        wake: Box<Wake>,
    ) -> Result<Self, ChannelError> {
        let (shape, geometry, mut held) = resources.into_parts();
        if let Err(error) = qp::bring_up(&mut held, &shape, &geometry, peer, rts) {
            // Nothing else uses any of it.
            let _ = cleanup::release(held);
            return Err(error);
        }
        let (Some(qp), Some(cq), Some(channel)) = (held.qp.take(), &held.cq, &held.channel) else {
            return Err(ChannelError::End(EndError::PeerGone));
        };
        let memory = std::mem::take(&mut held.memory);
        let offset = geometry.total_bytes();
        let operations = Operations::new(qp, memory, peer.memory, offset, shape.max_send_wr);
        let window = Arc::new(Window::new(geometry));
        let parts = Self {
            shape,
            outbound: Outbound::new(Arc::clone(&window)),
            inbound: Inbound::new(geometry, Arc::clone(operations.slots()), window, wake),
            operations: Arc::new(operations),
            cq: Arc::clone(cq),
            channel: Arc::clone(channel),
            held,
        };
        if let Err(error) = parts.operations.receives(shape.receives()) {
            let _ = parts.close();
            return Err(error.into());
        }
        Ok(parts)
    }

    /// Ends the connection and releases everything in the order of dependencies: queue pair, memory,
    /// completion queue, device.
    ///
    /// # Errors
    /// [`ChannelError::StillUsed`] with what the program still holds.
    pub fn close(self) -> Result<(), ChannelError> {
        let Self { shape: _, operations, outbound, inbound, cq, channel, held } = self;
        drop((outbound, inbound, cq, channel));
        held.close(operations)
    }
}

/// A duplex channel that one thread drives. Other threads may release messages; the peer learns of
/// it with the next call here.
pub struct Channel {
    parts: Parts,
    filler: Filler,
    slots: Arc<Slots>,
    /// Messages of the peer whose release was announced to it.
    announced: u64,
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
        let parts = Parts::connect(resources, peer, rts, Box::new(wake))?;
        let watch = CqWatch::new(Arc::clone(&parts.cq), Arc::clone(&parts.channel));
        Ok(Self {
            slots: Arc::clone(parts.inbound.slots()),
            filler: parts.outbound.filler(),
            ready: VecDeque::with_capacity(2 * parts.shape.blocks as usize),
            parts,
            announced: 0,
            consumed: 0,
            watch: Arc::new(watch),
            claims: 0,
            empty: 0,
            sent: Counts::default(),
            taken: Counts::default(),
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
            if let Event::Came { imm, bytes } = self.parts.operations.note(completion)? {
                self.came(imm, bytes)?;
            }
        }
        Ok(n > 0)
    }

    fn came(&mut self, imm: u32, bytes: u64) -> Result<(), EndError> {
        let operations = &self.parts.operations;
        let arrival = self.parts.inbound.arrived(imm, bytes);
        let Arrival { block, .. } = arrival.map_err(|error| operations.fail(error))?;
        self.ready.extend(block);
        self.consumed += 1;
        if self.consumed >= self.parts.shape.receive_list() {
            operations.receives(self.consumed)?;
            self.consumed = 0;
        }
        Ok(())
    }

    /// Announces releases to the peer, if that is due.
    fn announce(&mut self) -> Result<(), EndError> {
        let parts = &self.parts;
        if !self.slots.is_due() || !parts.operations.has_room_for_notice() {
            return Ok(());
        }
        let count = self.slots.take_given_back(&mut self.announced);
        if count > 0 && parts.outbound.announce(&parts.operations, count)? {
            self.taken.interactions += 1;
        }
        Ok(())
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

    /// Rings when anything completes: a message of the peer, or a request of this end.
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
        if claim.number != self.claims {
            return Err(EndError::StaleClaim);
        }
        let filled = self.filler.finish(Tag { stream: claim.stream, packet }, claim.bytes)?;
        // It cannot be committed twice.
        self.claims += 1;
        let given_back = self.slots.take_given_back(&mut self.announced);
        let Parts { outbound, operations, .. } = &mut self.parts;
        let sent = outbound.send_filled(operations, &filled, given_back)?;
        debug_assert!(sent, "the claim has left room for it");
        self.sent.add_block(claim.bytes.into());
        Ok(())
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
