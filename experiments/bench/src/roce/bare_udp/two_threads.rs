//! To and fro as [`super::ping_pong`], with the waiting of a program over an engine thread: a thread
//! receives and places what comes, and the program looks at its memory, yielding between two looks.
use super::super::job::{SMALL_BYTES, WARM_UP_TRIPS};
use super::end::{End, Receiving, Sending};
use super::{Job, READY, end};
use anyhow::{Context as _, Result, bail};
use catchment_perf::ping_pong::time_trips;
use catchment_perf::{Amount, PerfError, Waiting, patience, stats, wait_for};
use catchment_roce::Psn;
use catchment_roce::wire::Opcode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Where in the 64 bytes the number is: at the end, which becomes visible last.
const NUMBER_AT: usize = SMALL_BYTES - 8;
/// The number that says that this was all.
const OVER: u64 = u64::MAX;
/// Where the peer writes.
const INBOX: usize = 0;
/// What is sent, on another cache line.
const OUTBOX: usize = 4096;

/// Asks for the time of the job; the median one-way latency in nanoseconds.
pub(super) fn ask(job: &Job) -> Result<f64> {
    with_receiver(job, |sending| {
        let amounts = (Amount::Iterations(WARM_UP_TRIPS), Amount::Seconds(job.seconds));
        let times = time_trips(amounts, 0.5, |n| {
            write(sending, n + 1)?;
            wait(sending, |seen| seen == n + 1).map(drop)
        })?;
        write(sending, OVER)?;
        Ok(stats::percentile(&times, 0.5))
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
    let End { mut sending, mut receiving } = End::open(job)?;
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
    sending.region.whole().write_at(OUTBOX + NUMBER_AT, &n.to_ne_bytes())?;
    sending.push_write_from(OUTBOX, Psn::new(n as u32), INBOX, SMALL_BYTES)?;
    sending.flush()
}

/// Waits until the number in the own memory is one that `is_awaited`, yielding between two looks.
fn wait(sending: &Sending, is_awaited: impl Fn(u64) -> bool) -> Result<u64> {
    let inbox = sending.region.whole().subslice(INBOX, SMALL_BYTES)?;
    let (mut late, nothing) = (patience(), |_: &()| None);
    let idle = &mut |_: &()| late();
    let found = wait_for(&mut (), Waiting::Yield, nothing, idle, |()| {
        let seen = inbox.load_u64(NUMBER_AT, Ordering::Acquire).map_err(PerfError::failed)?;
        Ok(is_awaited(seen).then_some(seen))
    })?;
    found.context("gave up waiting")
}
