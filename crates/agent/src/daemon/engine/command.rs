//! What the threads of the applications ask of the engine.
use super::application::Application;
use super::steps::clock_ns;
use super::{Command, Engine, Newcomer, Remains};
use crate::daemon::connection::{Connection, NewQp};
use crate::daemon::own::OwnQp;
use crate::daemon::share::{Shared, Stage};
use crate::peer::{Change, Sharing};
use crate::policy::{self, Policy, Who};
use crate::pool::SLOTS;
use crate::protocol::{Account, Hints};
use crate::scheduler::ConnectionId;
use catchment_verbs::{Endpoint, QpTransition};
use rustix::time::ClockId;
use std::sync::mpsc::Sender;

impl Engine {
    pub(super) fn command(&mut self, command: Command) {
        // Who does not wait for an answer has died.
        match command {
            Command::Join(newcomer) => self.join(*newcomer),
            Command::Leave(key, reply) => {
                if let Some(remains) = self.leave(key) {
                    let _ = reply.send(remains);
                }
                // It is dropped when nothing of it is on its way any more.
                self.shared_qps.wait(None, move || drop(reply));
            }
            Command::StopSharing(key, queue_pair, reply) => {
                self.stop_sharing(key, queue_pair, reply);
            }
            Command::AddQp(key, new, most, places, reply) => {
                let _ = reply.send(self.add_qp(key, new, most, places));
            }
            Command::Lend(key, queue_pair, reply) => {
                self.lend(key, queue_pair, reply);
            }
            Command::Return(key, queue_pair, qp, transition) => {
                self.take_back(key, queue_pair, qp, transition);
                self.lend_again(key, queue_pair);
            }
            Command::AddRegion(key, lkey, region, reply) => {
                self.add_region(key, lkey, region);
                let _ = reply.send(());
            }
            Command::RemoveRegion(key, lkey, reply) => self.remove_region(key, lkey, &reply),
            Command::AddAh(key, pd, ah, reply) => {
                if let Some(owner) = self.owner(key) {
                    owner.ahs.add(pd, ah);
                }
                let _ = reply.send(());
            }
            Command::RemoveAh(key, handle, reply) => {
                self.remove_ah(key, handle);
                let _ = reply.send(());
            }
            Command::BreakSharedQps => self.shared_qps.break_all(),
            Command::SharedQp(host, number, qp, inbox) => {
                self.add_shared_qp((host, number), qp, inbox);
            }
            Command::RemoveQp(key, queue_pair, reply) => {
                let _ = reply.send(self.remove_qp(key, queue_pair));
            }
            Command::Memory(key, (bytes, chunks), registrations) => {
                if let Some(application) = self.owner(key) {
                    application.account.memory_bytes = bytes;
                    application.account.memory_chunks = chunks;
                    application.account.registrations += registrations;
                }
            }
            Command::Hint(key, hints) => self.hint(key, hints),
            Command::Policy(policy) => self.go_over_to(&policy),
            Command::Verdict(verdict) => self.obey(verdict),
            Command::Status(reply) => {
                let _ = reply.send((self.accounts(), self.steps.processor(), self.decided_ns));
            }
            Command::Stop => self.stopped = true,
        }
    }

    pub(super) fn owner(&mut self, key: u64) -> Option<&mut Application> {
        self.keys.get(&key).and_then(|at| self.applications[*at].as_mut())
    }

    /// Takes all requests that an application has given so far.
    pub(super) fn take_all(&mut self, key: u64) {
        if let Some(owner) = self.keys.get(&key).copied() {
            self.take(owner, SLOTS as usize);
        }
    }

    /// Forgets an address handle; datagrams that were given before have it until they are gone.
    fn remove_ah(&mut self, key: u64, handle: u32) {
        self.take_all(key);
        if let Some(owner) = self.owner(key) {
            owner.ahs.remove(handle);
        }
    }

    fn join(&mut self, newcomer: Newcomer) {
        let id = self.scheduler.add_application();
        let at = id.index();
        if self.applications.len() <= at {
            self.applications.resize_with(at + 1, || None);
        }
        let (key, weight) = (newcomer.key, newcomer.account.weight);
        self.keys.insert(key, at);
        let mut demand = self.first_demand();
        let most = newcomer.account.most_bytes_per_s;
        demand.set_most(most);
        self.scheduler.set_most(id, most.filter(|_| self.mode.decides()));
        self.applications[at] = Some(Application::new(newcomer, id, demand));
        self.lookout.note(at);
        if self.has_agreed_rates() {
            // Until a rate is agreed.
            self.scheduler.set_rate(id, 0.0);
        }
        self.tell_of_newcomer(key, weight, demand);
        self.decide();
    }

    fn leave(&mut self, key: u64) -> Option<Box<Remains>> {
        let at = self.keys.remove(&key)?;
        let mut application = self.applications[at].take()?;
        self.scheduler.remove_application(application.id);
        let gone: Vec<Connection> = application
            .connections
            .iter()
            .flatten()
            .filter_map(|id| self.connections[id.index()].take())
            .collect();
        for connection in &gone {
            self.qpns.remove(&connection.qpn);
            let at = connection.id.index();
            self.shared_qps.give_up(|wr_id| Connection::place_of(wr_id) == at);
        }
        self.fail_peers(&gone);
        self.tell_peers(Change::Leave { key });
        self.decide();
        // What shared queue pairs have of it is done before its memory ends.
        for region in std::mem::take(&mut application.regions).into_values() {
            self.shared_qps.wait(None, move || drop(region.mr));
        }
        Some(Box::new(Remains { _queue_pairs: gone, _application: application }))
    }

    /// Gives applications the weights of other rules, and hangs up on those that they do not serve.
    fn go_over_to(&mut self, policy: &Policy) {
        let mut changes = Vec::new();
        let (decides, has_agreed_rates) = (self.mode.decides(), self.has_agreed_rates());
        for (key, at) in &self.keys {
            let Some(application) = &mut self.applications[*at] else { continue };
            let Account { application: name, user, process, .. } = &application.account;
            match policy.admit(name, Who { user: *user, process: *process }) {
                Ok(rule) => {
                    application.wants.most_weight = rule.weight;
                    application.account.most_bytes_per_s = rule.max_bytes_per_s;
                    application.bound_demand();
                    let most = rule.max_bytes_per_s.filter(|_| decides);
                    self.scheduler.set_most(application.id, most);
                    if has_agreed_rates {
                        let bytes_per_s = application.demand.told();
                        changes.push(Change::Demand { key: *key, bytes_per_s });
                    }
                    changes.extend(application.reweigh(*key, self.alpha));
                }
                Err(reason) => application.hang_up(&reason),
            }
        }
        changes.into_iter().for_each(|change| self.tell_peers(change));
        self.decide();
    }

    /// Takes what an application wants of its rate.
    fn hint(&mut self, key: u64, hints: Hints) {
        let alpha = self.alpha;
        let Some(application) = self.owner(key) else { return };
        application.wants.hints = hints;
        let reweighed = application.reweigh(key, alpha);
        application.bound_demand();
        application.demand.declare(hints.demand_bytes_per_s);
        let bytes_per_s = application.demand.told();
        if self.has_agreed_rates() {
            self.tell_peers(Change::Demand { key, bytes_per_s });
        }
        if let Some(change) = reweighed {
            self.tell_peers(change);
            self.decide();
        }
    }

    /// Takes note of who is connected, and decides their shares, where there are any.
    fn decide(&mut self) {
        if !self.mode.decides() || self.agreed.is_some() {
            return;
        }
        let all = self.keys.values().filter_map(|at| self.applications[*at].as_ref());
        let weights: Vec<f64> = all.map(|application| application.account.weight).collect();
        let shares = match policy::optimum(&weights, self.alpha) {
            Ok(optimum) => optimum.shares,
            Err(error) => {
                tracing::error!(%error, "no shares for these weights, the old ones stay");
                return;
            }
        };
        let mut rates = Vec::new();
        for (at, share) in self.keys.values().zip(shares) {
            let Some(application) = &mut self.applications[*at] else { continue };
            application.account.share = share;
            rates.push((application.id, share));
        }
        self.scheduler.set_shares(&rates);
        self.decided_ns = Some(clock_ns(ClockId::Monotonic));
    }

    fn add_qp(&mut self, key: u64, new: NewQp, most: (u32, u32), places: u32) -> Option<u32> {
        let owner = *self.keys.get(&key)?;
        let application = self.applications[owner].as_mut()?;
        let id = self.scheduler.add_connection(application.id, places);
        let queue_pair = application.add(id);
        let at = id.index();
        if self.connections.len() <= at {
            self.connections.resize_with(at + 1, || None);
            self.numbers.resize(at + 1, 0);
        }
        let names = (owner, queue_pair);
        let connection = Connection::new(id, names, self.numbers[at], new, most);
        let qpn = connection.qpn;
        self.connections[at] = Some(connection);
        self.qpns.insert(qpn, id);
        self.tell_peers(Change::AddQp { key, queue_pair, qpn });
        Some(queue_pair)
    }

    pub(super) fn find(&mut self, key: u64, queue_pair: u32) -> Option<&mut Connection> {
        let owner = *self.keys.get(&key)?;
        let id = self.applications[owner].as_ref()?.connection(queue_pair)?;
        self.connections[id.index()].as_mut()
    }

    /// Lends a queue pair, when whoever has it has put it back.
    fn lend(&mut self, key: u64, queue_pair: u32, reply: Sender<Option<OwnQp>>) {
        self.take_all(key);
        let Some(connection) = self.find(key, queue_pair) else {
            let _ = reply.send(None);
            return;
        };
        connection.lenders.push_back(reply);
        if connection.qp.is_some() {
            self.lend_again(key, queue_pair);
        }
    }

    /// Lends a queue pair that is here to who waits for it.
    fn lend_again(&mut self, key: u64, queue_pair: u32) {
        let Some(connection) = self.find(key, queue_pair) else { return };
        let id = connection.id;
        while let Some(qp) = connection.qp.take() {
            let Some(lender) = connection.lenders.pop_front() else {
                connection.qp = Some(qp);
                return;
            };
            // Who does not wait for it any more has died.
            connection.qp = lender.send(Some(qp)).err().and_then(|unsent| unsent.0);
        }
        self.scheduler.pause(id);
    }

    fn take_back(
        &mut self,
        key: u64,
        queue_pair: u32,
        mut qp: OwnQp,
        transition: Option<QpTransition>,
    ) {
        match &transition {
            Some(QpTransition::ToReset) => self.tell_peers(Change::Disconnect { key, queue_pair }),
            Some(QpTransition::ToRtr(attr)) => {
                let Endpoint { gid, qpn, .. } = attr.remote;
                self.tell_peers(Change::Connect { key, queue_pair, gid, qpn });
            }
            Some(_) | None => {}
        }
        self.before_end(&transition, (key, queue_pair, qp.qpn()));
        // The one that it was of may have ended, and another have its number.
        let is_it = |connection: &&mut Connection| connection.qpn == qp.qpn();
        let Some(connection) = self.find(key, queue_pair).filter(is_it) else { return };
        let alone = connection.shared.as_ref().filter(|one| one.stage == Stage::Alone);
        let alone = alone.filter(|_| qp.shares_with().is_some()).map(|shared| shared.life);
        if alone.is_some() {
            qp.stay_alone();
        }
        let (host, has_failed) = (qp.shares_with(), qp.take_failure());
        connection.qp = Some(qp);
        let (id, qpn) = (connection.id, connection.qpn);
        match transition {
            Some(QpTransition::ToReset) => {
                let flying: Vec<u64> = connection.flying().collect();
                connection.reset();
                connection.peer = None;
                self.scheduler.clear(id, &flying);
            }
            Some(QpTransition::ToSqd) => connection.holds = true,
            Some(QpTransition::ToRtr(attr)) => {
                connection.peer = Some(attr.remote);
                connection.shared = host.map(|host| Box::new(Shared::new(host)));
                connection.part_if_told();
            }
            Some(QpTransition::ToInit { access }) => connection.access = access,
            Some(QpTransition::ToRts(_) | QpTransition::ToRtsUnreliable | QpTransition::ToErr) => {
                connection.note_patience(&transition);
                for (bytes, splits) in connection.release() {
                    self.scheduler.push(id, bytes, splits);
                }
            }
            Some(
                QpTransition::ToInitUd { .. } | QpTransition::ToRtrUc(_) | QpTransition::ToRtrUd,
            )
            | None => {}
        }
        let connection = self.connections[id.index()].as_mut();
        let application = self.keys.get(&key).and_then(|at| self.applications[*at].as_mut());
        if let (Some(connection), Some(application)) = (connection, application) {
            connection.post_receives();
            connection.count(&mut application.outstanding);
        }
        self.scheduler.resume(id);
        self.open(id);
        if let Some(life) = alone {
            self.say(Sharing::Posted { qpn, life });
        }
        self.settle(id);
        self.go_on((id, qpn), transition, host.is_some(), has_failed);
    }

    /// What arrived before a queue pair ends is not of the time after, and outlives a failure.
    fn before_end(&mut self, transition: &Option<QpTransition>, names: (u64, u32, u32)) {
        let (key, queue_pair, qpn) = names;
        if matches!(transition, Some(QpTransition::ToReset | QpTransition::ToErr)) {
            self.poll_all_shared();
        }
        if matches!(transition, Some(QpTransition::ToReset))
            && let Some(id) = self.find(key, queue_pair).filter(|one| one.qpn == qpn)
        {
            let id = id.id;
            if let Some(connection) = self.connections[id.index()].as_mut() {
                connection.forget_shared(&mut self.shared_qps);
            }
        }
    }

    /// Goes on with a connection that may have stopped sharing queue pairs while its own was changed.
    fn go_on(
        &mut self,
        (id, qpn): (ConnectionId, u32),
        transition: Option<QpTransition>,
        shares: bool,
        has_failed: bool,
    ) {
        let connection = self.connections[id.index()].as_ref();
        let shared = connection.and_then(|connection| connection.shared.as_ref());
        match shared.map(|shared| shared.is_doomed) {
            Some(true) => self.fail_shared(id, None),
            Some(false) if matches!(transition, Some(QpTransition::ToErr)) => self.end_sharing(id),
            Some(false) if !shares => self.finish_sharing(id),
            Some(false) | None => {}
        }
        if has_failed {
            self.tell_failed(qpn);
        }
    }

    fn remove_qp(&mut self, key: u64, queue_pair: u32) -> Option<OwnQp> {
        let owner = *self.keys.get(&key)?;
        self.take(owner, SLOTS as usize);
        let id = self.applications[owner].as_mut()?.remove(queue_pair)?;
        let mut connection = self.connections[id.index()].take()?;
        self.qpns.remove(&connection.qpn);
        connection.forget_shared(&mut self.shared_qps);
        // Completions that are still to come name none that comes after it.
        self.numbers[id.index()] = connection.number;
        let flying: Vec<u64> = connection.flying().collect();
        connection.reset();
        if let Some(application) = &mut self.applications[owner] {
            connection.count(&mut application.outstanding);
        }
        self.scheduler.remove_connection(id, &flying);
        self.tell_peers(Change::RemoveQp { key, queue_pair });
        connection.qp
    }

    fn accounts(&self) -> Vec<Account> {
        let account = |application: &Application| {
            let served = self.scheduler.served(application.id);
            Account {
                chunks: served.chunks,
                bytes: served.bytes,
                cost_bytes: served.cost_bytes,
                emptied: served.emptied,
                asks_bytes_per_s: application.demand.told().filter(|_| self.has_agreed_rates()),
                waiting: self.scheduler.waiting(application.id),
                ..application.account.clone()
            }
        };
        let all = self.keys.values().filter_map(|at| self.applications[*at].as_ref());
        all.map(account).collect()
    }
}
