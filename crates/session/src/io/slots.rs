//! Places for unfinished handshakes. There are few, and a peer that keeps the others waiting loses
//! its place.
use crate::refusal::{Refusal, RefusalCode};
use catchment_verbs::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

#[derive(Debug)]
pub(super) struct Slots {
    max: usize,
    grace: Duration,
    places: Mutex<Places>,
}

#[derive(Debug, Default)]
struct Places {
    next_id: u64,
    held: BTreeMap<u64, Place>,
}

#[derive(Debug)]
struct Place {
    /// Since when the peer is expected to do something; `None` while it is this side's turn.
    peer_since: Option<Instant>,
    evicted: Arc<Notify>,
}

impl Slots {
    pub(super) fn new(max: usize, grace: Duration) -> Arc<Self> {
        Arc::new(Self { max, grace, places: Mutex::default() })
    }

    /// Takes a place for a new connection, whose peer is expected to speak. When all are taken, the
    /// peer that has been awaited longest loses its place, if that is longer than the grace; otherwise
    /// there is none.
    pub(super) fn take(self: &Arc<Self>, now: Instant) -> Option<Slot> {
        let mut places = self.places.lock();
        if places.held.len() >= self.max {
            places.evict(now, self.grace)?;
        }
        let id = places.next_id;
        places.next_id += 1;
        let evicted = Arc::new(Notify::new());
        let place = Place { peer_since: Some(now), evicted: evicted.clone() };
        places.held.insert(id, place);
        drop(places);
        Some(Slot { id, slots: self.clone(), evicted })
    }

    /// Returns how many places are held.
    pub(super) fn held(&self) -> usize {
        self.places.lock().held.len()
    }
}

impl Places {
    fn evict(&mut self, now: Instant, grace: Duration) -> Option<()> {
        let slow = |(&id, place): (&u64, &Place)| place.peer_since.map(|since| (since, id));
        let (since, id) = self.held.iter().filter_map(slow).min()?;
        if now.saturating_duration_since(since) < grace {
            return None;
        }
        // The Notify keeps the permit until its holder waits.
        self.held.remove(&id)?.evicted.notify_one();
        Some(())
    }
}

/// A place among the unfinished handshakes of a [`super::Listener`]; dropping it frees it.
///
/// Keep it until the session is Ready (or over). When it is the source's turn (after Welcome), call
/// [`Slot::peer_turn`]: a source that keeps the collector waiting is then evicted when places run
/// out, which [`Slot::evicted`] reports.
#[derive(Debug)]
pub struct Slot {
    id: u64,
    slots: Arc<Slots>,
    evicted: Arc<Notify>,
}

impl Slot {
    /// Starts to wait for the peer at `now`.
    pub fn peer_turn(&self, now: Instant) {
        self.set(Some(now));
    }

    /// Stops to wait for the peer; the place cannot be lost.
    pub fn our_turn(&self) {
        self.set(None);
    }

    fn set(&self, peer_since: Option<Instant>) {
        if let Some(place) = self.slots.places.lock().held.get_mut(&self.id) {
            place.peer_since = peer_since;
        }
    }

    /// Returns once the place is lost, with the refusal to send: end the handshake.
    ///
    /// # Cancellation
    /// May be cancelled before it returns; call it again.
    pub async fn evicted(&self) -> Refusal {
        self.evicted.notified().await;
        let grace = self.slots.grace;
        let reason = format!("this source took longer than {grace:?} while others wait");
        Refusal::new(RefusalCode::Timeout, reason, "answer at once, or try again")
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.places.lock().held.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_millis(500);

    async fn is_evicted(slot: &Slot) -> bool {
        tokio::time::timeout(Duration::from_millis(1), slot.evicted()).await.is_ok()
    }

    #[tokio::test]
    async fn the_peer_awaited_longest_gives_way_after_the_grace() {
        let slots = Slots::new(2, GRACE);
        let start = Instant::now();
        let first = slots.take(start).unwrap();
        let second = slots.take(start + GRACE / 2).unwrap();
        assert!(slots.take(start + GRACE / 2).is_none(), "both are young");
        let third = slots.take(start + GRACE).unwrap();
        assert!(is_evicted(&first).await);
        assert!(!is_evicted(&second).await && !is_evicted(&third).await);
        drop(first);
        assert!(slots.take(start + GRACE).is_none(), "an old slot frees nothing");
    }

    #[tokio::test]
    async fn a_peer_that_waits_for_us_never_gives_way() {
        let slots = Slots::new(1, GRACE);
        let start = Instant::now();
        let slot = slots.take(start).unwrap();
        slot.our_turn();
        assert!(slots.take(start + 10 * GRACE).is_none());
        slot.peer_turn(start + 10 * GRACE);
        assert!(slots.take(start + 10 * GRACE).is_none());
        assert!(slots.take(start + 11 * GRACE).is_some());
        assert!(is_evicted(&slot).await);
    }

    #[test]
    fn a_dropped_slot_is_free() {
        let slots = Slots::new(1, GRACE);
        let start = Instant::now();
        drop(slots.take(start).unwrap());
        assert!(slots.take(start).is_some());
    }
}
