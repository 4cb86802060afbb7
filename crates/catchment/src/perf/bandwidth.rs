//! As many bytes as go: the client keeps requests outstanding.

use super::PerfError;
use super::control::{Control, PATIENCE};
use super::end::{End, demand};
use super::message::FromClient;
use super::plan::{Operation, Waiting};
use super::wait::Bed as _;
use catchment_verbs::{Payload, SendOp, SendWr};
use std::time::{Duration, Instant};

/// Requests posted together; the last one is signaled.
const BATCH: usize = 16;
/// The peak is that of the best interval of at least this length.
const INTERVAL: Duration = Duration::from_millis(10);
/// The taker of messages looks so often whether it is over, and so many times in vain in between.
const LOOK: Duration = Duration::from_millis(20);
const VAIN: u32 = 256;

/// What went.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    /// Requests that count.
    pub(super) requests: u64,
    /// Their time.
    pub(super) time: Duration,
    pub(super) peak_bytes_per_s: f64,
}

/// Posts requests, one after the other round the ring.
pub(super) struct Flow<'a> {
    end: &'a mut End,
    posted: u64,
    done: u64,
    batch: u64,
}

impl Flow<'_> {
    pub(super) fn new(end: &mut End) -> Flow<'_> {
        let quarter = u64::from(end.plan.depth / 4);
        Flow {
            batch: quarter.clamp(1, BATCH as u64),
            end,
            posted: 0,
            done: 0,
        }
    }

    /// Requests posted so far, all of which are done.
    pub(super) fn requests(&self) -> u64 {
        self.posted
    }

    /// Posts for at most so long and so many requests, and waits until all are done.
    pub(super) fn run(&mut self, limit: Duration, most: u64) -> Result<Sent, PerfError> {
        let first = self.posted;
        let last = first.saturating_add(most);
        let start = Instant::now();
        let mut peak = Peak::from(start);
        loop {
            while self.posted < last && self.has_room() && start.elapsed() < limit {
                self.post(last)?;
            }
            if self.done == self.posted {
                break;
            }
            let before = self.done;
            self.done = self.newest()?;
            peak.count(self.done - before);
        }
        let time = start.elapsed();
        let requests = self.done - first;
        let bytes = self.end.plan.bytes as f64;
        Ok(Sent {
            requests,
            time,
            peak_bytes_per_s: peak.best.max(requests as f64 / time.as_secs_f64()) * bytes,
        })
    }

    fn has_room(&self) -> bool {
        self.posted - self.done + self.batch <= u64::from(self.end.plan.depth)
    }

    /// Waits for completions; the newest one's request.
    fn newest(&self) -> Result<u64, PerfError> {
        let (end, queue) = (&*self.end, &self.end.sends);
        demand(end, queue, || {
            let mut newest = None;
            queue.poll::<32>(|done| newest = Some(done))?;
            Ok(newest)
        })
    }

    /// Posts one batch, not beyond request `last`. A request's number is how many there are with it.
    fn post(&mut self, last: u64) -> Result<(), PerfError> {
        let count = self.batch.min(last - self.posted) as usize;
        let end = &mut *self.end;
        let offset = |n: usize| end.offset(self.posted + n as u64);
        let sges: [_; BATCH] = std::array::from_fn(|n| [end.sge(offset(n))]);
        let requests: [_; BATCH] = std::array::from_fn(|n| {
            let remote = end.remote(offset(n));
            let op = match end.plan.test.operation {
                Operation::Write => SendOp::Write(remote),
                Operation::Read => SendOp::Read(remote),
                Operation::Send => SendOp::Send,
            };
            let number = self.posted + n as u64 + 1;
            SendWr {
                signaled: n + 1 == count,
                ..SendWr::new(number, op, Payload::Sges(&sges[n]))
            }
        });
        end.qp.post_send(&requests[..count])?;
        self.posted += count as u64;
        Ok(())
    }
}

/// The best interval.
struct Peak {
    since: Instant,
    requests: u64,
    /// Requests a second.
    best: f64,
}

impl Peak {
    fn from(since: Instant) -> Peak {
        Peak {
            since,
            requests: 0,
            best: 0.0,
        }
    }

    fn count(&mut self, requests: u64) {
        self.requests += requests;
        let time = self.since.elapsed();
        if time >= INTERVAL {
            self.best = self.best.max(self.requests as f64 / time.as_secs_f64());
            *self = Peak {
                best: self.best,
                ..Peak::from(self.since + time)
            };
        }
    }
}

/// The server's part of SEND: each receive that a message took is posted again, until the client
/// says how many there were.
pub(super) fn take(end: &mut End, control: &mut Control) -> Result<(), PerfError> {
    let (mut taken, mut total) = (0, None);
    let (mut vain, mut armed) = (0_u32, false);
    while total.is_none_or(|total| taken < total) {
        let mut freed = [0; 32];
        let mut count = 0;
        end.receives.poll::<32>(|wr_id| {
            freed[count] = wr_id;
            count += 1;
        })?;
        for wr_id in &freed[..count] {
            end.post_receive(*wr_id, end.offset(*wr_id))?;
        }
        taken += count as u64;
        if count > 0 {
            (vain, armed) = (0, false);
            continue;
        }
        vain += 1;
        let sleeps = end.plan.waiting == Waiting::Sleep;
        if total.is_none() && (sleeps || vain % VAIN == 0) && control.has_more()? {
            total = Some(over(control, PATIENCE)?);
            continue;
        }
        end.check()?;
        match (sleeps, armed) {
            (false, _) => std::thread::yield_now(),
            // One may have come before this: another look first.
            (true, false) => (&end.receives).arm(),
            (true, true) => (&end.receives).doze(LOOK)?,
        }
        armed = sleeps && !armed;
    }
    Ok(())
}

/// The client's word that all was sent.
pub(super) fn over(control: &mut Control, within: Duration) -> Result<u64, PerfError> {
    let said = control.recv::<FromClient>("over", within)?;
    let FromClient::Over { requests } = said else {
        return Err(said.unexpected("over"));
    };
    Ok(requests)
}
