//! The next table: words move there one by one, while clients go on.
use crate::layout::{KeyHash, Table, UNIT_BYTES, Word};
use crate::memory::{Memory, head};
use crate::operation::Swap;

/// Where the move stands.
#[derive(Debug, Clone, Copy)]
enum State {
    /// The word is looked at.
    Look,
    /// The word is frozen; a place for it is looked for in the next table.
    Insert { word: Word, hash: KeyHash, step: u64 },
    /// The next table has it.
    Seal { word: Word },
}

/// A move from one table to the next.
#[derive(Debug)]
pub(super) struct Migration {
    from: Table,
    pub(super) to: Table,
    index: u64,
    state: State,
    /// Words that the next table has from here.
    pub(super) moved: u64,
    key: Vec<u8>,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// There is more to do.
    More,
    /// The deleted key of this item is not in the next table.
    Dropped(u32),
    /// All have moved.
    Done,
}

impl Migration {
    pub(super) fn new(from: Table, to: Table) -> Self {
        Self { from, to, index: 0, state: State::Look, moved: 0, key: Vec::new() }
    }

    /// Changes one word at most.
    pub(super) fn step(&mut self, memory: &dyn Memory, seed: (u64, u64)) -> Progress {
        if self.index == self.from.words() {
            return Progress::Done;
        }
        let at = self.from.word(self.index);
        match self.state {
            State::Look => return self.look(memory, at, seed),
            State::Insert { word, hash, step } => {
                let place = self.to.word(self.to.on_way(hash, step));
                let (compare, swap) = (Word::EMPTY.0, word.0);
                self.state = if memory.swap(Swap { at: place, compare, swap }) == compare {
                    State::Seal { word }
                } else {
                    debug_assert!(step < self.to.words(), "the next table is larger");
                    State::Insert { word, hash, step: step + 1 }
                };
            }
            State::Seal { word } => {
                memory.store(at, word.moved().0);
                self.moved += 1;
                self.next();
            }
        }
        Progress::More
    }

    fn next(&mut self) {
        (self.index, self.state) = (self.index + 1, State::Look);
    }

    fn look(&mut self, memory: &dyn Memory, at: u64, seed: (u64, u64)) -> Progress {
        let word = Word(memory.load(at));
        if word == Word::EMPTY {
            let swap = Word::EMPTY_MOVED.0;
            if memory.swap(Swap { at, compare: word.0, swap }) == word.0 {
                self.next();
            }
            return Progress::More;
        }
        let Some(head) = head(memory, u64::from(word.at()) * UNIT_BYTES, &mut self.key) else {
            // A client has written what is no item: the key is lost, and its readers say so.
            tracing::error!(?word, "the index leads to what is no item");
            let frozen = memory.swap(Swap { at, compare: word.0, swap: word.moved().0 });
            if frozen == word.0 {
                self.next();
            }
            return Progress::More;
        };
        let is_dropped = head.is_deleted && head.commit.version() < self.from.next_floor();
        let to = if is_dropped { word.moved() } else { word.frozen() };
        if memory.swap(Swap { at, compare: word.0, swap: to.0 }) != word.0 {
            return Progress::More;
        }
        if is_dropped {
            self.next();
            return Progress::Dropped(word.at());
        }
        let hash = KeyHash::new(seed, &self.key);
        self.state = State::Insert { word, hash, step: 0 };
        Progress::More
    }
}
