//! Where transfers are kept: in places with numbers, found by their ids, without allocation once warm.
use super::transfer::{Flags, NOBODY, State, Transfer};
use super::{NONE, TransferId};
use std::ops::{Index, IndexMut};

/// Transfers by place: found by a table with open addresses.
#[derive(Debug)]
pub(super) struct Transfers {
    nodes: Vec<Transfer>,
    unused: u32,
    count: usize,
    /// Places by hash, with the hash; at most half is used, and its length is a power of two.
    places: Vec<(u32, u32)>,
}

impl Index<u32> for Transfers {
    type Output = Transfer;

    fn index(&self, at: u32) -> &Transfer {
        &self.nodes[at as usize]
    }
}

impl IndexMut<u32> for Transfers {
    fn index_mut(&mut self, at: u32) -> &mut Transfer {
        &mut self.nodes[at as usize]
    }
}

impl Transfers {
    pub(super) fn new() -> Self {
        Self { nodes: Vec::new(), unused: NONE, count: 0, places: vec![(0, NONE); 16] }
    }

    /// Returns all transfers, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Transfer> {
        self.nodes.iter().filter(|node| node.id != NOBODY)
    }

    /// Returns the places of all transfers, in no order.
    pub(super) fn places(&self) -> impl Iterator<Item = (u32, TransferId)> {
        let places = (0..).zip(&self.nodes).filter(|(_, node)| node.id != NOBODY);
        places.map(|(at, node)| (at, node.id))
    }

    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// Returns the place of a transfer.
    pub(super) fn find(&self, id: TransferId) -> Option<u32> {
        let (_, at) = self.places[self.slot(id)];
        (at != NONE).then_some(at)
    }

    /// Returns whether a transfer is still at a place.
    pub(super) fn is_at(&self, at: u32, id: TransferId) -> bool {
        self.nodes.get(at as usize).is_some_and(|node| node.id == id)
    }

    /// Returns the slot of a transfer, or the empty one where it would be.
    fn slot(&self, id: TransferId) -> usize {
        let (hash, last) = (hash(id), self.places.len() - 1);
        let mut slot = hash as usize & last;
        loop {
            let (known, at) = self.places[slot];
            if at == NONE || known == hash && self[at].id == id {
                return slot;
            }
            slot = (slot + 1) & last;
        }
    }

    /// Adds a transfer that is not there; `first` is the newest of its device, and becomes this one.
    pub(super) fn insert(&mut self, mut transfer: Transfer, first: &mut u32) -> u32 {
        let slot = self.slot(transfer.id);
        let older = std::mem::replace(&mut transfer.links.older, *first);
        debug_assert_eq!(older, NONE);
        let hash = hash(transfer.id);
        let at = if self.unused == NONE {
            self.nodes.push(transfer);
            u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 transfers")
        } else {
            let at = self.unused;
            self.unused = self[at].links.older;
            self[at] = transfer;
            at
        };
        if *first != NONE {
            self[*first].links.newer = at;
        }
        *first = at;
        self.places[slot] = (hash, at);
        self.count += 1;
        if self.count * 2 > self.places.len() {
            self.grow();
        }
        at
    }

    fn grow(&mut self) {
        let length = self.places.len() * 2;
        let before = std::mem::replace(&mut self.places, vec![(0, NONE); length]);
        for (hash, at) in before.into_iter().filter(|(_, at)| *at != NONE) {
            let slot = self.slot(self[at].id);
            self.places[slot] = (hash, at);
        }
    }

    /// Takes a transfer out; `first` is the newest of its device.
    pub(super) fn remove(&mut self, at: u32, first: &mut u32) {
        self.vacate(self.slot(self[at].id));
        let links = self[at].links;
        if links.newer == NONE {
            *first = links.older;
        } else {
            self[links.newer].links.older = links.older;
        }
        if links.older != NONE {
            self[links.older].links.newer = links.newer;
        }
        let unused = std::mem::replace(&mut self.unused, at);
        let node = &mut self[at];
        (node.id, node.state, node.flags) = (NOBODY, State::Silent, Flags::default());
        node.links.older = unused;
        self.count -= 1;
    }

    /// Empties a slot and moves those behind it that would not be found any more.
    fn vacate(&mut self, mut hole: usize) {
        let last = self.places.len() - 1;
        let mut slot = hole;
        loop {
            slot = (slot + 1) & last;
            let (hash, at) = self.places[slot];
            if at == NONE {
                break;
            }
            let home = hash as usize & last;
            if slot.wrapping_sub(home) & last >= slot.wrapping_sub(hole) & last {
                self.places[hole] = (hash, at);
                hole = slot;
            }
        }
        self.places[hole] = (0, NONE);
    }
}

const fn hash(id: TransferId) -> u32 {
    let mixed =
        (id.number ^ (id.device.0 as u64).rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::super::{ClassId, DeviceId};
    use super::*;

    fn id(device: u32, number: u64) -> TransferId {
        TransferId { device: DeviceId(device), number }
    }

    fn one(id: TransferId, bytes: u64) -> Transfer {
        Transfer::new(id, ClassId(0), (0, 1), bytes, 0)
    }

    #[test]
    fn the_transfers_of_a_device_are_a_list() {
        let (mut transfers, mut first) = (Transfers::new(), NONE);
        let places: Vec<u32> =
            (0..3).map(|number| transfers.insert(one(id(2, number), 1), &mut first)).collect();
        let list = |transfers: &Transfers, mut at: u32| {
            let mut numbers = Vec::new();
            while at != NONE {
                numbers.push(transfers[at].id.number);
                at = transfers[at].links.older;
            }
            numbers
        };
        assert_eq!(list(&transfers, first), [2, 1, 0]);
        transfers.remove(places[1], &mut first);
        assert_eq!(list(&transfers, first), [2, 0]);
        assert!(!transfers.is_at(places[1], id(2, 1)) && transfers.is_at(places[0], id(2, 0)));
        transfers.remove(places[2], &mut first);
        transfers.remove(places[0], &mut first);
        assert_eq!((first, transfers.len()), (NONE, 0));
    }

    #[test]
    fn many_are_found_while_others_come_and_go() {
        let (mut transfers, mut first) = (Transfers::new(), [NONE; 7]);
        let there = |number: u64| !number.is_multiple_of(3) || number > 1800;
        let name = |number: u64| id(number as u32 % 7, number);
        for number in 0..2000 {
            let list = &mut first[number as usize % 7];
            transfers.insert(one(name(number), number), list);
            if number >= 200 && !there(number - 200) {
                let at = transfers.find(name(number - 200)).unwrap();
                transfers.remove(at, &mut first[(number as usize - 200) % 7]);
            }
        }
        for number in (0..2000).filter(|number| *number < 1800) {
            let left = transfers.find(name(number)).map(|at| transfers[at].course.left_at(0));
            assert_eq!(left, there(number).then_some(number), "{number}");
        }
    }
}
