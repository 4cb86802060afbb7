//! Counters of runs.
use std::fmt;

#[derive(Debug, Clone, Copy, Default, derive_more::AddAssign)]
pub(crate) struct Summary {
    pub(crate) runs: u64,
    pub(crate) requests: u64,
    pub(crate) succeeded: u64,
    /// Queue pairs that ended in the error state.
    pub(crate) broken: u64,
    pub(crate) frames: u64,
    pub(crate) lost: u64,
    pub(crate) corrupted: u64,
    /// Frames dropped before any queue pair: damaged, or not for the host.
    pub(crate) dropped: u64,
    pub(crate) retransmitted: u64,
    pub(crate) rnr_naks: u64,
    /// Congestion notifications that arrived.
    pub(crate) cnps: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} runs, {} requests", self.runs, self.requests)?;
        write!(f, ", {} succeeded", self.succeeded)?;
        write!(f, ", {} queue pairs in error", self.broken)?;
        write!(f, "; {} frames, {} lost", self.frames, self.lost)?;
        write!(f, ", {} corrupted", self.corrupted)?;
        write!(f, " ({} dropped before any queue pair)", self.dropped)?;
        write!(f, ", {} retransmitted", self.retransmitted)?;
        write!(f, ", {} RNR NAKs, {} CNPs", self.rnr_naks, self.cnps)
    }
}
