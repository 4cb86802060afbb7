//! Starts the two role processes of one measurement and brings home what they found.
use crate::job::{Job, Outcome, Role};
use anyhow::{Context, Result, anyhow, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    io::Read,
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Child, Command, Stdio},
};

/// A pair that takes longer than this hangs.
const PATIENCE_SECONDS: u32 = 120;
/// A role that outlives the other one by this much hangs.
const GRACE_SECONDS: u32 = 5;

/// Measures once, in two fresh processes.
///
/// # Errors
/// If a role failed (its message went to standard error) or hung.
pub(crate) fn run(job: &Job) -> Result<Outcome> {
    let (source_end, collector_end) = UnixStream::pair().context("socketpair")?;
    let mut source = RoleProcess::start(Role::Source, job, source_end)?;
    let mut collector = RoleProcess::start(Role::Collector, job, collector_end)?;
    wait_for_both(&source, &collector)?;
    let text = source.finish("source")?;
    collector.finish("collector")?;
    serde_json::from_str(&text).with_context(|| format!("the source printed {text:?}"))
}

/// Sleeps until both have closed their output. Polling would take time from the roles.
///
/// Patience is counted in short sleeps, not by the clock: a run that somebody stops and continues
/// (SIGSTOP) has not hung meanwhile.
fn wait_for_both(source: &RoleProcess, collector: &RoleProcess) -> Result<()> {
    let mut sleeps_left = PATIENCE_SECONDS;
    let mut running = vec![source, collector];
    while !running.is_empty() {
        let mut fds: Vec<PollFd<'_>> = running
            .iter()
            .filter_map(|role| role.0.stdout.as_ref())
            .map(|out| PollFd::new(out, PollFlags::empty()))
            .collect();
        let timeout = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        if poll(&mut fds, Some(&timeout))? == 0 {
            sleeps_left -= 1;
            if sleeps_left == 0 {
                bail!("a role hangs");
            }
            continue;
        }
        let ended: Vec<bool> = fds
            .iter()
            .map(|fd| fd.revents().contains(PollFlags::HUP))
            .collect();
        let mut ended = ended.into_iter();
        running.retain(|_| !ended.next().unwrap_or(true));
        sleeps_left = sleeps_left.min(GRACE_SECONDS);
    }
    Ok(())
}

/// A role process, killed when the value goes.
struct RoleProcess(Child);

impl RoleProcess {
    fn start(role: Role, job: &Job, control: UnixStream) -> Result<RoleProcess> {
        let child = Command::new(std::env::current_exe()?)
            .arg("role")
            .arg(serde_json::to_string(&role)?)
            .arg(serde_json::to_string(job)?)
            .stdin(Stdio::from(OwnedFd::from(control)))
            .stdout(Stdio::piped())
            .spawn()
            .context("starting a role process")?;
        Ok(RoleProcess(child))
    }

    fn finish(&mut self, name: &str) -> Result<String> {
        let mut text = String::new();
        if let Some(out) = &mut self.0.stdout {
            out.read_to_string(&mut text)?;
        }
        let status = self.0.wait()?;
        if status.success() {
            Ok(text)
        } else {
            Err(anyhow!("the {name} process failed: {status}"))
        }
    }
}

impl Drop for RoleProcess {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
