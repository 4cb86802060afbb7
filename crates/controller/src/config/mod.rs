//! The configuration of a controller: one bottleneck, or a file.
mod file;
mod value;

pub use catchment_control::admission::Late;
pub use file::EXAMPLE;
pub use value::{parse_queue, parse_rate};

use crate::leader::Leader;
use catchment_control::admission::{
    ClassConfig, ClassId, Config, LinkConfig, LinkId, PathId, Rules,
};
use catchment_session::io::Address;
use std::net::IpAddr;

/// What sources may send at their safe rates, of a link: percent.
const SAFE_PERCENT: u64 = 90;

/// A configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}; {remedy}")]
pub struct ConfigError {
    /// The line of the file, from 1 on.
    pub line: usize,
    /// What was seen.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

/// A link, as people call it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Payload that it carries: bits a second.
    pub capacity_bps: u64,
    /// How much delays over it differ.
    pub guard_ns: u64,
    /// What waits before it at most before it drops: bytes. `None`: not known.
    pub queue_bytes: Option<u64>,
}

/// Which sources take which links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// Addresses of sources; `None` for all.
    pub from: Option<Prefix>,
    /// The host of the collector, as sources were told it; `None` for all.
    pub to: Option<String>,
    /// Indices of its links.
    pub links: Vec<usize>,
}

/// Addresses that begin alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// The beginning, and zeros.
    pub address: IpAddr,
    /// How many bits it has.
    pub bits: u8,
}

/// Transfers that are served alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// From the generation of a frame.
    pub deadline_ns: u64,
    /// What becomes of late ones.
    pub late: Late,
    /// Percent of a link that the class gets in the long run while others wait.
    pub share_max_percent: u8,
}

/// What sources with a certificate may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allow {
    /// The name in the certificate; `*` stands for any characters.
    pub certificate: String,
    /// Names of devices; `*` stands for any characters.
    pub devices: Vec<String>,
    /// Indices of the classes that they may claim, the most urgent first.
    pub classes: Vec<usize>,
    /// The greatest rate of a device.
    pub rate_max_bps: Option<u64>,
    /// The part of a class that a device has, relative to others.
    pub weight: u32,
    /// What a device may send without asking, in frames of 64 KiB or less: bits a second.
    pub small_bps: u64,
    /// It may change settings while the controller runs.
    pub is_admin: bool,
}

/// Who goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Class, then the oldest; late ones last: ours.
    Deadline,
    /// Class, then in the order of requests, in slots of this rate: our reading of P-RDMA-TCM.
    Priority {
        /// The rate of each grant.
        slot_bps: u64,
    },
    /// In the order of requests, in slots of this rate: our reading of RDMA-TCM.
    Fifo {
        /// The rate of each grant.
        slot_bps: u64,
    },
}

/// All that a controller is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where sources register; grants go by UDP from the same port.
    pub listen: Address,
    /// Who goes first.
    pub policy: Policy,
    /// The longest window.
    pub lease_ns: u64,
    /// Sources stop at borders of chunks of this size.
    pub chunk_bytes: u64,
    /// As many sources share the safe rates; others stop while no controller answers.
    pub safe_sources: u32,
    /// The links.
    pub links: Vec<Link>,
    /// The paths; the first that fits a source counts.
    pub paths: Vec<Path>,
    /// The classes, the most urgent first.
    pub classes: Vec<Class>,
    /// Who may do what; without any, everybody everything.
    pub allow: Vec<Allow>,
    /// Where it is kept who leads; without it this one does.
    pub leader: Option<Leader>,
    /// Where settings are changed; nowhere without it.
    pub admin: Option<Address>,
}

impl Settings {
    /// Describes one link that all share, and what its queue takes if that is known, with the classes `urgent` (100 ms) and
    /// `tolerant` (1 s).
    #[must_use]
    pub fn bottleneck(listen: Address, capacity_bps: u64, queue_bytes: Option<u64>) -> Self {
        let link =
            Link { name: "bottleneck".to_owned(), capacity_bps, guard_ns: 100_000, queue_bytes };
        Self {
            listen,
            policy: Policy::Deadline,
            lease_ns: 200_000_000,
            chunk_bytes: 1 << 20,
            safe_sources: 16,
            links: vec![link],
            paths: vec![Path { from: None, to: None, links: vec![0] }],
            classes: default_classes(),
            allow: Vec::new(),
            leader: None,
            admin: None,
        }
    }

    /// Reads a file of TOML; `listen` holds where the file names no address.
    ///
    /// # Errors
    /// [`ConfigError`], with the line.
    pub fn parse(text: &str, listen: &Address) -> Result<Self, ConfigError> {
        file::parse(text, listen)
    }

    /// Returns the path of a source at an address, for a collector.
    #[must_use]
    pub fn path(&self, from: IpAddr, collector: &str) -> Option<PathId> {
        let host = collector.parse::<Address>().map(|address| match address {
            Address::Tcp { host, .. } => host,
            Address::Unix(_) => String::new(),
        });
        let host = host.unwrap_or_else(|_| collector.to_owned());
        let fits = |path: &Path| {
            path.from.is_none_or(|prefix| prefix.contains(from))
                && path.to.as_ref().is_none_or(|to| *to == host)
        };
        let at = self.paths.iter().position(fits)?;
        u16::try_from(at).ok().map(PathId)
    }

    /// Returns what the slowest link of a path carries.
    #[must_use]
    pub fn capacity_bps(&self, path: PathId) -> u64 {
        self.links_of(path).map(|link| link.capacity_bps).min().unwrap_or(0)
    }

    /// Returns one part of the safe rates. Each of [`Settings::safe_sources`] has one, and those with a device of the most urgent
    /// class a second one, as far as [`Settings::safe_parts_more`] go.
    #[must_use]
    pub fn safe_part_bps(&self, path: PathId) -> u64 {
        let parts = self.safe_sources.max(1).saturating_add(self.safe_parts_more());
        self.capacity_bps(path) / 100 * SAFE_PERCENT / u64::from(parts)
    }

    /// Returns how many second parts of the safe rates there are: for a quarter of the sources.
    #[must_use]
    pub const fn safe_parts_more(&self) -> u32 {
        self.safe_sources.div_ceil(4)
    }

    /// Returns whether devices of a class go before others while no controller answers.
    #[must_use]
    pub fn is_most_urgent(&self, class: ClassId) -> bool {
        class == ClassId(0) && self.classes.len() > 1
    }

    /// Returns how much of what it is granted a source may send at once because it was late, as the time in which the rate
    /// gives it. What all sources of a link have missed waits in its queue then; half of it, as the shortest of a path
    /// takes it, is left for how packets of different sources meet. `None` where no link states its queue.
    #[must_use]
    pub fn max_burst_ns(&self, path: PathId) -> Option<u64> {
        let burst_ns = |link: &Link| {
            let bits = u128::from(link.queue_bytes? / 2) * 8;
            u64::try_from(bits * 1_000_000_000 / u128::from(link.capacity_bps.max(1))).ok()
        };
        self.links_of(path).filter_map(burst_ns).min()
    }

    /// Returns the size of chunks of a path, at whose borders its sources stop: as is set, and no more than half of the shortest
    /// queue that is known. A chunk that was begun in time and is late leaves in the next one's window, and waits there.
    #[must_use]
    pub fn chunk_bytes(&self, path: PathId) -> u64 {
        let half = self.links_of(path).filter_map(|link| Some(link.queue_bytes? / 2)).min();
        half.map_or(self.chunk_bytes, |half| self.chunk_bytes.min(half))
    }

    fn links_of(&self, path: PathId) -> impl Iterator<Item = &Link> {
        let links = self.paths.get(usize::from(path.0)).into_iter().flat_map(|path| &path.links);
        links.map(|at| &self.links[*at])
    }

    /// Returns the rules of a source: those of the first `[[allow]]` that fits its certificate, for a device.
    #[must_use]
    pub fn rules(&self, certificate: Option<&str>, device: &str) -> Option<&Allow> {
        let certificate = certificate.unwrap_or("");
        let fits = |allow: &&Allow| {
            matches(&allow.certificate, certificate)
                && allow.devices.iter().any(|pattern| matches(pattern, device))
        };
        self.allow.iter().find(fits)
    }

    /// Returns whether the owner of a certificate may change settings.
    #[must_use]
    pub fn is_admin(&self, certificate: &str) -> bool {
        self.allow.iter().any(|allow| allow.is_admin && matches(&allow.certificate, certificate))
    }

    /// Returns the configuration of the controller.
    #[must_use]
    pub fn admission(&self) -> Config {
        let link = |link: &Link| LinkConfig {
            capacity_bps: link.capacity_bps,
            guard_ns: link.guard_ns,
            safe_bps: link.capacity_bps / 100 * SAFE_PERCENT,
        };
        let path = |path: &Path| {
            path.links.iter().filter_map(|at| u16::try_from(*at).ok()).map(LinkId).collect()
        };
        let rules = match self.policy {
            Policy::Deadline => Rules::deadline(),
            Policy::Priority { slot_bps } => Rules::priority(slot_bps),
            Policy::Fifo { slot_bps } => Rules::fifo(slot_bps),
        };
        let class = |class: &Class| ClassConfig {
            deadline_ns: class.deadline_ns,
            late: class.late,
            share_max_percent: class.share_max_percent,
        };
        let (links, paths) =
            (self.links.iter().map(link).collect(), self.paths.iter().map(path).collect());
        Config {
            classes: self.classes.iter().map(class).collect(),
            lease_ns: self.lease_ns,
            chunk_bytes: self.chunk_bytes,
            // Nothing is known of an earlier controller.
            recovering: true,
            ..Config::new(links, paths, rules)
        }
    }

    /// Returns what cannot change while the controller runs, if `new` has it otherwise.
    #[must_use]
    pub fn fixed_difference(&self, new: &Self) -> Option<&'static str> {
        [
            ("listen", self.listen != new.listen),
            ("lease", self.lease_ns != new.lease_ns),
            ("chunk", self.chunk_bytes != new.chunk_bytes),
            ("[leader]", self.leader != new.leader),
            ("admin", self.admin != new.admin),
        ]
        .into_iter()
        .find_map(|(what, differs)| differs.then_some(what))
    }

    /// Returns whether `new` has other links, paths or classes, capacities and how classes are served aside: what is granted
    /// by these cannot be granted by those.
    pub(crate) fn is_network_other(&self, new: &Self) -> bool {
        let links = |settings: &Self| -> Vec<_> {
            let one = |link: &Link| (link.name.clone(), link.guard_ns, link.queue_bytes);
            settings.links.iter().map(one).collect()
        };
        let classes = |settings: &Self| -> Vec<_> {
            settings.classes.iter().map(|class| class.name.clone()).collect()
        };
        links(self) != links(new) || self.paths != new.paths || classes(self) != classes(new)
    }
}

fn default_classes() -> Vec<Class> {
    let class = |name: &str, deadline_ms: u64, late, share_max_percent| Class {
        name: name.to_owned(),
        deadline_ns: deadline_ms * 1_000_000,
        late,
        share_max_percent,
    };
    vec![class("urgent", 100, Late::Keep, 50), class("tolerant", 1000, Late::Demote, 100)]
}

impl Prefix {
    /// Returns whether an address begins like this.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                u32::from(own) & mask == u32::from(other) & mask
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                u128::from(own) & mask == u128::from(other) & mask
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// Returns whether a text fits a pattern in which `*` stands for any characters.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
mod tests;
