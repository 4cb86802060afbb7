//! Where devices, transfers and holds are kept: found by number, without allocation once warm.
use super::device::Device;
use super::transfer::Transfer;
use super::{DeviceId, TransferId};
use std::cell::Cell;

/// Devices by their numbers: an array, as the caller numbers them from 0 on.
#[derive(Debug, Default)]
pub(super) struct Devices {
    slots: Vec<Option<Device>>,
    count: usize,
}

impl Devices {
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    pub(super) fn get(&self, id: &DeviceId) -> Option<&Device> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: &DeviceId) -> Option<&mut Device> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    pub(super) fn insert(&mut self, id: DeviceId, device: Device) {
        let at = id.0 as usize;
        if at >= self.slots.len() {
            self.slots.resize_with(at + 1, || None);
        }
        self.count += usize::from(self.slots[at].replace(device).is_none());
    }

    pub(super) fn remove(&mut self, id: &DeviceId) -> Option<Device> {
        let device = self.slots.get_mut(id.0 as usize)?.take();
        self.count -= usize::from(device.is_some());
        device
    }
}

const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Node {
    id: TransferId,
    transfer: Option<Transfer>,
    /// The next older one of the device, or the next unused one.
    next: u32,
    /// The next newer one of the device.
    before: u32,
    /// Of the transfer that was here before, for the next one.
    holds: Vec<u64>,
}

/// Transfers: found by a table with open addresses, and in a list for each device.
#[derive(Debug)]
pub(super) struct Transfers {
    nodes: Vec<Node>,
    /// By device: its newest.
    first: Vec<u32>,
    unused: u32,
    count: usize,
    /// The places of nodes, by hash; at most half is used, and its length is a power of two.
    places: Vec<u32>,
    /// What was found last; an input asks for the same one many times.
    last: Cell<u32>,
}

impl Transfers {
    pub(super) fn new() -> Self {
        let (places, last) = (vec![NONE; 16], Cell::new(NONE));
        Self { nodes: Vec::new(), first: Vec::new(), unused: NONE, count: 0, places, last }
    }

    pub(super) const fn len(&self) -> usize {
        self.count
    }

    pub(super) fn get(&self, id: &TransferId) -> Option<&Transfer> {
        self.nodes[self.find(*id)? as usize].transfer.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: &TransferId) -> Option<&mut Transfer> {
        let at = self.find(*id)?;
        self.nodes[at as usize].transfer.as_mut()
    }

    pub(super) fn contains_key(&self, id: &TransferId) -> bool {
        self.find(*id).is_some()
    }

    fn find(&self, id: TransferId) -> Option<u32> {
        let is = |node: &Node| node.id == id && node.transfer.is_some();
        let last = self.last.get();
        if self.nodes.get(last as usize).is_some_and(is) {
            return Some(last);
        }
        let at = self.places[self.place(id)];
        if at == NONE {
            return None;
        }
        self.last.set(at);
        Some(at)
    }

    /// Returns the place of a transfer, or the empty one where it would be.
    fn place(&self, id: TransferId) -> usize {
        let mut place = self.home(id);
        while self.places[place] != NONE && self.nodes[self.places[place] as usize].id != id {
            place = (place + 1) & (self.places.len() - 1);
        }
        place
    }

    fn home(&self, id: TransferId) -> usize {
        let mixed = (id.number ^ u64::from(id.device.0).rotate_left(40))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize & (self.places.len() - 1)
    }

    /// Adds a transfer that is not there.
    pub(super) fn insert(&mut self, id: TransferId, mut transfer: Transfer) {
        let device = id.device.0 as usize;
        if device >= self.first.len() {
            self.first.resize(device + 1, NONE);
        }
        let next = self.first[device];
        let before = NONE;
        let at = if self.unused == NONE {
            let holds = Vec::new();
            self.nodes.push(Node { id, transfer: Some(transfer), next, before, holds });
            u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 transfers")
        } else {
            let at = self.unused;
            let node = &mut self.nodes[at as usize];
            transfer.holds = std::mem::take(&mut node.holds);
            self.unused = node.next;
            *node = Node { id, transfer: Some(transfer), next, before, holds: Vec::new() };
            at
        };
        if let Some(node) = self.nodes.get_mut(next as usize) {
            node.before = at;
        }
        self.first[device] = at;
        self.count += 1;
        let place = self.place(id);
        self.places[place] = at;
        if self.count * 2 > self.places.len() {
            self.grow();
        }
    }

    fn grow(&mut self) {
        let length = self.places.len() * 2;
        let before = std::mem::replace(&mut self.places, vec![NONE; length]);
        for at in before.into_iter().filter(|at| *at != NONE) {
            let place = self.place(self.nodes[at as usize].id);
            self.places[place] = at;
        }
    }

    pub(super) fn remove(&mut self, id: &TransferId) {
        let Some(at) = self.find(*id) else { return };
        self.vacate(self.place(*id));
        let (next, before) = (self.nodes[at as usize].next, self.nodes[at as usize].before);
        if let Some(newer) = self.nodes.get_mut(before as usize) {
            newer.next = next;
        } else {
            self.first[id.device.0 as usize] = next;
        }
        if let Some(older) = self.nodes.get_mut(next as usize) {
            older.before = before;
        }
        let node = &mut self.nodes[at as usize];
        if let Some(transfer) = node.transfer.take() {
            node.holds = transfer.holds;
            node.holds.clear();
        }
        node.next = std::mem::replace(&mut self.unused, at);
        self.count -= 1;
    }

    /// Empties a place and moves those behind it that would not be found any more.
    fn vacate(&mut self, mut hole: usize) {
        let last = self.places.len() - 1;
        let mut place = hole;
        loop {
            place = (place + 1) & last;
            let at = self.places[place];
            if at == NONE {
                break;
            }
            let home = self.home(self.nodes[at as usize].id);
            if place.wrapping_sub(home) & last >= place.wrapping_sub(hole) & last {
                self.places[hole] = at;
                hole = place;
            }
        }
        self.places[hole] = NONE;
    }

    /// Returns any transfer of a device.
    pub(super) fn any_of(&self, device: DeviceId) -> Option<TransferId> {
        let at = *self.first.get(device.0 as usize)?;
        self.nodes.get(at as usize).map(|node| node.id)
    }
}

/// Things by numbers that it gives; none is given twice.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<(u32, Option<T>)>,
    unused: Vec<u32>,
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), unused: Vec::new() }
    }

    pub(super) fn insert(&mut self, thing: T) -> u64 {
        let at = self.unused.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32")
        });
        let (count, slot) = &mut self.slots[at as usize];
        *count = count.wrapping_add(1);
        *slot = Some(thing);
        (u64::from(*count) << 32) | u64::from(at)
    }

    pub(super) fn get(&self, number: u64) -> Option<&T> {
        let (count, slot) = self.slots.get((number & u64::from(u32::MAX)) as usize)?;
        if u64::from(*count) == number >> 32 { slot.as_ref() } else { None }
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let (count, slot) = self.slots.get_mut((number & u64::from(u32::MAX)) as usize)?;
        if u64::from(*count) == number >> 32 { slot.as_mut() } else { None }
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        self.get(number)?;
        let at = (number & u64::from(u32::MAX)) as u32;
        self.unused.push(at);
        self.slots[at as usize].1.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::ClassId;

    fn id(device: u32, number: u64) -> TransferId {
        TransferId { device: DeviceId(device), number }
    }

    #[test]
    fn a_transfer_is_found_until_it_is_removed_and_its_place_is_used_again() {
        let mut transfers = Transfers::new();
        let numbers = [5, 3, 9];
        for number in numbers {
            transfers.insert(id(2, number), Transfer::new(ClassId(0), number, 0, 1));
        }
        for number in numbers {
            assert_eq!(transfers.get(&id(2, number)).map(|one| one.born_ns), Some(number));
        }
        transfers.remove(&id(2, 3));
        assert!(transfers.get(&id(2, 3)).is_none() && transfers.get(&id(3, 5)).is_none());
        transfers.insert(id(0, 3), Transfer::new(ClassId(0), 7, 0, 1));
        assert_eq!((transfers.nodes.len(), transfers.len()), (3, 3));
        assert_eq!(transfers.get(&id(0, 3)).map(|one| one.born_ns), Some(7));
        transfers.remove(&id(2, 9));
        assert_eq!(transfers.any_of(DeviceId(2)), Some(id(2, 5)));
        transfers.remove(&id(2, 5));
        assert_eq!(transfers.any_of(DeviceId(2)), None);
    }

    #[test]
    fn many_are_found_while_others_come_and_go() {
        let mut transfers = Transfers::new();
        let there = |number: u64| !number.is_multiple_of(3) || number > 1800;
        for number in 0..2000 {
            transfers
                .insert(id(number as u32 % 7, number), Transfer::new(ClassId(0), number, 0, 1));
            if number >= 200 && !there(number - 200) {
                transfers.remove(&id((number - 200) as u32 % 7, number - 200));
            }
        }
        for number in (0..2000).filter(|number| *number < 1800) {
            let found = transfers.get(&id(number as u32 % 7, number)).map(|one| one.born_ns);
            assert_eq!(found, there(number).then_some(number), "{number}");
        }
    }

    #[test]
    fn a_number_is_not_given_twice() {
        let mut slab = Slab::new();
        let one = slab.insert('a');
        assert_eq!(slab.remove(one), Some('a'));
        let other = slab.insert('b');
        assert_eq!((slab.get(one), slab.get(other)), (None, Some(&'b')));
        assert_eq!(slab.remove(one), None);
    }
}
