//! The machine: its state, its inputs, its timers.
use super::device::Devices;
use super::fair::Reference;
use super::hold::Holds;
use super::level::Level;
use super::part::{self, Part, Path};
use super::pool::Pool;
use super::queue::Queues;
use super::scratch::Scratch;
use super::share::Share;
use super::table::Transfers;
use super::timers::{Ranked, TimerId, Timers};
use super::working::Working;
use super::{
    Config, ConfigError, DeviceId, Input, LinkId, NONE, Output, PathId, Refusal, SourceId, Subject,
    TransferId,
};
use std::collections::{BTreeMap, VecDeque};

/// Decides who may send. See the [module](super) for the contract.
#[derive(Debug)]
pub struct Controller {
    pub(super) config: Config,
    pub(super) now_ns: u64,
    pub(super) links: Vec<Link>,
    pub(super) paths: Vec<Path>,
    pub(super) parts: Vec<Part>,
    /// Parts in which something changed.
    pub(super) changed: Vec<usize>,
    pub(super) devices: Devices,
    pub(super) sources: BTreeMap<SourceId, Source>,
    pub(super) transfers: Transfers,
    /// For each path, the first transfer of every device that wants something.
    pub(super) queues: Queues,
    pub(super) holds: Holds,
    pub(super) timers: Timers<Timer>,
    pub(super) outputs: VecDeque<Output>,
    /// Counts requests.
    pub(super) arrivals: u64,
    /// Counts rounds of planning.
    pub(super) rounds: u32,
    pub(super) scratch: Scratch,
    /// Periodic devices whose rates are taken and not told yet; from when they are free, if that is known.
    pub(super) starting: Vec<(DeviceId, Option<u64>)>,
    /// Some link has less for rates than is taken.
    pub(super) is_over: bool,
    /// Nothing is granted any more: another one is to lead.
    pub(super) gives_up: bool,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) pool: Pool,
    pub(super) part: usize,
    /// Reserved for a lease after a restart.
    pub(super) safe_bps: u64,
    pub(super) small_bps: u64,
    pub(super) periodic_bps: u64,
    /// What devices would get if all that have data sent at once.
    pub(super) reference: Reference,
    /// What all that want something would have been granted.
    pub(super) level: Level,
    /// Who has less than its sender can reach, of those that have something.
    pub(super) partial: Option<(u32, TransferId)>,
    /// By class: its share of the link.
    pub(super) shares: Vec<Share>,
    pub(super) working: Working,
}

#[derive(Debug)]
pub(super) struct Source {
    /// The first in the ring of its devices.
    pub(super) first: u32,
    pub(super) renewal: Option<TimerId>,
    /// Devices that were told a rate, and the sum of these.
    pub(super) rates: (u32, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// A window, a deadline.
    Transfer(u32, DeviceId),
    /// Capacity comes back soon: time to grant ahead.
    Soon(PathId),
    /// Capacity is back.
    HoldOver(u32),
    Periodic(SourceId),
    /// Some rate may be told.
    Start,
    /// The lease after a restart is over.
    Recovered,
    /// A link may have more again than losses left it.
    Climb(LinkId),
}

impl Ranked for Timer {
    fn rank(&self) -> u32 {
        match self {
            Self::Transfer(_, device) => device.0.min(NONE - 6),
            Self::Climb(_) => NONE - 5,
            Self::Start => NONE - 4,
            Self::Soon(_) => NONE - 3,
            Self::HoldOver(_) => NONE - 2,
            Self::Periodic(_) => NONE - 1,
            Self::Recovered => NONE,
        }
    }
}

impl Default for Source {
    fn default() -> Self {
        Self { first: NONE, renewal: None, rates: (0, 0) }
    }
}

impl Controller {
    /// Makes a controller of idle links.
    ///
    /// # Errors
    /// [`ConfigError`], see [`Config::check`].
    pub fn new(now_ns: u64, config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let classes = config.classes.len();
        let recovering = config.recovering;
        let (parts, paths, part_of) = part::divide(&config);
        let link = |(link, part): (&super::LinkConfig, usize)| Link {
            pool: Pool::new(link.capacity_bps),
            part,
            safe_bps: 0,
            small_bps: 0,
            periodic_bps: 0,
            reference: Reference::default(),
            level: Level::default(),
            partial: None,
            shares: vec![Share::default(); classes],
            working: Working::new(link.capacity_bps, now_ns),
        };
        let mut controller = Self {
            now_ns,
            links: config.links.iter().zip(part_of).map(link).collect(),
            changed: Vec::with_capacity(parts.len()),
            queues: Queues::new(paths.len()),
            paths,
            parts,
            devices: Devices::default(),
            sources: BTreeMap::new(),
            transfers: Transfers::new(),
            holds: Holds::new(),
            timers: Timers::new(),
            outputs: VecDeque::new(),
            arrivals: 0,
            rounds: 0,
            scratch: Scratch::default(),
            starting: Vec::new(),
            is_over: false,
            gives_up: false,
            config,
        };
        if recovering {
            controller.recover();
        }
        Ok(controller)
    }

    /// Keeps the safe rates free for a lease.
    fn recover(&mut self) {
        for (link, config) in self.links.iter_mut().zip(&self.config.links) {
            link.safe_bps = config.safe_bps;
            link.reserve();
        }
        let over_ns = self.now_ns.saturating_add(self.config.lease_ns);
        self.timers.set(over_ns, Timer::Recovered);
    }

    /// Takes an input. Times before the last one count as the last one.
    pub fn handle(&mut self, now_ns: u64, input: Input) {
        self.now_ns = self.now_ns.max(now_ns);
        self.fire();
        match input {
            Input::Register { device, spec } => self.register(device, &spec),
            Input::Delay { source, delay_ns } => self.set_delay(source, delay_ns),
            Input::Request { transfer, bytes, age_ns } => {
                self.request(transfer, (bytes, age_ns), false);
            }
            Input::Finish { transfer, bytes, age_ns } => {
                self.request(transfer, (bytes, age_ns), true);
            }
            Input::Progress { transfer, left_bytes, revision } => {
                self.progress(transfer, left_bytes, revision);
            }
            Input::Begun { transfer, until_ns, revision } => {
                self.all_begun(transfer, until_ns, revision);
            }
            Input::Behind { transfer, revision } => self.behind(transfer, revision),
            Input::Paused { transfer, left_bytes, revision } => {
                self.paused(transfer, left_bytes, revision);
            }
            Input::Done { transfer } => self.end_known(transfer, self.config.rules.gap_ns),
            Input::Cancel { transfer } => self.end_known(transfer, 0),
            Input::Adopt { transfer, left_bytes, age_ns, rate_bps, until_ns, finish } => {
                self.adopt(transfer, (left_bytes, age_ns, finish), rate_bps, until_ns);
            }
            Input::Capacity { link, capacity_bps } => self.set_capacity(link, capacity_bps),
            Input::Classes(classes) => self.set_classes(classes),
            Input::Rules(rules) => self.set_rules(rules),
            Input::Delivered { source, path, acknowledged_bytes, resent_bytes } => {
                self.delivered(source, path, (acknowledged_bytes, resent_bytes));
            }
            Input::Periodic { device, bytes, period_ns, held } => {
                self.set_periodic(device, bytes, period_ns, held);
            }
            Input::Renew { source } => self.renew(source),
            Input::Recover => self.recover(),
            Input::GiveUp => self.give_up(),
            Input::Leave { source } => self.leave(source),
            Input::Timeout => {}
        }
        if !self.gives_up {
            self.settle();
            self.start_rates();
        }
    }

    /// Returns what is to be done next; [`Output::Timeout`] when there is nothing more.
    pub fn poll(&mut self) -> Output {
        self.outputs.pop_front().unwrap_or_else(|| Output::Timeout(self.timers.next_ns()))
    }

    /// Returns what is free on a path for a newcomer, now: bits a second.
    #[must_use]
    pub fn headroom_bps(&self, path: PathId) -> Option<u64> {
        let links = self.paths.get(usize::from(path.0))?.links.iter();
        links.map(|link| self.links[*link].pool.free_bps()).min()
    }

    /// Returns the rates of all windows on a link: bits a second. One that ends soon counts beside the one that begins
    /// then: see [`Controller::in_force_bps`].
    #[must_use]
    pub fn load_bps(&self, link: LinkId) -> Option<u64> {
        self.links.get(usize::from(link.0)).map(|link| link.pool.load_bps())
    }

    /// Returns the rates that periodic devices of a source have: how many, and their sum in bits a second.
    #[must_use]
    pub fn rates(&self, source: SourceId) -> (u32, u64) {
        self.sources.get(&source).map_or((0, 0), |known| known.rates)
    }

    /// Returns what is taken for periodic streams, of a link: bits a second.
    #[must_use]
    pub fn periodic_bps(&self, link: LinkId) -> Option<u64> {
        self.links.get(usize::from(link.0)).map(|link| link.periodic_bps)
    }

    /// Returns how many transfers wait or run.
    #[must_use]
    pub fn transfers(&self) -> usize {
        self.transfers.len()
    }

    /// Returns how long before the end of a window the next one is granted on the links of a device: early enough for any
    /// that waited there lately to begin then.
    pub(super) fn grants_ahead_ns(&self, device: DeviceId) -> u64 {
        let part = self.paths[usize::from(self.path_of(device).0)].part;
        self.config.ahead_ns.max(self.parts[part].delay.get().unwrap_or(0))
    }

    pub(super) fn refuse(&mut self, subject: Subject, reason: Refusal) {
        self.outputs.push_back(Output::Refused { subject, reason });
    }

    fn fire(&mut self) {
        while let Some(timer) = self.timers.pop(self.now_ns) {
            match timer {
                Timer::Transfer(at, _) => self.transfer_due(at),
                Timer::Soon(path) => self.note_free(path),
                Timer::HoldOver(hold) => {
                    self.holds[hold].timer = TimerId::NONE;
                    self.end_hold(hold);
                }
                Timer::Periodic(source) => self.periodic_due(source),
                Timer::Climb(link) => self.climb(link),
                // They are looked at after each input.
                Timer::Start => {}
                Timer::Recovered => {
                    self.links.iter_mut().for_each(|link| link.safe_bps = 0);
                    self.links.iter_mut().for_each(Link::reserve);
                    (0..self.parts.len()).for_each(|part| self.note_stale(part));
                }
            }
        }
    }

    fn set_classes(&mut self, classes: Vec<super::ClassConfig>) {
        if classes.len() == self.config.classes.len() {
            self.config.classes = classes;
            (0..self.parts.len()).for_each(|part| self.note_stale(part));
        }
    }

    /// Notes that something is free on a path.
    pub(super) fn note_free(&mut self, path: PathId) {
        let part = self.paths[usize::from(path.0)].part;
        self.parts[part].freed = true;
        self.note_change(part);
    }

    /// Notes that all is to be planned anew in a part.
    pub(super) fn note_stale(&mut self, part: usize) {
        self.parts[part].stale = true;
        self.note_change(part);
    }

    fn note_change(&mut self, part: usize) {
        if !std::mem::replace(&mut self.parts[part].listed, true) {
            self.changed.push(part);
        }
    }

    pub(super) fn path_of(&self, device: DeviceId) -> PathId {
        self.devices.known(device).path
    }
}

impl Link {
    /// Returns the rates of all that may send now.
    pub(super) const fn load_bps(&self) -> u64 {
        self.pool.load_bps().saturating_add(self.periodic_bps)
    }

    pub(super) fn reserve(&mut self) {
        self.pool.reserved_bps = self.safe_bps + self.small_bps + self.periodic_bps;
    }
}
