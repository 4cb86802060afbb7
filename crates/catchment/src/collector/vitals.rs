//! How far the streams of a session are, and whether the session's task must check them.
//!
//! One task of the collector checks the sessions, a few times a second and only if something has
//! happened. So the task of a session sleeps while its source is idle.
use super::receive::SharedProgress;
use super::ring::Ring;
use super::stream::Stream;
use catchment_verbs::sync::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// What is checked of a session.
pub(super) struct Vitals {
    ring: Mutex<Ring>,
    orders: Vec<Arc<SharedProgress>>,
    attention: Arc<Notify>,
}

/// How far a stream is, as the session sees it.
pub(super) struct StreamProgress {
    pub(super) stream: Arc<Stream>,
    pub(super) order: Arc<SharedProgress>,
    /// Since when blocks wait for this packet number.
    waits_for: Option<(u64, Instant)>,
}

impl Vitals {
    /// Of a session with this ring and these streams, which notify `attention` too.
    pub(super) fn new(ring: Ring, streams: &[StreamProgress], attention: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self {
            ring: Mutex::new(ring),
            orders: streams.iter().map(|s| s.order.clone()).collect(),
            attention,
        })
    }

    /// Wakes the session's task if the provider has lost the source, or blocks wait for others.
    /// Returns whether they do.
    pub(super) fn check(&self) -> bool {
        let unsettled = self.orders.iter().any(|order| order.has_early());
        if unsettled || self.is_broken() {
            self.attention.notify_one();
        }
        unsettled
    }

    /// Waits until a check finds something, or a stream asks for a frame again.
    pub(super) async fn attention(&self) {
        self.attention.notified().await;
    }

    /// Returns whether the provider has lost the source.
    pub(super) fn is_broken(&self) -> bool {
        self.ring.lock().is_broken()
    }

    /// Returns whether a page of the ring could not be had.
    pub(super) fn has_lost_a_page(&self) -> bool {
        self.ring.lock().has_lost_a_page()
    }

    /// Returns whether the source's proof of the path came.
    pub(super) fn was_reached(&self) -> bool {
        self.ring.lock().was_reached()
    }
}

impl StreamProgress {
    pub(super) fn new(stream: Arc<Stream>, order: Arc<SharedProgress>) -> Self {
        Self { stream, order, waits_for: None }
    }

    /// Returns the packet number that did not come for longer than `limit` although later ones did, or longer than
    /// `sent_limit` although all before `end` were sent. No correct source leaves one out: the device would
    /// stand still for ever. But one that waits for leave to send may be passed by later ones.
    pub(super) fn gap(
        &mut self,
        now: Instant,
        limit: Duration,
        sent_limit: Duration,
        end: u64,
    ) -> Option<u64> {
        let next = self.order.next_packet();
        if !self.order.has_early() && next >= end {
            self.waits_for = None;
            return None;
        }
        match self.waits_for {
            Some((number, since)) if number == next => {
                let limit = if next < end { sent_limit } else { limit };
                (now - since > limit).then_some(next)
            }
            _ => {
                self.waits_for = Some((next, now));
                None
            }
        }
    }

    /// Returns up to which number everything is with the sink, if that is at least `end`.
    pub(super) fn delivered_to(&self, end: u64) -> Option<u64> {
        let next = self.order.next_packet();
        (next >= end && self.stream.is_idle()).then_some(next)
    }
}
