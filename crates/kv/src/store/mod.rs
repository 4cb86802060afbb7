//! The server's half without I/O: who holds which block, when it may be used again, when the table grows.
//!
//! - In: clients that come, go, take blocks and report what they did with them; answers to questions.
//! - Out: blocks, questions for all clients, and changes of the memory that each take one word.
//! - Promises: a block or table that a client may still reach is not used again. `docs/spec/kv.md` has the argument.
mod heap;
mod migration;

use crate::layout::{FLOOR_SHIFT, GENERATIONS, Table, UNIT_BYTES, Word, class_of};
use crate::memory::Memory;
use crate::operation::Was;
use heap::Heap;
use migration::{Migration, Progress};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

const _: () = assert!(GENERATIONS.ilog2() + FLOOR_SHIFT <= 62);

/// What a client has done since its last report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Blocks that it put into the index.
    pub linked: Vec<u32>,
    /// Blocks that it took out of the index.
    pub superseded: Vec<u32>,
    /// Blocks that it has no use for.
    pub returned: Vec<u32>,
    /// Keys that are new in the index.
    pub inserted: u64,
    /// Keys that it deleted.
    pub deleted: u64,
    /// Deleted keys that it gave a value again.
    pub revived: u64,
}

impl Report {
    /// Returns whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Notes a PUT (of a value) or a DELETE that put `block` into the index.
    pub fn note(&mut self, block: u32, superseded: Option<u32>, was: Was, is_put: bool) {
        self.linked.push(block);
        self.superseded.extend(superseded);
        self.inserted += u64::from(was == Was::Unknown);
        self.deleted += u64::from(!is_put && was == Was::Present);
        self.revived += u64::from(is_put && was == Was::Deleted);
    }
}

/// Why there is no block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoBlock {
    /// Some are about to become free.
    Later,
    /// All memory is in use.
    Full,
}

/// How soon the store wants to grow or to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// Not before something else happens.
    None,
    /// Nobody waits for it: each question takes a message of every client.
    Soon,
    /// Somebody waits for it.
    Now,
}

/// A question to all clients: whether they have ended all operations that began before they heard it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// Its number.
    pub epoch: u32,
    /// The table to begin at from now on.
    pub table: Table,
}

/// Numbers for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Clients.
    pub clients: u64,
    /// Keys, as far as clients have reported.
    pub keys: u64,
    /// Words of the current table.
    pub words: u64,
    /// Tables before it.
    pub generation: u32,
    /// Questions that all clients answered.
    pub epochs: u32,
    /// Blocks that are neither free nor cut yet.
    pub blocks: u64,
    /// Blocks and tables that wait for answers.
    pub waiting: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Held(u32),
    /// In the index, or left by a client that is gone.
    Linked,
    /// Out of the index; some client may still read it.
    Waiting,
}

#[derive(Debug, Clone, Copy)]
struct Owned {
    class: u8,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum Garbage {
    Block(u32),
    Table(Table),
}

/// The store's books.
#[derive(Debug)]
pub struct Store {
    seed: (u64, u64),
    heap: Heap,
    blocks: BTreeMap<u32, Owned>,
    /// Clients, and the last question that each has answered.
    clients: BTreeMap<u32, u32>,
    /// Those of them that have said goodbye, or were lost.
    leaving: BTreeSet<u32>,
    joined: u32,
    table: Table,
    migration: Option<Migration>,
    /// Words of the table that belong to keys, and those of deleted keys.
    bound: u64,
    dead: u64,
    epoch: u32,
    is_asking: bool,
    /// What becomes free when all have answered the question that was asked.
    asked: Vec<Garbage>,
    /// What waits for the next question.
    waiting: Vec<Garbage>,
    /// Blocks that were in no table when the question was asked.
    lost: Vec<u32>,
    wants_sweep: bool,
    wants_growth: bool,
    /// A client waits for a block, or a table for its end.
    is_pressed: bool,
}

impl Store {
    /// Makes an empty store of zeroed memory, with a first table of two to the power of this many groups; `None`
    /// if it has no room for it.
    pub fn new(memory: &dyn Memory, seed: (u64, u64), log2_groups: u32) -> Option<Self> {
        let mut heap = Heap::new(memory.bytes());
        let mut table = Table { at: 0, log2_groups, generation: 0 };
        table.at = heap.take_area((table.bytes() / UNIT_BYTES) as u32)?;
        Some(Self {
            seed,
            heap,
            blocks: BTreeMap::new(),
            clients: BTreeMap::new(),
            leaving: BTreeSet::new(),
            joined: 0,
            table,
            migration: None,
            bound: 0,
            dead: 0,
            epoch: 0,
            is_asking: false,
            asked: Vec::new(),
            waiting: Vec::new(),
            lost: Vec::new(),
            wants_sweep: false,
            wants_growth: false,
            is_pressed: false,
        })
    }

    /// Returns the secret of the hash.
    pub fn seed(&self) -> (u64, u64) {
        self.seed
    }

    /// Returns the table where operations begin.
    pub fn table(&self) -> Table {
        self.table
    }

    /// Returns the number of the last question, which a client that joins need not answer.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Returns numbers for people.
    pub fn counts(&self) -> Counts {
        Counts {
            clients: self.clients.len() as u64,
            keys: self.bound.saturating_sub(self.dead),
            words: self.table.words(),
            generation: self.table.generation,
            epochs: self.epoch - u32::from(self.is_asking),
            blocks: self.blocks.len() as u64,
            waiting: (self.waiting.len() + self.asked.len()) as u64,
        }
    }

    /// Lets a client in; returns its number.
    pub fn join(&mut self) -> u32 {
        self.joined += 1;
        self.clients.insert(self.joined, self.epoch);
        self.joined
    }

    /// Notes that a client is about to leave: what it holds is about to become free.
    pub fn expect_leave(&mut self, client: u32) {
        if self.clients.contains_key(&client) {
            self.leaving.insert(client);
        }
    }

    /// Notes that a client is gone. From before this call on it must not be able to change the memory.
    pub fn leave(&mut self, client: u32) {
        self.leaving.remove(&client);
        if self.clients.remove(&client).is_none() {
            return;
        }
        for owned in self.blocks.values_mut().filter(|owned| owned.state == State::Held(client)) {
            // What of it is in the index, only the index knows.
            owned.state = State::Linked;
            self.wants_sweep = true;
        }
        // It may have taken blocks out of the index without a report.
        self.wants_sweep = true;
        self.end_question();
    }

    /// Gives a client up to `count` blocks for items of so many units.
    ///
    /// # Errors
    /// [`NoBlock`] if there is none.
    pub fn take(&mut self, client: u32, units: u32, count: usize) -> Result<Vec<u32>, NoBlock> {
        let state = State::Held(client);
        let mut taken = Vec::new();
        while taken.len() < count {
            let Some((at, class)) = self.heap.take(class_of(units)) else { break };
            self.blocks.insert(at, Owned { class: class as u8, state });
            taken.push(at);
        }
        if !taken.is_empty() {
            return Ok(taken);
        }
        let is_near = self.is_asking
            || !self.waiting.is_empty()
            || self.wants_sweep
            || !self.leaving.is_empty()
            || self.migration.is_some();
        self.is_pressed |= is_near;
        Err(if is_near { NoBlock::Later } else { NoBlock::Full })
    }

    /// Takes note of what a client did.
    pub fn report(&mut self, client: u32, report: &Report) {
        for at in &report.linked {
            self.change(*at, State::Held(client), State::Linked);
        }
        for at in &report.superseded {
            self.supersede(*at);
        }
        for at in &report.returned {
            match self.blocks.get(at) {
                Some(owned) if owned.state == State::Held(client) => self.free(*at),
                _ => {}
            }
        }
        self.bound += report.inserted;
        self.dead = (self.dead + report.deleted).saturating_sub(report.revived);
        self.wants_growth |= self.is_crowded();
    }

    fn is_crowded(&self) -> bool {
        self.migration.is_none() && 2 * self.bound > self.table.words()
    }

    fn change(&mut self, at: u32, from: State, to: State) {
        if let Some(owned) = self.blocks.get_mut(&at).filter(|owned| owned.state == from) {
            owned.state = to;
        }
    }

    /// Notes that the index does not lead to a block any more.
    fn supersede(&mut self, at: u32) {
        if let Some(owned) = self.blocks.get_mut(&at).filter(|owned| owned.state != State::Waiting)
        {
            owned.state = State::Waiting;
            self.waiting.push(Garbage::Block(at));
        }
    }

    fn free(&mut self, at: u32) {
        if let Some(owned) = self.blocks.remove(&at) {
            self.heap.give(at, owned.class.into());
        }
    }

    /// Asks for a larger table than this one, because an insertion found no empty word near.
    pub fn ask_growth(&mut self, generation: u32) {
        self.wants_growth |= self.migration.is_none() && generation == self.table.generation;
    }
}

/// Questions.
impl Store {
    /// Returns when [`Store::grow`] or [`Store::ask`] is to be called.
    pub fn urgency(&self) -> Urgency {
        let is_pressed = self.is_pressed || self.wants_sweep;
        match (self.is_growing(), self.asks()) {
            (true, _) => Urgency::Now,
            (false, true) if is_pressed => Urgency::Now,
            (false, true) => Urgency::Soon,
            (false, false) => Urgency::None,
        }
    }

    /// Returns whether there is a reason for a question and none is unanswered.
    fn asks(&self) -> bool {
        !self.is_asking && (!self.waiting.is_empty() || self.sweeps())
    }

    fn sweeps(&self) -> bool {
        self.wants_sweep && self.migration.is_none()
    }

    /// Returns the next question, if there is a reason for one and none is unanswered. It goes to every client.
    pub fn ask(&mut self, memory: &dyn Memory) -> Option<Question> {
        if !self.asks() {
            return None;
        }
        let sweeps = self.sweeps();
        self.epoch += 1;
        self.is_asking = true;
        self.is_pressed = false;
        self.asked = std::mem::take(&mut self.waiting);
        if sweeps {
            self.wants_sweep = false;
            self.lost = self.find_lost(memory);
        }
        let question = Question { epoch: self.epoch, table: self.table };
        self.end_question();
        Some(question)
    }

    /// Notes that all operations of a client have ended that began before it heard this question, and that all they
    /// did was reported.
    pub fn answer(&mut self, client: u32, epoch: u32) {
        if let Some(answered) = self.clients.get_mut(&client)
            && epoch <= self.epoch
        {
            *answered = epoch.max(*answered);
            self.end_question();
        }
    }

    /// Frees what waited for the question once all have answered.
    fn end_question(&mut self) {
        if !self.is_asking || self.clients.values().any(|answered| *answered < self.epoch) {
            return;
        }
        self.is_asking = false;
        for garbage in std::mem::take(&mut self.asked) {
            match garbage {
                Garbage::Block(at) => self.free(at),
                Garbage::Table(table) => {
                    self.heap.give_area(table.at, (table.bytes() / UNIT_BYTES) as u32);
                }
            }
        }
        for at in std::mem::take(&mut self.lost) {
            // Whoever took it out of the index has not said so, and never will.
            if self.blocks.get(&at).is_some_and(|owned| owned.state == State::Linked) {
                self.free(at);
            }
        }
    }

    /// Returns the blocks that should be in the index and are not.
    fn find_lost(&self, memory: &dyn Memory) -> Vec<u32> {
        let words = (0..self.table.words()).map(|index| Word(memory.load(self.table.word(index))));
        let found: BTreeSet<u32> = words.map(Word::at).collect();
        let linked = self.blocks.iter().filter(|(_, owned)| owned.state == State::Linked);
        linked.map(|(at, _)| *at).filter(|at| !found.contains(at)).collect()
    }
}

/// Growth.
impl Store {
    /// Returns whether [`Store::grow`] has something to do.
    pub fn is_growing(&self) -> bool {
        self.migration.is_some() || self.wants_growth
    }

    /// Moves on to the next table, one word at most. Returns whether there is more to do.
    pub fn grow(&mut self, memory: &dyn Memory) -> bool {
        let Some(migration) = &mut self.migration else {
            return self.wants_growth && self.begin_growth(memory);
        };
        match migration.step(memory, self.seed) {
            Progress::More => {}
            Progress::Dropped(at) => {
                self.supersede(at);
                self.bound = self.bound.saturating_sub(1);
                self.dead = self.dead.saturating_sub(1);
            }
            Progress::Done => {
                let to = migration.to;
                self.migration = None;
                self.waiting.push(Garbage::Table(self.table));
                self.is_pressed = true;
                self.table = to;
                self.wants_growth = self.is_crowded();
            }
        }
        self.is_growing()
    }

    fn begin_growth(&mut self, memory: &dyn Memory) -> bool {
        self.wants_growth = false;
        let live = self.bound.saturating_sub(self.dead);
        // Where most keys are deleted, a table of the same size will do.
        let more =
            u32::from(4 * live >= self.table.words() || 2 * self.bound <= self.table.words());
        let Table { log2_groups, generation, .. } = self.table;
        let mut next = Table { at: 0, log2_groups: log2_groups + more, generation: generation + 1 };
        let units = next.bytes() / UNIT_BYTES;
        let Some(at) = u32::try_from(units).ok().and_then(|units| self.heap.take_area(units))
        else {
            tracing::warn!(bytes = next.bytes(), "no room for a larger table");
            return false;
        };
        next.at = at;
        if Table::decode(next.encode(), memory.bytes()).is_none() {
            self.heap.give_area(at, units as u32);
            return false;
        }
        for word in 0..next.bytes() / 8 {
            memory.store(next.begins() + 8 * word, 0);
        }
        memory.store(self.table.begins(), next.encode());
        self.migration = Some(Migration::new(self.table, next));
        true
    }
}
