//! Puts the blocks of one stream in order: by packet number, then by place in the frame.
//!
//! Pure. A block is passed on as soon as everything before it was; a frame of several blocks needs
//! room for one block at a time.
use crate::header::BlockHeader;
use std::collections::BTreeMap;

/// Order of one stream in one session.
pub struct InOrder<B> {
    /// Number of the frame that is expected or in progress.
    next: u64,
    /// Bytes of frame `next` that were passed on.
    progress: u64,
    /// Blocks that arrived too early, by packet number and offset.
    early: BTreeMap<(u64, u64), (BlockHeader, B)>,
}

/// What happened to the blocks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Packet numbers that the source dropped on purpose.
    pub skipped: u64,
    /// Blocks that were repeated or too late.
    pub duplicates: u64,
    /// Blocks that waited for earlier ones.
    pub reordered: u64,
}

impl<B> InOrder<B> {
    /// Starts the order of a stream whose first frame is `first_packet`.
    pub fn new(first_packet: u64) -> Self {
        Self { next: first_packet, progress: 0, early: BTreeMap::new() }
    }

    /// Returns the number of the first frame that was not passed on whole.
    pub fn next_packet(&self) -> u64 {
        self.next
    }

    /// Returns the number of blocks that wait for an earlier one.
    pub fn early(&self) -> usize {
        self.early.len()
    }

    /// Removes the blocks that wait for an earlier one that will not arrive.
    pub fn take_early(&mut self) -> impl Iterator<Item = B> {
        std::mem::take(&mut self.early).into_values().map(|(_, block)| block)
    }

    /// Takes a block, and passes every block whose turn has come to `hand_on`. Duplicates are dropped.
    pub fn push(&mut self, header: BlockHeader, block: B, mut hand_on: impl FnMut(B)) -> Tally {
        let mut tally = Tally::default();
        match self.place(&header) {
            Place::Now => {
                tally.skipped += self.advance(&header);
                hand_on(block);
            }
            Place::Early => {
                tally.reordered += 1;
                let key = (header.packet_number, header.frame_offset);
                if self.early.insert(key, (header, block)).is_some() {
                    tally.duplicates += 1;
                }
                return tally;
            }
            Place::Late => {
                tally.duplicates += 1;
                return tally;
            }
        }
        while let Some((key, (header, block))) = self.early.pop_first() {
            match self.place(&header) {
                Place::Now => {
                    tally.skipped += self.advance(&header);
                    hand_on(block);
                }
                Place::Late => tally.duplicates += 1,
                Place::Early => {
                    self.early.insert(key, (header, block));
                    break;
                }
            }
        }
        tally
    }

    fn place(&self, block: &BlockHeader) -> Place {
        let number = block.packet_number;
        if number < self.next || (number == self.next && block.frame_offset < self.progress) {
            return Place::Late;
        }
        let begins = block.frame_offset == 0;
        let turn = if begins {
            // The next frame counts one that the source abandoned halfway as skipped.
            number - u64::from(block.skipped) <= self.next
        } else {
            number == self.next && block.frame_offset == self.progress
        };
        if turn { Place::Now } else { Place::Early }
    }

    /// Advances past the block; returns how many numbers the source skipped.
    fn advance(&mut self, block: &BlockHeader) -> u64 {
        let skipped = block.packet_number - self.next;
        self.next = block.packet_number;
        self.progress = block.frame_offset + u64::from(block.payload_bytes);
        if self.progress >= block.frame_bytes {
            self.next += 1;
            self.progress = 0;
        }
        skipped
    }
}

enum Place {
    Now,
    Early,
    Late,
}

/// Returns whether serial number `a` comes before `b` (RFC 1982, 16 bits): for the paper's packet
/// numbers, which wrap. Numbers exactly half the range apart have no order; neither comes first.
pub fn serial_less(a: u16, b: u16) -> bool {
    let ahead = b.wrapping_sub(a);
    ahead != 0 && ahead < 1 << 15
}

/// Widens the paper's 16-bit numbers to 64 bits.
#[derive(Debug, Clone, Copy, Default)]
pub struct SerialCounter {
    newest: u64,
}

impl SerialCounter {
    /// Computes the full number of a packet less than half the range away from the newest one seen.
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

    fn block(packet_number: u64, skipped: u32, part: u64, parts: u64) -> BlockHeader {
        BlockHeader {
            packet_number,
            skipped,
            payload_bytes: 10,
            frame_offset: part * 10,
            frame_bytes: parts * 10,
            ..BlockHeader::default()
        }
    }

    /// Pushes the blocks, and returns those passed on, as (packet number, part).
    fn run(first: u64, blocks: &[BlockHeader]) -> (Vec<(u64, u64)>, Tally, u64) {
        let mut order = InOrder::new(first);
        let (mut out, mut sum) = (Vec::new(), Tally::default());
        for header in blocks {
            let tally = order.push(*header, *header, |b: BlockHeader| {
                out.push((b.packet_number, b.frame_offset / 10));
            });
            sum.skipped += tally.skipped;
            sum.duplicates += tally.duplicates;
            sum.reordered += tally.reordered;
        }
        (out, sum, order.next_packet())
    }

    #[test]
    fn frames_skipped_on_purpose_do_not_stop_the_stream() {
        let (out, tally, next) = run(5, &[block(5, 0, 0, 1), block(9, 3, 0, 1)]);
        assert_eq!(out, [(5, 0), (9, 0)]);
        assert_eq!((tally.skipped, next), (3, 10));
    }

    #[test]
    fn a_gap_holds_the_stream_until_it_is_filled() {
        let (out, tally, _) = run(1, &[block(1, 0, 0, 1), block(3, 0, 0, 1), block(2, 0, 0, 1)]);
        assert_eq!(out, [(1, 0), (2, 0), (3, 0)]);
        assert_eq!((tally.reordered, tally.skipped), (1, 0));
    }

    #[test]
    fn duplicates_are_dropped() {
        let (out, tally, _) = run(4, &[block(4, 0, 0, 1), block(3, 0, 0, 1), block(4, 0, 0, 1)]);
        assert_eq!((out.len(), tally.duplicates), (1, 2));
    }

    #[test]
    fn a_frame_abandoned_halfway_is_skipped() {
        let (out, tally, next) = run(0, &[block(0, 0, 0, 3), block(1, 1, 0, 1)]);
        assert_eq!(out, [(0, 0), (1, 0)]);
        assert_eq!((tally.skipped, next), (1, 2));
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
        fn any_order_comes_out_in_order(
            seed in proptest::collection::vec(any::<u32>(), 40),
            parts in 1u64..4,
        ) {
            let frames = 40 / parts;
            let mut blocks: Vec<_> = (0..frames)
                .flat_map(|n| (0..parts).map(move |p| block(100 + n, 0, p, parts)))
                .collect();
            let sorted: Vec<_> = blocks.iter().map(|b| (b.packet_number, b.frame_offset / 10)).collect();
            for i in (1..blocks.len()).rev() {
                blocks.swap(i, seed[i % seed.len()] as usize % (i + 1));
            }
            let (out, tally, next) = run(100, &blocks);
            prop_assert_eq!(out, sorted);
            prop_assert_eq!((tally.skipped, tally.duplicates, next), (0, 0, 100 + frames));
        }
    }
}
