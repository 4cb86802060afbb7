//! Clients and a server on one memory, word by word, in an order that follows from a seed.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use crate::words::{MEMORY_BYTES, Words};
use catchment_kv::layout::{KeyHash, Table, Word};
use catchment_kv::memory::Memory as _;
use catchment_kv::operation::{Block, Operation, Outcome, Place, Step, Swap, What};
use catchment_kv::store::{NoBlock, Question, Report, Store};
use catchment_linear as linear;
use catchment_linear::{Absence, Deleted, Event, Replaced, Seen};
use catchment_probe::random::Random;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const SEED: (u64, u64) = (3, 5);
const KEYS: usize = 10;

/// What is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Planted {
    Nothing,
    /// Items are not marked as superseded.
    NoMark,
    /// They are marked once the index leads to the next one.
    LateMark,
    /// The index is changed before the item is written.
    LateItem,
    /// The index is written, whatever is there.
    BlindSwap,
    /// Questions are answered in the middle of operations.
    EarlyAnswer,
    /// Remembered places are written to, however old they are.
    StalePut,
}

/// One change or look at the memory that is still to be done.
enum Move {
    Load { at: u64, into: usize },
    Store { at: u64, value: u64 },
    Swap { swap: Swap, is_last: bool },
}

struct Running {
    event: Event,
    id: u64,
    key: usize,
    only: Option<(u64, u64)>,
    block: Option<(u32, u32)>,
    operation: Operation<'static>,
    bytes: Vec<u8>,
    moves: VecDeque<Move>,
    found: u64,
    is_paused: bool,
    is_put: bool,
}

#[derive(Default)]
struct Client {
    number: u32,
    is_dead: bool,
    table: Option<Table>,
    /// Questions that it answered.
    epoch: u32,
    questions: VecDeque<Question>,
    report: Report,
    blocks: BTreeMap<u32, Vec<u32>>,
    places: BTreeMap<usize, (Place, u32)>,
    /// The last value and version that it saw of a key.
    seen: BTreeMap<usize, (u64, u64)>,
    running: Option<Box<Running>>,
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    pub(crate) ended: u64,
    pub(crate) retries: u64,
    pub(crate) known: u64,
    pub(crate) killed: u64,
    pub(crate) tables: u32,
    pub(crate) full: u64,
}

pub(crate) struct World {
    random: Random,
    planted: Planted,
    memory: Words,
    store: Store,
    clients: Vec<Client>,
    keys: Vec<(&'static [u8], KeyHash)>,
    now: u64,
    ids: u64,
    pub(crate) history: Vec<Event>,
    pub(crate) tally: Tally,
}

/// Keys of which many have one tag, so that words alone do not tell them apart.
fn keys() -> Vec<(&'static [u8], KeyHash)> {
    let mut by_tag: BTreeMap<u16, Vec<Vec<u8>>> = BTreeMap::new();
    for n in 0..3000_u32 {
        let key = format!("key {n}").into_bytes();
        by_tag.entry(KeyHash::new(SEED, &key).tag()).or_default().push(key);
    }
    let (same, others): (Vec<_>, Vec<_>) = by_tag.into_values().partition(|keys| keys.len() > 1);
    let same = same.into_iter().flatten().take(KEYS / 2 * 2 - 4);
    let keys: Vec<_> = same.chain(others.into_iter().flatten()).take(KEYS).collect();
    let key = |key: Vec<u8>| -> (&'static [u8], KeyHash) {
        let key: &'static [u8] = key.leak();
        (key, KeyHash::new(SEED, key))
    };
    keys.into_iter().map(key).collect()
}

fn value_of(id: u64, random: &mut Random) -> Vec<u8> {
    let mut value = id.to_le_bytes().to_vec();
    value.resize(8 + random.index(180), id as u8);
    value
}

fn id_of(value: &[u8]) -> u64 {
    value.get(..8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
}

impl World {
    pub(crate) fn new(seed: u64, clients: usize, planted: Planted) -> Self {
        let memory = Words::zeroed();
        let mut random = Random::new(seed);
        let store = Store::new(&memory, SEED, random.below(2) as u32).unwrap();
        let mut world = Self {
            random,
            planted,
            memory,
            store,
            clients: Vec::new(),
            keys: keys(),
            now: 0,
            ids: 0,
            history: Vec::new(),
            tally: Tally::default(),
        };
        world.clients = (0..clients).map(|_| world.join()).collect();
        world
    }

    fn join(&mut self) -> Client {
        let number = self.store.join();
        let table = Some(self.store.table());
        Client { number, table, epoch: self.store.epoch(), ..Client::default() }
    }

    /// Lets so many operations begin, then all come to an end.
    pub(crate) fn run(&mut self, operations: u64) {
        while self.ids < operations {
            self.turn(true);
        }
        while self.clients.iter().any(|client| client.running.is_some()) {
            self.turn(false);
        }
        self.read_all();
        self.tally.tables = self.store.table().generation;
    }

    fn turn(&mut self, begins: bool) {
        self.now += 1;
        match self.random.below(40) {
            0 => self.ask(),
            1..6 => drop(self.store.grow(&self.memory)),
            6 if self.random.below(60) == 0 => self.store.ask_growth(self.store.table().generation),
            7 if self.random.below(40) == 0 && begins => self.kill(),
            _ => {
                let n = self.random.index(self.clients.len());
                let mut client = std::mem::take(&mut self.clients[n]);
                self.act(&mut client, begins);
                self.clients[n] = client;
            }
        }
    }

    fn ask(&mut self) {
        if let Some(question) = self.store.ask(&self.memory) {
            let alive = self.clients.iter_mut().filter(|client| !client.is_dead);
            alive.for_each(|client| client.questions.push_back(question));
        }
    }

    /// Kills a client, wherever it is; or lets the server notice one that was killed, and another one come.
    fn kill(&mut self) {
        let n = self.random.index(self.clients.len());
        if !self.clients[n].is_dead {
            self.tally.killed += 1;
            self.clients[n].is_dead = true;
            if let Some(running) = self.clients[n].running.take() {
                self.history.push(running.event);
            }
            return;
        }
        self.store.leave(self.clients[n].number);
        self.clients[n] = self.join();
    }

    fn act(&mut self, client: &mut Client, begins: bool) {
        if client.is_dead {
            return;
        }
        let is_between = client.running.is_none();
        let early = self.planted == Planted::EarlyAnswer;
        if (is_between || early) && self.random.below(4) == 0 {
            self.answer(client);
        }
        match client.running.take() {
            Some(mut running) => {
                let goes_on = self.go_on(client, &mut running);
                client.running = goes_on.then_some(running);
            }
            None if begins => self.begin(client),
            None => {}
        }
    }

    fn answer(&mut self, client: &mut Client) {
        let is_due = !client.report.is_empty() && self.random.below(2) == 0;
        let Some(question) = client.questions.pop_front() else {
            if is_due {
                self.report(client);
            }
            return;
        };
        client.epoch = question.epoch;
        client.table = Some(question.table);
        self.report(client);
        self.store.answer(client.number, question.epoch);
    }

    fn report(&mut self, client: &mut Client) {
        self.store.report(client.number, &std::mem::take(&mut client.report));
    }

    fn begin(&mut self, client: &mut Client) {
        let Some(table) = client.table else { return };
        let key = self.random.index(self.keys.len());
        self.ids += 1;
        let id = self.ids;
        let (mut only, mut is_put) = (None, false);
        let (what, event) = match self.random.below(10) {
            0..5 => (What::Get, linear::What::Get(Seen::Nothing(Absence::Unknown))),
            5 => (What::Delete, linear::What::Delete(Deleted::Nothing(Absence::Unknown))),
            n => {
                is_put = true;
                let value: &'static [u8] = value_of(id, &mut self.random).leak();
                only = client.seen.get(&key).copied().filter(|_| n == 6);
                let event = match only {
                    Some(only) => {
                        linear::What::Replace { value: id, only, ended: Replaced::Nothing }
                    }
                    None => linear::What::Put { value: id, version: 0 },
                };
                (What::Put { value, only: only.map(|(version, _)| version) }, event)
            }
        };
        let mut block = None;
        if what != What::Get {
            let units = Operation::units(self.keys[key].0.len(), what);
            match self.block(client, units) {
                Some(at) => block = Some((at, units)),
                None => return self.tally.full += 1,
            }
        }
        let given = block.map(|(at, _)| Block { at });
        let mut operation =
            Operation::new(self.keys[key], what, given, (table, MEMORY_BYTES as u64));
        let known = client.places.get(&key).copied();
        let known = known.filter(|(_, epoch)| {
            what == What::Get || *epoch == client.epoch || self.planted == Planted::StalePut
        });
        let known = known.map(|(place, _)| place).filter(|_| self.random.below(3) > 0);
        self.tally.known += u64::from(known.is_some());
        let step = operation.start(known);
        let event = Event { key: key as u64, start: self.now, end: None, what: event };
        let mut running = Box::new(Running {
            event,
            id,
            key,
            only,
            block,
            operation,
            bytes: Vec::new(),
            moves: VecDeque::new(),
            found: 0,
            is_paused: false,
            is_put,
        });
        if self.follow(client, &mut running, step) {
            client.running = Some(running);
        }
    }

    fn block(&mut self, client: &mut Client, units: u32) -> Option<u32> {
        let held = client.blocks.entry(units).or_default();
        if held.is_empty() {
            match self.store.take(client.number, units, 1 + self.random.index(3)) {
                Ok(blocks) => *held = blocks,
                Err(NoBlock::Later | NoBlock::Full) => {}
            }
        }
        held.pop()
    }

    /// Makes one move; returns whether the operation goes on.
    fn go_on(&mut self, client: &mut Client, running: &mut Running) -> bool {
        if running.is_paused {
            running.is_paused = false;
            let step = running.operation.resume();
            return self.follow(client, running, step);
        }
        match running.moves.pop_front() {
            Some(Move::Load { at, into }) => {
                let word = self.memory.load(at).to_le_bytes();
                running.bytes[into..into + 8].copy_from_slice(&word);
                if running.moves.is_empty() {
                    let bytes = std::mem::take(&mut running.bytes);
                    let step = running.operation.read(&bytes);
                    running.bytes = bytes;
                    return self.follow(client, running, step);
                }
            }
            Some(Move::Store { at, value }) => self.memory.store(at, value),
            Some(Move::Swap { swap, is_last }) => {
                let before = self.memory.swap(swap);
                if self.planted == Planted::BlindSwap && is_last && !Word(before).is_frozen() {
                    self.memory.store(swap.at, swap.swap);
                    running.found = swap.compare;
                } else if is_last {
                    running.found = before;
                }
            }
            None => {}
        }
        if running.moves.is_empty() {
            let step = running.operation.published(running.found);
            return self.follow(client, running, step);
        }
        true
    }

    /// Turns a step into moves; returns whether the operation goes on.
    fn follow(&mut self, client: &mut Client, running: &mut Running, step: Step) -> bool {
        match step {
            Step::Read { at, bytes } => {
                running.bytes = vec![0; bytes as usize];
                let load = |n: u32| Move::Load { at: at + 8 * u64::from(n), into: 8 * n as usize };
                running.moves = (0..bytes / 8).map(load).collect();
                // A READ promises no order.
                match self.random.below(3) {
                    0 => running.moves.make_contiguous().reverse(),
                    1 => running.moves.rotate_left(self.random.index(bytes as usize / 8)),
                    _ => {}
                }
                true
            }
            Step::Publish { version, mark, swap } => {
                self.publish(running, version, mark, swap);
                true
            }
            Step::Pause => {
                running.is_paused = true;
                true
            }
            Step::Grow(table) => {
                self.store.ask_growth(table.generation);
                running.is_paused = true;
                true
            }
            Step::Done(outcome) => {
                self.end(client, running, outcome);
                false
            }
        }
    }

    fn publish(&mut self, running: &mut Running, version: u64, mark: Option<Swap>, swap: Swap) {
        let mut bytes = Vec::new();
        running.operation.encode(version, &mut bytes);
        let at = u64::from(running.block.unwrap().0) * 64;
        let store = |(n, word): (usize, &[u8])| Move::Store {
            at: at + 8 * n as u64,
            value: u64::from_le_bytes(word.try_into().unwrap()),
        };
        let mut moves: VecDeque<Move> = bytes.chunks_exact(8).enumerate().map(store).collect();
        let mark = mark.map(|swap| Move::Swap { swap, is_last: false });
        let last = Move::Swap { swap, is_last: true };
        match self.planted {
            Planted::NoMark => moves.push_back(last),
            Planted::LateMark => {
                moves.push_back(last);
                moves.extend(mark);
            }
            Planted::LateItem => {
                moves.extend(mark);
                moves.push_front(last);
            }
            Planted::Nothing | Planted::BlindSwap | Planted::EarlyAnswer | Planted::StalePut => {
                moves.extend(mark);
                moves.push_back(last);
            }
        }
        running.moves = moves;
    }

    fn end(&mut self, client: &mut Client, running: &mut Running, outcome: Outcome) {
        self.tally.ended += 1;
        self.tally.retries += u64::from(running.operation.retries());
        let absence = |version: Option<u64>| match version {
            Some(version) => Absence::Deleted { version },
            None => Absence::Unknown,
        };
        let key = running.key;
        let mut event = running.event;
        event.end = Some(self.now);
        let mut unused = running.block.take();
        event.what = match (event.what, outcome) {
            (linear::What::Get(_), Outcome::Found { place, is_current, begins, bytes }) => {
                if is_current {
                    client.places.insert(key, (place, client.epoch));
                }
                let value = id_of(&running.bytes[begins..begins + bytes]);
                client.seen.insert(key, (place.version, value));
                linear::What::Get(Seen::Value { value, version: place.version })
            }
            (linear::What::Get(_), Outcome::Absent { version }) => {
                linear::What::Get(Seen::Nothing(absence(version)))
            }
            (linear::What::Delete(_), Outcome::Absent { version }) => {
                linear::What::Delete(Deleted::Nothing(absence(version)))
            }
            (what, Outcome::Stored { place, superseded, was }) => {
                if let Some((block, _)) = unused.take() {
                    client.report.note(block, superseded, was, running.is_put);
                }
                let version = place.version;
                client.places.remove(&key);
                if running.is_put {
                    client.places.insert(key, (place, client.epoch));
                    client.seen.insert(key, (version, running.id));
                }
                match what {
                    linear::What::Put { value, .. } => linear::What::Put { value, version },
                    linear::What::Replace { value, only, .. } => {
                        linear::What::Replace { value, only, ended: Replaced::Stored { version } }
                    }
                    linear::What::Get(_) | linear::What::Delete(_) => {
                        linear::What::Delete(Deleted::Done { version })
                    }
                }
            }
            (linear::What::Replace { value, only, .. }, Outcome::Changed { version }) => {
                assert_eq!(running.only, Some(only));
                let ended =
                    version.map_or(Replaced::Nothing, |version| Replaced::Other { version });
                linear::What::Replace { value, only, ended }
            }
            (what, outcome) => panic!("{what:?} ended as {outcome:?}"),
        };
        self.history.push(event);
        if let Some((at, units)) = unused {
            client.blocks.entry(units).or_default().push(at);
        }
    }

    /// Reads every key once all is still, so that what was lost is missed.
    fn read_all(&mut self) {
        let mut client = self.join();
        for _ in 0..3 * self.keys.len() {
            self.begin(&mut client);
            while let Some(mut running) = client.running.take() {
                self.now += 1;
                self.store.grow(&self.memory);
                if self.go_on(&mut client, &mut running) {
                    client.running = Some(running);
                }
            }
        }
        self.store.report(client.number, &client.report);
        self.store.leave(client.number);
    }

    /// Lets all clients go and returns the blocks in the index and those that are not free.
    pub(crate) fn close(&mut self) -> (BTreeSet<u32>, u64) {
        for client in std::mem::take(&mut self.clients) {
            self.store.leave(client.number);
        }
        while self.store.grow(&self.memory) {}
        while self.store.ask(&self.memory).is_some() {}
        let table = self.store.table();
        let words = (0..table.words()).map(|n| Word(self.memory.load(table.word(n))));
        let linked = words.filter(|word| *word != Word::EMPTY).map(Word::at).collect();
        (linked, self.store.counts().blocks)
    }
}
