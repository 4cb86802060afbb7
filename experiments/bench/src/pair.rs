//! Starts the two role processes of one measurement and brings home what they found.
//!
//! The source asks for its turn before everything that takes time. So several pairs can live side by
//! side and be measured in turn, A, B, A, B: whoever waits for its turn sleeps.
use crate::control::Control;
use crate::job::{BEGIN_EVERY_NS, Job, Outcome, Role, SET_UP_NS, Said};
use crate::sys;
use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Looks whether a pair still lives lie so far apart.
const STEP: Duration = Duration::from_secs(1);
/// A turn that takes longer than this hangs.
const PATIENCE_SECONDS: u32 = 120;
/// A role that outlives the other one by this much hangs.
const GRACE_SECONDS: u32 = 5;

/// A measurement took longer than it may: it stands still, or this machine is too slow for it.
#[derive(Debug, thiserror::Error)]
#[error("passed its limit of {} s", .0.as_secs())]
pub(crate) struct PassedLimit(Duration);

/// Returns the order in which so many take their turns in a run: who begins has what the one before left in the caches.
pub(crate) fn turns(run: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |turn| (run + turn) % count)
}

/// Measures in two fresh processes, which are killed when that takes longer than `limit`.
pub(crate) fn run(job: &Job, limit: Option<Duration>) -> Result<Outcome> {
    let mut pair = Pair::start(job, limit)?;
    loop {
        if let Some(outcome) = pair.take_turn()? {
            return Ok(outcome);
        }
    }
}

/// Measures all of them, each in two fresh processes, one turn of each after the other.
pub(crate) fn run_in_turn(jobs: &[Job]) -> Vec<Result<Outcome>> {
    let mut running: Vec<Result<Pair>> = jobs.iter().map(|job| Pair::start(job, None)).collect();
    let mut outcomes: Vec<Option<Result<Outcome>>> = jobs.iter().map(|_| None).collect();
    while outcomes.iter().any(Option::is_none) {
        for (pair, outcome) in running.iter_mut().zip(&mut outcomes) {
            if outcome.is_none() {
                *outcome = match pair {
                    Ok(pair) => pair.take_turn().transpose(),
                    Err(error) => Some(Err(anyhow!("{error:#}"))),
                };
            }
        }
    }
    outcomes.into_iter().flatten().collect()
}

/// Measures all of them at the same time, each in two fresh processes. They begin together, at the
/// next multiple of a time that all know: nobody is asked shortly before one.
pub(crate) fn run_together(jobs: &[Job]) -> Result<Vec<Outcome>> {
    let mut pairs: Vec<Pair> =
        jobs.iter().map(|job| Pair::start(job, None)).collect::<Result<_>>()?;
    let into_ns = (sys::monotonic_ns() + SET_UP_NS) % BEGIN_EVERY_NS;
    if into_ns > BEGIN_EVERY_NS / 4 {
        // The beginning of the next span.
        std::thread::sleep(Duration::from_nanos(BEGIN_EVERY_NS - into_ns));
    }
    let outcomes: Vec<Result<Outcome>> = std::thread::scope(|scope| {
        let turn = |pair: &mut Pair| pair.take_turn()?.context("cameras take one turn");
        let running: Vec<_> =
            pairs.iter_mut().map(|pair| scope.spawn(move || turn(pair))).collect();
        let ended = running.into_iter().map(|thread| thread.join());
        ended.map(|end| end.unwrap_or_else(|_| bail!("a thread panicked"))).collect()
    });
    let outcomes: Vec<Outcome> = outcomes.into_iter().collect::<Result<_>>()?;
    let begin_ns = |outcome: &Outcome| outcome.frames.as_ref().map(|frames| frames.begin_ns);
    ensure!(
        outcomes.iter().all(|one| begin_ns(one) == begin_ns(&outcomes[0])),
        "the pairs did not start together: the machine is too busy, try again when it is idle"
    );
    Ok(outcomes)
}

struct Pair {
    source: RoleProcess,
    collector: RoleProcess,
    control: Control,
    limit: Option<Duration>,
    /// Time that was waited for them; a pause of this process itself counts for a step.
    waited: Duration,
}

impl Pair {
    /// Starts both and waits until they are set up.
    fn start(job: &Job, limit: Option<Duration>) -> Result<Self> {
        let (source_end, collector_end) = UnixStream::pair().context("socketpair")?;
        let (ours, sources) = UnixStream::pair().context("socketpair")?;
        let (source, collector) = (Role::Source, Role::Collector);
        let mut pair = Self {
            source: RoleProcess::start(
                source,
                job,
                source_end,
                Stdio::from(OwnedFd::from(sources)),
            )?,
            collector: RoleProcess::start(collector, job, collector_end, Stdio::piped())?,
            control: Control::new(ours),
            limit,
            waited: Duration::ZERO,
        };
        match pair.hear()? {
            Said::Ready => Ok(pair),
            Said::Found(_) => bail!("the source found something before it was asked"),
        }
    }

    /// Lets the source do what it asked for; the outcome comes with the last turn.
    fn take_turn(&mut self) -> Result<Option<Outcome>> {
        self.control.send(&())?;
        let Said::Found(outcome) = self.hear()? else { return Ok(None) };
        self.source.finish("source")?;
        self.collector.finish("collector")?;
        Ok(Some(*outcome))
    }

    /// Sleeps until the source says something. Polling would take time from the roles.
    ///
    /// Patience is counted in short sleeps, not by the clock: a run that somebody stops and
    /// continues (SIGSTOP) has not hung meanwhile.
    fn hear(&mut self) -> Result<Said> {
        let mut sleeps_left = PATIENCE_SECONDS;
        loop {
            let began = Instant::now();
            let has_more = self.control.has_more(STEP)?;
            self.waited += began.elapsed().min(2 * STEP);
            if let Some(limit) = self.limit.filter(|limit| self.waited > *limit) {
                return Err(PassedLimit(limit).into());
            }
            if has_more {
                break;
            }
            if !self.collector.is_running()? {
                sleeps_left = sleeps_left.min(GRACE_SECONDS);
            }
            sleeps_left -= 1;
            ensure!(sleeps_left > 0, "a role stopped responding");
        }
        self.control.recv().context("a role process failed; its message is above")
    }
}

struct RoleProcess(Child);

impl RoleProcess {
    fn start(role: Role, job: &Job, peer: UnixStream, output: Stdio) -> Result<Self> {
        let child = Command::new(std::env::current_exe()?)
            .arg("role")
            .arg(serde_json::to_string(&role)?)
            .arg(serde_json::to_string(job)?)
            .stdin(Stdio::from(OwnedFd::from(peer)))
            .stdout(output)
            .spawn()
            .context("cannot start a role process")?;
        Ok(Self(child))
    }

    /// Returns whether its output, a pipe, is still open.
    fn is_running(&self) -> Result<bool> {
        let Some(out) = &self.0.stdout else { return Ok(true) };
        let mut fds = [PollFd::new(out, PollFlags::empty())];
        poll(&mut fds, Some(&Timespec::default()))?;
        Ok(!fds[0].revents().contains(PollFlags::HUP))
    }

    fn finish(&mut self, name: &str) -> Result<()> {
        let status = self.0.wait()?;
        if status.success() { Ok(()) } else { Err(anyhow!("the {name} process failed: {status}")) }
    }
}

impl Drop for RoleProcess {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
