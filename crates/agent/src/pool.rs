//! The virtual request pool: the memory that an application shares with its agent, one memfd.
//!
//! | offset | what | written by |
//! |---|---|---|
//! | 0 | requests taken | agent |
//! | 64 | completions taken | application |
//! | 128 | flag: the agent sleeps until there is a request | agent sets, application takes |
//! | 192 | flag: the application sleeps until there is a completion | application sets, agent takes |
//! | 4096 | slots of requests, a cache line each: turn, head of a [`Request`] | application |
//! | then | slots of completions, a cache line each: turn, [`Notice`] | agent |
//! | then | the rest of each request, where its head is not all | application |
//!
//! The agent makes the memory and seals its size. An entry is copied out of its slot once and then checked:
//! what the other side writes there later changes nothing. Who takes entries publishes that once in many
//! ([`FREE_EVERY`]).
use crate::entry::{COMPLETION_BYTES, HEAD_BYTES, Notice, REST_BYTES, Request};
use crate::ring::{self, BadIndex, Count as _, Own};
use catchment_verbs::event;
use catchment_verbs::mem::{CACHE_LINE_BYTES, MemError, Region, RegionOptions};
use catchment_verbs::wait::arm;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Slots of each ring.
pub const SLOTS: u64 = 1 << 16;
/// Most entries that are taken without being published as free.
pub const FREE_EVERY: u64 = 64;
/// The queues of an application's queue pairs are at most as large together, so a request that its queue pair
/// takes finds a slot.
pub const MOST_REQUESTS: u64 = SLOTS - FREE_EVERY;

/// How far ahead of the request that it takes an agent asks for the next: those of a batch are there together.
const AHEAD: u64 = 4;

const REQUESTS_TAKEN: usize = 0;
const COMPLETIONS_TAKEN: usize = 64;
const AGENT_FLAG: usize = 128;
const APPLICATION_FLAG: usize = 192;
/// Where the slots of requests begin.
pub const REQUESTS: usize = 4096;
const TURN_BYTES: usize = 8;
/// Bytes of a slot, of both rings.
pub const SLOT_BYTES: usize = CACHE_LINE_BYTES;
const _: () = assert!(TURN_BYTES + HEAD_BYTES == SLOT_BYTES);
const _: () = assert!(TURN_BYTES + COMPLETION_BYTES == SLOT_BYTES);
const COMPLETIONS: usize = REQUESTS + SLOTS as usize * SLOT_BYTES;
/// Where the rests of requests begin, [`REST_BYTES`] each.
pub const RESTS: usize = COMPLETIONS + SLOTS as usize * SLOT_BYTES;

/// Bytes of the memory.
pub const POOL_BYTES: usize = RESTS + SLOTS as usize * REST_BYTES;

/// The bit of a sleeper in its flag.
const ASLEEP: u32 = 1;

/// The memory, on either side.
#[derive(Debug)]
struct Memory {
    region: Arc<Region>,
}

impl Memory {
    #[inline]
    fn u64_at(&self, offset: usize) -> &AtomicU64 {
        self.region.whole().atomic_u64(offset).expect("the layout lies in the memory")
    }

    #[inline]
    fn u32_at(&self, offset: usize) -> &AtomicU32 {
        self.region.whole().atomic_u32(offset).expect("the layout lies in the memory")
    }

    #[inline]
    fn put<const N: usize>(&self, at: usize, n: u64, entry: &[u8; N]) {
        // Checked with the layout: a slot lies in the memory.
        let _ = self.region.whole().write_at(at + TURN_BYTES, entry);
        ring::publish(self.u64_at(at), n);
    }

    #[inline]
    fn get<const N: usize>(&self, at: usize, n: u64) -> Option<[u8; N]> {
        if !ring::is_published(self.u64_at(at), n) {
            return None;
        }
        let mut entry = [0; N];
        self.region.whole().read_at(at + TURN_BYTES, &mut entry).ok()?;
        Some(entry)
    }

    /// Takes slots away from the other side's cache, all at once.
    #[inline]
    fn prefetch(&self, slots: impl Iterator<Item = usize>) {
        slots.for_each(|at| self.region.whole().prefetch_for_write(at));
    }

    fn sleep(&self, flag: usize) {
        arm::arm(self.u32_at(flag), ASLEEP);
    }

    #[inline]
    fn wake(&self, flag: usize, bell: &OwnedFd) {
        if arm::take_armed(self.u32_at(flag)) != 0 {
            event::ring(bell);
        }
    }
}

#[inline]
fn request_slot(n: u64) -> usize {
    REQUESTS + (n % SLOTS) as usize * SLOT_BYTES
}

#[inline]
fn rest_of(n: u64) -> usize {
    RESTS + (n % SLOTS) as usize * REST_BYTES
}

#[inline]
fn completion_slot(n: u64) -> usize {
    COMPLETIONS + (n % SLOTS) as usize * SLOT_BYTES
}

/// An agent's end: takes requests, gives completions. For one thread.
#[derive(Debug)]
pub struct AgentEnd {
    memory: Memory,
    taken: u64,
    /// What the application knows of it.
    freed: u64,
    given: Own,
    /// What is known of the application's progress.
    seen: Own,
    /// The rest of the request taken last.
    rest: [u8; REST_BYTES],
    rest_bytes: usize,
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
        let end = Self {
            memory: Memory { region },
            taken: 0,
            freed: 0,
            given: Own::default(),
            seen: Own::default(),
            rest: [0; REST_BYTES],
            rest_bytes: 0,
            bell,
        };
        Ok((end, fd))
    }

    /// Takes the next request, if there is one: the caller is done with those before. [`AgentEnd::free`] must follow the
    /// last.
    ///
    /// # Errors
    /// [`BadEntry`] for bytes that no honest application writes; the slot is taken all the same.
    #[inline]
    pub fn take(&mut self) -> Option<Result<Request, BadEntry>> {
        let n = self.taken;
        let head = self.memory.get(request_slot(n), n)?;
        if n.wrapping_sub(self.freed) >= FREE_EVERY {
            self.free();
        }
        self.rest_bytes = Request::rest_bytes(&head);
        if self.rest_bytes > 0 {
            let rest = self.rest.get_mut(..self.rest_bytes)?;
            self.memory.region.whole().read_at(rest_of(n), rest).ok()?;
        }
        self.memory.region.whole().prefetch(request_slot(n.wrapping_add(AHEAD)));
        self.taken = n.wrapping_add(1);
        Some(Request::decode(&head, self.rest()).ok_or(BadEntry))
    }

    /// Returns the rest of the request taken last: its inline data, if it has any.
    #[must_use]
    #[inline]
    pub fn rest(&self) -> &[u8] {
        &self.rest[..self.rest_bytes.min(REST_BYTES)]
    }

    /// Gives the slots of what was taken back to the application, and says with that that it is done with them.
    #[inline]
    pub fn free(&mut self) {
        if self.freed != self.taken {
            self.freed = self.taken;
            self.memory.u64_at(REQUESTS_TAKEN).publish(self.taken);
        }
    }

    /// Gives a completion. [`AgentEnd::wake`] must follow.
    ///
    /// # Errors
    /// [`GiveError`]: the application is at fault.
    #[inline]
    pub fn give(&mut self, notice: &Notice) -> Result<(), GiveError> {
        let taken = self.memory.u64_at(COMPLETIONS_TAKEN);
        let claimed = ring::claim(&self.given, &self.seen, taken, SLOTS, 1);
        let n = claimed.map_err(GiveError::BadIndex)?.next().ok_or(GiveError::Full)?;
        self.memory.put(completion_slot(n), n, &notice.encode());
        Ok(())
    }

    /// Wakes the application if it sleeps.
    #[inline]
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
    /// What is known of the agent's progress.
    seen: AtomicU64,
    taken: AtomicU64,
    /// What the agent knows of it.
    freed: AtomicU64,
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
        let [given, seen, taken, freed] = [(); 4].map(|()| AtomicU64::new(0));
        Ok(Self { memory, given, seen, taken, freed, bell })
    }

    /// Claims slots for at most so many requests; none if the ring is full, or was filled with nonsense by the
    /// agent. Each MUST be given to [`ApplicationEnd::give`].
    #[inline]
    #[must_use]
    pub fn claim(&self, most: usize) -> Range<u64> {
        let taken = self.memory.u64_at(REQUESTS_TAKEN);
        let claimed = ring::claim(&self.given, &self.seen, taken, SLOTS, most as u64);
        let claimed = claimed.unwrap_or(0..0);
        self.memory.prefetch(claimed.clone().map(request_slot));
        claimed
    }

    /// Returns whether the agent has done what it does with a request at once, of this number and all before.
    #[must_use]
    pub fn is_taken(&self, n: u64) -> bool {
        let taken = self.memory.u64_at(REQUESTS_TAKEN).observe();
        taken.wrapping_sub(n.wrapping_add(1)) <= u64::MAX / 2
    }

    /// Gives a request in a slot that was claimed; `inline` is its inline data. [`ApplicationEnd::wake`] must
    /// follow the last.
    #[inline]
    pub fn give(&self, n: u64, request: &Request, inline: &[u8]) {
        let whole = self.memory.region.whole();
        let (rest, count) = request.rest();
        // Checked with the layout: the places lie in the memory.
        if count > 0 {
            let _ = whole.write_at(rest_of(n), &rest[..count]);
        } else if !inline.is_empty() {
            let _ = whole.write_at(rest_of(n), &inline[..inline.len().min(REST_BYTES)]);
        }
        // One that rings do not carry is none of its queue pair: the agent refuses it.
        let head = request.head().unwrap_or([0; HEAD_BYTES]);
        self.memory.put(request_slot(n), n, &head);
    }

    /// Wakes the agent if it sleeps.
    #[inline]
    pub fn wake(&self) {
        self.memory.wake(AGENT_FLAG, &self.bell);
    }

    /// Returns whether there is a completion.
    #[inline]
    #[must_use]
    pub fn has_completion(&self) -> bool {
        let n = self.taken.load(Ordering::Acquire);
        ring::is_published(self.memory.u64_at(completion_slot(n)), n)
    }

    /// Takes the next completion, if there is one. The caller sees to it that one thread at a time does, and
    /// calls [`ApplicationEnd::free`] after the last. Bytes that no agent writes are passed over.
    #[inline]
    pub fn take(&self) -> Option<Notice> {
        use Ordering::{Relaxed, Release};
        loop {
            let n = self.taken.load(Relaxed);
            let bytes = self.memory.get(completion_slot(n), n)?;
            let next = n.wrapping_add(1);
            self.taken.store(next, Release);
            if next.wrapping_sub(self.freed.load(Relaxed)) == FREE_EVERY {
                self.free();
            }
            if let Some(notice) = Notice::decode(&bytes) {
                return Some(notice);
            }
        }
    }

    /// Gives the slots of what was taken back to the agent. As [`ApplicationEnd::take`], for one thread at a
    /// time.
    #[inline]
    pub fn free(&self) {
        let taken = self.taken.load(Ordering::Relaxed);
        if self.freed.load(Ordering::Relaxed) != taken {
            self.freed.store(taken, Ordering::Relaxed);
            self.memory.u64_at(COMPLETIONS_TAKEN).publish(taken);
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
