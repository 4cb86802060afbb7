//! Frames that are dropped because they come too late.
use super::{Input, LocalId, Machine, Moving};
use catchment_transfer::HeldBlock;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

impl Machine {
    /// The controller does not grant a transfer any more. What has begun of it goes on, and is finished.
    pub(super) fn take_drop(&mut self, id: LocalId, left: Duration) {
        let Some(moving) = self.moving.get_mut(&id) else { return };
        let (was_open, rest) = (moving.is_open, moving.split());
        if moving.is_over() {
            self.moving.remove(&id);
        }
        if was_open {
            self.dropped.insert(id);
        }
        // Chunks that may go and are not posted yet do not go.
        let before = self.parts.len();
        self.parts.retain(|(of, _)| *of != id);
        (self.parts.len()..before).for_each(|_| self.tell(Input::Sent { id }));
        self.drop_late(id.device, rest, left);
    }

    /// Drops frames that come too late; the rest of one that has begun, and what cannot be dropped, is asked for once
    /// more, to be sent however late.
    pub(super) fn drop_late(&mut self, device: u32, mut late: Moving, left: Duration) {
        let (mut has_begun, mut kept) = (late.has_begun(), VecDeque::new());
        for block in std::mem::take(&mut late.blocks) {
            if !std::mem::take(&mut has_begun) && self.drop_frame(device, &block) {
                self.told.dropped(device, &block);
            } else {
                self.told.missed(device, &block, left);
                kept.push_back(block);
            }
        }
        if kept.is_empty() {
            return;
        }
        (late.blocks, late.missed) = (kept, Some(Instant::now() + left));
        let bytes = late.left_bytes();
        let (id, age_ns, class) = self.begin(device, late);
        self.tell(Input::Finish { id, bytes, age_ns, class });
    }

    /// Drops a frame that is one block, of which nothing was posted, nor of the next one of its device: that one says
    /// that the number is passed over. Returns whether it is gone.
    fn drop_frame(&mut self, device: u32, block: &HeldBlock) -> bool {
        let is_whole = block.is_last && u64::from(block.bytes) >= block.frame_bytes;
        let number = block.packet_number;
        let Some(link) = &self.link else { return false };
        let is_gone = is_whole
            && !self.arrivals.is_passed(device, number)
            && link.gate.drop_block(&link.sender, block);
        if is_gone {
            self.arrivals.dropped(device, number);
        }
        is_gone
    }
}
