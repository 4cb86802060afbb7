//! What the two roles do in programs other than throughput and round trips, for mechanisms that claim
//! and take without waiting. Times are those of the clock that both share.
use super::{Collector, Order, Source};
use crate::job::{Hold, Job, Program, Workers};
use crate::link::Link;
use crate::sys;
use anyhow::{Context as _, Result, bail, ensure};
use catchment_sim::Random;
use std::time::Duration;

/// Pause of the side that acts, so that the other one waits when it does.
const PAUSE_NS: u64 = 20_000;
/// Pause between two blocks of which each has the ring for itself: also what follows a block over a
/// network (its acknowledgement, a READ of the status bytes) is over then.
const QUIET_NS: u64 = 100_000;
/// Who waits longer than this for the other role waits in vain.
const PATIENCE_NS: u64 = 20_000_000_000;
/// Looks after the own requests between two looks whether the other role has answered, a system call.
const LOOKS_BETWEEN: u32 = 16;
/// The source of `hold` has stopped by then.
const AFTER_NS: u64 = 10_000_000;

impl<L: Link> Collector<'_, L> {
    /// `sync`: takes what fills the ring, then gives back the oldest block, takes the one that comes
    /// into its place, and so on. Says how long each took to come.
    pub(super) fn give_back_one_by_one(&mut self, count: u64, blocks: usize) -> Result<Vec<u64>> {
        let (link, job) = (&mut self.link, self.job);
        let mut times = Vec::with_capacity(count as usize);
        for _ in 0..blocks {
            until(link, job, L::try_recv)?;
            link.set_aside();
        }
        for _ in 0..count {
            pause(link, job, PAUSE_NS)?;
            let given_back_ns = sys::monotonic_ns();
            link.give_back_aside(0)?;
            until(link, job, L::try_recv)?;
            times.push(sys::monotonic_ns() - given_back_ns);
            link.set_aside();
        }
        while link.give_back_aside(0)? {}
        Ok(times)
    }

    /// `one-way`: says when each block was seen, and over the cache line that it was.
    pub(super) fn note_arrivals(&mut self, count: u64) -> Result<Vec<u64>> {
        let mut times = Vec::with_capacity(count as usize);
        for _ in 0..count {
            until(&mut self.link, self.job, L::try_recv)?;
            times.push(sys::monotonic_ns());
            self.link.give_back()?;
            self.floor.send(None)?;
        }
        Ok(times)
    }

    /// `hold`: counts blocks in bins, and keeps one block for a time.
    pub(super) fn hold_one(&mut self, hold: Hold) -> Result<Vec<u64>> {
        let link = &mut self.link;
        let ms = |ms: u64| ms * 1_000_000;
        let bin = hold.bin.max(1);
        let mut bins = vec![0; (hold.end / bin) as usize];
        let last = bins.len().saturating_sub(1);
        let begin_ns = sys::monotonic_ns();
        let (mut kept, mut given_back) = (false, false);
        // A look at the clock takes longer than one at the blocks.
        let mut looks = 0u32;
        loop {
            let came = link.try_recv()?;
            looks += 1;
            if !came && !looks.is_multiple_of(16) {
                self.job.wait.pause();
                continue;
            }
            let at_ns = sys::monotonic_ns() - begin_ns;
            if at_ns >= ms(hold.end) {
                link.give_back()?;
                break;
            }
            if came {
                bins[((at_ns / ms(bin)) as usize).min(last)] += 1;
                if !kept && at_ns >= ms(hold.from) {
                    link.set_aside();
                    kept = true;
                }
            }
            if !given_back && at_ns >= ms(hold.to) {
                link.give_back_aside(0)?;
                given_back = true;
            }
            link.give_back()?;
        }
        // The source stops by its own clock, and what it sent until then is taken.
        while link.give_back_aside(0)? {}
        let until_ns = sys::monotonic_ns() + AFTER_NS;
        while sys::monotonic_ns() < until_ns {
            if link.try_recv()? {
                link.give_back()?;
            }
            self.job.wait.pause();
        }
        Ok(bins)
    }

    /// `workers`: a block is given back when the worker that was free first has had it for its time.
    /// One thread looks after all of them: what takes time here is no work.
    pub(super) fn process(&mut self, work: Workers, seed: u64) -> Result<()> {
        let link = &mut self.link;
        let mut random = Random::new(seed);
        let mut free_ns = vec![0; work.workers];
        // Ends of the blocks that are kept, in the order of the blocks.
        let mut ends_ns: Vec<u64> = Vec::with_capacity(self.job.blocks);
        let mut taken = 0;
        while taken < work.count || !ends_ns.is_empty() {
            let now_ns = sys::monotonic_ns();
            while let Some(place) = ends_ns.iter().position(|end_ns| *end_ns <= now_ns) {
                ends_ns.remove(place);
                link.give_back_aside(place)?;
            }
            if taken < work.count && link.try_recv()? {
                link.set_aside();
                taken += 1;
                let worker = free_ns.iter_mut().min().context("no workers")?;
                *worker = (*worker).max(now_ns) + work.law.draw(&mut random).round() as u64;
                ends_ns.push(*worker);
            } else {
                self.job.wait.pause();
            }
        }
        Ok(())
    }
}

impl<L: Link> Source<'_, L> {
    /// Returns what one batch of the job's program found: single times, and blocks in bins.
    pub(super) fn run(&mut self, batch: u64) -> Result<(Vec<f64>, Option<Vec<u64>>)> {
        Ok(match self.job.program {
            Program::Stream | Program::Cameras(_) => bail!("this one has a program of its own"),
            Program::Look { count } => (self.look(count)?, None),
            Program::Sync { count } => (self.sync(count)?, None),
            Program::OneWay { count } => (self.one_way(count)?, None),
            Program::Hold(hold) => (Vec::new(), Some(self.hold(hold)?)),
            Program::Workers(work) => (vec![self.make(work, batch)?], None),
        })
    }

    /// From giving a block back until the next one is there; the source always has one to send.
    fn sync(&mut self, count: u64) -> Result<Vec<f64>> {
        let blocks = self.job.blocks;
        self.begin(Order::Sync { count, blocks })?;
        let urgent = self.hurry()?;
        for _ in 0..count + blocks as u64 {
            until(&mut self.link, self.job, L::try_claim)?;
            self.link.commit()?;
        }
        // A mechanism with send blocks of its own has taken all before the last ones have a place: they
        // are sent here, and who slept between two looks would be what is measured.
        while !self.peer.has_more(Duration::ZERO)? {
            for _ in 0..LOOKS_BETWEEN {
                self.link.finish()?;
                self.job.wait.pause();
            }
        }
        self.relax(urgent)?;
        let report = self.end()?;
        Ok(report.noted.iter().map(|ns| *ns as f64).collect())
    }

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
                    until(&mut self.link, self.job, is_done)?;
                }
                let mut times = Vec::with_capacity(count as usize);
                for _ in 0..count {
                    let begin = sys::Ticks::now();
                    until(&mut self.link, self.job, is_done)?;
                    times.push(self.ticks.ns(begin, sys::Ticks::now()));
                }
                self.relax(urgent)?;
                Ok(times)
            }
        }
    }

    /// From posting a block to the look that finds it. The next one follows when the collector has
    /// seen it: at a fixed pace, blocks of a mechanism that takes longer would wait for each other.
    fn one_way(&mut self, count: u64) -> Result<Vec<f64>> {
        self.begin(Order::OneWay(count))?;
        let urgent = self.hurry()?;
        let (link, seen) = (&mut self.link, &mut self.floor);
        let mut posted_ns = Vec::with_capacity(count as usize);
        for _ in 0..count {
            pause(link, self.job, QUIET_NS)?;
            until(link, self.job, L::try_claim)?;
            posted_ns.push(sys::monotonic_ns());
            link.commit()?;
            until(link, self.job, |link| {
                link.finish()?;
                seen.try_recv()
            })?;
        }
        self.relax(urgent)?;
        let ways = posted_ns.into_iter().zip(self.end()?.noted);
        Ok(ways.map(|(posted_ns, seen_ns)| seen_ns.saturating_sub(posted_ns) as f64).collect())
    }

    /// Sends until the end.
    fn hold(&mut self, hold: Hold) -> Result<Vec<u64>> {
        // Linux gives real-time threads 95 % of a second: leave room for the runs before.
        std::thread::sleep(Duration::from_millis(hold.end + hold.end / 2));
        self.begin(Order::Hold(hold))?;
        let urgent = self.hurry()?;
        let end_ns = sys::monotonic_ns() + hold.end * 1_000_000;
        let mut looks = 0u32;
        loop {
            looks += 1;
            if looks.is_multiple_of(16) && sys::monotonic_ns() >= end_ns {
                break;
            }
            if self.link.try_claim()? {
                self.link.commit()?;
            } else {
                self.job.wait.pause();
            }
        }
        self.relax(urgent)?;
        Ok(self.end()?.noted)
    }

    /// Takes its time for each block, once it has a place for it. Returns the nanoseconds from the
    /// first block's beginning to the last one's end.
    fn make(&mut self, work: Workers, seed: u64) -> Result<f64> {
        // Linux gives real-time threads 95 % of a second: leave room for the batches before.
        std::thread::sleep(Duration::from_nanos(work.count * work.block_ns / 4));
        self.begin(Order::Process(work, seed))?;
        let urgent = self.hurry()?;
        let begin_ns = sys::monotonic_ns();
        let mut now_ns = begin_ns;
        for _ in 0..work.count {
            until(&mut self.link, self.job, L::try_claim)?;
            let made_ns = sys::monotonic_ns() + work.block_ns;
            while now_ns < made_ns {
                now_ns = sys::monotonic_ns();
            }
            self.link.commit()?;
        }
        self.relax(urgent)?;
        self.end()?;
        Ok((now_ns - begin_ns) as f64)
    }
}

/// Waits as the job says until `attempt` succeeds.
fn until<L>(link: &mut L, job: &Job, attempt: impl FnMut(&mut L) -> Result<bool>) -> Result<()> {
    let mut attempt = attempt;
    let mut began_ns = None;
    let mut looks = 0u32;
    while !attempt(link)? {
        job.wait.pause();
        looks += 1;
        if looks.is_multiple_of(4096) {
            let now_ns = sys::monotonic_ns();
            let waited_ns = now_ns - *began_ns.get_or_insert(now_ns);
            ensure!(waited_ns <= PATIENCE_NS, "the other role made no progress for 20 s");
        }
    }
    Ok(())
}

/// Lets so much time go by, and requests with it.
fn pause(link: &mut impl Link, job: &Job, ns: u64) -> Result<()> {
    let until_ns = sys::monotonic_ns() + ns;
    while sys::monotonic_ns() < until_ns {
        link.finish()?;
        job.wait.pause();
    }
    Ok(())
}
