//! The virtual request pool: the memory that an application shares with its agent, one memfd.
//!
//! | offset | what | written by |
//! |---|---|---|
//! | 0 | requests taken | agent |
//! | 64 | completions taken | application |
//! | 128 | flag: the agent sleeps until there is a request | agent sets, application takes |
//! | 192 | flag: the application sleeps until there is a completion | application sets, agent takes |
//! | 4096 | slots of requests: turn, [`Request`] | application |
//! | then | slots of completions: turn, [`Notice`] | agent |
//!
//! The agent makes the memory and seals its size. An entry is copied out of its slot once and then checked:
//! what the other side writes there later changes nothing.
use crate::entry::{COMPLETION_BYTES, Notice, REQUEST_BYTES, Request};
use crate::ring::{self, BadIndex, Count as _};
use catchment_verbs::event;
use catchment_verbs::mem::{MemError, Region, RegionOptions};
use catchment_verbs::wait::arm;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Slots of each ring. The queues of an application's queue pairs are at most as large together, so a
/// request that its queue pair takes finds a slot.
pub const SLOTS: u64 = 1 << 16;

const REQUESTS_TAKEN: usize = 0;
const COMPLETIONS_TAKEN: usize = 64;
const AGENT_FLAG: usize = 128;
const APPLICATION_FLAG: usize = 192;
const REQUESTS: usize = 4096;
const TURN_BYTES: usize = 8;
const REQUEST_SLOT: usize = TURN_BYTES + REQUEST_BYTES;
const COMPLETION_SLOT: usize = TURN_BYTES + COMPLETION_BYTES;
const COMPLETIONS: usize = REQUESTS + SLOTS as usize * REQUEST_SLOT;

/// Bytes of the memory.
pub const POOL_BYTES: usize = COMPLETIONS + SLOTS as usize * COMPLETION_SLOT;

/// The bit of a sleeper in its flag.
const ASLEEP: u32 = 1;

/// The memory, on either side.
#[derive(Debug)]
struct Memory {
    region: Arc<Region>,
}

impl Memory {
    fn u64_at(&self, offset: usize) -> &AtomicU64 {
        self.region.whole().atomic_u64(offset).expect("the layout lies in the memory")
    }

    fn u32_at(&self, offset: usize) -> &AtomicU32 {
        self.region.whole().atomic_u32(offset).expect("the layout lies in the memory")
    }

    fn put(&self, at: usize, n: u64, entry: &[u8]) {
        // Checked with the layout: a slot lies in the memory.
        let _ = self.region.whole().write_at(at + TURN_BYTES, entry);
        ring::publish(self.u64_at(at), n);
    }

    fn get<const N: usize>(&self, at: usize, n: u64) -> Option<[u8; N]> {
        if !ring::is_published(self.u64_at(at), n) {
            return None;
        }
        let mut entry = [0; N];
        self.region.whole().read_at(at + TURN_BYTES, &mut entry).ok()?;
        Some(entry)
    }

    fn sleep(&self, flag: usize) {
        arm::arm(self.u32_at(flag), ASLEEP);
    }

    fn wake(&self, flag: usize, bell: &OwnedFd) {
        if arm::take_armed(self.u32_at(flag)) != 0 {
            event::ring(bell);
        }
    }
}

fn request_slot(n: u64) -> usize {
    REQUESTS + (n % SLOTS) as usize * REQUEST_SLOT
}

fn completion_slot(n: u64) -> usize {
    COMPLETIONS + (n % SLOTS) as usize * COMPLETION_SLOT
}

/// An agent's end: takes requests, gives completions. For one thread.
#[derive(Debug)]
pub struct AgentEnd {
    memory: Memory,
    taken: u64,
    given: AtomicU64,
    /// Rung for a sleeping application.
    bell: OwnedFd,
}

/// A completion found no slot: the application takes none, although it never has more requests than slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GiveError {
    /// The ring is full.
    #[error("the application takes no completions")]
    Full,
    /// The application published an impossible count.
    #[error("{0}")]
    BadIndex(BadIndex),
}

/// A slot was taken whose bytes are no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an entry of its ring is no request")]
pub struct BadEntry;

impl AgentEnd {
    /// Makes the memory; `bell` is rung for a sleeping application, which gets the descriptor returned.
    ///
    /// # Errors
    /// When the system has no memory or descriptor left.
    pub fn new(bell: OwnedFd) -> Result<(Self, OwnedFd), MemError> {
        let lazily = RegionOptions { populate: false };
        let (region, fd) = Region::alloc_with_fd(POOL_BYTES, lazily)?;
        let memory = Memory { region };
        Ok((Self { memory, taken: 0, given: AtomicU64::new(0), bell }, fd))
    }

    /// Takes the next request, if there is one.
    ///
    /// # Errors
    /// [`BadEntry`] for bytes that no honest application writes; the slot is taken all the same.
    #[inline]
    pub fn take(&mut self) -> Option<Result<Request, BadEntry>> {
        let bytes = self.memory.get(request_slot(self.taken), self.taken)?;
        self.taken = self.taken.wrapping_add(1);
        self.memory.u64_at(REQUESTS_TAKEN).publish(self.taken);
        Some(Request::decode(&bytes).ok_or(BadEntry))
    }

    /// Gives a completion. [`AgentEnd::wake`] must follow.
    ///
    /// # Errors
    /// [`GiveError`]: the application is at fault.
    pub fn give(&mut self, notice: &Notice) -> Result<(), GiveError> {
        let taken = self.memory.u64_at(COMPLETIONS_TAKEN);
        let claimed = ring::claim(&self.given, taken, SLOTS).map_err(GiveError::BadIndex)?;
        let n = claimed.ok_or(GiveError::Full)?;
        self.memory.put(completion_slot(n), n, &notice.encode());
        Ok(())
    }

    /// Wakes the application if it sleeps.
    pub fn wake(&self) {
        self.memory.wake(APPLICATION_FLAG, &self.bell);
    }

    /// Asks to be rung at the next request. Look once more before sleeping.
    pub fn arm(&self) {
        self.memory.sleep(AGENT_FLAG);
    }

    /// Returns whether a page of the memory could not be had.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.memory.region.is_broken()
    }
}

/// An application's end: any thread gives requests, one at a time takes completions.
#[derive(Debug)]
pub struct ApplicationEnd {
    memory: Memory,
    given: AtomicU64,
    taken: AtomicU64,
    /// Rung for a sleeping agent.
    bell: OwnedFd,
}

impl ApplicationEnd {
    /// Maps the memory that an agent made; `bell` wakes the agent.
    ///
    /// # Errors
    /// When it cannot be mapped.
    pub fn new(fd: OwnedFd, bell: OwnedFd) -> Result<Self, MemError> {
        let memory = Memory { region: Region::from_peer(fd, POOL_BYTES, true)? };
        Ok(Self { memory, given: AtomicU64::new(0), taken: AtomicU64::new(0), bell })
    }

    /// Gives a request; false if the ring is full, or was filled with nonsense by the agent.
    /// [`ApplicationEnd::wake`] must follow.
    #[inline]
    #[must_use]
    pub fn give(&self, request: &[u8; REQUEST_BYTES]) -> bool {
        let taken = self.memory.u64_at(REQUESTS_TAKEN);
        let Ok(Some(n)) = ring::claim(&self.given, taken, SLOTS) else { return false };
        self.memory.put(request_slot(n), n, request);
        true
    }

    /// Wakes the agent if it sleeps.
    #[inline]
    pub fn wake(&self) {
        self.memory.wake(AGENT_FLAG, &self.bell);
    }

    /// Takes the next completion, if there is one. The caller sees to it that one thread at a time does.
    /// Bytes that no agent writes are passed over.
    #[inline]
    pub fn take(&self) -> Option<Notice> {
        use std::sync::atomic::Ordering::Relaxed;
        loop {
            let n = self.taken.load(Relaxed);
            let bytes = self.memory.get(completion_slot(n), n)?;
            let next = n.wrapping_add(1);
            self.taken.store(next, Relaxed);
            self.memory.u64_at(COMPLETIONS_TAKEN).publish(next);
            if let Some(notice) = Notice::decode(&bytes) {
                return Some(notice);
            }
        }
    }

    /// Asks to be rung at the next completion. Look once more before sleeping.
    pub fn arm(&self) {
        self.memory.sleep(APPLICATION_FLAG);
    }

    /// Returns whether a page of the memory could not be had.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.memory.region.is_broken()
    }
}
