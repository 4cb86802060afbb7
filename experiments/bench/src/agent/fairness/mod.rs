//! What fifty applications that come and go get, beside what the agent decided, weighted by time.
//!
//! 47 always wait, with requests of one size each; one more does too, and posts 1,000 at once; two ask for half of their share.
//! Each second one of the 47 goes or comes back.
mod row;
mod window;

use super::crowd::{Crowd, Load, Member, Order};
use super::ends::{AgentProcess, Network};
use anyhow::{Context as _, Result, ensure};
use catchment_agent::protocol::Account;
pub(super) use row::Row;
use std::time::{Duration, Instant};
use window::{Alone, Capacity, Moment, Window};

const APPS: usize = 50;
/// The last three: who asks for less than his share, and who posts many at once.
const MODEST: [usize; 2] = [47, 48];
const GREEDY: usize = 49;
/// Of the others, one after the other; each size with each weight.
const WEIGHTS: [f64; 4] = [1.0, 2.0, 4.0, 8.0];
const BYTES: [u64; 6] = [32, 256, 2 << 10, 16 << 10, 64 << 10, 1 << 20];
const MODEST_BYTES: [u64; 2] = [32, 16 << 10];
const MODEST_WEIGHT: f64 = 4.0;
const GREEDY_BYTES: u64 = 64 << 10;
const GREEDY_BATCH: u32 = 1000;
/// What part of their shares the modest ask for.
const MODEST_PART: f64 = 0.5;
/// Outstanding of who always waits, and how many go together.
const OUTSTANDING: u32 = 4000;
const BATCH: u32 = 16;
/// At each end of a connection; of who is alone as much, about, as all of them have together: out of reach of the caches.
const MEMORY: u64 = 2 << 20;
const MEMORY_ALONE: u64 = 64 << 20;
/// What an application has from who comes or goes until it is compared again.
const SETTLE: Duration = Duration::from_millis(20);
/// From one look at the accounts to the next.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Of each size alone: until it counts, and how long it does.
const WARM_UP: Duration = Duration::from_millis(100);
const ALONE: Duration = Duration::from_millis(400);
/// An application that takes longer to begin hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// What the device does by the policy, where that is given: less than it can, so that rates decide and not processors.
pub(super) const LINE_BYTES_PER_S: u64 = 2_000_000_000;

/// Who shares out what there is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    /// Of the policy.
    pub(super) mode: &'static str,
    /// What the policy says that the device does.
    pub(super) line: Option<u64>,
}

/// Windows of a row, and how long each is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windows {
    pub(super) count: u32,
    pub(super) seconds: f64,
}

fn weight(at: usize) -> f64 {
    match at {
        GREEDY => WEIGHTS[0],
        at if MODEST.contains(&at) => MODEST_WEIGHT,
        at => WEIGHTS[at % WEIGHTS.len()],
    }
}

fn bytes(at: usize) -> u64 {
    match at {
        GREEDY => GREEDY_BYTES,
        at if MODEST.contains(&at) => MODEST_BYTES[at - MODEST[0]],
        at => BYTES[at / WEIGHTS.len() % BYTES.len()],
    }
}

/// Measures one application of each size after the other.
fn alone(mode: &str, windows: Windows) -> Result<Alone> {
    let agent = AgentProcess::start(mode, &[1.0], Network(None))?;
    let mut crowd = Crowd::start(&agent)?;
    let time = ALONE.min(Duration::from_secs_f64(windows.seconds));
    let mut found = Alone::default();
    for (bytes, found) in BYTES.iter().zip(&mut found) {
        let load = Load::Always { outstanding: OUTSTANDING, batch: BATCH };
        let member =
            Member { at: 0, bytes: *bytes, memory_bytes: MEMORY_ALONE, connections: 1, load };
        crowd.begin(&[member])?;
        // Caches and rates settle: nothing tells when they have.
        std::thread::sleep(WARM_UP.min(time));
        let from = Moment::now(&agent)?;
        // The time over which it is measured.
        std::thread::sleep(time);
        let to = Moment::now(&agent)?;
        let (before, after) = from.both(&to, 0).context("who is alone has ended")?;
        let served = (after.cost_bytes - before.cost_bytes) as f64;
        ensure!(served > 0.0, "{bytes} bytes, alone: nothing was served");
        *found = served * 1e9 / (to.ns - from.ns) as f64;
        crowd.tell(&Order::Leave(0))?;
    }
    Ok(found)
}

/// The applications, and who comes and goes.
struct Churn {
    crowd: Crowd,
    members: Vec<Member>,
    changes: u32,
    left_out_ms: Vec<f64>,
}

impl Churn {
    /// Connects all, and waits until they have requests waiting.
    fn start(agent: &AgentProcess, capacity: &Capacity) -> Result<Self> {
        let request = capacity.policy()?.limits().request_bytes;
        let weights: f64 = (0..APPS).map(weight).sum();
        let load = |at: usize| match at {
            GREEDY => Load::Always { outstanding: OUTSTANDING, batch: GREEDY_BATCH },
            at if MODEST.contains(&at) => {
                let share = MODEST_PART * weight(at) / weights;
                Load::Paced {
                    per_s: share * capacity.of(at) / bytes(at).max(request.into()) as f64,
                }
            }
            _ => Load::Always { outstanding: OUTSTANDING, batch: BATCH },
        };
        let member = |at| Member {
            at,
            bytes: bytes(at),
            memory_bytes: MEMORY,
            connections: 1,
            load: load(at),
        };
        let members: Vec<Member> = (0..APPS).map(member).collect();
        let mut crowd = Crowd::start(agent)?;
        crowd.begin(&members)?;
        let begun = Instant::now();
        let is_at_work = |one: &Account| one.waiting > u64::from(OUTSTANDING) / 2;
        loop {
            let now = Moment::now(agent)?;
            let count = now.accounts.iter().flatten().filter(|one| is_at_work(one)).count();
            if count == APPS - MODEST.len() {
                break;
            }
            ensure!(begun.elapsed() < PATIENCE, "{count} of {APPS} applications have begun");
            // An agent tells of its accounts only when asked.
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(Self { crowd, members, changes: 0, left_out_ms: Vec::new() })
    }

    /// Who goes and comes next.
    fn next(&self) -> usize {
        const STEP: usize = 7;
        (self.changes / 2) as usize * STEP % MODEST[0]
    }

    /// Connects who is about to come, if somebody is.
    fn prepare(&mut self) -> Result<()> {
        if self.changes.is_multiple_of(2) {
            return Ok(());
        }
        self.crowd.tell(&Order::Join(self.members[self.next()]))
    }

    /// Ends one, or lets one begin.
    fn change(&mut self) -> Result<()> {
        let at = self.next();
        let goes = self.changes.is_multiple_of(2);
        self.changes += 1;
        self.crowd.tell(&if goes { Order::Leave(at) } else { Order::Begin(at) })
    }
}

/// Looks at the accounts until then; what is between two looks is of this window.
fn watch(
    window: &mut Window,
    mut from: Moment,
    until: Instant,
    (agent, line): (&AgentProcess, Option<u64>),
) -> Result<Moment> {
    loop {
        let rest = until.saturating_duration_since(Instant::now());
        // The time over which the accounts are compared.
        std::thread::sleep(rest.min(LOOK_EVERY));
        let to = Moment::now(agent)?;
        window.add((&from, &to), line);
        from = to;
        if rest <= LOOK_EVERY {
            return Ok(from);
        }
    }
}

/// What the modest got in a time beside what they asked for in it.
fn modest(from: &Moment, to: &Moment, members: &[Member]) -> Vec<f64> {
    let seconds = (to.ns - from.ns) as f64 / 1e9;
    let got = |at: &usize| {
        let (before, after) = from.both(to, *at)?;
        let Load::Paced { per_s } = members[*at].load else { return None };
        Some((after.done - before.done) as f64 / (per_s * seconds))
    };
    MODEST.iter().filter_map(got).collect()
}

/// Measures the applications of a case.
pub(super) fn measure(case: Case, windows: Windows) -> Result<Row> {
    let weights: Vec<f64> = (0..APPS).map(weight).collect();
    let (agent, mut capacity) = match case.line {
        Some(line) => {
            (AgentProcess::start_on_line(case.mode, &weights, line)?, Capacity::Line(line))
        }
        None => {
            let capacity = Capacity::Alone(alone(case.mode, windows)?);
            (AgentProcess::start(case.mode, &weights, Network(None))?, capacity)
        }
    };
    let mut churn = Churn::start(&agent, &capacity)?;
    let (mut seen, mut got) = (Vec::new(), Vec::new());
    let half = Duration::from_secs_f64(windows.seconds / 2.0);
    let mut from = Moment::now(&agent)?;
    for _ in 0..windows.count {
        let (begun, mut window) = (Instant::now(), Window::new());
        let first = Moment { ns: from.ns, accounts: from.accounts.clone() };
        churn.prepare()?;
        let changed = watch(&mut window, from, begun + half, (&agent, case.line))?;
        let at = Instant::now();
        churn.change()?;
        // The time after a change that is left out.
        std::thread::sleep(SETTLE.saturating_sub(at.elapsed()));
        let settled = Moment::now(&agent)?;
        churn.left_out_ms.push((settled.ns - changed.ns) as f64 / 1e6);
        from = watch(&mut window, settled, begun + 2 * half, (&agent, case.line))?;
        got.extend(modest(&first, &from, &churn.members));
        seen.push(window);
    }
    let Churn { crowd, changes, left_out_ms, .. } = churn;
    drop((crowd, agent));
    let mut after_ratio = None;
    if let Capacity::Alone(before) = &mut capacity {
        // The machine may have become another one meanwhile.
        let after = alone(case.mode, windows)?;
        after_ratio = Some(std::array::from_fn(|size| after[size] / before[size]));
        *before = std::array::from_fn(|size| f64::midpoint(before[size], after[size]));
    }
    Ok(Row::new((&capacity, case, windows), after_ratio, (&seen, &got), (changes, &left_out_ms)))
}
