//! One round: starts the processes, kills and restarts them, ends them, and checks everything.
use super::agents::{Agent, FRAME_BYTES, Setting};
use super::plan::{Plan, Role, Strike};
use super::residue::Residue;
use super::{frames, sums};
use crate::proc::{Footprint, poll_until};
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use std::{fmt, fs, thread};

/// Frames of each device that must arrive before a restart counts as complete.
const PROGRESS_FRAMES: u64 = 3;
const PROGRESS_LIMIT: Duration = Duration::from_secs(20);
const RELEASE_LIMIT: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(10);
/// Samples of a footprint: connections open and close meanwhile.
const SAMPLES: usize = 15;

#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    rounds: u64,
    strikes: u64,
    frames: u64,
    /// Times from a restart to new frames of every device.
    recoveries: Vec<Duration>,
}

impl Report {
    pub(crate) fn add(&mut self, other: &Self) {
        self.rounds += other.rounds;
        self.strikes += other.strikes;
        self.frames += other.frames;
        self.recoveries.extend(&other.recoveries);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut times = self.recoveries.clone();
        times.sort();
        let ms = |time: Option<&Duration>| time.map_or(0, Duration::as_millis);
        write!(
            f,
            "{} rounds, {} strikes, {} frames right; frames again after {} ms (median), {} ms (most)",
            self.rounds,
            self.strikes,
            self.frames,
            ms(times.get(times.len() / 2)),
            ms(times.last())
        )
    }
}

pub(crate) fn run(setting: &Setting, plan: &Plan) -> Result<Report> {
    let before = Residue::before();
    let mut pair =
        Pair { setting, agents: BTreeMap::new(), baselines: BTreeMap::new(), found: Vec::new() };
    let mut report = Report { rounds: 1, ..Report::default() };
    for role in plan.start {
        pair.start(role)?;
    }
    if plan.settle_first {
        report.recoveries.push(pair.settle().context("at the start")?);
    }
    for (number, strike) in (1..).zip(&plan.strikes) {
        let recovery = pair.strike(strike).with_context(|| format!("strike {number}: {strike}"))?;
        report.recoveries.extend(recovery);
        report.strikes += 1;
    }
    let found = pair.end()?;
    let stored = check_frames(setting)?;
    check_sums(setting, &found, &stored)?;
    report.frames = stored.iter().sum();
    before.check(setting)?;
    Ok(report)
}

struct Pair<'a> {
    setting: &'a Setting,
    agents: BTreeMap<Role, Agent>,
    baselines: BTreeMap<Role, Footprint>,
    /// Frames of each device that were stored before the collector of the moment started.
    found: Vec<u64>,
}

impl Pair<'_> {
    fn start(&mut self, role: Role) -> Result<()> {
        if role == Role::Collector {
            self.found = self.newest();
        }
        self.agents.insert(role, Agent::start(self.setting, role)?);
        Ok(())
    }

    /// Kills, waits and restarts; returns how long it took until frames arrived again.
    fn strike(&mut self, strike: &Strike) -> Result<Option<Duration>> {
        // The seed decides the time of the strike,
        thread::sleep(strike.after);
        for role in &strike.victims {
            self.baselines.remove(role);
            self.agents.remove(role).map_or(Ok(()), Agent::kill)?;
        }
        // and how long the victims stay away.
        thread::sleep(strike.down);
        for role in &strike.victims {
            self.start(*role)?;
        }
        strike.settle.then(|| self.settle()).transpose()
    }

    /// Waits until frames of every device arrive and the surviving processes hold no more than before.
    fn settle(&mut self) -> Result<Duration> {
        let took = self.wait_for_frames()?;
        let roles: Vec<_> = self.agents.keys().copied().collect();
        for role in roles {
            match self.baselines.get(&role).cloned() {
                Some(baseline) => self.wait_for_release(role, &baseline)?,
                None => drop(self.baselines.insert(role, self.sample(role))),
            }
        }
        Ok(took)
    }

    fn wait_for_frames(&mut self) -> Result<Duration> {
        let first = self.newest();
        let goal: Vec<_> = first.iter().map(|newest| newest + PROGRESS_FRAMES).collect();
        let (start, mut now) = (Instant::now(), Vec::new());
        let arrived = poll_until(PROGRESS_LIMIT, || {
            self.demand_running()?;
            now = self.newest();
            Ok(now.iter().zip(&goal).all(|(now, goal)| now >= goal).then(|| start.elapsed()))
        })?;
        arrived.with_context(|| {
            format!("no new frames of each device: from {first:?} to {now:?} in {PROGRESS_LIMIT:?}")
        })
    }

    /// Returns for each device the number after that of its newest frame.
    fn newest(&self) -> Vec<u64> {
        let out = self.setting.out();
        let devices = self.setting.devices();
        devices.iter().map(|name| frames::newest(&out.join(name)).map_or(0, |n| n + 1)).collect()
    }

    fn demand_running(&mut self) -> Result<()> {
        self.agents.values_mut().try_for_each(Agent::demand_running)
    }

    /// Returns the maximum that a process holds while it works.
    fn sample(&self, role: Role) -> Footprint {
        let mut most = Footprint::default();
        for _ in 0..SAMPLES {
            most = most.max(&self.footprint(role));
            // Space the samples out, so that they include changes.
            thread::sleep(POLL);
        }
        most
    }

    fn footprint(&self, role: Role) -> Footprint {
        self.agents.get(&role).map(Agent::footprint).unwrap_or_default()
    }

    fn wait_for_release(&mut self, role: Role, baseline: &Footprint) -> Result<()> {
        let mut more = Vec::new();
        let released = poll_until(RELEASE_LIMIT, || {
            self.demand_running()?;
            more = self.footprint(role).beyond(baseline);
            Ok(more.is_empty().then_some(()))
        })?;
        released
            .with_context(|| format!("the {role}, which survived, still holds {}", more.join(", ")))
    }

    fn end(mut self) -> Result<Vec<u64>> {
        for role in [Role::Source, Role::Collector] {
            self.agents.remove(&role).map_or(Ok(()), Agent::end)?;
            self.demand_running()?;
        }
        Ok(self.found)
    }
}

/// Checks that the sums are right over all restarts.
fn check_sums(setting: &Setting, found: &[u64], stored: &[u64]) -> Result<()> {
    let summary = |role| sums::summary(&fs::read_to_string(setting.log(role))?);
    sums::check_source(&summary(Role::Source)?).context("at the source")?;
    let collector = summary(Role::Collector)?;
    sums::check_collector(&collector, &setting.devices(), found, stored).context("at the collector")
}

/// Returns the number of frames of each device.
fn check_frames(setting: &Setting) -> Result<Vec<u64>> {
    let devices = setting.devices();
    frames::check_folders(&setting.out(), &devices)?;
    let mut counts = Vec::new();
    for (number, device) in devices.iter().enumerate() {
        let folder = setting.out().join(device);
        let count = frames::check_names(&folder, FRAME_BYTES)?;
        frames::check_bytes(&folder, &setting.checksums(number, count)?)?;
        counts.push(count);
    }
    Ok(counts)
}
