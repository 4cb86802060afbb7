//! The order in which requests came, for a scheduler that knows no shares.
use std::collections::BTreeMap;

/// A request that is not served completely.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) bytes: u64,
    pub(super) splits: bool,
    /// Its number among all.
    arrival: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// Requests so far.
    count: u64,
    /// The connections that can be served, by the arrival of their first request; nothing where shares count.
    connections: Option<BTreeMap<u64, usize>>,
}

impl Arrivals {
    /// Returns one that counts.
    pub(super) fn counting() -> Self {
        Self { count: 0, connections: Some(BTreeMap::new()) }
    }

    /// Makes a request of so many bytes.
    #[inline]
    pub(super) fn request(&mut self, bytes: u64, splits: bool) -> Request {
        let arrival = self.count;
        self.count += 1;
        Request { bytes, splits, arrival }
    }

    /// Returns whether shares do not count.
    #[inline]
    pub(super) fn rule(&self) -> bool {
        self.connections.is_some()
    }

    /// Returns the connection whose first request came first.
    pub(super) fn first(&self) -> Option<usize> {
        self.connections.as_ref()?.first_key_value().map(|(_, at)| *at)
    }

    /// Notes that a connection can be served.
    #[inline]
    pub(super) fn add(&mut self, first: Option<Request>, at: usize) {
        if let (Some(all), Some(first)) = (&mut self.connections, first) {
            all.insert(first.arrival, at);
        }
    }

    /// Notes that the first request of a connection is being served.
    #[inline]
    pub(super) fn remove(&mut self, first: Option<Request>) {
        if let (Some(all), Some(first)) = (&mut self.connections, first) {
            all.remove(&first.arrival);
        }
    }

    /// Notes that these connections cannot be served.
    pub(super) fn forget(&mut self, is_gone: impl Fn(usize) -> bool) {
        if let Some(all) = &mut self.connections {
            all.retain(|_, at| !is_gone(*at));
        }
    }
}
