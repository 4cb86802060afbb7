//! What the two roles do in programs other than throughput and round trips. Times are those of the
//! clock that both share.
use crate::job::{Hold, Job, Workers};
use crate::link::cache_line::CacheLine;
use crate::link::{Link as _, NonBlocking};
use crate::sys;
use anyhow::{Context as _, Result, ensure};
use catchment_sim::Random;

/// Pause of the side that acts, so that the other one waits when it does.
const PAUSE_NS: u64 = 20_000;
/// Pause between two blocks of which each has the ring for itself: also what follows a block over a
/// network (its acknowledgement, a READ of the status bytes) is over then.
const QUIET_NS: u64 = 100_000;
/// Who waits longer than this for the other role waits in vain.
const PATIENCE_NS: u64 = 20_000_000_000;

/// Waits as the job says until `attempt` succeeds.
pub(crate) fn until<L: NonBlocking>(
    link: &mut L,
    job: &Job,
    mut attempt: impl FnMut(&mut L) -> Result<bool>,
) -> Result<()> {
    let mut began_ns = 0;
    let mut looks = 0u32;
    while !attempt(link)? {
        job.wait.pause();
        looks += 1;
        if looks.is_multiple_of(4096) {
            let now_ns = sys::monotonic_ns();
            if began_ns == 0 {
                began_ns = now_ns;
            }
            let waited_ns = now_ns - began_ns;
            ensure!(waited_ns <= PATIENCE_NS, "the other role made no progress for 20 s");
        }
    }
    Ok(())
}

/// Lets so much time go by, and requests with it.
fn pause<L: NonBlocking>(link: &mut L, job: &Job, ns: u64) -> Result<()> {
    let until_ns = sys::monotonic_ns() + ns;
    while sys::monotonic_ns() < until_ns {
        link.finish()?;
        job.wait.pause();
    }
    Ok(())
}

/// The collector of `sync`: takes what fills the ring, then gives back the oldest block, takes the one
/// that comes into its place, and so on. Says how long each took to come.
pub(crate) fn give_back_one_by_one<L: NonBlocking>(
    link: &mut L,
    count: u64,
    blocks: usize,
    job: &Job,
) -> Result<Vec<u64>> {
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

/// The source of `sync`: always has a block to send.
pub(crate) fn send_all<L: NonBlocking>(link: &mut L, count: u64, job: &Job) -> Result<()> {
    for _ in 0..count {
        until(link, job, L::try_claim)?;
        link.commit()?;
    }
    Ok(())
}

/// The collector of `one-way`: says when each block was seen, and over `seen` that it was.
pub(crate) fn note_arrivals<L: NonBlocking>(
    link: &mut L,
    seen: &mut CacheLine,
    count: u64,
    job: &Job,
) -> Result<Vec<u64>> {
    let mut times = Vec::with_capacity(count as usize);
    for _ in 0..count {
        until(link, job, L::try_recv)?;
        times.push(sys::monotonic_ns());
        link.give_back()?;
        seen.send(None)?;
    }
    Ok(times)
}

/// The source of `one-way`: says when each block was posted. The next one follows when the collector
/// has seen it: at a fixed pace, blocks of a mechanism that takes longer would wait for each other.
pub(crate) fn post_one_by_one<L: NonBlocking>(
    link: &mut L,
    seen: &mut CacheLine,
    count: u64,
    job: &Job,
) -> Result<Vec<u64>> {
    let mut times = Vec::with_capacity(count as usize);
    for _ in 0..count {
        pause(link, job, QUIET_NS)?;
        until(link, job, L::try_claim)?;
        times.push(sys::monotonic_ns());
        link.commit()?;
        until(link, job, |link| {
            link.finish()?;
            seen.try_recv()
        })?;
    }
    Ok(times)
}

/// The collector of `hold`: counts blocks in bins, and keeps one block for a time.
pub(crate) fn hold_one<L: NonBlocking>(link: &mut L, hold: Hold, job: &Job) -> Result<Vec<u64>> {
    let ms = |ms: u64| ms * 1_000_000;
    let mut bins = vec![0; (hold.end / hold.bin.max(1)) as usize];
    let begin_ns = sys::monotonic_ns();
    let (mut kept, mut given_back) = (false, false);
    // A look at the clock takes longer than one at the blocks.
    let mut looks = 0u32;
    loop {
        let came = link.try_recv()?;
        looks += 1;
        if !came && !looks.is_multiple_of(16) {
            job.wait.pause();
            continue;
        }
        let at_ns = sys::monotonic_ns() - begin_ns;
        if at_ns >= ms(hold.end) {
            link.give_back()?;
            break;
        }
        if came {
            bins[((at_ns / ms(hold.bin.max(1))) as usize).min(bins_last(&hold))] += 1;
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
    let until_ns = sys::monotonic_ns() + ms(AFTER_MS);
    while sys::monotonic_ns() < until_ns {
        if link.try_recv()? {
            link.give_back()?;
        }
        job.wait.pause();
    }
    Ok(bins)
}

fn bins_last(hold: &Hold) -> usize {
    (hold.end / hold.bin.max(1)).saturating_sub(1) as usize
}

/// The source has stopped by then.
const AFTER_MS: u64 = 10;

/// The source of `hold`: sends until the end.
pub(crate) fn send_until<L: NonBlocking>(link: &mut L, hold: Hold, job: &Job) -> Result<()> {
    let end_ns = sys::monotonic_ns() + hold.end * 1_000_000;
    let mut looks = 0u32;
    loop {
        looks += 1;
        if looks.is_multiple_of(16) && sys::monotonic_ns() >= end_ns {
            return Ok(());
        }
        if link.try_claim()? {
            link.commit()?;
        } else {
            job.wait.pause();
        }
    }
}

/// The source of `workers`: takes its time for each block, once it has a place for it. Says how long
/// all took.
pub(crate) fn make<L: NonBlocking>(link: &mut L, work: Workers, job: &Job) -> Result<u64> {
    let begin_ns = sys::monotonic_ns();
    let mut now_ns = begin_ns;
    for _ in 0..work.count {
        until(link, job, L::try_claim)?;
        let made_ns = sys::monotonic_ns() + work.block_ns;
        while now_ns < made_ns {
            now_ns = sys::monotonic_ns();
        }
        link.commit()?;
    }
    Ok(now_ns - begin_ns)
}

/// The collector of `workers`: a block is given back when the worker that was free first has had it
/// for its time. One thread looks after all of them: what takes time here is no work.
pub(crate) fn process<L: NonBlocking>(
    link: &mut L,
    work: Workers,
    seed: u64,
    job: &Job,
) -> Result<()> {
    let mut random = Random::new(seed);
    let mut free_ns = vec![0; work.workers];
    // Ends of the blocks that are kept, in the order of the blocks.
    let mut ends_ns: Vec<u64> = Vec::with_capacity(job.blocks);
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
            job.wait.pause();
        }
    }
    Ok(())
}
