//! Frames of one device that wait in the source's own memory.
//!
//! A frame comes here when it cannot go straight into a free block: because the link is down,
//! because it must be sent again after a reconnect, because the policy keeps frames while no block
//! is free, or because it needs several blocks. The pump thread sends them in order.
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// A frame that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Packet numbers directly before this one that were dropped on purpose.
    pub(super) skipped: u32,
    /// When it was captured, nanoseconds since 1970.
    pub(super) capture_time_ns: u64,
    /// Whether it was counted as sent before.
    pub(super) counted: bool,
    /// Its bytes. Without any it is sent all the same, to say that the frame is lost.
    pub(super) bytes: Arc<[u8]>,
}

impl Waiting {
    /// A frame that was sent and cannot be sent again, because its bytes are damaged.
    pub(super) fn lost() -> Self {
        Self { skipped: 0, capture_time_ns: 0, counted: true, bytes: Arc::default() }
    }
}

/// The waiting frames of a device, by packet number.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    frames: BTreeMap<u64, Waiting>,
    /// The frame that the pump is sending: it cannot be dropped any more.
    in_hand: Option<(u64, Waiting)>,
    /// Frames of several blocks that were sent and may have to be sent again, oldest first: their
    /// blocks come back before the frame is with the sink.
    kept: VecDeque<(u64, Waiting)>,
    /// Frames that were sent before a break and dropped since: lost, unless the collector turns
    /// out to have them. At most as many as the broken link had blocks.
    doubtful: Vec<u64>,
    /// Frames that were sent and cannot be sent again, although the collector lacks them; and those of them
    /// that it may still not know of.
    lost: u64,
    lost_lately: BTreeSet<u64>,
    /// Numbers below are counted where no frame waits before the first.
    lost_before: u64,
    /// Numbers dropped since the newest frame; the next new frame must carry them.
    pub(super) skipped: u32,
}

impl Backlog {
    /// Takes a frame to its place in the order. A frame that is already there stays as it is.
    pub(super) fn insert(&mut self, packet_number: u64, frame: Waiting) {
        self.frames.entry(packet_number).or_insert(frame);
    }

    /// Makes room for one more frame by dropping the oldest while there are `most` or more. Returns how
    /// many of the dropped had never been sent.
    pub(super) fn drop_oldest(&mut self, most: usize) -> u64 {
        let mut dropped = 0;
        while self.frames.len() >= most.max(1) {
            let Some((number, oldest)) = self.frames.pop_first() else { break };
            let skipped = oldest.skipped.saturating_add(1);
            match self.frames.first_entry() {
                Some(mut next) => {
                    let next = next.get_mut();
                    next.skipped = next.skipped.saturating_add(skipped);
                }
                None => self.skipped = self.skipped.saturating_add(skipped),
            }
            if oldest.bytes.is_empty() {
                // It counts as lost already.
            } else if oldest.counted {
                self.doubtful.push(number);
            } else {
                dropped += 1;
            }
        }
        dropped
    }

    /// Notes that frames were dropped after they had their numbers: the first frame that waits behind them says so, or
    /// the next new one, whose number is `next`. What says so already stays as it is.
    pub(super) fn pass_over(&mut self, dropped: &Range<u64>, next: u64) {
        let hand = self.in_hand.iter_mut().map(|(number, frame)| (*number, &mut frame.skipped));
        let kept = self.kept.iter_mut().map(|(number, frame)| (*number, &mut frame.skipped));
        let frames = self.frames.iter_mut().map(|(number, frame)| (*number, &mut frame.skipped));
        let behind = hand.chain(kept).chain(frames).filter(|(number, _)| *number >= dropped.end);
        let first = behind.min_by_key(|(number, _)| *number);
        let (number, skipped) = first.unwrap_or((next, &mut self.skipped));
        let from = number.saturating_sub(u64::from(*skipped));
        if (dropped.start..=dropped.end).contains(&from) {
            *skipped = u32::try_from(number - dropped.start).unwrap_or(u32::MAX);
        }
    }

    /// Forgets frames that the collector has, also as skipped ones. `next` is the number of the
    /// next new frame, not below `packet_number`.
    pub(super) fn forget_before(&mut self, packet_number: u64, next: u64) {
        self.frames = self.frames.split_off(&packet_number);
        let most = |number: u64| u32::try_from(number - packet_number).unwrap_or(u32::MAX);
        self.skipped = self.skipped.min(most(next));
        if let Some(mut first) = self.frames.first_entry() {
            let most = most(*first.key());
            let first = first.get_mut();
            first.skipped = first.skipped.min(most);
        }
    }

    /// Finds the frames that were sent and can neither be had again nor were dropped, and counts them
    /// once. The collector has everything before `collector_next`, as far as it knows; `next` is the number
    /// of the next new frame. A gap behind a frame that waits is filled, since the collector counts only
    /// what is missing before the first. Returns how many frames are lost so far.
    pub(super) fn count_lost(&mut self, collector_next: Option<u64>, next: u64) -> u64 {
        let first = self.first_packet(next);
        if let Some(has) = collector_next {
            self.lost += first.saturating_sub(has.max(self.lost_before));
            self.lost_before = self.lost_before.max(first);
            self.lost_lately = self.lost_lately.split_off(&has);
        }
        for number in self.gaps(first, next) {
            self.insert(number, Waiting::lost());
        }
        for (number, _) in self.frames.iter().filter(|(_, frame)| frame.bytes.is_empty()) {
            self.lost += u64::from(self.lost_lately.insert(*number));
        }
        self.lost
    }

    /// Returns the numbers behind the first waiting frame that neither wait nor were dropped: what was
    /// sent there could not be read back.
    fn gaps(&self, first: u64, next: u64) -> Vec<u64> {
        let mut gaps = Vec::new();
        let mut expected = first;
        let in_hand = self.in_hand.iter().map(|(number, frame)| (number, frame));
        for (number, frame) in in_hand.chain(&self.frames) {
            gaps.extend(expected..number - u64::from(frame.skipped).min(*number));
            expected = number + 1;
        }
        if !self.is_empty() {
            gaps.extend(expected..next - u64::from(self.skipped).min(next));
        }
        gaps
    }

    /// Settles which frames that were sent before a break are lost: the collector has everything before
    /// `packet_number`. Returns how many are.
    pub(super) fn settle(&mut self, packet_number: u64) -> u64 {
        let doubtful = std::mem::take(&mut self.doubtful);
        doubtful.iter().filter(|number| **number >= packet_number).count() as u64
    }

    /// Hands the oldest frame to the pump.
    pub(super) fn take_first(&mut self) -> Option<(u64, Waiting)> {
        self.in_hand = self.frames.pop_first();
        self.in_hand.clone()
    }

    /// Takes the frame back that the pump could not send.
    pub(super) fn put_back(&mut self) {
        if let Some((number, frame)) = self.in_hand.take() {
            self.insert(number, frame);
        }
    }

    /// The pump has sent its frame. If it needs to be kept, at most `most` are.
    pub(super) fn sent(&mut self, keep_most: Option<usize>) {
        let sent = self.in_hand.take();
        if let Some(most) = keep_most {
            let counted = |(number, frame)| (number, Waiting { counted: true, ..frame });
            self.kept.extend(sent.map(counted));
            self.kept.drain(..self.kept.len().saturating_sub(most));
        }
    }

    /// Forgets kept frames before `packet_number`: they are with the sink. `None` for all.
    pub(super) fn forget_kept_before(&mut self, packet_number: Option<u64>) {
        self.kept.retain(|(number, _)| packet_number.is_some_and(|first| *number >= first));
    }

    /// Frames of several blocks that were sent and may have to be sent again.
    pub(super) fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Makes all kept frames wait again from `packet_number` on, and forgets the others.
    pub(super) fn send_kept_again(&mut self, packet_number: u64) {
        for (number, frame) in std::mem::take(&mut self.kept) {
            if number >= packet_number {
                self.insert(number, frame);
            }
        }
    }

    /// First packet number that a new session must expect, if `next` is that of the next new frame.
    pub(super) fn first_packet(&self, next: u64) -> u64 {
        let in_hand = self.in_hand.as_ref().map(|(number, frame)| (number, frame));
        match in_hand.or_else(|| self.frames.first_key_value()) {
            Some((number, frame)) => number - u64::from(frame.skipped).min(*number),
            None => next - u64::from(self.skipped).min(next),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.frames.len() + usize::from(self.in_hand.is_some())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(byte: u8) -> Waiting {
        Waiting { skipped: 0, capture_time_ns: 0, counted: false, bytes: Arc::from([byte]) }
    }

    #[test]
    fn the_next_frame_carries_what_was_dropped_before_it() {
        let mut backlog = Backlog::default();
        (0..4).for_each(|n| backlog.insert(n, frame(n as u8)));
        assert_eq!(backlog.drop_oldest(3), 2);
        assert_eq!(backlog.first_packet(4), 0);
        let (number, first) = backlog.take_first().unwrap();
        assert_eq!((number, first.skipped), (2, 2));
    }

    #[test]
    fn dropping_the_last_one_leaves_the_number_for_the_next_new_frame() {
        let mut backlog = Backlog::default();
        backlog.insert(7, frame(7));
        assert_eq!(backlog.drop_oldest(1), 1);
        assert_eq!((backlog.len(), backlog.skipped), (0, 1));
        assert_eq!(backlog.first_packet(8), 7);
    }

    #[test]
    fn what_was_dropped_late_is_said_by_whatever_waits_behind_it() {
        let mut backlog = Backlog::default();
        backlog.insert(3, Waiting { skipped: 1, ..frame(3) });
        backlog.insert(7, frame(7));
        backlog.take_first();
        for _ in 0..2 {
            // In the pump's hand, in the backlog, nowhere: the next new one. Told twice it is once.
            [0..2, 5..7, 8..10].iter().for_each(|dropped| backlog.pass_over(dropped, 10));
        }
        assert_eq!((backlog.skipped, backlog.first_packet(10)), (2, 0));
        backlog.put_back();
        assert_eq!(backlog.gaps(0, 10), [4], "and nothing else is lost");
        backlog.pass_over(&(0..1), 10);
        backlog.pass_over(&(4..5), 10);
        assert!(backlog.gaps(0, 10).is_empty());
        let next = || {
            let (number, frame) = backlog.take_first()?;
            backlog.sent(Some(9));
            Some((number, frame.skipped))
        };
        let skips: Vec<_> = std::iter::from_fn(next).collect();
        assert_eq!(skips, [(3, 3), (7, 3)]);
        // Those were sent over several blocks and are sent again.
        backlog.pass_over(&(8..11), 11);
        backlog.send_kept_again(0);
        assert_eq!((backlog.first_packet(11), backlog.skipped), (0, 3));
        // The next one is at the collector: so are these.
        let mut backlog = Backlog::default();
        backlog.insert(9, frame(9));
        backlog.pass_over(&(2..4), 10);
        assert_eq!(backlog.first_packet(10), 9);
    }

    #[test]
    fn frames_to_send_again_come_before_new_ones() {
        let mut backlog = Backlog::default();
        backlog.insert(9, frame(9));
        backlog.insert(7, frame(7));
        backlog.insert(8, frame(8));
        backlog.forget_before(8, 10);
        assert_eq!(backlog.take_first().unwrap().1.bytes[0], 8);
        backlog.sent(None);
        assert_eq!(backlog.take_first().unwrap().0, 9);
        assert_eq!((backlog.len(), backlog.first_packet(10)), (1, 9));
    }

    #[test]
    fn the_frame_in_the_pumps_hand_is_not_dropped_and_can_come_back() {
        let mut backlog = Backlog::default();
        backlog.insert(0, frame(0));
        backlog.insert(1, frame(1));
        backlog.take_first();
        assert_eq!(backlog.drop_oldest(1), 1);
        assert_eq!(backlog.first_packet(2), 0);
        backlog.put_back();
        assert_eq!(backlog.take_first().unwrap().0, 0);
    }

    #[test]
    fn kept_frames_are_sent_again_from_where_the_collector_is() {
        let mut backlog = Backlog::default();
        for n in 0..4 {
            backlog.insert(n, frame(n as u8));
            backlog.take_first();
            backlog.sent(Some(3));
        }
        assert!(backlog.is_empty());
        backlog.send_kept_again(2);
        let (number, again) = backlog.take_first().unwrap();
        assert_eq!((number, again.counted), (2, true), "it was counted when it was sent");
        assert_eq!(backlog.len(), 2);
    }

    #[test]
    fn kept_frames_that_arrived_are_forgotten() {
        let mut backlog = Backlog::default();
        for n in 0..4 {
            backlog.insert(n, frame(n as u8));
            backlog.take_first();
            backlog.sent(Some(4));
        }
        backlog.forget_kept_before(Some(3));
        assert_eq!(backlog.kept(), 1);
        backlog.forget_kept_before(None);
        assert_eq!(backlog.kept(), 0);
    }

    #[test]
    fn what_cannot_be_read_back_is_announced_as_lost() {
        let mut backlog = Backlog { skipped: 1, ..Backlog::default() };
        assert_eq!(backlog.count_lost(None, 4), 0, "nobody lacks anything");
        backlog.insert(4, frame(4));
        backlog.insert(7, Waiting { skipped: 1, ..frame(7) });
        backlog.take_first();
        for _ in 0..2 {
            assert_eq!(backlog.count_lost(Some(4), 11), 3);
        }
        backlog.put_back();
        let sent: Vec<_> = std::iter::from_fn(|| backlog.take_first()).collect();
        let lost = sent.iter().filter(|(_, frame)| frame.bytes.is_empty()).map(|(n, _)| *n);
        assert_eq!(lost.collect::<Vec<_>>(), [5, 8, 9]);
        assert_eq!(sent.len(), 5);
    }

    #[test]
    fn numbers_that_are_missing_before_the_first_frame_are_lost_once() {
        let mut backlog = Backlog::default();
        backlog.insert(9, Waiting { skipped: 2, ..frame(9) });
        for _ in 0..2 {
            assert_eq!(backlog.count_lost(Some(4), 10), 3);
        }
        backlog.insert(9, Waiting::lost());
        assert_eq!(backlog.count_lost(Some(7), 10), 3, "it waits, and stays as it is");
        backlog.take_first();
        backlog.sent(None);
        assert_eq!(backlog.count_lost(Some(7), 10), 6);
        assert_eq!(backlog.count_lost(Some(10), 10), 6);
    }

    /// A collector that has more than this process ever sent: another one wrote there.
    #[test]
    fn numbers_that_the_collector_has_are_not_announced_as_skipped() {
        let mut backlog = Backlog { skipped: 5, ..Backlog::default() };
        backlog.forget_before(100, 100);
        assert_eq!(backlog.first_packet(100), 100);
        backlog.insert(103, Waiting { skipped: 10, ..frame(0) });
        backlog.forget_before(100, 104);
        assert_eq!(backlog.first_packet(104), 100);
    }

    #[test]
    fn frames_that_were_sent_before_a_break_are_lost_only_if_the_collector_lacks_them() {
        let mut backlog = Backlog::default();
        for n in 0..3 {
            backlog.insert(n, Waiting { counted: true, ..frame(0) });
        }
        backlog.insert(3, frame(1));
        assert_eq!(backlog.drop_oldest(1), 1);
        assert_eq!((backlog.settle(1), backlog.settle(1)), (2, 0));
    }
}
