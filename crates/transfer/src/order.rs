//! Puts the blocks of a stream together to frames, in packet order.
//!
//! Pure: the caller says what came, and takes what is ready. A frame is deliverable when all its
//! bytes are there and no frame before it is missing, other than those that the source says it
//! dropped on purpose.
use crate::header::BlockHeader;
use std::collections::BTreeMap;

/// A block that contradicts others of its stream: its source misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OrderError {
    /// Two blocks of a frame have bytes in common, but are not the same part.
    #[error("packet {packet_number}: bytes {offset}..+{bytes} overlap another block's")]
    Overlap {
        /// Number of the frame.
        packet_number: u64,
        /// Where in the frame the block begins.
        offset: u64,
        /// Bytes of the block.
        bytes: u32,
    },
    /// Two blocks of a frame say different things about it.
    #[error("packet {packet_number}: its blocks disagree about the frame")]
    Disagree {
        /// Number of the frame.
        packet_number: u64,
    },
    /// More blocks wait for a missing one than may.
    #[error("packet {expected} is missing and {limit} blocks wait for it, as many as may")]
    TooManyHeld {
        /// The packet number that all wait for.
        expected: u64,
        /// Blocks that may wait.
        limit: usize,
    },
}

/// What became of a stream's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OrderStats {
    /// Frames delivered.
    pub delivered: u64,
    /// Frames that the source dropped on purpose.
    pub skipped: u64,
    /// Frames that were neither delivered nor skipped: [`Reorder::finish`] gave them up.
    pub lost: u64,
    /// Blocks that had come before, or whose frame was already delivered or given up.
    pub duplicate_blocks: u64,
}

/// The blocks of a frame, in the order of their bytes.
#[derive(Debug)]
pub enum Parts<B> {
    /// The frame is one block.
    One(B),
    /// The frame spans blocks.
    Many(Vec<B>),
}

impl<B> Parts<B> {
    /// The blocks.
    pub fn as_slice(&self) -> &[B] {
        match self {
            Parts::One(block) => std::slice::from_ref(block),
            Parts::Many(blocks) => blocks,
        }
    }
}

/// A frame that is complete and whose turn it is.
#[derive(Debug)]
pub struct Frame<B> {
    /// Number of the frame in its stream.
    pub packet_number: u64,
    /// Bytes of the frame.
    pub frame_bytes: u64,
    /// When it was captured, nanoseconds of CLOCK_REALTIME.
    pub capture_time_ns: u64,
    /// Frames before it that its source dropped on purpose.
    pub skipped: u32,
    /// Its blocks.
    pub parts: Parts<B>,
}

struct Part<B> {
    offset: u64,
    bytes: u32,
    block: B,
}

struct Partial<B> {
    first: BlockHeader,
    received: u64,
    parts: Vec<Part<B>>,
}

/// Puts one stream in order. `B` is whatever holds a block's bytes.
pub struct Reorder<B> {
    expected: u64,
    /// Complete, and its turn: no allocation on the usual way.
    ready: Option<Frame<B>>,
    pending: BTreeMap<u64, Partial<B>>,
    held: usize,
    max_held: usize,
    finished: bool,
    end: Option<u64>,
    stats: OrderStats,
}

impl<B> Reorder<B> {
    /// For a stream whose next frame is `expected`. At most `max_held` blocks may wait for a
    /// missing one; more than the ring has can never be needed.
    pub fn new(expected: u64, max_held: usize) -> Reorder<B> {
        Reorder {
            expected,
            ready: None,
            pending: BTreeMap::new(),
            held: 0,
            max_held,
            finished: false,
            end: None,
            stats: OrderStats::default(),
        }
    }

    /// The packet number that is to be delivered or skipped next.
    pub fn expected(&self) -> u64 {
        self.expected
    }

    /// Blocks that wait.
    pub fn held(&self) -> usize {
        self.held
    }

    /// What became of the frames.
    pub fn stats(&self) -> OrderStats {
        self.stats
    }

    /// Takes a block. Call [`Reorder::pop`] until it has nothing before the next one.
    ///
    /// # Errors
    /// [`OrderError`] when the block contradicts others; it is dropped.
    pub fn push(&mut self, header: &BlockHeader, block: B) -> Result<(), OrderError> {
        if header.packet_number < self.expected {
            self.stats.duplicate_blocks += 1;
            return Ok(());
        }
        let alone = self.ready.is_none() && !self.pending.contains_key(&header.packet_number);
        if alone && header.is_whole_frame() && self.is_next(header) {
            self.advance(header);
            self.ready = Some(frame(header, Parts::One(block)));
            return Ok(());
        }
        self.hold(header, block)
    }

    fn hold(&mut self, header: &BlockHeader, block: B) -> Result<(), OrderError> {
        if self.held == self.max_held {
            return Err(OrderError::TooManyHeld {
                expected: self.expected,
                limit: self.max_held,
            });
        }
        let partial = self
            .pending
            .entry(header.packet_number)
            .or_insert_with(|| Partial {
                first: *header,
                received: 0,
                parts: Vec::new(),
            });
        if partial.insert(header, block)? {
            self.held += 1;
        } else {
            self.stats.duplicate_blocks += 1;
        }
        Ok(())
    }

    /// The next frame whose turn it is.
    pub fn pop(&mut self) -> Option<Frame<B>> {
        if let Some(frame) = self.ready.take() {
            return Some(frame);
        }
        loop {
            let Some((_, first)) = self.pending.first_key_value() else {
                self.close();
                return None;
            };
            let header = first.first;
            let complete = first.is_complete();
            if !self.finished && !(complete && self.is_next(&header)) {
                return None;
            }
            let (_, partial) = self.pending.pop_first()?;
            self.held -= partial.parts.len();
            if complete {
                self.advance(&header);
                return Some(frame(&header, partial.into_parts()));
            }
            self.give_up(&header);
        }
    }

    /// The source will send nothing more for this stream: frames that miss a part, and gaps, are
    /// lost. What is complete can then be popped. `end` is the number that the source would have
    /// sent next, if it said so.
    pub fn finish(&mut self, end: Option<u64>) {
        self.finished = true;
        self.end = end;
    }

    /// Counts what is missing behind the last frame.
    fn close(&mut self) {
        let end = self.end.take().unwrap_or(self.expected);
        let missing = end.saturating_sub(self.expected);
        self.stats.lost += missing;
        self.expected += missing;
    }

    /// Forgets the blocks that wait, and says how many there were: for when the session broke and
    /// the source will send them again.
    pub fn discard_pending(&mut self) -> usize {
        self.pending.clear();
        std::mem::take(&mut self.held)
    }

    /// Whether all before this frame was delivered, or skipped by its source.
    fn is_next(&self, header: &BlockHeader) -> bool {
        header.packet_number - u64::from(header.skipped) <= self.expected
    }

    fn advance(&mut self, header: &BlockHeader) {
        let before = header.packet_number - self.expected;
        let skipped = before.min(u64::from(header.skipped));
        self.stats.skipped += skipped;
        self.stats.lost += before - skipped;
        self.stats.delivered += 1;
        self.expected = header.packet_number + 1;
    }

    fn give_up(&mut self, header: &BlockHeader) {
        self.advance(header);
        self.stats.delivered -= 1;
        self.stats.lost += 1;
    }
}

impl<B> Partial<B> {
    fn is_complete(&self) -> bool {
        self.received == self.first.frame_bytes
    }

    /// False for a part that is there already.
    fn insert(&mut self, header: &BlockHeader, block: B) -> Result<bool, OrderError> {
        let packet_number = header.packet_number;
        let same = |a: &BlockHeader, b: &BlockHeader| {
            (a.frame_bytes, a.capture_time_ns, a.skipped)
                == (b.frame_bytes, b.capture_time_ns, b.skipped)
        };
        if !same(&self.first, header) {
            return Err(OrderError::Disagree { packet_number });
        }
        let (offset, bytes) = (header.frame_offset, header.payload_bytes);
        let at = self.parts.partition_point(|part| part.offset < offset);
        let next = self.parts.get(at);
        if next.is_some_and(|part| (part.offset, part.bytes) == (offset, bytes)) {
            return Ok(false);
        }
        let end = |offset: u64, bytes: u32| offset + u64::from(bytes);
        let before = at.checked_sub(1).map(|i| &self.parts[i]);
        let overlaps = before.is_some_and(|part| end(part.offset, part.bytes) > offset)
            || next.is_some_and(|part| end(offset, bytes) > part.offset);
        if overlaps {
            return Err(OrderError::Overlap {
                packet_number,
                offset,
                bytes,
            });
        }
        let part = Part {
            offset,
            bytes,
            block,
        };
        self.parts.insert(at, part);
        self.received += u64::from(bytes);
        Ok(true)
    }

    fn into_parts(mut self) -> Parts<B> {
        match self.parts.len() {
            1 => match self.parts.pop() {
                Some(part) => Parts::One(part.block),
                None => Parts::Many(Vec::new()),
            },
            _ => Parts::Many(self.parts.into_iter().map(|part| part.block).collect()),
        }
    }
}

fn frame<B>(header: &BlockHeader, parts: Parts<B>) -> Frame<B> {
    Frame {
        packet_number: header.packet_number,
        frame_bytes: header.frame_bytes,
        capture_time_ns: header.capture_time_ns,
        skipped: header.skipped,
        parts,
    }
}

/// Whether serial number `a` comes before `b` (RFC 1982, 16 bits): for the paper's packet numbers,
/// which wrap. Numbers exactly half the range apart have no order; neither comes first.
pub fn serial_less(a: u16, b: u16) -> bool {
    let ahead = b.wrapping_sub(a);
    ahead != 0 && ahead < 1 << 15
}

/// Makes 64-bit numbers of the paper's 16-bit ones.
#[derive(Debug, Clone, Copy, Default)]
pub struct SerialCounter {
    newest: u64,
}

impl SerialCounter {
    /// The full number of a packet that is less than half the range away from the newest one seen.
    pub fn widen(&mut self, number: u16) -> u64 {
        let newest = self.newest as u16;
        let ahead = u64::from(number.wrapping_sub(newest));
        if number == newest || serial_less(newest, number) {
            self.newest += ahead;
            return self.newest;
        }
        let behind = u64::from(newest.wrapping_sub(number));
        self.newest.saturating_sub(behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part(packet_number: u64, offset: u64, bytes: u32, frame_bytes: u64) -> BlockHeader {
        BlockHeader {
            packet_number,
            frame_offset: offset,
            payload_bytes: bytes,
            frame_bytes,
            ..BlockHeader::default()
        }
    }

    fn whole(packet_number: u64) -> BlockHeader {
        part(packet_number, 0, 10, 10)
    }

    fn drain(order: &mut Reorder<u64>) -> Vec<u64> {
        std::iter::from_fn(|| order.pop())
            .map(|frame| frame.packet_number)
            .collect()
    }

    #[test]
    fn a_gap_holds_back_what_comes_after_it() {
        let mut order = Reorder::new(5, 8);
        for number in [6, 7, 9] {
            order.push(&whole(number), number).unwrap();
            assert!(order.pop().is_none());
        }
        order.push(&whole(5), 5).unwrap();
        assert_eq!(drain(&mut order), [5, 6, 7]);
        assert_eq!((order.held(), order.expected()), (1, 8));
    }

    #[test]
    fn what_the_source_skipped_is_not_waited_for() {
        let mut order = Reorder::new(0, 8);
        let skipping = BlockHeader {
            skipped: 3,
            ..whole(4)
        };
        order.push(&skipping, 4).unwrap();
        assert!(order.pop().is_none(), "packet 0 is missing");
        order.push(&whole(0), 0).unwrap();
        assert_eq!(drain(&mut order), [0, 4]);
        assert_eq!(order.stats().skipped, 3);
        assert_eq!(order.stats().lost, 0);
    }

    #[test]
    fn blocks_of_a_frame_come_in_any_order_and_leave_in_the_right_one() {
        let mut order = Reorder::new(0, 8);
        for offset in [20, 0, 10] {
            order.push(&part(0, offset, 10, 30), offset).unwrap();
        }
        let frame = order.pop().unwrap();
        assert_eq!(frame.parts.as_slice(), [0, 10, 20]);
        assert_eq!(order.held(), 0);
    }

    #[test]
    fn duplicates_are_counted_and_nothing_else() {
        let mut order = Reorder::new(0, 8);
        order.push(&part(0, 0, 10, 20), 1).unwrap();
        order.push(&part(0, 0, 10, 20), 2).unwrap();
        order.push(&part(0, 10, 10, 20), 3).unwrap();
        assert_eq!(order.pop().unwrap().parts.as_slice(), [1, 3]);
        order.push(&part(0, 0, 10, 20), 4).unwrap();
        order.push(&whole(1), 5).unwrap();
        assert_eq!(drain(&mut order), [1]);
        assert_eq!(order.stats().duplicate_blocks, 2);
        assert_eq!(order.stats().delivered, 2);
    }

    #[test]
    fn contradictions_are_errors() {
        let mut order = Reorder::new(0, 2);
        order.push(&part(0, 10, 10, 40), 0).unwrap();
        for (offset, bytes) in [(5, 10), (15, 10), (5, 20), (10, 5)] {
            let error = order.push(&part(0, offset, bytes, 40), 0).unwrap_err();
            assert!(matches!(error, OrderError::Overlap { .. }), "{offset}");
        }
        let error = order.push(&part(0, 20, 10, 50), 0).unwrap_err();
        assert_eq!(error, OrderError::Disagree { packet_number: 0 });
        order.push(&whole(3), 0).unwrap();
        let error = order.push(&whole(4), 0).unwrap_err();
        assert!(matches!(error, OrderError::TooManyHeld { limit: 2, .. }));
    }

    #[test]
    fn at_the_end_gaps_are_lost_and_complete_frames_are_not() {
        let mut order = Reorder::new(0, 8);
        order.push(&whole(2), 2).unwrap();
        order.push(&part(3, 0, 5, 10), 3).unwrap();
        order.push(&whole(5), 5).unwrap();
        assert!(order.pop().is_none());
        order.finish(Some(8));
        assert_eq!(drain(&mut order), [2, 5]);
        let stats = order.stats();
        assert_eq!((stats.delivered, stats.lost), (2, 6));
        assert_eq!(order.expected(), 8);
    }

    #[test]
    fn s1_22_sixteen_bit_numbers_wrap() {
        assert!(serial_less(65_535, 0) && !serial_less(0, 65_535));
        assert!(!serial_less(7, 7));
        assert!(!serial_less(0, 32_768) && !serial_less(32_768, 0));
        let mut counter = SerialCounter::default();
        let mut last = 0;
        for number in 0..200_000u64 {
            last = counter.widen(number as u16);
            assert_eq!(last, number);
        }
        assert_eq!(counter.widen((last - 300) as u16), last - 300);
        assert_eq!(counter.widen((last + 1) as u16), last + 1);
    }

    proptest! {
        #[test]
        fn any_arrival_order_gives_packet_order(
            (sizes, arrival) in prop::collection::vec(1u64..5, 1..20).prop_flat_map(|sizes| {
                let blocks: Vec<(u64, u64)> = sizes
                    .iter()
                    .enumerate()
                    .flat_map(|(n, parts)| (0..*parts).map(move |part| (n as u64, part)))
                    .collect();
                (Just(sizes), Just(blocks).prop_shuffle())
            }),
        ) {
            let mut order = Reorder::new(0, arrival.len());
            let mut seen = Vec::new();
            for (number, index) in arrival {
                let header = part(number, index * 10, 10, sizes[number as usize] * 10);
                order.push(&header, index).unwrap();
                while let Some(frame) = order.pop() {
                    let wanted: Vec<u64> = (0..sizes[frame.packet_number as usize]).collect();
                    prop_assert_eq!(frame.parts.as_slice(), wanted);
                    seen.push(frame.packet_number);
                }
            }
            let wanted: Vec<u64> = (0..sizes.len() as u64).collect();
            prop_assert_eq!(seen, wanted);
            prop_assert_eq!(order.held(), 0);
        }
    }
}
