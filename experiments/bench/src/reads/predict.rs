//! A predictor of the times at which slots become free, learned while blocks are sent (S1.34), beside every
//! fixed threshold.
//!
//! The source knows when it committed each block, and what each READ showed. It predicts that the collector
//! releases a block one service time after it came or after the one before was released, and learns two
//! numbers by exponentially weighted means: the service time, from what two READs showed while the
//! collector was never idle, and the time from one claim to the next. With them it posts a READ as late as
//! it can without running out of slots, and not before a release is due that it would show. The world is
//! that of `reads_model`: the same loads, times and rules.
use crate::reads_model::{Load, Outcome, Times, compare, take_answer};
use catchment_transfer::Refill;

/// Weight of what is new in a learned mean.
const WEIGHT: f64 = 0.125;
/// READs in flight at once.
const IN_FLIGHT_MAX: usize = 2;

/// The fixed threshold that stalls least, and of these the one with fewest READs.
pub(super) fn best_fixed(times: Times, load: &Load, slots: u32) -> (u32, Outcome) {
    let all = (0..slots).map(|threshold| {
        let refill = match threshold {
            0 => Refill::WhenEmpty,
            threshold => Refill::Ahead { threshold },
        };
        (threshold, compare(refill, times, load, slots).policy)
    });
    let best = all.min_by_key(|(_, outcome)| (outcome.stall_ns, outcome.reads));
    best.unwrap_or((0, Outcome::default()))
}

/// Runs one load with the predictor.
pub(super) fn run(times: Times, load: &Load, slots: u32) -> Outcome {
    Source {
        times,
        load,
        slots: slots as usize,
        learned: Learned {
            service_ns: times.t_write_ns as f64,
            claim_ns: times.t_write_ns as f64,
            shown: (0.0, 0),
        },
        now_ns: 0,
        committed_ns: Vec::new(),
        released_ns: Vec::new(),
        predicted_ns: Vec::new(),
        posted_ns: Vec::new(),
        seen: 0,
        not_before_ns: 0.0,
        out: Outcome::default(),
    }
    .run()
}

/// What the source has learned.
struct Learned {
    /// The collector's time for a block.
    service_ns: f64,
    /// From one claim to the next.
    claim_ns: f64,
    /// The moment of the last READ, and the releases that it showed.
    shown: (f64, usize),
}

fn learn(mean: &mut f64, value: f64) {
    *mean += WEIGHT * (value - *mean);
}

struct Source<'a> {
    times: Times,
    load: &'a Load,
    slots: usize,
    learned: Learned,
    now_ns: u64,
    committed_ns: Vec<u64>,
    /// By the collector, which the source does not see.
    released_ns: Vec<u64>,
    /// Of the blocks whose release was not seen, in order from `seen`.
    predicted_ns: Vec<f64>,
    /// When the READs in flight were posted, oldest first.
    posted_ns: Vec<u64>,
    seen: usize,
    /// A READ showed less than was predicted: the next one waits until then.
    not_before_ns: f64,
    out: Outcome,
}

impl Source<'_> {
    fn run(mut self) -> Outcome {
        let (mut claimed_ns, blocks) = (None, self.load.ready_ns.len());
        for block in 0..blocks {
            self.now_ns = self.now_ns.max(self.load.ready_ns[block]);
            self.notice();
            while self.known() == 0 {
                self.read_if_due();
                self.now_ns += self.times.t_poll_ns;
                self.out.stall_ns += self.times.t_poll_ns;
                self.notice();
            }
            if let Some(before_ns) = claimed_ns.replace(self.now_ns) {
                learn(&mut self.learned.claim_ns, (self.now_ns - before_ns) as f64);
            }
            self.now_ns += self.times.t_write_ns;
            self.commit(block);
            self.notice();
            self.read_if_due();
        }
        self.out.end_ns = self.now_ns;
        self.out
    }

    fn known(&self) -> usize {
        self.slots - (self.committed_ns.len() - self.seen)
    }

    fn commit(&mut self, block: usize) {
        let before = self.released_ns.last().copied().unwrap_or(0);
        self.released_ns.push(before.max(self.now_ns) + self.load.service_ns[block]);
        self.committed_ns.push(self.now_ns);
        let before = self.predicted_ns.last().copied().unwrap_or(0.0);
        self.predicted_ns.push(before.max(self.now_ns as f64) + self.learned.service_ns);
    }

    fn read_if_due(&mut self) {
        let (now, read) = (self.now_ns as f64, self.times.t_read_ns as f64);
        // One READ at a time, but for those whose answer comes too late for the next claim.
        let runs_out = now + self.known() as f64 * self.learned.claim_ns;
        let oldest = self.posted_ns.first().map(|posted| *posted as f64 + read);
        let waits = oldest.is_some_and(|answer| answer <= runs_out + self.learned.claim_ns);
        let is_full = self.posted_ns.len() >= IN_FLIGHT_MAX;
        // The next look is one claim later, or one poll where no slot is left.
        let step = if self.known() > 0 { self.learned.claim_ns } else { 0.0 };
        let can_wait = now + step + read <= runs_out;
        let shows_something = self.predicted_ns.first().is_some_and(|at| *at <= now + read / 2.0);
        if waits || is_full || can_wait || !shows_something || now < self.not_before_ns {
            return;
        }
        self.posted_ns.push(self.now_ns);
        self.out.reads += 1;
        self.notice();
    }

    fn notice(&mut self) {
        let read_ns = self.times.t_read_ns;
        while let Some(shows) = take_answer(&mut self.posted_ns, read_ns, self.now_ns) {
            let released = self.released_ns.partition_point(|at| *at <= shows);
            self.show(shows as f64, released.max(self.seen));
        }
    }

    /// A READ showed so many releases at a time: learns from them, and predicts the others anew.
    fn show(&mut self, at_ns: f64, released: usize) {
        let (before_ns, before) = self.learned.shown;
        let found = released - before;
        // It was never idle: the block after the last one released had come by then.
        let was_busy = (before..released).all(|block| {
            self.committed_ns.get(block + 1).is_some_and(|came| {
                (*came as f64) < before_ns + (block - before) as f64 * self.learned.service_ns
            })
        });
        if found > 0 && was_busy {
            learn(&mut self.learned.service_ns, (at_ns - before_ns) / found as f64);
        } else if found > 0 {
            // No more than since the last of them came.
            let came = self.committed_ns[released - 1] as f64;
            let most = (at_ns - came).max(0.0);
            if most < self.learned.service_ns {
                learn(&mut self.learned.service_ns, most);
            }
        }
        self.learned.shown = (at_ns, released);
        let is_late = self.predicted_ns.first().is_some_and(|first| *first <= at_ns);
        if found == 0 && is_late {
            // It takes longer than it used to: look again after as long as it has waited already.
            let waited = at_ns - self.committed_ns[self.seen] as f64;
            self.not_before_ns = at_ns + (waited / 4.0).min(4.0 * self.learned.service_ns);
            self.learned.service_ns *= 1.0 + WEIGHT / 4.0;
        }
        self.seen = released;
        let mut before = at_ns;
        let from = self.committed_ns[released..].iter();
        self.predicted_ns = from
            .map(|came| {
                before = before.max(*came as f64) + self.learned.service_ns;
                before
            })
            .collect();
        // The one in hand has been worked on for a while: half of its time is left, on average.
        if let Some(first) = self.predicted_ns.first_mut() {
            *first -= self.learned.service_ns / 2.0;
        }
    }
}
