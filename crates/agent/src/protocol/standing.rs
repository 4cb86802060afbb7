//! How an agent stands: what applications have had, rounds, agents of other hosts.
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// What an agent says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standing {
    /// Fairness, of the policy.
    pub alpha: f64,
    /// What each application has had since it connected.
    pub applications: Vec<Account>,
    /// What it knows of the agents of other hosts.
    pub peers: Vec<Peer>,
    /// How the rounds with other hosts stand; `None` without any.
    pub rounds: Option<Rounds>,
    /// Its processor time; `None` from an agent that ends, or does not count it.
    #[serde(default)]
    pub processor: Option<Processor>,
    /// When shares or rates last became others, and were in force: nanoseconds of the clock `CLOCK_MONOTONIC` of its host; `None`
    /// before the first.
    #[serde(default)]
    pub decided_ns: Option<u64>,
    /// What applications offer by name.
    #[serde(default)]
    pub services: Vec<Offered>,
}

impl Standing {
    /// Returns how long ago shares or rates last became others; `None` before the first time.
    #[must_use]
    pub fn decided_ago(&self) -> Option<Duration> {
        let now = clock_gettime(ClockId::Monotonic);
        let now = Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned() as u32);
        Some(now.saturating_sub(Duration::from_nanos(self.decided_ns?)))
    }
}

/// How the rounds stand in which agents agree on rates.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rounds {
    /// The number of this host.
    pub host: u32,
    /// The number of this life of its agent.
    pub epoch: u32,
    /// Rounds in this life.
    pub rounds: u64,
    /// Messages of others that did not come in time.
    pub lost: u64,
    /// Messages and entries refused: of an earlier life, or for applications that do not exist.
    pub refused: u64,
    /// Times that this host fell back to its own shares.
    pub fell_back: u64,
    /// Nothing changes any more.
    pub still: bool,
    /// By how much the last round moved rates or prices, beside what they are.
    pub residual: f64,
    /// Messages of rounds that were written into a slot of their host.
    pub written: u64,
    /// Numbers of rounds that data of other hosts brought, and how many of them no message had said.
    #[serde(default)]
    pub carried: u64,
    /// See [`Rounds::carried`].
    #[serde(default)]
    pub carried_news: u64,
    /// Those that went by a session.
    pub sent: u64,
    /// Rounds since the last change that this host made or heard of.
    pub since_change: u64,
    /// What a little more of what this host can send would add, in utility for each Mops: 64 MB/s.
    pub sending_price: f64,
    /// The same of what it can take in.
    pub completing_price: f64,
    /// By how much less this host's part is worth, at the prices that it knows, than the most that is possible there, as
    /// a fraction: if no host has more, and all know the same prices, all rates are at most twice that far from the optimum.
    /// Null while it has no part, or does not know its prices.
    pub gap: Option<f64>,
    /// What this host can send by its policy, in bytes a second; null where no rates are agreed.
    #[serde(default)]
    pub send_bytes_per_s: Option<u64>,
    /// What of that works, as it turned out: rates are agreed out of no more. Less where applications were not served what was
    /// agreed.
    #[serde(default)]
    pub working_bytes_per_s: Option<u64>,
}

/// What an agent knows of that of another host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Its name; empty where nobody was reached.
    pub name: String,
    /// The number of its host.
    pub host: Option<u32>,
    /// The number of its life.
    pub epoch: Option<u32>,
    /// Where nobody was reached.
    pub address: Option<String>,
    /// There is a session.
    pub connected: bool,
    /// Why there is none.
    pub reason: String,
    /// Connections with it that share queue pairs.
    pub connections: u32,
    /// The queue pairs that they share.
    pub queue_pairs: u32,
    /// Those that failed, and were replaced.
    pub failed: u32,
    /// Which way the last message of a round went there; none before the first.
    #[serde(default)]
    pub by: Option<By>,
    /// What is asked there for completions of what applications here send, as it said last.
    #[serde(default)]
    pub completing_price: Option<f64>,
}

/// A service that an application offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offered {
    /// Its name.
    pub service: String,
    /// Who offers it: the name in the policy.
    pub application: String,
    /// Its process.
    pub process: u32,
    /// How often it was called.
    pub calls: u64,
}

/// Which way a message of a round goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// By a WRITE into a slot.
    Write,
    /// By the session.
    Session,
}

/// Processor time of an agent since it began, in nanoseconds: that of its thread that moves requests, the engine's, by what
/// it was for. Steps are told from one of 251 turns with something to do, so each is an estimate; together with looks they are all of the thread's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// Requests out of the applications' rings, checked and noted (the DRUM paper's `verb_convertor`).
    pub take_ns: u64,
    /// Whose chunk is next, and what each may be served (`qp_sche`).
    pub schedule_ns: u64,
    /// Chunks to queue pairs of the device (`qp_map`); over shared memory the device copies their bytes in that.
    pub post_ns: u64,
    /// Completions of the device, to the applications.
    pub complete_ns: u64,
    /// What threads of applications ask, and rates that were agreed with other hosts.
    pub command_ns: u64,
    /// The rest: looks that found nothing to do (the paper's busy poll), and falling asleep.
    pub look_ns: u64,
    /// All of the thread's.
    pub engine_ns: u64,
    /// That of all threads of the process, the engine's among them.
    pub process_ns: u64,
}

impl Processor {
    /// Returns the time since an earlier look. A step may have been estimated higher then: it is 0.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let of = |of: fn(&Self) -> u64| of(self).saturating_sub(of(before));
        Self {
            take_ns: of(|one| one.take_ns),
            schedule_ns: of(|one| one.schedule_ns),
            post_ns: of(|one| one.post_ns),
            complete_ns: of(|one| one.complete_ns),
            command_ns: of(|one| one.command_ns),
            look_ns: of(|one| one.look_ns),
            engine_ns: of(|one| one.engine_ns),
            process_ns: of(|one| one.process_ns),
        }
    }

    /// Returns each step's part of the engine's time, with its name; all 0 where there is none.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, f64); 6] {
        let part = |ns: u64| ns as f64 / (self.engine_ns as f64).max(1.0);
        [
            ("take", part(self.take_ns)),
            ("schedule", part(self.schedule_ns)),
            ("post", part(self.post_ns)),
            ("complete", part(self.complete_ns)),
            ("command", part(self.command_ns)),
            ("look", part(self.look_ns)),
        ]
    }
}

/// What an application has had of the device, since it connected.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    /// Its name.
    pub application: String,
    /// Its process, as the kernel noted it.
    pub process: u32,
    /// Its user.
    pub user: u32,
    /// Its weight.
    pub weight: f64,
    /// The most that it is served, in bytes a second, by the policy; null: as much as there is.
    #[serde(default)]
    pub most_bytes_per_s: Option<f64>,
    /// Its part of the device while all that are connected have something to send: the optimum. 0 in the mode
    /// `unlimited`.
    pub share: f64,
    /// What it may send a second, agreed with other hosts; 0 without any.
    pub rate_bytes_per_s: f64,
    /// What it was found to ask for, in bytes a second, as other hosts are told: it is agreed no more than that. Null where
    /// it asks for more than it gets, or nothing is agreed.
    #[serde(default)]
    pub asks_bytes_per_s: Option<f64>,
    /// Requests that it gave, receives not counted.
    pub requests: u64,
    /// Requests that are done, failed ones included.
    pub done: u64,
    /// Requests that failed or were flushed.
    pub failed: u64,
    /// Why, by the names of their statuses ([`WcStatus::name`](catchment_verbs::WcStatus::name)).
    #[serde(default)]
    pub failed_by: BTreeMap<String, u64>,
    /// Entries that were no request, or not one of its own.
    pub refused: u64,
    /// Chunks given to the device.
    pub chunks: u64,
    /// Bytes given to the device; a chunk counts 64 at least.
    pub bytes: u64,
    /// What these cost, in bytes: a chunk as many as the policy says at least. Shares and rates are of these.
    pub cost_bytes: u64,
    /// Requests that wait for their turn.
    pub waiting: u64,
    /// How long its requests have waited for their turn, added up, in nanoseconds: two that wait 3 ms beside each other are 6.
    /// Told from how many wait, each 10 ms.
    #[serde(default)]
    pub waited_ns: u64,
    /// How often none waited.
    pub emptied: u64,
    /// Queue pairs.
    pub queue_pairs: u64,
    /// Bytes of memory chunks and of registered memory of its own.
    pub memory_bytes: u64,
    /// Memory chunks that it has.
    #[serde(default)]
    pub memory_chunks: u64,
    /// What was registered at the device for it so far: each region of its own memory, and nothing for those in memory
    /// chunks.
    #[serde(default)]
    pub registrations: u64,
}
