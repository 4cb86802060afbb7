//! Status bytes: the two arrays of a ring, and which side writes what.
//!
//! `full[i]` is written by the sender alone: the low eight bits of the slot's generation, which
//! counts the blocks ever written there. `free[i]` is written by the receiver alone: six bits of the
//! generation it refers to, and two bits of state. Both arrays start as zeros: generation 0 was
//! released, nothing was written. Because every byte names its generation, an old byte returned by a
//! late READ is recognised and ignored (EXPERIMENTS I2).

const STATE_BITS: u32 = 2;

/// State of a slot, as in the papers: 0, 1, 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SlotState {
    /// The sender may write.
    Free = 0,
    /// The slot has a block that the receiver has not finished.
    Full = 1,
    /// The receiver keeps the block; the sender skips the slot.
    Unavailable = 2,
}

/// Returns the byte of `full[]` for a slot that has the block of this generation.
#[inline]
pub fn full_byte(generation: u64) -> u8 {
    generation as u8
}

/// Returns the byte of `free[]` for a slot whose block of this generation was released.
#[inline]
pub fn released_byte(generation: u64) -> u8 {
    (generation as u8) << STATE_BITS
}

/// Returns the byte of `free[]` for a slot whose block of this generation is kept.
#[inline]
pub fn held_byte(generation: u64) -> u8 {
    released_byte(generation) | SlotState::Unavailable as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::{ReleaseStatus, SenderSlots};
    use crate::sync::Threads;
    use proptest::prelude::*;

    /// What the sender of the block of this generation learns from a byte.
    fn learnt(generation: u64, byte: u8) -> ReleaseStatus {
        let slots = SenderSlots::new(1);
        slots.launch(0, generation);
        slots.note_free(Threads::Many, 0, byte)
    }

    #[test]
    fn arrays_of_zeros_mean_that_nothing_was_written() {
        assert_eq!(full_byte(0), 0);
        assert_eq!(released_byte(0), 0);
        assert_eq!(learnt(1, 0), ReleaseStatus::Nothing);
    }

    proptest! {
        #[test]
        fn bytes_say_what_became_of_a_block(generation in 1u64..1 << 63) {
            prop_assert_eq!(learnt(generation, released_byte(generation - 1)), ReleaseStatus::Nothing);
            prop_assert_eq!(learnt(generation, held_byte(generation)), ReleaseStatus::Held);
            prop_assert_eq!(learnt(generation, released_byte(generation)), ReleaseStatus::Released);
        }

        #[test]
        fn a_byte_of_another_generation_never_frees(generation in 64u64..1 << 63, age in 1u64..64) {
            let old = generation - age;
            prop_assert_eq!(learnt(generation, released_byte(old)), ReleaseStatus::Nothing);
            prop_assert_eq!(learnt(generation, held_byte(old)), ReleaseStatus::Nothing);
        }
    }
}
