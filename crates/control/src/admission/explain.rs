//! What the first transfer of a device waits for, for people: looked up when somebody asks, never kept.
use super::controller::Controller;
use super::transfer::{State, Transfer, duration_ns};
use super::{ClassId, DeviceId, LinkId, NONE, Pausing, TransferId};
use std::collections::BTreeMap;

/// What a transfer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It waits to be granted a window.
    Waiting,
    /// It has a window, which has begun or will.
    Granted,
    /// It stops, or its window ran out: its source has not said yet how far it is.
    Stopping,
}

/// Transfers of a class that go first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// How many.
    pub transfers: u64,
    /// What is left of them: bytes.
    pub bytes: u64,
}

/// Why a device is where it is: of its transfer that is served first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The transfer.
    pub transfer: TransferId,
    /// What it does.
    pub doing: Doing,
    /// Its rate if it has a window: bits a second.
    pub rate_bps: u64,
    /// Since it was generated: nanoseconds.
    pub age_ns: u64,
    /// What is left of it: bytes.
    pub left_bytes: u64,
    /// The link of its path that has the least to give.
    pub link: LinkId,
    /// The rates of all windows in force on that link: bits a second.
    pub load_bps: u64,
    /// What that link carries: bits a second.
    pub capacity_bps: u64,
    /// What goes first on that link, by class.
    pub before: BTreeMap<ClassId, Before>,
    /// It counts as one of the next class: its own has had its share.
    pub is_lowered: bool,
    /// Its device has had its share: others of its class go first.
    pub is_surplus: bool,
    /// It cannot be in time, and goes behind all that can.
    pub is_demoted: bool,
    /// When it begins, if what goes first takes all of the link: nanoseconds from now.
    pub starts_in_ns: u64,
    /// What is left until its deadline when it will be there; negative when it comes too late: nanoseconds.
    pub spare_ns: i64,
}

impl Controller {
    /// Explains what a device waits for; `None` if nothing of it waits or runs. Looks at all transfers.
    #[must_use]
    pub fn explain(&self, device: DeviceId) -> Option<Explanation> {
        let at = self.foremost(device)?;
        let transfer = &self.transfers[at];
        let path = &self.paths[usize::from(self.path_of(device).0)];
        let link = *path.links.iter().min_by_key(|link| self.links[**link].pool.free_bps())?;
        let pool = &self.links[link].pool;
        let before = self.before(at, link);
        let bytes: u64 = before.values().map(|before| before.bytes).sum();
        let doing = match transfer.state {
            State::Waiting => Doing::Waiting,
            State::Granted => Doing::Granted,
            State::Ending | State::Pausing | State::Silent => Doing::Stopping,
        };
        let starts_in_ns = match doing {
            Doing::Granted => transfer.course.begins_ns().saturating_sub(self.now_ns),
            Doing::Waiting | Doing::Stopping => duration_ns(bytes, pool.usable_bps()),
        };
        let left_bytes = transfer.course.left_at(self.now_ns);
        let rate_bps =
            if transfer.rate_bps > 0 { transfer.rate_bps } else { self.best_bps(device) };
        let there_ns = self
            .now_ns
            .saturating_add(starts_in_ns)
            .saturating_add(duration_ns(left_bytes, rate_bps));
        let flags = transfer.flags;
        let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        Some(Explanation {
            transfer: transfer.id,
            doing,
            rate_bps: transfer.rate_bps,
            age_ns: self.now_ns.saturating_sub(transfer.born_ns),
            left_bytes,
            link: LinkId(u16::try_from(link).unwrap_or(u16::MAX)),
            load_bps: self.in_force_bps_on(link),
            capacity_bps: pool.capacity_bps,
            before,
            is_lowered: transfer.flags.lowered,
            is_surplus: flags.surplus || flags.late && !flags.told,
            is_demoted: flags.late && flags.told,
            starts_in_ns,
            spare_ns: signed(transfer.deadline_ns).saturating_sub(signed(there_ns)),
        })
    }

    /// Returns the rates of all that may be sent on a link now: bits a second. Windows that begin later are not among them.
    /// Looks at all transfers.
    #[must_use]
    pub fn in_force_bps(&self, link: LinkId) -> Option<u64> {
        let link = usize::from(link.0);
        (link < self.links.len()).then(|| self.in_force_bps_on(link))
    }

    fn in_force_bps_on(&self, link: usize) -> u64 {
        let rate_bps = |one: &Transfer| match one.state {
            State::Granted | State::Ending | State::Pausing => one.course.rate_at(self.now_ns),
            State::Waiting | State::Silent => 0,
        };
        self.transfers.iter().filter(|one| self.uses(one, link)).map(rate_bps).sum()
    }

    /// Returns whether a link is on the path of a transfer.
    fn uses(&self, one: &Transfer, link: usize) -> bool {
        let path = self.path_of(one.id.device);
        self.paths[usize::from(path.0)].links.contains(&link)
    }

    /// Returns the transfer of a device that is served first, or else the oldest.
    fn foremost(&self, id: DeviceId) -> Option<u32> {
        let device = self.devices.get(id)?;
        let mut at = if device.head == NONE { device.first } else { return Some(device.head) };
        while at != NONE && self.transfers[at].links.older != NONE {
            at = self.transfers[at].links.older;
        }
        (at != NONE).then_some(at)
    }

    /// Returns what goes before a transfer on a link.
    fn before(&self, at: u32, link: usize) -> BTreeMap<ClassId, Before> {
        let rules = &self.config.rules;
        let (own, key) = (self.transfers[at].id, self.transfers[at].place(rules.order));
        let goes_on = |one: &Transfer| match one.state {
            State::Granted => rules.pausing == Pausing::Never || one.place(rules.order) < key,
            State::Waiting => one.place(rules.order) < key,
            State::Ending | State::Pausing => true,
            State::Silent => false,
        };
        let mut before = BTreeMap::<ClassId, Before>::new();
        let others = self.transfers.iter().filter(|one| one.id != own);
        for one in others.filter(|one| goes_on(one) && self.uses(one, link)) {
            let Before { transfers, bytes } = before.entry(one.class).or_default();
            *transfers += 1;
            *bytes = bytes.saturating_add(one.course.left_at(self.now_ns));
        }
        before
    }
}
