//! The source's role: it decides, and measures.
use super::collector::needs;
use super::{LOOK_AGAIN, Order, Report, Source, Urgent, pace_of, spent};
use crate::job::{
    CORE_SHARE_MIN, Outcome, PingPong, Program, Said, StatusRead, Stream, WARM_UP_OPERATIONS,
    WARM_UP_PART, WarmUp,
};
use crate::link::{Link, Pace, pattern};
use crate::{stats, sys};
use anyhow::{Result, bail};
use catchment_perf::Meter;

/// Bytes compared in the twin run at most, beyond the first three blocks.
const VERIFY_BYTES: usize = 96 << 20;
/// Round trips, each followed by a timed look at the status bytes.
const STATUS_READS: u64 = 300;
/// Hand-overs that say where the floor is.
const FLOOR_ROUND_TRIPS: u64 = 300;

impl<L: Link> Source<'_, L> {
    pub(super) fn report(&mut self) -> Result<()> {
        let outcome = Box::new(self.measure()?);
        self.starter.send(&Said::Found(outcome))
    }

    pub(super) fn await_turn(&mut self) -> Result<()> {
        self.starter.send(&Said::Ready)?;
        self.starter.recv()
    }

    fn measure(&mut self) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        self.await_turn()?;
        if self.job.what.has_payload() {
            outcome.verified_blocks = self.verify()?;
            if self.job.program != Program::Stream {
                return self.program(outcome);
            }
            self.acquaint()?;
            let (count, dropped) =
                self.warm_up(|source, count| Ok(source.stream(count)?.wall_ns))?;
            let softirq_ns = sys::softirq_ns();
            let batches = Batches::take(self, |source| source.stream(count), |s| s.core_share)?;
            outcome.softirq_ns = sys::softirq_ns().saturating_sub(softirq_ns);
            batches.add_to(&mut outcome, (count, dropped), |o| &mut o.streams);
        }
        self.await_turn()?;
        let (count, dropped) = self.warm_up(|source, count| {
            let sample = source.ping_pong(count)?;
            Ok((sample.p50_ns * 2.0 * count as f64) as u64)
        })?;
        let batches = Batches::take(self, |source| source.ping_pong(count), |p| p.core_share)?;
        batches.add_to(&mut outcome, (count, dropped), |o| &mut o.ping_pongs);
        self.await_turn()?;
        outcome.status_read = self.status_read()?;
        self.finish(outcome)
    }

    /// Returns whether both roles should have a core each.
    fn is_watched(&self) -> bool {
        self.job.what.polls() && self.job.wait.polls()
    }

    /// Measures something other than throughput and round trips. Each batch has the place of its number: one in which a role
    /// did not have its core is run again, as often as there are batches in all, and is kept and told once that is used up.
    fn program(&mut self, mut outcome: Outcome) -> Result<Outcome> {
        let mut repeats = if self.is_watched() { self.job.batches } else { 0 };
        let mut shares = Vec::new();
        let warm_ups = self.job.batches.div_ceil(WARM_UP_PART as usize - 1);
        let mut warm_up = WarmUp { dropped: 0, counted: 0 };
        for batch in 0..warm_ups + self.job.batches {
            let is_warm_up = batch < warm_ups;
            let (samples, bins) = loop {
                self.await_turn()?;
                self.core_share = None;
                let found = self.run(batch as u64)?;
                let had_cores = self.core_share.is_none_or(|share| share >= CORE_SHARE_MIN);
                if is_warm_up || had_cores || repeats == 0 {
                    break found;
                }
                repeats -= 1;
                outcome.repeated += 1;
            };
            let operations = samples.len() as u64 + bins.iter().flatten().sum::<u64>();
            if is_warm_up {
                warm_up.dropped += operations;
            } else {
                warm_up.counted += operations;
                shares.extend(self.core_share);
                outcome.samples.extend((!samples.is_empty()).then_some(samples));
                outcome.bins.extend(bins);
            }
        }
        if self.is_watched()
            && let Some(least) = shares.into_iter().reduce(f64::min)
        {
            outcome.disturbed = Some(least < CORE_SHARE_MIN);
            outcome.core_share_min = Some(least);
        }
        outcome.warm_up = Some(warm_up);
        self.finish(outcome)
    }

    /// Notes the part of its core that a role had in a part of a batch; the least counts.
    fn note_share(&mut self, share: f64) {
        self.core_share = Some(self.core_share.map_or(share, |least| least.min(share)));
    }

    fn finish(&mut self, mut outcome: Outcome) -> Result<Outcome> {
        self.peer.send(&Order::Done)?;
        outcome.source = needs(&self.link)?;
        outcome.collector = self.peer.recv()?;
        Ok(outcome)
    }

    /// Looks at the status bytes just after the collector has changed one of them.
    fn status_read(&mut self) -> Result<Option<StatusRead>> {
        if self.link.status_reads().is_none() {
            return Ok(None);
        }
        let count = STATUS_READS;
        self.begin(Order::PingPong(count))?;
        let urgent = self.hurry()?;
        let mut samples = Vec::with_capacity(count as usize);
        for _ in 0..count {
            self.link.send(None)?;
            self.link.recv(None)?;
            let start = sys::Ticks::now();
            self.link.read_status()?;
            samples.push(self.ticks.ns(start, sys::Ticks::now()));
            self.link.give_back()?;
        }
        self.link.finish()?;
        self.relax(urgent)?;
        self.say_that_all_came()?;
        self.end()?;
        samples.sort_by(f64::total_cmp);
        Ok(Some(StatusRead {
            p50_ns: stats::of_sorted(&samples, 0.50),
            p99_ns: stats::of_sorted(&samples, 0.99),
        }))
    }

    /// The twin run: every byte of these blocks is compared at the collector.
    fn verify(&mut self) -> Result<u64> {
        let most = (VERIFY_BYTES / self.job.bytes).max(3);
        let count = (2 * self.job.blocks + 3).min(most) as u64;
        let mut content = vec![0; self.job.bytes];
        self.begin(Order::Verify(count))?;
        for sequence in 0..count {
            pattern(sequence, &mut content);
            self.link.send(Some(&content))?;
        }
        self.link.finish()?;
        match self.end()?.wrong_blocks {
            0 => Ok(count),
            wrong => bail!("{wrong} of {count} blocks arrived with wrong bytes"),
        }
    }

    /// Uses every block of the way back once.
    fn acquaint(&mut self) -> Result<()> {
        let count = self.job.back_blocks() as u64;
        self.begin(Order::Acquaint(count))?;
        let answered = self.job.what.has_collector();
        round_trips(&mut self.link, count, answered, self.ticks)?;
        self.link.finish()?;
        self.say_that_all_came()?;
        self.end()?;
        Ok(())
    }

    /// Runs batches that do not count until the machine is warm: a part of the time of those that do, and so many operations
    /// where that does not take twice as long. Says how many blocks fill the time of a batch, and how many did not count.
    fn warm_up(
        &mut self,
        mut run: impl FnMut(&mut Self, u64) -> Result<u64>,
    ) -> Result<(u64, u64)> {
        let target_ns = self.job.batch_ms * 1_000_000;
        let least = 2 * self.job.blocks as u64;
        let mut count = least.max(4);
        let (mut operations, mut spent_ns) = (0, 0);
        let part_ns = target_ns * (self.job.batches as u64).div_ceil(WARM_UP_PART - 1).max(1);
        loop {
            let ns = run(self, count)?.max(1);
            operations += count;
            spent_ns += ns;
            let fitting = count as f64 * target_ns as f64 / ns as f64;
            let warm = operations >= WARM_UP_OPERATIONS || spent_ns > 2 * part_ns;
            if warm && spent_ns >= part_ns && ns >= target_ns / 2 {
                return Ok(((fitting as u64).max(least), operations));
            }
            count = (fitting as u64).clamp(least, count * 8);
        }
    }

    pub(super) fn begin(&mut self, order: Order) -> Result<()> {
        self.link.set_pace(Pace::Working)?;
        self.peer.send(&order)?;
        self.peer.recv()
    }

    /// The collector need not look after its answers any more.
    fn say_that_all_came(&mut self) -> Result<()> {
        if self.job.what.has_collector() {
            self.peer.send(&())?;
        }
        Ok(())
    }

    pub(super) fn end(&mut self) -> Result<Report> {
        // What was sent last may need us until it is there.
        while !self.peer.has_more(LOOK_AGAIN)? {
            self.link.finish()?;
        }
        let report: Report = self.peer.recv()?;
        self.link.set_pace(Pace::Parked)?;
        self.note_share(report.core_share);
        Ok(report)
    }

    /// Real-time priority for a timed part, if the job wants it; ours before that of other threads
    /// on our core.
    pub(super) fn hurry(&mut self) -> Result<Urgent> {
        let urgent = Urgent::begin(self.job.realtime)?;
        self.link.set_pace(pace_of(&urgent))?;
        self.meter = Some(Meter::start());
        Ok(urgent)
    }

    /// The end of it, in the other order.
    pub(super) fn relax(&mut self, urgent: Urgent) -> Result<()> {
        if let Some(meter) = self.meter.take() {
            self.note_share(spent(&meter).1);
        }
        self.link.set_pace(Pace::Working)?;
        drop(urgent);
        Ok(())
    }

    pub(super) fn stream(&mut self, count: u64) -> Result<Stream> {
        self.begin(Order::Stream(count))?;
        let urgent = self.hurry()?;
        let status_reads_before = self.link.status_reads();
        let meter = Meter::start();
        let start_ns = sys::monotonic_ns();
        for _ in 0..count {
            self.link.send(None)?;
        }
        let sent_ns = sys::monotonic_ns();
        let (source_cpu_ns, source_share) = spent(&meter);
        self.link.finish()?;
        self.relax(urgent)?;
        let report = self.end()?;
        let (end_ns, collector_cpu_ns) = if self.job.what.has_collector() {
            (report.end_ns, report.cpu_ns)
        } else {
            (sent_ns, 0)
        };
        Ok(Stream {
            count,
            wall_ns: end_ns.saturating_sub(start_ns).max(1),
            source_cpu_ns,
            collector_cpu_ns,
            core_share: source_share.min(report.core_share),
            status_reads: self
                .link
                .status_reads()
                .zip(status_reads_before)
                .map(|(after, before)| after - before),
        })
    }

    /// One-way hand-over of a cache line between these two processes, now.
    fn floor_ns(&mut self) -> Result<f64> {
        self.begin(Order::Floor(FLOOR_ROUND_TRIPS))?;
        let urgent = Urgent::begin(self.job.realtime)?;
        let mut samples = round_trips(&mut self.floor, FLOOR_ROUND_TRIPS, true, self.ticks)?;
        drop(urgent);
        self.end()?;
        samples.sort_by(f64::total_cmp);
        Ok(stats::middle_of_sorted(&samples) / 2.0)
    }

    fn ping_pong(&mut self, count: u64) -> Result<PingPong> {
        let floor_ns = self.floor_ns()?;
        self.begin(Order::PingPong(count))?;
        let answered = self.job.what.has_collector();
        let urgent = self.hurry()?;
        let meter = Meter::start();
        let mut samples = round_trips(&mut self.link, count, answered, self.ticks)?;
        let (_, source_share) = spent(&meter);
        self.link.finish()?;
        self.relax(urgent)?;
        self.say_that_all_came()?;
        let report = self.end()?;
        samples.sort_by(f64::total_cmp);
        // Without a collector there is no way back: what was timed is the way there.
        let ways = if answered { 2.0 } else { 1.0 };
        Ok(PingPong {
            count,
            p50_ns: stats::of_sorted(&samples, 0.50) / ways,
            p99_ns: stats::of_sorted(&samples, 0.99) / ways,
            middle_ns: stats::middle_of_sorted(&samples) / ways,
            floor_ns,
            core_share: source_share.min(report.core_share),
        })
    }
}

/// Nanoseconds of each round trip; each begins when the one before has ended.
fn round_trips<L: Link>(
    link: &mut L,
    count: u64,
    answered: bool,
    ticks: sys::Ticks,
) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(count as usize + 1);
    times.push(sys::Ticks::now());
    for _ in 0..count {
        link.send(None)?;
        link.give_back()?;
        if answered {
            link.recv(None)?;
        }
        times.push(sys::Ticks::now());
    }
    link.give_back()?;
    Ok(times.windows(2).map(|t| ticks.ns(t[0], t[1])).collect())
}

struct Batches<T> {
    kept: Vec<T>,
    repeated: usize,
    disturbed: Option<bool>,
    core_share_min: Option<f64>,
}

impl<T> Batches<T> {
    fn take<L: Link>(
        source: &mut Source<'_, L>,
        mut run: impl FnMut(&mut Source<'_, L>) -> Result<T>,
        core_share: impl Fn(&T) -> f64,
    ) -> Result<Self> {
        let wanted = source.job.batches;
        let limit = if source.is_watched() { CORE_SHARE_MIN } else { 0.0 };
        let mut all = Vec::new();
        let mut good = 0;
        while good < wanted && all.len() < 2 * wanted {
            source.await_turn()?;
            let batch = run(source)?;
            good += usize::from(core_share(&batch) >= limit);
            all.push(batch);
        }
        let disturbed = good < wanted.div_ceil(2);
        let ran = all.len();
        if !disturbed {
            all.retain(|batch| core_share(batch) >= limit);
        }
        let watched = limit > 0.0;
        Ok(Self {
            repeated: ran - all.len(),
            disturbed: watched.then_some(disturbed),
            core_share_min: watched.then(|| all.iter().map(core_share).fold(1.0, f64::min)),
            kept: all,
        })
    }

    /// With the operations of a batch, and those of the warm-up before.
    fn add_to(
        self,
        outcome: &mut Outcome,
        (count, dropped): (u64, u64),
        list: impl FnOnce(&mut Outcome) -> &mut Vec<T>,
    ) {
        let ours = WarmUp { dropped, counted: count * self.kept.len() as u64 };
        let before = outcome.warm_up.filter(|before| before.part() < ours.part());
        outcome.warm_up = Some(before.unwrap_or(ours));
        outcome.repeated += self.repeated;
        outcome.disturbed = match (outcome.disturbed, self.disturbed) {
            (Some(one), Some(other)) => Some(one || other),
            (one, other) => one.or(other),
        };
        let shares = [outcome.core_share_min, self.core_share_min];
        outcome.core_share_min = shares.into_iter().flatten().reduce(f64::min);
        list(outcome).extend(self.kept);
    }
}
