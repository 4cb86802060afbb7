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
    use SlotState::{Free, Full, Unavailable};
    use proptest::prelude::*;

    /// Who changes a state.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    enum Actor {
        /// The side that writes blocks.
        Sender,
        /// The side that reads them.
        Receiver,
    }

    /// Returns whether `actor` may take a slot from one state to the other.
    ///
    /// The receiver never makes a free slot unavailable: the sender may be writing to it at that very
    /// moment, because of a status that it read before (S1.18).
    fn may_change(actor: Actor, from: SlotState, to: SlotState) -> bool {
        match actor {
            Actor::Sender => (from, to) == (Free, Full),
            Actor::Receiver => {
                matches!((from, to), (Full, Free) | (Full, Unavailable) | (Unavailable, Free))
            }
        }
    }

    /// Returns the state that both bytes together mean; `None` if no correct pair of peers writes them.
    fn slot_state(full: u8, free: u8) -> Option<SlotState> {
        let spoken_of = free >> STATE_BITS;
        let state = free & ((1 << STATE_BITS) - 1);
        let behind = full.wrapping_sub(spoken_of) & 0x3f;
        match (behind, state) {
            (0, 0) => Some(SlotState::Free),
            (0, 2) => Some(SlotState::Unavailable),
            (1, 0) => Some(SlotState::Full),
            _ => None,
        }
    }

    #[test]
    fn s1_6_exactly_four_transitions_exist() {
        let all = [Free, Full, Unavailable];
        let mut allowed = Vec::new();
        for actor in [Actor::Sender, Actor::Receiver] {
            for from in all {
                allowed.extend(
                    all.into_iter()
                        .filter(|to| may_change(actor, from, *to))
                        .map(|to| (actor, from, to)),
                );
            }
        }
        assert_eq!(
            allowed,
            [
                (Actor::Sender, Free, Full),
                (Actor::Receiver, Full, Free),
                (Actor::Receiver, Full, Unavailable),
                (Actor::Receiver, Unavailable, Free),
            ]
        );
    }

    #[test]
    fn zeroed_arrays_mean_free() {
        assert_eq!(slot_state(0, 0), Some(Free));
        assert_eq!(full_byte(0), 0);
        assert_eq!(released_byte(0), 0);
    }

    proptest! {
        #[test]
        fn bytes_encode_the_state(generation in 1u64..) {
            let full = full_byte(generation);
            prop_assert_eq!(slot_state(full, released_byte(generation - 1)), Some(Full));
            prop_assert_eq!(slot_state(full, held_byte(generation)), Some(Unavailable));
            prop_assert_eq!(slot_state(full, released_byte(generation)), Some(Free));
        }

        #[test]
        fn a_byte_of_another_generation_never_frees(generation: u64, age in 1u64..64) {
            let old = generation.wrapping_sub(age);
            prop_assert_ne!(released_byte(old), released_byte(generation));
            prop_assert_ne!(held_byte(old), released_byte(generation));
        }
    }
}
