//! The row, and what it says of the goals.
use super::window::{Alone, Capacity, Window};
use super::{APPS, BYTES, Case, GREEDY_BATCH, WEIGHTS, Windows};
use crate::goal::{Goal, Limit};
use crate::stats::{decimals, percentile};
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(in crate::agent) struct Row {
    what: &'static str,
    provider: &'static str,
    /// Of the agent's policy.
    mode: &'static str,
    apps: usize,
    churn_per_s: f64,
    seconds: f64,
    /// What an application was served in a window beside what was decided, in bytes as requests cost them: mean of all differences.
    /// Nothing of who decides nothing.
    error_mean: Option<f64>,
    error_p99: Option<f64>,
    /// The same beside what its weight gives of all that those got who waited, whatever was decided.
    error_by_weight_mean: Option<f64>,
    error_by_weight_p99: Option<f64>,
    /// With a line: what all were served beside what it takes. Without: the time that this takes who is alone, with requests of
    /// the same size, directly before and after, beside the time that it took.
    capacity_used: Option<f64>,
    /// Of the windows, the least.
    capacity_used_least: Option<f64>,
    /// Without a line: what who is alone was served after beside before, for each size.
    alone_after_ratio: Option<Alone>,
    /// What the policy says the device does; without it, the agent knows no rates, only shares.
    line_bytes_per_s: Option<u64>,
    /// What the modest got of what they asked for: of both and all windows, the least.
    modest_got_least: Option<f64>,
    windows: u32,
    changes: u32,
    /// Time after each that is not compared.
    left_out_ms_mean: f64,
    left_out_ms_max: f64,
    /// Of those who always wait, looks between which one had nothing waiting, beside all: not compared either.
    emptied_fraction: f64,
    bytes: [u64; 6],
    weights: [f64; 4],
    greedy_batch: u32,
}

/// Where a goal was measured.
#[derive(Debug, Clone, Copy, Serialize)]
pub(in crate::agent) struct Place {
    provider: &'static str,
    apps: usize,
    line_bytes_per_s: Option<u64>,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line =
            self.line_bytes_per_s.map_or("no line".to_owned(), |line| format!("{line} bytes/s"));
        write!(f, " {} {} apps, {line}", self.provider, self.apps)
    }
}

impl Row {
    pub(super) fn new(
        (capacity, case, windows): (&Capacity, Case, Windows),
        alone_after_ratio: Option<Alone>,
        (seen, got): (&[Window], &[f64]),
        (changes, left_out): (u32, &[f64]),
    ) -> Self {
        let decides = seen.iter().filter(|_| case.mode != "raw");
        let errors: Vec<f64> = decides.flat_map(Window::errors).collect();
        let by_weight: Vec<f64> = seen.iter().flat_map(Window::errors_by_weight).collect();
        let sum = |of: &dyn Fn(&Window) -> f64| seen.iter().map(of).sum::<f64>();
        let part_used = |window: &Window| window.used(capacity);
        let known = |value: f64, places| value.is_finite().then(|| decimals(value, places));
        let mean = |all: &[f64]| known(all.iter().sum::<f64>() / all.len() as f64, 6);
        let p99 = |all: &[f64]| (!all.is_empty()).then(|| decimals(percentile(all, 0.99), 6));
        let used = seen.iter().map(|window| part_used(window) / window.seconds);
        Self {
            what: "fairness",
            provider: "shm",
            mode: case.mode,
            apps: APPS,
            churn_per_s: 1.0 / windows.seconds,
            seconds: decimals(sum(&|window| window.seconds), 3),
            error_mean: mean(&errors),
            error_p99: p99(&errors),
            error_by_weight_mean: mean(&by_weight),
            error_by_weight_p99: p99(&by_weight),
            capacity_used: known(sum(&part_used) / sum(&|window| window.seconds), 4),
            capacity_used_least: known(used.fold(f64::INFINITY, f64::min), 4),
            alone_after_ratio: alone_after_ratio.map(|all| all.map(|ratio| decimals(ratio, 4))),
            line_bytes_per_s: case.line,
            modest_got_least: known(got.iter().copied().fold(f64::INFINITY, f64::min), 4),
            windows: windows.count,
            changes,
            left_out_ms_mean: decimals(left_out.iter().sum::<f64>() / left_out.len() as f64, 1),
            left_out_ms_max: decimals(left_out.iter().copied().fold(0.0, f64::max), 1),
            emptied_fraction: decimals(
                sum(&|window| window.emptied as f64) / sum(&|window| window.looks as f64),
                4,
            ),
            bytes: BYTES,
            weights: WEIGHTS,
            greedy_batch: GREEDY_BATCH,
        }
    }

    /// Returns it as a line for a person.
    pub(in crate::agent) fn line(&self) -> String {
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| value.to_string());
        format!(
            "fairness   {}:{}: error {} mean, {} p99; by weight {}, {}; {} of the capacity; {} of what the modest ask for",
            self.mode,
            self.place(),
            number(self.error_mean),
            number(self.error_p99),
            number(self.error_by_weight_mean),
            number(self.error_by_weight_p99),
            number(self.capacity_used),
            number(self.modest_got_least),
        )
    }

    fn place(&self) -> Place {
        let &Self { provider, apps, line_bytes_per_s, .. } = self;
        Place { provider, apps, line_bytes_per_s }
    }

    /// Returns what the row says of the goals.
    pub(in crate::agent) fn goals(&self) -> Vec<Goal<Place>> {
        vec![
            self.goal("fairness: error_mean", self.error_mean, Limit::AtMost(0.02)),
            self.goal("fairness: error_p99", self.error_p99, Limit::AtMost(0.05)),
            self.goal("fairness: capacity_used", self.capacity_used, Limit::AtLeast(0.97)),
            self.goal(
                "fairness: of what is less than a share, got",
                self.modest_got_least,
                Limit::AtLeast(0.99),
            ),
        ]
    }

    /// Returns what the row of the agent says beside that of a rival.
    pub(in crate::agent) fn goals_beside(&self, rival: &Self) -> Vec<Goal<Place>> {
        let ratio = |ours: Option<f64>, theirs: Option<f64>| {
            ours.zip(theirs).map(|(ours, theirs)| decimals(ours / theirs, 4))
        };
        let error = ratio(self.error_by_weight_p99, rival.error_by_weight_p99);
        let used = ratio(self.capacity_used, rival.capacity_used);
        let rival = rival.mode.to_uppercase();
        vec![
            self.goal(
                &format!("fairness: agent's error_by_weight_p99 beside {rival}'s"),
                error,
                Limit::AtMost(1.0),
            ),
            self.goal(
                &format!("fairness: agent's capacity_used beside {rival}'s"),
                used,
                Limit::AtLeast(1.0),
            ),
        ]
    }

    fn goal(&self, name: &str, value: Option<f64>, limit: Limit) -> Goal<Place> {
        // What could not be measured is no reason to be silent.
        Goal::new(name, self.place(), value.unwrap_or(f64::NAN), limit)
    }
}
