//! Transfers in order: by key, in blocks of neighbours, so that one is found with few looks and nothing is
//! allocated once warm.
use super::NONE;
use super::transfer::Key;

const BLOCK: usize = 64;

#[derive(Debug)]
struct Block {
    keys: [Key; BLOCK],
    /// Of an unused block: the next unused one, first.
    places: [u32; BLOCK],
    len: usize,
}

/// Several queues that share their blocks.
#[derive(Debug)]
pub(super) struct Queues {
    /// For each queue its blocks, with the first key of each.
    tops: Vec<Vec<(Key, u32)>>,
    blocks: Vec<Block>,
    unused: u32,
}

/// A place in a queue, as long as nothing is changed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    top: usize,
    at: usize,
}

impl Queues {
    pub(super) fn new(count: usize) -> Self {
        Self { tops: vec![Vec::new(); count], blocks: Vec::new(), unused: NONE }
    }

    /// Returns what is at a cursor, and moves it behind that.
    pub(super) fn next(&self, queue: usize, cursor: &mut Cursor) -> Option<(Key, u32)> {
        loop {
            let (_, block) = self.tops[queue].get(cursor.top)?;
            let block = &self.blocks[*block as usize];
            if cursor.at < block.len {
                let found = (block.keys[cursor.at], block.places[cursor.at]);
                cursor.at += 1;
                return Some(found);
            }
            *cursor = Cursor { top: cursor.top + 1, at: 0 };
        }
    }

    /// Returns a cursor before the first that is not before a key.
    pub(super) fn from(&self, queue: usize, key: Key) -> Cursor {
        let top = self.top_of(queue, key);
        let Some((_, block)) = self.tops[queue].get(top) else { return Cursor::default() };
        Cursor { top, at: self.blocks[*block as usize].find(key) }
    }

    /// Returns the block in which a key is or would be.
    fn top_of(&self, queue: usize, key: Key) -> usize {
        let tops = &self.tops[queue];
        match tops.last() {
            // Who asks last mostly comes last.
            Some((first, _)) if *first <= key => tops.len() - 1,
            _ => tops.partition_point(|(first, _)| *first <= key).saturating_sub(1),
        }
    }

    /// Adds a place under a key that is not there.
    pub(super) fn insert(&mut self, queue: usize, key: Key, place: u32) {
        let top = self.top_of(queue, key);
        let Some((first, block)) = self.tops[queue].get_mut(top) else {
            let block = self.block();
            self.blocks[block as usize].insert(0, key, place);
            return self.tops[queue].push((key, block));
        };
        let at = self.blocks[*block as usize].find(key);
        if self.blocks[*block as usize].len < BLOCK {
            *first = key.min(*first);
            return self.blocks[*block as usize].insert(at, key, place);
        }
        let full = *block as usize;
        let other = self.block();
        // One that comes last begins a block of its own, so that blocks are full.
        let keep = if at == BLOCK { BLOCK } else { BLOCK / 2 };
        for from in keep..BLOCK {
            let (key, place) = (self.blocks[full].keys[from], self.blocks[full].places[from]);
            self.blocks[other as usize].insert(from - keep, key, place);
        }
        self.blocks[full].len = keep;
        if at > keep || keep == BLOCK {
            self.blocks[other as usize].insert(at - keep, key, place);
        } else {
            self.blocks[full].insert(at, key, place);
        }
        self.tops[queue][top].0 = self.blocks[full].keys[0];
        let first = self.blocks[other as usize].keys[0];
        self.tops[queue].insert(top + 1, (first, other));
    }

    /// Takes a key out that is there.
    pub(super) fn remove(&mut self, queue: usize, key: Key) {
        let top = self.top_of(queue, key);
        let Some((first, number)) = self.tops[queue].get_mut(top) else { return };
        let block = &mut self.blocks[*number as usize];
        let at = block.find(key);
        debug_assert!(at < block.len && block.keys[at] == key, "what is taken out is there");
        block.remove(at);
        if block.len > 0 {
            *first = block.keys[0];
            return self.join(queue, top);
        }
        let (_, number) = self.tops[queue].remove(top);
        self.free(number);
    }

    /// Joins a block with the next one where both are nearly empty.
    fn join(&mut self, queue: usize, top: usize) {
        let tops = &mut self.tops[queue];
        let [(_, one), (_, other), ..] = tops[top..] else { return };
        let (len, more) = (self.blocks[one as usize].len, self.blocks[other as usize].len);
        if len + more > BLOCK / 4 {
            return;
        }
        for from in 0..more {
            let block = &self.blocks[other as usize];
            let (key, place) = (block.keys[from], block.places[from]);
            self.blocks[one as usize].insert(len + from, key, place);
        }
        tops.remove(top + 1);
        self.free(other);
    }

    fn free(&mut self, number: u32) {
        let block = &mut self.blocks[number as usize];
        block.len = 0;
        block.places[0] = std::mem::replace(&mut self.unused, number);
    }

    fn block(&mut self) -> u32 {
        if self.unused == NONE {
            let (keys, places) = ([Key::default(); BLOCK], [NONE; BLOCK]);
            self.blocks.push(Block { keys, places, len: 0 });
            return u32::try_from(self.blocks.len() - 1).expect("fewer than 2^32 blocks");
        }
        let number = self.unused;
        self.unused = self.blocks[number as usize].places[0];
        number
    }
}

impl Block {
    /// Returns the place of a key, or where it would be.
    fn find(&self, key: Key) -> usize {
        self.keys[..self.len].partition_point(|known| *known < key)
    }

    fn insert(&mut self, at: usize, key: Key, place: u32) {
        self.keys.copy_within(at..self.len, at + 1);
        self.places.copy_within(at..self.len, at + 1);
        (self.keys[at], self.places[at]) = (key, place);
        self.len += 1;
    }

    fn remove(&mut self, at: usize) {
        self.keys.copy_within(at + 1..self.len, at);
        self.places.copy_within(at + 1..self.len, at);
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::collections::btree_map::Entry;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Steps of 0 to 3 remove, others add; keys rise with the steps, as those of requests do.
        #[test]
        fn queues_are_as_ordered_maps(steps in prop::collection::vec((0..9_u8, 0..500_u64), 1..900)) {
            let (mut queues, mut map) = (Queues::new(2), BTreeMap::new());
            for (count, (kind, spread)) in (0_u64..).zip(steps) {
                let key = Key::test(count + spread);
                if kind < 4 && !map.is_empty() {
                    let at = map.range(key..).next().or_else(|| map.first_key_value());
                    let key = *at.unwrap().0;
                    map.remove(&key);
                    queues.remove(1, key);
                } else if let Entry::Vacant(vacant) = map.entry(key) {
                    vacant.insert(count as u32);
                    queues.insert(1, key, count as u32);
                }
                let mut from = queues.from(1, key);
                let found = queues.next(1, &mut from);
                let known = map.range(key..).next().map(|(key, at)| (*key, *at));
                prop_assert_eq!(found, known);
            }
            let mut cursor = Cursor::default();
            for (key, at) in map {
                prop_assert_eq!(queues.next(1, &mut cursor), Some((key, at)));
            }
            prop_assert_eq!(queues.next(1, &mut cursor), None);
            prop_assert_eq!(queues.next(0, &mut Cursor::default()), None);
        }
    }
}
