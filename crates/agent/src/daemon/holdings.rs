//! What an application has of memory.
use catchment_verbs::mem::Region;
use catchment_verbs::{Access, Caps, Mr};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Returns the rights that slices may have, if there are slices. Where peers map what they may reach, a descriptor leads to
/// all of a chunk: nobody may reach slices there, nor the agent of a peer that writes messages to them. Without memory windows
/// each region is registered, and there are none.
pub(super) fn rights_of_slices(caps: &Caps, is_hardware: bool, shares: bool) -> Option<Access> {
    if is_hardware {
        return None;
    }
    match (caps.direct, shares) {
        (false, _) => Some(Access::all()),
        (true, false) => Some(Access::LOCAL_WRITE | Access::RELAXED_ORDERING),
        (true, true) => None,
    }
}

/// The memory of an application.
#[derive(Default)]
pub(super) struct Memory {
    /// By local keys.
    pub(super) regions: BTreeMap<u32, Registered>,
    pub(super) chunks: BTreeMap<u32, Chunk>,
    pub(super) numbers: u32,
    /// What counts for the policy.
    pub(super) bytes: u64,
}

/// A region, as its own queue pairs know it, and as shared ones do.
pub(super) struct Registered {
    pub(super) mr: Arc<dyn Mr>,
    /// Until no peer gives anything more to it.
    pub(super) shared: Option<Arc<dyn Mr>>,
    /// The chunk that it is a slice of, and where.
    pub(super) slice: Option<(u32, Range<u64>)>,
}

/// A chunk that the application has.
pub(super) struct Chunk {
    pub(super) mr: Arc<dyn Mr>,
    pub(super) slices: usize,
    /// Slices that requests use which were under way when they ended.
    pub(super) ended: Vec<(Range<u64>, Weak<Region>)>,
}

impl Chunk {
    /// Returns whether requests under way use some of these bytes.
    pub(super) fn is_busy(&mut self, asked: &Range<u64>) -> bool {
        self.ended.retain(|(_, region)| region.strong_count() > 0);
        self.ended.iter().any(|(range, _)| range.start < asked.end && asked.start < range.end)
    }
}
