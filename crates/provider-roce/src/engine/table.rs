//! Queue pairs by number.
//!
//! A number is `generation << 16 | place`, places counted from a random one. So a late packet for a
//! removed queue pair finds no other one in its place, and a lookup is an array access.
use super::entry::QpEntry;
use crate::dirty::MEMBERS;
use catchment_verbs::VerbsError;
use catchment_verbs::provider::full;
use std::collections::VecDeque;

struct Place {
    qpn: u32,
    generation: u8,
    entry: Option<Box<QpEntry>>,
}

/// See the module documentation.
pub(crate) struct QpTable {
    places: Vec<Place>,
    free: VecDeque<usize>,
    start: u32,
}

impl QpTable {
    /// Creates an empty table; the numbers depend on `random`.
    pub(crate) fn new(random: u32) -> Self {
        Self { places: Vec::new(), free: VecDeque::new(), start: random }
    }

    /// Adds what `make` builds for a new number; returns its index and the number.
    pub(crate) fn insert(
        &mut self,
        make: impl FnOnce(u32) -> QpEntry,
    ) -> Result<(usize, u32), VerbsError> {
        let index = self.free_place()?;
        let start = self.start;
        let place = &mut self.places[index];
        // 0 would make the special queue pairs 0 and 1 possible, 255 multicast.
        place.generation = match place.generation.wrapping_add(1) {
            0 | 0xff => 1,
            next => next,
        };
        let low = (index as u32).wrapping_add(start) & 0xffff;
        place.qpn = u32::from(place.generation) << 16 | low;
        place.entry = Some(Box::new(make(place.qpn)));
        Ok((index, place.qpn))
    }

    fn free_place(&mut self) -> Result<usize, VerbsError> {
        if let Some(index) = self.free.pop_front() {
            return Ok(index);
        }
        if self.places.len() == MEMBERS {
            return Err(full("queue pairs of a context", MEMBERS));
        }
        self.places.push(Place { qpn: 0, generation: (self.start >> 16) as u8, entry: None });
        Ok(self.places.len() - 1)
    }

    /// Removes a queue pair.
    pub(crate) fn remove(&mut self, index: usize) -> Option<Box<QpEntry>> {
        let entry = self.places.get_mut(index)?.entry.take()?;
        self.free.push_back(index);
        Some(entry)
    }

    /// Returns the index of a number.
    #[inline]
    pub(crate) fn find(&self, qpn: u32) -> Option<usize> {
        let index = (qpn.wrapping_sub(self.start) & 0xffff) as usize;
        let place = self.places.get(index)?;
        (place.qpn == qpn && place.entry.is_some()).then_some(index)
    }

    /// Returns the queue pair at an index.
    #[inline]
    pub(crate) fn get(&mut self, index: usize) -> Option<&mut QpEntry> {
        self.places.get_mut(index)?.entry.as_deref_mut()
    }

    /// Returns all queue pairs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &QpEntry)> {
        let entries = self.places.iter().enumerate();
        entries.filter_map(|(index, place)| Some((index, place.entry.as_deref()?)))
    }
}
