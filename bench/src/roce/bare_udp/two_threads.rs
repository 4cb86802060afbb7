//! To and fro as [`super::ping_pong`], with the waiting of a program over an engine thread: a thread
//! receives and places what comes, and the program looks at its memory, yielding between two looks.
use super::{
    super::{
        job::SMALL_BYTES,
        mark::{self, NUMBER_AT, OVER, WARM_UP},
    },
    Job, READY,
    end::{self, End, Receiving, Sending},
};
use crate::{stats, sys};
use anyhow::{Result, bail};
use catchment_roce::{Psn, wire::Opcode};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

/// Where the peer writes.
const INBOX: usize = 0;
/// What is sent, on another cache line.
const OUTBOX: usize = 4096;

/// Asks for the time of the job; the median one-way latency in nanoseconds.
pub(super) fn ask(job: &Job) -> Result<f64> {
    let ticks = sys::Ticks::calibrate();
    with_receiver(job, |sending| {
        let mut samples = Vec::new();
        let deadline_ns = sys::monotonic_ns() + (job.seconds * 1e9) as u64;
        let mut n = 0;
        while sys::monotonic_ns() < deadline_ns || samples.len() <= WARM_UP {
            n += 1;
            let start = sys::Ticks::now();
            write(sending, n)?;
            wait(sending, |seen| seen == n)?;
            samples.push(ticks.ns(start, sys::Ticks::now()) / 2.0);
        }
        write(sending, OVER)?;
        Ok(stats::percentile(&samples[WARM_UP..], 0.5))
    })
}

/// Answers until the other side says that this was all.
pub(super) fn answer(job: &Job) -> Result<()> {
    with_receiver(job, |sending| {
        println!("{READY}");
        let mut n = 0;
        loop {
            let next = n + 1;
            let seen = wait(sending, |seen| seen == next || seen == OVER)?;
            if seen == OVER {
                return Ok(());
            }
            write(sending, seen)?;
            n = seen;
        }
    })
}

/// Runs `program` while another thread places what comes.
fn with_receiver<T>(job: &Job, program: impl FnOnce(&mut Sending) -> Result<T>) -> Result<T> {
    let End {
        mut sending,
        mut receiving,
    } = End::open(job)?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&mut receiving, &over));
        let result = program(&mut sending);
        over.store(true, Ordering::Relaxed);
        match receiver.join() {
            Ok(received) => received.and(result),
            Err(_) => bail!("the receiving thread panicked"),
        }
    })
}

fn receive(receiving: &mut Receiving, over: &AtomicBool) -> Result<()> {
    // The last look may be in vain: nobody says good-bye to the one who asked.
    let patience = std::time::Duration::from_millis(100);
    while !over.load(Ordering::Relaxed) {
        receiving.receive(patience, |region, packet| {
            if packet.headers.bth.opcode == Opcode::RcWriteOnly {
                end::place(region, &packet)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn write(sending: &mut Sending, n: u64) -> Result<()> {
    let memory = sending.region.whole();
    memory.write_at(OUTBOX + NUMBER_AT, &n.to_ne_bytes())?;
    sending.push_write_from(OUTBOX, Psn::new(n as u32), INBOX, SMALL_BYTES)?;
    sending.flush()
}

/// Looks at the own memory until the number there is one that `is_awaited`.
fn wait(sending: &Sending, is_awaited: impl Fn(u64) -> bool) -> Result<u64> {
    let inbox = sending.region.whole().subslice(INBOX, SMALL_BYTES)?;
    mark::wait(inbox, is_awaited, || Ok(false), || Ok(()))
}
