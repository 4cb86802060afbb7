//! The memory chunks of an application, and which bytes of each are free. Best fit, with free neighbours merged.
use catchment_verbs::mem::Region;
use catchment_verbs::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What begins and ends on other lines of the cache than its neighbours.
const LINE_BYTES: usize = 64;
/// What is as long as this has pages of its own.
const PAGE_BYTES: usize = 4096;

/// The chunks that an application has.
#[derive(Default)]
pub(super) struct Chunks {
    pub(super) all: Mutex<Vec<Chunk>>,
    /// Held by who asks for one, so that two threads do not ask for two.
    pub(super) growing: Mutex<()>,
}

pub(super) struct Chunk {
    pub(super) number: u32,
    pub(super) region: Arc<Region>,
    pub(super) slices: Slices,
    /// It is as long as its region: nobody else finds room there.
    pub(super) is_of_one: bool,
}

/// A range of bytes that is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) offset: usize,
    /// With what was added so that the next one is aligned.
    pub(super) bytes: usize,
    /// Some of it was in use before: it is not zero.
    pub(super) was_used: bool,
}

/// The slices of one chunk.
#[derive(Debug)]
pub(super) struct Slices {
    bytes: usize,
    /// Lengths by where they begin. No two touch.
    free: BTreeMap<usize, usize>,
    /// From here on nothing was ever in use.
    fresh: usize,
}

impl Slices {
    /// Describes a chunk of so many bytes, all free.
    pub(super) fn new(bytes: usize) -> Self {
        Self { bytes, free: BTreeMap::from([(0, bytes)]), fresh: 0 }
    }

    /// Takes at least so many bytes, out of the shortest range that has them.
    pub(super) fn take(&mut self, bytes: usize) -> Option<Slice> {
        let align = if bytes < PAGE_BYTES { LINE_BYTES } else { PAGE_BYTES };
        let bytes = bytes.max(1).checked_next_multiple_of(align)?;
        let begin = |at: usize, length: usize| {
            let begin = at.checked_next_multiple_of(align)?;
            begin.checked_add(bytes).filter(|end| *end <= at + length).map(|_| begin)
        };
        let fitting = self.free.iter().filter(|(at, length)| begin(**at, **length).is_some());
        let (at, length) = fitting.min_by_key(|(_, length)| **length)?;
        let (at, length) = (*at, *length);
        let offset = begin(at, length)?;
        let (end, end_of_all) = (offset + bytes, at + length);
        self.free.remove(&at);
        if offset > at {
            self.free.insert(at, offset - at);
        }
        if end < end_of_all {
            self.free.insert(end, end_of_all - end);
        }
        let was_used = offset < self.fresh;
        self.fresh = self.fresh.max(end);
        Some(Slice { offset, bytes, was_used })
    }

    /// Gives back what was taken.
    pub(super) fn put(&mut self, slice: Slice) {
        let (mut at, mut length) = (slice.offset, slice.bytes);
        if let Some((before, bytes)) = self.free.range(..at).next_back()
            && before + bytes == at
        {
            (at, length) = (*before, bytes + length);
        }
        if let Some(bytes) = self.free.remove(&(slice.offset + slice.bytes)) {
            length += bytes;
        }
        self.free.insert(at, length);
    }

    /// Returns whether nothing is in use.
    pub(super) fn is_free(&self) -> bool {
        self.free.get(&0) == Some(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHUNK: usize = 1 << 16;

    #[derive(Debug, Clone)]
    enum Step {
        Take(usize),
        /// One of those in use, whichever.
        Put(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            prop_oneof![1usize..300, 1usize..20_000, Just(4095), Just(4096), Just(CHUNK)]
                .prop_map(Step::Take),
            any::<usize>().prop_map(Step::Put),
        ]
    }

    /// As [`Slices`] shall be, byte by byte.
    struct Model {
        in_use: Vec<bool>,
        was_used: Vec<bool>,
    }

    impl Model {
        fn take(&mut self, slice: Slice, asked: usize) {
            let align = if asked < PAGE_BYTES { LINE_BYTES } else { PAGE_BYTES };
            assert!(slice.offset.is_multiple_of(align) && slice.bytes >= asked, "{slice:?}");
            let range = slice.offset..slice.offset + slice.bytes;
            assert!(self.in_use[range.clone()].iter().all(|used| !used), "{slice:?} overlaps");
            let dirty = self.was_used[range.clone()].iter().any(|used| *used);
            assert!(slice.was_used || !dirty, "{slice:?} is not zero");
            self.in_use[range.clone()].fill(true);
            self.was_used[range].fill(true);
        }

        /// Returns whether there is room for so many bytes.
        fn has_room(&self, asked: usize) -> bool {
            let align = if asked < PAGE_BYTES { LINE_BYTES } else { PAGE_BYTES };
            let bytes = asked.next_multiple_of(align);
            let mut places = (0..CHUNK).step_by(align).filter(|at| at + bytes <= CHUNK);
            places.any(|at| self.in_use[at..at + bytes].iter().all(|used| !used))
        }
    }

    proptest! {
        #[test]
        fn slices_never_overlap_and_all_of_them_come_back(
            steps in prop::collection::vec(step(), 1..200)
        ) {
            let mut slices = Slices::new(CHUNK);
            let mut model = Model { in_use: vec![false; CHUNK], was_used: vec![false; CHUNK] };
            let mut taken: Vec<Slice> = Vec::new();
            for step in steps {
                match step {
                    Step::Take(bytes) => {
                        let room = model.has_room(bytes);
                        let slice = slices.take(bytes);
                        prop_assert_eq!(slice.is_some(), room, "{} bytes", bytes);
                        if let Some(slice) = slice {
                            model.take(slice, bytes);
                            taken.push(slice);
                        }
                    }
                    Step::Put(any) if !taken.is_empty() => {
                        let slice = taken.swap_remove(any % taken.len());
                        model.in_use[slice.offset..slice.offset + slice.bytes].fill(false);
                        slices.put(slice);
                    }
                    Step::Put(_) => {}
                }
                prop_assert_eq!(slices.is_free(), taken.is_empty());
                // Neighbours are one range.
                let ends: Vec<usize> = slices.free.iter().map(|(at, bytes)| at + bytes).collect();
                prop_assert!(ends.iter().all(|end| !slices.free.contains_key(end)));
            }
            taken.drain(..).for_each(|slice| slices.put(slice));
            prop_assert!(slices.is_free());
            prop_assert_eq!(slices.take(CHUNK).map(|slice| slice.offset), Some(0));
        }
    }

    #[test]
    fn the_shortest_range_that_fits_is_used() {
        let mut slices = Slices::new(CHUNK);
        let all: Vec<Slice> = [640, 64, 128, 64].map(|bytes| slices.take(bytes).unwrap()).into();
        slices.put(all[0]);
        slices.put(all[2]);
        assert_eq!(slices.take(100).unwrap().offset, all[2].offset);
        assert_eq!(slices.take(100).unwrap().offset, all[0].offset);
    }

    #[test]
    fn lengths_that_no_chunk_has_fit_nowhere() {
        let mut slices = Slices::new(CHUNK);
        for bytes in [CHUNK + 1, usize::MAX, usize::MAX - 4096] {
            assert_eq!(slices.take(bytes), None);
        }
        assert!(slices.is_free());
    }
}
