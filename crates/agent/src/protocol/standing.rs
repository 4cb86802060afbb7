//! How an agent stands: what applications have had, rounds, agents of other hosts.
use serde::{Deserialize, Serialize};

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

/// Which way a message of a round goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// By a WRITE into a slot.
    Write,
    /// By the session.
    Session,
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
    /// Its part of the device while all that are connected have something to send: the optimum. 0 in the mode
    /// `unlimited`.
    pub share: f64,
    /// What it may send a second, agreed with other hosts; 0 without any.
    pub rate_bytes_per_s: f64,
    /// Requests that it gave, receives not counted.
    pub requests: u64,
    /// Requests that are done, failed ones included.
    pub done: u64,
    /// Requests that failed or were flushed.
    pub failed: u64,
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
