//! What the owner of a posting gate does with the queue pair.
use super::data::Data;
use super::driver::Driver;
use super::error::Broken;
use super::{Sender, Shared};
use crate::gate::PostingGate;
use catchment_verbs::bias::BiasedArc;
use catchment_verbs::{Delivery, RateError};
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
    pub fn set_rate(&self, rate_bps: Option<u64>) -> Result<(), RateError> {
        let set = self.with_link(|driver| driver.link.qp.set_rate(rate_bps));
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
