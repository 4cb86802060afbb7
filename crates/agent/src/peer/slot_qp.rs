//! Slots for a host, the queue pair by which it writes them, and by which messages are written to its own.
//!
//! Each host has a protection domain, a region and a queue pair of its own: no key that it guesses leads to the slots of
//! another.
use super::message::{SLOTS_BYTES, Slots};
use super::session::Event;
use crate::slot::{MOST_BYTES, SLOT_BYTES, Seen, SlotMemory, SlotName, SlotReader, encode};
use catchment_verbs::mem::VolatileSlice;
use catchment_verbs::{
    Access, Completion, Context, Cq, Endpoint, Mr, Payload, Qp, QpInit, RemoteAddr, RtrAttr,
    RtsAttr, SendOp, SendWr, VerbsError, Watch,
};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinHandle;

/// Slots that a host writes here, and as many there.
const SLOTS: usize = SLOTS_BYTES as usize / SLOT_BYTES;
/// Messages that the device has at a time; more are as good as lost.
const MOST: u32 = 16;

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is on its way.
    Written,
    /// It is too long for a slot, or the device has many.
    NotWritten,
    /// The queue pair has failed.
    Failed,
}

/// See the module.
pub(crate) struct SlotQp {
    qp: Box<dyn Qp>,
    cq: Arc<dyn Cq>,
    mr: Arc<dyn Mr>,
    watch: Arc<dyn Watch>,
    remote: RemoteAddr,
    /// What was written into each slot of the peer.
    generations: [u64; SLOTS],
    /// Requests that the device has.
    outstanding: u32,
    /// Who looks at what is written here.
    reader: Option<JoinHandle<()>>,
}

impl Drop for SlotQp {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.abort();
        }
    }
}

impl SlotQp {
    /// Makes slots and a queue pair; `None` if the device does not tell of what is written.
    ///
    /// # Errors
    /// When the device has no room.
    pub(crate) fn make(context: &dyn Context) -> Result<Option<Self>, VerbsError> {
        if !context.caps().doorbell || context.caps().max_inline_bytes < SLOT_BYTES as u32 {
            return Ok(None);
        }
        let pd = context.alloc_pd()?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let mr = pd.alloc_mr(SLOTS * SLOT_BYTES, access)?;
        let Some(watch) = mr.watch().filter(|watch| watch.as_fd().is_some()) else {
            return Ok(None);
        };
        let cq = context.create_cq(2 * MOST, None)?;
        let init = QpInit { max_inline_bytes: SLOT_BYTES as u32, ..QpInit::rc(&cq, MOST, 0) };
        let qp = pd.create_qp(init)?;
        let (remote, generations) = (RemoteAddr::default(), [0; SLOTS]);
        Ok(Some(Self { qp, cq, mr, watch, remote, generations, outstanding: 0, reader: None }))
    }

    /// Returns what a peer needs to know to write here.
    pub(crate) fn announcement(&self, number: u32) -> Slots {
        let endpoint = self.qp.endpoint().to_string();
        let (rkey, addr, bytes) = (self.mr.rkey(), self.mr.addr(), self.mr.bytes() as u64);
        Slots { number, endpoint, rkey, addr, bytes }
    }

    /// Connects it with what a peer announced.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn connect(&mut self, theirs: &Slots) -> Result<(), String> {
        let remote: Endpoint =
            theirs.endpoint.parse().map_err(|_| "it is no endpoint".to_owned())?;
        self.remote = RemoteAddr { addr: theirs.addr, rkey: theirs.rkey };
        let connected =
            self.qp.connect(Access::REMOTE_WRITE, RtrAttr::new(remote), RtsAttr::default());
        connected.map_err(|error| error.to_string())
    }

    /// Writes a message into a slot of the peer; `epochs` are those of this agent and of the peer.
    pub(super) fn write(&mut self, (ours, theirs): (u32, u32), message: &[u8]) -> Outcome {
        if !self.take_completions() {
            return Outcome::Failed;
        }
        let slot = slot_of(message);
        let generation = self.generations[slot] + 1;
        let name = SlotName::new(ours, theirs, slot as u32);
        let mut bytes = [0; SLOT_BYTES];
        let start = encode(name, generation, message, &mut bytes);
        let Some(start) = start.filter(|_| self.outstanding < MOST) else {
            return Outcome::NotWritten;
        };
        let addr = self.remote.addr.wrapping_add((slot * SLOT_BYTES + start) as u64);
        let to = SendOp::Write(RemoteAddr { addr, ..self.remote });
        let request = SendWr::new(generation, to, Payload::Inline(&bytes[start..]));
        if self.qp.post_send(&[request]).is_err() {
            return Outcome::Failed;
        }
        self.generations[slot] = generation;
        self.outstanding += 1;
        Outcome::Written
    }

    /// Takes what the device is done with; returns false if it failed.
    fn take_completions(&mut self) -> bool {
        let mut out = [Completion::EMPTY; MOST as usize];
        let Ok(count) = self.cq.poll(&mut out) else { return false };
        self.outstanding = self.outstanding.saturating_sub(count as u32);
        out[..count].iter().all(|completion| completion.result.is_ok())
    }

    /// Tells of every message that is written here, from now on; `epochs` are those of the peer and of this agent. Within a runtime.
    pub(super) fn tell(
        &mut self,
        (host, number): (u32, u32),
        epochs: (u32, u32),
        to: Sender<Event>,
    ) {
        let (mr, watch) = (Arc::clone(&self.mr), Arc::clone(&self.watch));
        let reader = Reader { host, number, mr, readers: readers(epochs), to };
        self.reader = Some(tokio::spawn(reader.run(watch)));
    }

    /// Makes it fail. For tests.
    pub(super) fn break_it(&mut self) {
        let _ = self.qp.modify(catchment_verbs::QpTransition::ToErr);
    }
}

/// Returns the number of the slot of a message: one for offers, one for answers.
fn slot_of(message: &[u8]) -> usize {
    const ANSWERS: u8 = 2;
    usize::from(message.first() == Some(&ANSWERS))
}

fn readers((theirs, ours): (u32, u32)) -> [SlotReader; SLOTS] {
    std::array::from_fn(|slot| SlotReader::new(SlotName::new(theirs, ours, slot as u32)))
}

/// A slot in registered memory.
struct Mapped<'a>(VolatileSlice<'a>);

impl Mapped<'_> {
    fn word(&self, at: usize, order: Ordering) -> u64 {
        // Words of a slot are aligned, and in it.
        u64::from_le(self.0.load_u64(8 * at, order).unwrap_or_default())
    }
}

impl SlotMemory for Mapped<'_> {
    fn load(&self, word: usize) -> u64 {
        self.word(word, Ordering::Relaxed)
    }

    fn load_commit(&self) -> u64 {
        self.word(SLOT_BYTES / 8 - 1, Ordering::Acquire)
    }
}

/// A descriptor that is readable while rung.
struct Bell(Arc<dyn Watch>);

impl AsRawFd for Bell {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().map_or(-1, |fd| fd.as_raw_fd())
    }
}

struct Reader {
    host: u32,
    number: u32,
    mr: Arc<dyn Mr>,
    readers: [SlotReader; SLOTS],
    to: Sender<Event>,
}

impl Reader {
    /// Looks whenever something was written.
    #[allow(
        deprecated,
        reason = "what replaces `with_interest` is unsafe, for descriptors that are not owned"
    )]
    async fn run(mut self, watch: Arc<dyn Watch>) {
        let Ok(bell) = AsyncFd::with_interest(Bell(Arc::clone(&watch)), Interest::READABLE) else {
            return;
        };
        loop {
            watch.arm();
            for slot in 0..SLOTS {
                if let Some(bytes) = self.look(slot) {
                    let (host, number) = (self.host, self.number);
                    let _ = self.to.send(Event::Written { host, number, bytes }).await;
                }
            }
            let Ok(mut rung) = bell.readable().await else { return };
            let _ = watch.wait(Duration::ZERO);
            rung.clear_ready();
        }
    }

    /// Returns the message of a slot if it is new. Who is in the midst of writing one rings at its end.
    fn look(&mut self, slot: usize) -> Option<Vec<u8>> {
        let memory = self.mr.region().slice(slot * SLOT_BYTES, SLOT_BYTES).ok()?;
        let mut message = [0; MOST_BYTES];
        match self.readers[slot].take(&Mapped(memory), &mut message) {
            Seen::Message(count) => Some(message[..count].to_vec()),
            Seen::Torn | Seen::Nothing => None,
        }
    }
}
