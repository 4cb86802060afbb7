//! Numbers of rounds in headers of data (S5.27), as they come in.
use crate::inband::Numbers;
use catchment_verbs::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The numbers that came last for each queue pair here, with the host they are of, until the hub takes them: it acts when
/// its host has something to do, and is woken by none of these. So a peer that sends many has no more of them kept.
#[derive(Debug, Clone, Default)]
pub(crate) struct Brought(Arc<Mutex<BTreeMap<u32, (u32, Numbers)>>>);

impl Brought {
    /// Notes what came for a queue pair from a host.
    pub(crate) fn put(&self, qpn: u32, host: u32, numbers: Numbers) {
        self.0.lock().insert(qpn, (host, numbers));
    }

    pub(super) fn take(&self) -> BTreeMap<u32, (u32, Numbers)> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// What the hub has to do with them.
pub(super) struct Carrying {
    /// Whether data that go out carry any.
    pub(super) carries: bool,
    pub(super) brought: Brought,
    /// How many came.
    pub(super) count: u64,
}
