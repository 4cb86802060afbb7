//! How slots go back: blocks are given back by any thread, and whichever has the queue pair then
//! tells the sender.
//!
//! The sender is told when N/4 blocks of a window came back, or at once while the receiver has
//! found nothing to do. A thread that gives a block back adds to the window's count first and looks
//! then whether the receiver is idle; the receiver says first that it is idle and looks then at the
//! counts. So one of the two sees the other.
//!
//! Receives are posted again before the blocks that used them count as given back, so that the
//! sender never has more credit than there are receives.
use crate::{EndError, FirstError, InTurn, PeerFault, RemoteMemory, SendQueue};
use catchment_channel::geometry::{Geometry, INSIDE};
use catchment_verbs::{Payload, QpState, RecvWr, RemoteAddr, RemoteWindow, SendOp, SendWr};
use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// The slot may be written by the sender.
const WITH_SENDER: u8 = 0;
/// Its block was taken.
const TAKEN: u8 = 1;
/// Its block was given back, and the sender was not told.
const GIVEN_BACK: u8 = 2;

/// What all threads know of the slots.
pub(super) struct Returns {
    geometry: Geometry,
    /// For each place one of the three states.
    state: Box<[AtomicU8]>,
    /// For each place a bit that turns each time that it is given back; empty if slots go back in
    /// turn. Every window begins with a word of its own.
    bits: Box<[AtomicU64]>,
    /// Blocks of each window that were given back since the sender was told.
    pending: Box<[CachePadded<AtomicU32>]>,
    /// How many of them make a credit.
    every: u32,
    /// Receives that completed, and those posted for them.
    consumed: AtomicU64,
    reposted: AtomicU64,
    /// How many are posted with one call; 0 if there are none.
    list: u64,
    /// The receiver's last look found nothing.
    idle: AtomicBool,
    link: InTurn<Link>,
    pub(super) broken: FirstError,
    credits: AtomicU64,
}

/// The queue pair of the receiver, owned by the thread that tells the sender.
pub(super) struct Link {
    pub(super) queue: SendQueue,
    pub(super) to: Target,
    /// For each window the blocks given back in turn, as the sender was told.
    pub(super) told: Box<[u64]>,
    /// For each word of [`Returns::bits`] what the sender was told.
    pub(super) told_bits: Box<[u64]>,
    /// Receives that are posted with one call; empty if there are none.
    pub(super) list: Box<[RecvWr<'static>]>,
}

/// The sender's memory for credits.
pub(super) enum Target {
    Requests(RemoteMemory),
    InPlace(RemoteWindow),
}

impl Returns {
    pub(super) fn new(geometry: Geometry, selective: bool, every: u32, link: Link) -> Self {
        let words = link.told_bits.len();
        debug_assert_eq!(words > 0, selective);
        Self {
            geometry,
            state: (0..geometry.places()).map(|_| AtomicU8::new(0)).collect(),
            bits: (0..words).map(|_| AtomicU64::new(0)).collect(),
            pending: (0..geometry.windows()).map(|_| CachePadded::new(AtomicU32::new(0))).collect(),
            every,
            consumed: AtomicU64::new(0),
            reposted: AtomicU64::new(0),
            list: link.list.len() as u64,
            idle: AtomicBool::new(false),
            link: InTurn::new(link),
            broken: FirstError::default(),
            credits: AtomicU64::new(0),
        }
    }

    pub(super) fn credits(&self) -> u64 {
        self.credits.load(Ordering::Relaxed)
    }

    /// Returns whether blocks were released but not announced to the sender, and nothing will ring when
    /// that is possible.
    pub(super) fn owes(&self) -> bool {
        let waits = |pending: &CachePadded<AtomicU32>| pending.load(Ordering::Relaxed) > 0;
        self.idle.load(Ordering::Relaxed) && self.pending.iter().any(waits)
    }

    /// The block in this place was taken: the sender may write there only after it was told.
    #[inline]
    pub(super) fn note_taken(&self, place: u32) -> Result<(), PeerFault> {
        let state = &self.state[place as usize];
        if state.load(Ordering::Acquire) != WITH_SENDER {
            return Err(PeerFault::Overwritten(place));
        }
        state.store(TAKEN, Ordering::Relaxed);
        Ok(())
    }

    /// A receive completed. Only the receiver calls this.
    #[inline]
    pub(super) fn note_consumed(&self) {
        let consumed = self.consumed.load(Ordering::Relaxed) + 1;
        self.consumed.store(consumed, Ordering::Relaxed);
        if self.wants_receives() {
            self.tell();
        }
    }

    #[inline]
    fn wants_receives(&self) -> bool {
        let reposted = self.reposted.load(Ordering::Relaxed);
        let consumed = self.consumed.load(Ordering::Relaxed);
        self.list > 0 && consumed - reposted >= self.list
    }

    /// The receiver found something.
    #[inline]
    pub(super) fn note_busy(&self) {
        if self.idle.load(Ordering::Relaxed) {
            self.idle.store(false, Ordering::Relaxed);
        }
    }

    /// The receiver found nothing.
    #[inline]
    pub(super) fn note_idle(&self) {
        if !self.idle.load(Ordering::Relaxed) {
            self.idle.store(true, Ordering::SeqCst);
        }
        if self.any_due() {
            self.tell();
        }
    }

    /// Gives a block back. Any thread may.
    #[inline]
    pub(super) fn give_back(&self, place: u32) {
        let window = place / self.geometry.blocks();
        let slot = place % self.geometry.blocks();
        if self.bits.is_empty() {
            self.state[place as usize].store(GIVEN_BACK, Ordering::Release);
        } else {
            self.state[place as usize].store(WITH_SENDER, Ordering::Release);
            let word = self.first_word(window) + (slot / u64::BITS) as usize;
            self.bits[word].fetch_xor(1 << (slot % u64::BITS), Ordering::AcqRel);
        }
        let pending = self.pending[window as usize].fetch_add(1, Ordering::SeqCst) + 1;
        if pending >= self.every || self.idle.load(Ordering::SeqCst) {
            self.tell();
        }
    }

    #[inline]
    fn words_per_window(&self) -> usize {
        self.bits.len() / self.geometry.windows() as usize
    }

    #[inline]
    fn first_word(&self, window: u32) -> usize {
        window as usize * self.words_per_window()
    }

    #[inline]
    fn threshold(&self) -> u32 {
        if self.idle.load(Ordering::SeqCst) { 1 } else { self.every }
    }

    #[inline]
    fn any_due(&self) -> bool {
        let threshold = self.threshold();
        let is_due = |p: &CachePadded<AtomicU32>| p.load(Ordering::SeqCst) >= threshold;
        self.wants_receives() || self.pending.iter().any(is_due)
    }

    /// Tells the sender what is due.
    fn tell(&self) {
        let told = self.link.work(|link| self.tell_with(link), |all| all && self.any_due());
        if let Err(error) = told {
            self.broken.set(error);
        }
    }

    /// False if the queue is full, so that the rest must wait.
    fn tell_with(&self, link: &mut Link) -> Result<bool, EndError> {
        while self.wants_receives() {
            link.queue.qp.post_recv(&link.list)?;
            self.reposted.fetch_add(self.list, Ordering::Relaxed);
        }
        for window in 0..self.geometry.windows() {
            let pending = &self.pending[window as usize];
            if pending.load(Ordering::SeqCst) < self.threshold() {
                continue;
            }
            if !link.has_room(self.words_per_window())? {
                return Ok(false);
            }
            pending.swap(0, Ordering::SeqCst);
            if self.bits.is_empty() {
                self.tell_count(link, window)?;
            } else {
                self.tell_bits(link, window)?;
            }
        }
        Ok(true)
    }

    /// The blocks that came back in turn.
    fn tell_count(&self, link: &mut Link, window: u32) -> Result<(), EndError> {
        let blocks = u64::from(self.geometry.blocks());
        let before = link.told[window as usize];
        let mut count = before;
        while count - before < blocks {
            let place = self.geometry.place(window, (count % blocks) as u32);
            let state = &self.state[place as usize];
            if state.load(Ordering::Acquire) != GIVEN_BACK {
                break;
            }
            state.store(WITH_SENDER, Ordering::Relaxed);
            count += 1;
        }
        if count == before {
            return Ok(());
        }
        link.told[window as usize] = count;
        self.credits.fetch_add(1, Ordering::Relaxed);
        let bytes = super::credit_bytes(super::Form::WriteImm, 1);
        link.write(window as usize * bytes, &count.to_le_bytes())
    }

    /// The lines of bits that changed.
    fn tell_bits(&self, link: &mut Link, window: u32) -> Result<(), EndError> {
        const LINE_WORDS: usize = 8;
        let all = self.first_word(window)..self.first_word(window + 1);
        let bytes = super::credit_bytes(super::Form::Selective, self.geometry.blocks());
        self.credits.fetch_add(1, Ordering::Relaxed);
        for first in all.clone().step_by(LINE_WORDS) {
            let words = first..all.end.min(first + LINE_WORDS);
            let mut line = [0; 8 * LINE_WORDS];
            let mut changed = false;
            for (word, out) in words.clone().zip(line.chunks_exact_mut(8)) {
                let now = self.bits[word].load(Ordering::Acquire);
                changed |= now != link.told_bits[word];
                link.told_bits[word] = now;
                out.copy_from_slice(&now.to_le_bytes());
            }
            if changed {
                let offset = window as usize * bytes + 8 * (first - all.start);
                link.write(offset, &line[..8 * words.len()])?;
            }
        }
        Ok(())
    }

    /// Notices the end of the session where no request would.
    pub(super) fn check(&self) -> Result<(), EndError> {
        if let Some(gone) = self.link.with(|link| link.is_gone()) {
            if gone {
                self.broken.set(EndError::PeerGone);
            }
            if self.any_due() {
                self.tell();
            }
        }
        self.broken.check()
    }
}

impl Link {
    fn is_gone(&self) -> bool {
        let unreachable = match &self.to {
            Target::Requests(_) => false,
            Target::InPlace(window) => !window.bell.is_valid(),
        };
        unreachable || self.queue.qp.state() == QpState::Err
    }

    /// Returns whether the queue takes a credit of so many words now.
    fn has_room(&mut self, words: usize) -> Result<bool, EndError> {
        if matches!(self.to, Target::InPlace(_)) {
            return Ok(true);
        }
        let requests = words.div_ceil(8).max(1) as u64;
        if !self.queue.fits(requests) || self.queue.awaits_completion() {
            self.queue.take()?;
        }
        Ok(self.queue.has_room(requests))
    }

    /// Writes a piece of the sender's memory for credits.
    fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), EndError> {
        let to = match &self.to {
            Target::InPlace(window) => return store(window, offset, bytes),
            Target::Requests(memory) => {
                RemoteAddr { addr: memory.addr + offset as u64, rkey: memory.rkey }
            }
        };
        let mut request =
            SendWr::new(self.queue.posted + 1, SendOp::Write(to), Payload::Inline(bytes));
        request.signaled = self.queue.is_due(1) && self.queue.can_signal();
        self.queue.post(&[request])
    }
}

/// Stores a count where the sender looks. Bits are written by requests only.
fn store(window: &RemoteWindow, offset: usize, bytes: &[u8]) -> Result<(), EndError> {
    let memory = window.memory.memory();
    for (i, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
        let target = memory.atomic_u64(offset + 8 * i).expect(INSIDE);
        target.store(u64::from_ne_bytes(*word), Ordering::Release);
    }
    window.bell.ring();
    Ok(())
}
