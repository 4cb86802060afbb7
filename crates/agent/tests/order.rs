//! Whatever applications ask and whenever the device is done: each request is served once, whole and in order.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
use catchment_agent::scheduler::{ConnectionId, LEAST_COST_BYTES, Limits, Scheduler};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

const CHUNK: u32 = 4096;

proptest! {
    /// Whatever happens: each request is served once, whole, in the order of its connection; nothing is
    /// served beyond the places; somebody is served while somebody may be.
    #[test]
    fn requests_are_served_once_and_in_order(
        steps in prop::collection::vec((0u8..10, 0usize..6, 0u64..20_000, any::<bool>()), 1..400),
        request_bytes in 64u32..3 * CHUNK,
    ) {
        let mut model = Model::new(request_bytes);
        for (what, who, bytes, splits) in steps {
            model.step(what, who, bytes, splits)?;
        }
        model.drain()?;
    }
}

/// A connection as the caller knows it.
#[derive(Default)]
struct Known {
    waiting: VecDeque<(u64, bool)>,
    offset: u64,
    flying: VecDeque<u64>,
    paused: bool,
}

const PLACES: u32 = 3;
const APPLICATIONS: usize = 3;
const WINDOW: u64 = 16 * CHUNK as u64;

struct Model {
    scheduler: Scheduler,
    connections: BTreeMap<ConnectionId, Known>,
    ids: Vec<ConnectionId>,
}

impl Model {
    fn new(request_bytes: u32) -> Self {
        let limits = Limits { chunk_bytes: CHUNK, window_bytes: WINDOW, request_bytes };
        let mut scheduler = Scheduler::new(limits);
        let applications: Vec<_> = (0..APPLICATIONS).map(|_| scheduler.add_application()).collect();
        let rates: Vec<_> = applications.iter().copied().zip([1.0, 2.5, 100.0]).collect();
        scheduler.set_shares(&rates);
        let ids: Vec<_> = (0..6)
            .map(|n| scheduler.add_connection(applications[n % APPLICATIONS], PLACES))
            .collect();
        let connections = ids.iter().map(|id| (*id, Known::default())).collect();
        Self { scheduler, connections, ids }
    }

    fn step(
        &mut self,
        what: u8,
        who: usize,
        bytes: u64,
        splits: bool,
    ) -> Result<(), TestCaseError> {
        let id = self.ids[who];
        let known = self.connections.get_mut(&id).unwrap();
        match what {
            0..=3 => {
                known.waiting.push_back((bytes, splits));
                self.scheduler.push(id, bytes, splits);
            }
            4..=5 => drop(self.serve()?),
            6..=7 => {
                if let Some(bytes) = known.flying.pop_front() {
                    self.scheduler.done(id, bytes);
                }
            }
            8 if known.paused => {
                known.paused = false;
                self.scheduler.resume(id);
            }
            8 => {
                known.paused = true;
                self.scheduler.pause(id);
            }
            _ => {
                self.scheduler.clear(id, known.flying.make_contiguous());
                *known = Known { paused: known.paused, ..Known::default() };
            }
        }
        Ok(())
    }

    /// Returns whether only the application of this connection has anything to do.
    fn is_alone(&self, id: ConnectionId) -> bool {
        let owner = |id| self.ids.iter().position(|known| *known == id).unwrap() % APPLICATIONS;
        let mut all = self.connections.iter();
        all.all(|(other, known)| {
            owner(*other) == owner(id) || (known.waiting.is_empty() && known.flying.is_empty())
        })
    }

    fn serve(&mut self) -> Result<bool, TestCaseError> {
        let Some(chunk) = self.scheduler.next_chunk() else {
            // Nothing waits that could go: no request, no place, a pause, or the window.
            for known in self.connections.values() {
                let could = !known.waiting.is_empty() && !known.paused && known.flying.is_empty();
                let others = self.connections.values().any(|other| !other.flying.is_empty());
                prop_assert!(!could || others, "something may go and nothing is in flight");
            }
            return Ok(false);
        };
        let is_alone = self.is_alone(chunk.connection);
        let known = self.connections.get_mut(&chunk.connection).unwrap();
        prop_assert!(!known.paused);
        let (whole, splits) = *known.waiting.front().expect("only what was asked is served");
        prop_assert_eq!(chunk.offset, known.offset);
        let longest = if is_alone { WINDOW } else { u64::from(CHUNK) };
        prop_assert!(chunk.bytes <= longest || !splits);
        known.offset += chunk.bytes;
        prop_assert_eq!(chunk.last, known.offset == whole);
        prop_assert!(chunk.last || chunk.bytes >= LEAST_COST_BYTES);
        if chunk.last {
            known.waiting.pop_front();
            known.offset = 0;
        }
        known.flying.push_back(chunk.bytes);
        prop_assert!(known.flying.len() <= PLACES as usize);
        Ok(true)
    }

    /// Lets the device finish everything: then nothing may be left.
    fn drain(&mut self) -> Result<(), TestCaseError> {
        for (id, known) in &mut self.connections {
            if std::mem::take(&mut known.paused) {
                self.scheduler.resume(*id);
            }
        }
        loop {
            while self.serve()? {}
            let flying = self.connections.iter_mut();
            let next = flying.filter_map(|(id, k)| Some((*id, k.flying.pop_front()?))).next();
            let Some((id, bytes)) = next else { break };
            self.scheduler.done(id, bytes);
        }
        prop_assert!(self.connections.values().all(|known| known.waiting.is_empty()));
        Ok(())
    }
}
