//! What the hub has to do with shared queue pairs.
use super::groups::Action;
use super::hub::Hub;
use super::message::PeerMessage;
use super::{Local, Sharing, Verdict, digest_of};
use catchment_verbs::Endpoint;
use std::time::{Duration, Instant};

/// How long a question waits before it is asked again: a message is lost only with its session, or where too many
/// waited.
const AGAIN: Duration = Duration::from_millis(250);

impl Hub {
    /// Takes what the agent tells.
    pub(super) fn share(&mut self, news: Sharing) {
        let shares = &mut self.shares;
        match news {
            Sharing::Share { at, remote, reply } => {
                let host = self.roster.host_of(&digest_of(remote.gid));
                shares.share(Instant::now(), at, (host, remote.qpn), reply);
            }
            Sharing::Unshare { qpn, life, reply } => shares.unshare(qpn, life, reply),
            Sharing::Drained { qpn, life } => shares.drained(qpn, life),
            Sharing::Receives { qpn, life } => shares.receives(qpn, life),
            Sharing::Posted { qpn, life } => shares.posted(qpn, life),
            Sharing::AskKey { qpn, rkey } => shares.ask_key(qpn, rkey),
            Sharing::KeyAnswer { qpn, rkey, region } => shares.answer_key(qpn, rkey, region),
            Sharing::Revoke { host, rkey, reply } => shares.revoke(host, rkey, reply),
            Sharing::Revoked { host, rkey } => {
                self.registry.send(host, PeerMessage::Revoked { rkey }.encode());
            }
            Sharing::Made { host, number, endpoint } => {
                shares.groups().made(host, number, endpoint);
            }
            Sharing::Finished { host, number } => shares.groups().finished(host, number),
            Sharing::Lost { host, number } => shares.groups().lost(host, number),
        }
    }

    /// Takes what a peer says.
    pub(super) fn heard_of_shared(&mut self, host: u32, message: PeerMessage) {
        let shares = &mut self.shares;
        match message {
            PeerMessage::Share { queue_pair, to } => {
                let at = self.roster.at(to).map(|(application, queue_pair)| Local {
                    key: application.into(),
                    queue_pair,
                    qpn: to,
                    life: 0,
                });
                shares.heard_share(host, queue_pair, to, at);
            }
            PeerMessage::Shared { queue_pair, to, yes } => {
                shares.heard_shared(host, queue_pair, to, yes);
            }
            PeerMessage::Apart { queue_pair, to, answer } => {
                shares.heard_apart(host, queue_pair, to, answer);
            }
            PeerMessage::Alone { queue_pair, to } => shares.heard_alone(host, queue_pair, to),
            PeerMessage::Key { queue_pair, to, rkey } => {
                shares.heard_key(host, queue_pair, to, rkey);
            }
            PeerMessage::Region { queue_pair, to, rkey, region } => {
                shares.heard_region(host, (queue_pair, to), rkey, region);
            }
            PeerMessage::Revoke { rkey } => (self.tells.tell)(Verdict::Revoke { host, rkey }),
            PeerMessage::Revoked { rkey } => shares.heard_revoked(host, rkey),
            PeerMessage::QueuePair { number, endpoint } => {
                self.heard_queue_pair(host, number, endpoint)
            }
            PeerMessage::Ready { number } => shares.groups().heard_ready(host, number),
            PeerMessage::Lost { number, answer } => {
                shares.groups().heard_lost(host, number, answer);
            }
            // The session or the hub took them.
            PeerMessage::Hello(_)
            | PeerMessage::Welcome(_)
            | PeerMessage::Refused { .. }
            | PeerMessage::Where { .. }
            | PeerMessage::There { .. }
            | PeerMessage::Left { .. }
            | PeerMessage::Slots(_)
            | PeerMessage::SlotsReady { .. }
            | PeerMessage::Call { .. }
            | PeerMessage::Called { .. }
            | PeerMessage::Ping {}
            | PeerMessage::Goodbye {} => {}
        }
    }

    /// Returns whether an endpoint is of the device of a host.
    pub(super) fn is_of(&self, host: u32, endpoint: &str) -> bool {
        let gid = endpoint.parse().ok().map(|endpoint: Endpoint| endpoint.gid);
        gid.and_then(|gid| self.roster.host_of(&digest_of(gid))) == Some(host)
    }

    fn heard_queue_pair(&mut self, host: u32, number: u32, endpoint: String) {
        if self.is_of(host, &endpoint) {
            self.shares.groups().heard_queue_pair(host, number, endpoint);
        } else {
            let reason = "the endpoint of a shared queue pair is not of its device".to_owned();
            self.registry.turn_away(host, reason);
        }
    }

    pub(super) fn carry_out(&self, action: Action) {
        match action {
            Action::Say(host, message) => self.registry.send(host, message.encode()),
            Action::Tell(verdict) => (self.tells.tell)(verdict),
            Action::Make(make) => (self.tells.make)(make),
            Action::Refuse(host, reason) => self.registry.turn_away(host, reason),
        }
    }

    /// Does what follows for shared queue pairs, and for slots.
    pub(super) fn act(&mut self) {
        let now = Instant::now();
        self.shares.expire(now);
        if self.asks_again.is_some_and(|at| at <= now) {
            self.asks_again = None;
            self.shares.ask_again();
        }
        while let Some(action) = self.shares.next() {
            self.carry_out(action);
        }
        self.act_on_slots(now);
        if self.asks_again.is_none() && self.shares.is_waiting() {
            self.asks_again = Some(now + AGAIN);
        }
    }
}
