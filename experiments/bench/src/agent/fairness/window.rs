//! What applications were served in a time, beside what was decided.
use super::{APPS, BYTES, MODEST, bytes, weight};
use crate::agent::ends::{AgentProcess, application};
use crate::sys;
use anyhow::Result;
use catchment_agent::policy::Policy;
use catchment_agent::protocol::Account;

/// What a device does for who is alone, by the size of his requests: bytes a second as they cost.
pub(super) type Alone = [f64; BYTES.len()];

/// Returns which of the sizes this application's requests have.
fn size_of(at: usize) -> usize {
    BYTES.iter().position(|size| *size == bytes(at)).unwrap_or(0)
}

/// The accounts of the applications at one moment; none of who is not there.
pub(super) struct Moment {
    pub(super) ns: u64,
    pub(super) accounts: Vec<Option<Account>>,
}

impl Moment {
    pub(super) fn now(agent: &AgentProcess) -> Result<Self> {
        let all = catchment_agent::status(agent.name())?;
        let find = |at| all.iter().find(|one| one.application == application(at)).cloned();
        Ok(Self { ns: sys::monotonic_ns(), accounts: (0..APPS).map(find).collect() })
    }

    /// Returns the accounts of an application here and at a later moment.
    pub(super) fn both<'a>(
        &'a self,
        later: &'a Self,
        at: usize,
    ) -> Option<(&'a Account, &'a Account)> {
        self.accounts[at].as_ref().zip(later.accounts[at].as_ref())
    }
}

/// What one application was served in a window, what was decided, and what its weight gives of all that those got who waited.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sums {
    served: f64,
    decided: f64,
    by_weight: f64,
}

/// One window, as far as it is compared.
pub(super) struct Window {
    of: Vec<Sums>,
    /// What was served, by the size of requests, in bytes as they cost; and how long that took.
    cost_bytes: Alone,
    pub(super) seconds: f64,
    /// Looks at who always waits, and those between which he had nothing.
    pub(super) looks: u64,
    pub(super) emptied: u64,
}

impl Window {
    pub(super) fn new() -> Self {
        let (of, cost_bytes) = (vec![Sums::default(); APPS], Alone::default());
        Self { of, cost_bytes, seconds: 0.0, looks: 0, emptied: 0 }
    }

    /// Adds what happened from one look to the next.
    pub(super) fn add(&mut self, (from, to): (&Moment, &Moment), line: Option<u64>) {
        let seconds = (to.ns - from.ns) as f64 / 1e9;
        let cost = |from: &Account, to: &Account| (to.cost_bytes - from.cost_bytes) as f64;
        let (mut waiting, mut shares, mut weights, mut served) = (Vec::new(), 0.0, 0.0, 0.0);
        for at in 0..APPS {
            let Some((before, after)) = from.both(to, at) else { continue };
            self.cost_bytes[size_of(at)] += cost(before, after);
            if MODEST.contains(&at) || before.requests == 0 {
                continue;
            }
            self.looks += 1;
            if before.waiting == 0 || after.waiting == 0 || before.emptied != after.emptied {
                self.emptied += 1;
                continue;
            }
            waiting.push((at, before, after));
            shares += after.share;
            weights += weight(at);
            served += cost(before, after);
        }
        self.seconds += seconds;
        for (at, before, after) in waiting {
            let rate = f64::midpoint(before.rate_bytes_per_s, after.rate_bytes_per_s);
            let sums = &mut self.of[at];
            sums.served += cost(before, after);
            sums.decided += match line {
                Some(_) => rate * seconds,
                None => served * after.share / shares,
            };
            sums.by_weight += served * weight(at) / weights;
        }
    }

    /// Returns what part of the device was used, times seconds.
    pub(super) fn used(&self, capacity: &Capacity) -> f64 {
        self.cost_bytes.iter().zip(capacity.by_size()).map(|(cost, rate)| cost / rate).sum()
    }

    /// Returns by what part each was served more or less than was decided.
    pub(super) fn errors(&self) -> impl Iterator<Item = f64> {
        self.beside(|sums| sums.decided)
    }

    /// Returns by what part each was served more or less than its weight gives.
    pub(super) fn errors_by_weight(&self) -> impl Iterator<Item = f64> {
        self.beside(|sums| sums.by_weight)
    }

    fn beside(&self, wanted: impl Fn(&Sums) -> f64 + Copy) -> impl Iterator<Item = f64> {
        let compared = self.of.iter().filter(move |sums| wanted(sums) > 0.0);
        compared.map(move |sums| (sums.served / wanted(sums) - 1.0).abs())
    }
}

/// What the device does.
pub(super) enum Capacity {
    /// By the policy.
    Line(u64),
    /// By measurement.
    Alone(Alone),
}

impl Capacity {
    /// Returns what it does for this application, if it does nothing else.
    pub(super) fn of(&self, at: usize) -> f64 {
        self.by_size()[size_of(at)]
    }

    fn by_size(&self) -> Alone {
        match self {
            Self::Line(line) => [*line as f64; BYTES.len()],
            Self::Alone(alone) => *alone,
        }
    }

    /// Returns what the agent's policy says of it.
    pub(super) fn policy(&self) -> Result<Policy> {
        let mut policy = Policy::parse(r#"{"applications": []}"#)?;
        if let Self::Line(line) = self {
            policy.between.send_bytes_per_s = Some(*line);
        }
        Ok(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::super::GREEDY;
    use super::*;
    use crate::stats::decimals;

    /// Applications 0, 1 and 4 always wait, with weights 1, 2 and 1; so does the greedy one; the rest is not there.
    fn moment(ns: u64, cost_bytes: [u64; 4], emptied: u64) -> Moment {
        let mut accounts = vec![None; APPS];
        for (at, cost_bytes) in [0, 1, 4, GREEDY].into_iter().zip(cost_bytes) {
            let share = weight(at) / 5.0;
            let emptied = if at == 4 { emptied } else { 0 };
            let account = Account {
                requests: 1,
                waiting: 1,
                share,
                rate_bytes_per_s: share * 1000.0,
                cost_bytes,
                emptied,
                ..Account::default()
            };
            accounts[at] = Some(account);
        }
        Moment { ns, accounts }
    }

    fn errors(line: Option<u64>, looks: &[Moment]) -> (Vec<f64>, Window) {
        let mut window = Window::new();
        for both in looks.windows(2) {
            window.add((&both[0], &both[1]), line);
        }
        (window.errors().map(|error| decimals(error, 6)).collect(), window)
    }

    #[test]
    fn applications_are_compared_with_their_shares_of_what_all_who_wait_got() {
        let looks = [moment(0, [0; 4], 0), moment(1_000_000_000, [100, 200, 150, 50], 0)];
        let (errors, window) = errors(None, &looks);
        assert_eq!(errors, [0.0, 0.0, 0.5, 0.5]);
        assert_eq!(window.errors_by_weight().collect::<Vec<_>>(), errors);
        let used = window.used(&Capacity::Alone([1000.0; BYTES.len()]));
        assert!((used - 0.5).abs() < 1e-9 && (window.looks, window.emptied) == (4, 0));
    }

    #[test]
    fn with_a_line_they_are_compared_with_their_rates_and_who_had_nothing_is_left_out() {
        let looks = [
            moment(0, [0; 4], 0),
            moment(500_000_000, [100, 210, 100, 100], 0),
            moment(1_000_000_000, [200, 420, 900, 200], 1),
        ];
        let (errors, window) = errors(Some(1000), &looks);
        // The third is compared in the first half only.
        assert_eq!(errors, [0.0, 0.05, 0.0, 0.0]);
        assert_eq!((window.looks, window.emptied), (8, 1));
    }
}
