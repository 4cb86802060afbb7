//! Places for connections: few in all, fewer for one address. When they are taken, the connection that
//! has stood still longest gives way, so that nobody keeps the next one out.
use crate::sync::lock;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::sync::Notify;

const PLACES: usize = 256;
/// A browser opens at most six connections to a page, and somebody may look at many pages.
const PLACES_OF_ADDRESS: usize = 64;

/// The places of a page.
#[derive(Debug)]
pub(super) struct Places {
    start: Instant,
    held: Mutex<BTreeMap<u64, Held>>,
    taken: AtomicU64,
}

#[derive(Debug)]
struct Held {
    who: IpAddr,
    signs: Arc<Signs>,
}

/// What a connection and the table tell each other.
#[derive(Debug, Default)]
struct Signs {
    /// When bytes went in or out last, in microseconds since the page started.
    moved_us: AtomicU64,
    evicted: Notify,
}

impl Places {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { start: Instant::now(), held: Mutex::default(), taken: AtomicU64::new(0) })
    }

    /// Takes a place for a connection from `address`. With too many of the address, the one of them that
    /// stood still longest loses its place; with too many in all, one of the address that has most.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr) -> Place {
        let who = network(address);
        let mut held = lock(&self.held);
        if let Some(crowd) = crowd(&held, who) {
            evict(&mut held, crowd);
        }
        let (id, signs) = (self.taken.fetch_add(1, Relaxed), Arc::new(Signs::default()));
        held.insert(id, Held { who, signs: signs.clone() });
        drop(held);
        let place = Place { id, places: self.clone(), signs };
        place.moved();
        place
    }
}

/// Whoever has the address has all addresses of its network in IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// Returns whose connection has to give way to one of `who`, if any has to.
fn crowd(held: &BTreeMap<u64, Held>, who: IpAddr) -> Option<IpAddr> {
    let mut counts = BTreeMap::new();
    for one in held.values() {
        *counts.entry(one.who).or_insert(0) += 1;
    }
    if counts.get(&who).is_some_and(|count| *count >= PLACES_OF_ADDRESS) {
        return Some(who);
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.filter(|_| held.len() >= PLACES).map(|(who, _)| who)
}

fn evict(held: &mut BTreeMap<u64, Held>, crowd: IpAddr) {
    let of_crowd = held.iter().filter(|(_, one)| one.who == crowd);
    let stillest = of_crowd.min_by_key(|(_, one)| one.signs.moved_us.load(Relaxed));
    if let Some(id) = stillest.map(|(id, _)| *id)
        && let Some(one) = held.remove(&id)
    {
        // The permit stays until the connection waits for it.
        one.signs.evicted.notify_one();
    }
}

/// The place of a connection; dropping it frees it.
#[derive(Debug)]
pub(super) struct Place {
    id: u64,
    places: Arc<Places>,
    signs: Arc<Signs>,
}

impl Place {
    /// Notes that bytes went in or out.
    pub(super) fn moved(&self) {
        let us = self.places.start.elapsed().as_micros();
        self.signs.moved_us.store(u64::try_from(us).unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns once the place is lost: close the connection.
    pub(super) async fn evicted(&self) {
        self.signs.evicted.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.places.held).remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_lost(place: &Place) -> bool {
        !lock(&place.places.held).contains_key(&place.id)
    }

    #[test]
    fn who_has_many_connections_loses_the_one_that_stood_still_longest() {
        let places = Places::new();
        let other = places.take("10.0.0.2".parse().unwrap());
        let take = || places.take("10.0.0.1".parse().unwrap());
        let many: Vec<_> = (0..PLACES_OF_ADDRESS).map(|_| take()).collect();
        // The clock has to go on between two connections that are compared.
        std::thread::sleep(std::time::Duration::from_millis(1));
        many[0].moved();
        let next = take();
        let lost = many.iter().filter(|place| is_lost(place)).count();
        assert_eq!((lost, is_lost(&many[0])), (1, false));
        assert!(!is_lost(&next) && !is_lost(&other));
    }

    #[test]
    fn with_all_places_taken_the_address_with_most_gives_way() {
        let places = Places::new();
        let take = |c: usize| places.take(format!("2001:db8:0:{c:x}::{c:x}").parse().unwrap());
        let crowd: Vec<_> = (0..PLACES_OF_ADDRESS).map(|_| take(1)).collect();
        let others: Vec<_> = (PLACES_OF_ADDRESS..PLACES).map(|i| take(2 + i)).collect();
        let next = take(0xffff);
        assert_eq!(crowd.iter().filter(|place| is_lost(place)).count(), 1);
        assert!(!others.iter().any(is_lost) && !is_lost(&next));
        drop(crowd);
        let more: Vec<_> = (0..8).map(|i| take(0x8000 + i)).collect();
        assert!(!others.iter().chain(&more).any(is_lost));
    }
}
