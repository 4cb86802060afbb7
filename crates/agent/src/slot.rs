//! A slot: memory of an agent in which the agent of another host puts its newest message of a round, by one WRITE.
//!
//! The last word of a slot is a commit word, that of a block ([`catchment_transfer::protocol::commit_word`]): it holds
//! for the lives of both agents, the slot, the generation and every word of the message. Whatever else is there, half a
//! WRITE, two of them mixed, or what is left of another life, is not taken. Each WRITE goes over the one before,
//! whether or not that was taken: a message that was not is as one that was lost. `docs/spec/agent.md` describes it.
use catchment_transfer::protocol::{HEADER_WORDS, commit_word};

/// Bytes of a slot: as much inline data as each of our devices takes.
pub const SLOT_BYTES: usize = 256;
const SLOT_WORDS: usize = SLOT_BYTES / 8;
/// The words behind a message: generation, bytes, commit word.
const GENERATION: usize = SLOT_WORDS - 3;
const LENGTH: usize = SLOT_WORDS - 2;
const COMMIT: usize = SLOT_WORDS - 1;
/// Most bytes of a message in a slot. It ends where the generation begins, but for zeros up to a whole word.
pub const MOST_BYTES: usize = 8 * GENERATION;

/// A slot as who reads it sees it. A peer writes it at any time.
pub trait SlotMemory {
    /// Loads a word that is not the last.
    fn load(&self, word: usize) -> u64;
    /// Loads the last word; loads that follow are of that time or later.
    fn load_commit(&self) -> u64;
}

/// Which slot it is, and between which lives of the two agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotName {
    epoch: u64,
    slot: u32,
}

impl SlotName {
    /// Names the slot of this number by the epochs of who writes it and who reads it.
    #[must_use]
    pub const fn new(writer: u32, reader: u32, slot: u32) -> Self {
        Self { epoch: (writer as u64) << 32 | reader as u64, slot }
    }

    /// Returns the commit word of a message of so many bytes: that of its length, then of each seven words in the
    /// place of an epoch for the next.
    fn commit(self, generation: u64, bytes: u64, message: &[u64]) -> u64 {
        let mut words = [0; HEADER_WORDS];
        words[0] = bytes;
        let first = commit_word(self.epoch, self.slot, generation, &words);
        message.chunks(HEADER_WORDS).fold(first, |word, chunk| {
            let mut words = [0; HEADER_WORDS];
            words[..chunk.len()].copy_from_slice(chunk);
            commit_word(word, self.slot, generation, &words)
        })
    }
}

/// Writes the end of a slot that holds a message; returns at which byte it begins. `None` if the message is too long.
pub fn encode(
    name: SlotName,
    generation: u64,
    message: &[u8],
    out: &mut [u8; SLOT_BYTES],
) -> Option<usize> {
    let count = message.len().div_ceil(8);
    let first = GENERATION.checked_sub(count)?;
    let mut words = [0; SLOT_WORDS];
    for (word, bytes) in words[first..].iter_mut().zip(message.chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(whole);
    }
    let bytes = message.len() as u64;
    let commit = name.commit(generation, bytes, &words[first..GENERATION]);
    (words[GENERATION], words[LENGTH], words[COMMIT]) = (generation, bytes, commit);
    for (to, word) in out.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    Some(8 * first)
}

/// What is in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// What was there at the last look, or something older.
    Nothing,
    /// No whole message: a WRITE is under way, or it is none of this slot.
    Torn,
    /// A new message, of so many bytes.
    Message(usize),
}

/// Who reads a slot: takes each message once at most, and none after a newer one.
#[derive(Debug)]
pub struct SlotReader {
    name: SlotName,
    /// Of what was taken last.
    generation: u64,
    commit: u64,
}

impl SlotReader {
    /// Begins with an empty slot.
    #[must_use]
    pub fn new(name: SlotName) -> Self {
        Self { name, generation: 0, commit: 0 }
    }

    /// Copies what is in the slot, once, then checks the copy, which holds the message if there is a new one.
    pub fn take(&mut self, memory: &impl SlotMemory, out: &mut [u8; MOST_BYTES]) -> Seen {
        let commit = memory.load_commit();
        if commit == self.commit {
            return Seen::Nothing;
        }
        let (generation, bytes) = (memory.load(GENERATION), memory.load(LENGTH));
        let count = bytes.div_ceil(8);
        if count > GENERATION as u64 {
            return Seen::Torn;
        }
        let first = GENERATION - count as usize;
        let mut words = [0; GENERATION];
        for (at, word) in words.iter_mut().enumerate().skip(first) {
            *word = memory.load(at);
        }
        if self.name.commit(generation, bytes, &words[first..]) != commit {
            return Seen::Torn;
        }
        if generation <= self.generation {
            return Seen::Nothing;
        }
        (self.generation, self.commit) = (generation, commit);
        for (to, word) in out.chunks_exact_mut(8).zip(&words[first..]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        Seen::Message(bytes as usize)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Memory([u64; SLOT_WORDS]);

    impl SlotMemory for Memory {
        fn load(&self, word: usize) -> u64 {
            self.0[word]
        }

        fn load_commit(&self) -> u64 {
            self.0[COMMIT]
        }
    }

    impl Memory {
        fn empty() -> Self {
            Self([0; SLOT_WORDS])
        }

        /// Places the first so many words of a WRITE, in this order of the words.
        fn write(&mut self, (bytes, start): &([u8; SLOT_BYTES], usize), order: &[usize]) {
            for at in order.iter().filter(|at| **at >= start / 8) {
                self.0[*at] = u64::from_le_bytes(bytes[8 * at..][..8].try_into().unwrap());
            }
        }
    }

    const NAME: SlotName = SlotName::new(7, 9, 1);

    fn encoded(generation: u64, message: &[u8]) -> ([u8; SLOT_BYTES], usize) {
        let mut out = [0; SLOT_BYTES];
        let start = encode(NAME, generation, message, &mut out).unwrap();
        (out, start)
    }

    fn all() -> Vec<usize> {
        (0..SLOT_WORDS).collect()
    }

    fn take(reader: &mut SlotReader, memory: &Memory) -> Option<Vec<u8>> {
        let mut out = [0; MOST_BYTES];
        match reader.take(memory, &mut out) {
            Seen::Message(bytes) => Some(out[..bytes].to_vec()),
            Seen::Nothing | Seen::Torn => None,
        }
    }

    #[test]
    fn a_message_is_taken_once_and_none_after_a_newer_one() {
        let (mut memory, mut reader) = (Memory::empty(), SlotReader::new(NAME));
        assert_eq!(take(&mut reader, &memory), None);
        for (generation, message) in [(1, &[5; 40][..]), (2, &[6; MOST_BYTES]), (9, &[])] {
            memory.write(&encoded(generation, message), &all());
            assert_eq!(take(&mut reader, &memory).unwrap(), message);
            assert_eq!(take(&mut reader, &memory), None, "it was taken");
        }
        memory.write(&encoded(8, &[7; 68]), &all());
        assert_eq!(take(&mut reader, &memory), None, "an older one");
        let mut out = [0; SLOT_BYTES];
        assert_eq!(encode(NAME, 1, &[0; MOST_BYTES + 1], &mut out), None);
    }

    #[test]
    fn what_is_of_another_life_or_slot_is_not_taken() {
        let mut memory = Memory::empty();
        memory.write(&encoded(1, &[5; 40]), &all());
        let others = [(8, 9, 1), (7, 8, 1), (9, 7, 1), (7, 9, 0)];
        for (writer, reader, slot) in others {
            let mut reader = SlotReader::new(SlotName::new(writer, reader, slot));
            assert_eq!(reader.take(&memory, &mut [0; MOST_BYTES]), Seen::Torn);
        }
        assert!(take(&mut SlotReader::new(NAME), &memory).is_some());
    }

    proptest! {
        /// Words of two WRITEs may arrive in any order, and the second over half of the first.
        #[test]
        fn what_is_taken_is_one_whole_message(
            first in prop::collection::vec(any::<u8>(), 0..=MOST_BYTES),
            second in prop::collection::vec(any::<u8>(), 0..=MOST_BYTES),
            order in Just(all()).prop_shuffle(),
            (arrived, over) in (0..=SLOT_WORDS, 0..=SLOT_WORDS),
        ) {
            let mut memory = Memory::empty();
            memory.write(&encoded(1, &first), &order[..arrived]);
            memory.write(&encoded(2, &second), &order[..over]);
            let taken = take(&mut SlotReader::new(NAME), &memory);
            prop_assert!(taken.is_none_or(|taken| taken == first || taken == second));
        }

        #[test]
        fn a_flipped_bit_anywhere_keeps_a_message_from_being_taken(
            message in prop::collection::vec(any::<u8>(), 0..=MOST_BYTES),
            word in 0..SLOT_WORDS, bit in 0..64_u32,
        ) {
            let mut memory = Memory::empty();
            let written = encoded(1, &message);
            memory.write(&written, &all());
            memory.0[word] ^= 1 << bit;
            let taken = take(&mut SlotReader::new(NAME), &memory);
            prop_assert_eq!(taken.is_some(), word < written.1 / 8, "what is before it is of no message");
        }

        #[test]
        fn any_bytes_are_looked_at_without_harm(words in prop::array::uniform32(any::<u64>()), bytes in 0..999_u64) {
            let mut memory = Memory(words);
            memory.0[LENGTH] = bytes;
            prop_assert_eq!(take(&mut SlotReader::new(NAME), &memory), None);
        }
    }
}
