//! The slots known to be free, and how releases are learnt.
use super::quota::Streams;
use crate::layout::{LARGE_BLOCK_BYTES, LINE_BYTES, RingLayout};
use crate::mirror::ByteMirror;
use crate::slot::{ReleaseStatus, SenderSlots};
use crate::status::released_byte;
use crate::sync::{AtomicU32, AtomicU64, Ordering, Threads, Update as _};
use catchment_verbs::mem::VolatileSlice;
use std::ops::ControlFlow;

/// A scan of a large ring stops once it has found this many.
const ENOUGH: u32 = LINE_BYTES;

/// In rings of up to so many lines of `free[]` the next line is prefetched.
const PREFETCH_LINES: usize = 4;

/// What the sender keeps for each slot beside its generation.
#[derive(Debug, Default)]
pub(super) struct SlotInfo {
    /// Stream of the outstanding block.
    pub(super) stream: AtomicU32,
    /// Bytes from its payload to its trailer.
    pub(super) room_bytes: AtomicU32,
    /// Payload bytes of all blocks ever committed here.
    pub(super) payload_bytes: AtomicU64,
}

/// The sender's state of all slots. Lock-free.
#[derive(Debug)]
pub(super) struct Slots {
    pub(super) generations: SenderSlots,
    pub(super) info: Box<[SlotInfo]>,
    known: Known,
    /// `free[]` as of the releases that were noted.
    noted: ByteMirror,
    /// Where the next release is expected.
    cursor: AtomicU32,
}

impl Slots {
    /// Creates a fresh ring: all slots are free.
    pub(super) fn new(layout: &RingLayout) -> Self {
        let blocks = layout.blocks();
        Self {
            generations: SenderSlots::new(blocks),
            info: (0..blocks).map(|_| SlotInfo::default()).collect(),
            known: Known::new(layout),
            noted: ByteMirror::new(blocks),
            cursor: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(super) fn known(&self) -> u32 {
        self.known.len()
    }

    /// Returns the number of payload bytes of all blocks ever committed.
    pub(super) fn payload_bytes(&self) -> u64 {
        self.info.iter().map(|info| info.payload_bytes.load(Ordering::Relaxed)).sum()
    }

    /// Returns whether it reuses as few slots as possible.
    #[inline]
    pub(super) fn uses_few(&self) -> bool {
        self.known.lowest
    }

    #[inline]
    pub(super) fn take(&self, threads: Threads) -> Option<u32> {
        self.known.take(threads)
    }

    #[inline]
    pub(super) fn put_back(&self, threads: Threads, slot: u32) {
        let (line, bit) = (slot / u64::BITS, slot % u64::BITS);
        self.known.put_back(threads, line, 1 << bit);
    }

    /// Prefetches the part of `free[]` where the next release is expected, once half of a ring of few
    /// lines is used: it arrives while the other half is. With more lines a scan rarely waits for one.
    #[inline]
    pub(super) fn prefetch_at_half(&self, free: &VolatileSlice<'_>) {
        let half = self.info.len() as u32 / 2;
        if self.known.words.len() <= PREFETCH_LINES && self.known() == half {
            free.prefetch(self.cursor() as usize);
        }
    }

    /// Notes all releases in `free`, which may be old, and returns how many there were.
    pub(super) fn scan_all(
        &self,
        threads: Threads,
        free: &VolatileSlice<'_>,
        streams: &Streams,
    ) -> u32 {
        let mut all = 0;
        loop {
            let found = self.scan(threads, free, streams);
            all += found;
            if found < ENOUGH {
                return all;
            }
        }
    }

    /// Notes releases in `free`, which may be old, and returns how many there were: all, or [`ENOUGH`].
    /// `threads`: who may claim slots and note releases now.
    pub(super) fn scan(
        &self,
        threads: Threads,
        free: &VolatileSlice<'_>,
        streams: &Streams,
    ) -> u32 {
        let mut found =
            Found { slots: self, streams, threads, count: 0, line: 0, bits: 0, stream: 0 };
        let _ = self.noted.look(free, self.cursor(), |slot| {
            self.note(slot, free, &mut found);
            if found.count < ENOUGH { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        found.count
    }

    /// Returns the slot where the next release is expected.
    #[inline]
    pub(super) fn cursor(&self) -> u32 {
        self.cursor.load(Ordering::Relaxed)
    }

    #[inline]
    fn note(&self, slot: u32, free: &VolatileSlice<'_>, found: &mut Found<'_>) {
        let byte = free.load_u8(slot as usize, Ordering::Acquire);
        let byte = byte.expect("a slot inside of the status array");
        if self.generations.note_free(found.threads, slot, byte) != ReleaseStatus::Released {
            return;
        }
        // From here until it is put back the slot belongs to this thread.
        let stream = self.info[slot as usize].stream.load(Ordering::Relaxed);
        let generation = self.generations.next_generation(slot) - 1;
        let (before, after) = (released_byte(generation - 1), released_byte(generation));
        self.noted.change(found.threads, slot, before, after);
        self.cursor.store((slot + 1) % self.info.len() as u32, Ordering::Relaxed);
        found.add(slot, stream);
    }
}

/// Releases that a scan has found and not yet passed on: those of one line and one stream together.
struct Found<'a> {
    slots: &'a Slots,
    streams: &'a Streams,
    threads: Threads,
    count: u32,
    line: u32,
    bits: u64,
    stream: u32,
}

impl Found<'_> {
    #[inline]
    fn add(&mut self, slot: u32, stream: u32) {
        let line = slot / u64::BITS;
        if line != self.line || stream != self.stream {
            self.pass_on();
            (self.line, self.stream) = (line, stream);
        }
        self.bits |= 1 << (slot % u64::BITS);
        self.count += 1;
    }

    /// Passes releases on, to the stream first: a thread that sees a free slot may claim it.
    #[inline]
    fn pass_on(&mut self) {
        let bits = std::mem::take(&mut self.bits);
        if bits != 0 {
            self.streams.leave(self.threads, self.stream, bits.count_ones());
            self.slots.known.put_back(self.threads, self.line, bits);
        }
    }
}

impl Drop for Found<'_> {
    #[inline]
    fn drop(&mut self) {
        self.pass_on();
    }
}

/// The free slots: a bit each, a word for each line of `free[]`.
#[derive(Debug)]
struct Known {
    words: Box<[AtomicU64]>,
    /// Take the lowest, so that few slots are used while few are needed: from [`LARGE_BLOCK_BYTES`] on.
    /// Smaller blocks go round the ring, where the receiver expects them.
    lowest: bool,
    /// Where the search for the next one begins.
    next: AtomicU32,
}

impl Known {
    /// Starts with all slots free.
    fn new(layout: &RingLayout) -> Self {
        let blocks = layout.blocks();
        let full = |word| match blocks - word * u64::BITS {
            left if left >= u64::BITS => u64::MAX,
            left => (1u64 << left) - 1,
        };
        let words = 0..blocks.div_ceil(u64::BITS);
        Self {
            words: words.map(|word| AtomicU64::new(full(word))).collect(),
            lowest: layout.block_bytes() >= LARGE_BLOCK_BYTES,
            next: AtomicU32::new(0),
        }
    }

    fn len(&self) -> u32 {
        self.words.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum()
    }

    #[inline]
    fn put_back(&self, threads: Threads, line: u32, bits: u64) {
        self.words[line as usize].or_by(threads, bits, Ordering::Release);
    }

    #[inline]
    fn take(&self, threads: Threads) -> Option<u32> {
        let next = self.next.load(Ordering::Relaxed);
        let (line, bit) = (next / u64::BITS, next % u64::BITS);
        let here = self.take_in(threads, line, u64::MAX << bit);
        let slot = here.or_else(|| self.take_round(threads, line))?;
        if !self.lowest {
            let last = self.words.len() as u32 * u64::BITS - 1;
            let after = if slot == last { 0 } else { slot + 1 };
            self.next.store(after, Ordering::Relaxed);
        }
        Some(slot)
    }

    /// Takes a slot in the lines after this one, and last in this one, for its slots before the next.
    fn take_round(&self, threads: Threads, line: u32) -> Option<u32> {
        let lines = self.words.len() as u32;
        let others = (line + 1..lines).chain(0..=line);
        others.into_iter().find_map(|line| self.take_in(threads, line, u64::MAX))
    }

    /// Takes the lowest of these slots of a line.
    #[inline]
    fn take_in(&self, threads: Threads, line: u32, among: u64) -> Option<u32> {
        let word = &self.words[line as usize];
        let mut bits = word.load(Ordering::Acquire);
        loop {
            let usable = bits & among;
            if usable == 0 {
                return None;
            }
            match word.replace_by(threads, bits, bits & !(usable & usable.wrapping_neg())) {
                Ok(_) => return Some(line * u64::BITS + usable.trailing_zeros()),
                Err(now) => bits = now,
            }
        }
    }
}
