//! The programs other than throughput and round trips: for mechanisms that claim and take without waiting.
use super::{Collector, Found, Order, Programs, Source};
use crate::job::{Hold, Program, Workers};
use crate::link::NonBlocking;
use crate::{programs, sys};
use anyhow::Result;
use std::time::Duration;

impl<L: NonBlocking> Programs<L> {
    /// For one that does not.
    pub(super) const ALL: Programs<L> = Programs { collect: Some(collect), measure: Some(measure) };
}

fn collect<L: NonBlocking>(
    role: &mut Collector<'_, L>,
    order: Order,
    noted: &mut Vec<u64>,
) -> Result<()> {
    let (link, job) = (&mut role.link, role.job);
    match order {
        Order::Sync { count, blocks } => {
            *noted = programs::give_back_one_by_one(link, count, blocks, job)?;
        }
        Order::OneWay(count) => {
            *noted = programs::note_arrivals(link, &mut role.floor, count, job)?;
        }
        Order::Process(work, seed) => programs::process(link, work, seed, job)?,
        Order::Hold(hold) => *noted = programs::hold_one(link, hold, job)?,
        Order::Verify(_)
        | Order::Acquaint(_)
        | Order::Stream(_)
        | Order::PingPong(_)
        | Order::Floor(_)
        | Order::Done => {}
    }
    Ok(())
}

fn measure<L: NonBlocking>(role: &mut Source<'_, L>, batch: u64) -> Result<Found> {
    Ok(Some(match role.job.program {
        // Cameras have a program of their own.
        Program::Stream | Program::Cameras(_) => return Ok(None),
        Program::Look { count } => (role.look(count)?, None),
        Program::Sync { count } => (role.sync(count)?, None),
        Program::OneWay { count } => (role.one_way(count)?, None),
        Program::Hold(hold) => (Vec::new(), Some(role.hold(hold)?)),
        Program::Workers(work) => (vec![role.make(work, batch)?], None),
    }))
}

impl<L: NonBlocking> Source<'_, L> {
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
        self.begin(Order::OneWay(count))?;
        let urgent = self.hurry()?;
        let (link, seen) = (&mut self.link, &mut self.floor);
        let posted = programs::post_one_by_one(link, seen, count, self.job)?;
        self.relax(urgent)?;
        Ok(differences(&posted, &self.end()?.noted))
    }

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
}

/// Nanoseconds from each time of the first list to that of the second.
fn differences(from: &[u64], to: &[u64]) -> Vec<f64> {
    from.iter().zip(to).map(|(from, to)| to.saturating_sub(*from) as f64).collect()
}
