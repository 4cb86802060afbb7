//! Frames that are not at their turn at the collector: not there, or there and behind an older one of their device that
//! is not, since a collector hands out the frames of a device in order.
//!
//! The controller forecasts when a transfer will have left. What the collector makes of it, it cannot know: an event that
//! passes an older one of its device is in time for the controller, and waits at the collector for the older one. So
//! a frame that is not at its turn there when its deadline is over is late, whatever was forecast.
use catchment_transfer::HeldBlock;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A frame, until it and all older ones of its device have arrived.
#[derive(Debug)]
struct Pending {
    block: HeldBlock,
    /// How old it was when, in nanoseconds of the thread that has it.
    age_ns: u64,
    at_ns: u64,
    /// A part of it was posted.
    has_begun: bool,
    is_there: bool,
}

/// Of all devices.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// By device: how old a frame may be; empty until a controller has told.
    deadlines_ns: Vec<u64>,
    /// By device and packet number.
    frames: BTreeMap<u32, BTreeMap<u64, Pending>>,
    /// When deadlines are over, with device and packet number: of frames that were not found late.
    due: BTreeSet<(u64, u32, u64)>,
    /// Last parts that were posted: the count of requests with which each has arrived, in this order.
    posted: VecDeque<(u64, u32, u64)>,
}

impl Arrivals {
    /// Takes how old frames may be, in microseconds by device.
    pub(super) fn set(&mut self, deadlines_us: &[u64]) {
        let before = std::mem::take(&mut self.deadlines_ns);
        self.deadlines_ns = deadlines_us.iter().map(|us| us.saturating_mul(1000)).collect();
        if before == self.deadlines_ns {
            return;
        }
        let frames = self.frames.iter();
        let all = frames.flat_map(|(device, all)| all.iter().map(move |frame| (*device, frame)));
        let due = |(device, (number, frame)): (u32, (&u64, &Pending))| {
            (self.due_ns(device, frame), device, *number)
        };
        self.due = all.map(due).collect();
    }

    fn due_ns(&self, device: u32, frame: &Pending) -> u64 {
        let deadline_ns = self.deadlines_ns.get(device as usize).copied().unwrap_or(u64::MAX);
        frame.at_ns.saturating_add(deadline_ns.saturating_sub(frame.age_ns))
    }

    /// Expects the frame of a block, which is so old now.
    pub(super) fn expect(&mut self, device: u32, block: HeldBlock, now_ns: u64, age_ns: u64) {
        let number = block.packet_number;
        let frame = Pending { block, age_ns, at_ns: now_ns, has_begun: false, is_there: false };
        let due_ns = self.due_ns(device, &frame);
        if let Entry::Vacant(place) = self.frames.entry(device).or_default().entry(number) {
            place.insert(frame);
            self.due.insert((due_ns, device, number));
        }
    }

    /// Notes that a part of a block was posted.
    pub(super) fn begun(&mut self, device: u32, block: &HeldBlock) {
        let frames = self.frames.get_mut(&device);
        if let Some(frame) = frames.and_then(|frames| frames.get_mut(&block.packet_number)) {
            frame.has_begun = true;
        }
    }

    /// Returns whether the next frame of a device has begun before this one.
    pub(super) fn is_passed(&self, device: u32, number: u64) -> bool {
        let newer = self.frames.get(&device).and_then(|frames| frames.range(number + 1..).next());
        newer.is_some_and(|(_, frame)| frame.has_begun)
    }

    /// Forgets a frame that is not sent: those behind it do not wait for it.
    pub(super) fn dropped(&mut self, device: u32, number: u64) {
        let frame = self.frames.get_mut(&device).and_then(|frames| frames.remove(&number));
        if let Some(frame) = frame {
            self.due.remove(&(self.due_ns(device, &frame), device, number));
        }
        self.hand_out(device);
    }

    /// Notes that the last part of a block was posted, and the count of requests with which it has arrived.
    pub(super) fn posted(&mut self, device: u32, block: &HeldBlock, arrives: u64) {
        if block.is_last {
            self.posted.push_back((arrives, device, block.packet_number));
        }
    }

    /// Notes that so many requests are done: frames that have come to their turn are forgotten.
    pub(super) fn arrived(&mut self, done: u64) {
        while self.posted.front().is_some_and(|(arrives, ..)| *arrives <= done) {
            let Some((_, device, number)) = self.posted.pop_front() else { return };
            if let Some(frame) = self.frames.get_mut(&device).and_then(|all| all.get_mut(&number)) {
                frame.is_there = true;
            }
            self.hand_out(device);
        }
    }

    /// Forgets frames that have come to their turn.
    fn hand_out(&mut self, device: u32) {
        while let Some((number, due_ns)) = self.first_there(device) {
            self.due.remove(&(due_ns, device, number));
            self.frames.get_mut(&device).and_then(|frames| frames.remove(&number));
        }
    }

    fn first_there(&self, device: u32) -> Option<(u64, u64)> {
        let (number, frame) = self.frames.get(&device)?.first_key_value()?;
        frame.is_there.then(|| (*number, self.due_ns(device, frame)))
    }

    /// Returns a frame whose deadline is over, with its device; each once.
    pub(super) fn next_late(&mut self, now_ns: u64) -> Option<(u32, HeldBlock)> {
        let (due_ns, device, number) = *self.due.first()?;
        if due_ns > now_ns {
            return None;
        }
        self.due.pop_first();
        let frame = self.frames.get(&device).and_then(|frames| frames.get(&number));
        frame.map(|frame| (device, frame.block))
    }

    /// Returns when the next deadline is over.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.due.first().map(|(due_ns, ..)| *due_ns)
    }

    /// Forgets what a link held that ended: it comes again.
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.due.clear();
        self.posted.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn frame(packet_number: u64) -> HeldBlock {
        HeldBlock {
            slot: 0,
            stream: 0,
            packet_number,
            bytes: 4096,
            frame_bytes: 4000,
            is_last: true,
            capture_time_ns: 0,
        }
    }

    fn late(arrivals: &mut Arrivals, now_ns: u64) -> Vec<(u32, u64)> {
        let next =
            || arrivals.next_late(now_ns).map(|(device, block)| (device, block.packet_number));
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn what_waits_for_an_older_one_of_its_device_is_late_with_it() {
        let mut arrivals = Arrivals::default();
        arrivals.set(&[100_000, 50_000]);
        (0..3).for_each(|number| arrivals.expect(0, frame(number), number * MS, 0));
        arrivals.expect(1, frame(0), 0, 10 * MS);
        // The second overtakes the first; the other device has nothing to do with that.
        arrivals.posted(0, &frame(1), 1);
        arrivals.posted(1, &frame(0), 2);
        arrivals.arrived(2);
        assert_eq!(arrivals.next_ns(), Some(100 * MS));
        assert_eq!(late(&mut arrivals, 100 * MS - 1), []);
        assert_eq!(late(&mut arrivals, 101 * MS), [(0, 0), (0, 1)], "each once");
        assert_eq!(late(&mut arrivals, 101 * MS), []);
        arrivals.posted(0, &frame(0), 3);
        arrivals.posted(0, &frame(2), 4);
        arrivals.arrived(3);
        assert_eq!(arrivals.next_ns(), Some(102 * MS), "the third has not arrived");
        arrivals.arrived(4);
        assert_eq!((arrivals.next_ns(), late(&mut arrivals, u64::MAX)), (None, vec![]));
        assert!(arrivals.frames.values().all(BTreeMap::is_empty) && arrivals.posted.is_empty());
    }

    #[test]
    fn the_deadline_counts_from_when_a_frame_was_captured_and_may_be_told_later() {
        let mut arrivals = Arrivals::default();
        arrivals.expect(0, frame(0), 500 * MS, 30 * MS);
        assert_eq!(late(&mut arrivals, 9_000 * MS), [], "no deadline is known");
        arrivals.set(&[100_000]);
        assert_eq!(arrivals.next_ns(), Some(570 * MS));
        arrivals.expect(0, frame(1), 600 * MS, 200 * MS);
        assert_eq!(late(&mut arrivals, 600 * MS), [(0, 0), (0, 1)]);
        arrivals.clear();
        arrivals.expect(0, frame(1), 700 * MS, 0);
        assert_eq!(arrivals.next_ns(), Some(800 * MS));
    }

    #[test]
    fn a_frame_that_is_dropped_holds_up_nobody_and_one_that_was_passed_is_known() {
        let mut arrivals = Arrivals::default();
        arrivals.set(&[100_000]);
        (0..4).for_each(|number| arrivals.expect(0, frame(number), number * MS, 0));
        arrivals.begun(0, &frame(2));
        let passed = [0, 1, 2, 3].map(|number| arrivals.is_passed(0, number));
        assert_eq!(passed, [false, true, false, false]);
        arrivals.posted(0, &frame(2), 1);
        arrivals.arrived(1);
        arrivals.dropped(0, 0);
        assert_eq!(arrivals.next_ns(), Some(101 * MS));
        arrivals.dropped(0, 1);
        assert_eq!(arrivals.next_ns(), Some(103 * MS), "the third has come to its turn");
        arrivals.dropped(0, 1);
        arrivals.dropped(5, 0);
        assert_eq!(late(&mut arrivals, u64::MAX), [(0, 3)]);
    }

    #[test]
    fn a_frame_of_several_blocks_is_there_with_its_last_one() {
        let mut arrivals = Arrivals::default();
        arrivals.set(&[100_000]);
        let first = HeldBlock { is_last: false, ..frame(0) };
        arrivals.expect(0, first, 0, 0);
        arrivals.expect(0, frame(0), 5 * MS, 5 * MS);
        arrivals.posted(0, &first, 1);
        arrivals.arrived(1);
        assert_eq!(arrivals.next_ns(), Some(100 * MS));
        arrivals.posted(0, &frame(0), 2);
        arrivals.arrived(2);
        assert_eq!(arrivals.next_ns(), None);
    }
}
