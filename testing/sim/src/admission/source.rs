//! A transfer at its source: it obeys windows, stops at borders of chunks, and says how far it is.
use catchment_control::admission::{Grant, Input, TransferId};

/// Bits times 10^9: a rate times nanoseconds, without rounding.
const SCALE: u128 = 8_000_000_000;

/// Leave to send at a rate, from when until when.
#[derive(Clone, Copy, Debug)]
struct Leg {
    from_ns: u64,
    until_ns: u64,
    /// The end of the window, in which the last chunk may end earlier.
    granted_ns: u64,
    rate_bps: u64,
}

/// A stretch in which a source has sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) from_ns: u64,
    pub(super) until_ns: u64,
    pub(super) rate_bps: u64,
}

/// What a transfer tells when it wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wake {
    Done,
    Tell,
    Nothing,
}

/// A transfer of `total` bytes.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) id: TransferId,
    /// The index of its event in the trace.
    pub(super) event: usize,
    pub(super) bytes: u64,
    sent: u128,
    at_ns: u64,
    legs: Vec<Leg>,
    revision: u32,
    /// Stop at this time and say so.
    stop_ns: Option<u64>,
    progress_ns: Option<u64>,
    /// Times at which frames were through.
    pub(super) frames_ns: Vec<u64>,
    pub(super) stretches: Vec<Stretch>,
    /// Only the wake-up of this number counts.
    pub(super) wake: u64,
    /// Bytes of the chunks that have begun, where somebody asks for them.
    begun: Option<u64>,
}

impl Sending {
    pub(super) fn new(id: TransferId, event: usize, bytes: u64, now_ns: u64) -> Self {
        Self {
            id,
            event,
            bytes,
            sent: 0,
            at_ns: now_ns,
            legs: Vec::new(),
            revision: 0,
            stop_ns: None,
            progress_ns: None,
            frames_ns: Vec::new(),
            stretches: Vec::new(),
            wake: 0,
            begun: None,
        }
    }

    /// Wakes at the beginning of each chunk, for [`take_begun`](Self::take_begun).
    pub(super) fn by_chunks(self) -> Self {
        Self { begun: Some(0), ..self }
    }

    /// Takes the chunks that have begun by `now_ns`, after [`advance`](Self::advance): the bytes of each, and the
    /// rate at which they are to leave.
    pub(super) fn take_begun(&mut self, now_ns: u64, chunk_bytes: u64) -> Vec<(u64, u64)> {
        let Some(mut begun) = self.begun else { return Vec::new() };
        let mut taken = Vec::new();
        let running =
            |leg: &&Leg| leg.rate_bps > 0 && leg.from_ns <= now_ns && now_ns < leg.until_ns;
        let stops = self.stop_ns.is_some_and(|stop_ns| stop_ns <= now_ns);
        let rate_bps = self.legs.iter().find(running).filter(|_| !stops).map(|leg| leg.rate_bps);
        while begun < self.bytes {
            let at = u128::from(begun) * SCALE;
            let Some(rate_bps) = rate_bps.filter(|_| self.sent >= at) else {
                break;
            };
            let bytes = chunk_bytes.min(self.bytes - begun);
            taken.push((bytes, rate_bps));
            begun += bytes;
        }
        self.begun = Some(begun);
        taken
    }

    /// Returns when the next chunk begins, if nothing changes.
    fn begins_ns(&self) -> Option<u64> {
        let begun = self.begun.filter(|begun| *begun < self.bytes)?;
        let left = (u128::from(begun) * SCALE).saturating_sub(self.sent);
        self.reached_ns(left)
    }

    fn total(&self) -> u128 {
        u128::from(self.bytes) * SCALE
    }

    pub(super) fn left_bytes(&self) -> u64 {
        let left = (self.total() - self.sent).div_ceil(SCALE);
        u64::try_from(left).unwrap_or(u64::MAX)
    }

    /// Sends up to `now_ns`.
    pub(super) fn advance(&mut self, now_ns: u64, frame_bytes: u64) {
        for leg in &self.legs {
            let from_ns = leg.from_ns.max(self.at_ns);
            let until_ns = leg.until_ns.min(now_ns).min(self.stop_ns.unwrap_or(u64::MAX));
            let left = u128::from(self.bytes) * SCALE - self.sent;
            if until_ns <= from_ns || left == 0 {
                continue;
            }
            let rate = u128::from(leg.rate_bps);
            let amount = (u128::from(until_ns - from_ns) * rate).min(left);
            let until_ns = from_ns + time_ns(amount, leg.rate_bps);
            let frame = u128::from(frame_bytes) * SCALE;
            let mut border = (self.sent / frame + 1) * frame;
            while border <= self.sent + amount {
                self.frames_ns.push(from_ns + time_ns(border - self.sent, leg.rate_bps));
                border += frame;
            }
            self.sent += amount;
            self.stretches.push(Stretch { from_ns, until_ns, rate_bps: leg.rate_bps });
        }
        self.at_ns = self.at_ns.max(now_ns);
        self.legs.retain(|leg| leg.until_ns > now_ns);
    }

    /// Takes a grant. `host_ns` is what it takes to begin.
    pub(super) fn grant(&mut self, now_ns: u64, grant: &Grant, host_ns: u64, chunk_bytes: u64) {
        if grant.revision <= self.revision {
            return;
        }
        self.revision = grant.revision;
        self.stop_ns = None;
        let running = self.legs.iter().any(|leg| leg.from_ns <= now_ns);
        let host_ns = if running { 0 } else { host_ns };
        let from_ns = grant.from_ns.max(now_ns + host_ns);
        let rate_bps = grant.rate_bps;
        let less = |leg: &Leg| leg.rate_bps > rate_bps || leg.granted_ns > grant.until_ns;
        let confirms = self.legs.iter().any(less);
        self.legs.retain(|leg| leg.from_ns < from_ns);
        self.legs.iter_mut().for_each(|leg| leg.until_ns = leg.until_ns.min(from_ns));
        let until_ns = grant.until_ns.max(from_ns);
        self.legs.push(Leg { from_ns, until_ns, granted_ns: until_ns, rate_bps });
        self.stop_at_border(until_ns, chunk_bytes);
        let to_come = self.done_ns().is_none_or(|done_ns| done_ns > until_ns);
        self.progress_ns = match (confirms, to_come) {
            (true, _) => Some(now_ns),
            (false, true) => Some(from_ns.midpoint(until_ns)),
            (false, false) => None,
        };
    }

    /// Lets no chunk begin that would end after the window.
    fn stop_at_border(&mut self, until_ns: u64, chunk_bytes: u64) {
        if self.done_ns().is_some_and(|done_ns| done_ns <= until_ns) {
            return;
        }
        let at_ns = self.at_ns;
        let amount = |leg: &Leg| {
            u128::from(leg.until_ns.saturating_sub(leg.from_ns.max(at_ns)))
                * u128::from(leg.rate_bps)
        };
        let Some((leg, earlier)) = self.legs.split_last_mut() else { return };
        let begin = self.sent + earlier.iter().map(amount).sum::<u128>();
        let room = u128::from(until_ns - leg.from_ns) * u128::from(leg.rate_bps);
        let chunk = u128::from(chunk_bytes) * SCALE;
        let border = (begin + room) / chunk * chunk;
        let from = border.saturating_sub(begin);
        leg.until_ns = leg.until_ns.min(leg.from_ns + time_ns(from, leg.rate_bps));
    }

    /// Takes a pause: the chunk that has begun goes on to its end.
    pub(super) fn pause(&mut self, now_ns: u64, revision: u32, chunk_bytes: u64) {
        if revision <= self.revision {
            return;
        }
        self.revision = revision;
        self.progress_ns = None;
        self.legs.retain(|leg| leg.from_ns <= now_ns);
        let rate_bps = self.legs.first().map_or(0, |leg| leg.rate_bps);
        let chunk = u128::from(chunk_bytes) * SCALE;
        let border = self.sent.div_ceil(chunk) * chunk;
        let rest = border.min(self.total()) - self.sent;
        let stop_ns = if rate_bps == 0 { now_ns } else { now_ns + time_ns(rest, rate_bps) };
        self.stop_ns = Some(stop_ns);
    }

    /// Returns when all is sent, if nothing changes.
    fn done_ns(&self) -> Option<u64> {
        let left = self.total() - self.sent;
        self.reached_ns(left).or_else(|| (left == 0).then_some(self.at_ns))
    }

    /// Returns when so much more is sent, if nothing changes, and more may be.
    fn reached_ns(&self, mut left: u128) -> Option<u64> {
        for leg in &self.legs {
            let from_ns = leg.from_ns.max(self.at_ns);
            let until_ns = leg.until_ns.min(self.stop_ns.unwrap_or(u64::MAX));
            let amount = u128::from(until_ns.saturating_sub(from_ns)) * u128::from(leg.rate_bps);
            if amount > 0 && amount >= left {
                return Some(from_ns + time_ns(left, leg.rate_bps));
            }
            left -= amount;
        }
        None
    }

    /// Returns when the source has something to say or to do next.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let ends = self.legs.last().map(|leg| leg.until_ns);
        let times = [self.done_ns(), self.stop_ns, self.progress_ns, ends, self.begins_ns()];
        times.into_iter().flatten().min()
    }

    /// Says what is to be said at `now_ns`, after [`advance`](Self::advance).
    pub(super) fn speak(&mut self, now_ns: u64) -> (Wake, Option<Input>) {
        let (transfer, left_bytes, revision) = (self.id, self.left_bytes(), self.revision);
        if self.sent == self.total() {
            return (Wake::Done, Some(Input::Done { transfer }));
        }
        if self.stop_ns.is_some_and(|stop_ns| stop_ns <= now_ns) {
            self.stop_ns = None;
            self.legs.clear();
            return (Wake::Tell, Some(Input::Paused { transfer, left_bytes, revision }));
        }
        if self.progress_ns.is_some_and(|progress_ns| progress_ns <= now_ns) {
            self.progress_ns = None;
            return (Wake::Tell, Some(Input::Progress { transfer, left_bytes, revision }));
        }
        if self.legs.is_empty() && self.stop_ns.is_none() {
            return (Wake::Tell, Some(Input::Request { transfer, bytes: left_bytes, age_ns: 0 }));
        }
        (Wake::Nothing, None)
    }
}

fn time_ns(amount: u128, rate_bps: u64) -> u64 {
    let time_ns = amount.div_ceil(u128::from(rate_bps.max(1)));
    u64::try_from(time_ns).unwrap_or(u64::MAX)
}
