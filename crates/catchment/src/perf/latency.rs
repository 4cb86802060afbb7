//! One request at a time. WRITEs and SENDs go to and fro; the last byte of each differs from that of
//! the one before, and is 0 only when all is over.

use super::PerfError;
use super::control::Control;
use super::end::{End, demand};
use super::plan::{Amount, Operation};
use super::wait::wait;
use catchment_verbs::{Payload, SendOp, SendWr};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Round trips that do not count.
const WARM_UP: u64 = 100;
/// Times that are kept at most; then the measurement ends.
const TIMES_MAX: usize = 1 << 24;
/// Every so many requests one is signaled, and completions are taken.
const SIGNALED: u64 = 16;
/// Receives that are there.
const RECEIVES: u64 = 4;
/// The last byte of what comes at the end.
pub(super) const OVER: u8 = 0;

/// The last byte of request `n`.
pub(super) fn mark(n: u64) -> u8 {
    (n % 255) as u8 + 1
}

/// Times what `trip` does with one number after the other, after some that do not count: that share
/// of each, in nanoseconds.
pub(super) fn time_trips(
    amount: Amount,
    share: f64,
    mut trip: impl FnMut(u64) -> Result<(), PerfError>,
) -> Result<Vec<f64>, PerfError> {
    let (limit, most) = amount.limits();
    let most = usize::try_from(most).unwrap_or(TIMES_MAX).min(TIMES_MAX);
    let mut times = Vec::with_capacity(most.min(1 << 20));
    let mut start = Instant::now();
    for n in 0.. {
        let before = Instant::now();
        if n == WARM_UP {
            start = before;
        }
        if n >= WARM_UP && (times.len() >= most || before.duration_since(start) >= limit) {
            break;
        }
        trip(n)?;
        if n >= WARM_UP {
            times.push(before.elapsed().as_nanos() as f64 * share);
        }
    }
    Ok(times)
}

/// Times requests, in nanoseconds.
pub(super) fn ask(end: &mut End) -> Result<Vec<f64>, PerfError> {
    let share = match end.plan.test.operation {
        Operation::Read => 1.0,
        Operation::Write | Operation::Send => 0.5,
    };
    let mut last = 0;
    let times = time_trips(end.plan.amount, share, |n| {
        last = exchange(end, n, last)?;
        Ok(())
    })?;
    if end.plan.test.is_answered() {
        send(end, u64::MAX, OVER)?;
    }
    Ok(times)
}

/// Request `n` and its answer; the last byte of the answer.
fn exchange(end: &mut End, n: u64, last: u8) -> Result<u8, PerfError> {
    if end.plan.test.operation == Operation::Read {
        let sges = [end.sge(end.outbox())];
        let op = SendOp::Read(end.remote(0));
        end.qp
            .post_send(&[SendWr::new(n, op, Payload::Sges(&sges))])?;
        let found = |count: usize| (count > 0).then_some(last);
        return demand(end, &end.sends, || Ok(found(end.sends.poll::<1>(|_| ())?)));
    }
    send(end, n, mark(n))?;
    let seen = demand(end, &end.receives, || look(end, last))?;
    renew(end)?;
    if seen == mark(n) {
        return Ok(seen);
    }
    let expected = mark(n);
    Err(PerfError::Failed(format!(
        "the answer to request {n} ends with {seen}, not {expected}"
    )))
}

fn send(end: &mut End, n: u64, mark: u8) -> Result<(), PerfError> {
    let op = match end.plan.test.operation {
        Operation::Write | Operation::Read => SendOp::Write(end.remote(0)),
        Operation::Send => SendOp::Send,
    };
    let signaled = n.is_multiple_of(SIGNALED);
    end.post_marked((n, op, signaled), mark)?;
    if signaled {
        end.sends.poll::<4>(|_| ())?;
    }
    Ok(())
}

/// The last byte of what came, if it is another than before.
fn look(end: &End, before: u8) -> Result<Option<u8>, PerfError> {
    let came = match end.plan.test.operation {
        Operation::Send => end.receives.poll::<1>(|_| ())? > 0,
        Operation::Write | Operation::Read => {
            // Where programs do the engine's work, they do it by polling.
            end.sends.poll::<4>(|_| ())?;
            true
        }
    };
    if !came {
        return Ok(None);
    }
    let last = end.plan.bytes as usize - 1;
    let seen = end.mr.region().whole().load_u8(last, Ordering::Acquire);
    let seen = seen.map_err(|error| PerfError::Failed(error.to_string()))?;
    Ok((seen != before).then_some(seen))
}

/// Posts the receive again that a message took.
fn renew(end: &mut End) -> Result<(), PerfError> {
    if end.plan.test.operation == Operation::Send {
        end.post_receive(0, 0)?;
    }
    Ok(())
}

/// Posts the receives that both sides begin with.
pub(super) fn prepare(end: &mut End) -> Result<(), PerfError> {
    for _ in 0..RECEIVES {
        renew(end)?;
    }
    Ok(())
}

/// Answers until the client says that all is over, or is gone.
pub(super) fn answer(end: &mut End, control: &mut Control) -> Result<(), PerfError> {
    let mut last = OVER;
    for n in 0.. {
        last = await_request(end, last, control)?;
        if last == OVER {
            break;
        }
        renew(end)?;
        send(end, n, last)?;
    }
    Ok(())
}

/// The last byte of the next request. However long it takes: the control connection tells when
/// nothing will come.
fn await_request(end: &End, last: u8, control: &mut Control) -> Result<u8, PerfError> {
    let mut in_vain = |_: &()| {
        end.check()?;
        control.check_alive().map(|()| false)
    };
    loop {
        let (waiting, bed) = (end.plan.waiting, |_: &()| Some(&end.receives));
        let seen = wait(&mut (), waiting, bed, &mut in_vain, |()| look(end, last))?;
        if let Some(seen) = seen {
            return Ok(seen);
        }
    }
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
}
