//! Who leads, among controllers of the same links: whoever has a key in a store, for as long as its lease lasts.
//!
//! - In: what the store answers ([`Store`]; [`Etcd`] is the first), and the time.
//! - Out: how this process stands ([`Standing`]).
//! - Promises: no election of our own, and none where the store says nothing; a leader that cannot reach the store goes
//!   on or stops, as configured ([`Unreachable`]); whoever leads next has a higher term, which sources obey.
pub mod answer;
mod etcd;

pub use etcd::Etcd;
use etcd::Watcher;

use serde::{Deserialize, Serialize};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A standby looks this often, within the time of a lease.
const LOOKS: u32 = 20;
/// A leader renews this often, within the time of a lease.
const RENEWALS: u32 = 4;

/// What a leader does that cannot reach the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreachable {
    /// It goes on: nobody else can take over where the store is away from all.
    Hold,
    /// It stops when its lease is over: another one may have taken over.
    StepDown,
}

/// Where it is kept who leads, among controllers of the same links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// The servers of an etcd, such as `http://10.0.0.5:2379`.
    pub endpoints: Vec<String>,
    /// The key; controllers with the same key stand in for each other.
    pub key: String,
    /// So long after a leader has died another one leads, in about.
    pub lease: Duration,
    /// What a leader does that cannot reach the store.
    pub unreachable: Unreachable,
}

/// A controller that leads or wants to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Where its sources register.
    pub address: String,
    /// Its term.
    pub term: u32,
}

/// What a store knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Who leads.
    pub leader: Option<Candidate>,
    /// The term of the last leader.
    pub term: u32,
    /// How long what that one granted may still be used from now on, if it said so when it gave up.
    pub left: Option<Duration>,
}

/// What a store said to a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Campaign {
    /// The candidate leads.
    Won,
    /// Another one leads, or has led since the store was looked at.
    Led(Option<Candidate>),
}

/// A store does not do what it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{endpoint}: {what}")]
pub struct StoreError {
    /// Which server of the store.
    pub endpoint: String,
    /// What was wrong.
    pub what: String,
}

/// Keeps who leads. Each call may take a part of a lease.
pub trait Store: Send {
    /// Returns what it knows.
    ///
    /// # Errors
    /// [`StoreError`]: not known.
    fn look(&mut self) -> Result<Seen, StoreError>;

    /// Has ready what a campaign needs of the store, for the time of a lease from now on, so that the campaign itself is one
    /// question. One that was not prepared takes longer.
    ///
    /// # Errors
    /// [`StoreError`]: nothing is ready.
    fn prepare(&mut self) -> Result<(), StoreError>;

    /// Makes a candidate the leader if nobody is, nor has been since it was looked at, until its lease is over: the time of
    /// a lease after it was prepared, or asked for.
    ///
    /// # Errors
    /// [`StoreError`]: not known; it may lead all the same until the lease is over.
    fn campaign(&mut self, candidate: &Candidate) -> Result<Campaign, StoreError>;

    /// Renews the lease of the last campaign that was won; returns whether it was still there.
    ///
    /// # Errors
    /// [`StoreError`]: not known.
    fn renew(&mut self) -> Result<bool, StoreError>;

    /// Gives up leading, at once; `left` is how long what it granted may still be used, if it knows.
    fn resign(&mut self, left: Option<Duration>);
}

/// How a process stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Another one leads, or nobody yet.
    StandsBy {
        /// Who leads.
        leader: Option<Candidate>,
        /// Why that is not known.
        why_not: Option<String>,
    },
    /// It leads, in a term of at least this.
    Leads {
        /// The term.
        term: u32,
        /// How long what the leader before has granted may still be used, from when this one began to lead, where that
        /// one said so.
        left: Option<Duration>,
        /// Since when the store has not answered, and what it says; only with [`Unreachable::Hold`].
        alone: Option<(Instant, String)>,
    },
    /// It led and does not any more.
    Ended {
        /// Why.
        why: String,
    },
}

/// Decides, without a thread or a store.
struct Election {
    lease: Duration,
    unreachable: Unreachable,
    /// While it leads: when the lease is over, as far as is known.
    until: Option<Instant>,
    /// While it stands by: when a campaign was prepared.
    prepared: Option<Instant>,
    standing: Standing,
}

impl Election {
    fn new(lease: Duration, unreachable: Unreachable) -> Self {
        let standing = Standing::StandsBy { leader: None, why_not: None };
        Self { lease, unreachable, until: None, prepared: None, standing }
    }

    /// Asks the store what is to be asked now; `candidate` makes one of a term that is above another.
    fn step(
        &mut self,
        store: &mut dyn Store,
        now: impl Fn() -> Instant,
        candidate: impl Fn(u32) -> Candidate,
    ) {
        self.standing = match std::mem::replace(&mut self.standing, stands_by(None, None)) {
            Standing::StandsBy { .. } => self.stand_by(store, now, candidate),
            Standing::Leads { term, left, alone } => self.lead(store, now, (term, left), alone),
            ended @ Standing::Ended { .. } => ended,
        };
    }

    fn stand_by(
        &mut self,
        store: &mut dyn Store,
        now: impl Fn() -> Instant,
        candidate: impl Fn(u32) -> Candidate,
    ) -> Standing {
        let Seen { leader, term, left } = match store.look() {
            Ok(seen) => seen,
            Err(error) => return stands_by(None, Some(error.to_string())),
        };
        if leader.is_some() {
            self.prepare(store, now);
            return stands_by(leader, None);
        }
        let candidate = candidate(term);
        let asked = now();
        let prepared = self.prepared.take();
        match store.campaign(&candidate) {
            Ok(Campaign::Won) => {
                self.until = Some(prepared.unwrap_or(asked) + self.lease);
                // It was said before it was seen: the time that the campaign took has passed, too.
                let left = left.map(|left| left.saturating_sub(now() - asked));
                Standing::Leads { term: candidate.term, left, alone: None }
            }
            Ok(Campaign::Led(leader)) => stands_by(leader, None),
            Err(error) => stands_by(None, Some(error.to_string())),
        }
    }

    /// Prepares a campaign, as often as a leader renews: it may be needed at any time.
    fn prepare(&mut self, store: &mut dyn Store, now: impl Fn() -> Instant) {
        let asked = now();
        let is_recent = |prepared: Instant| asked - prepared < self.lease / RENEWALS;
        if !self.prepared.is_some_and(is_recent) {
            // The next look tells more of a store that is away.
            self.prepared = store.prepare().is_ok().then_some(asked);
        }
    }

    fn lead(
        &mut self,
        store: &mut dyn Store,
        now: impl Fn() -> Instant,
        (term, left): (u32, Option<Duration>),
        alone: Option<(Instant, String)>,
    ) -> Standing {
        let asked = now();
        match store.renew() {
            Ok(true) => {
                self.until = Some(asked + self.lease);
                Standing::Leads { term, left, alone: None }
            }
            Ok(false) => Standing::Ended {
                why: "its lease in the store is over: another may lead".to_owned(),
            },
            Err(error) => {
                let is_over = self.until.is_none_or(|until| until <= now());
                if is_over && self.unreachable == Unreachable::StepDown {
                    return Standing::Ended { why: format!("the store does not answer: {error}") };
                }
                let since = alone.map_or(asked, |(since, _)| since);
                Standing::Leads { term, left, alone: Some((since, error.to_string())) }
            }
        }
    }

    /// Returns how long to wait before the next step.
    fn pause(&self) -> Duration {
        match self.standing {
            Standing::StandsBy { .. } => self.lease / LOOKS,
            Standing::Leads { .. } => self.lease / RENEWALS,
            Standing::Ended { .. } => Duration::MAX,
        }
    }
}

fn stands_by(leader: Option<Candidate>, why_not: Option<String>) -> Standing {
    Standing::StandsBy { leader, why_not }
}

#[derive(Debug)]
struct Published {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    standing: Standing,
    /// It is to end.
    ends: bool,
    /// What it says when it ends: how long what it granted may still be used.
    left: Option<Duration>,
    /// The key has changed in the store.
    is_news: bool,
}

/// A process that wants to lead, or leads. Dropping it resigns.
#[derive(Debug)]
pub struct Leadership {
    shared: Arc<Published>,
    thread: Option<JoinHandle<()>>,
}

impl Leadership {
    /// Begins to stand by, for a controller whose sources register at `address`.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(settings: &Leader, address: String) -> std::io::Result<Self> {
        let mut store = Etcd::new(settings);
        let mut election = Election::new(settings.lease, settings.unreachable);
        let standing = election.standing.clone();
        let state = State { standing, ends: false, left: None, is_news: false };
        let shared = Arc::new(Published { state: Mutex::new(state), changed: Condvar::new() });
        let (watcher, watched, pause) =
            (store.watcher(), Arc::downgrade(&shared), settings.lease / LOOKS);
        // It is not joined: it waits for the store, which may take long, and holds nothing.
        std::thread::Builder::new()
            .name("catchment-watch".to_owned())
            .spawn(move || watch(watcher, &watched, pause))?;
        let seen = shared.clone();
        let run = move || {
            let candidate = |above: u32| Candidate {
                address: address.clone(),
                term: crate::term::next(std::time::SystemTime::now())
                    .0
                    .max(above.saturating_add(1)),
            };
            loop {
                election.step(&mut store, Instant::now, candidate);
                let ended = matches!(election.standing, Standing::Ended { .. });
                if let Some(left) = seen.publish(&election.standing, election.pause()) {
                    store.resign(left);
                    return;
                }
                if ended {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("catchment-lead".to_owned()).spawn(run)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Returns how it stands.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.shared.state().standing.clone()
    }

    /// Waits until it stands otherwise than `before`, at most so long; returns how it stands then.
    #[must_use]
    pub fn wait(&self, before: &Standing, most: Duration) -> Standing {
        let same = |state: &mut State| state.standing == *before;
        let waited = self.shared.changed.wait_timeout_while(self.shared.state(), most, same);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.standing.clone()
    }

    /// Gives up leading, and says how long what it granted may still be used, if it knows.
    pub fn resign(self, left: Option<Duration>) {
        self.shared.state().left = left;
    }
}

impl Published {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells how the process stands, and waits until the store is to be asked again; returns what is left of its grants
    /// where it is to end.
    fn publish(&self, standing: &Standing, pause: Duration) -> Option<Option<Duration>> {
        let mut state = self.state();
        state.standing = standing.clone();
        self.changed.notify_all();
        if !matches!(standing, Standing::Ended { .. }) {
            let waits = |state: &mut State| !state.ends && !state.is_news;
            let waited = self.changed.wait_timeout_while(state, pause, waits);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_news = false;
        state.ends.then_some(state.left)
    }
}

/// Has the store looked at as soon as the key changes there. Whatever it misses is seen by the next look.
fn watch(mut watcher: Watcher, shared: &Weak<Published>, pause: Duration) {
    while shared.strong_count() > 0 {
        if watcher.wait() {
            let Some(shared) = shared.upgrade() else { return };
            shared.state().is_news = true;
            shared.changed.notify_all();
        } else {
            // The store is away.
            std::thread::sleep(pause);
        }
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        self.shared.state().ends = true;
        self.shared.changed.notify_all();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that leads panicked");
        }
    }
}

#[cfg(test)]
mod tests;
