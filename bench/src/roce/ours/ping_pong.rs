//! To and fro: a WRITE of 64 bytes into the other side's memory, which looks for it there, as bare
//! UDP looks for a packet: yielding between two looks.
use super::{
    super::{
        job::{Job, SMALL_BYTES},
        mark::{self, NUMBER_AT, OVER, WARM_UP},
    },
    Control, Outcome,
    end::{End, used},
};
use crate::{stats, sys};
use anyhow::{Result, bail};
use catchment_verbs::{Payload, QpState, SendOp, SendWr};

/// Every so many requests one is signaled, and completions are taken.
const SIGNALED: u64 = 64;

/// Asks for the time of the job.
pub(super) fn ask(job: &Job, end: &mut End, control: &mut Control) -> Result<Outcome> {
    control.meet()?;
    let ticks = sys::Ticks::calibrate();
    let mut samples = Vec::new();
    let deadline_ns = sys::monotonic_ns() + (job.seconds * 1e9) as u64;
    let mut n = 0;
    while sys::monotonic_ns() < deadline_ns || samples.len() <= WARM_UP {
        n += 1;
        let start = sys::Ticks::now();
        write(end, n)?;
        wait(end, |seen| seen == n)?;
        samples.push(ticks.ns(start, sys::Ticks::now()) / 2.0);
        take_completions(end, n)?;
    }
    write(end, OVER)?;
    // The answerer's engine needs ours until it has the last one.
    control.recv::<()>()?;
    Ok(Outcome {
        latency_ns: Some(stats::percentile(&samples[WARM_UP..], 0.5)),
        active: used(&end.context),
        ..Outcome::default()
    })
}

/// Answers until the other side says that this was all.
pub(super) fn answer(mut end: End, control: &mut Control) -> Result<()> {
    // What the memory is filled with is no number.
    control.meet()?;
    let mut n = 0;
    loop {
        let next = n + 1;
        let seen = wait(&end, |seen| seen == next || seen == OVER)?;
        if seen == OVER {
            return control.send(&());
        }
        write(&mut end, seen)?;
        take_completions(&end, seen)?;
        n = seen;
    }
}

fn write(end: &mut End, n: u64) -> Result<()> {
    let mut data = [0; SMALL_BYTES];
    data[NUMBER_AT..].copy_from_slice(&n.to_ne_bytes());
    let request = SendWr {
        signaled: n.is_multiple_of(SIGNALED),
        ..SendWr::new(n, SendOp::Write(end.remote(0)), Payload::Inline(&data))
    };
    Ok(end.qp.post_send(&[request])?)
}

/// Looks at the own memory until the number there is one that `is_awaited`.
fn wait(end: &End, is_awaited: impl Fn(u64) -> bool) -> Result<u64> {
    mark::wait(
        end.mr.region().whole(),
        is_awaited,
        // Does the engine's work; there is hardly ever a completion. What came is there now.
        || Ok(end.inline && end.look()?.is_none()),
        || {
            if end.qp.state() == QpState::Err {
                bail!("the queue pair failed: {:?}", end.async_event());
            }
            Ok(())
        },
    )
}

fn take_completions(end: &End, n: u64) -> Result<()> {
    if n.is_multiple_of(SIGNALED) {
        end.poll()?;
    }
    Ok(())
}
