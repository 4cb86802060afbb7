//! The machine: its state, its inputs, its timers.
use super::fair::Reference;
use super::pool::Pool;
use super::scratch::Scratch;
use super::share::Share;
use super::table::{Devices, Slab, Transfers};
use super::timers::{TimerId, Timers};
use super::transfer::{Key, State};
use super::{
    Config, ConfigError, DeviceId, Input, LinkId, Output, PathId, Refusal, SourceId, Subject,
    TransferId,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Decides who may send. See the [module](super) for the contract.
#[derive(Debug)]
pub struct Controller {
    pub(super) config: Config,
    pub(super) now_ns: u64,
    pub(super) links: Vec<Link>,
    pub(super) devices: Devices,
    pub(super) sources: BTreeMap<SourceId, Source>,
    pub(super) transfers: Transfers,
    /// For each path, the first transfer of every device that wants something.
    pub(super) queues: Vec<BTreeSet<(Key, TransferId)>>,
    /// For each path, the first transfer that found it full when all was planned last.
    pub(super) full_from: Vec<Option<Key>>,
    pub(super) granted: BTreeSet<TransferId>,
    pub(super) holds: Slab<Hold>,
    pub(super) timers: Timers<Timer>,
    pub(super) outputs: VecDeque<Output>,
    /// Counts requests, holds and rounds of planning.
    pub(super) count: u64,
    /// All is to be planned anew.
    pub(super) stale: bool,
    /// Windows are what a plan of all would make them, but for what became free since.
    pub(super) exact: bool,
    /// Paths on which something became free.
    pub(super) freed: Vec<PathId>,
    /// Every path is one link.
    pub(super) single: bool,
    /// For each link, the paths that have it.
    pub(super) users: Vec<Vec<PathId>>,
    pub(super) scratch: Scratch,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) pool: Pool,
    pub(super) guard_ns: u64,
    /// Reserved for a lease after a restart.
    pub(super) safe_bps: u64,
    pub(super) small_bps: u64,
    pub(super) periodic_bps: u64,
    /// What devices would get if all that have data sent at once.
    pub(super) reference: Reference,
    /// Who has less than its sender can reach, of those that have something.
    pub(super) partial: Option<TransferId>,
    /// By class: its share of the link.
    pub(super) shares: Vec<Share>,
}

#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) devices: BTreeSet<DeviceId>,
    pub(super) periodic: BTreeSet<DeviceId>,
    pub(super) renewal: Option<TimerId>,
}

/// Capacity that somebody may use until a time, and then no more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) timer: Option<TimerId>,
    pub(super) device: DeviceId,
    pub(super) path: PathId,
    /// Ends when the source says that it obeys this revision.
    pub(super) revision: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A window, a deadline.
    Transfer(TransferId),
    /// Capacity comes back soon: time to grant ahead.
    Soon(PathId),
    /// Capacity is back.
    HoldOver(u64),
    Periodic(SourceId),
    /// The lease after a restart is over.
    Recovered,
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
        let link = |link: &super::LinkConfig| Link {
            pool: Pool::new(link.capacity_bps),
            guard_ns: link.guard_ns,
            safe_bps: if recovering { link.safe_bps } else { 0 },
            small_bps: 0,
            periodic_bps: 0,
            reference: Reference::default(),
            partial: None,
            shares: vec![Share::default(); classes],
        };
        let mut controller = Self {
            now_ns,
            links: config.links.iter().map(link).collect(),
            devices: Devices::default(),
            sources: BTreeMap::new(),
            transfers: Transfers::new(),
            queues: vec![BTreeSet::new(); config.paths.len()],
            full_from: vec![None; config.paths.len()],
            granted: BTreeSet::new(),
            holds: Slab::new(),
            timers: Timers::new(),
            outputs: VecDeque::new(),
            count: 0,
            stale: false,
            exact: false,
            freed: Vec::new(),
            single: config.paths.iter().all(|path| path.len() == 1),
            users: users(&config),
            scratch: Scratch::default(),
            config,
        };
        controller.links.iter_mut().for_each(Link::reserve);
        if recovering {
            let over_ns = now_ns.saturating_add(controller.config.lease_ns);
            controller.timers.set(over_ns, Timer::Recovered);
        }
        Ok(controller)
    }

    /// Takes an input. Times before the last one count as the last one.
    pub fn handle(&mut self, now_ns: u64, input: Input) {
        self.now_ns = self.now_ns.max(now_ns);
        self.fire();
        match input {
            Input::Register { device, spec } => self.register(device, spec),
            Input::Request { transfer, bytes, age_ns } => self.request(transfer, bytes, age_ns),
            Input::Progress { transfer, left_bytes, revision } => {
                self.progress(transfer, left_bytes, revision);
            }
            Input::Paused { transfer, left_bytes, revision } => {
                self.paused(transfer, left_bytes, revision);
            }
            Input::Done { transfer } => self.end(transfer, self.config.rules.gap_ns),
            Input::Cancel { transfer } => self.end(transfer, 0),
            Input::Adopt { transfer, left_bytes, age_ns, rate_bps, until_ns } => {
                self.adopt(transfer, (left_bytes, age_ns), rate_bps, until_ns);
            }
            Input::Capacity { link, capacity_bps } => self.set_capacity(link, capacity_bps),
            Input::Periodic { device, bytes, period_ns } => {
                self.set_periodic(device, bytes, period_ns);
            }
            Input::Renew { source } => self.renew(source),
            Input::Leave { source } => self.leave(source),
            Input::Timeout => {}
        }
        self.settle();
    }

    /// Returns what is to be done next; [`Output::Timeout`] when there is nothing more.
    pub fn poll(&mut self) -> Output {
        self.outputs.pop_front().unwrap_or_else(|| Output::Timeout(self.timers.next_ns()))
    }

    /// Returns what is free on a path for a newcomer, now: bits a second.
    #[must_use]
    pub fn headroom_bps(&self, path: PathId) -> Option<u64> {
        let links = self.config.paths.get(usize::from(path.0))?;
        links.iter().map(|link| self.link(*link).pool.free_bps()).min()
    }

    /// Returns the rates of all windows that somebody may use now, on a link: bits a second.
    #[must_use]
    pub fn load_bps(&self, link: LinkId) -> Option<u64> {
        self.links.get(usize::from(link.0)).map(|link| link.pool.load_bps())
    }

    /// Returns how many transfers wait or run.
    #[must_use]
    pub fn transfers(&self) -> usize {
        self.transfers.len()
    }

    pub(super) fn link(&self, link: LinkId) -> &Link {
        &self.links[usize::from(link.0)]
    }

    pub(super) fn next_count(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    pub(super) fn refuse(&mut self, subject: Subject, reason: Refusal) {
        self.outputs.push_back(Output::Refused { subject, reason });
    }

    fn fire(&mut self) {
        while let Some(timer) = self.timers.pop(self.now_ns) {
            match timer {
                Timer::Transfer(transfer) => self.transfer_due(transfer),
                Timer::Soon(path) => self.note_free(path),
                Timer::HoldOver(number) => {
                    if let Some(hold) = self.holds.get_mut(number) {
                        hold.timer = None;
                    }
                    self.end_hold(number);
                }
                Timer::Periodic(source) => self.periodic_due(source),
                Timer::Recovered => {
                    self.links.iter_mut().for_each(|link| link.safe_bps = 0);
                    self.links.iter_mut().for_each(Link::reserve);
                    self.stale = true;
                }
            }
        }
    }

    fn set_capacity(&mut self, link: LinkId, capacity_bps: u64) {
        let Some(known) = self.links.get_mut(usize::from(link.0)) else {
            return self.refuse(Subject::Link(link), Refusal::UnknownLink);
        };
        known.pool.capacity_bps = capacity_bps;
        self.stale = true;
    }

    /// Puts a transfer where it belongs in the queues, or takes it out.
    pub(super) fn requeue(&mut self, id: TransferId) {
        let rules = &self.config.rules;
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        let pausing = rules.pausing != super::Pausing::Never;
        let wants = match transfer.state {
            State::Waiting => true,
            State::Granted => pausing,
            State::Ending | State::Pausing | State::Silent => false,
        };
        let keys = (transfer.device_key(rules.order, rules.overtaking), transfer.key(rules.order));
        let before = std::mem::replace(&mut transfer.queued, wants.then_some(keys));
        let Some(device) = self.devices.get_mut(&id.device) else { return };
        if let Some((key, _)) = before
            && let Ok(at) = device.queue.binary_search(&(key, id))
        {
            device.queue.remove(at);
        }
        if wants && let Err(at) = device.queue.binary_search(&(keys.0, id)) {
            device.queue.insert(at, (keys.0, id));
        }
        let head = device.queue.front().map(|(_, head)| *head);
        let head = head.and_then(|head| Some((self.transfers.get(&head)?.queued?.1, head)));
        let queue = &mut self.queues[usize::from(device.spec.path.0)];
        let before = std::mem::replace(&mut device.head, head);
        if before != head {
            if let Some(before) = before {
                queue.remove(&before);
            }
            queue.extend(head);
        }
        let path = usize::from(device.spec.path.0);
        if let Some((key, other)) = head.filter(|other| before != head && other.1 != id)
            && self.transfers.get(&other).is_some_and(|one| one.state == State::Waiting)
        {
            self.note_head(path, key);
        }
    }
}

fn users(config: &Config) -> Vec<Vec<PathId>> {
    let mut users = vec![Vec::new(); config.links.len()];
    for (path, links) in (0..).zip(&config.paths) {
        links.iter().for_each(|link| users[usize::from(link.0)].push(PathId(path)));
    }
    users
}

impl Link {
    pub(super) fn reserve(&mut self) {
        self.pool.reserved_bps = self.safe_bps + self.small_bps + self.periodic_bps;
    }
}
