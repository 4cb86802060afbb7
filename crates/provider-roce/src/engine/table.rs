//! Queue pairs by number.
//!
//! Every number is drawn from the system's random source, so that nobody guesses those of others. The
//! last number of a place is not drawn again before the place has another: a late packet for a removed
//! queue pair finds no other one.
use super::entry::QpEntry;
use crate::dirty::MEMBERS;
use catchment_verbs::VerbsError;
use catchment_verbs::provider::{MAX_24_BITS, full, random};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// 0 and 1 are the special queue pairs, and all ones mean multicast.
const FIRST_QPN: u32 = 2;

struct Place {
    qpn: u32,
    entry: Option<Box<QpEntry>>,
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct QpTable {
    places: Vec<Place>,
    free: VecDeque<usize>,
    /// The place of each number, also of one whose queue pair is gone. Numbers are drawn by chance here, so
    /// no peer can choose ones that collide, and the fastest hash does.
    numbers: FxHashMap<u32, usize>,
}

impl QpTable {
    /// Adds what `make` builds for a new number; returns its index and the number.
    pub(crate) fn insert(
        &mut self,
        make: impl FnOnce(u32) -> QpEntry,
    ) -> Result<(usize, u32), VerbsError> {
        let qpn = self.draw()?;
        let index = self.free_place()?;
        let place = &mut self.places[index];
        self.numbers.remove(&place.qpn);
        *place = Place { qpn, entry: Some(Box::new(make(qpn))) };
        self.numbers.insert(qpn, index);
        Ok((index, qpn))
    }

    fn draw(&self) -> Result<u32, VerbsError> {
        loop {
            let qpn = random()? & MAX_24_BITS;
            if (FIRST_QPN..MAX_24_BITS).contains(&qpn) && !self.numbers.contains_key(&qpn) {
                return Ok(qpn);
            }
        }
    }

    fn free_place(&mut self) -> Result<usize, VerbsError> {
        if let Some(index) = self.free.pop_front() {
            return Ok(index);
        }
        if self.places.len() == MEMBERS {
            return Err(full("queue pairs of a context", MEMBERS));
        }
        self.places.push(Place { qpn: 0, entry: None });
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
        let index = *self.numbers.get(&qpn)?;
        self.places[index].entry.is_some().then_some(index)
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
