//! Messages over shared queue pairs, in the engine: what the agents of peers tell of receives and of messages that
//! are there.
use super::Engine;
use crate::daemon::connection::Connection;
use crate::daemon::inbox::Arrived;
use crate::daemon::messages::TooLong;
use crate::daemon::share::Stage;
use crate::inband::{Message, Numbers, Told};
use crate::peer::{Carry, Change, Local, Sharing};
use crate::scheduler::ConnectionId;
use std::sync::mpsc::Sender;

impl Engine {
    /// Tells of receives that applications have posted.
    #[inline]
    pub(super) fn announce_posted(&mut self) {
        while let Some(id) = self.posted.pop() {
            self.announce(id);
        }
    }

    /// Tells the agent of a connection's peer of its receives.
    pub(super) fn announce(&mut self, id: ConnectionId) {
        self.tell_receives(id, false);
    }

    fn tell_receives(&mut self, id: ConnectionId, answer: bool) {
        let Some(connection) = self.connections[id.index()].as_mut() else { return };
        let Some(owner) = self.applications[connection.owner].as_ref() else { return };
        if let Some(place) = connection.announce(&owner.regions, &mut self.shared_qps, answer) {
            self.give_to(place);
        }
    }

    /// Tells the agent of a connection's peer that it is connected here.
    pub(super) fn open(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections[id.index()].as_mut() else { return };
        if let Some(place) = connection.open(&mut self.shared_qps) {
            self.give_to(place);
        }
    }

    /// Takes what arrived over shared queue pairs.
    pub(super) fn take_arrived(&mut self) {
        for arrived in self.shared_qps.take_arrived() {
            match (arrived.written, arrived.message()) {
                (Some(bytes), _) => self.take_written(&arrived, bytes),
                (None, Some(message)) => self.hear(&arrived, message),
                (None, None) => {
                    tracing::warn!(host = arrived.host, "an in-band message that is none");
                }
            }
        }
    }

    /// Returns the connection that something is about: one that shares with this host, and whose peer is `from`.
    fn about(&mut self, arrived: &Arrived, from: Option<u32>) -> Option<&mut Connection> {
        let id = self.qpns.get(&arrived.to)?;
        let connection = self.connections[id.index()].as_mut()?;
        let peer = connection.peer?.qpn;
        let is_it = connection.shared.as_ref()?.host == arrived.host
            && from.is_none_or(|from| from == peer);
        is_it.then_some(connection)
    }

    /// Takes a message of which nothing else tells: the next one.
    fn take_written(&mut self, arrived: &Arrived, bytes: u64) {
        let number = self.about(arrived, None).map_or(0, |connection| connection.next_message());
        self.take_message(arrived, None, &Told { number, is_send: true, bytes, imm: None });
    }

    fn take_message(&mut self, arrived: &Arrived, from: Option<u32>, told: &Told) {
        let Some(connection) = self.about(arrived, from) else { return };
        let (id, owner, queue_pair) = (connection.id, connection.owner, connection.queue_pair);
        match connection.take_message(told) {
            Ok(Some(landed)) => {
                if let Some(application) = &mut self.applications[owner] {
                    application.land(queue_pair, &landed);
                    self.lookout.note(owner);
                }
            }
            Ok(None) => {}
            Err(TooLong { bytes, room }) => {
                let host = arrived.host;
                tracing::warn!(host, bytes, room, "a message that is longer than its receive");
                self.end_connection(id, None);
            }
        }
    }

    fn hear(&mut self, arrived: &Arrived, message: Message<'_>) {
        match message {
            Message::Open { from, answer } => self.hear_open(arrived, from, answer),
            Message::Posted { from, first, receives } => {
                let Some(connection) = self.about(arrived, Some(from)) else { return };
                let id = connection.id;
                let Some(shared) = &mut connection.shared else { return };
                let mut number = first;
                receives.each(|receive| {
                    shared.receives.learn(number, receive);
                    number = number.wrapping_add(1);
                });
                self.post(Some(id));
            }
            Message::Done { from, told, numbers } => {
                if let Some(numbers) = numbers {
                    self.bring(arrived, from, numbers);
                }
                self.take_message(arrived, Some(from), &told);
            }
            Message::Ask { from } => {
                let shared = self.about(arrived, Some(from)).and_then(|one| one.shared.as_ref());
                let count = shared.map(|shared| shared.taken);
                let answer = Message::Taken { from: arrived.to, count };
                self.shared_qps.answer(arrived.place, from, &answer);
            }
            Message::Taken { from, count } => {
                let Some(connection) = self.about(arrived, Some(from)) else { return };
                let (id, base) = (connection.id, connection.base());
                self.shared_qps.taken(arrived.host, base, count);
                self.hear_taken(id, count);
            }
            // Its queue pair has taken note.
            Message::Credit { .. } => {}
        }
    }

    /// Hands on what data brought of the rounds of a host that a connection shares queue pairs with.
    fn bring(&mut self, arrived: &Arrived, from: u32, numbers: Numbers) {
        // Nobody takes them where no rates are agreed.
        if !self.has_agreed_rates() || self.about(arrived, Some(from)).is_none() {
            return;
        }
        if let Some(agreed) = &self.agreed {
            agreed.brought.put(arrived.to, arrived.host, numbers);
        }
    }

    /// The next message of each of these connections carries numbers.
    pub(super) fn carry(&mut self, all: Vec<Carry>) {
        for Carry { key, queue_pair, numbers } in all {
            let connection = self.find(key, queue_pair);
            if let Some(shared) = connection.and_then(|connection| connection.shared.as_mut()) {
                shared.carries = Some(numbers);
            }
        }
    }

    fn hear_open(&mut self, arrived: &Arrived, from: u32, answer: bool) {
        let Some(connection) = self.about(arrived, Some(from)) else { return };
        let id = connection.id;
        let Some(shared) = &mut connection.shared else { return };
        shared.is_open = true;
        shared.is_told |= answer;
        let answers = !std::mem::replace(&mut shared.has_answered, true);
        self.tell_receives(id, answers);
        self.post(Some(id));
    }

    /// A connection is about to end. `reply` is dropped when nothing of it is on shared queue pairs.
    pub(super) fn stop_sharing(&mut self, key: u64, queue_pair: u32, reply: Sender<()>) {
        let Some(connection) = self.find(key, queue_pair) else { return };
        let id = connection.id;
        let Some(shared) = &mut connection.shared else { return };
        let host = shared.host;
        if shared.stage == Stage::Open {
            shared.stage = Stage::Leaving;
        }
        if matches!(shared.stage, Stage::Leaving | Stage::Parting) {
            shared.leaves = Some(reply.clone());
        }
        self.settle(id);
        self.shared_qps.wait(Some(host), move || drop(reply));
    }

    /// A connection has nothing on shared queue pairs any more. Its device may be done with messages that the peer's
    /// agent does not get, when a queue pair fails: these are told again, so it goes on when it hears that all were
    /// taken.
    pub(super) fn make_sure(&mut self, id: ConnectionId) {
        let connection = self.connections[id.index()].as_mut();
        let shared = connection.and_then(|connection| connection.shared.as_mut());
        let Some(shared) = shared else { return };
        shared.is_unsure = shared.has_sent;
        if shared.has_sent {
            self.ask_again(id);
        } else {
            self.is_sure(id);
        }
    }

    /// Asks how many messages of a connection were taken, if it waits to hear that.
    pub(super) fn ask_again(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections[id.index()].as_mut() else { return };
        if let Some(place) = connection.ask_taken(&mut self.shared_qps) {
            self.give_to(place);
        }
    }

    fn hear_taken(&mut self, id: ConnectionId, count: Option<u32>) {
        let connection = self.connections[id.index()].as_mut();
        let shared = connection.and_then(|connection| connection.shared.as_mut());
        let Some(shared) = shared.filter(|shared| shared.is_unsure) else { return };
        if count.is_none_or(|count| count == shared.receives.next()) {
            shared.is_unsure = false;
            self.is_sure(id);
        }
    }

    fn is_sure(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections[id.index()].as_mut() else { return };
        let qpn = connection.qpn;
        let Some(shared) = connection.shared.as_mut() else { return };
        let (host, life) = (shared.host, shared.life);
        shared.leaves = None;
        if shared.stage == Stage::Parted {
            self.say_when_done(host, Sharing::Drained { qpn, life });
        }
    }

    /// Tells who keeps the sessions, when nothing of what a host was given is on its way any more.
    pub(super) fn say_when_done(&mut self, host: u32, news: Sharing) {
        let Some(changes) = self.agreed.as_ref().map(|agreed| agreed.changes.clone()) else {
            return;
        };
        self.shared_qps.wait(Some(host), move || {
            let _ = changes.send(Change::Shared(news));
        });
    }

    /// The peer gives nothing more to a connection over shared queue pairs: its receives go to the queue pair of its
    /// own, except those that messages have taken.
    pub(super) fn release_receives(&mut self, at: Local) {
        self.poll_all_shared();
        let Some(connection) = self.find_local(at) else { return };
        let qpn = connection.qpn;
        let Some(shared) = &mut connection.shared else { return };
        let life = shared.life;
        (shared.stage, shared.announced) = (Stage::Alone, 0);
        if let Some(qp) = &mut connection.qp {
            qp.stay_alone();
            connection.post_receives();
            self.say(Sharing::Posted { qpn, life });
        }
    }
}
