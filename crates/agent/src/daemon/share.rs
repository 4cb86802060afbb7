//! What a connection has to know while it shares queue pairs, and regions as these know them.
use crate::entry::MAX_INLINE_BYTES;
use crate::inband::Numbers;
use crate::matching::PeerReceives;
use crate::peer::message::RemoteRegion;
use catchment_verbs::{Access, Mr};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::Sender;

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
    /// So was its peer: its receives are on its own.
    Alone,
    /// It is about to end, or to fail, and gives nothing more to shared queue pairs.
    Leaving,
    /// It failed: what waits is flushed then.
    Ending,
}

/// What a connection has to know while it shares queue pairs.
pub(super) struct Shared {
    pub(super) host: u32,
    pub(super) life: u64,
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
    /// The place that it always has, where there are groups, and from the first message on: those of two queue pairs
    /// have no order.
    pub(super) group: Option<usize>,
    pub(super) has_sent: bool,
    pub(super) receives: PeerReceives,
    /// The peer said which receives it had when it heard of this end.
    pub(super) is_told: bool,
    /// It waits for receives of its peer as long as it takes (`rnr_retry` 7).
    pub(super) is_patient: bool,
    /// This end was said to be open, and so did the peer.
    pub(super) has_opened: bool,
    pub(super) is_open: bool,
    /// The peer was told that it knows all receives that there were.
    pub(super) has_answered: bool,
    /// Of its own receives, the first ones: the peer knows them.
    pub(super) announced: usize,
    /// Messages of the peer so far.
    pub(super) taken: u32,
    /// Who ends the connection waits until it has nothing on shared queue pairs: then this is dropped.
    pub(super) leaves: Option<Sender<()>>,
    /// It gives nothing more to shared queue pairs, and waits to hear that the peer has taken all messages.
    pub(super) is_unsure: bool,
    /// What its next message carries of rounds.
    pub(super) carries: Option<Numbers>,
}

impl Shared {
    pub(super) fn new((host, life): (u32, u64)) -> Self {
        Self {
            host,
            life,
            stage: Stage::Open,
            keys: BTreeMap::new(),
            asked: None,
            is_doomed: false,
            tries: 0,
            place: 0,
            group: None,
            has_sent: false,
            receives: PeerReceives::default(),
            is_told: false,
            is_patient: true,
            has_opened: false,
            is_open: false,
            has_answered: false,
            announced: 0,
            taken: 0,
            leaves: None,
            is_unsure: false,
            carries: None,
        }
    }
}

/// A region of an application, as shared queue pairs know it.
pub(super) struct Region {
    /// The protection domain, by the application's number.
    pub(super) pd: u32,
    pub(super) rkey: u32,
    /// Registered with more rights than the application gave, so that messages can be written to it.
    pub(super) mr: Arc<dyn Mr>,
    /// What the application gave.
    pub(super) access: Access,
    /// Hosts that know its key.
    pub(super) told: BTreeSet<u32>,
}

/// The regions of an application, by the local keys that it knows.
pub(super) type Regions = BTreeMap<u32, Region>;
