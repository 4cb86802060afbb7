//! Latency: one request at a time. WRITEs and SENDs go to and fro; the last byte of each differs from that
//! of the one before, and is 0 only when all is over.
use crate::PerfError;
use crate::endpoint::Connection;
use crate::operation::Operation;
use crate::plan::Amount;
use crate::wait::wait_for;
use catchment_verbs::{Payload, SendOp, SendWr};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Times that are kept at most; then the measurement ends.
const TIMES_MAX: usize = 1 << 24;
/// Every so many requests one is signaled, and completions are taken.
const SIGNALED: u64 = 16;
/// Receives that are posted.
const RECEIVES: u64 = 4;
/// The last byte of what comes at the end.
pub(crate) const OVER: u8 = 0;

/// Returns the last byte of request `n`.
pub(crate) fn mark(n: u64) -> u8 {
    (n % 255) as u8 + 1
}

/// Times what `trip` does with one number after the other, after a warm-up that does not count: `share`
/// of each, in nanoseconds.
///
/// # Errors
/// Those of `trip`.
pub fn time_trips<E>(
    (warm_up, amount): (Amount, Amount),
    share: f64,
    mut trip: impl FnMut(u64) -> Result<(), E>,
) -> Result<Vec<f64>, E> {
    let (warm_limit, warm_most) = warm_up.limits();
    let (limit, most) = amount.limits();
    let most = usize::try_from(most).unwrap_or(TIMES_MAX).min(TIMES_MAX);
    let mut times = Vec::with_capacity(most.min(1 << 20));
    let mut start = Instant::now();
    let mut warm = false;
    for n in 0.. {
        let before = Instant::now();
        if !warm && (n >= warm_most || before.duration_since(start) >= warm_limit) {
            (warm, start) = (true, before);
        }
        if warm && (times.len() >= most || before.duration_since(start) >= limit) {
            break;
        }
        trip(n)?;
        if warm {
            times.push(before.elapsed().as_nanos() as f64 * share);
        }
    }
    Ok(times)
}

/// What one side sends to and fro.
pub(crate) struct PingPong<'a> {
    end: Connection<'a>,
    operation: Operation,
    /// The last byte of what came last.
    last: u8,
}

impl<'a> PingPong<'a> {
    /// Prepares one side. The last byte of its memory's first place must be 0.
    pub(crate) fn new(end: Connection<'a>, operation: Operation) -> Self {
        PingPong { end, operation, last: OVER }
    }

    /// Posts the receives that SENDs need.
    pub(crate) fn post_receives(&mut self) -> Result<(), PerfError> {
        (0..RECEIVES).try_for_each(|_| self.renew())
    }

    /// Measures as the active side: times of requests one way, in nanoseconds.
    ///
    /// # Errors
    /// What a request, the queue pair or waiting failed with, or a wrong answer.
    pub(crate) fn ask(&mut self, warm_up: Amount, amount: Amount) -> Result<Vec<f64>, PerfError> {
        let share = match self.operation {
            Operation::Read => 1.0,
            Operation::Write | Operation::WriteImm | Operation::Send => 0.5,
        };
        let times = time_trips((warm_up, amount), share, |n| self.exchange(n))?;
        if self.operation != Operation::Read {
            self.send(u64::MAX, OVER)?;
        }
        Ok(times)
    }

    /// Makes request `n` and waits for its answer.
    fn exchange(&mut self, n: u64) -> Result<(), PerfError> {
        if self.operation == Operation::Read {
            return self.read(n);
        }
        self.send(n, mark(n))?;
        let (end, operation, last) = (&self.end, self.operation, self.last);
        self.last = end.demand(end.receives, || look(end, operation, last))?;
        self.renew()?;
        if self.last == mark(n) {
            return Ok(());
        }
        let (seen, expected) = (self.last, mark(n));
        Err(PerfError::Failed(format!(
            "the answer to request {n} ends with {seen}, not {expected}"
        )))
    }

    fn read(&mut self, n: u64) -> Result<(), PerfError> {
        let end = &mut self.end;
        let sges = [end.sge(end.outbox())];
        let op = SendOp::Read(end.remote(0));
        end.qp.post_send(&[SendWr::new(n, op, Payload::Sges(&sges))])?;
        let queue = end.sends;
        end.demand(queue, || Ok((queue.poll::<1>(|_| ())? > 0).then_some(())))
    }

    fn send(&mut self, n: u64, mark: u8) -> Result<(), PerfError> {
        let op = match self.operation {
            Operation::Write | Operation::Read => SendOp::Write(self.end.remote(0)),
            Operation::WriteImm => SendOp::WriteImm(self.end.remote(0), n as u32),
            Operation::Send => SendOp::Send,
        };
        let signaled = n.is_multiple_of(SIGNALED);
        self.end.post_marked((n, op, signaled), mark)?;
        if signaled {
            self.end.sends.poll::<16>(|_| ())?;
        }
        Ok(())
    }

    /// Posts the receive again that a message took.
    fn renew(&mut self) -> Result<(), PerfError> {
        if self.operation.takes_receive() {
            self.end.post_receive(0, 0)?;
        }
        Ok(())
    }

    /// Answers as the passive side until the active one has ended. `alive`, asked now and then, fails when
    /// nothing will come any more.
    ///
    /// # Errors
    /// What a request or the queue pair failed with, and the errors of `alive`.
    pub(crate) fn answer(
        &mut self,
        alive: &mut dyn FnMut() -> Result<(), PerfError>,
    ) -> Result<(), PerfError> {
        for n in 0.. {
            self.last = self.request(alive)?;
            if self.last == OVER {
                break;
            }
            self.renew()?;
            self.send(n, self.last)?;
        }
        Ok(())
    }

    /// Waits for the next request, however long it takes; its last byte.
    fn request(&self, alive: &mut dyn FnMut() -> Result<(), PerfError>) -> Result<u8, PerfError> {
        let (end, operation, last) = (&self.end, self.operation, self.last);
        let mut idle = |_: &()| {
            end.check()?;
            alive().map(|()| false)
        };
        loop {
            let watch = |(): &()| Some(end.receives.watch());
            let seen =
                wait_for(&mut (), end.waiting, watch, &mut idle, |()| look(end, operation, last))?;
            if let Some(seen) = seen {
                return Ok(seen);
            }
        }
    }
}

/// Returns the last byte of what came, if it is another than before.
fn look(end: &Connection<'_>, operation: Operation, before: u8) -> Result<Option<u8>, PerfError> {
    let came = match operation {
        Operation::WriteImm | Operation::Send => end.receives.poll::<1>(|_| ())? > 0,
        Operation::Write | Operation::Read => {
            if end.polls {
                end.sends.poll::<4>(|_| ())?;
            }
            true
        }
    };
    if !came {
        return Ok(None);
    }
    let last = end.bytes as usize - 1;
    let seen = end.memory.region().whole().load_u8(last, Ordering::Acquire);
    let seen = seen.map_err(PerfError::failed)?;
    Ok((seen != before).then_some(seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_differ_from_those_before_and_are_never_the_end() {
        for n in 0..1000 {
            assert_ne!(mark(n), mark(n + 1));
            assert_ne!(mark(n), OVER);
        }
    }

    #[test]
    fn trips_of_the_warm_up_do_not_count() {
        let mut seen = Vec::new();
        let amounts = (Amount::Iterations(3), Amount::Iterations(2));
        let times = time_trips(amounts, 0.5, |n| {
            seen.push(n);
            Ok::<_, PerfError>(())
        });
        assert_eq!(times.unwrap().len(), 2);
        assert_eq!(seen, [0, 1, 2, 3, 4]);
    }
}
