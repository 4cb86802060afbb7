//! The connections of peers to a context, and how many of them one peer may have.
//!
//! A peer is a process, by the number that the kernel gives (`SO_PEERCRED`). Processes of other PID
//! namespaces have none here, so all of them together count as one peer, with a larger share.
use crate::proto::Refusal;
use crate::socket;
use catchment_verbs::Gid;
use rustix::process::{Resource, getrlimit};
use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long a new connection may take to identify itself.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);
/// Most connections that have not identified themselves, of all peers and of one.
const MAX_SILENT: usize = 256;
const MAX_SILENT_OF_ONE: usize = 64;
/// Most connections of one process, however many descriptors there are.
const MAX_OF_ONE: u64 = 1024;
/// The number of processes that have none in our PID namespace.
const FOREIGN: u32 = 0;

/// A peer that connected to us.
pub(crate) struct Asker {
    pub(crate) fd: OwnedFd,
    /// Its identity, once known.
    pub(crate) gid: Option<Gid>,
    process: u32,
    since: Instant,
}

/// Most connections that said who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    all: u64,
    of_one: u64,
    of_foreign: u64,
}

impl Limits {
    /// A session takes four descriptors, one of which is its connection: more connections than a
    /// quarter of all descriptors can be of no use.
    fn of(descriptors: u64) -> Self {
        let all = descriptors / 4;
        Self { all, of_one: (all / 4).min(MAX_OF_ONE), of_foreign: all / 2 }
    }

    fn now() -> Self {
        Self::of(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
    }
}

/// All connections, by number.
pub(crate) struct Askers {
    all: HashMap<u64, Asker>,
    /// Those that have not identified themselves. Numbers grow, so the oldest is first.
    silent: BTreeSet<u64>,
    /// How many of each process have.
    known: HashMap<u32, u64>,
    next: u64,
}

impl Askers {
    /// Creates an empty table whose numbers begin with `first`.
    pub(crate) fn new(first: u64) -> Self {
        Self { all: HashMap::new(), silent: BTreeSet::new(), known: HashMap::new(), next: first }
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Asker> {
        self.all.get(&number)
    }

    /// Returns the number that the next connection gets.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Returns which connection must go before one of this process may come.
    pub(crate) fn victim(&self, process: u32) -> Option<u64> {
        if self.silent_of(process).count() >= MAX_SILENT_OF_ONE {
            return self.silent_of(process).next();
        }
        (self.silent.len() >= MAX_SILENT).then(|| self.oldest_silent()).flatten()
    }

    /// Returns the oldest silent connection of the process that has the most.
    pub(crate) fn oldest_silent(&self) -> Option<u64> {
        let process = |number: &u64| self.all.get(number).map_or(FOREIGN, |asker| asker.process);
        let most = self.silent.iter().map(process).max_by_key(|one| self.silent_of(*one).count());
        self.silent_of(most?).next()
    }

    fn silent_of(&self, process: u32) -> impl Iterator<Item = u64> {
        let silent = self.silent.iter().copied();
        silent.filter(move |number| self.all.get(number).is_some_and(|a| a.process == process))
    }

    pub(crate) fn insert(&mut self, fd: OwnedFd, process: u32) {
        let asker = Asker { fd, gid: None, process, since: Instant::now() };
        self.all.insert(self.next, asker);
        self.silent.insert(self.next);
        self.next += 1;
    }

    /// Notes who a peer is, if it may have one more connection.
    pub(crate) fn identify(&mut self, number: u64, gid: Gid) -> Result<(), Refusal> {
        self.identify_within(number, gid, Limits::now())
    }

    fn identify_within(&mut self, number: u64, gid: Gid, limits: Limits) -> Result<(), Refusal> {
        let known = (self.all.len() - self.silent.len()) as u64;
        let Some(asker) = self.all.get_mut(&number) else { return Ok(()) };
        let of_one = self.known.get(&asker.process).copied().unwrap_or_default();
        let most = if asker.process == FOREIGN { limits.of_foreign } else { limits.of_one };
        if of_one >= most || known >= limits.all {
            return Err(Refusal::TooMany);
        }
        self.known.insert(asker.process, of_one + 1);
        asker.gid = Some(gid);
        self.silent.remove(&number);
        Ok(())
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<Asker> {
        let asker = self.all.remove(&number)?;
        self.silent.remove(&number);
        if asker.gid.is_some()
            && let Some(of_one) = self.known.get_mut(&asker.process)
        {
            *of_one -= 1;
            if *of_one == 0 {
                self.known.remove(&asker.process);
            }
        }
        Some(asker)
    }

    /// Returns how long until a silent connection is late.
    pub(crate) fn until_late(&self) -> Option<Duration> {
        let oldest = self.all.get(self.silent.first()?)?;
        Some(HELLO_TIMEOUT.saturating_sub(oldest.since.elapsed()))
    }

    /// Returns a connection that did not identify itself in time.
    pub(crate) fn late(&self) -> Option<u64> {
        let oldest = *self.silent.first()?;
        self.until_late().is_some_and(|left| left.is_zero()).then_some(oldest)
    }
}

/// Reports refusals: the first at once, and then how many there were, now and then.
#[derive(Default)]
pub(crate) struct Refused {
    count: u64,
    told: Option<Instant>,
}

impl Refused {
    const PAUSE: Duration = Duration::from_secs(10);

    pub(crate) fn add(&mut self, reason: &str) {
        self.count += 1;
        if self.told.is_some_and(|told| told.elapsed() < Self::PAUSE) {
            return;
        }
        self.told = Some(Instant::now());
        tracing::warn!(reason, refused = self.count, "a peer's connection is refused");
        self.count = 0;
    }
}

/// Tells a peer why its connection is closed, and closes it.
pub(crate) fn refuse(fd: &OwnedFd, reason: Refusal) {
    socket::drain(fd);
    socket::send_refusal(fd, reason);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn askers(processes: &[u32]) -> Askers {
        let mut askers = Askers::new(10);
        for process in processes {
            askers.insert(catchment_verbs::event::event_fd().unwrap(), *process);
        }
        askers
    }

    fn identify(askers: &mut Askers, number: u64) -> Result<(), Refusal> {
        let limits = Limits { all: 5, of_one: 2, of_foreign: 3 };
        askers.identify_within(number, Gid([1; 16]), limits)
    }

    #[test]
    fn each_process_has_its_share_and_gets_it_back() {
        let mut askers = askers(&[7, 7, 7, FOREIGN, FOREIGN, FOREIGN, FOREIGN, 8]);
        let seen: Vec<_> = (10..18).map(|number| identify(&mut askers, number).is_ok()).collect();
        assert_eq!(seen, [true, true, false, true, true, true, false, false], "5 of all");
        askers.remove(10);
        assert_eq!(identify(&mut askers, 12), Ok(()));
        askers.remove(12);
        assert_eq!(identify(&mut askers, 17), Ok(()), "of all, one is free again");
    }

    #[test]
    fn who_says_nothing_displaces_its_own_first() {
        let many = askers(&[[8].as_slice(), &[7; MAX_SILENT_OF_ONE]].concat());
        assert_eq!(many.victim(7), Some(11));
        assert_eq!(many.victim(8), None);
        assert_eq!(many.oldest_silent(), Some(11), "of the process that has the most");
        let processes: Vec<u32> = (0..MAX_SILENT as u32).map(|n| 1 + n / 60).collect();
        assert_eq!(askers(&processes).victim(99), Some(10 + 180));
    }

    #[test]
    fn limits_follow_the_descriptors_that_there_are() {
        assert_eq!(Limits::of(1024), Limits { all: 256, of_one: 64, of_foreign: 128 });
        assert_eq!(Limits::of(1 << 20).of_one, MAX_OF_ONE);
    }
}
