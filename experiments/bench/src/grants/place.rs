//! Where sources, controllers and a collector are: on loopback, or with a router between the sources and all else, which counts
//! what it drops.
use super::failover::CAPACITY_BPS;
use crate::hop::{FIRST_PACKET_HEADERS, Line, PATH_MTU};
use anyhow::Result;
use catchment_netns::Star;
use std::net::{IpAddr, Ipv4Addr};

/// What may wait for the line, as controllers are told: 2.6 ms.
pub(super) const QUEUE_KIB: u64 = 128;
/// The payload that is granted, with headers.
const LINE: Line = Line {
    bps: CAPACITY_BPS / PATH_MTU * (PATH_MTU + FIRST_PACKET_HEADERS),
    queue_bytes: QUEUE_KIB << 10,
};

/// See the module.
#[derive(Clone, Copy)]
pub(super) struct Place<'a>(Option<&'a Star>);

impl Place<'_> {
    pub(super) const LOOPBACK: Self = Self(None);

    /// Measures at the collector of a router, or on loopback where no router can be made.
    pub(super) fn behind_router<T: Send>(
        measure: impl FnOnce(Place<'_>) -> Result<T> + Send,
    ) -> Result<T> {
        let router = LINE.join().inspect_err(|error| eprintln!("no router, so loopback: {error}"));
        let Ok(star) = router else { return measure(Self::LOOPBACK) };
        star.collector.run(|| measure(Place(Some(&star))))?
    }

    /// Returns the address of controllers and the collector.
    pub(super) const fn host(self) -> IpAddr {
        match self.0 {
            Some(_) => Star::COLLECTOR_V4,
            None => IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }

    /// Returns whether it takes consent to speak in clear.
    pub(super) const fn is_open(self) -> bool {
        self.0.is_some()
    }

    /// Does something where sources are.
    pub(super) fn at_sources<T: Send>(self, work: impl FnOnce() -> T + Send) -> Result<T> {
        match self.0 {
            Some(star) => Ok(star.sources[0].run(work)?),
            None => Ok(work()),
        }
    }

    /// Returns the bytes that the router has passed on to the collector's side, headers included; `None` without one.
    pub(super) fn passed_bytes(self) -> Result<Option<u64>> {
        Ok(self.0.map(Star::bottleneck).transpose()?.map(|counts| counts.bytes))
    }

    /// Returns the packets that the router had no room for, since it is there; `None` without one.
    fn dropped(self) -> Result<Option<u64>> {
        Ok(self.0.map(Star::bottleneck).transpose()?.map(|counts| counts.drops))
    }
}

/// What a router drops while a controller or a source is missed, and while all is as usual; nothing without a router.
pub(super) struct Drops<'a> {
    place: Place<'a>,
    seen: Option<u64>,
    pub(super) in_gaps: Option<u64>,
    pub(super) between: Option<u64>,
}

impl<'a> Drops<'a> {
    /// Counts from now on.
    pub(super) fn new(place: Place<'a>) -> Result<Self> {
        let seen = place.dropped()?;
        let none = seen.map(|_| 0);
        Ok(Self { place, seen, in_gaps: none, between: none })
    }

    /// All was as usual until now.
    pub(super) fn between(&mut self) -> Result<()> {
        let news = self.news()?;
        self.between = self.between.map(|all| all + news);
        Ok(())
    }

    /// Somebody was missed until now.
    pub(super) fn in_gap(&mut self) -> Result<()> {
        let news = self.news()?;
        self.in_gaps = self.in_gaps.map(|all| all + news);
        Ok(())
    }

    fn news(&mut self) -> Result<u64> {
        let seen = self.place.dropped()?;
        let before = std::mem::replace(&mut self.seen, seen);
        Ok(seen.zip(before).map_or(0, |(seen, before)| seen - before))
    }
}
