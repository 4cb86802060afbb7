//! What becomes of a link: how much of it may be granted, is granted, is begun, and why the rest is not.
use super::packet::Network;
use catchment_control::admission::source_side::{Idle, SourceSide};
use std::collections::VecDeque;

/// Between two entries of a [`Ledger`].
const STEP_NS: u64 = 10_000_000;

/// Bits, and events, from the beginning on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    /// What the controller may grant.
    pub(super) working: f64,
    /// What it has granted.
    pub(super) granted: f64,
    /// The time of chunks that had begun.
    pub(super) begun: f64,
    /// Granted to sources with a window in force that sent nothing: as much was on its way as may be,
    pub(super) full: f64,
    /// all had begun and was not acknowledged,
    pub(super) ended: f64,
    /// nothing more fitted in the window.
    pub(super) stopping: f64,
    /// By how much queue pairs with something to send were slower than their rate.
    pub(super) held_back: f64,
    pub(super) packets: u64,
    pub(super) resent: u64,
    pub(super) timeouts: u64,
}

/// A chunk: from when to when it leaves, and how fast.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    from_ns: u64,
    until_ns: u64,
    rate_bps: u64,
}

/// Accounts at several times.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    now: Account,
    now_ns: u64,
    entries: Vec<(u64, Account)>,
    leaving: Vec<VecDeque<Leaving>>,
}

impl Ledger {
    pub(super) fn new(sources: usize) -> Self {
        Self { leaving: vec![VecDeque::new(); sources], ..Self::default() }
    }

    /// Notes a chunk that begins.
    pub(super) fn begin(&mut self, source: usize, bytes: u64, rate_bps: u64, until_ns: u64) {
        let takes_ns = (bytes * 8_000_000_000).div_ceil(rate_bps.max(1));
        let from_ns = until_ns.saturating_sub(takes_ns);
        self.leaving[source].push_back(Leaving { from_ns, until_ns, rate_bps });
    }

    /// Goes on to a time, to which the controller may grant and has granted these rates.
    pub(super) fn advance(&mut self, now_ns: u64, working_bps: u64, granted_bps: u64) {
        let seconds = (now_ns - self.now_ns) as f64 / 1e9;
        self.now.working += working_bps as f64 * seconds;
        self.now.granted += granted_bps as f64 * seconds;
    }

    /// Adds what a source did with its time.
    pub(super) fn add_source(&mut self, source: usize, now_ns: u64, side: &SourceSide) {
        let from_ns = self.now_ns;
        let seconds = |until_ns: u64, from_ns: u64| until_ns.saturating_sub(from_ns) as f64 / 1e9;
        for chunk in &self.leaving[source] {
            let took = seconds(chunk.until_ns.min(now_ns), chunk.from_ns.max(from_ns));
            self.now.begun += chunk.rate_bps as f64 * took;
        }
        while self.leaving[source].front().is_some_and(|chunk| chunk.until_ns <= now_ns) {
            self.leaving[source].pop_front();
        }
        for (rate_bps, why) in side.idle(from_ns) {
            let bits = rate_bps as f64 * seconds(now_ns, from_ns);
            match why {
                Idle::Full => self.now.full += bits,
                Idle::Begun => self.now.ended += bits,
                Idle::Stopping | Idle::Due => self.now.stopping += bits,
            }
        }
    }

    /// Adds what its queue pair did.
    pub(super) fn add_queue_pair(&mut self, now_ns: u64, behind_bps: u64) {
        self.now.held_back += behind_bps as f64 * (now_ns - self.now_ns) as f64 / 1e9;
    }

    /// Ends a stretch of time that was added.
    pub(super) fn end(&mut self, now_ns: u64, network: &Network) {
        self.now_ns = now_ns;
        if self.entries.last().is_none_or(|(at_ns, _)| now_ns >= at_ns + STEP_NS) {
            let (packets, resent, timeouts) = network.sent();
            self.entries.push((now_ns, Account { packets, resent, timeouts, ..self.now }));
        }
    }

    /// Returns what became of the time between two.
    pub(super) fn between(&self, from_ns: u64, until_ns: u64) -> Account {
        let at = |time_ns: u64| {
            let after = self.entries.partition_point(|(at_ns, _)| *at_ns <= time_ns);
            after.checked_sub(1).map_or(Account::default(), |at| self.entries[at].1)
        };
        let (before, after) = (at(from_ns), at(until_ns));
        Account {
            working: after.working - before.working,
            granted: after.granted - before.granted,
            begun: after.begun - before.begun,
            full: after.full - before.full,
            ended: after.ended - before.ended,
            stopping: after.stopping - before.stopping,
            held_back: after.held_back - before.held_back,
            packets: after.packets - before.packets,
            resent: after.resent - before.resent,
            timeouts: after.timeouts - before.timeouts,
        }
    }
}

/// What a row says of a link: parts of what it carries.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(super) struct Parts {
    working_fraction: f64,
    granted_fraction: f64,
    begun_fraction: f64,
    /// Granted and not begun, by cause; what is granted beyond these is not known to its source yet, or not any more.
    idle_full_fraction: f64,
    idle_ended_fraction: f64,
    idle_stopping_fraction: f64,
    /// Of what queue pairs were told to send.
    held_back_fraction: f64,
    resent_fraction: f64,
    timeouts: u64,
}

impl Parts {
    /// Returns the means of several runs, each with what the link carries in its time: bits. Timeouts are those of all.
    pub(super) fn mean(runs: &[(Account, f64)]) -> Self {
        let mean = |of: &dyn Fn(&Account, f64) -> f64| {
            let sum: f64 = runs.iter().map(|(account, bits)| of(account, *bits)).sum();
            (sum / runs.len() as f64 * 1e4).round() / 1e4
        };
        Self {
            working_fraction: mean(&|account, bits| account.working / bits),
            granted_fraction: mean(&|account, bits| account.granted / bits),
            begun_fraction: mean(&|account, bits| account.begun / bits),
            idle_full_fraction: mean(&|account, bits| account.full / bits),
            idle_ended_fraction: mean(&|account, bits| account.ended / bits),
            idle_stopping_fraction: mean(&|account, bits| account.stopping / bits),
            held_back_fraction: mean(&|account, bits| account.held_back / bits),
            resent_fraction: mean(&|account, _| {
                account.resent as f64 / account.packets.max(1) as f64
            }),
            timeouts: runs.iter().map(|(account, _)| account.timeouts).sum(),
        }
    }

    pub(super) fn line(&self) -> String {
        format!(
            "; of the link {:.3} could be granted, {:.3} was, {:.3} begun; idle in windows {:.3} full, {:.3} ended, {:.3} stopping; queue pairs {:.3} behind, {:.4} sent again, {} timeouts",
            self.working_fraction,
            self.granted_fraction,
            self.begun_fraction,
            self.idle_full_fraction,
            self.idle_ended_fraction,
            self.idle_stopping_fraction,
            self.held_back_fraction,
            self.resent_fraction,
            self.timeouts,
        )
    }
}
