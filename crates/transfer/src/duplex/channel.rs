//! The channel itself, as one thread drives it: messages out, messages in, READs and WRITEs.
use super::{
    Card, DuplexError,
    card::CardError,
    cleanup::{self, Held, StillUsed},
    error::OperationError,
    inbound::{Arrival, DuplexBlock, Inbound, Slots, Wake},
    operations::{Event, Operations, Ticket},
    outbound::{Credit, Outbound},
    resources::{DuplexShape, Resources},
};
use crate::{
    header::HeaderError,
    layout::padded,
    mechanism::{ClaimError, Counts, CqWatch, EndError, Features, ReceiveEnd, SendEnd, TakenBlock},
    window::{Arrived, Geometry},
};
use catchment_verbs::{Completion, CompletionChannel, Cq, RtsAttr, Watch, mem::VolatileSlice};
use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

/// Completions taken with one call.
const POLL: usize = 16;
/// Empty looks between two at the state of the queue pair.
const CHECK_EVERY: u32 = 256;

/// A connected channel in its parts, for several threads: one sends, one takes completions, one
/// takes what came.
pub struct Halves {
    /// Its sizes.
    pub shape: DuplexShape,
    /// Posts requests; any thread may.
    pub operations: Arc<Operations>,
    /// Messages out.
    pub outbound: Outbound,
    /// Messages in.
    pub inbound: Inbound,
    /// Where everything completes.
    pub cq: Arc<dyn Cq>,
    /// To sleep on until something completes.
    pub channel: Arc<dyn CompletionChannel>,
    /// What only lives as long as the others.
    held: Held,
}

impl Halves {
    /// Connects with the peer of this card and posts all receives. Sends nothing: once the peer has
    /// done the same, both may send.
    ///
    /// # Errors
    /// [`DuplexError`] with the step that failed. Everything was given back then.
    pub fn connect(
        resources: Resources,
        peer: &Card,
        rts: RtsAttr,
        wake: Box<Wake>,
    ) -> Result<Halves, DuplexError> {
        let (shape, geometry, mut held) = resources.into_parts();
        if let Err(error) = go_up(&mut held, &shape, &geometry, peer, rts) {
            // Nobody else has seen any of it.
            let _ = cleanup::release(held);
            return Err(error);
        }
        let (Some(qp), Some(cq), Some(channel)) = (held.qp.take(), &held.cq, &held.channel) else {
            return Err(DuplexError::End(EndError::PeerGone));
        };
        let memory = std::mem::take(&mut held.memory);
        let offset = geometry.total_bytes();
        let operations = Operations::new(qp, memory, peer.memory, offset, shape.max_send_wr);
        let credit = Arc::new(Credit::default());
        let slots = Arc::clone(operations.slots());
        let halves = Halves {
            shape,
            outbound: Outbound::new(geometry, Arc::clone(&credit)),
            inbound: Inbound::new(geometry, slots, credit, wake),
            operations: Arc::new(operations),
            cq: Arc::clone(cq),
            channel: Arc::clone(channel),
            held,
        };
        if let Err(error) = halves.operations.receives(shape.receives()) {
            let _ = halves.close();
            return Err(error.into());
        }
        Ok(halves)
    }

    /// Ends the connection and gives everything back, in the order of [`cleanup`].
    ///
    /// # Errors
    /// [`DuplexError::StillUsed`] with what the program still has.
    pub fn close(self) -> Result<(), DuplexError> {
        let (parts, foundation) = self.into_parts();
        let operations = Arc::clone(&parts.operations);
        drop(parts);
        foundation.close(operations)
    }

    /// Apart, for threads that need one each. What they must give back at the end goes to
    /// [`Foundation::close`].
    pub fn into_parts(self) -> (Parts, Foundation) {
        let parts = Parts {
            shape: self.shape,
            operations: self.operations,
            outbound: self.outbound,
            inbound: self.inbound,
            cq: self.cq,
            channel: self.channel,
        };
        (parts, Foundation { held: self.held })
    }
}

/// A connected channel apart.
pub struct Parts {
    /// Its sizes.
    pub shape: DuplexShape,
    /// Posts requests; any thread may.
    pub operations: Arc<Operations>,
    /// Messages out.
    pub outbound: Outbound,
    /// Messages in.
    pub inbound: Inbound,
    /// Where everything completes.
    pub cq: Arc<dyn Cq>,
    /// To sleep on until something completes.
    pub channel: Arc<dyn CompletionChannel>,
}

/// What only lives as long as the parts.
pub struct Foundation {
    held: Held,
}

impl Foundation {
    /// Ends the connection and gives everything back, in the order of [`cleanup`]. All parts were
    /// dropped before, but the operations.
    ///
    /// # Errors
    /// [`DuplexError::StillUsed`] with what the program still has.
    pub fn close(mut self, operations: Arc<Operations>) -> Result<(), DuplexError> {
        // All requests complete now, and nothing new is taken. A queue pair that has failed already
        // stays so.
        let _ = operations.with_qp(super::qp::ManagedQp::fail);
        match Arc::try_unwrap(operations) {
            Ok(operations) => {
                let (qp, memory) = operations.into_parts();
                self.held.qp = Some(qp);
                self.held.memory = memory;
                Ok(cleanup::release(self.held)?)
            }
            Err(shared) => {
                let users = Arc::strong_count(&shared) - 1;
                let objects = vec![("the queue pair", users)];
                Err(StillUsed { objects }.into())
            }
        }
    }
}

fn go_up(
    held: &mut Held,
    shape: &DuplexShape,
    geometry: &Geometry,
    peer: &Card,
    rts: RtsAttr,
) -> Result<(), DuplexError> {
    check_peer(shape, geometry, peer)?;
    if let Some(qp) = &mut held.qp {
        qp.connect(peer.endpoint, rts)?;
    }
    Ok(())
}

fn check_peer(shape: &DuplexShape, geometry: &Geometry, peer: &Card) -> Result<(), CardError> {
    if (peer.blocks, peer.payload_bytes) != (shape.blocks, shape.payload_bytes) {
        return Err(CardError::Shape {
            blocks: peer.blocks,
            payload_bytes: peer.payload_bytes,
            our_blocks: shape.blocks,
            our_payload_bytes: shape.payload_bytes,
        });
    }
    let needed = geometry.total_bytes() as u64;
    if peer.memory.bytes < needed {
        let given = peer.memory.bytes;
        return Err(CardError::Memory { given, needed });
    }
    Ok(())
}

/// A duplex channel that one thread drives. Messages that were taken may be given back by others;
/// the peer learns of it with the next call here.
pub struct Channel {
    halves: Halves,
    slots: Arc<Slots>,
    /// Messages of the peer that it was told were given back.
    told: u64,
    /// Receives that completed since a list of them was posted.
    consumed: u32,
    ready: VecDeque<DuplexBlock>,
    watch: Arc<CqWatch>,
    claims: u64,
    /// Looks that found nothing.
    empty: u32,
    sent: Counts,
    taken: Counts,
}

/// A claimed message of a [`Channel`].
#[derive(Debug)]
#[must_use = "a message that is claimed and not committed is not sent"]
pub struct DuplexClaim {
    number: u64,
    slot: u32,
    stream: u32,
    bytes: u32,
}

impl Channel {
    /// Connects with the peer of this card. Sends nothing: once the peer has done the same, both may
    /// send.
    ///
    /// # Errors
    /// [`DuplexError`] with the step that failed. Everything was given back then.
    pub fn connect(
        resources: Resources,
        peer: &Card,
        rts: RtsAttr,
    ) -> Result<Channel, DuplexError> {
        let sleeper = resources.sleeper();
        // A message that is kept keeps this, and must not keep the channel.
        let wake = move || {
            if let Some(channel) = sleeper.as_ref().and_then(Weak::upgrade) {
                channel.wake();
            }
        };
        let halves = Halves::connect(resources, peer, rts, Box::new(wake))?;
        let watch = CqWatch::new(Arc::clone(&halves.cq), Arc::clone(&halves.channel));
        Ok(Channel {
            slots: Arc::clone(halves.inbound.slots()),
            ready: VecDeque::with_capacity(2 * halves.shape.blocks as usize),
            halves,
            told: 0,
            consumed: 0,
            watch: Arc::new(watch),
            claims: 0,
            empty: 0,
            sent: Counts::default(),
            taken: Counts::default(),
        })
    }

    /// READs and WRITEs of what both ends share.
    pub fn operations(&self) -> &Operations {
        &self.halves.operations
    }

    /// What its users may count on.
    pub fn features() -> Features {
        Features {
            any_length: true,
            in_order: true,
            out_of_order_release: false,
            many_claims: false,
            stream_bits: 32,
            packet_bits: 64,
        }
    }

    /// READs `bytes` of the peer's shared memory, as [`Operations::read`] does, once the queue has
    /// room: takes completions to make some.
    ///
    /// # Errors
    /// [`OperationError`]; `QueueFull` when even that made none.
    pub fn read(&mut self, from: u64, to: usize, bytes: u32) -> Result<Ticket, OperationError> {
        match self.operations().read(from, to, bytes) {
            Err(OperationError::QueueFull) => {
                self.poll()?;
                self.operations().read(from, to, bytes)
            }
            other => other,
        }
    }

    /// WRITEs to the peer's shared memory, as [`Operations::write`] does.
    ///
    /// # Errors
    /// As for [`Channel::read`].
    pub fn write(&mut self, from: usize, to: u64, bytes: u32) -> Result<Ticket, OperationError> {
        match self.operations().write(from, to, bytes) {
            Err(OperationError::QueueFull) => {
                self.poll()?;
                self.operations().write(from, to, bytes)
            }
            other => other,
        }
    }

    /// Whether a READ or WRITE is done: takes completions if not.
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

    /// Every so many empty looks: nothing else shows that the peer is gone.
    fn look_at_the_peer(&mut self) -> Result<(), EndError> {
        self.empty = self.empty.wrapping_add(1);
        if self.empty.is_multiple_of(CHECK_EVERY) {
            self.halves.operations.check()?;
        }
        Ok(())
    }

    /// Takes what has completed. Says whether there was anything.
    fn poll(&mut self) -> Result<bool, EndError> {
        self.halves.operations.alive()?;
        let mut out = [Completion::EMPTY; POLL];
        let polled = self.halves.cq.poll(&mut out);
        let n = polled.map_err(|error| self.halves.operations.fail(error.into()))?;
        for completion in &out[..n] {
            if let Event::Came { imm, bytes } = self.halves.operations.note(completion)? {
                self.came(imm, bytes)?;
            }
        }
        Ok(n > 0)
    }

    fn came(&mut self, imm: u32, bytes: u64) -> Result<(), EndError> {
        let operations = &self.halves.operations;
        let arrival = self.halves.inbound.arrived(imm, bytes);
        let Arrival { block, .. } = arrival.map_err(|error| operations.fail(error))?;
        self.ready.extend(block);
        self.consumed += 1;
        if self.consumed >= self.halves.shape.receive_list() {
            operations.receives(self.consumed)?;
            self.consumed = 0;
        }
        Ok(())
    }

    /// Tells the peer what was given back, if that is due.
    fn tell(&mut self) -> Result<(), EndError> {
        let halves = &self.halves;
        if !self.slots.is_due() || !halves.operations.has_room_for_notice() {
            return Ok(());
        }
        let count = self.slots.take_given_back(&mut self.told);
        if count > 0 && halves.outbound.tell(&halves.operations, count)? {
            self.taken.interactions += 1;
        }
        Ok(())
    }

    /// Gives everything back, in the order of [`cleanup`].
    ///
    /// # Errors
    /// [`DuplexError::StillUsed`] with what the program still has: messages that were taken.
    pub fn close(self) -> Result<(), DuplexError> {
        let Channel {
            halves,
            slots,
            ready,
            watch,
            ..
        } = self;
        drop((ready, slots, watch));
        halves.close()
    }
}

impl ReceiveEnd for Channel {
    type Block = DuplexBlock;

    fn take(&mut self) -> Result<Option<DuplexBlock>, EndError> {
        if self.ready.is_empty() {
            self.poll()?;
        }
        let block = self.ready.pop_front();
        self.slots.set_idle(block.is_none());
        self.tell()?;
        match &block {
            Some(block) => {
                self.taken.blocks += 1;
                self.taken.payload_bytes += block.payload().bytes() as u64;
            }
            None => self.look_at_the_peer()?,
        }
        Ok(block)
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        Some(Arc::clone(&self.watch) as Arc<dyn Watch>)
    }

    /// One interaction every time that the peer was told alone what was given back.
    fn counts(&self) -> Counts {
        self.taken
    }
}

impl SendEnd for Channel {
    type Claim = DuplexClaim;

    fn claim(&mut self, stream: u32, bytes: u32) -> Result<DuplexClaim, ClaimError> {
        let limit = self.halves.shape.payload_bytes;
        if bytes > limit {
            return Err(ClaimError::Length {
                asked: bytes,
                limit,
                exactly: false,
            });
        }
        self.halves.operations.alive()?;
        let free = |channel: &Channel| {
            let halves = &channel.halves;
            let slot = halves.outbound.free_slot(&halves.operations);
            slot.filter(|_| halves.operations.has_room_for_message())
        };
        let slot = match free(self) {
            Some(slot) => Some(slot),
            None => {
                self.poll()?;
                free(self)
            }
        };
        let Some(slot) = slot else {
            self.sent.would_blocks += 1;
            self.halves.operations.check()?;
            return Err(ClaimError::WouldBlock);
        };
        self.claims += 1;
        Ok(DuplexClaim {
            number: self.claims,
            slot,
            stream,
            bytes,
        })
    }

    fn memory<'a>(&'a self, claim: &'a DuplexClaim) -> VolatileSlice<'a> {
        let halves = &self.halves;
        let room_bytes = padded(claim.bytes);
        halves
            .outbound
            .memory(&halves.operations, claim.slot, room_bytes, claim.bytes)
    }

    fn commit(&mut self, claim: DuplexClaim, packet: u64) -> Result<(), EndError> {
        if claim.number != self.claims {
            return Err(EndError::StaleClaim);
        }
        if packet == u64::MAX {
            return Err(EndError::Packet(HeaderError::PacketNumber(packet)));
        }
        // No second commit of it.
        self.claims += 1;
        let header = Arrived {
            stream: claim.stream,
            packet,
            bytes: claim.bytes,
            room_bytes: padded(claim.bytes),
        };
        let given_back = self.slots.take_given_back(&mut self.told);
        let halves = &mut self.halves;
        let (operations, slot) = (&halves.operations, claim.slot);
        let sent = halves
            .outbound
            .send(operations, slot, &header, given_back)?;
        debug_assert!(sent, "the claim has left room for it");
        self.sent.blocks += 1;
        self.sent.payload_bytes += u64::from(claim.bytes);
        Ok(())
    }

    fn progress(&mut self) -> Result<(), EndError> {
        self.poll()?;
        self.tell()?;
        self.halves.operations.check()
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        Some(Arc::clone(&self.watch) as Arc<dyn Watch>)
    }

    /// One interaction a message.
    fn counts(&self) -> Counts {
        Counts {
            interactions: self.sent.blocks,
            ..self.sent
        }
    }
}
