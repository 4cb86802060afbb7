//! How the receiver learns that a block has arrived.
use super::returns::Returns;
use crate::{EndError, PeerFault};
use catchment_channel::geometry::{Geometry, INSIDE};
use catchment_verbs::mem::VolatileSlice;
use catchment_verbs::{Completion, Cq, WcOpcode};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const POLL: usize = 16;

pub(super) enum Arrivals {
    Completions(Box<Completions>),
    Tails(Tails),
}

/// Blocks are announced by immediates, which complete receives.
pub(super) struct Completions {
    cq: Arc<dyn Cq>,
    taken: [Completion; POLL],
    /// Of those taken, the next one to process and how many there are.
    next: usize,
    count: usize,
    /// For each window the block that comes next; empty if slots are used in any order.
    expected: Box<[u64]>,
}

/// Blocks are announced by their last eight bytes.
pub(super) struct Tails {
    /// For each window the block that comes next.
    expected: Box<[u64]>,
    /// The window that is polled first.
    first: u32,
}

impl Completions {
    /// `expected` is the number of windows whose slots are used in turn.
    pub(super) fn new(cq: Arc<dyn Cq>, expected: usize) -> Self {
        Self {
            cq,
            taken: [Completion::EMPTY; POLL],
            next: 0,
            count: 0,
            expected: vec![0; expected].into(),
        }
    }

    /// Returns the place of a block that has arrived.
    #[inline]
    fn next(&mut self, geometry: &Geometry, returns: &Returns) -> Result<Option<u32>, EndError> {
        if self.next == self.count {
            self.next = 0;
            self.count = self.cq.poll(&mut self.taken)?;
            if self.count == 0 {
                return Ok(None);
            }
        }
        let completion = self.taken[self.next];
        self.next += 1;
        returns.note_consumed();
        let place = place_of(&completion)?;
        if place >= geometry.places() {
            return Err(PeerFault::Immediate(place).into());
        }
        self.expect(geometry, place)?;
        Ok(Some(place))
    }

    #[inline]
    fn expect(&mut self, geometry: &Geometry, place: u32) -> Result<(), PeerFault> {
        let blocks = geometry.blocks();
        let Some(expected) = self.expected.get_mut((place / blocks) as usize) else {
            return Ok(());
        };
        let slot = (*expected % u64::from(blocks)) as u32;
        if place % blocks != slot {
            return Err(PeerFault::Immediate(place));
        }
        *expected += 1;
        Ok(())
    }
}

#[inline]
fn place_of(completion: &Completion) -> Result<u32, EndError> {
    let success = completion.result.map_err(EndError::from)?;
    match (success.opcode, success.imm) {
        (WcOpcode::RecvWriteImm, Some(imm)) => Ok(imm),
        _ => Err(PeerFault::Message(success.bytes).into()),
    }
}

impl Tails {
    pub(super) fn new(windows: u32) -> Self {
        Self { expected: vec![0; windows as usize].into(), first: 0 }
    }

    #[inline]
    fn next(&mut self, geometry: &Geometry, memory: &VolatileSlice<'_>) -> Option<u32> {
        let windows = geometry.windows();
        for i in 0..windows {
            let window = (self.first + i) % windows;
            let expected = &mut self.expected[window as usize];
            let place = geometry.place(window, (*expected % u64::from(geometry.blocks())) as u32);
            let tail = memory.load_u64(geometry.tail_offset(place), Ordering::Acquire);
            if u64::from_le(tail.expect(INSIDE)) == *expected + 1 {
                *expected += 1;
                // The other windows come first next time.
                self.first = (window + 1) % windows;
                return Some(place);
            }
            geometry.prefetch_payload(memory, place);
        }
        None
    }
}

impl Arrivals {
    #[inline]
    pub(super) fn next(
        &mut self,
        geometry: &Geometry,
        memory: &VolatileSlice<'_>,
        returns: &Returns,
    ) -> Result<Option<u32>, EndError> {
        match self {
            Self::Completions(completions) => completions.next(geometry, returns),
            Self::Tails(tails) => Ok(tails.next(geometry, memory)),
        }
    }
}
