//! The paper's protocol: who looks at which status byte, and who stores what there.
//!
//! Pure over [`StatusBytes`], so that the model checker runs the very code that [`super::PaperPool`],
//! [`super::PaperSender`] and [`super::PaperReceiver`] run.
use catchment_transfer::protocol::SlotState;
use catchment_transfer::protocol::SlotState::{Free, Full, Unavailable};
#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// One of the three arrays of status bytes, for one of those who use it. Loads acquire, stores release.
pub trait StatusBytes {
    fn blocks(&self) -> u32;
    fn load(&self, block: u32) -> u8;
    fn store(&self, block: u32, state: SlotState);

    fn is(&self, block: u32, state: SlotState) -> bool {
        self.load(block) == state as u8
    }
}

/// The filling threads: each claims a send block whose first status is 0, and sets it to 1 when the block
/// is filled.
#[derive(Debug)]
pub struct Filling {
    next: AtomicU32,
    /// Blocks that a thread is filling.
    claimed: Box<[AtomicBool]>,
}

impl Filling {
    pub fn new(blocks: u32) -> Self {
        Self { next: AtomicU32::new(0), claimed: flags(blocks) }
    }

    /// Claims the next free block that no other thread is filling.
    pub fn claim(&self, first: &impl StatusBytes) -> Option<u32> {
        let start = self.next.load(Ordering::Relaxed);
        in_turn(start, first.blocks()).find(|&block| {
            let claimed = &self.claimed[block as usize];
            if !set(claimed) {
                return false;
            }
            if first.is(block, Free) {
                self.next.store((block + 1) % first.blocks(), Ordering::Relaxed);
                return true;
            }
            claimed.store(false, Ordering::Release);
            false
        })
    }

    /// Says that the claimed block is filled. Its bytes are there before.
    pub fn publish(&self, first: &impl StatusBytes, block: u32) {
        first.store(block, Full);
        self.unclaim(block);
    }

    pub fn unclaim(&self, block: u32) {
        self.claimed[block as usize].store(false, Ordering::Release);
    }
}

/// What the sending thread does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Send this block.
    Block(u32),
    /// Wait until a block is filled.
    NoData,
    /// Read the status bytes of the receiver.
    NoneFree,
}

/// The sending thread.
#[derive(Debug, Default)]
pub struct Sending {
    next: u32,
}

impl Sending {
    /// Checks the second status first, then the first (S1.11). When nothing can be sent, a filled block
    /// whose slot is not known to be free makes it read the status bytes.
    pub fn choose(&self, first: &impl StatusBytes, second: &impl StatusBytes) -> Choice {
        let (mut any_free, mut any_filled) = (false, false);
        for block in in_turn(self.next, first.blocks()) {
            let free = second.is(block, Free);
            let filled = first.is(block, Full);
            if free && filled {
                return Choice::Block(block);
            }
            any_free |= free;
            any_filled |= filled;
        }
        if any_free && !any_filled {
            return Choice::NoData;
        }
        Choice::NoneFree
    }

    /// Notes that the WRITEs of this block were posted.
    pub fn posted(&mut self, block: u32, blocks: u32) {
        self.next = (block + 1) % blocks;
    }
}

/// Notes that the WRITEs of this block have completed. Only that releases the send block: before it, the
/// device may still read it (S1.13).
pub fn completed(first: &impl StatusBytes, second: &impl StatusBytes, block: u32) {
    first.store(block, Free);
    second.store(block, Full);
}

/// The receiving threads: each takes a block whose third status is 1, and sets it to 0 in the end.
#[derive(Debug)]
pub struct Taking {
    next: AtomicU32,
    taken: Box<[AtomicBool]>,
}

impl Taking {
    pub fn new(blocks: u32) -> Self {
        Self { next: AtomicU32::new(0), taken: flags(blocks) }
    }

    /// Claims the next full block, in ring order from the last one.
    pub fn claim(&self, third: &impl StatusBytes) -> Option<u32> {
        let start = self.next.load(Ordering::Relaxed);
        let block = in_turn(start, third.blocks()).find(|&block| self.claim_one(third, block))?;
        self.next.store((block + 1) % third.blocks(), Ordering::Relaxed);
        Some(block)
    }

    /// Checks the status again under the claim: another thread may have taken and released the block
    /// meanwhile.
    fn claim_one(&self, third: &impl StatusBytes, block: u32) -> bool {
        let taken = &self.taken[block as usize];
        if !third.is(block, Full) || !set(taken) {
            return false;
        }
        if third.is(block, Full) {
            return true;
        }
        taken.store(false, Ordering::Release);
        false
    }

    /// Gives the claimed block back. Its bytes were read before.
    pub fn release(&self, third: &impl StatusBytes, block: u32) {
        third.store(block, Free);
        // After the status: while it was 1, another thread would have taken the block again.
        self.taken[block as usize].store(false, Ordering::Release);
    }
}

/// Marks a claimed block as unavailable: from 1 to 2, never from 0 (S1.18).
pub fn hold(third: &impl StatusBytes, block: u32) {
    third.store(block, Unavailable);
}

fn in_turn(start: u32, blocks: u32) -> impl Iterator<Item = u32> {
    (0..blocks).map(move |i| (start + i) % blocks)
}

/// Sets the flag, unless it was set: then nothing is stored.
fn set(flag: &AtomicBool) -> bool {
    flag.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

fn flags(blocks: u32) -> Box<[AtomicBool]> {
    (0..blocks).map(|_| AtomicBool::new(false)).collect()
}
