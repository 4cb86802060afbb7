//! Blocks of the classes, cut from the region, and room for tables.
use crate::layout::{CLASSES, UNIT_BYTES, class_units};

/// Units that are cut into blocks at a time.
const SLAB_UNITS: u32 = 1024;
/// A block may be so many classes larger than needed when there is no other.
const LARGER: usize = 4;

/// Memory that was never a block, and blocks that are free. Memory that was cut into blocks stays so: what a
/// client remembers as the beginning of an item is one for ever.
#[derive(Debug)]
pub(super) struct Heap {
    /// Places that nobody has used as blocks: where, units.
    areas: Vec<(u32, u32)>,
    free: Vec<Vec<u32>>,
}

impl Heap {
    /// All of a region but its first unit.
    pub(super) fn new(region_bytes: u64) -> Self {
        let units = u32::try_from(region_bytes / UNIT_BYTES).unwrap_or(u32::MAX);
        Self { areas: vec![(1, units.saturating_sub(1))], free: vec![Vec::new(); CLASSES] }
    }

    /// Takes room for a table.
    pub(super) fn take_area(&mut self, units: u32) -> Option<u32> {
        let fits = |(_, has): &&mut (u32, u32)| *has >= units;
        let area = self.areas.iter_mut().find(fits)?;
        let at = area.0;
        *area = (at + units, area.1 - units);
        self.areas.retain(|(_, units)| *units > 0);
        Some(at)
    }

    /// Gives the room of a table back.
    pub(super) fn give_area(&mut self, at: u32, units: u32) {
        match self.areas.iter_mut().find(|(begins, _)| *begins == at + units) {
            Some(area) => *area = (at, area.1 + units),
            None => self.areas.push((at, units)),
        }
    }

    /// Takes a free block of a class, or one a little larger; returns it with its class.
    pub(super) fn take(&mut self, class: usize) -> Option<(u32, usize)> {
        if let Some(at) = self.free[class].pop() {
            return Some((at, class));
        }
        if self.cut(class) {
            return self.free[class].pop().map(|at| (at, class));
        }
        let larger = class + 1..CLASSES.min(class + 1 + LARGER);
        larger.into_iter().find_map(|class| self.free[class].pop().map(|at| (at, class)))
    }

    /// Gives a block back.
    pub(super) fn give(&mut self, at: u32, class: usize) {
        self.free[class].push(at);
    }

    fn cut(&mut self, class: usize) -> bool {
        let units = class_units(class);
        let most = (SLAB_UNITS / units).max(1) * units;
        let room = self.areas.iter().map(|(_, units)| *units).max().unwrap_or(0);
        let slab = most.min(room / units * units);
        if slab == 0 {
            return false;
        }
        let Some(at) = self.take_area(slab) else { return false };
        self.free[class].extend((0..slab / units).rev().map(|n| at + n * units));
        true
    }
}
