//! What a client does for one GET, PUT or DELETE: READs, and one batch of a WRITE and compare-and-swaps.
//!
//! - In: the key, the table, what is known of the key's place; then the result of each step.
//! - Out: [`Step`]s, the last of which is [`Step::Done`].
//! - Promises: linearizable per key, if the steps are carried out in order, a batch in its order, each word of
//!   eight bytes in one piece, and no block or table is used again while the operation runs.
//!
//! The same machine runs at clients over a queue pair and in the server on its own memory. `docs/spec/kv.md` has
//! the argument.
use crate::item::{Commit, HEADER_BYTES, Head, Item, encode, item_units};
use crate::layout::{GROUP_WORDS, KeyHash, PROBE_WORDS, Table, UNIT_BYTES, Word};

/// So many reads of one item that is none mean that memory is damaged.
const TORN_MAX: u32 = 64;

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What<'a> {
    /// Read the value.
    Get,
    /// Write the value; with a version only if that is the current one.
    Put {
        /// The new value.
        value: &'a [u8],
        /// The version that it replaces.
        only: Option<u64>,
    },
    /// Remove the key.
    Delete,
}

/// Where a key's item was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The unit where the item begins.
    pub at: u32,
    /// Its units.
    pub units: u32,
    /// Its version.
    pub version: u64,
    /// The offset in the region of the key's word.
    pub word: u64,
}

/// A compare-and-swap of eight bytes at an offset of the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swap {
    /// Where.
    pub at: u64,
    /// What must be there.
    pub compare: u64,
    /// What then is there.
    pub swap: u64,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// READ so many bytes at this offset, then call [`Operation::read`].
    Read {
        /// The offset in the region.
        at: u64,
        /// Bytes, a multiple of eight.
        bytes: u32,
    },
    /// In this order, without a wait between them: WRITE the item of this version ([`Operation::encode`]) into
    /// the block that the operation was given, `mark`, `swap`. Then call [`Operation::published`].
    Publish {
        /// The version of the new item.
        version: u64,
        /// Says of the item before that it is superseded; its result does not matter.
        mark: Option<Swap>,
        /// Changes the key's word.
        swap: Swap,
    },
    /// The server is about to move the key: call [`Operation::resume`] a little later.
    Pause,
    /// Ask the server for a larger table than this one, then as [`Step::Pause`].
    Grow(Table),
    /// The end.
    Done(Outcome),
}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// GET: the value is in the bytes that were read last.
    Found {
        /// Where the item is.
        place: Place,
        /// Whether the place may be remembered: the item is not marked as superseded.
        is_current: bool,
        /// Where the value begins in the bytes that were read last.
        begins: usize,
        /// Bytes of the value.
        bytes: usize,
    },
    /// GET, DELETE: there is no such key.
    Absent {
        /// The version of the item that says so, if there is one.
        version: Option<u64>,
    },
    /// PUT, DELETE: the given block holds the key's item now.
    Stored {
        /// Where the item is.
        place: Place,
        /// The block of the item before, which nobody can find any more.
        superseded: Option<u32>,
        /// What the key was before.
        was: Was,
    },
    /// PUT of a version that is not the current one any more.
    Changed {
        /// The current version; `None` if there is no such key.
        version: Option<u64>,
    },
    /// What lies there is no item, time and again.
    Damaged {
        /// The unit where it lies.
        at: u32,
    },
}

/// What a key was before a PUT or DELETE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Was {
    /// Not in the index.
    Unknown,
    /// There, with a value.
    Present,
    /// There, deleted.
    Deleted,
}

/// The block that a PUT or DELETE writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The unit where it begins.
    pub at: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The item at a remembered place is read.
    Known(Place),
    /// A group is read.
    Group,
    /// The item of a word is read.
    Candidate(Word),
    /// The first unit of the table is read; the table has no empty word.
    Link { is_full: bool },
    /// The batch is on its way.
    Publishing { swap: Swap, version: u64, before: Option<Word>, was: Was },
    /// It starts over.
    Paused,
}

/// An empty word that a new key may take.
#[derive(Debug, Clone, Copy)]
struct Vacancy {
    word: u64,
    is_far: bool,
    floor: u64,
}

/// One operation.
#[derive(Debug)]
pub struct Operation<'a> {
    key: &'a [u8],
    hash: KeyHash,
    what: What<'a>,
    block: Option<Block>,
    base: Table,
    region_bytes: u64,
    state: State,
    table: Table,
    step: u64,
    group: [u64; GROUP_WORDS as usize],
    /// A word of the tag has moved out of `table`.
    passed_moved: bool,
    /// Of a table before `table`, in which the key is not.
    vacancy: Option<Vacancy>,
    torn: u32,
    retries: u32,
}

impl<'a> Operation<'a> {
    /// Begins an operation on a region of so many bytes, at this table. A PUT or DELETE needs a block for its
    /// item ([`Operation::units`]).
    pub fn new(
        (key, hash): (&'a [u8], KeyHash),
        what: What<'a>,
        block: Option<Block>,
        (base, region_bytes): (Table, u64),
    ) -> Self {
        Self {
            key,
            hash,
            what,
            block,
            base,
            region_bytes,
            state: State::Paused,
            table: base,
            step: 0,
            group: [0; GROUP_WORDS as usize],
            passed_moved: false,
            vacancy: None,
            torn: 0,
            retries: 0,
        }
    }

    /// Returns the units of the item that a PUT or DELETE of a key of so many bytes writes.
    pub fn units(key_bytes: usize, what: What<'_>) -> u32 {
        match what {
            What::Put { value, .. } => item_units(key_bytes, value.len()),
            What::Get | What::Delete => item_units(key_bytes, 0),
        }
    }

    /// Returns the first step. A place where the key was found before saves READs: for a GET any, for others
    /// only one that was found since this client last said that none of its operations run (`docs/spec/kv.md`).
    pub fn start(&mut self, known: Option<Place>) -> Step {
        let Some(place) = known else { return self.restart() };
        match self.what {
            What::Get => {
                self.state = State::Known(place);
                read(place.at, place.units)
            }
            What::Put { only: Some(only), .. } if only != place.version => self.restart(),
            What::Put { .. } | What::Delete => {
                let word = Word::new(place.at, place.units, self.hash.tag());
                let commit = Commit::written(place.version);
                self.publish(place.word, Some((word, commit)), Was::Present, 0)
            }
        }
    }

    /// Takes the bytes of [`Step::Read`].
    pub fn read(&mut self, bytes: &[u8]) -> Step {
        match self.state {
            State::Known(place) => self.at_known(place, bytes),
            State::Group => {
                for (word, bytes) in self.group.iter_mut().zip(bytes.chunks_exact(8)) {
                    *word = number(bytes);
                }
                self.scan()
            }
            State::Candidate(word) => self.at_candidate(word, bytes),
            State::Link { is_full } => self.at_link(number(&bytes[..8]), is_full),
            State::Publishing { .. } | State::Paused => self.restart(),
        }
    }

    /// Takes the value of the key's word before the batch of [`Step::Publish`].
    pub fn published(&mut self, found: u64) -> Step {
        let State::Publishing { swap, version, before, was } = self.state else {
            return self.restart();
        };
        if found == swap.compare {
            let word = Word(swap.swap);
            let place = Place { at: word.at(), units: word.units(), version, word: swap.at };
            let superseded = before.map(Word::at);
            return Step::Done(Outcome::Stored { place, superseded, was });
        }
        self.retries += 1;
        self.restart()
    }

    /// Goes on after [`Step::Pause`] or [`Step::Grow`].
    pub fn resume(&mut self) -> Step {
        self.restart()
    }

    /// Writes the item of [`Step::Publish`] into `out`.
    pub fn encode(&self, version: u64, out: &mut Vec<u8>) {
        let value = match self.what {
            What::Put { value, .. } => Some(value),
            What::Get | What::Delete => None,
        };
        encode(version, self.key, value, out);
    }

    /// Returns how often something was read again.
    pub fn retries(&self) -> u32 {
        self.retries
    }

    fn restart(&mut self) -> Step {
        (self.table, self.vacancy) = (self.base, None);
        self.enter(self.base)
    }

    fn enter(&mut self, table: Table) -> Step {
        (self.table, self.step, self.passed_moved) = (table, 0, false);
        self.read_group()
    }

    fn read_group(&mut self) -> Step {
        self.state = State::Group;
        let at = self.table.word(self.table.on_way(self.hash, self.step));
        Step::Read { at, bytes: UNIT_BYTES as u32 }
    }

    /// Goes on through the words that were read.
    fn scan(&mut self) -> Step {
        loop {
            let word = Word(self.group[(self.step % GROUP_WORDS) as usize]);
            if word == Word::EMPTY {
                return self.at_empty();
            } else if word == Word::EMPTY_MOVED {
                return self.read_link(false);
            } else if word.tag() == self.hash.tag() {
                if !word.is_moved() {
                    return self.read_candidate(word);
                }
                self.passed_moved = true;
            }
            if let Some(step) = self.advance() {
                return step;
            }
        }
    }

    /// Goes to the next word; `None` if it was read.
    fn advance(&mut self) -> Option<Step> {
        self.step += 1;
        if self.step == self.table.words() {
            return Some(self.read_link(true));
        }
        self.step.is_multiple_of(GROUP_WORDS).then(|| self.read_group())
    }

    fn read_candidate(&mut self, word: Word) -> Step {
        self.state = State::Candidate(word);
        match self.what {
            What::Get => read(word.at(), word.units()),
            What::Put { .. } | What::Delete => {
                let head = ((HEADER_BYTES + self.key.len()) as u64).div_ceil(UNIT_BYTES);
                read(word.at(), word.units().min(head as u32))
            }
        }
    }

    fn at_known(&mut self, place: Place, bytes: &[u8]) -> Step {
        match Item::decode(bytes) {
            Some(Item { commit, key, value: Some(value) })
                if commit == Commit::written(place.version) && key == self.key =>
            {
                self.found(place, true, value.len())
            }
            _ => self.restart(),
        }
    }

    fn found(&self, place: Place, is_current: bool, bytes: usize) -> Step {
        let begins = HEADER_BYTES + self.key.len();
        Step::Done(Outcome::Found { place, is_current, begins, bytes })
    }

    fn at_candidate(&mut self, word: Word, bytes: &[u8]) -> Step {
        let Some(head) = Head::decode(bytes) else { return self.at_torn(word) };
        let offset = self.table.word(self.table.on_way(self.hash, self.step));
        if self.what == What::Get {
            let Some(item) = Item::decode(bytes) else { return self.at_torn(word) };
            if item.key != self.key {
                return self.advance().unwrap_or_else(|| self.scan());
            }
            let (at, units, version) = (word.at(), word.units(), item.commit.version());
            let place = Place { at, units, version, word: offset };
            let is_current = !item.commit.is_superseded();
            return match item.value {
                Some(value) => self.found(place, is_current, value.len()),
                None => Step::Done(Outcome::Absent { version: Some(version) }),
            };
        }
        if !head.is_of(self.key, bytes) {
            return self.advance().unwrap_or_else(|| self.scan());
        }
        self.change(offset, word, head)
    }

    /// Something that is no item is no item of any moment: the word has changed meanwhile.
    fn at_torn(&mut self, word: Word) -> Step {
        (self.torn, self.retries) = (self.torn + 1, self.retries + 1);
        if self.torn >= TORN_MAX {
            return Step::Done(Outcome::Damaged { at: word.at() });
        }
        self.restart()
    }

    /// PUT or DELETE of a key that has a word.
    fn change(&mut self, offset: u64, word: Word, head: Head) -> Step {
        let version = head.commit.version();
        let current = (!head.is_deleted).then_some(version);
        match self.what {
            What::Put { only: Some(only), .. } if current != Some(only) => {
                return Step::Done(Outcome::Changed { version: current });
            }
            What::Delete if head.is_deleted => {
                return Step::Done(Outcome::Absent { version: Some(version) });
            }
            What::Get | What::Put { .. } | What::Delete => {}
        }
        if word.is_frozen() {
            self.state = State::Paused;
            self.retries += 1;
            return Step::Pause;
        }
        let was = if head.is_deleted { Was::Deleted } else { Was::Present };
        self.publish(offset, Some((word, Commit::written(version))), was, 0)
    }

    fn at_empty(&mut self) -> Step {
        let word = self.table.word(self.table.on_way(self.hash, self.step));
        let floor = if self.passed_moved { self.table.next_floor() } else { self.table.floor() };
        let vacancy = Vacancy { word, is_far: self.step >= PROBE_WORDS, floor };
        if self.passed_moved {
            self.vacancy.get_or_insert(vacancy);
            return self.read_link(false);
        }
        let vacancy = self.vacancy.unwrap_or(vacancy);
        self.absent(Some(vacancy))
    }

    /// There is no item of the key in any table.
    fn absent(&mut self, vacancy: Option<Vacancy>) -> Step {
        match self.what {
            What::Get | What::Delete => Step::Done(Outcome::Absent { version: None }),
            What::Put { only: Some(_), .. } => Step::Done(Outcome::Changed { version: None }),
            What::Put { only: None, .. } => match vacancy {
                Some(Vacancy { word, is_far: false, floor }) => {
                    self.publish(word, None, Was::Unknown, floor)
                }
                _ => {
                    self.state = State::Paused;
                    Step::Grow(self.table)
                }
            },
        }
    }

    fn read_link(&mut self, is_full: bool) -> Step {
        self.state = State::Link { is_full };
        Step::Read { at: self.table.begins(), bytes: UNIT_BYTES as u32 }
    }

    fn at_link(&mut self, descriptor: u64, is_full: bool) -> Step {
        match Table::decode(descriptor, self.region_bytes) {
            Some(next) if next.generation == self.table.generation + 1 => self.enter(next),
            None if descriptor == 0 && is_full => self.absent(self.vacancy),
            Some(_) | None => self.at_torn(Word(self.table.at.into())),
        }
    }

    /// Changes a word from that of the item before, or from empty: then the version is `floor`.
    fn publish(&mut self, at: u64, before: Option<(Word, Commit)>, was: Was, floor: u64) -> Step {
        let Some(block) = self.block else {
            debug_assert!(false, "a PUT or DELETE has a block");
            return Step::Done(Outcome::Absent { version: None });
        };
        let units = Self::units(self.key.len(), self.what);
        let word = Word::new(block.at, units, self.hash.tag());
        let version = before.map_or(floor, |(_, commit)| commit.version() + 1);
        let mark = before.map(|(word, commit)| Swap {
            at: u64::from(word.at()) * UNIT_BYTES,
            compare: commit.0,
            swap: commit.superseded().0,
        });
        let before = before.map(|(word, _)| word);
        let swap = Swap { at, compare: before.unwrap_or(Word::EMPTY).0, swap: word.0 };
        self.state = State::Publishing { swap, version, before, was };
        Step::Publish { version, mark, swap }
    }
}

fn read(at: u32, units: u32) -> Step {
    Step::Read { at: u64::from(at) * UNIT_BYTES, bytes: units * UNIT_BYTES as u32 }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
