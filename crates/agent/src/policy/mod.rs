//! The policy of an agent: its device, who may connect, and with which weight.
mod limits;
mod memory;
mod optimum;
mod who;

use crate::peer::message::LEASES_MS;
use catchment_session::names::{SERVICE_NAMES, is_service};
pub(crate) use limits::{WINDOW_CHUNKS, request_bytes};
pub use memory::MemoryChunks;
pub use optimum::{Optimum, optimum};
use serde::Deserialize;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::Path;
pub use who::Who;

/// Connections that may share a queue pair.
const RATIOS: RangeInclusive<u32> = 1..=16;
/// Those that share one in the mode `share` (SHARE in the DRUM paper).
const GROUP: u32 = 5;
/// Shared queue pairs that an agent may have.
pub(crate) const QUEUE_PAIRS: RangeInclusive<u32> = 1..=32;

/// A policy file, JSON. Unknown fields are errors.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The name by which applications find the agent.
    #[serde(default = "default_name")]
    pub name: String,
    /// What it serves them with.
    #[serde(default)]
    pub device: Below,
    /// In which order requests go to the device.
    #[serde(default)]
    pub mode: Mode,
    /// Fairness: 1 is proportional to the weights, larger values come nearer to equal rates.
    #[serde(default = "one")]
    pub alpha: f64,
    /// Longest piece of a request that is served at once; left out: what [`Policy::limits`] makes of the line.
    pub chunk_bytes: Option<u32>,
    /// Bytes in the device's hands, about, as requests cost them: whoever comes waits for these. Left out: two
    /// chunks of those that would be if they, too, were left out.
    pub window_bytes: Option<u64>,
    /// What a request costs at least, in bytes: as many as the line takes in the time that the device needs for the shortest
    /// request. Its time is what the modes that decide shares divide. Left out: 355 ns of the line, 1,775 at most.
    pub request_bytes: Option<u32>,
    /// Memory that is registered before applications ask for it.
    #[serde(default)]
    pub memory_chunks: MemoryChunks,
    /// Who may connect.
    pub applications: Vec<Rule>,
    /// The agents of other hosts.
    #[serde(default)]
    pub between: Between,
    /// What the mode `justitia` needs to know.
    pub justitia: Option<Justitia>,
}

/// What the mode `justitia` needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Justitia {
    /// What the line takes.
    pub line_bytes_per_s: u64,
    /// What the 99th percentile of the latency of probes shall not be above, in microseconds.
    pub target_us: u32,
}

/// What an agent has to do with those of other hosts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Between {
    /// Where they reach this one: `HOST:PORT`.
    pub listen: Option<String>,
    /// Where it reaches them.
    #[serde(default)]
    pub peers: Vec<String>,
    /// The number of this host among all; left out: one made of its identity and the agent's name.
    pub host: Option<u32>,
    /// What the device can send. Needed with `listen` or `peers`.
    pub send_bytes_per_s: Option<u64>,
    /// What it can take in. Needed with `listen` or `peers`.
    pub completion_bytes_per_s: Option<u64>,
    /// How long another agent may be silent, in ms: the same at all.
    #[serde(default = "default_lease")]
    pub lease_ms: u32,
    /// Connections with another host for each queue pair that they share; 1: each has one of its own.
    #[serde(default = "default_ratio")]
    pub ratio: u32,
    /// Most shared queue pairs with all hosts; where that is too few, more connections share one.
    #[serde(default = "default_queue_pairs")]
    pub queue_pairs: u32,
    /// Messages of rounds are written into slots of other agents where these have any; else all go by sessions.
    #[serde(default = "crate::peer::message::yes")]
    pub slots: bool,
    /// Messages of applications carry the numbers of the rounds, too: eight bytes more in the header of one message of a
    /// connection and round. They take the place of what is lost of rounds.
    #[serde(default)]
    pub in_data: bool,
}

impl Between {
    /// The part of what devices can send and take in that applications share. All of it would leave a queue before the
    /// line: it never becomes shorter while somebody sends as fast as the line carries, and who comes waits behind
    /// whole windows. And nobody knows to the byte what a line carries.
    pub const SHARED_PART: f64 = 0.98;
}

impl Default for Between {
    fn default() -> Self {
        Self {
            listen: None,
            peers: Vec::new(),
            host: None,
            send_bytes_per_s: None,
            completion_bytes_per_s: None,
            lease_ms: default_lease(),
            ratio: default_ratio(),
            queue_pairs: default_queue_pairs(),
            slots: true,
            in_data: false,
        }
    }
}

impl Between {
    /// Returns whether there is anything to do with other agents.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.listen.is_some() || !self.peers.is_empty()
    }

    fn check(&self) -> Result<(), PolicyError> {
        for (what, value, range) in [
            ("lease_ms", self.lease_ms, LEASES_MS),
            ("ratio", self.ratio, RATIOS),
            ("queue_pairs", self.queue_pairs, QUEUE_PAIRS),
        ] {
            if !range.contains(&value) {
                let (least, most) = (range.start(), range.end());
                let text = format!("{what} = {value} is not between {least} and {most}");
                return Err(PolicyError::Value(text));
            }
        }
        Ok(())
    }
}

/// A device below an agent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Below {
    /// Shared memory: peers on this host.
    #[default]
    Shm,
    /// RoCEv2 over UDP, at this address.
    Roce(IpAddr),
    /// An RDMA device of this name, as `catchment devices` lists it.
    Ibverbs(String),
}

/// The order in which requests go to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// At the shares of the optimum.
    #[default]
    Drum,
    /// As they come, whole, and with another host over queue pairs that five connections share, each behind a lock:
    /// SHARE in the DRUM paper. To compare with.
    Share,
    /// Over a queue pair of each connection, in chunks, as tokens allow that are worth less while a latency misses its
    /// target ([`Justitia`]). To compare with.
    Justitia,
    /// As they come, whole, over a queue pair and a completion queue of each connection: RAW. To compare with.
    Raw,
    /// As they come, whole: whoever posts more gets more. What the agent is without its shares. To compare with.
    Unlimited,
}

impl Mode {
    /// Returns whether shares and rates are decided.
    pub(crate) const fn decides(self) -> bool {
        matches!(self, Self::Drum)
    }
}

/// Applications of one name.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The name that they give.
    pub name: String,
    /// Their weight: above 0.
    #[serde(default = "one")]
    pub weight: f64,
    /// The most that one of them is served, in bytes a second, as requests cost them; left out: as much as there is.
    pub max_bytes_per_s: Option<f64>,
    /// The user that they run as; left out: the agent's, or any of `cgroup`.
    pub user: Option<u32>,
    /// The control group that they run in, or in one below it, as `/proc/PID/cgroup` has it.
    pub cgroup: Option<String>,
    /// Most bytes of memory that one of them may have: memory chunks, and what it registers of its own.
    #[serde(default = "default_memory")]
    pub memory_bytes: u64,
    /// They may send datagrams (UD) where the device does. What these bring to other hosts is granted by nobody there.
    #[serde(default)]
    pub datagrams: bool,
    /// The services that they may offer by name; left out: one of their own name.
    #[serde(default)]
    pub services: Vec<String>,
}

impl Rule {
    /// Returns whether applications of this rule may offer a service.
    #[must_use]
    pub fn may_offer(&self, service: &str) -> bool {
        if self.services.is_empty() {
            return self.name == service;
        }
        self.services.iter().any(|known| known == service)
    }
}

fn default_name() -> String {
    crate::DEFAULT_AGENT.to_owned()
}

const fn one() -> f64 {
    1.0
}

const fn default_lease() -> u32 {
    2000
}

const fn default_ratio() -> u32 {
    8
}

const fn default_queue_pairs() -> u32 {
    20
}

const fn default_memory() -> u64 {
    1 << 30
}

/// A policy that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// It cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is no policy: with line and column.
    #[error("the policy: {0}")]
    Parse(#[from] serde_json::Error),
    /// A value has no meaning.
    #[error("the policy: {0}")]
    Value(String),
}

impl Policy {
    /// Reads a file.
    ///
    /// # Errors
    /// [`PolicyError`], with the place of the fault.
    pub fn read(path: &Path) -> Result<Self, PolicyError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| PolicyError::Read { path: path.display().to_string(), source })?;
        Self::parse(&text)
    }

    /// Reads the text of a policy.
    ///
    /// # Errors
    /// As [`Policy::read`].
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let policy: Self = serde_json::from_str(text)?;
        let wrong = |text: String| Err(PolicyError::Value(text));
        let positive = |value: f64| value > 0.0 && value.is_finite();
        if !positive(policy.alpha) {
            return wrong(format!("alpha = {} is not above 0", policy.alpha));
        }
        policy.check_limits()?;
        policy.between.check()?;
        policy.memory_chunks.check()?;
        for rule in &policy.applications {
            if !positive(rule.weight) {
                return wrong(format!(
                    "weight = {} of {:?} is not above 0",
                    rule.weight, rule.name
                ));
            }
            if let Some(most) = rule.max_bytes_per_s.filter(|most| !positive(*most)) {
                return wrong(format!(
                    "max_bytes_per_s = {most} of {:?} is not above 0",
                    rule.name
                ));
            }
            if let Some(cgroup) = rule.cgroup.as_ref().filter(|path| !path.starts_with('/')) {
                return wrong(format!(
                    "cgroup = {cgroup:?} of {:?} is no path: it begins with '/', as in /proc/PID/cgroup",
                    rule.name
                ));
            }
            if let Some(service) = rule.services.iter().find(|service| !is_service(service)) {
                return wrong(format!(
                    "{service:?} of {:?} cannot name a service: {SERVICE_NAMES} can",
                    rule.name
                ));
            }
            let same = policy.applications.iter().filter(|other| other.name == rule.name);
            if same.count() > 1 {
                return wrong(format!("{:?} is there twice", rule.name));
            }
        }
        Ok(policy)
    }

    /// Checks that an agent which works by this policy can go over to `new`: only `applications` may differ.
    ///
    /// # Errors
    /// [`PolicyError::Value`], which names what differs beside them.
    pub fn check_change(&self, new: &Self) -> Result<(), PolicyError> {
        let Self {
            name,
            device,
            mode,
            alpha,
            chunk_bytes,
            window_bytes,
            request_bytes,
            applications,
            between,
            justitia,
            memory_chunks,
        } = new;
        _ = applications;
        let same = [
            ("name", self.name == *name),
            ("device", self.device == *device),
            ("mode", self.mode == *mode),
            ("alpha", self.alpha.total_cmp(alpha).is_eq()),
            ("chunk_bytes", self.chunk_bytes == *chunk_bytes),
            ("window_bytes", self.window_bytes == *window_bytes),
            ("request_bytes", self.request_bytes == *request_bytes),
            ("between", self.between == *between),
            ("justitia", self.justitia == *justitia),
            ("memory_chunks", self.memory_chunks == *memory_chunks),
        ];
        let differs = same.iter().find(|(_, same)| !same);
        differs.map_or(Ok(()), |(what, _)| {
            let text =
                format!("{what} cannot change while the agent runs: start it again for that");
            Err(PolicyError::Value(text))
        })
    }

    /// Returns how many connections with another host share a queue pair; 1: none.
    #[must_use]
    pub fn ratio(&self) -> u32 {
        match self.mode {
            Mode::Drum | Mode::Unlimited => self.between.ratio,
            Mode::Share => GROUP,
            Mode::Raw | Mode::Justitia => 1,
        }
    }

    /// Returns whether connections with other hosts share queue pairs.
    #[must_use]
    pub fn shares(&self) -> bool {
        self.between.is_used() && self.ratio() > 1
    }

    /// Returns whether agents measure latency over queue pairs that they connect with each other.
    pub(crate) fn probes(&self) -> bool {
        self.mode == Mode::Justitia
    }

    /// Returns whether agents connect queue pairs with each other: to share them, or for probes.
    pub(crate) fn connects(&self) -> bool {
        self.between.is_used() && (self.ratio() > 1 || self.probes())
    }

    /// Returns the rule for applications of this name.
    #[must_use]
    pub fn rule(&self, name: &str) -> Option<&Rule> {
        self.applications.iter().find(|rule| rule.name == name)
    }

    /// Returns the rule for an application of this name, if it is for this process; without a user and a control group of its
    /// own, a rule is for the user of this process.
    ///
    /// # Errors
    /// Why it is not served.
    pub fn admit(&self, name: &str, who: Who) -> Result<&Rule, String> {
        let rule = self.rule(name).ok_or_else(|| {
            let name: String = name.chars().take(64).collect();
            format!("the agent's policy has no application {name:?}")
        })?;
        rule.check_user(who.user)?;
        rule.check_cgroup(who.process)?;
        Ok(rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_says_who_is_served() {
        let policy = Policy::parse(
            r#"{"applications": [{"name": "a", "weight": 3}, {"name": "b", "user": 7}]}"#,
        )
        .unwrap();
        assert_eq!((policy.name.as_str(), policy.device.clone()), ("agent0", Below::Shm));
        let ours = rustix::process::geteuid().as_raw();
        let who = |user| Who { user, process: std::process::id() };
        assert!((policy.admit("a", who(ours)).unwrap().weight - 3.0).abs() < 1e-9);
        assert!(policy.admit("b", who(7)).is_ok());
        for (name, user) in [("a", ours + 1), ("b", 8), ("c", ours)] {
            assert!(policy.admit(name, who(user)).unwrap_err().contains(name));
        }
    }

    #[test]
    fn an_application_offers_its_own_name_or_what_the_policy_says() {
        let text = r#"{"applications": [{"name": "a"}, {"name": "b", "services": ["c", "d"]}]}"#;
        let policy = Policy::parse(text).unwrap();
        let may = |rule: &str, service| policy.rule(rule).unwrap().may_offer(service);
        assert!(may("a", "a") && may("b", "c") && may("b", "d"));
        assert!(!may("a", "c") && !may("b", "b"));
    }

    #[test]
    fn only_applications_may_change_while_an_agent_runs() {
        let policy =
            |text: &str| Policy::parse(&format!(r#"{{"applications": [] {text}}}"#)).unwrap();
        let old = policy("");
        let rules = Policy::parse(r#"{"applications": [{"name": "a", "weight": 2}]}"#).unwrap();
        assert!(old.check_change(&rules).is_ok());
        for (text, what) in [
            (r#", "name": "other""#, "name"),
            (r#", "device": {"roce": "10.0.0.1"}"#, "device"),
            (r#", "mode": "raw""#, "mode"),
            (r#", "alpha": 2"#, "alpha"),
            (r#", "chunk_bytes": 4096"#, "chunk_bytes"),
            (r#", "window_bytes": 4096"#, "window_bytes"),
            (r#", "request_bytes": 64"#, "request_bytes"),
            (r#", "between": {"ratio": 2}"#, "between"),
            (r#", "memory_chunks": {"ahead": 2}"#, "memory_chunks"),
            (r#", "justitia": {"line_bytes_per_s": 1, "target_us": 1}"#, "justitia"),
        ] {
            let error = old.check_change(&policy(text)).unwrap_err().to_string();
            assert!(error.contains(&format!("{what} cannot change")), "{error}");
        }
    }

    #[test]
    fn a_bad_policy_is_refused_with_the_place() {
        for (text, said) in [
            ("{\n\"applications\": [],\n\"weihgt\": 1}", "line 3"),
            (r#"{"applications": [{"name": "a", "weight": 0}]}"#, "weight = 0 of \"a\""),
            (r#"{"applications": [{"name": "a"}, {"name": "a"}]}"#, "twice"),
            (
                r#"{"applications": [{"name": "a", "services": ["b c"]}]}"#,
                "\"b c\" of \"a\" cannot name a service",
            ),
            (
                r#"{"applications": [{"name": "a", "max_bytes_per_s": 0}]}"#,
                "max_bytes_per_s = 0 of",
            ),
            (
                r#"{"applications": [{"name": "a", "cgroup": "b"}]}"#,
                "cgroup = \"b\" of \"a\" is no",
            ),
            (r#"{"applications": [], "chunk_bytes": 1}"#, "chunk_bytes = 1"),
            (r#"{"applications": [], "request_bytes": 63}"#, "request_bytes = 63"),
            (r#"{"applications": [], "alpha": -1}"#, "alpha = -1"),
            (r#"{"applications": [], "between": {"lease_ms": 5}}"#, "lease_ms = 5"),
            (r#"{"applications": [], "between": {"ratio": 17}}"#, "ratio = 17"),
            (r#"{"applications": [], "memory_chunks": {"bytes": 5}}"#, "bytes = 5"),
            (r#"{"applications": [], "memory_chunks": {"ahead": 17}}"#, "ahead = 17"),
            (r#"{"applications": [], "mode": "fair"}"#, "unknown variant `fair`"),
            (r#"{"applications": [], "device": {"roce": "nowhere"}}"#, "invalid IP address"),
        ] {
            let error = Policy::parse(text).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
