//! What the two processes of a measurement do: verify, warm up, then timed batches.
//!
//! The source decides and tells the collector, which obeys. It asks whoever started it for a turn
//! before each step, so that nothing else is measured meanwhile. One clock serves both: a throughput
//! batch lasts from the source's first send to the collector's last receive. A batch in which a
//! polling role did not have its core is repeated, because it would measure the scheduler.
use crate::{
    control::Control,
    job::{Hold, Job, Needs, Outcome, PingPong, Program, Role, Said, StatusRead, Stream, Workers},
    link::{CacheLine, Link, Pace, pattern},
    programs, stats, sys,
};
use anyhow::{Context, Result, bail};
use rustix::event::Timespec;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::{os::fd::AsFd, os::unix::net::UnixStream, time::Duration};

/// Part of its core that a polling role must have had for a batch to count.
const CORE_SHARE_MIN: f64 = 0.97;
/// Operations of the warm-up at least, where they fit in the time of two batches.
const WARM_UP_OPERATIONS: u64 = 1000;
/// Bytes compared in the twin run at most, beyond the first three blocks.
const VERIFY_BYTES: usize = 96 << 20;

/// Round trips, each followed by a timed look at the status bytes.
const STATUS_READS: u64 = 300;
/// Hand-overs that say where the floor is.
const FLOOR_ROUND_TRIPS: u64 = 300;

/// While the other role works, the source looks after its requests so often.
const LOOK_AGAIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000,
};

/// What the source asks of the collector.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Order {
    /// Receive and compare blocks `0..count`, filled with [`pattern`].
    Verify { count: u64 },
    /// Send back one block for each that comes, not timed: what a mechanism sets up when it is first
    /// used in this direction may need a thread that a real-time role would keep from running.
    Acquaint { count: u64 },
    /// Receive as fast as possible.
    Stream { count: u64 },
    /// Send back one block for each that comes.
    PingPong { count: u64 },
    /// The same with a cache line, to know the floor at this moment.
    Floor { count: u64 },
    /// Keep all blocks that come, and give them back one by one, a while apart.
    Sync { count: u64, blocks: usize },
    /// Say when each block is seen.
    OneWay { count: u64 },
    /// Receive as fast as possible, and keep one block for a time.
    Hold(Hold),
    /// Keep each block as long as its worker needs for it, by chance from this seed.
    Process(Workers, u64),
    /// The measurement is over.
    Done,
}

/// What the collector answers after an order.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Report {
    end_ns: u64,
    cpu_ns: u64,
    core_share: f64,
    wrong_blocks: u64,
    /// Times of [`Order::Sync`] and [`Order::OneWay`], or counts of [`Order::Hold`].
    noted: Vec<u64>,
}

/// Runs a role process: the job came as an argument, the other role is on standard input.
pub(crate) fn main(role: Role, job: &Job) -> Result<()> {
    sys::settle(match role {
        Role::Source => job.source_core,
        Role::Collector => job.collector_core,
    })?;
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    crate::link::run(job, role, Control::new(UnixStream::from(socket)))
}

/// Measures a mechanism that is set up. The source tells the [`Outcome`] over the socket that is its
/// standard output.
pub(crate) fn run<L: Link>(job: &Job, role: Role, mut control: Control, link: L) -> Result<()> {
    let floor = CacheLine::new(job, role, &mut control)?;
    match role {
        Role::Collector => Collector {
            job,
            peer: control,
            link,
            floor,
        }
        .obey(),
        Role::Source => {
            let starter = std::io::stdout().as_fd().try_clone_to_owned()?;
            Source {
                job,
                starter: Control::new(UnixStream::from(starter)),
                peer: control,
                link,
                floor,
                ticks: sys::Ticks::calibrate(),
            }
            .report()
        }
    }
}

struct Collector<'a, L> {
    job: &'a Job,
    peer: Control,
    link: L,
    floor: CacheLine,
}

impl<L: Link> Collector<'_, L> {
    fn obey(&mut self) -> Result<()> {
        loop {
            let order: Order = self.peer.recv()?;
            if matches!(order, Order::Done) {
                return self.peer.send(&needs(&self.link)?);
            }
            let timed = !matches!(order, Order::Verify { .. } | Order::Acquaint { .. });
            let urgent = Urgent::begin(self.job.realtime && timed)?;
            self.link.set_pace(pace_of(&urgent))?;
            // The source starts when it reads this, and finds this role waiting.
            self.peer.send(&())?;
            let meter = Meter::start();
            let mut noted = Vec::new();
            let wrong_blocks = self.carry_out(order, &mut noted)?;
            let end_ns = sys::monotonic_ns();
            let (cpu_ns, core_share) = meter.stop();
            // Before us: a thread on our core with a higher priority would keep us from running.
            self.link.set_pace(Pace::Parked)?;
            drop(urgent);
            self.peer.send(&Report {
                end_ns,
                cpu_ns,
                core_share,
                wrong_blocks,
                noted,
            })?;
        }
    }

    /// Says how many blocks were not as they should be.
    fn carry_out(&mut self, order: Order, noted: &mut Vec<u64>) -> Result<u64> {
        match order {
            Order::Floor { count } => answer(&mut self.floor, count)?,
            Order::Done => {}
            Order::Sync { count, blocks } => {
                *noted = programs::give_back_one_by_one(&mut self.link, count, blocks, self.job)?;
            }
            Order::OneWay { count } => {
                let (link, seen) = (&mut self.link, &mut self.floor);
                *noted = programs::note_arrivals(link, seen, count, self.job)?;
            }
            Order::Process(work, seed) => {
                programs::process(&mut self.link, work, seed, self.job)?;
            }
            Order::Hold(hold) => *noted = programs::hold_one(&mut self.link, hold, self.job)?,
            Order::Verify { .. }
            | Order::Acquaint { .. }
            | Order::Stream { .. }
            | Order::PingPong { .. }
                if self.link.attend()? => {}
            Order::Verify { count } => return verify(self.job, &mut self.link, count),
            Order::Stream { count } => {
                for _ in 0..count {
                    self.link.recv(None)?;
                    self.link.give_back()?;
                }
            }
            Order::Acquaint { count } | Order::PingPong { count } => {
                answer(&mut self.link, count)?;
                // What was sent last may need us until the source has it, and says so.
                while !self.peer.has_more(LOOK_AGAIN)? {
                    self.link.finish()?;
                }
                self.peer.recv::<()>()?;
            }
        }
        Ok(0)
    }
}

fn needs<L: Link>(link: &L) -> Result<Needs> {
    Ok(Needs {
        rss_bytes_peak: sys::rss_bytes_peak()?,
        queues: link.queues(),
        network: link.network(),
    })
}

fn answer<L: Link>(link: &mut L, count: u64) -> Result<()> {
    for _ in 0..count {
        link.recv(None)?;
        link.send(None)?;
        link.give_back()?;
    }
    Ok(())
}

/// Counts blocks that are none of those sent, or come twice. Blocks of one ring may overtake each
/// other: an application orders them by packet number, which is not what is measured here.
fn verify<L: Link>(job: &Job, link: &mut L, count: u64) -> Result<u64> {
    let mut expected = vec![0; job.bytes];
    let mut first = [0; 8];
    let begins = |sequence| {
        pattern(sequence, &mut first);
        (first, sequence)
    };
    let mut missing: HashMap<[u8; 8], u64> = (0..count).map(begins).collect();
    let mut seen = Vec::new();
    let mut wrong = 0;
    for _ in 0..count {
        link.recv(Some(&mut seen))?;
        link.give_back()?;
        let sequence = seen.first_chunk().and_then(|word| missing.remove(word));
        let whole = sequence.is_some_and(|sequence| {
            pattern(sequence, &mut expected);
            seen == expected
        });
        wrong += u64::from(!whole);
    }
    Ok(wrong)
}

struct Source<'a, L> {
    job: &'a Job,
    starter: Control,
    peer: Control,
    link: L,
    floor: CacheLine,
    ticks: sys::Ticks,
}

impl<L: Link> Source<'_, L> {
    fn report(&mut self) -> Result<()> {
        let outcome = Box::new(self.measure()?);
        self.starter.send(&Said::Found(outcome))
    }

    /// Waits until nothing else is measured.
    fn await_turn(&mut self) -> Result<()> {
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
            let count = self.warm_up(|source, count| Ok(source.stream(count)?.wall_ns))?;
            let batches = Batches::take(self, |source| source.stream(count), |s| s.core_share)?;
            batches.add_to(&mut outcome, |o| &mut o.streams);
        }
        self.await_turn()?;
        let count = self.warm_up(|source, count| {
            let sample = source.ping_pong(count)?;
            Ok((sample.p50_ns * 2.0 * count as f64) as u64)
        })?;
        let batches = Batches::take(self, |source| source.ping_pong(count), |p| p.core_share)?;
        batches.add_to(&mut outcome, |o| &mut o.ping_pongs);
        self.await_turn()?;
        outcome.status_read = self.status_read()?;
        self.finish(outcome)
    }

    /// Measures something other than throughput and round trips.
    fn program(&mut self, mut outcome: Outcome) -> Result<Outcome> {
        for batch in 0..=self.job.batches {
            self.await_turn()?;
            let (samples, bins) = match self.job.program {
                // Cameras have a program of their own.
                Program::Stream | Program::Cameras(_) => break,
                Program::Look { count } => (self.look(count)?, None),
                Program::Sync { count } => (self.sync(count)?, None),
                Program::OneWay { count } => (self.one_way(count)?, None),
                Program::Hold(hold) => (Vec::new(), Some(self.hold(hold)?)),
                Program::Workers(work) => (vec![self.make(work, batch as u64)?], None),
            };
            // The first one warms up.
            if batch > 0 {
                outcome
                    .samples
                    .extend((!samples.is_empty()).then_some(samples));
                outcome.bins.extend(bins);
            }
        }
        self.finish(outcome)
    }

    fn finish(&mut self, mut outcome: Outcome) -> Result<Outcome> {
        self.peer.send(&Order::Done)?;
        outcome.source = needs(&self.link)?;
        outcome.collector = self.peer.recv()?;
        Ok(outcome)
    }

    /// From giving a block back until the next one is there.
    fn sync(&mut self, count: u64) -> Result<Vec<f64>> {
        let blocks = self.job.blocks;
        self.begin(Order::Sync { count, blocks })?;
        let urgent = self.hurry()?;
        programs::send_all(&mut self.link, count + blocks as u64, self.job)?;
        // The last ones are sent while we wait for the answer.
        self.relax(urgent)?;
        let report = self.end()?;
        Ok(report.noted.iter().map(|ns| *ns as f64).collect())
    }

    /// The paper's synchronisation.
    fn look(&mut self, count: u64) -> Result<Vec<f64>> {
        let is_done = |link: &mut L| Ok(link.look()? == Some(true));
        match self.link.look()? {
            None => {
                self.link.note_acknowledgements();
                self.stream(count)?;
                let found = self.link.note_acknowledgements();
                // Several may come at once: only the mean says how often news comes.
                let (Some(first), Some(last)) = (found.first(), found.last()) else {
                    return Ok(Vec::new());
                };
                let steps = found.len().saturating_sub(1).max(1);
                Ok(vec![(last - first) as f64 / steps as f64])
            }
            Some(done) => {
                let urgent = self.hurry()?;
                if !done {
                    programs::until(&mut self.link, self.job, is_done)?;
                }
                let mut times = Vec::with_capacity(count as usize);
                for _ in 0..count {
                    let begin = sys::Ticks::now();
                    programs::until(&mut self.link, self.job, is_done)?;
                    times.push(self.ticks.ns(begin, sys::Ticks::now()));
                }
                self.relax(urgent)?;
                Ok(times)
            }
        }
    }

    /// From posting a block to the look that finds it.
    fn one_way(&mut self, count: u64) -> Result<Vec<f64>> {
        self.begin(Order::OneWay { count })?;
        let urgent = self.hurry()?;
        let (link, seen) = (&mut self.link, &mut self.floor);
        let posted = programs::post_one_by_one(link, seen, count, self.job)?;
        self.relax(urgent)?;
        Ok(differences(&posted, &self.end()?.noted))
    }

    /// Blocks of each bin.
    fn hold(&mut self, hold: Hold) -> Result<Vec<u64>> {
        // Linux gives real-time threads 95 % of a second: leave room for the runs before.
        std::thread::sleep(Duration::from_millis(hold.end + hold.end / 2));
        self.begin(Order::Hold(hold))?;
        let urgent = self.hurry()?;
        programs::send_until(&mut self.link, hold, self.job)?;
        self.relax(urgent)?;
        Ok(self.end()?.noted)
    }

    /// Nanoseconds from the first block's beginning to the last one's end.
    fn make(&mut self, work: Workers, seed: u64) -> Result<f64> {
        // Linux gives real-time threads 95 % of a second: leave room for the batches before.
        std::thread::sleep(Duration::from_nanos(work.count * work.block_ns / 4));
        self.begin(Order::Process(work, seed))?;
        let urgent = self.hurry()?;
        let took_ns = programs::make(&mut self.link, work, self.job)?;
        self.relax(urgent)?;
        self.end()?;
        Ok(took_ns as f64)
    }

    /// Looks at the status bytes just after the collector has changed one of them.
    fn status_read(&mut self) -> Result<Option<StatusRead>> {
        if self.link.status_reads().is_none() {
            return Ok(None);
        }
        let count = STATUS_READS;
        self.begin(Order::PingPong { count })?;
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
        self.begin(Order::Verify { count })?;
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
        self.begin(Order::Acquaint { count })?;
        let answered = self.job.what.has_collector();
        round_trips(&mut self.link, count, answered, self.ticks)?;
        self.link.finish()?;
        self.say_that_all_came()?;
        self.end()?;
        Ok(())
    }

    /// Runs batches that do not count until the machine is warm, and says how many blocks fill
    /// the time of a batch.
    fn warm_up(&mut self, mut run: impl FnMut(&mut Self, u64) -> Result<u64>) -> Result<u64> {
        let target_ns = self.job.batch_ms * 1_000_000;
        let least = 2 * self.job.blocks as u64;
        let mut count = least.max(4);
        let (mut operations, mut spent_ns) = (0, 0);
        loop {
            let ns = run(self, count)?.max(1);
            operations += count;
            spent_ns += ns;
            let fitting = count as f64 * target_ns as f64 / ns as f64;
            let warm = operations >= WARM_UP_OPERATIONS || spent_ns > 2 * target_ns;
            if warm && ns >= target_ns / 2 {
                return Ok((fitting as u64).max(least));
            }
            count = (fitting as u64).clamp(least, count * 8);
        }
    }

    fn begin(&mut self, order: Order) -> Result<()> {
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

    fn end(&mut self) -> Result<Report> {
        // What was sent last may need us until it is there.
        while !self.peer.has_more(LOOK_AGAIN)? {
            self.link.finish()?;
        }
        let report = self.peer.recv();
        self.link.set_pace(Pace::Parked)?;
        report
    }

    /// Real-time priority for a timed part, if the job wants it; ours before that of other threads
    /// on our core.
    fn hurry(&mut self) -> Result<Urgent> {
        let urgent = Urgent::begin(self.job.realtime)?;
        self.link.set_pace(pace_of(&urgent))?;
        Ok(urgent)
    }

    /// The end of it, in the other order.
    fn relax(&mut self, urgent: Urgent) -> Result<()> {
        self.link.set_pace(Pace::Working)?;
        drop(urgent);
        Ok(())
    }

    fn stream(&mut self, count: u64) -> Result<Stream> {
        self.begin(Order::Stream { count })?;
        let urgent = self.hurry()?;
        let status_reads_before = self.link.status_reads();
        let meter = Meter::start();
        let start_ns = sys::monotonic_ns();
        for _ in 0..count {
            self.link.send(None)?;
        }
        let sent_ns = sys::monotonic_ns();
        let (source_cpu_ns, source_share) = meter.stop();
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
        self.begin(Order::Floor {
            count: FLOOR_ROUND_TRIPS,
        })?;
        let urgent = Urgent::begin(self.job.realtime)?;
        let mut samples = round_trips(&mut self.floor, FLOOR_ROUND_TRIPS, true, self.ticks)?;
        drop(urgent);
        self.end()?;
        samples.sort_by(f64::total_cmp);
        Ok(stats::middle_of_sorted(&samples) / 2.0)
    }

    fn ping_pong(&mut self, count: u64) -> Result<PingPong> {
        let floor_ns = self.floor_ns()?;
        self.begin(Order::PingPong { count })?;
        let answered = self.job.what.has_collector();
        let urgent = self.hurry()?;
        let meter = Meter::start();
        let mut samples = round_trips(&mut self.link, count, answered, self.ticks)?;
        let (_, source_share) = meter.stop();
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

/// The batches of one kind that count.
struct Batches<T> {
    kept: Vec<T>,
    repeated: usize,
    disturbed: bool,
}

impl<T> Batches<T> {
    /// Runs batches until enough of them had their cores, or twice as many as wanted were run.
    fn take<L: Link>(
        source: &mut Source<'_, L>,
        mut run: impl FnMut(&mut Source<'_, L>) -> Result<T>,
        core_share: impl Fn(&T) -> f64,
    ) -> Result<Batches<T>> {
        let wanted = source.job.batches;
        let limit = if source.job.what.polls() && source.job.wait.polls() {
            CORE_SHARE_MIN
        } else {
            0.0
        };
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
        Ok(Batches {
            repeated: ran - all.len(),
            kept: all,
            disturbed,
        })
    }

    fn add_to(self, outcome: &mut Outcome, list: impl FnOnce(&mut Outcome) -> &mut Vec<T>) {
        outcome.repeated += self.repeated;
        outcome.disturbed |= self.disturbed;
        list(outcome).extend(self.kept);
    }
}

/// CPU time of this process over a span, and the part of its core that it got: all its threads
/// share one.
struct Meter {
    wall_ns: u64,
    process_ns: u64,
}

impl Meter {
    fn start() -> Meter {
        Meter {
            process_ns: sys::process_cpu_ns(),
            wall_ns: sys::monotonic_ns(),
        }
    }

    fn stop(&self) -> (u64, f64) {
        let wall = (sys::monotonic_ns() - self.wall_ns).max(1);
        let process = sys::process_cpu_ns().saturating_sub(self.process_ns);
        (process, (process as f64 / wall as f64).min(1.0))
    }
}

/// Nanoseconds from each time of the first list to that of the second.
fn differences(from: &[u64], to: &[u64]) -> Vec<f64> {
    let pairs = from.iter().zip(to);
    pairs
        .map(|(from, to)| to.saturating_sub(*from) as f64)
        .collect()
}

fn pace_of(urgent: &Urgent) -> Pace {
    if urgent.0 {
        Pace::Urgent
    } else {
        Pace::Working
    }
}

/// Real-time priority while it lives.
struct Urgent(bool);

impl Urgent {
    fn begin(wanted: bool) -> Result<Urgent> {
        if wanted {
            sys::set_realtime(true).context("real-time priority (leave out --realtime)")?;
        }
        Ok(Urgent(wanted))
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        if self.0 {
            // Going down always works; if not, the parent still ends this process.
            let _ = sys::set_realtime(false);
        }
    }
}
