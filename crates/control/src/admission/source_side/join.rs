//! Frames that go together: small ones of a device that wait are one transfer, with one request and one window.
//!
//! Between the windows of two sources a link is idle for guards and for how late a source may begin. Where frames take
//! little more than that at the rate of the link, much of it would be lost. What goes together takes a part of a lease at
//! most, so that others hardly wait longer and deadlines hardly differ.
use super::{LocalId, SourceSide};
use crate::admission::transfer::sent_bytes;

/// What goes together takes such a part of a lease at most, and was generated within such a part.
const LEASE_PARTS: u64 = 16;

impl SourceSide {
    /// Returns whether so much more, which was generated so long ago, can go with a transfer of the same device
    /// ([`Input::Join`](super::Input::Join)): nothing was granted to that yet, and both are small beside the rate of the
    /// device's last window.
    #[must_use]
    pub fn may_join(&self, id: LocalId, bytes: u64, age_ns: u64) -> bool {
        let most_ns = self.config.lease_ns / LEASE_PARTS;
        let rate_bps = self.granted_bps.get(&id.device).copied().unwrap_or(0);
        let fits = |left_bytes: u64| {
            left_bytes.saturating_add(bytes) <= sent_bytes(most_ns, rate_bps)
                && !self.rates.is_periodic(id.device)
        };
        let near = |born_ns: u64| born_ns.abs_diff(self.born_ns(age_ns)) <= most_ns;
        self.transfers.get(&id).is_some_and(|transfer| {
            transfer.can_grow() && fits(transfer.left_to_begin()) && near(transfer.born_ns)
        })
    }
}
