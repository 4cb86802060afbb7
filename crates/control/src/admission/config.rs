//! Links, paths, classes, and the switches of a policy.
use super::{LinkId, PathId};

const MS: u64 = 1_000_000;

/// A link that sources share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Payload that it carries. Parallel pipes with one queue are one link of their sum.
    pub capacity_bps: u64,
    /// Kept free between a window and the next: how far clocks and delays may be wrong.
    pub guard_ns: u64,
    /// What sources may send without a controller; kept free for a lease after a restart.
    pub safe_bps: u64,
}

impl LinkConfig {
    /// Returns a link with a guard of 100 µs.
    #[must_use]
    pub const fn new(capacity_bps: u64) -> Self {
        Self { capacity_bps, guard_ns: MS / 10, safe_bps: 0 }
    }
}

/// What becomes of a transfer that can no longer make its deadline. It is told in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// It keeps its place.
    Keep,
    /// It goes behind all that can make theirs.
    Demote,
    /// It is not granted any more.
    Drop,
}

/// Transfers that are served alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassConfig {
    /// From the generation of a transfer.
    pub deadline_ns: u64,
    /// What becomes of late ones.
    pub late: Late,
    /// Percent of a link that the class gets in the long run while others wait; beyond it a transfer
    /// counts as one of the next class.
    pub share_max_percent: u8,
}

/// In which order transfers are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As they asked.
    Arrival,
    /// Class, then as they asked.
    ClassArrival,
    /// Class, then the one generated first.
    ClassAge,
    /// The earliest deadline, over all classes.
    Deadline,
}

/// Whether what is more important stops what runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pausing {
    /// A grant runs to its end.
    Never,
    /// The newcomer's window begins when the other has said that it stopped, or its window is over:
    /// whatever is lost, the two never send at once.
    Confirmed,
    /// The newcomer's window begins when the other should have stopped.
    Predicted,
}

/// The switches of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Who goes first.
    pub order: Order,
    /// Each grant has this rate, or is not given; otherwise a transfer gets all that its path and its
    /// sender still have.
    pub slot_bps: Option<u64>,
    /// A grant covers this much, then the transfer asks again; otherwise the whole transfer.
    pub quantum_bytes: Option<u64>,
    /// The next is granted ahead of the end of a window; otherwise when the end is told.
    pub pipelined: bool,
    /// Capacity stays unused this long after each grant (the paper's overhead).
    pub gap_ns: u64,
    /// Whether what runs is stopped.
    pub pausing: Pausing,
    /// Whether late transfers go where their class says ([`Late`]); otherwise they keep their place.
    pub demotion: bool,
    /// Whether newer transfers of a device go past its late ones.
    pub overtaking: bool,
    /// Weighted shares of devices and of classes.
    pub shares: Option<Shares>,
}

/// When a device or a class has had its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// A device is beyond its share when its data would take longer than this if all that have data
    /// sent at once, at rates in proportion to their weights. Four times as much is remembered.
    pub device_wait_ns: u64,
    /// A device that is ahead of another by more than this gives way to late transfers of the other: the time that a
    /// link takes for what it was granted beyond its part.
    pub device_ahead_ns: u64,
    /// What a class may save up of its share.
    pub class_depth_ns: u64,
}

impl Default for Shares {
    /// Returns 8 s, 1 s and 5 s.
    fn default() -> Self {
        Self { device_wait_ns: 8_000 * MS, device_ahead_ns: 1_000 * MS, class_depth_ns: 5_000 * MS }
    }
}

impl Rules {
    /// Returns our reading of RDMA-TCM: slots of `slot_bps`, in the order of requests.
    #[must_use]
    pub const fn fifo(slot_bps: u64) -> Self {
        Self {
            order: Order::Arrival,
            slot_bps: Some(slot_bps),
            quantum_bytes: None,
            pipelined: false,
            gap_ns: 0,
            pausing: Pausing::Never,
            demotion: false,
            overtaking: false,
            shares: None,
        }
    }

    /// Returns our reading of P-RDMA-TCM: as [`fifo`](Self::fifo), the higher class first.
    #[must_use]
    pub const fn priority(slot_bps: u64) -> Self {
        Self { order: Order::ClassArrival, ..Self::fifo(slot_bps) }
    }

    /// Returns ours.
    #[must_use]
    pub fn deadline() -> Self {
        Self {
            order: Order::ClassAge,
            slot_bps: None,
            quantum_bytes: None,
            pipelined: true,
            gap_ns: 0,
            pausing: Pausing::Confirmed,
            demotion: true,
            overtaking: true,
            shares: Some(Shares::default()),
        }
    }
}

/// All that a controller is told at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The links that are shared.
    pub links: Vec<LinkConfig>,
    /// The links of each path; they are taken together.
    pub paths: Vec<Vec<LinkId>>,
    /// The classes, the most urgent first.
    pub classes: Vec<ClassConfig>,
    /// The policy.
    pub rules: Rules,
    /// The longest window.
    pub lease_ns: u64,
    /// Grants leave this much ahead of the time from which they hold, or as long as they take where that is longer.
    pub ahead_ns: u64,
    /// A source stops at borders of chunks of this size.
    pub chunk_bytes: u64,
    /// Less is not worth a grant.
    pub rate_min_bps: u64,
    /// An age beyond this counts as this.
    pub age_max_ns: u64,
    /// The largest transfer.
    pub bytes_max: u64,
    /// Transfers of one device that wait or run.
    pub transfers_max: u32,
    /// Devices.
    pub devices_max: u32,
    /// Percent of a link for transfers that leave without asking.
    pub small_percent: u8,
    /// Percent of a link for periodic streams.
    pub periodic_percent: u8,
    /// An earlier controller may have granted windows: for a lease, leave room for the safe rates.
    pub recovering: bool,
}

/// A configuration makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// No link, path or class, or more than their numbers can say.
    Count,
    /// The path names a link that is not there, none at all, or one twice.
    Path(PathId),
    /// A percentage above 100, or a lease, a chunk or a least rate of 0.
    Range,
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Count => {
                f.write_str("links, paths and classes: at least one, at most 65,536 (classes: 256)")
            }
            Self::Path(path) => write!(f, "path {}: give existing links, each once", path.0),
            Self::Range => {
                f.write_str("percentages are at most 100; lease, chunk and least rate at least 1")
            }
        }
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Returns a configuration with two classes, urgent (100 ms, keeps its place) and tolerant (1 s, goes
    /// last when late), a lease of 200 ms and chunks of 1 MiB.
    #[must_use]
    pub fn new(links: Vec<LinkConfig>, paths: Vec<Vec<LinkId>>, rules: Rules) -> Self {
        let urgent = ClassConfig { deadline_ns: 100 * MS, late: Late::Keep, share_max_percent: 50 };
        let tolerant =
            ClassConfig { deadline_ns: 1000 * MS, late: Late::Demote, share_max_percent: 100 };
        Self {
            links,
            paths,
            classes: vec![urgent, tolerant],
            rules,
            lease_ns: 200 * MS,
            ahead_ns: MS,
            chunk_bytes: 1 << 20,
            rate_min_bps: 1_000_000,
            age_max_ns: 10_000 * MS,
            bytes_max: 1 << 40,
            transfers_max: 1024,
            devices_max: 1 << 20,
            small_percent: 2,
            periodic_percent: 90,
            recovering: false,
        }
    }

    /// Checks that indices exist and numbers are in range.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn check(&self) -> Result<(), ConfigError> {
        let counts = [(self.links.len(), 1 << 16), (self.paths.len(), 1 << 16)];
        let counts = counts.into_iter().chain([(self.classes.len(), 1 << 8)]);
        if counts.into_iter().any(|(count, most)| count == 0 || count > most) {
            return Err(ConfigError::Count);
        }
        for (index, path) in (0..).zip(&self.paths) {
            let known = path.iter().all(|link| usize::from(link.0) < self.links.len());
            let once = (1..path.len()).all(|at| !path[..at].contains(&path[at]));
            if path.is_empty() || !known || !once {
                return Err(ConfigError::Path(PathId(index)));
            }
        }
        let percents = [self.small_percent, self.periodic_percent];
        let shares = self.classes.iter().map(|class| class.share_max_percent);
        let high = percents.into_iter().chain(shares).any(|percent| percent > 100);
        let zero = [self.lease_ns, self.chunk_bytes, self.rate_min_bps].contains(&0);
        if high || zero { Err(ConfigError::Range) } else { Ok(()) }
    }
}
