//! Shared queue pairs of the device, in the engine: each has the chunks of several connections in its hands, and is
//! done with them in order. What one that fails was not done with, the next one of its host does again.
use super::inbox::{Arrived, Inbox};
use super::share::Buffer;
pub use super::shared_qp::Posted;
use super::shared_qp::{SharedQp, Then};
use crate::entry::MAX_INLINE_BYTES;
use crate::inband::Message;
use catchment_verbs::{Completion, Cq, Qp, QpTransition, SendOp, Success, WcOpcode};
use std::sync::Arc;

/// Completions taken in one go.
const BATCH: usize = 16;
/// Buffers of in-band messages that are kept.
const SPARE: usize = 1024;
/// Completions that are kept of queue pairs that are not known yet.
const EARLY: usize = 1 << 14;
/// In place of a connection.
const NOBODY: u64 = u64::MAX << 32;

fn keep(spare: &mut Vec<Buffer>, buffer: Buffer) {
    if spare.len() < SPARE {
        spare.push(buffer);
    }
}

/// The shared queue pairs of a device, by host: each has the chunks of several connections in its hands.
pub struct SharedQps {
    /// Of all of them; none where nothing is shared.
    cq: Option<Arc<dyn Cq>>,
    all: Vec<SharedQp>,
    /// Each connection always uses the same one, which has a lock (SHARE).
    has_groups: bool,
    /// Atomics that were in the hands of one that failed.
    unknown: Vec<u64>,
    /// Chunks that are done, in order.
    done: Vec<u64>,
    /// What arrived over them, in order.
    arrived: Vec<Arrived>,
    /// What arrived over those that are not known yet.
    early: Vec<Completion>,
    /// Places of those that failed, until everything that they brought is known.
    dying: Vec<usize>,
    /// Host and number of those that are gone.
    gone: Vec<(u32, u32)>,
    spare: Vec<Buffer>,
}

impl SharedQps {
    /// Begins without any; the completion queue is that of all of them. With `has_groups` each has a lock, and each
    /// connection always uses the same one (SHARE).
    #[must_use]
    pub fn new(cq: Option<Arc<dyn Cq>>, has_groups: bool) -> Self {
        Self {
            cq,
            all: Vec::new(),
            has_groups,
            unknown: Vec::new(),
            done: Vec::new(),
            arrived: Vec::new(),
            early: Vec::new(),
            dying: Vec::new(),
            gone: Vec::new(),
            spare: Vec::new(),
        }
    }

    pub(super) fn has_groups(&self) -> bool {
        self.has_groups
    }

    /// Asks for a notification of the next completion.
    pub(super) fn arm(&self) {
        if let Some(cq) = &self.cq {
            cq.req_notify(false);
        }
    }

    /// Returns the places of those of a host that work.
    pub(super) fn places(&self, host: u32) -> impl Iterator<Item = usize> {
        let works = move |shared_qp: &SharedQp| shared_qp.host == host && shared_qp.qp.is_some();
        let all = self.all.iter().enumerate();
        all.filter(move |(_, shared_qp)| works(shared_qp)).map(|(at, _)| at)
    }

    /// Returns the place of one of all that work, by turns.
    pub(super) fn nth_place(&self, turn: usize) -> Option<usize> {
        let works = |at: &usize| self.all[*at].qp.is_some();
        let count = (0..self.all.len()).filter(works).count();
        (0..self.all.len()).filter(works).nth(turn.checked_rem(count)?)
    }

    /// Returns the place of the least busy one of a host; `None` before there is any.
    pub fn place(&self, host: u32) -> Option<usize> {
        self.places(host).min_by_key(|at| self.all[*at].queue.len())
    }

    /// Puts a chunk behind those of its place. [`SharedQps::give`] follows.
    pub fn push(&mut self, at: usize, posted: Posted) {
        self.all[at].queue.push_back(posted);
    }

    /// Puts an in-band message, about a connection to that of this number at the host, behind what its place has.
    pub(super) fn say(&mut self, at: usize, base: u64, to: u32, message: &Message<'_>) {
        let buffer = self.take_buffer();
        self.push(at, Posted::message(base, to, message, buffer));
    }

    /// The same, of what the other agent waits for before it goes on.
    fn say_now(&mut self, at: usize, base: u64, to: u32, message: &Message<'_>) {
        let buffer = self.take_buffer();
        self.all[at].push_urgent(Posted::message(base, to, message, buffer));
    }

    /// Answers what the other agent waits for before it goes on, at the place where it was asked.
    pub(super) fn answer(&mut self, at: usize, to: u32, message: &Message<'_>) {
        if self.all[at].qp.is_some() {
            self.say_now(at, NOBODY, to, message);
            self.give(at);
        }
    }

    pub(super) fn take_buffer(&mut self) -> Buffer {
        self.spare.pop().unwrap_or_else(|| Box::new([0; MAX_INLINE_BYTES]))
    }

    /// Gives the device what waits at a place; returns host and number of one that failed, of which
    /// [`SharedQps::poll`] tells too.
    pub fn give(&mut self, at: usize) -> Option<(u32, u32)> {
        self.give_or_fail(at);
        self.bury();
        self.gone.last().copied()
    }

    fn give_or_fail(&mut self, at: usize) {
        if self.all.get_mut(at).is_some_and(SharedQp::give) {
            self.dying.push(at);
        }
    }

    /// Uses one more of a host; first, in the place of one of which both ends are gone. Returns the place.
    pub fn add(&mut self, host: u32, number: u32, qp: Box<dyn Qp>) -> usize {
        self.add_with((host, number), qp, None, |_| None)
    }

    /// The same, with receives for what the other agent says. `peer` tells the numbers of a connection, here and at
    /// the peer.
    pub(super) fn add_with(
        &mut self,
        (host, number): (u32, u32),
        qp: Box<dyn Qp>,
        inbox: impl Into<Option<Inbox>>,
        peer: impl Fn(u64) -> Option<(u32, u32)>,
    ) -> usize {
        let is_free = |shared_qp: &SharedQp| shared_qp.host == host && shared_qp.is_free;
        let at = self.all.iter().position(is_free).unwrap_or(self.all.len());
        if at == self.all.len() {
            self.all.push(SharedQp::new(host, number, self.has_groups));
        }
        let qpn = qp.qpn();
        let asked = self.all[at].begin(number, qp, inbox.into()).to_vec();
        for completion in std::mem::take(&mut self.early) {
            match completion.result {
                Ok(success) if completion.qpn == qpn => {
                    self.receive(at, completion.wr_id, &success);
                }
                Ok(_) => self.early.push(completion),
                Err(_) => {}
            }
        }
        for base in asked {
            match peer(base) {
                Some((from, to)) => self.say_now(at, base, to, &Message::Ask { from }),
                None => self.all[at].forget_asked(base),
            }
        }
        at
    }

    /// A peer has taken so many messages of a connection.
    pub(super) fn taken(&mut self, host: u32, base: u64, count: Option<u32>) {
        for at in 0..self.all.len() {
            let shared_qp = &mut self.all[at];
            if shared_qp.host != host {
                continue;
            }
            match count {
                Some(count) => shared_qp.taken(base, count),
                None => shared_qp.forget_asked(base),
            }
            self.give_or_fail(at);
        }
    }

    /// Takes the atomics of which it is not known whether the peer did them.
    pub(super) fn take_unknown(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.unknown)
    }

    /// Takes what arrived over them.
    pub(super) fn take_arrived(&mut self) -> Vec<Arrived> {
        std::mem::take(&mut self.arrived)
    }

    /// Ends one, whose chunks wait for the next.
    pub(super) fn lose(&mut self, host: u32, number: u32) {
        let is_it = |shared_qp: &SharedQp| {
            shared_qp.qp.is_some() && (shared_qp.host, shared_qp.number) == (host, number)
        };
        if let Some(at) = self.all.iter().position(is_it) {
            self.dying.push(at);
            self.bury();
        }
    }

    /// Notes that both ends of one are gone: another one may have its place. Before that its peer may still take what
    /// arrived over it, and would not tell of it when it is asked over another one.
    pub(super) fn free(&mut self, host: u32, number: u32) {
        let is_it = |shared_qp: &&mut SharedQp| {
            shared_qp.qp.is_none() && (shared_qp.host, shared_qp.number) == (host, number)
        };
        if let Some(shared_qp) = self.all.iter_mut().find(is_it) {
            shared_qp.is_free = true;
        }
    }

    /// Returns host and number of the one that has this number at the device.
    pub(super) fn find(&self, qpn: u32) -> Option<(u32, u32)> {
        let is_it = |shared_qp: &&SharedQp| shared_qp.qp.as_ref().is_some_and(|qp| qp.qpn() == qpn);
        self.all.iter().find(is_it).map(|shared_qp| (shared_qp.host, shared_qp.number))
    }

    /// Gives up the chunks of a connection that failed, of which `of` tells by their numbers: its peer may have ended the
    /// memory that they lead to, and they would make one queue pair after the other fail.
    pub(super) fn give_up(&mut self, of: impl Fn(u64) -> bool) {
        for shared_qp in &mut self.all {
            let (given, mut at, mut then) = (shared_qp.given, 0, Vec::new());
            shared_qp.queue.retain_mut(|posted| {
                posted.is_given_up |= of(posted.wr_id);
                at += 1;
                let stays = at <= given || !posted.is_given_up;
                if !stays {
                    then.append(&mut posted.then);
                }
                stays
            });
            // Later than it must be, not earlier.
            if let Some(last) = shared_qp.queue.back_mut() {
                last.then.append(&mut then);
            }
            shared_qp.forget(&of);
        }
        // Others may have waited for what is known of it.
        (0..self.all.len()).for_each(|at| self.give_or_fail(at));
        self.bury();
    }

    /// Ends all of a host, with what they had. Places stay: their numbers are known.
    pub(super) fn forget(&mut self, host: u32) {
        for shared_qp in self.all.iter_mut().filter(|shared_qp| shared_qp.host == host) {
            // All of their connections end.
            shared_qp.fail(&mut Vec::new());
            shared_qp.queue.clear();
            shared_qp.is_free = true;
        }
    }

    /// Makes all fail, at the device.
    pub(super) fn break_all(&mut self) {
        for qp in self.all.iter_mut().filter_map(|shared_qp| shared_qp.qp.as_mut()) {
            let _ = qp.modify(QpTransition::ToErr);
        }
    }

    /// Does something when the device is done with all that it has of a host, or of all hosts.
    pub(super) fn wait(&mut self, host: Option<u32>, what: impl FnOnce() + Send + Sync + 'static) {
        let then = Arc::new(Then::new(what));
        let is_one = |shared_qp: &&mut SharedQp| host.is_none_or(|host| shared_qp.host == host);
        for shared_qp in self.all.iter_mut().filter(is_one) {
            if let Some(posted) = shared_qp.queue.back_mut() {
                posted.then.push(Arc::clone(&then));
            }
        }
    }

    /// Takes completions of the device: the chunks that are done, in order; those that failed with their queue
    /// pair are not. Returns whether there were any.
    pub fn poll(&mut self, done: &mut Vec<u64>, failed: &mut Vec<(u32, u32)>) -> bool {
        let any = self.take_completions() > 0;
        self.bury();
        let any = any || !self.gone.is_empty() || !self.done.is_empty() || !self.arrived.is_empty();
        done.append(&mut self.done);
        failed.append(&mut self.gone);
        any
    }

    fn take_completions(&mut self) -> usize {
        let Some(cq) = &self.cq else { return 0 };
        let mut out = [Completion::EMPTY; BATCH];
        let count = cq.poll(&mut out).unwrap_or(0);
        for completion in &out[..count] {
            let is_it = |shared_qp: &SharedQp| {
                shared_qp.qp.as_ref().is_some_and(|qp| qp.qpn() == completion.qpn)
            };
            let Some(at) = self.all.iter().position(is_it) else {
                // The other agent may use its end before this one is given to the engine.
                if Inbox::has(completion.wr_id) && completion.result.is_ok() {
                    if self.early.len() >= EARLY {
                        // Those that never were given to it.
                        self.early.drain(..EARLY / 2);
                    }
                    self.early.push(*completion);
                }
                continue;
            };
            match completion.result {
                Err(_) if self.dying.contains(&at) => {}
                Err(_) => self.dying.push(at),
                Ok(success) if Inbox::has(completion.wr_id) => {
                    self.receive(at, completion.wr_id, &success);
                }
                Ok(_) => self.complete(at, completion.wr_id),
            }
        }
        count
    }

    fn complete(&mut self, at: usize, wr_id: u64) {
        let (done, spare) = (&mut self.done, &mut self.spare);
        self.all[at].complete(wr_id, |posted| {
            // What was given up is known to its connection as failed; another one may have its number.
            if !posted.is_silent && !posted.is_given_up {
                done.push(posted.wr_id);
            }
            if !matches!(posted.op, SendOp::SendImm(_))
                && let Some(buffer) = posted.inline.take()
            {
                keep(spare, buffer);
            }
        });
        self.give_or_fail(at);
    }

    /// Takes what arrived at a place.
    fn receive(&mut self, at: usize, wr_id: u64, success: &Success) {
        let shared_qp = &mut self.all[at];
        let names = (shared_qp.host, at, success.imm.unwrap_or(0));
        let what = (success.opcode == WcOpcode::RecvWriteImm, success.bytes);
        let (Some(inbox), Some(qp)) = (&shared_qp.inbox, &mut shared_qp.qp) else { return };
        let Some(arrived) = inbox.take(&mut **qp, wr_id, names, what) else {
            self.dying.push(at);
            return;
        };
        match arrived.message() {
            Some(Message::Credit { count }) => {
                let spare = &mut self.spare;
                shared_qp.credit(count, |buffer| keep(spare, buffer));
                self.give_or_fail(at);
            }
            _ => self.arrived.push(arrived),
        }
        if let Some(count) = self.all[at].note_taken() {
            self.say_now(at, NOBODY, 0, &Message::Credit { count });
            self.give_or_fail(at);
        }
    }

    /// Ends those that failed, when everything is known that they were done with and that arrived over them.
    fn bury(&mut self) {
        while let Some(at) = self.dying.first().copied() {
            if let Some(qp) = &mut self.all[at].qp {
                let _ = qp.modify(QpTransition::ToErr);
                while self.take_completions() > 0 {}
                let shared_qp = &mut self.all[at];
                shared_qp.fail(&mut self.unknown);
                self.gone.push((shared_qp.host, shared_qp.number));
            }
            self.dying.retain(|one| *one != at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Data;
    use catchment_verbs::RemoteAddr;

    fn chunk(wr_id: u64) -> Posted {
        let remote = RemoteAddr { addr: 0, rkey: 0 };
        Posted::new(wr_id, SendOp::Write(remote), Data::Inline(0))
    }

    #[test]
    fn chunks_of_a_failed_connection_are_not_done_again_and_those_of_others_are() {
        let mut shared_qps = SharedQps::new(None, false);
        let mut shared_qp = SharedQp::new(1, 2, false);
        shared_qp.queue = (0..6).map(chunk).collect();
        shared_qp.given = 3;
        shared_qps.all.push(shared_qp);
        let left = |shared_qps: &SharedQps| {
            shared_qps.all[0].queue.iter().map(|posted| posted.wr_id).collect::<Vec<_>>()
        };
        shared_qps.give_up(|wr_id| wr_id.is_multiple_of(2));
        assert_eq!(left(&shared_qps), [0, 1, 2, 3, 5], "the device has the first three");
        shared_qps.complete(0, 1);
        assert_eq!((&shared_qps.done[..], left(&shared_qps)), (&[1][..], vec![2, 3, 5]));
        shared_qps.all[0].fail(&mut Vec::new());
        assert_eq!(left(&shared_qps), [3, 5]);
    }
}
