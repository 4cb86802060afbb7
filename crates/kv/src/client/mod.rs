//! A client: one connection, one operation at a time.
mod config;
mod control;
mod link;
mod patience;
mod places;

use crate::error::KvError;
use crate::layout::{
    CLASSES, KEY_BYTES_MAX, KeyHash, Table, UNIT_BYTES, VALUE_BYTES_MAX, class_of, class_units,
};
use crate::operation::{Block, Operation, Outcome, Place, Step, What};
use crate::protocol::{Connected, Sided, Why};
use crate::request::{self, Status};
use crate::store::Counts;
use catchment_session::message::SessionPath;
pub use config::ClientConfig;
use control::{Beginning, Order, Reply, Shared};
use link::Link;
use patience::Patience;
use places::Places;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Blocks that are asked for at a time, and their bytes.
const BLOCKS: u64 = 64;
const BLOCKS_BYTES: u64 = 1 << 20;
/// Blocks in a report before it is sent at once.
const REPORTED: usize = 32;
/// So long a PUT waits for a block, or for a larger table.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pauses while the server moves the key, or frees memory.
const PAUSE: Duration = Duration::from_micros(20);
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// A value that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value<'a> {
    /// The bytes, until the client's next operation.
    pub bytes: &'a [u8],
    /// The version: one more with each change of the key.
    pub version: u64,
}

/// How a PUT of a version ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// The value is stored, with this version.
    Stored(u64),
    /// The key has another version, or none.
    Changed(Option<u64>),
}

/// A connection to a store. Its blocks go back when it is dropped.
pub struct Client {
    link: Link,
    shared: Arc<Shared>,
    replies: Receiver<Reply>,
    thread: Option<JoinHandle<()>>,
    sided: Sided,
    may_write: bool,
    seed: (u64, u64),
    region_bytes: u64,
    path: SessionPath,
    reason: String,
    places: Places,
    held: Vec<Vec<u32>>,
    bytes: Vec<u8>,
    item: Vec<u8>,
    retries: u64,
}

/// How one operation ended, whoever executed it.
enum Ended {
    Value { begins: usize, bytes: usize, version: u64 },
    Absent,
    Stored(u64),
    Changed(Option<u64>),
}

impl Client {
    /// Connects to a server.
    ///
    /// # Errors
    /// [`KvError`]: the server cannot be reached or refuses, or the device fails.
    pub fn connect(config: &ClientConfig) -> Result<Self, KvError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let greeting = async {
            let mut greeted = control::greet(config).await?;
            let mut link = Link::open(&greeted.context)?;
            let (theirs, connected, _) = greeted.connect(link.endpoint()).await?;
            link.connect(theirs, connected.region(), greeted.lease())?;
            Ok::<_, KvError>((greeted, link, connected))
        };
        let limited = async { tokio::time::timeout(control::HANDSHAKE, greeting).await };
        let greeted = runtime.block_on(limited);
        let (greeted, link, connected) =
            greeted.unwrap_or_else(|_| Err(KvError::Lost("it said too little in time".into())))?;
        let (path, reason) = (greeted.path.clone(), greeted.reason.clone());
        let can_swap = greeted.context.caps().atomics;
        let (shared, orders) = control::shared(&connected, link.lost());
        let (sender, replies) = channel();
        let running = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("kv-client".to_owned());
        let thread =
            thread.spawn(move || runtime.block_on(greeted.run(running, orders, sender)))?;
        let Connected { may_write, seed, bytes, .. } = connected;
        Ok(Self {
            link,
            shared,
            replies,
            thread: Some(thread),
            sided: config.sided,
            may_write: may_write && can_swap,
            seed,
            region_bytes: bytes,
            path,
            reason,
            places: Places::new(config.places),
            held: vec![Vec::new(); CLASSES],
            bytes: Vec::new(),
            item: Vec::new(),
            retries: 0,
        })
    }

    /// Returns the path: this side's provider is `source`, the server's `collector`.
    pub fn path(&self) -> &SessionPath {
        &self.path
    }

    /// Returns why this path was chosen.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns how often something was read or written again, because another client was faster or the server
    /// moved the key.
    pub fn retries(&self) -> u64 {
        self.retries
    }

    /// Reads a value.
    ///
    /// # Errors
    /// [`KvError`].
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Value<'_>>, KvError> {
        match self.operate(key, What::Get)? {
            Ended::Value { begins, bytes, version } => {
                let bytes = &self.bytes[begins..begins + bytes];
                Ok(Some(Value { bytes, version }))
            }
            Ended::Absent | Ended::Stored(_) | Ended::Changed(_) => Ok(None),
        }
    }

    /// Writes a value; returns its version.
    ///
    /// # Errors
    /// [`KvError`]; [`KvError::Full`] when there is no memory. After an error other than these the value may have
    /// been written.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<u64, KvError> {
        match self.operate(key, What::Put { value, only: None })? {
            Ended::Stored(version) => Ok(version),
            Ended::Value { .. } | Ended::Absent | Ended::Changed(_) => Ok(0),
        }
    }

    /// Writes a value in place of one version of the key.
    ///
    /// # Errors
    /// As [`Client::put`].
    pub fn replace(&mut self, key: &[u8], version: u64, value: &[u8]) -> Result<Replaced, KvError> {
        match self.operate(key, What::Put { value, only: Some(version) })? {
            Ended::Stored(version) => Ok(Replaced::Stored(version)),
            Ended::Changed(version) => Ok(Replaced::Changed(version)),
            Ended::Value { .. } | Ended::Absent => Ok(Replaced::Changed(None)),
        }
    }

    /// Removes a key; returns the version of its removal, or `None` if there was no such key.
    ///
    /// # Errors
    /// As [`Client::put`].
    pub fn delete(&mut self, key: &[u8]) -> Result<Option<u64>, KvError> {
        match self.operate(key, What::Delete)? {
            Ended::Stored(version) => Ok(Some(version)),
            Ended::Value { .. } | Ended::Absent | Ended::Changed(_) => Ok(None),
        }
    }

    /// Asks the server for numbers for people, and the processor time of its process so far, in seconds.
    ///
    /// # Errors
    /// [`KvError::Lost`].
    pub fn counts(&mut self) -> Result<(Counts, f64), KvError> {
        self.order(Order::Counts)?;
        let mut patience = Patience::new(Instant::now());
        loop {
            match self.reply(&mut patience)? {
                Some(Reply::Counts(counts, cpu_s)) => return Ok((counts, cpu_s)),
                Some(reply) => drop(self.keep(reply)),
                None => {}
            }
        }
    }
}

/// Operations.
impl Client {
    fn operate(&mut self, key: &[u8], what: What<'_>) -> Result<Ended, KvError> {
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            return Err(KvError::Key(key.len()));
        }
        if let What::Put { value, .. } = what
            && value.len() > VALUE_BYTES_MAX
        {
            return Err(KvError::Value(value.len()));
        }
        match self.sided {
            Sided::One => self.execute(key, what),
            Sided::Two => self.ask(key, what),
        }
    }

    fn execute(&mut self, key: &[u8], what: What<'_>) -> Result<Ended, KvError> {
        self.check()?;
        let mut block = None;
        if what != What::Get {
            if !self.may_write {
                return Err(KvError::NoAtomics);
            }
            block = Some(self.block(Operation::units(key.len(), what))?);
        }
        let Beginning { epoch, table } = self.shared.begin();
        let ended = self.carry_out((key, what), block, epoch, table);
        if let Err(KvError::Request(_) | KvError::Lost(_) | KvError::Post(_) | KvError::Cq(_)) =
            ended
        {
            // What was posted may still arrive. This turn never ends for the server, until it has destroyed the
            // queue pair.
            self.give_up();
            return ended;
        }
        if let (Some((at, class)), false) = (block, matches!(ended, Ok(Ended::Stored(_)))) {
            self.held[class].push(at);
        }
        self.shared.end();
        ended
    }

    fn give_up(&self) {
        let reason = "a request of it failed before".to_owned();
        self.shared.lost.lock().get_or_insert(reason);
        let _ = self.order(Order::Abandon);
    }

    fn carry_out(
        &mut self,
        (key, what): (&[u8], What<'_>),
        block: Option<(u32, usize)>,
        epoch: u32,
        table: u64,
    ) -> Result<Ended, KvError> {
        let base = Table::decode(table, self.region_bytes);
        let base = base.ok_or_else(|| KvError::Lost("its table is none".to_owned()))?;
        let hash = KeyHash::new(self.seed, key);
        let given = block.map(|(at, _)| Block { at });
        let mut operation = Operation::new((key, hash), what, given, (base, self.region_bytes));
        let known = self.places.get(hash.number(), key);
        let known = known.filter(|(_, found)| what == What::Get || *found == epoch);
        let mut step = operation.start(known.map(|(place, _)| place));
        let mut patience = None;
        let outcome = loop {
            step = match step {
                Step::Read { at, bytes } => {
                    self.link.read(at, bytes, &mut self.bytes)?;
                    operation.read(&self.bytes)
                }
                Step::Publish { version, mark, swap } => {
                    operation.encode(version, &mut self.item);
                    let at = u64::from(given.map_or(0, |block| block.at)) * UNIT_BYTES;
                    let found = self.link.publish((at, &self.item), mark, swap)?;
                    operation.published(found)
                }
                Step::Pause | Step::Grow(_) => {
                    let patience = patience.get_or_insert_with(|| Patience::new(Instant::now()));
                    self.wait_for_server(step, patience)?;
                    operation.resume()
                }
                Step::Done(outcome) => break outcome,
            };
        };
        self.retries += u64::from(operation.retries());
        self.finish((key, hash.number()), what, given, (epoch, outcome))
    }

    fn finish(
        &mut self,
        (key, hash): (&[u8], u64),
        what: What<'_>,
        block: Option<Block>,
        (epoch, outcome): (u32, Outcome),
    ) -> Result<Ended, KvError> {
        match outcome {
            Outcome::Found { place, is_current, begins, bytes } => {
                if is_current {
                    self.places.put(hash, key, place, epoch);
                }
                Ok(Ended::Value { begins, bytes, version: place.version })
            }
            Outcome::Absent { .. } => {
                self.places.forget(hash, key);
                Ok(Ended::Absent)
            }
            Outcome::Stored { place, superseded, was } => {
                let is_put = what != What::Delete;
                self.remember((key, hash), place, epoch, is_put);
                let mut report = self.shared.report.lock();
                report.note(block.map_or(0, |block| block.at), superseded, was, is_put);
                let is_long = report.linked.len() == REPORTED;
                drop(report);
                if is_long {
                    self.order(Order::Report)?;
                }
                Ok(Ended::Stored(place.version))
            }
            Outcome::Changed { version } => Ok(Ended::Changed(version)),
            Outcome::Damaged { at } => Err(KvError::Damaged { at }),
        }
    }

    fn remember(&mut self, (key, hash): (&[u8], u64), place: Place, epoch: u32, is_put: bool) {
        if is_put {
            self.places.put(hash, key, place, epoch);
        } else {
            self.places.forget(hash, key);
        }
    }

    fn wait_for_server(&self, step: Step, patience: &mut Patience) -> Result<(), KvError> {
        self.check()?;
        if patience.waited(Instant::now()) > PATIENCE {
            return Err(KvError::NoGrowth { memory_bytes: self.region_bytes });
        }
        if let Step::Grow(table) = step {
            self.order(Order::Grow { generation: table.generation })?;
            // The server makes a table; no event tells when.
            std::thread::sleep(FULL_PAUSE);
        }
        // The server moves the word soon; there is no event for it.
        std::thread::sleep(PAUSE);
        Ok(())
    }

    /// Lets the server execute an operation.
    fn ask(&mut self, key: &[u8], what: What<'_>) -> Result<Ended, KvError> {
        request::encode_request(key, what, &mut self.item);
        let mut patience = Patience::new(Instant::now());
        let wrong = || KvError::Lost("its answer is none".to_owned());
        loop {
            self.check()?;
            self.link.ask(&self.item, &mut self.bytes)?;
            let (status, version, value) = request::decode_answer(&self.bytes).ok_or_else(wrong)?;
            let deleted = (version > 0).then_some(version);
            return match status {
                Status::Done if what == What::Get => {
                    Ok(Ended::Value { begins: request::HEADER_BYTES, bytes: value.len(), version })
                }
                Status::Done => Ok(Ended::Stored(version)),
                Status::Absent => Ok(Ended::Absent),
                Status::Changed => Ok(Ended::Changed(deleted)),
                Status::Damaged => Err(KvError::Damaged { at: version as u32 }),
                Status::Wrong => Err(wrong()),
                // Memory may be about to become free.
                Status::Full | Status::Later => {
                    let waited = patience.waited(Instant::now());
                    let units = Operation::units(key.len(), what);
                    if status == Status::Full && waited > PATIENCE / 10 {
                        return Err(self.full(units));
                    }
                    if waited > PATIENCE {
                        return Err(Self::waiting(units, waited));
                    }
                    // Other clients' answers free it; no event comes here.
                    std::thread::sleep(FULL_PAUSE);
                    continue;
                }
            };
        }
    }
}

/// Blocks, and what goes over the control connection.
impl Client {
    fn full(&self, units: u32) -> KvError {
        let block_bytes = u64::from(units) * UNIT_BYTES;
        KvError::Full { block_bytes, memory_bytes: self.region_bytes }
    }

    fn waiting(units: u32, waited: Duration) -> KvError {
        KvError::Waiting { block_bytes: u64::from(units) * UNIT_BYTES, waited }
    }

    fn check(&self) -> Result<(), KvError> {
        match &*self.shared.lost.lock() {
            Some(reason) => Err(KvError::Lost(reason.clone())),
            None => Ok(()),
        }
    }

    fn order(&self, order: Order) -> Result<(), KvError> {
        match self.shared.orders.send(order) {
            Ok(()) => Ok(()),
            Err(_) => self.check().and(Err(KvError::Lost("its connection ended".to_owned()))),
        }
    }

    /// Returns the next reply, if one comes soon.
    fn reply(&self, patience: &mut Patience) -> Result<Option<Reply>, KvError> {
        match self.replies.recv_timeout(Duration::from_millis(100)) {
            Ok(reply) => Ok(Some(reply)),
            Err(_) => {
                self.check()?;
                if patience.waited(Instant::now()) > PATIENCE {
                    return Err(KvError::Lost(format!("no answer for {PATIENCE:?}")));
                }
                Ok(None)
            }
        }
    }

    /// Keeps the blocks of a reply; returns why there are none.
    fn keep(&mut self, reply: Reply) -> Option<Why> {
        match reply {
            Reply::Blocks { units, blocks, why } => {
                self.held[class_of(units)].extend(blocks);
                why
            }
            Reply::Counts(..) => None,
        }
    }

    /// Takes a block that this client holds, or asks for more; returns it with its class.
    fn block(&mut self, units: u32) -> Result<(u32, usize), KvError> {
        let class = class_of(units);
        if let Some(at) = self.held[class].pop() {
            return Ok((at, class));
        }
        let units = class_units(class);
        let count = (BLOCKS_BYTES / (u64::from(units) * UNIT_BYTES)).clamp(1, BLOCKS) as u32;
        let mut patience = Patience::new(Instant::now());
        loop {
            self.order(Order::Take { units, count })?;
            let why = loop {
                if let Some(reply) = self.reply(&mut patience)? {
                    break self.keep(reply);
                }
            };
            if let Some(at) = self.held[class].pop() {
                return Ok((at, class));
            }
            let waited = patience.waited(Instant::now());
            match why {
                Some(Why::Full) => return Err(self.full(units)),
                _ if waited > PATIENCE => {
                    return Err(Self::waiting(units, waited));
                }
                // Other clients' answers free memory; no event comes here.
                _ => std::thread::sleep(FULL_PAUSE),
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.shared.orders.send(Order::Goodbye);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
