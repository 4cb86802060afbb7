//! What must hold for a slot whatever is written into it: a script of WRITEs of messages, whole or in part, and of words,
//! with a look of its reader after each. The fuzz target and the ordinary test that replays its corpus share this file.
use catchment_agent::slot::{
    MOST_BYTES, SLOT_BYTES, Seen, SlotMemory, SlotName, SlotReader, encode,
};

const NAME: SlotName = SlotName::new(7, 9, 1);
const WORDS: usize = SLOT_BYTES / 8;

struct Memory([u64; WORDS]);

impl SlotMemory for Memory {
    fn load(&self, word: usize) -> u64 {
        self.0[word]
    }

    fn load_commit(&self) -> u64 {
        self.0[WORDS - 1]
    }
}

/// The script: each step is its kind and what that takes, cut off where the bytes end.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// Panics when something does not hold.
pub(crate) fn check(bytes: &[u8]) {
    let mut script = Script(bytes);
    let mut world = World {
        memory: Memory([0; WORDS]),
        reader: SlotReader::new(NAME),
        written: Vec::new(),
        newest: 0,
    };
    while let Some(kind) = script.byte() {
        if kind % 4 == 3 {
            let at = usize::from(script.byte().unwrap_or(0)) % WORDS;
            let mut word = [0; 8];
            let bytes = script.bytes(8);
            word[..bytes.len()].copy_from_slice(bytes);
            world.memory.0[at] ^= u64::from_le_bytes(word);
        } else {
            let generation = u64::from(script.byte().unwrap_or(0));
            let length = usize::from(script.byte().unwrap_or(0));
            let arrived = if kind % 4 == 2 { script.byte().unwrap_or(0) } else { u8::MAX };
            world.write(generation, script.bytes(length), usize::from(arrived));
        }
        world.look();
        world.look();
    }
}

struct World<'a> {
    memory: Memory,
    reader: SlotReader,
    /// All messages, with their generations.
    written: Vec<(u64, &'a [u8])>,
    newest: u64,
}

impl<'a> World<'a> {
    /// Places the first so many words of the WRITE of a message.
    fn write(&mut self, generation: u64, message: &'a [u8], arrived: usize) {
        let mut out = [0; SLOT_BYTES];
        let Some(start) = encode(NAME, generation, message, &mut out) else {
            assert!(message.len() > MOST_BYTES, "{} bytes fit", message.len());
            return;
        };
        assert!(start % 8 == 0 && start + message.len() <= SLOT_BYTES);
        self.written.push((generation, message));
        let words = out.chunks_exact(8).enumerate().skip(start / 8);
        for (at, word) in words.take(arrived) {
            let word = word.first_chunk().expect("eight bytes");
            self.memory.0[at] = u64::from_le_bytes(*word);
        }
    }

    /// What is taken was written as one message, of a generation above those before.
    fn look(&mut self) {
        let mut out = [0; MOST_BYTES];
        let Seen::Message(bytes) = self.reader.take(&self.memory, &mut out) else { return };
        let taken = &out[..bytes];
        let generations = self.written.iter().filter(|(_, message)| *message == taken);
        let newer = generations.map(|(generation, _)| *generation).filter(|one| *one > self.newest);
        self.newest = newer.min().expect("it was written whole, and none newer was taken before");
        assert_eq!(self.reader.take(&self.memory, &mut out), Seen::Nothing, "it is taken once");
    }
}
