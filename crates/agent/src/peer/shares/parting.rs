//! How a connection stops sharing. Each end says Apart when it gives nothing more to shared queue pairs, Alone when it
//! has heard that and its receives are on its own queue pair; who has heard both sends over its own.
use super::super::groups::Action;
use super::super::message::PeerMessage;
use super::super::{Local, Make, Verdict};
use super::{Join, Shares, Stage};
use std::sync::mpsc::Sender;

impl Shares {
    /// A queue pair is about to be reset, to fail or to end. `reply` is dropped when its peer gives nothing more to
    /// it.
    pub(in super::super) fn unshare(&mut self, qpn: u32, life: Option<u64>, reply: Sender<()>) {
        if life.is_none() {
            self.alone.remove(&qpn);
        }
        let is_it = |join: &&mut Join| life.is_none_or(|life| join.at.life == life);
        let Some(join) = self.joins.get_mut(&qpn).filter(is_it) else { return };
        let (host, to) = (join.host, join.to);
        match &mut join.stage {
            Stage::Shared { sent, received: false, leaving, .. } => {
                (*sent, *leaving) = (true, Some(reply));
                self.open.insert(qpn);
                self.say(host, PeerMessage::Apart { queue_pair: qpn, to, answer: false });
            }
            Stage::Shared { received: true, .. } | Stage::Reserved(_) | Stage::Asked(..) => {
                self.remove(qpn);
                self.let_go(host, (qpn, to));
            }
        }
    }

    /// A connection has nothing on shared queue pairs any more.
    pub(in super::super) fn drained(&mut self, qpn: u32, life: u64) {
        if let Some(Join { at, stage: Stage::Shared { .. }, .. }) = self.joins.get(&qpn)
            && at.life == life
        {
            self.actions.push_back(Action::Make(Make::Receive(*at)));
        }
    }

    /// The queue pair of its own, of a connection, receives.
    pub(in super::super) fn receives(&mut self, qpn: u32, life: u64) {
        let is_it = |join: &&mut Join| join.at.life == life;
        let Some(join) = self.joins.get_mut(&qpn).filter(is_it) else { return };
        let (at, host, to) = (join.at, join.host, join.to);
        let Stage::Shared { sent, received, .. } = &mut join.stage else { return };
        *sent = true;
        let answer = *received;
        self.open.insert(qpn);
        if answer {
            self.part(at);
        }
        self.say(host, PeerMessage::Apart { queue_pair: qpn, to, answer });
    }

    /// Both ends said Apart: nothing more comes for the receives of this one.
    fn part(&mut self, at: Local) {
        self.actions.push_back(Action::Tell(Verdict::Release(at)));
    }

    /// The peer does not share, though it asked whether this end does: it gave its question up, for example because the
    /// session ended before it heard the answer.
    pub(super) fn part_from(&mut self, qpn: u32) {
        let Some(Join { at, stage, .. }) = self.joins.get_mut(&qpn) else { return };
        let Stage::Shared { received, alone, .. } = stage else { return };
        (*received, alone[1]) = (true, true);
        self.actions.push_back(Action::Tell(Verdict::NotShared(*at)));
    }

    /// Says all that a peer may wait for, of a connection that is none here.
    pub(super) fn let_go(&mut self, host: u32, (queue_pair, to): (u32, u32)) {
        self.say(host, PeerMessage::Apart { queue_pair, to, answer: true });
        self.say(host, PeerMessage::Alone { queue_pair, to });
    }

    /// The receives of a connection are on its own.
    pub(in super::super) fn posted(&mut self, qpn: u32, life: u64) {
        let is_it = |join: &&mut Join| join.at.life == life;
        let join = self.joins.get_mut(&qpn).filter(is_it);
        let Some(Join { host, to, stage, .. }) = join else { return };
        let Stage::Shared { alone, .. } = stage else { return };
        alone[0] = true;
        let (host, to) = (*host, *to);
        self.say(host, PeerMessage::Alone { queue_pair: qpn, to });
        self.send_if_alone(qpn);
    }

    /// So are those of its peer.
    pub(in super::super) fn heard_alone(&mut self, host: u32, theirs: u32, to: u32) {
        if self.is_between(host, theirs, to).is_some()
            && let Some(Join { stage: Stage::Shared { alone, .. }, .. }) = self.joins.get_mut(&to)
        {
            alone[1] = true;
            self.send_if_alone(to);
        }
    }

    fn send_if_alone(&mut self, qpn: u32) {
        let join = self.joins.get(&qpn);
        if let Some(Join { at, stage: Stage::Shared { alone: [true, true], .. }, .. }) = join {
            let at = *at;
            self.remove(qpn);
            self.alone.insert(qpn);
            self.actions.push_back(Action::Make(Make::Send(at)));
        }
    }

    pub(in super::super) fn heard_apart(&mut self, host: u32, theirs: u32, to: u32, answer: bool) {
        let (mut answers, mut lets_go) = (!answer, true);
        if self.is_between(host, theirs, to).is_some()
            && let Some(Join { at, stage, .. }) = self.joins.get_mut(&to)
        {
            let at = *at;
            match stage {
                // Of the life before: what the peer says of this one follows its answer.
                Stage::Asked(..) => {}
                // It waits for this end to let it go, though it answers.
                Stage::Reserved(_) | Stage::Shared { leaving: Some(_), .. } => {
                    answers = true;
                    drop(self.remove(to));
                }
                Stage::Shared { sent: true, received, alone, .. } => {
                    (*received, lets_go) = (true, alone[0]);
                    self.part(at);
                }
                Stage::Shared { received, .. } => {
                    (answers, *received) = (false, true);
                    // Each time that it is said: the engine may not have known yet that it shares.
                    self.actions.push_back(Action::Tell(Verdict::Part(at)));
                }
            }
        }
        if answers && lets_go {
            self.let_go(host, (to, theirs));
        } else if answers {
            self.say(host, PeerMessage::Apart { queue_pair: to, to: theirs, answer: true });
        }
    }
}
