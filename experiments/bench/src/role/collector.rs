//! The collector's role: it obeys.
use super::{Collector, LOOK_AGAIN, Order, Report, Urgent, pace_of, spent};
use crate::job::{Job, Needs};
use crate::link::{Link, Pace, pattern};
use crate::sys;
use anyhow::Result;
use catchment_perf::Meter;
use std::collections::HashMap;

impl<L: Link> Collector<'_, L> {
    pub(super) fn obey(&mut self) -> Result<()> {
        loop {
            let order: Order = self.peer.recv()?;
            if matches!(order, Order::Done) {
                return self.peer.send(&needs(&self.link)?);
            }
            let timed = !matches!(order, Order::Verify(_) | Order::Acquaint(_));
            let urgent = Urgent::begin(self.job.realtime && timed)?;
            self.link.set_pace(pace_of(&urgent))?;
            // The source starts when it reads this, and finds this role waiting.
            self.peer.send(&())?;
            let meter = Meter::start();
            let mut noted = Vec::new();
            let wrong_blocks = self.carry_out(order, &mut noted)?;
            let end_ns = sys::monotonic_ns();
            let (cpu_ns, core_share) = spent(&meter);
            // Before us: a thread on our core with a higher priority would keep us from running.
            self.link.set_pace(Pace::Parked)?;
            drop(urgent);
            self.peer.send(&Report { end_ns, cpu_ns, core_share, wrong_blocks, noted })?;
        }
    }

    fn carry_out(&mut self, order: Order, noted: &mut Vec<u64>) -> Result<u64> {
        match order {
            Order::Floor(count) => answer(&mut self.floor, count)?,
            Order::Done => {}
            Order::Sync { count, blocks } => *noted = self.give_back_one_by_one(count, blocks)?,
            Order::OneWay(count) => *noted = self.note_arrivals(count)?,
            Order::Process(work, seed) => self.process(work, seed)?,
            Order::Hold(hold) => *noted = self.hold_one(hold)?,
            Order::Verify(_) | Order::Acquaint(_) | Order::Stream(_) | Order::PingPong(_)
                if self.link.attend()? => {}
            Order::Verify(count) => return verify(self.job, &mut self.link, count),
            Order::Stream(count) => {
                for _ in 0..count {
                    self.link.recv(None)?;
                    self.link.give_back()?;
                }
            }
            Order::Acquaint(count) | Order::PingPong(count) => {
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

pub(super) fn needs<L: Link>(link: &L) -> Result<Needs> {
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
