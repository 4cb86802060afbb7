//! Bandwidth: the active side keeps requests outstanding.
use crate::PerfError;
use crate::endpoint::Connection;
use crate::operation::Operation;
use crate::plan::{Plan, Waiting};
use crate::span::Strays;
use catchment_verbs::{Payload, RateLimit, SendOp, SendWr};
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

/// The peak is that of the best interval of at least this length.
const INTERVAL: Duration = Duration::from_millis(10);
/// The receiver of messages asks so often whether all were sent, and after so many empty looks.
const ASK_EVERY: Duration = Duration::from_millis(20);
const EMPTY_LOOKS: u32 = 256;

/// What a run moved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) requests: u64,
    /// From the first post to the last completion.
    pub(crate) time: Duration,
    /// Requests a second in the best 10 ms.
    pub(crate) peak_per_s: f64,
}

/// The bits of a `wr_id` that are the request's number. Those above name the connection.
const NUMBER: u64 = (1 << 40) - 1;

/// Returns the number of a request of the connection of this name; nothing if it is of another.
#[inline]
fn number_of(wr_id: u64, name: u64) -> Option<u64> {
    (wr_id & !NUMBER == name).then_some(wr_id & NUMBER)
}

/// Posts requests, one after the other round the ring, in batches whose last one is signaled. Requests
/// are numbered from 1.
pub(crate) struct Flow<'a> {
    end: Connection<'a>,
    plan: &'a Plan,
    /// By which a completion is known to be of this connection and no other: chance.
    name: u64,
    posted: u64,
    done: u64,
    strays: Strays,
    /// Of a plan with two rates: when the other one is in force, and whether that is the first.
    turn: (Instant, bool),
}

impl<'a> Flow<'a> {
    pub(crate) fn new(end: Connection<'a>, plan: &'a Plan) -> Self {
        let name = RandomState::new().hash_one(plan.bytes) & !NUMBER;
        let turn = (Instant::now() + Plan::RATE_TURN, false);
        Flow { end, plan, name, posted: 0, done: 0, strays: Strays::default(), turn }
    }

    /// Returns what went astray so far.
    pub(crate) fn strays(&self) -> Strays {
        Strays { lost: self.posted - self.done, ..self.strays }
    }

    /// Returns how many requests were posted so far.
    pub(crate) fn posted(&self) -> u64 {
        self.posted
    }

    /// Posts for at most so long and so many requests, and waits until all are done.
    ///
    /// # Errors
    /// What a request, the queue pair or waiting failed with.
    pub(crate) fn run(&mut self, limit: Duration, most: u64) -> Result<Sent, PerfError> {
        let first = self.done;
        let last = self.posted.saturating_add(most);
        let start = Instant::now();
        let mut peak = Peak::since(start);
        loop {
            while self.posted < last && self.has_room() && start.elapsed() < limit {
                self.take_turn()?;
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
        Ok(Sent { requests, time, peak_per_s: peak.best.max(requests as f64 / time.as_secs_f64()) })
    }

    /// Posts one request and waits until it is complete; nothing else may be outstanding.
    ///
    /// # Errors
    /// As [`Flow::run`].
    pub(crate) fn request(&mut self) -> Result<(), PerfError> {
        self.post(self.posted + 1)?;
        self.done = self.newest()?;
        Ok(())
    }

    /// Changes the limit where there are two and the time of one is over.
    fn take_turn(&mut self) -> Result<(), PerfError> {
        let Some(second_bps) = self.plan.second_rate_bps else { return Ok(()) };
        let (at, is_first) = self.turn;
        if Instant::now() < at {
            return Ok(());
        }
        // Turns that were slept through are made up for: each has its time.
        self.turn = (at + Plan::RATE_TURN, !is_first);
        let rate_bps = if is_first { self.plan.rate_bps } else { Some(second_bps) };
        self.end.qp.set_rate(rate_bps.map(RateLimit::new)).map_err(PerfError::failed)
    }

    fn has_room(&self) -> bool {
        self.posted - self.done + u64::from(self.plan.batch) <= u64::from(self.plan.depth)
    }

    /// Waits for completions; the newest one's request.
    fn newest(&mut self) -> Result<u64, PerfError> {
        let Self { end, name, posted, done, strays, .. } = self;
        let queue = end.sends;
        let mut last = *done;
        end.demand(queue, || {
            let before = last;
            queue.poll::<32>(|wr_id| match number_of(wr_id, *name) {
                Some(number) if number > last && number <= *posted => last = number,
                Some(_) | None => strays.misrouted += 1,
            })?;
            Ok((last > before).then_some(last))
        })
    }

    /// Posts one batch, not beyond request `last`.
    fn post(&mut self, last: u64) -> Result<(), PerfError> {
        const MOST: usize = Plan::BATCH_MAX as usize;
        let count = u64::from(self.plan.batch).min(last - self.posted) as usize;
        let (end, plan, posted, name) = (&mut self.end, self.plan, self.posted, self.name);
        let offset = |n: usize| end.offset(posted + n as u64, plan.places);
        let sges: [_; MOST] = std::array::from_fn(|n| [end.sge(offset(n))]);
        let requests: [_; MOST] = std::array::from_fn(|n| {
            let remote = end.remote(offset(n));
            let op = match plan.test.operation {
                Operation::Write => SendOp::Write(remote),
                Operation::Read => SendOp::Read(remote),
                Operation::WriteImm => SendOp::WriteImm(remote, n as u32),
                Operation::Send => SendOp::Send,
            };
            SendWr {
                signaled: n + 1 == count,
                ..SendWr::new(name | (posted + n as u64 + 1), op, Payload::Sges(&sges[n]))
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
    fn since(since: Instant) -> Self {
        Self { since, requests: 0, best: 0.0 }
    }

    fn count(&mut self, requests: u64) {
        self.requests += requests;
        let time = self.since.elapsed();
        if time >= INTERVAL {
            self.best = self.best.max(self.requests as f64 / time.as_secs_f64());
            *self = Self { best: self.best, ..Self::since(self.since + time) };
        }
    }
}

/// Posts the receives that SENDs need.
pub(crate) fn post_receives(end: &mut Connection<'_>, plan: &Plan) -> Result<(), PerfError> {
    for n in 0..u64::from(plan.receives) {
        end.post_receive(n, end.offset(n, plan.places))?;
    }
    Ok(())
}

/// The passive side of SEND: posts each receive again that a message took, until `over`, which is asked
/// now and then, has said how many messages there were.
///
/// # Errors
/// What a receive or the queue pair failed with, and the errors of `over`.
pub(crate) fn take(
    mut end: Connection<'_>,
    plan: &Plan,
    over: &mut dyn FnMut() -> Result<Option<u64>, PerfError>,
) -> Result<(), PerfError> {
    let (queue, sleeps) = (end.receives, plan.waiting == Waiting::Sleep);
    let watch = queue.watch();
    let (mut taken, mut total) = (0, None);
    let (mut empty, mut armed) = (0_u32, false);
    while total.is_none_or(|total| taken < total) {
        let mut freed = [0; 32];
        let mut count = 0;
        queue.poll::<32>(|wr_id| {
            freed[count] = wr_id;
            count += 1;
        })?;
        for wr_id in &freed[..count] {
            end.post_receive(*wr_id, end.offset(*wr_id, plan.places))?;
        }
        taken += count as u64;
        if count > 0 {
            (empty, armed) = (0, false);
            continue;
        }
        empty += 1;
        if total.is_none() && (sleeps || empty % EMPTY_LOOKS == 0) {
            total = over()?;
            if total.is_some() {
                continue;
            }
        }
        end.check()?;
        match (sleeps, armed) {
            (false, _) => std::thread::yield_now(),
            // One may have come before this: look again first.
            (true, false) => watch.arm(),
            (true, true) => watch.wait(ASK_EVERY).map(drop).map_err(PerfError::Sleep)?,
        }
        armed = sleeps && !armed;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_of_another_connection_is_known_to_be_none_of_this() {
        let (ours, theirs) = (7 << 40, 9 << 40);
        assert_eq!(number_of(ours | 12, ours), Some(12));
        assert_eq!(number_of(ours | NUMBER, ours), Some(NUMBER));
        assert_eq!(number_of(theirs | 12, ours), None);
        assert_eq!(number_of(12, ours), None);
    }
}
