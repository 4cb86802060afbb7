//! What applications get that always wait, beside what the agent decided.
use super::ends::{AgentProcess, Network, Pair, Work, application};
use crate::stats::{decimals, percentile};
use crate::sys;
use anyhow::{Context as _, Result, ensure};
use catchment_agent::protocol::Account;
use catchment_perf::{Amount, Operation, Waiting};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Long requests, many of them: an application has work for the agent even while it gets no processor.
const BYTES: u64 = 1 << 20;
const OUTSTANDING: u32 = 2048;
/// An application that takes longer to begin hangs.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks whether all have begun.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Windows of a row, and how long each is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Windows {
    pub(crate) count: u32,
    pub(crate) seconds: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    what: &'static str,
    provider: &'static str,
    apps: usize,
    churn_per_s: f64,
    seconds: f64,
    /// Bytes of an application in a window beside those of its decided rate: mean of all differences.
    error_mean: Option<f64>,
    error_p99: Option<f64>,
    /// Bytes of all beside those of one application that is alone, directly before.
    capacity_used: Option<f64>,
    weights: Vec<f64>,
    bytes: u64,
    outstanding: u32,
    capacity_bytes_per_s: Option<f64>,
    windows: usize,
    /// In which one of them had nothing to send for a moment.
    windows_left_out: usize,
}

/// The accounts of the applications at one moment.
struct Moment {
    ns: u64,
    accounts: Vec<Account>,
}

impl Moment {
    fn now(agent: &AgentProcess, applications: usize) -> Result<Self> {
        let all = catchment_agent::status(agent.name())?;
        let find = |at| all.iter().find(|one| one.application == application(at)).cloned();
        let accounts = (0..applications).map(find).collect::<Option<_>>();
        let accounts = accounts.context("an application ended before it was measured")?;
        Ok(Self { ns: sys::monotonic_ns(), accounts })
    }
}

/// What was seen from one moment to the next.
struct Window {
    bytes_per_s: f64,
    /// Relative, of each application.
    errors: Vec<f64>,
}

impl Window {
    /// Returns nothing if somebody had nothing to send meanwhile.
    fn between(from: &Moment, to: &Moment) -> Option<Self> {
        let pairs = || from.accounts.iter().zip(&to.accounts);
        if pairs().any(|(from, to)| from.waiting == 0 || from.emptied != to.emptied) {
            return None;
        }
        let bytes: Vec<f64> = pairs().map(|(from, to)| (to.bytes - from.bytes) as f64).collect();
        let sum: f64 = bytes.iter().sum();
        let shares: f64 = to.accounts.iter().map(|account| account.share).sum();
        let decided = to.accounts.iter().map(|account| sum * account.share / shares);
        let errors = bytes.iter().zip(decided).map(|(got, decided)| (got / decided - 1.0).abs());
        Some(Self { bytes_per_s: sum * 1e9 / (to.ns - from.ns) as f64, errors: errors.collect() })
    }
}

/// Looks at applications of these weights while all of them send; those windows in which all did.
fn watch(weights: &[f64], windows: Windows) -> Result<Vec<Window>> {
    let agent = AgentProcess::start("drum", weights, Network(None))?;
    // They are ended when all was seen.
    let seconds = PATIENCE.as_secs_f64() * 2.0 + windows.seconds * f64::from(windows.count);
    let work = Work {
        operation: Operation::Write,
        bytes: BYTES,
        outstanding: OUTSTANDING,
        warm_up: Amount::Iterations(1),
        seconds,
        waiting: Waiting::Sleep,
    };
    let pairs = (0..weights.len()).map(|at| Pair::start(Some(&agent), Network(None), at, &[work]));
    let _pairs: Vec<Pair> = pairs.collect::<Result<_>>()?;
    let begun = Instant::now();
    let is_at_work = |one: &Account| one.done > 1 && one.waiting > u64::from(OUTSTANDING) / 2;
    loop {
        let accounts = catchment_agent::status(agent.name())?;
        if accounts.iter().filter(|account| is_at_work(account)).count() == weights.len() {
            break;
        }
        ensure!(begun.elapsed() < PATIENCE, "an application does not begin: {accounts:?}");
        // Until all have work at the agent: a poll, because an agent tells of its accounts only when asked.
        std::thread::sleep(LOOK_EVERY);
    }
    let mut seen = Vec::new();
    let mut from = Moment::now(&agent, weights.len())?;
    for _ in 0..windows.count {
        // The time over which the accounts are compared.
        std::thread::sleep(Duration::from_secs_f64(windows.seconds));
        let to = Moment::now(&agent, weights.len())?;
        seen.extend(Window::between(&from, &to));
        from = to;
    }
    Ok(seen)
}

fn rate(windows: &[Window]) -> Option<f64> {
    let rates: Vec<f64> = windows.iter().map(|window| window.bytes_per_s).collect();
    (!rates.is_empty()).then(|| percentile(&rates, 0.5))
}

/// Measures applications of these weights, after one that is alone.
pub(crate) fn measure(weights: &[f64], windows: Windows) -> Result<Row> {
    let capacity = rate(&watch(&[1.0], windows)?);
    let seen = watch(weights, windows)?;
    let errors: Vec<f64> = seen.iter().flat_map(|window| window.errors.clone()).collect();
    let known = !errors.is_empty();
    let mean = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
    let used = rate(&seen).zip(capacity).map(|(used, capacity)| used / capacity);
    Ok(Row {
        what: "fairness",
        provider: "shm",
        apps: weights.len(),
        churn_per_s: 0.0,
        seconds: windows.seconds * seen.len() as f64,
        error_mean: known.then(|| decimals(mean, 6)),
        error_p99: known.then(|| decimals(percentile(&errors, 0.99), 6)),
        capacity_used: used.map(|used| decimals(used, 4)),
        weights: weights.to_vec(),
        bytes: BYTES,
        outstanding: OUTSTANDING,
        capacity_bytes_per_s: capacity.map(f64::round),
        windows: seen.len(),
        windows_left_out: windows.count as usize - seen.len(),
    })
}

impl Row {
    /// Returns it as a line for a person.
    pub(crate) fn line(&self) -> String {
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| value.to_string());
        format!(
            "fairness   weights {:?}: error {} mean, {} p99; {} of the capacity; {} windows, {} left out",
            self.weights,
            number(self.error_mean),
            number(self.error_p99),
            number(self.capacity_used),
            self.windows,
            self.windows_left_out
        )
    }
}
