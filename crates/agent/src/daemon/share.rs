//! What a connection has to know while it shares queue pairs, and regions as these know them.
use crate::entry::MAX_INLINE_BYTES;
use crate::peer::message::RemoteRegion;
use catchment_verbs::Mr;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Inline data. Moved, not copied, as requests move in their queue.
pub(super) type Buffer = Box<[u8; MAX_INLINE_BYTES]>;

/// How a connection stops sharing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It does not.
    Open,
    /// On its own from then on, when what it has on shared queue pairs is done.
    Parting,
    /// It was told of that.
    Parted,
    /// It failed: what waits is flushed then.
    Ending,
}

/// What a connection has to know while it shares queue pairs.
pub(super) struct Shared {
    pub(super) host: u32,
    pub(super) stage: Stage,
    /// Of the peer, by the key that applications know; none where it gives nothing.
    pub(super) keys: BTreeMap<u32, Option<RemoteRegion>>,
    /// What it waits for.
    pub(super) asked: Option<u32>,
    /// The peer's host is gone, while its queue pair is being changed.
    pub(super) is_doomed: bool,
    /// Times that no queue pair could be made for what it has.
    pub(super) tries: u32,
    pub(super) place: usize,
    /// The place that it always has, where there are groups.
    pub(super) group: Option<usize>,
}

impl Shared {
    pub(super) fn new(host: u32) -> Self {
        Self {
            host,
            stage: Stage::Open,
            keys: BTreeMap::new(),
            asked: None,
            is_doomed: false,
            tries: 0,
            place: 0,
            group: None,
        }
    }
}

/// A region of an application, as shared queue pairs know it.
pub(super) struct Region {
    /// The protection domain, by the application's number.
    pub(super) pd: u32,
    pub(super) rkey: u32,
    pub(super) mr: Arc<dyn Mr>,
    /// Hosts that know its key.
    pub(super) told: BTreeSet<u32>,
}

/// The regions of an application, by the local keys that it knows.
pub(super) type Regions = BTreeMap<u32, Region>;
