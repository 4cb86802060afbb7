//! Packets in the send batch that the kernel has not taken: no peer can have seen them.
use crate::io::SendBatch;
use catchment_roce::Psn;

/// What a queue pair put into the batch at once.
struct Share {
    index: usize,
    /// Its first PSN that was never sent before.
    first: Psn,
    /// Packets of the batch up to the last of these.
    end: usize,
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct Held {
    shares: Vec<Share>,
}

impl Held {
    /// Notes that a queue pair has filled the batch up to here, with packets from PSN `first` on.
    pub(super) fn add(&mut self, index: usize, first: Psn, batch: &SendBatch) {
        self.shares.push(Share { index, first, end: batch.packets() });
    }

    /// Notes that the kernel has all.
    pub(super) fn clear(&mut self) {
        self.shares.clear();
    }

    /// Returns the first PSN of a queue pair that the kernel does not have.
    #[inline]
    pub(super) fn first_psn(&self, index: usize, batch: &SendBatch) -> Option<Psn> {
        if self.shares.is_empty() {
            return None;
        }
        let taken = batch.packets() - batch.waiting_packets();
        let mut waiting = self.shares.iter().filter(|share| share.end > taken);
        waiting.find(|share| share.index == index).map(|share| share.first)
    }
}
