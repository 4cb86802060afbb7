//! Shared queue pairs, in the engine: what goes over them, what their peers ask and tell, and how connections leave
//! them.
use super::Engine;
use crate::daemon::checks::Need;
use crate::daemon::connection::Connection;
use crate::daemon::inbox::Inbox;
use crate::daemon::share::{Region, Stage};
use crate::peer::message::RemoteRegion;
use crate::peer::{Change, Local, Sharing};
use crate::scheduler::ConnectionId;
use catchment_verbs::{Access, Completion, Qp, Success, WcOpcode};
use std::sync::mpsc::{Sender, channel};

/// Times that no queue pair could be made in place of one that failed, before what it had fails.
const TRIES: u32 = 4;
/// Looks at what shared queue pairs have brought: each takes some of it.
const LOOKS: u32 = 1 << 12;

/// Tells that a connection does not share any more.
fn ended(qpn: u32, life: u64) -> Sharing {
    Sharing::Unshare { qpn, life: Some(life), reply: channel().0 }
}

impl Engine {
    pub(super) fn say(&self, news: Sharing) {
        self.tell_peers(Change::Shared(news));
    }

    /// Returns a connection, unless another one has its number now.
    pub(super) fn find_local(&mut self, at: Local) -> Option<&mut Connection> {
        let is_it = |connection: &&mut Connection| {
            let life = connection.shared.as_ref().map(|shared| shared.life);
            connection.qpn == at.qpn && life.is_none_or(|life| life == at.life)
        };
        self.find(at.key, at.queue_pair).filter(is_it)
    }

    /// Gives what a connection has planned to a shared queue pair.
    pub(super) fn post_shared(&mut self, id: ConnectionId) {
        let connection = self.connections[id.index()].as_ref();
        let begins_message = connection.is_some_and(Connection::begins_message);
        if begins_message || self.shared_qps.has_groups() {
            self.choose_group(id);
        }
        let Some(connection) = self.connections[id.index()].as_mut() else { return };
        let Some(application) = &mut self.applications[connection.owner] else { return };
        let (place, need) = connection.post_shared(&application.regions, &mut self.shared_qps);
        connection.count(&mut application.outstanding);
        let qpn = connection.qpn;
        match need {
            Some(Need::Key(rkey)) => self.say(Sharing::AskKey { qpn, rkey }),
            Some(Need::Apart) => self.settle(id),
            Some(Need::Receive) | None => {}
        }
        self.give_to(place);
    }

    /// Gives the device what waits at a place.
    pub(super) fn give_to(&mut self, place: usize) {
        // One that fails is told of with what it was done with.
        self.shared_qps.give(place);
    }

    /// Puts a connection that is in no group into that of its host with the fewest.
    fn choose_group(&mut self, id: ConnectionId) {
        let shared = |connection: &Option<Connection>| {
            let shared = connection.as_ref()?.shared.as_ref()?;
            Some((shared.host, shared.group))
        };
        let Some((host, None)) = shared(&self.connections[id.index()]) else { return };
        let all = || self.connections.iter().filter_map(shared);
        let members = |at: &usize| all().filter(|(_, group)| *group == Some(*at)).count();
        let group = self.shared_qps.places(host).min_by_key(members);
        let connection = self.connections[id.index()].as_mut();
        if let Some(shared) = connection.and_then(|connection| connection.shared.as_mut()) {
            shared.group = group;
        }
    }

    /// Takes what shared queue pairs are done with; returns whether there was anything.
    pub(super) fn poll_shared(&mut self) -> bool {
        let (mut done, mut failed) =
            (std::mem::take(&mut self.landed), std::mem::take(&mut self.failed));
        let any = self.shared_qps.poll(&mut done, &mut failed);
        for wr_id in done.drain(..) {
            if self.take_probe(wr_id) {
                continue;
            }
            // Its kind and length are known here.
            let result = Ok(Success::plain(WcOpcode::Write, 0));
            self.complete(&Completion { wr_id, qpn: 0, result });
        }
        for (host, number) in failed.drain(..) {
            tracing::warn!(host, number, "a shared queue pair failed, another takes over");
            self.say(Sharing::Lost { host, number });
            self.fail_unknown();
        }
        (self.landed, self.failed) = (done, failed);
        self.take_arrived();
        any
    }

    /// Takes all that shared queue pairs have brought so far.
    pub(super) fn poll_all_shared(&mut self) {
        for _ in 0..LOOKS {
            if !self.poll_shared() {
                return;
            }
        }
    }

    /// Notes that a chunk is done.
    fn complete(&mut self, done: &Completion) {
        let at = Connection::place_of(done.wr_id);
        let Some(connection) = self.connections.get_mut(at).and_then(Option::as_mut) else {
            return;
        };
        let Some(application) = &mut self.applications[connection.owner] else { return };
        while let Some(landed) = connection.complete_send(done) {
            self.scheduler.done(connection.id, landed.bytes);
            application.land(connection.queue_pair, &landed);
        }
        connection.count(&mut application.outstanding);
        // To be woken for it.
        self.lookout.note(connection.owner);
        let id = connection.id;
        let leaves = |stage: Stage| stage != Stage::Open;
        if connection.shared.as_ref().is_some_and(|shared| leaves(shared.stage)) {
            self.settle(id);
        }
    }

    /// Goes on with a connection that stops sharing, once it has nothing on shared queue pairs.
    pub(super) fn settle(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections[id.index()].as_mut() else { return };
        let is_drained = connection.is_drained();
        let Some(shared) = connection.shared.as_mut().filter(|_| is_drained) else { return };
        match shared.stage {
            Stage::Parting => {
                (shared.stage, shared.leaves) = (Stage::Parted, None);
                self.make_sure(id);
            }
            Stage::Leaving if shared.leaves.is_some() && !shared.is_unsure => self.make_sure(id),
            Stage::Ending => self.finish_sharing(id),
            Stage::Open | Stage::Parted | Stage::Alone | Stage::Leaving => {}
        }
    }

    /// Makes a connection use its own queue pair from now on.
    pub(super) fn finish_sharing(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections[id.index()].as_mut() else { return };
        connection.forget_shared(&mut self.shared_qps);
        connection.post_receives();
        for chunk in connection.unplan() {
            let connection = self.connections[id.index()].as_mut();
            if connection.is_some_and(|connection| connection.plan(chunk)) {
                self.post(Some(id));
            }
        }
        self.post(Some(id));
        let owner = self.connections[id.index()].as_ref().map(|connection| connection.owner);
        if let Some(application) = owner.and_then(|owner| self.applications[owner].as_mut()) {
            application.wake();
        }
    }

    /// A connection is in the error state: what waits is flushed when what it has on shared queue pairs is done.
    pub(super) fn end_sharing(&mut self, id: ConnectionId) {
        let connection = self.connections[id.index()].as_mut();
        if let Some(shared) = connection.and_then(|connection| connection.shared.as_mut()) {
            shared.stage = Stage::Ending;
        }
        self.settle(id);
    }

    /// A connection stops sharing, as its peer does.
    pub(super) fn part(&mut self, at: Local) {
        let Some(connection) = self.find_local(at) else { return };
        let id = connection.id;
        match &mut connection.shared {
            Some(shared) if shared.stage == Stage::Open => shared.stage = Stage::Parting,
            Some(_) => {}
            None => connection.parts_in = Some(at.life),
        }
        self.settle(id);
    }

    /// The peer of a connection does not share. It is on its own, unless it did share, and has failed.
    pub(super) fn part_or_end(&mut self, at: Local) {
        let Some(connection) = self.find_local(at) else { return };
        let id = connection.id;
        if connection.shared.as_ref().is_some_and(|shared| shared.is_open) {
            self.end_connection(id, None);
        } else {
            self.part(at);
        }
    }

    /// Ends connections with an atomic that had no answer: to do it again might do it twice.
    pub(super) fn fail_unknown(&mut self) {
        for wr_id in self.shared_qps.take_unknown() {
            self.shared_qps.give_up(|waiting| waiting == wr_id);
            let at = Connection::place_of(wr_id);
            let connection = self.connections.get(at).and_then(Option::as_ref);
            let has_it = |one: &&Connection| one.lost(None).iter().any(|lost| lost.wr_id == wr_id);
            let Some(connection) = connection.filter(has_it) else { continue };
            let id = connection.id;
            self.end_connection(id, Some(wr_id));
        }
    }

    /// Ends a connection that shares, of which it is not known whether the peer did an atomic, or whose peer is none
    /// that obeys; its peer hears of it.
    pub(super) fn end_connection(&mut self, id: ConnectionId, unknown: Option<u64>) {
        let Some(connection) = self.connections[id.index()].as_ref() else { return };
        let qpn = connection.qpn;
        let shared = connection.shared.as_ref().map(|shared| (shared.host, shared.life));
        self.fail_shared(id, unknown);
        if let Some((host, life)) = shared {
            self.say_when_done(host, ended(qpn, life));
        }
    }

    /// The host of a connection that shares is gone, or it is not known whether the peer did this atomic.
    pub(super) fn fail_shared(&mut self, id: ConnectionId, unknown: Option<u64>) {
        let Some(connection) = self.connections[id.index()].as_mut() else { return };
        let Some(qp) = &mut connection.qp else {
            if let Some(shared) = &mut connection.shared {
                (shared.is_doomed, shared.leaves) = (true, None);
            }
            return;
        };
        qp.fail();
        let qpn = connection.qpn;
        self.shared_qps.give_up(|wr_id| Connection::place_of(wr_id) == id.index());
        for done in connection.lost(unknown) {
            self.complete(&done);
        }
        self.finish_sharing(id);
        self.tell_failed(qpn);
    }

    /// Tells a peer what a key gives that an application gave its own.
    pub(super) fn answer_key(&mut self, at: Local, host: u32, rkey: u32) {
        let Some(connection) = self.find_local(at) else { return };
        let (qpn, pd, access) = (connection.qpn, connection.pd, connection.access);
        let mut regions =
            self.owner(at.key).into_iter().flat_map(|owner| owner.regions.values_mut());
        let region = regions.find(|region| region.rkey == rkey && region.pd == pd);
        let region = region.map(|region| {
            region.told.insert(host);
            let mr = &region.mr;
            let access = region.access & access & Access::REMOTE;
            let (addr, bytes) = (mr.addr(), mr.bytes() as u64);
            RemoteRegion { rkey: mr.rkey(), addr, bytes, access: access.bits() }
        });
        self.say(Sharing::KeyAnswer { qpn, rkey, region });
    }

    pub(super) fn learn_key(&mut self, at: Local, rkey: u32, region: Option<RemoteRegion>) {
        let Some(connection) = self.find_local(at) else { return };
        connection.learn(rkey, region);
        let id = connection.id;
        self.post(Some(id));
    }

    /// A region of a host ends: nothing more is given to it.
    pub(super) fn forget_key(&mut self, host: u32, rkey: u32) {
        for connection in self.connections.iter_mut().flatten() {
            if let Some(shared) = connection.shared.as_mut().filter(|one| one.host == host) {
                shared.keys.remove(&rkey);
            }
        }
        let Some(changes) = self.agreed.as_ref().map(|agreed| agreed.changes.clone()) else {
            return;
        };
        self.shared_qps.wait(Some(host), move || {
            let _ = changes.send(Change::Shared(Sharing::Revoked { host, rkey }));
        });
    }

    pub(super) fn add_region(&mut self, key: u64, lkey: u32, region: Region) {
        if let Some(owner) = self.owner(key) {
            owner.regions.insert(lkey, region);
        }
    }

    /// Takes a region out. `reply` is dropped when no peer gives anything more to it; the device keeps it as long as
    /// it needs it.
    pub(super) fn remove_region(&mut self, key: u64, lkey: u32, reply: &Sender<()>) {
        // Receives that came before lead to a region that there was.
        self.take_all(key);
        let gone = self.owner(key).and_then(|owner| owner.regions.remove(&lkey));
        let Some(region) = gone else { return };
        for host in &region.told {
            let (host, rkey, reply) = (*host, region.rkey, reply.clone());
            self.say(Sharing::Revoke { host, rkey, reply });
        }
        self.shared_qps.wait(None, move || drop(region.mr));
    }

    pub(super) fn add_shared_qp(
        &mut self,
        (host, number): (u32, u32),
        qp: Box<dyn Qp>,
        inbox: Inbox,
    ) {
        let connections = &self.connections;
        let peer = |base: u64| {
            let at = Connection::place_of(base);
            let connection = connections.get(at)?.as_ref()?;
            Some((connection.qpn, connection.peer?.qpn))
        };
        let place = self.shared_qps.add_with((host, number), qp, inbox, peer);
        for id in self.of_host(host) {
            let connection = self.connections[id.index()].as_mut();
            let shared = connection.and_then(|connection| connection.shared.as_mut());
            if let Some(shared) = shared.filter(|shared| !shared.has_sent) {
                // There may be smaller groups now.
                shared.group = None;
            }
        }
        self.shared_qps.give(place);
        for id in self.of_host(host) {
            self.open(id);
            self.announce(id);
            self.ask_again(id);
            self.post(Some(id));
        }
    }

    /// Returns the connections that share queue pairs with a host.
    fn of_host(&self, host: u32) -> Vec<ConnectionId> {
        let shares = |one: &&Connection| one.shared.as_ref().is_some_and(|it| it.host == host);
        let all = self.connections.iter().flatten().filter(shares);
        all.map(|connection| connection.id).collect()
    }

    /// Connections that wait for a first shared queue pair go their own way: there is none.
    pub(super) fn part_all(&mut self, host: u32) {
        if self.shared_qps.place(host).is_some() {
            return;
        }
        for id in self.of_host(host) {
            let Some(connection) = self.connections[id.index()].as_mut() else { continue };
            let (qpn, is_drained) = (connection.qpn, connection.is_drained());
            let Some(shared) = &mut connection.shared else { continue };
            let life = shared.life;
            if is_drained && shared.stage == Stage::Open {
                shared.stage = Stage::Parting;
                self.settle(id);
            } else if !is_drained {
                shared.tries += 1;
                if shared.tries >= TRIES {
                    self.fail_shared(id, None);
                    self.say(ended(qpn, life));
                }
            }
        }
    }

    pub(super) fn lose_shared_qp(&mut self, host: u32, number: u32) {
        self.shared_qps.lose(host, number);
        self.say(Sharing::Lost { host, number });
        self.fail_unknown();
    }
}
