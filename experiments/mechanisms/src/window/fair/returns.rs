//! How slots go back: any thread releases blocks, and whichever has the queue pair then sends credit.
//!
//! Credit is sent when N/4 blocks of a window were released, or at once while the receiver is idle.
//! A thread that releases a block adds to the window's count first and then checks whether the
//! receiver is idle; the receiver first notes that it is idle and then checks the counts. So one of
//! the two sees the other.
//!
//! Receives are reposted before the blocks that used them count as released, so that the sender never
//! has more credit than there are receives.
use crate::{EndError, FirstError, InTurn, PeerFault, RemoteMemory, SendQueue};
use catchment_channel::geometry::{Geometry, INSIDE};
use catchment_verbs::{Payload, RecvWr, RemoteWindow, SendOp, SendWr};
use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// The slot may be written by the sender.
const WITH_SENDER: u8 = 0;
/// Its block was taken.
const TAKEN: u8 = 1;
/// Its block was released, which was not announced to the sender yet.
const GIVEN_BACK: u8 = 2;

/// The slots, as all threads share them.
pub(super) struct Returns {
    geometry: Geometry,
    /// For each place one of the three states.
    state: Box<[AtomicU8]>,
    /// For each place a bit that flips each time it is released; empty if slots go back in turn. Every
    /// window begins with a word of its own.
    bits: Box<[AtomicU64]>,
    /// Blocks of each window released since the last credit.
    pending: Box<[CachePadded<AtomicU32>]>,
    /// How many of them make a credit.
    every: u32,
    /// Receives that completed, and those posted for them.
    consumed: AtomicU64,
    reposted: AtomicU64,
    /// Receives posted with one call; 0 if there are none.
    list: u64,
    /// The receiver's last poll found nothing.
    idle: AtomicBool,
    link: InTurn<Link>,
    pub(super) broken: FirstError,
    credits: AtomicU64,
}

/// The queue pair of the receiver, owned by the thread that sends credit.
pub(super) struct Link {
    pub(super) queue: SendQueue,
    pub(super) to: Target,
    /// For each window the announced count of blocks released in turn.
    pub(super) announced: Box<[u64]>,
    /// For each word of [`Returns::bits`] its announced value.
    pub(super) announced_bits: Box<[u64]>,
    /// Receives posted with one call; empty if there are none.
    pub(super) list: Box<[RecvWr<'static>]>,
}

/// The sender's memory for credits.
pub(super) enum Target {
    Requests(RemoteMemory),
    InPlace(RemoteWindow),
}

impl Returns {
    pub(super) fn new(geometry: Geometry, every: u32, link: Link) -> Self {
        Self {
            geometry,
            state: (0..geometry.places()).map(|_| AtomicU8::new(WITH_SENDER)).collect(),
            bits: link.announced_bits.iter().map(|_| AtomicU64::new(0)).collect(),
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

    /// Returns whether a credit is owed that nothing will ring for once it can be sent.
    pub(super) fn owes(&self) -> bool {
        let waits = |pending: &CachePadded<AtomicU32>| pending.load(Ordering::Relaxed) > 0;
        self.idle.load(Ordering::Relaxed) && self.pending.iter().any(waits)
    }

    /// Notes that the block in this place was taken: the sender may write there only after its release
    /// was announced.
    #[inline]
    pub(super) fn note_taken(&self, place: u32) -> Result<(), PeerFault> {
        let state = &self.state[place as usize];
        if state.load(Ordering::Acquire) != WITH_SENDER {
            return Err(PeerFault::Overwritten(place));
        }
        state.store(TAKEN, Ordering::Relaxed);
        Ok(())
    }

    /// Notes that a receive completed. Only the receiver calls this.
    #[inline]
    pub(super) fn note_consumed(&self) {
        let consumed = self.consumed.load(Ordering::Relaxed) + 1;
        self.consumed.store(consumed, Ordering::Relaxed);
        if self.wants_receives() {
            self.send_credit();
        }
    }

    #[inline]
    fn wants_receives(&self) -> bool {
        let reposted = self.reposted.load(Ordering::Relaxed);
        let consumed = self.consumed.load(Ordering::Relaxed);
        self.list > 0 && consumed - reposted >= self.list
    }

    /// Notes that the receiver found something.
    #[inline]
    pub(super) fn note_busy(&self) {
        if self.idle.load(Ordering::Relaxed) {
            self.idle.store(false, Ordering::Relaxed);
        }
    }

    /// Notes that the receiver found nothing.
    #[inline]
    pub(super) fn note_idle(&self) {
        if !self.idle.load(Ordering::Relaxed) {
            self.idle.store(true, Ordering::SeqCst);
        }
        if self.any_due() {
            self.send_credit();
        }
    }

    /// Releases a block, from any thread.
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
            self.send_credit();
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

    /// Sends the credit that is due.
    fn send_credit(&self) {
        let sent = self.link.work(|link| self.send_credit_with(link), |all| all && self.any_due());
        if let Err(error) = sent {
            self.broken.set(error);
        }
    }

    /// False if the queue is full, so that the rest must wait.
    fn send_credit_with(&self, link: &mut Link) -> Result<bool, EndError> {
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
                self.send_count(link, window)?;
            } else {
                self.send_bits(link, window)?;
            }
        }
        Ok(true)
    }

    /// Sends the count of blocks released in turn.
    fn send_count(&self, link: &mut Link, window: u32) -> Result<(), EndError> {
        let blocks = u64::from(self.geometry.blocks());
        let before = link.announced[window as usize];
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
        link.announced[window as usize] = count;
        self.credits.fetch_add(1, Ordering::Relaxed);
        let bytes = super::credit_bytes(super::Form::WriteImm, 1);
        link.write(window as usize * bytes, &count.to_le_bytes())
    }

    /// Sends the lines of bits that changed.
    fn send_bits(&self, link: &mut Link, window: u32) -> Result<(), EndError> {
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
                changed |= now != link.announced_bits[word];
                link.announced_bits[word] = now;
                out.copy_from_slice(&now.to_le_bytes());
            }
            if changed {
                let offset = window as usize * bytes + 8 * (first - all.start);
                link.write(offset, &line[..8 * words.len()])?;
            }
        }
        Ok(())
    }

    /// Detects the end of the session where no request would.
    pub(super) fn check(&self) -> Result<(), EndError> {
        if let Some(checked) = self.link.with(|link| link.check()) {
            if let Err(error) = checked {
                self.broken.set(error);
            }
            if self.any_due() {
                self.send_credit();
            }
        }
        self.broken.check()
    }
}

impl Link {
    fn check(&self) -> Result<(), EndError> {
        match &self.to {
            Target::InPlace(window) if !window.bell.is_valid() => Err(EndError::PeerGone),
            Target::InPlace(_) | Target::Requests(_) => self.queue.check(),
        }
    }

    /// Returns whether the queue has room for a credit of so many words now.
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
            Target::Requests(memory) => memory.at(offset),
        };
        let mut request =
            SendWr::new(self.queue.posted + 1, SendOp::Write(to), Payload::Inline(bytes));
        request.signaled = self.queue.is_due(1) && self.queue.can_signal();
        self.queue.post(&[request])
    }
}

/// Stores a count in the sender's memory. Bits are written by requests only.
fn store(window: &RemoteWindow, offset: usize, bytes: &[u8]) -> Result<(), EndError> {
    let memory = window.memory.memory();
    for (i, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
        let target = memory.atomic_u64(offset + 8 * i).expect(INSIDE);
        target.store(u64::from_ne_bytes(*word), Ordering::Release);
    }
    window.bell.ring();
    Ok(())
}
