//! Why a source does not use what it was granted.
use super::SourceSide;

/// Why a transfer begins nothing although its window is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// As much as may be on its way is not acknowledged yet.
    Full,
    /// All that is there has begun; of a transfer that ends the last acknowledgement is awaited.
    Begun,
    /// Nothing more fits before the window ends, or it was told to pause.
    Stopping,
    /// It begins with the next step.
    Due,
}

impl SourceSide {
    /// Returns the transfers that have a window in force at this time and send nothing: the rate that goes unused, and
    /// why.
    pub fn idle(&self, now_ns: u64) -> impl Iterator<Item = (u64, Idle)> + '_ {
        self.transfers.values().filter_map(move |transfer| transfer.idle(now_ns))
    }
}
