//! Status bytes of both sides in arrays of their own, in place of one array that both write.
//!
//! The sender turns its byte of a block with each block that it sends there; the receiver copies that byte into its
//! own array to give the block back. A block is free while the two are equal. One request is outstanding at a time, so
//! two values are enough to tell a release from the one before it.
use super::StatusArea;
use super::protocol::StatusBytes;
use catchment_transfer::protocol::SlotState;
use std::sync::atomic::{AtomicU8, Ordering};

/// The third status memory at the receiver: one array, or two.
pub(super) enum Third<'a> {
    Shared(StatusArea<'a>),
    Apart { sent: StatusArea<'a>, released: StatusArea<'a> },
}

impl StatusBytes for Third<'_> {
    fn blocks(&self) -> u32 {
        match self {
            Self::Shared(bytes) | Self::Apart { sent: bytes, .. } => bytes.blocks(),
        }
    }

    fn load(&self, block: u32) -> u8 {
        match self {
            Self::Shared(bytes) => bytes.load(block),
            Self::Apart { sent, released } => state_of(sent.load(block), released.load(block)),
        }
    }

    /// Of two arrays only a release is stored: a block that is not released is unavailable anyway.
    fn store(&self, block: u32, state: SlotState) {
        match self {
            Self::Shared(bytes) => bytes.store(block, state),
            Self::Apart { sent, released } => {
                if state == SlotState::Free {
                    released.put(block, sent.load(block));
                }
            }
        }
    }
}

/// The second status memory at the sender: a copy of the one array, or of the receiver's with what was sent beside it.
pub(super) enum Second<'a> {
    Shared(StatusArea<'a>),
    Apart { released: StatusArea<'a>, sent: &'a [AtomicU8] },
}

impl StatusBytes for Second<'_> {
    fn blocks(&self) -> u32 {
        match self {
            Self::Shared(bytes) | Self::Apart { released: bytes, .. } => bytes.blocks(),
        }
    }

    fn load(&self, block: u32) -> u8 {
        match self {
            Self::Shared(bytes) => bytes.load(block),
            Self::Apart { released, sent } => {
                state_of(sent[block as usize].load(Ordering::Relaxed), released.load(block))
            }
        }
    }

    /// Of two arrays: notes that a block was sent. The copy is only what was read.
    fn store(&self, block: u32, state: SlotState) {
        match self {
            Self::Shared(bytes) => bytes.store(block, state),
            Self::Apart { sent, .. } => {
                if state == SlotState::Full {
                    sent[block as usize].fetch_xor(1, Ordering::Relaxed);
                }
            }
        }
    }
}

fn state_of(sent: u8, released: u8) -> u8 {
    let state = if sent == released { SlotState::Free } else { SlotState::Full };
    state as u8
}
