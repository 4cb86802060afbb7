//! The sending end.
use super::carrier::{Carrier, InPlace, Outgoing, Requests};
use super::credit::Credit;
use super::{Form, SwFair, credit_bytes};
use crate::{
    ClaimError, Counts, EndError, FirstError, Offer, Port, SendEnd, SendQueue, SetupError,
};
use catchment_channel::geometry::{Arrived, Geometry, INSIDE, header_words};
use catchment_transfer::HeaderError;
use catchment_transfer::layout::padded;
use catchment_verbs::mem::VolatileSlice;
use catchment_verbs::{Mr, Watch};
use std::sync::Arc;

/// The sending end of [`SwFair`]. One thread at a time uses it.
pub struct SwFairSender {
    geometry: Geometry,
    /// Most payload bytes of a block.
    payload_bytes: u32,
    carrier: Carrier,
    /// What the receiver writes.
    written: Arc<dyn Mr>,
    credit_bytes: usize,
    windows: Box<[Credit]>,
    /// Claims so far: an older one than the last cannot be committed.
    claims: u64,
    counts: Counts,
    /// The last refusal was for want of a completion, for which no doorbell rings.
    wants_completion: bool,
    broken: FirstError,
}

#[derive(Debug)]
#[must_use = "a block that is claimed and not committed is not sent"]
pub struct SwFairClaim {
    number: u64,
    window: u32,
    slot: u32,
    stream: u32,
    bytes: u32,
}

impl SwFairSender {
    pub(super) fn new(sw: &SwFair, port: Port, peer: &Offer) -> Result<SwFairSender, SetupError> {
        let geometry = sw.geometry()?;
        let blocks = geometry.blocks();
        let credit_bytes = credit_bytes(sw.form, blocks);
        let all_credits = credit_bytes * geometry.windows() as usize;
        let written = port.mr(0, "the credits", all_credits)?;
        let remote = peer.memory(0, "the slots", geometry.total_bytes())?;
        let carrier = if sw.form == Form::TailInPlace {
            let window = port.qp.map_remote(remote.addr, remote.bytes, remote.rkey)?;
            Carrier::InPlace(InPlace { window, qp: port.qp })
        } else {
            Carrier::Requests(Box::new(Requests {
                blocks: port.mr(1, "send blocks", geometry.total_bytes())?,
                queue: SendQueue::new(port.qp, port.send_cq, port.queues.max_send_wr),
                remote,
                imm: sw.form.has_imm(),
                request_of: vec![0; geometry.places() as usize].into(),
            }))
        };
        let selective = sw.form == Form::Selective;
        Ok(SwFairSender {
            payload_bytes: sw.shape.payload_bytes,
            carrier,
            written,
            credit_bytes,
            windows: (0..geometry.windows()).map(|_| Credit::new(blocks, selective)).collect(),
            geometry,
            claims: 0,
            counts: Counts::default(),
            wants_completion: false,
            broken: FirstError::default(),
        })
    }

    /// A free slot of a window; looks at what the receiver wrote only if none is known.
    #[inline]
    fn free_slot(&mut self, window: u32) -> Result<Option<u32>, EndError> {
        if let Some(slot) = self.windows[window as usize].next_slot() {
            return Ok(Some(slot));
        }
        let offset = window as usize * self.credit_bytes;
        let written = self.written.region().slice(offset, self.credit_bytes);
        let credit = &mut self.windows[window as usize];
        credit.look(&written.expect(INSIDE))?;
        Ok(credit.next_slot())
    }

    #[cold]
    fn refuse(&mut self) -> ClaimError {
        self.counts.would_blocks += 1;
        match self.carrier.check() {
            Ok(()) => ClaimError::WouldBlock,
            Err(error) => self.broken.set(error).into(),
        }
    }

    /// A slot that may be filled and sent now.
    #[inline]
    fn usable_slot(&mut self, window: u32) -> Result<Option<u32>, EndError> {
        self.wants_completion = false;
        let Some(slot) = self.free_slot(window)? else {
            return Ok(None);
        };
        let may_fill = self.carrier.may_fill(self.geometry.place(window, slot))?;
        self.wants_completion = !may_fill;
        Ok(may_fill.then_some(slot))
    }
}

impl SendEnd for SwFairSender {
    type Claim = SwFairClaim;

    #[inline]
    fn claim(&mut self, stream: u32, bytes: u32) -> Result<SwFairClaim, ClaimError> {
        self.geometry.check_length(bytes, self.payload_bytes)?;
        let window = stream % self.geometry.windows();
        self.broken.check()?;
        let slot = match self.usable_slot(window) {
            Ok(Some(slot)) => slot,
            Ok(None) => return Err(self.refuse()),
            Err(error) => return Err(self.broken.set(error).into()),
        };
        self.claims += 1;
        Ok(SwFairClaim { number: self.claims, window, slot, stream, bytes })
    }

    #[inline]
    fn memory<'a>(&'a self, claim: &'a SwFairClaim) -> VolatileSlice<'a> {
        let place = self.geometry.place(claim.window, claim.slot);
        let memory = self.carrier.memory();
        let room_bytes = padded(claim.bytes);
        self.geometry.payload(memory, place, room_bytes, claim.bytes)
    }

    #[inline]
    fn commit(&mut self, claim: SwFairClaim, packet: u64) -> Result<(), EndError> {
        if claim.number != self.claims {
            return Err(EndError::StaleClaim);
        }
        if packet == u64::MAX {
            return Err(EndError::Packet(HeaderError::PacketNumber(packet)));
        }
        // No second commit of it.
        self.claims += 1;
        let credit = &mut self.windows[claim.window as usize];
        let tail = credit.sent() + 1;
        credit.use_slot(claim.slot);
        let header = Arrived {
            stream: claim.stream,
            packet,
            bytes: claim.bytes,
            room_bytes: padded(claim.bytes),
        };
        let block = Outgoing {
            place: self.geometry.place(claim.window, claim.slot),
            room_bytes: header.room_bytes,
            trailer_words: header_words(&header),
            tail,
            last: credit.next_slot().is_none(),
        };
        let sent = self.carrier.send(&self.geometry, &block);
        sent.map_err(|error| self.broken.set(error))?;
        self.counts.blocks += 1;
        self.counts.payload_bytes += u64::from(claim.bytes);
        Ok(())
    }

    fn progress(&mut self) -> Result<(), EndError> {
        self.broken.check()?;
        let result = self.carrier.progress();
        let result = result.and_then(|()| self.carrier.check());
        result.map_err(|error| self.broken.set(error))
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        if self.wants_completion && self.carrier.awaits_completion() {
            return None;
        }
        self.written.watch()
    }

    /// One interaction a block.
    fn counts(&self) -> Counts {
        Counts { interactions: self.counts.blocks, ..self.counts }
    }
}
