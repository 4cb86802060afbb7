//! What the device can send and take in, as the rounds have it.
use super::PeerError;
use crate::policy::Between;
use crate::scheduler::LEAST_COST_BYTES;

/// Bytes a second of one Mops: a unit is what the shortest request costs.
pub(crate) const BYTES_PER_MOPS: f64 = 1e6 * LEAST_COST_BYTES as f64;

/// Bytes a second; see the module.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capacity {
    send: u64,
    completion: u64,
    /// What the device turns out to send: no more than `send`.
    working: u64,
}

impl Capacity {
    /// As the policy says. Without rates, what devices can do is not asked for, and of no use.
    pub(super) fn new(between: &Between, has_rates: bool) -> Result<Self, PeerError> {
        let any = (!has_rates).then_some(1 << 40);
        let both = between.send_bytes_per_s.or(any).zip(between.completion_bytes_per_s.or(any));
        let (send, completion) = both.ok_or(PeerError::Capacity)?;
        Ok(Self { send, completion, working: send })
    }

    /// Returns what applications share of what is sent and taken in, in Mops. Of what the device turns out to send it is
    /// all: that is known to be less than it could.
    pub(super) fn shared_mops(&self) -> (f64, f64) {
        let shared = |bytes: u64| Between::SHARED_PART * bytes as f64;
        let send = shared(self.send).min(self.working as f64);
        (send / BYTES_PER_MOPS, shared(self.completion) / BYTES_PER_MOPS)
    }

    /// Returns what the device can send by the policy, and as it turns out, in bytes a second.
    pub(super) const fn sending(&self) -> (u64, u64) {
        (self.send, self.working)
    }

    /// Takes what the device turns out to send. Says so when that is less than the policy says for the first time, and when it
    /// is not any more.
    pub(super) fn work_at(&mut self, bytes_per_s: u64) {
        let before = std::mem::replace(&mut self.working, bytes_per_s.min(self.send));
        let (stated_bytes_per_s, working_bytes_per_s) = self.sending();
        if before == self.send && self.working < self.send {
            tracing::warn!(
                stated_bytes_per_s,
                working_bytes_per_s,
                "applications are not served what was agreed: less is agreed"
            );
        } else if before < self.send && self.working == self.send {
            tracing::info!(
                stated_bytes_per_s,
                "as much is agreed again as the policy says that the device sends"
            );
        }
    }
}
