//! The window and the rate on a long path, after BBR (Cardwell et al., ACM Queue 14(5), 2016).
//!
//! The configured window fills a network of one building. A path of 100 ms holds more, and nobody tells how
//! much. So the requester learns two things from acknowledgements: the greatest rate at which the path
//! delivered in the last rounds, and the shortest round trip. Their product is what the path holds; twice
//! that is the window, and the rate is the pace, so that the buffer before the bottleneck stays short. A
//! *round* lasts from a packet's departure to the acknowledgement of it.
//!
//! It begins when a round fills the configured window and needs more, on a path of [`LONG_NS`] or longer. On
//! shorter ones the window may be many times what the buffer before a slow line takes. So it is halved after a round that
//! lost many packets and took several shortest round trips, and grows again by a little in each round that lost few;
//! losses without a queue change nothing there. On long ones losses mean little (a radio loses without being full): many
//! at once end the start, shrink the window to what a probe needs, and make the next probes smaller where one of these lost them. A round in which the program had nothing to send proves a rate and disproves none.
use catchment_verbs_types::{Flow, RateLimit};

/// The shortest round trip of a long path.
const LONG_NS: u64 = 2_000_000;
/// Rounds that a greatest rate is remembered.
const ROUNDS: usize = 10;
/// How long a shortest round trip is remembered.
const MIN_RTT_NS: u64 = 10_000_000_000;
/// Gains are in hundredths. The start doubles the rate in each round: 2/ln 2, as in BBR.
const START: u64 = 289;
const DRAIN: u64 = 35;
/// One round of so many asks for more, the next gives back what then waits at the bottleneck.
const CYCLE: usize = 8;
/// How much more; less where that lost packets and found nothing: the buffer there is shorter.
const MORE: u64 = 25;
const LITTLE_MORE: u64 = 12;
/// Rounds without a quarter more that end the start.
const FULL_ROUNDS: u32 = 3;
/// One lost packet in so many ends the start in the first round without a quarter more.
const LOSSY: u64 = 25;
/// Beside twice what the path holds: acknowledgements come in groups.
const SLACK_BYTES: u64 = 512 << 10;
/// Headers of a packet of a WRITE besides IP and UDP: BTH 12, RETH 16, ICRC 4; and its UDP header.
const PACKET_BYTES: u64 = 32;
/// The start sends as much in a round trip at least.
const START_BYTES: u64 = 128 << 10;
const SECOND_NS: u64 = 1_000_000_000;
/// Shortest round trips that one takes where much waits in a queue.
const QUEUED: u64 = 4;
/// What the window of a short path is at least, and what it grows by in a round.
const SHORT_LEAST_BYTES: u64 = 32 << 10;
const SHORT_GROWTH_BYTES: u64 = 8 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The configured window or less, no rate.
    Short,
    /// Looks for the rate. The best so far, and for how many rounds it has not grown by a quarter.
    Start { best: u64, full: u32 },
    /// Lets what waits at the bottleneck leave.
    Drain { rounds: u32 },
    /// Which round of a [`CYCLE`], and whether many packets were lost in the last round.
    Steady { at: usize, lossy: bool },
}

/// What the requester knows when an acknowledgement has come, counted from the beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Packets that arrived, and their payload.
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Packets that were lost.
    pub(crate) lost: u64,
}

/// A round under way.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// The transmission whose arrival ends it.
    mark: u32,
    began_ns: u64,
    began: Progress,
    /// When the last of that was known.
    arrived_ns: u64,
    /// [`Path::sent`] when it began.
    sent: u64,
    /// The window was full.
    limited: bool,
    /// The path was empty when it began, or there was room in the window and nothing to send.
    starved: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Path {
    base_bytes: u64,
    /// The window while the path is short.
    short_bytes: u64,
    most_bytes: u64,
    /// Bytes of a packet on the wire beside its payload.
    overhead_bytes: u64,
    window_bytes: u64,
    rate_bps: Option<u64>,
    phase: Phase,
    /// What a probe asks for, beyond 100.
    asks: u64,
    /// The greatest rate before the last probe, and whether many packets were lost then, until it is known what it
    /// found.
    probed: Option<(u64, bool)>,
    /// When something last arrived.
    arrived_ns: u64,
    round: Option<Round>,
    /// Bytes sent on the wire.
    sent: u64,
    /// Wire bytes a second that were sent in the last round.
    offered: u64,
    /// Wire bytes a second of the last rounds.
    rates: [u64; ROUNDS],
    newest: usize,
    min_rtt_ns: u64,
    min_rtt_at_ns: u64,
}

impl Path {
    /// `overhead_bytes` are those of a packet besides its UDP payload.
    pub(crate) fn new(base_bytes: u64, long_bytes: u64, overhead_bytes: u32) -> Self {
        let overhead_bytes = u64::from(overhead_bytes) + PACKET_BYTES;
        Self::unknown(base_bytes, long_bytes.max(base_bytes), overhead_bytes)
    }

    /// Returns a path of which nothing is known.
    fn unknown(base_bytes: u64, most_bytes: u64, overhead_bytes: u64) -> Self {
        Self {
            base_bytes,
            short_bytes: base_bytes,
            most_bytes,
            overhead_bytes,
            window_bytes: base_bytes,
            rate_bps: None,
            phase: Phase::Short,
            asks: MORE,
            probed: None,
            arrived_ns: 0,
            round: None,
            sent: 0,
            offered: u64::MAX,
            rates: [0; ROUNDS],
            newest: 0,
            min_rtt_ns: u64::MAX,
            min_rtt_at_ns: 0,
        }
    }

    /// Forgets what it learned: the peer is another one.
    pub(crate) fn restart(&mut self) {
        *self = Self::unknown(self.base_bytes, self.most_bytes, self.overhead_bytes);
    }

    /// Returns the payload bytes that may be in flight.
    #[inline]
    pub(crate) fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    /// Returns whether the path holds more than the configured window.
    #[inline]
    pub(crate) fn is_long(&self) -> bool {
        self.rate_bps.is_some()
    }

    /// Returns how fast to send, in bits on the wire a second; `None` for as fast as the window allows.
    #[inline]
    pub(crate) fn rate_bps(&self) -> Option<u64> {
        self.rate_bps
    }

    /// Returns the transmission that the current round waits for.
    #[inline]
    pub(crate) fn mark(&self) -> Option<u32> {
        self.round.map(|round| round.mark)
    }

    /// Begins a round with transmission `mark`, which leaves now; `was_idle` if nothing was in flight.
    pub(crate) fn begin_round(&mut self, mark: u32, began: Progress, was_idle: bool, now_ns: u64) {
        let arrived_ns = if was_idle { now_ns } else { self.arrived_ns };
        self.round = Some(Round {
            mark,
            began_ns: now_ns,
            began,
            arrived_ns,
            sent: self.sent,
            limited: false,
            starved: was_idle,
        });
    }

    /// Notes that something has arrived.
    #[inline]
    pub(crate) fn on_arrival(&mut self, now_ns: u64) {
        self.arrived_ns = now_ns;
    }

    /// Counts a packet with this payload.
    #[inline]
    pub(crate) fn count(&mut self, payload_bytes: u64) {
        self.sent += payload_bytes + self.overhead_bytes;
    }

    /// Notes why sending stopped: the window was full, or else there was nothing to send.
    #[inline]
    pub(crate) fn on_pause(&mut self, is_full: bool) {
        if let Some(round) = &mut self.round {
            round.limited |= is_full;
            round.starved |= !is_full;
        }
    }

    fn on_round_trip(&mut self, rtt_ns: u64, now_ns: u64) {
        let is_old = now_ns.saturating_sub(self.min_rtt_at_ns) > MIN_RTT_NS;
        if rtt_ns <= self.min_rtt_ns || is_old {
            (self.min_rtt_ns, self.min_rtt_at_ns) = (rtt_ns, now_ns);
        }
    }

    /// Ends the round: its mark has arrived. `in_flight` counts payload bytes, `rtt_ns` is the last round
    /// trip that was measured.
    pub(crate) fn end_round(
        &mut self,
        progress: Progress,
        in_flight: u64,
        rtt_ns: u64,
        now_ns: u64,
    ) {
        self.on_round_trip(rtt_ns, now_ns);
        let Some(round) = self.round.take() else { return };
        let Some(lasted_ns) = now_ns.checked_sub(round.began_ns).filter(|ns| *ns > 0) else {
            return;
        };
        let packets = progress.packets - round.began.packets;
        let bytes = progress.bytes - round.began.bytes + packets * self.overhead_bytes;
        let a_second = |bytes: u64, ns: u64| {
            let rate = u128::from(bytes) * u128::from(SECOND_NS) / u128::from(ns);
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        // From one acknowledgement to the other: they come in groups, and the round began between two.
        let arriving_ns = now_ns.saturating_sub(round.arrived_ns).max(lasted_ns);
        // What arrives in a round was sent in the one before: more is what waited for this thread.
        self.learn(a_second(bytes, arriving_ns).min(self.offered), round.starved);
        self.offered =
            if round.starved { u64::MAX } else { a_second(self.sent - round.sent, lasted_ns) };
        let lost = progress.lost - round.began.lost;
        let lossy = lost * LOSSY > packets + lost;
        if self.phase == Phase::Short {
            self.fit_queue(&round, lossy, rtt_ns);
        }
        self.advance(&round, lossy, in_flight);
        self.decide();
    }

    /// Fits the window of a short path to the queue before its line.
    fn fit_queue(&mut self, round: &Round, lossy: bool, rtt_ns: u64) {
        let least = SHORT_LEAST_BYTES.min(self.base_bytes);
        if lossy && rtt_ns > QUEUED * self.min_rtt_ns {
            self.short_bytes = (self.short_bytes / 2).max(least);
        } else if !lossy && round.limited {
            self.short_bytes = (self.short_bytes + SHORT_GROWTH_BYTES).min(self.base_bytes);
        }
    }

    fn learn(&mut self, rate: u64, starved: bool) {
        if !starved {
            self.newest = (self.newest + 1) % ROUNDS;
            self.rates[self.newest] = rate;
        } else if rate > self.best() {
            self.rates[self.newest] = rate;
        }
    }

    /// Returns the greatest rate of the last rounds.
    fn best(&self) -> u64 {
        self.rates.iter().copied().max().unwrap_or(0)
    }

    /// Returns the bytes that the path holds.
    fn holds(&self) -> u64 {
        let bytes = u128::from(self.best()) * u128::from(self.min_rtt_ns) / u128::from(SECOND_NS);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    fn advance(&mut self, round: &Round, lossy: bool, in_flight: u64) {
        let (best, holds) = (self.best(), self.holds());
        // What the probe sent arrives in the round after it.
        let is_probing = matches!(self.phase, Phase::Steady { at: 0, .. });
        let before = if is_probing { None } else { self.probed.take() };
        let found_more = before.is_some_and(|(before, _)| best > part(before, 100 + self.asks / 2));
        if found_more {
            self.asks = MORE;
        } else if lossy && before.is_some_and(|(_, lossy)| !lossy) {
            self.asks = LITTLE_MORE;
        }
        self.phase = match self.phase {
            Phase::Short => {
                if self.min_rtt_ns >= LONG_NS && round.limited && !round.starved {
                    Phase::Start { best, full: 0 }
                } else {
                    Phase::Short
                }
            }
            _ if self.min_rtt_ns < LONG_NS => Phase::Short,
            start @ Phase::Start { .. } if round.starved => start,
            Phase::Start { best: before, .. } if best >= before / 4 * 5 => {
                Phase::Start { best, full: 0 }
            }
            Phase::Start { full, .. } if lossy || full + 1 == FULL_ROUNDS => {
                Phase::Drain { rounds: 0 }
            }
            Phase::Start { best, full } => Phase::Start { best, full: full + 1 },
            Phase::Drain { rounds } if in_flight > holds && rounds < FULL_ROUNDS => {
                Phase::Drain { rounds: rounds + 1 }
            }
            Phase::Drain { .. } => Phase::Steady { at: 0, lossy },
            Phase::Steady { .. } if found_more && !lossy => Phase::Steady { at: 0, lossy },
            // What asked for more has filled nothing: there is nothing to give back.
            Phase::Steady { at: 0, .. } if in_flight <= holds => Phase::Steady { at: 2, lossy },
            Phase::Steady { at, .. } => Phase::Steady { at: (at + 1) % CYCLE, lossy },
        };
        if let Phase::Steady { at: 0, lossy } = self.phase {
            self.probed = Some((best, lossy));
        }
    }

    fn decide(&mut self) {
        let (best, holds) = (self.best(), self.holds());
        let (rate, window_bytes) = match self.phase {
            Phase::Short => {
                (self.window_bytes, self.rate_bps) = (self.short_bytes, None);
                return;
            }
            Phase::Start { .. } => {
                let least = START_BYTES.saturating_mul(SECOND_NS) / self.min_rtt_ns.max(1);
                (part(best, START).max(least), part(holds, START))
            }
            Phase::Drain { .. } => (part(best, DRAIN), part(holds, START)),
            Phase::Steady { at, lossy } => {
                let gain = match at {
                    0 => 100 + self.asks,
                    1 => 100 - self.asks,
                    _ => 100,
                };
                // Others fill the buffer before the bottleneck too: do not fill it further.
                (part(best, gain), part(holds, if lossy { 100 + MORE } else { 200 }))
            }
        };
        let window_bytes = window_bytes.saturating_add(SLACK_BYTES);
        self.window_bytes = window_bytes.min(self.most_bytes);
        self.rate_bps = Some(rate.saturating_mul(8));
    }
}

/// Returns the flow at which a path is paced: a driver that is late catches up no more than this, because the
/// queue before the bottleneck takes what leaves at once.
pub(super) fn flow(rate_bps: u64) -> Flow {
    let flow = Flow::new(RateLimit::new(rate_bps));
    Flow { backlog_bytes: flow.burst_bytes.saturating_mul(4), ..flow }
}

fn part(whole: u64, hundredths: u64) -> u64 {
    (whole / 100).saturating_mul(hundredths)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT_NS: u64 = 200_000_000;

    /// A path, of 200 ms where nothing else is said, that is always sent as much as it may be.
    struct Sent {
        path: Path,
        progress: Progress,
        now_ns: u64,
        /// In the round before.
        packets: u64,
        /// Packets that the buffer before it has room for.
        buffer: u64,
    }

    impl Sent {
        fn new(buffer: u64) -> Self {
            let path = Path::new(4 << 20, 32 << 20, 46);
            Self { path, progress: Progress::default(), now_ns: 0, packets: 0, buffer }
        }

        /// A round over a path that carries so many packets in it. Returns how many were lost.
        fn round(&mut self, carries: u64) -> u64 {
            let window = self.path.window_bytes() / 1024;
            let paced = self.path.rate_bps().map(|bps| bps / 8 / 5 / (1024 + 46 + PACKET_BYTES));
            let packets = paced.unwrap_or(window).min(window);
            let arrived = self.packets.min(carries);
            let lost = self.packets.saturating_sub(carries + self.buffer);
            self.pass(packets, (arrived, lost), RTT_NS);
            lost
        }

        /// A round in which so many packets are sent, and so many arrive and are lost.
        fn pass(&mut self, packets: u64, (arrived, lost): (u64, u64), rtt_ns: u64) {
            self.path.begin_round(0, self.progress, false, self.now_ns);
            (0..packets).for_each(|_| self.path.count(1024));
            self.path.on_pause(true);
            self.now_ns += rtt_ns;
            self.progress.packets += arrived;
            self.progress.bytes += arrived * 1024;
            self.progress.lost += lost;
            self.path.on_arrival(self.now_ns);
            self.path.end_round(self.progress, packets * 1024, rtt_ns, self.now_ns);
            self.packets = packets;
        }

        fn megabytes_per_s(&self) -> u64 {
            self.path.rate_bps().unwrap_or(0) / 8 / 1_000_000
        }
    }

    #[test]
    fn a_probe_that_finds_more_is_followed_by_another_one() {
        let mut sent = Sent::new(u64::MAX >> 1);
        (0..30).for_each(|_| _ = sent.round(10_000));
        assert!((40..=70).contains(&sent.megabytes_per_s()), "{} MB/s", sent.megabytes_per_s());
        let rounds = (0..100).take_while(|_| {
            sent.round(20_000);
            sent.megabytes_per_s() < 100
        });
        // Twice as much is four probes: one in eight rounds would need 24 more.
        let rounds = rounds.count();
        assert!(rounds <= 12, "{rounds} rounds");
    }

    #[test]
    fn a_probe_that_only_lost_packets_is_followed_by_smaller_ones() {
        let mut sent = Sent::new(1_500);
        let lost = (0..40).map(|_| sent.round(10_000)).sum::<u64>();
        assert!(lost > 0, "the start and the first probe are longer than the buffer");
        assert_eq!((0..100).map(|_| sent.round(10_000)).sum::<u64>(), 0);
        // A path that carries more is found all the same.
        (0..60).for_each(|_| _ = sent.round(20_000));
        let best = sent.path.best();
        assert!(best >= 100_000_000, "{best} bytes a second");
    }

    /// Rounds over a path of 50 us that is always sent as much as it may be, 1,024 bytes a packet: through a buffer of so
    /// many packets before a line of 100 Mbit/s, or without a queue and with one packet in so many lost. Returns how many
    /// were sent and lost in the last 100.
    fn short_path(buffer: Option<u64>, lost_one_in: u64) -> (Path, u64, u64) {
        let (mut sent, mut sums) = (Sent::new(0), (0, 0));
        for round in 0..400 {
            let packets = sent.path.window_bytes() / 1024;
            let (lost, waits) = match buffer {
                // The first one is alone.
                Some(_) if round == 0 => (0, 0),
                Some(buffer) => (packets.saturating_sub(buffer), packets.min(buffer)),
                None => (packets / lost_one_in, 0),
            };
            sent.pass(packets, (packets - lost, lost), 50_000 + waits * 82_000);
            if round >= 300 {
                sums = (sums.0 + packets, sums.1 + lost);
            }
        }
        (sent.path, sums.0, sums.1)
    }

    #[test]
    fn the_window_of_a_short_path_fits_the_queue_before_a_slow_line() {
        let (path, sent, lost) = short_path(Some(100), 0);
        assert!(!path.is_long());
        assert!(lost * 33 < sent, "{lost} of {sent} are lost, of which the queue holds 100");
        assert!(sent > 100 * 50, "half of the queue at least is full: {sent}");
    }

    #[test]
    fn losses_without_a_queue_leave_the_window_of_a_short_path_alone() {
        let (path, ..) = short_path(None, 5);
        assert_eq!(path.window_bytes(), 4 << 20);
    }

    /// What came in the pause before a round is not what the path delivered in it.
    #[test]
    fn acknowledgements_that_come_in_groups_prove_no_greater_rate() {
        let mut path = Path::new(4 << 20, 32 << 20, 46);
        let progress = |packets: u64| Progress { packets, bytes: packets * 1024, lost: 0 };
        path.on_arrival(0);
        // Nothing was heard for half a round trip, in which as much arrived as in any other.
        path.begin_round(0, progress(0), false, RTT_NS / 2);
        path.on_pause(true);
        let now_ns = RTT_NS / 2 + RTT_NS;
        path.on_arrival(now_ns);
        path.end_round(progress(15_000), 4 << 20, RTT_NS, now_ns);
        let wire = 10_000 * (1024 + 46 + PACKET_BYTES) * 5;
        assert!(path.best() <= wire, "{} of {wire} bytes a second", path.best());
    }
}
