//! Why an application has its rate, from two looks at the accounts of its agent.
use crate::peer::BYTES_PER_MOPS;
use crate::policy::{self, Optimum};
use crate::protocol::{Account, Offered, Peer, Processor, Rounds, Standing};
use crate::provider::Inquiry;
use catchment_control::drum::ProblemError;
use catchment_verbs::VerbsError;
use serde::Serialize;
use std::time::{Duration, Instant};

/// What keeps an application from more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Binds {
    /// It always had something waiting: the device's sending.
    Device,
    /// It asked for no more.
    Demand,
    /// The policy lets it have no more.
    Maximum,
}

/// The part of the most that it may have from which on that binds an application.
const NEARLY: f64 = 0.95;

/// The rate that an application had between two looks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rate {
    /// Its name.
    pub application: String,
    /// Its process.
    pub process: u32,
    /// Its weight.
    pub weight: f64,
    /// Fairness, of the policy.
    pub alpha: f64,
    /// Applications that are connected.
    pub applications: usize,
    /// Its part of the device while all of them have something to send; 0 where the agent knows no shares (mode
    /// `unlimited`).
    pub share: f64,
    /// Bytes a second that were agreed with other hosts; 0 where there are none.
    pub rate_bytes_per_s: f64,
    /// Bytes a second that it had between the two looks; a chunk counts 64 at least.
    pub bytes_per_s: f64,
    /// Its part of what all had; nothing if none had any.
    pub measured_share: Option<f64>,
    /// What keeps it from more.
    pub binds: Binds,
    /// Utility that a little more of that would add: for each whole device; with other hosts for each 64 MB/s (a Mops). 0
    /// where more is of no use to it.
    pub price: f64,
    /// With other hosts: the part of the price that is for this host's sending. The rest is for completing where it sends.
    pub sending_price: Option<f64>,
}

impl Rate {
    /// Returns whether it is that of the application of this account.
    #[must_use]
    pub fn is_of(&self, account: &Account) -> bool {
        (&self.application, self.process) == (&account.application, account.process)
    }
}

/// Why an application has its rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// What it had.
    #[serde(flatten)]
    pub rate: Rate,
    /// Its share with twice the weight; 0 where that is not for this host alone to say.
    pub doubled_share: f64,
    /// With other hosts: what twice the weight would give it at the prices of now, in bytes a second. Prices would rise, so it
    /// is the most.
    pub doubled_rate_bytes_per_s: Option<f64>,
}

/// Why there is no explanation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExplainError {
    /// The agent cannot be asked.
    #[error(transparent)]
    Agent(#[from] VerbsError),
    /// No such application.
    #[error("no application {asked:?} is connected with agent {agent:?}: {}", named(.connected))]
    Unknown {
        /// The agent.
        agent: String,
        /// The name that was asked for.
        asked: String,
        /// Those that are there.
        connected: Vec<String>,
    },
    /// The weights have no optimum.
    #[error("no shares for these weights: {0}")]
    Problem(#[from] ProblemError),
}

fn named(connected: &[String]) -> String {
    match connected {
        [] => "none is".to_owned(),
        some => format!("these are: {}", some.join(", ")),
    }
}

/// What an agent spent between two looks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spent {
    /// Time between them, in seconds.
    pub seconds: f64,
    /// Processor time.
    #[serde(flatten)]
    pub processor: Processor,
}

/// How an agent stands, and what each application had since the look before.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct View {
    /// The agent's name.
    pub agent: String,
    /// Fairness, of the policy.
    pub alpha: f64,
    /// What each application has had since it connected.
    pub accounts: Vec<Account>,
    /// The rates of those that were there at the look before, too; none at the first.
    pub rates: Vec<Rate>,
    /// How the rounds with other hosts stand; `None` without any.
    pub rounds: Option<Rounds>,
    /// The agents of other hosts.
    pub peers: Vec<Peer>,
    /// The agent's processor time; `None` from one that does not count it.
    pub processor: Option<Processor>,
    /// What it spent since the look before; `None` at the first.
    pub spent: Option<Spent>,
    /// How long ago shares or rates last became others: seconds; `None` before the first time.
    pub decided_ago_s: Option<f64>,
    /// What applications offer by name.
    pub services: Vec<Offered>,
}

/// Looks at an agent again and again, over one connection.
#[derive(Debug)]
pub struct Observer {
    inquiry: Inquiry,
    before: Option<(Instant, Vec<Account>, Option<Processor>)>,
}

impl Observer {
    /// Of the agent of this name. Nothing is asked yet.
    pub fn new(agent: impl Into<String>) -> Self {
        Self { inquiry: Inquiry::new(agent), before: None }
    }

    /// Returns the agent's name.
    pub fn agent(&self) -> &str {
        self.inquiry.agent()
    }

    /// Asks the agent how it stands.
    ///
    /// # Errors
    /// [`ExplainError::Agent`] and [`ExplainError::Problem`].
    pub fn look(&mut self) -> Result<View, ExplainError> {
        let standing = self.inquiry.ask()?;
        let decided_ago_s = standing.decided_ago().map(|ago| ago.as_secs_f64());
        let Standing { alpha, applications, peers, rounds, processor, decided_ns: _, services } =
            standing;
        let now = Instant::now();
        let rates = match &self.before {
            Some((then, before, _)) => {
                let sending = rounds.as_ref().map(|rounds| rounds.sending_price);
                between(before, &applications, (alpha, sending), now - *then)?
            }
            None => Vec::new(),
        };
        let spent = self.before.as_ref().and_then(|(then, _, before)| {
            let processor = processor?.since(before.as_ref()?);
            Some(Spent { seconds: (now - *then).as_secs_f64(), processor })
        });
        self.before = Some((now, applications.clone(), processor));
        let agent = self.agent().to_owned();
        Ok(View {
            agent,
            alpha,
            accounts: applications,
            rates,
            rounds,
            peers,
            processor,
            spent,
            decided_ago_s,
            services,
        })
    }
}

/// Looks at the accounts of an agent twice, and explains the rate of the applications of a name, one for each
/// process that stayed connected.
///
/// # Errors
/// [`ExplainError`].
pub fn explain(
    agent: &str,
    application: &str,
    interval: Duration,
) -> Result<Vec<Explanation>, ExplainError> {
    let mut observer = Observer::new(agent);
    observer.look()?;
    // What happens in a time is the question.
    std::thread::sleep(interval);
    let View { accounts, rates, alpha, .. } = observer.look()?;
    let ours: Vec<_> = rates.into_iter().filter(|rate| rate.application == application).collect();
    if ours.is_empty() {
        let connected = accounts.into_iter().map(|account| account.application).collect();
        let (agent, asked) = (agent.to_owned(), application.to_owned());
        return Err(ExplainError::Unknown { agent, asked, connected });
    }
    let explained = ours.into_iter().map(|rate| {
        let doubled_share = doubled_share(&accounts, &rate, alpha)?;
        let account = accounts.iter().find(|account| rate.is_of(account));
        let doubled_rate_bytes_per_s = doubled_rate(account, &rate);
        Ok(Explanation { rate, doubled_share, doubled_rate_bytes_per_s })
    });
    explained.collect()
}

/// Returns the share that an application would have with twice its weight; 0 where that is not for this host alone to
/// say.
fn doubled_share(accounts: &[Account], rate: &Rate, alpha: f64) -> Result<f64, ProblemError> {
    let at = accounts.iter().position(|account| rate.is_of(account));
    let Some(at) = at.filter(|_| has_share(rate.share, rate.rate_bytes_per_s)) else {
        return Ok(0.0);
    };
    let mut weights: Vec<f64> = accounts.iter().map(|account| account.weight).collect();
    weights[at] *= 2.0;
    Ok(policy::optimum(&weights, alpha)?.shares[at])
}

/// Returns what twice the weight gives at the same prices, where hosts have agreed on a rate: its marginal utility stays.
fn doubled_rate(account: Option<&Account>, rate: &Rate) -> Option<f64> {
    let agreed = Some(rate.rate_bytes_per_s).filter(|agreed| *agreed > 0.0)?;
    if rate.binds != Binds::Device {
        return Some(agreed);
    }
    let most = account.and_then(|account| account.most_bytes_per_s).unwrap_or(f64::INFINITY);
    Some((agreed * 2_f64.powf(1.0 / rate.alpha)).min(most))
}

/// Returns whether this host alone decides a share: with other hosts its optimum says nothing.
fn has_share(share: f64, rate_bytes_per_s: f64) -> bool {
    share > 0.0 && rate_bytes_per_s <= 0.0
}

/// Returns the rates of all applications that are in both accounts, which were taken so long apart.
///
/// # Errors
/// [`ProblemError`] for weights that have no optimum.
fn between(
    before: &[Account],
    after: &[Account],
    (alpha, sending_price): (f64, Option<f64>),
    time: Duration,
) -> Result<Vec<Rate>, ProblemError> {
    let weights: Vec<f64> = after.iter().map(|account| account.weight).collect();
    let Optimum { price, .. } = policy::optimum(&weights, alpha)?;
    let earlier = |now: &Account| {
        before.iter().find(|old| (&old.application, old.process) == (&now.application, now.process))
    };
    let moved = |now: &Account| now.bytes - earlier(now).map_or(0, |old| old.bytes.min(now.bytes));
    let cost = |now: &Account| {
        now.cost_bytes - earlier(now).map_or(0, |old| old.cost_bytes.min(now.cost_bytes))
    };
    let all: u64 = after.iter().map(cost).sum();
    let rate = |now: &Account| {
        let old = earlier(now)?;
        let waited = old.waiting > 0 && now.waiting > 0 && old.emptied == now.emptied;
        let rate = cost(now) as f64 / time.as_secs_f64().max(1e-9);
        let binds = match now.most_bytes_per_s {
            _ if !waited => Binds::Demand,
            Some(most) if rate >= NEARLY * most => Binds::Maximum,
            Some(_) | None => Binds::Device,
        };
        let is_bound = binds == Binds::Device;
        let price = if has_share(now.share, now.rate_bytes_per_s) {
            price
        } else if now.rate_bytes_per_s > 0.0 {
            // What a little more of its rate is worth to it is what it pays for that.
            now.weight * (now.rate_bytes_per_s / BYTES_PER_MOPS).powf(-alpha)
        } else {
            0.0
        };
        let price = if is_bound { price } else { 0.0 };
        let sending_price = sending_price.filter(|_| now.rate_bytes_per_s > 0.0);
        Some(Rate {
            application: now.application.clone(),
            process: now.process,
            weight: now.weight,
            alpha,
            applications: after.len(),
            share: now.share,
            rate_bytes_per_s: now.rate_bytes_per_s,
            bytes_per_s: moved(now) as f64 / time.as_secs_f64().max(1e-9),
            measured_share: (all > 0).then(|| cost(now) as f64 / all as f64),
            binds,
            price,
            sending_price: sending_price.map(|sending| sending.min(price)),
        })
    };
    Ok(after.iter().filter_map(rate).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(name: &str, weight: f64, bytes: u64, waiting: u64, emptied: u64) -> Account {
        let application = name.to_owned();
        Account {
            application,
            weight,
            bytes,
            cost_bytes: bytes,
            waiting,
            emptied,
            share: weight / 4.0,
            ..Account::default()
        }
    }

    #[test]
    fn who_waits_is_bound_by_the_device_and_who_does_not_by_himself() {
        let before = [account("three", 3.0, 100, 5, 2), account("one", 1.0, 50, 1, 7)];
        let after = [
            account("three", 3.0, 100 + 900, 9, 2),
            account("one", 1.0, 50 + 100, 1, 8),
            account("late", 1.0, 0, 0, 0),
        ];
        let found = between(&before, &after, (1.0, None), Duration::from_millis(500)).unwrap();
        let close = |a: f64, b: f64| (a - b).abs() < 1e-6;
        let [three, one] = &found[..] else { panic!("{found:?}") };
        assert_eq!((three.binds, one.binds), (Binds::Device, Binds::Demand));
        assert!(close(three.bytes_per_s, 1800.0) && close(one.measured_share.unwrap(), 0.1));
        assert!(close(three.price, 5.0) && close(one.price, 0.0), "{found:?}");
        let doubled = |rate| doubled_share(&after, rate, 1.0).unwrap();
        assert!(close(doubled(three), 6.0 / 8.0) && close(doubled(one), 2.0 / 6.0));
        let nothing = between(&after, &after, (2.0, None), Duration::from_secs(1)).unwrap();
        assert_eq!(nothing[0].measured_share, None);
    }

    /// With other hosts what an application pays is what a little more is worth to it: some of that for sending here.
    #[test]
    fn who_is_bound_by_what_was_agreed_pays_here_and_there() {
        let agreed = |waiting| {
            let account = account("agreed", 3.0, 100, waiting, 2);
            Account { share: 0.5, rate_bytes_per_s: 128e6, ..account }
        };
        let time = Duration::from_millis(500);
        let found = between(&[agreed(5)], &[agreed(9)], (1.0, Some(1.0)), time).unwrap();
        assert!((found[0].price - 1.5).abs() < 1e-9, "{found:?}");
        assert_eq!(found[0].sending_price, Some(1.0));
        assert_eq!(doubled_rate(Some(&agreed(9)), &found[0]), Some(256e6));
        let most = Account { most_bytes_per_s: Some(200e6), ..agreed(9) };
        assert_eq!(doubled_rate(Some(&most), &found[0]), Some(200e6));
        let free = between(&[agreed(5)], &[agreed(0)], (1.0, Some(1.0)), time).unwrap();
        assert_eq!((free[0].price, free[0].sending_price), (0.0, Some(0.0)));
        assert_eq!(doubled_rate(Some(&agreed(0)), &free[0]), Some(128e6), "it asks for no more");
    }
}
