//! Pacing: how fast a queue pair sends.
//!
//! A [`TokenBucket`] spreads data packets at a rate: the one that the driver set, reduced by
//! congestion notifications ([`rate`]), or the one that a long path carries ([`path`]). The other
//! direction, notifying a sender whose packets arrive marked, is in [`notify`].
//!
//! ACK, NAK and CNP packets are not paced: they are small, and delaying them costs more than it
//! saves.
mod notify;
mod path;
mod rate;

pub(crate) use notify::Notifier;
pub(crate) use path::{Path, Progress};

use catchment_verbs_types::{Flow, TokenBucket};
use rate::RateControl;
use std::time::Duration;

/// Rate limit and reaction to congestion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacingConfig {
    /// Bits per second on the wire; `None` sends as fast as the driver takes packets.
    pub rate_bps: Option<u64>,
    /// Bytes that may leave at once after a pause. At least a GSO batch, otherwise the driver sends
    /// small ones.
    pub burst_bytes: u32,
    /// Bytes that may leave at once with a backlog: how much a late driver may catch up. At least a
    /// burst.
    pub backlog_bytes: u64,
    /// Overhead of a packet on the wire besides its UDP payload: 14 Ethernet, 20 IPv4 (40 IPv6),
    /// 8 UDP, 4 frame check.
    pub overhead_bytes: u32,
    /// Lower the rate when the peer sends congestion notifications (CNP). For a driver that sends packets
    /// as ECN capable: no switch marks others, so who notifies of them is a forger.
    pub react_to_cnp: bool,
    /// The rate before the first cut when `rate_bps` is `None`, in bits per second. Once the rate
    /// has recovered to it, sending is unpaced again.
    pub line_rate_bps: u64,
    /// Minimum time between CNPs; `None` sends no CNPs.
    pub cnp_interval: Option<Duration>,
}

impl Default for PacingConfig {
    fn default() -> Self {
        Self {
            rate_bps: None,
            burst_bytes: 64 << 10,
            backlog_bytes: 64 << 10,
            overhead_bytes: 46,
            react_to_cnp: true,
            line_rate_bps: 10_000_000_000,
            cnp_interval: Some(Duration::from_micros(50)),
        }
    }
}

/// The pacer of one queue pair.
#[derive(Debug)]
pub(crate) struct Pacer {
    config: PacingConfig,
    bucket: TokenBucket,
    /// What the path carries of what the requester sends, if that is known.
    path_bps: Option<u64>,
    path_bucket: TokenBucket,
    /// When a packet may leave, set by [`Pacer::may_send`] if none may now.
    pub(crate) opens_ns: u64,
    rate: RateControl,
    /// When the last data packet left.
    sent_ns: Option<u64>,
    /// When a CNP last counted.
    cnp_ns: Option<u64>,
}

/// How long a packet that nobody acknowledges, of a READ response or an unreliable service, may be under way.
const FLIGHT_NS: u64 = 100_000_000;

impl Pacer {
    pub(crate) fn new(config: PacingConfig) -> Self {
        Self {
            config,
            bucket: TokenBucket::default(),
            path_bps: None,
            path_bucket: TokenBucket::default(),
            opens_ns: 0,
            rate: RateControl::new(config.rate_bps.unwrap_or(config.line_rate_bps)),
            sent_ns: None,
            cnp_ns: None,
        }
    }

    /// Sets another rate limit; what congestion took stays taken.
    pub(crate) fn configure(&mut self, config: PacingConfig) {
        self.config = config;
        self.rate.set_limit(config.rate_bps.unwrap_or(config.line_rate_bps));
        self.bucket.restart();
        self.path_bucket.restart();
    }

    /// Resumes after a pause with nothing to send.
    pub(crate) fn resume(&mut self) {
        self.bucket.resume();
        self.path_bucket.resume();
    }

    /// Sets what the path carries ([`Path::rate_bps`]). That is learned from what the requester sends, and holds nobody else:
    /// where it sends READ requests alone it says nothing of READ responses to the peer.
    #[inline]
    pub(crate) fn set_path_bps(&mut self, path_bps: Option<u64>) {
        self.path_bps = path_bps;
    }

    /// Returns the current rate in bits per second; `None` if unpaced.
    pub(crate) fn rate_bps(&mut self, now_ns: u64) -> Option<u64> {
        let allowed = self.rate.current_bps(now_ns).or(self.config.rate_bps);
        match (allowed, self.path_bps) {
            (Some(allowed), Some(path)) => Some(allowed.min(path)),
            (allowed, path) => allowed.or(path),
        }
    }

    /// Reduces the rate after a congestion notification, once in a round trip, while packets are in flight:
    /// `is_awaited` if the peer has to acknowledge some. Returns whether it counts.
    pub(crate) fn on_cnp(&mut self, now_ns: u64, is_awaited: bool, round_trip_ns: u64) -> bool {
        let since = |at_ns: u64| now_ns.saturating_sub(at_ns);
        let in_flight = is_awaited || self.sent_ns.is_some_and(|at_ns| since(at_ns) < FLIGHT_NS);
        let is_first = self.cnp_ns.is_none_or(|at_ns| since(at_ns) >= round_trip_ns);
        let counts = self.config.react_to_cnp && in_flight && is_first;
        if counts {
            self.cnp_ns = Some(now_ns);
            self.rate.on_cnp(now_ns, round_trip_ns);
        }
        counts
    }

    /// Returns whether a data packet may leave now.
    pub(crate) fn may_send(&mut self, now_ns: u64) -> bool {
        let Some(flow) = self.flow(now_ns) else { return true };
        let may = self.bucket.may_send(now_ns, flow);
        if !may {
            self.opens_ns = self.bucket.opens_ns(flow);
        }
        may
    }

    /// The same of a packet of the requester, which the path holds too.
    pub(crate) fn may_request(&mut self, now_ns: u64) -> bool {
        if !self.may_send(now_ns) {
            return false;
        }
        let Some(flow) = self.path_bps.map(path::flow) else { return true };
        let may = self.path_bucket.may_send(now_ns, flow);
        if !may {
            self.opens_ns = self.path_bucket.opens_ns(flow);
        }
        may
    }

    /// Charges a data packet of this UDP payload.
    pub(crate) fn on_sent(&mut self, now_ns: u64, udp_bytes: usize) {
        self.sent_ns = Some(now_ns);
        if let Some(flow) = self.flow(now_ns) {
            let bytes = self.wire_bytes(udp_bytes);
            self.bucket.take(now_ns, bytes, flow);
            self.rate.on_sent(bytes);
        }
    }

    /// The same of a packet of the requester.
    pub(crate) fn on_requested(&mut self, now_ns: u64, udp_bytes: usize) {
        self.on_sent(now_ns, udp_bytes);
        if let Some(flow) = self.path_bps.map(path::flow) {
            self.path_bucket.take(now_ns, self.wire_bytes(udp_bytes), flow);
        }
    }

    fn wire_bytes(&self, udp_bytes: usize) -> u64 {
        udp_bytes as u64 + u64::from(self.config.overhead_bytes)
    }

    fn flow(&mut self, now_ns: u64) -> Option<Flow> {
        let rate_bps = self.rate.current_bps(now_ns).or(self.config.rate_bps)?;
        let burst_bytes = self.config.burst_bytes.into();
        Some(Flow {
            rate_bps,
            burst_bytes,
            backlog_bytes: self.config.backlog_bytes.max(burst_bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Returns the number of bytes that leave from `start` to `end` if packets of 1024 + 46 bytes
    /// are always ready.
    fn sent(pacer: &mut Pacer, start: u64, end: u64) -> u64 {
        let mut now = start;
        let mut bytes = 0;
        while now < end {
            if pacer.may_send(now) {
                pacer.on_sent(now, 1024);
                bytes += 1024 + 46;
            } else {
                now = pacer.opens_ns;
            }
        }
        bytes
    }

    #[test]
    fn a_rate_is_kept_whatever_it_is() {
        for rate_bps in [1_000_000, 1_000_000_000, 40_000_000_000] {
            let mut pacer =
                Pacer::new(PacingConfig { rate_bps: Some(rate_bps), ..PacingConfig::default() });
            let span = SECOND / (rate_bps / 1_000_000).min(100);
            let want = rate_bps / 8 * span / SECOND;
            let got = sent(&mut pacer, SECOND, SECOND + span);
            let slack = (64 << 10) + 2 * 1070;
            assert!(
                got >= want - want / 1000 && got <= want + slack,
                "{rate_bps}: {got} of {want}"
            );
        }
    }

    #[test]
    fn a_pause_gives_one_burst_and_no_more() {
        let mut pacer =
            Pacer::new(PacingConfig { rate_bps: Some(8_000_000), ..PacingConfig::default() });
        let mut at_once = 0;
        while pacer.may_send(100 * SECOND) {
            pacer.on_sent(100 * SECOND, 1024);
            at_once += 1070;
        }
        assert!((64 << 10..=(64 << 10) + 1070).contains(&at_once), "{at_once}");
    }

    #[test]
    fn without_a_rate_nothing_waits_until_a_cnp_comes() {
        let mut pacer = Pacer::new(PacingConfig::default());
        for _ in 0..10_000 {
            assert!(pacer.may_send(0));
            pacer.on_sent(0, 4096);
        }
        assert!(pacer.on_cnp(0, false, 0));
        assert_eq!(pacer.rate_bps(1), Some(5_000_000_000));
        assert_eq!(pacer.rate_bps(10 * SECOND), None);
    }

    /// A requester that sends READ requests alone learns a rate of some bytes a round trip: READ responses to the peer,
    /// which the same queue pair sends, wait for nothing.
    #[test]
    fn a_path_holds_what_is_requested_and_no_answers() {
        let mut pacer = Pacer::new(PacingConfig::default());
        pacer.set_path_bps(Some(40_000));
        while pacer.may_request(SECOND) {
            pacer.on_requested(SECOND, 1024);
        }
        assert!(pacer.opens_ns > SECOND);
        for _ in 0..10_000 {
            assert!(pacer.may_send(SECOND));
            pacer.on_sent(SECOND, 4096);
        }
        assert_eq!(pacer.rate_bps(SECOND), Some(40_000));
    }

    #[test]
    fn a_cnp_counts_once_in_a_round_trip_and_while_packets_are_in_flight() {
        const MS: u64 = 1_000_000;
        let mut pacer = Pacer::new(PacingConfig::default());
        assert!(!pacer.on_cnp(SECOND, false, 10 * MS), "nothing was ever sent");
        pacer.on_sent(SECOND, 1024);
        let counted = (0..1000).filter(|n| pacer.on_cnp(SECOND + n * MS / 25, false, 10 * MS));
        assert_eq!(counted.count(), 4, "40 ms of 25,000 CNPs a second");
        assert!(!pacer.on_cnp(3 * SECOND, false, 10 * MS), "what was sent has arrived");
        assert!(pacer.on_cnp(4 * SECOND, true, 10 * MS));
        let config = PacingConfig { react_to_cnp: false, ..PacingConfig::default() };
        let mut unmarked = Pacer::new(config);
        unmarked.on_sent(0, 1024);
        assert!(!unmarked.on_cnp(1, true, 10 * MS));
        assert_eq!(unmarked.rate_bps(1), None);
    }
}
