//! An application, as the engine has it.
use super::Newcomer;
use super::demand::Demand;
use super::justitia::Seen;
use crate::daemon::address_handles::AddressHandles;
use crate::daemon::connection::Landed;
use crate::daemon::share::Regions;
use crate::entry::{Event, Notice};
use crate::peer::Change;
use crate::pool::AgentEnd;
use crate::protocol::{Account, Hints};
use crate::scheduler::{ApplicationId, ConnectionId};
use catchment_verbs::{Cq, WcStatus};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// The part of its share that an application keeps which lets others take it.
const KEPT_PART: f64 = 0.01;
/// The least weight that agents tell each other.
const LEAST_WEIGHT: f64 = 1e-9;

/// What an application wants of its rate, and the weight that its policy gives it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wants {
    pub(super) most_weight: f64,
    pub(super) hints: Hints,
}

impl Wants {
    /// Returns the weight that counts. Shares go with its root of degree `alpha`.
    fn weight(&self, alpha: f64) -> f64 {
        let weight = self.hints.weight.map_or(self.most_weight, |it| it.min(self.most_weight));
        if self.hints.preemptible {
            return (weight * KEPT_PART.powf(alpha)).max(LEAST_WEIGHT);
        }
        weight
    }
}

/// See the module.
pub(super) struct Application {
    pub(super) id: ApplicationId,
    pub(super) end: AgentEnd,
    pub(super) cq: Arc<dyn Cq>,
    socket: OwnedFd,
    pub(super) account: Account,
    /// By the application's number of the queue pair.
    pub(super) connections: Vec<Option<ConnectionId>>,
    /// Chunks and receives of all its connections in the device's hands.
    pub(super) outstanding: usize,
    pub(super) demand: Demand,
    pub(super) wants: Wants,
    /// Requests that waited when they were counted last.
    waiting: u64,
    pub(super) seen: Seen,
    /// As shared queue pairs know them.
    pub(super) regions: Regions,
    pub(super) ahs: AddressHandles,
    /// It got something since it was last woken.
    gave: bool,
}

impl Application {
    pub(super) fn new(newcomer: Newcomer, id: ApplicationId, demand: Demand) -> Self {
        let Newcomer { end, cq, socket, account, .. } = newcomer;
        let wants = Wants { most_weight: account.weight, hints: Hints::default() };
        let (connections, regions) = (Vec::new(), Regions::new());
        Self {
            id,
            end,
            cq,
            socket,
            account,
            connections,
            outstanding: 0,
            demand,
            wants,
            waiting: 0,
            seen: Seen::default(),
            regions,
            ahs: AddressHandles::default(),
            gave: false,
        }
    }

    /// Bounds what is told of its demand by what it says that it will ask for, and by what it may have.
    pub(super) fn bound_demand(&mut self) {
        let bounds = [self.wants.hints.demand_bytes_per_s, self.account.most_bytes_per_s];
        self.demand.set_most(bounds.into_iter().flatten().reduce(f64::min));
    }

    /// Returns what to tell other agents where its weight is another one now.
    pub(super) fn reweigh(&mut self, key: u64, alpha: f64) -> Option<Change> {
        let weight = self.wants.weight(alpha);
        let is_other = weight.total_cmp(&self.account.weight).is_ne();
        self.account.weight = weight;
        is_other.then_some(Change::Weight(key, weight))
    }

    /// Returns its connection of this number.
    #[inline]
    pub(super) fn connection(&self, queue_pair: u32) -> Option<ConnectionId> {
        *self.connections.get(queue_pair as usize)?
    }

    /// Notes a connection; returns its number.
    pub(super) fn add(&mut self, connection: ConnectionId) -> u32 {
        let free = self.connections.iter().position(Option::is_none);
        let at = free.unwrap_or(self.connections.len());
        if at == self.connections.len() {
            self.connections.push(None);
        }
        self.connections[at] = Some(connection);
        self.account.queue_pairs += 1;
        at as u32
    }

    /// Forgets the connection of this number.
    pub(super) fn remove(&mut self, queue_pair: u32) -> Option<ConnectionId> {
        let gone = self.connections.get_mut(queue_pair as usize)?.take()?;
        self.account.queue_pairs -= 1;
        Some(gone)
    }

    /// Ends the connection to an application at fault. Its thread notices, and cleans up.
    pub(super) fn hang_up(&mut self, reason: &str) {
        let (name, process) = (&self.account.application, self.account.process);
        tracing::warn!(application = %name, process, reason, "application disconnected");
        self.account.refused += 1;
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    pub(super) fn give(&mut self, queue_pair: u32, event: Event) {
        self.gave = true;
        if let Err(error) = self.end.give(&Notice { queue_pair, event }) {
            self.hang_up(&error.to_string());
        }
    }

    /// Wakes it if it got something and sleeps.
    #[inline]
    pub(super) fn wake(&mut self) {
        if std::mem::take(&mut self.gave) {
            self.end.wake();
        }
    }

    #[cold]
    fn count_failure(&mut self, status: WcStatus) {
        self.account.failed += 1;
        *self.account.failed_by.entry(status.name().to_owned()).or_default() += 1;
    }

    /// Notes how many requests wait, so long after the last time.
    pub(super) fn count_waiting(&mut self, waiting: u64, passed: Duration) {
        let before = std::mem::replace(&mut self.waiting, waiting);
        // Half of both, as it was somewhere between.
        let both = u128::from(before + waiting) * passed.as_nanos() / 2;
        self.account.waited_ns += u64::try_from(both).unwrap_or(u64::MAX);
    }

    /// Notes what became of a chunk.
    #[inline]
    pub(super) fn land(&mut self, queue_pair: u32, landed: &Landed) {
        self.account.done += u64::from(landed.ended);
        if let Some(event) = landed.event {
            if let Event::Sent(done) = event
                && let Err((status, _)) = done.result
            {
                self.count_failure(status);
            }
            self.give(queue_pair, event);
        }
    }
}
