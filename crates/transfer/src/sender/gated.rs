//! What the owner of a posting gate does with the queue pair.
use super::data::Data;
use super::driver::Driver;
use super::error::Broken;
use super::{Sender, Shared};
use crate::commit::{HEADER_WORDS, commit_word};
use crate::gate::{HeldBlock, PostingGate};
use crate::header;
use catchment_verbs::bias::BiasedArc;
use catchment_verbs::{Delivery, RateError, RateLimit};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Sender {
    /// Returns the same sender, which gives sealed blocks to `gate` in place of posting them. They get a
    /// checksum in any case, since their parts are WRITEs whose order verbs do not promise.
    ///
    /// # Panics
    /// When the sender was cloned before, a block of it was claimed, or it fills blocks in place.
    #[must_use]
    pub fn with_gate(mut self, gate: Arc<dyn PostingGate>) -> Self {
        assert!(!self.is_in_place(), "what is filled in place is not posted");
        let shared = Arc::get_mut(&mut self.shared).and_then(BiasedArc::get_mut);
        shared.expect("a sender that nothing shares yet").gate = Some(gate);
        self
    }

    /// Posts the WRITEs of a part of a block that the gate holds: from `at` on, so many bytes, both
    /// multiples of 64, so that the last one has the whole trailer. The parts of a block are posted in
    /// order, each byte once. Returns which count of [`Sender::requests_done`] means that the part has
    /// arrived; `None` when the queue has no room for it now: try again when requests have completed.
    ///
    /// # Errors
    /// [`Broken`] once the session is over.
    pub fn post_part(&self, slot: u32, at: u32, bytes: u32) -> Result<Option<u64>, Broken> {
        self.with_link(|mut driver| driver.post_part(slot, at, bytes)).unwrap_or(Ok(None))
    }

    /// Frees the slot of a block that the gate holds and of which nothing was posted: it is never sent. Threads that
    /// wait for a block are woken. Returns the packet numbers that the collector does not get with it: its own, and
    /// those before it that it says were dropped. `None`, and nothing is done, if that is not the block of the
    /// slot: it was taken back before, or the collector claims to have released it.
    pub fn take_back(&self, block: &HeldBlock) -> Option<Range<u64>> {
        let (_, words) = self.shared.held(block)?;
        let first = first_number(&words);
        self.shared.take_back(block).then_some(first..block.packet_number.saturating_add(1))
    }

    /// Lets a block that the gate holds and of which nothing was posted say that these packet numbers were dropped
    /// on purpose, if they are directly before what it stands for. Returns whether it says so now.
    pub fn pass_over(&self, block: &HeldBlock, dropped: &Range<u64>) -> bool {
        let Data::Copy(copying) = &self.shared.data else { return false };
        let Some((generation, mut words)) = self.shared.held(block) else { return false };
        let (first, number) = (first_number(&words), block.packet_number);
        if dropped.is_empty()
            || dropped.end > number
            || !(dropped.start..=dropped.end).contains(&first)
        {
            return false;
        }
        let Ok(skipped) = u32::try_from(number - dropped.start) else { return false };
        words[5] = words[5] & u64::from(u32::MAX) | u64::from(skipped) << 32;
        copying.seal(self.shared.epoch, block.slot, generation, &words);
        true
    }

    /// Returns how many blocks are committed and not posted whole.
    pub fn unposted(&self) -> u64 {
        match &self.shared.data {
            Data::Copy(copying) => {
                let posted = copying.posted.load(Ordering::Acquire);
                self.shared.slots.generations.total().saturating_sub(posted)
            }
            Data::InPlace(_) => 0,
        }
    }

    /// Returns how many requests are known to be done.
    pub fn requests_done(&self) -> u64 {
        match &self.shared.data {
            Data::Copy(copying) => copying.done.load(Ordering::Acquire),
            Data::InPlace(_) => 0,
        }
    }

    /// Limits the rate of the queue pair.
    ///
    /// # Errors
    /// The provider cannot; the limit is as before.
    pub fn set_rate(&self, limit: Option<RateLimit>) -> Result<(), RateError> {
        let set = self.with_link(|driver| driver.link.qp.set_rate(limit));
        set.unwrap_or_else(|| Err(RateError::Unsupported("a mapped ring".to_owned())))
    }

    /// Returns what became of the packets of the queue pair, where its provider sees that.
    pub fn delivery(&self) -> Option<Delivery> {
        self.with_link(|driver| driver.link.qp.delivery()).flatten()
    }

    /// Does something with the queue pair, as soon as no other thread drives it; does nothing in place.
    fn with_link<T>(&self, work: impl FnOnce(Driver<'_>) -> T) -> Option<T> {
        let shared: &Shared = &self.shared;
        let Data::Copy(copying) = &shared.data else { return None };
        let mut link = loop {
            // Whoever drives it does not wait for anything.
            match shared.link.try_lock() {
                Some(link) => break link,
                None => std::thread::yield_now(),
            }
        };
        let result = work(Driver { link: &mut link, shared, data: copying });
        drop(link);
        // What others have left meanwhile.
        if copying.has_work() {
            shared.combine();
        }
        Some(result)
    }
}

/// Returns the first packet number that a header stands for: its own, or one before it that was dropped.
fn first_number(words: &[u64; HEADER_WORDS]) -> u64 {
    words[1].saturating_sub(words[5] >> 32)
}

impl Shared {
    /// Returns generation and header of a block that a gate holds, if it is still the one of its slot.
    fn held(&self, block: &HeldBlock) -> Option<(u64, [u64; HEADER_WORDS])> {
        let generation = self.slots.generations.outstanding(block.slot)?;
        let (words, commit) = self.data.trailer(block.slot);
        let is_sealed = commit == commit_word(self.epoch, block.slot, generation, &words);
        let is_it = is_sealed && words[0] as u32 == block.stream && words[1] == block.packet_number;
        is_it.then_some((generation, words))
    }

    fn take_back(&self, block: &HeldBlock) -> bool {
        let Some((generation, words)) = self.held(block) else { return false };
        let section = self.bias.enter();
        let threads = section.threads();
        if !self.slots.generations.recall(threads, block.slot, generation) {
            return false;
        }
        // The slot is this thread's until it is put back.
        let info = &self.slots.info[block.slot as usize];
        let (_, payload) = header::extent(words[0], words[6]);
        let bytes = info.payload_bytes.load(Ordering::Relaxed).saturating_sub(u64::from(payload));
        info.payload_bytes.store(bytes, Ordering::Relaxed);
        self.streams.leave(threads, block.stream, 1);
        self.slots.put_back(threads, block.slot);
        drop(section);
        if let Some(watch) = &self.free_watch {
            watch.wake();
        }
        true
    }
}
