//! Shared queue pairs of the device, in the engine: each has the chunks of several connections in its hands, and is
//! done with them in order. What one that fails was not done with, the next one of its host does again.
use super::share::Buffer;
use crate::entry::Data;
use catchment_verbs::sync::Mutex;
use catchment_verbs::{Completion, Cq, Payload, Qp, QpTransition, SendOp, SendWr};
use std::collections::VecDeque;
use std::sync::Arc;

/// Chunks of one in the device's hands.
pub(super) const CHUNKS: u32 = 512;
/// Chunks that are given to the device in one go, and completions taken.
const BATCH: usize = 16;

/// What is done when the device is done with everything that it was given before.
struct Then(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Drop for Then {
    fn drop(&mut self) {
        if let Some(what) = self.0.take() {
            what();
        }
    }
}

/// A chunk, as shared queue pairs do it.
pub struct Posted {
    /// Names the connection and the chunk.
    pub(super) wr_id: u64,
    /// A WRITE or a READ may be done again, an atomic may not.
    pub(super) op: SendOp,
    pub(super) data: Data,
    pub(super) inline: Option<Buffer>,
    pub(super) fence: bool,
    /// Its connection has failed: it is not done again.
    is_given_up: bool,
    /// What follows it.
    then: Vec<Arc<Then>>,
}

impl Posted {
    /// Names it, a WRITE, a READ or an atomic, in memory that is registered with the device of the shared queue pairs.
    #[must_use]
    pub fn new(wr_id: u64, op: SendOp, data: Data) -> Self {
        Self { wr_id, op, data, inline: None, fence: false, is_given_up: false, then: Vec::new() }
    }

    fn request(&self, signaled: bool) -> SendWr<'_> {
        let payload = match (&self.data, &self.inline) {
            (Data::Inline(count), Some(bytes)) => Payload::Inline(&bytes[..usize::from(*count)]),
            (Data::Inline(_), None) => Payload::Inline(&[]),
            (Data::Elements(..), _) => Payload::Sges(self.data.elements()),
        };
        let (wr_id, op, fence) = (self.wr_id, self.op, self.fence);
        SendWr { wr_id, op, payload, signaled, fence, solicited: false }
    }
}

/// A shared queue pair, or the place of one that is to come.
struct SharedQp {
    host: u32,
    number: u32,
    qp: Option<Box<dyn Qp>>,
    /// The first of them are in the device's hands.
    queue: VecDeque<Posted>,
    given: usize,
    /// Of SHARE, where threads post on it. One thread does here, so it costs what a lock costs that is free.
    lock: Option<Mutex<()>>,
}

impl SharedQp {
    /// Gives what it has to the device; returns whether that failed.
    fn give(&mut self) -> bool {
        let Some(qp) = &mut self.qp else { return false };
        let _held = self.lock.as_ref().map(Mutex::lock);
        loop {
            let waiting = self.queue.len() - self.given;
            let count = waiting.min(CHUNKS as usize - self.given).min(BATCH);
            if count == 0 {
                return false;
            }
            let mut requests = [SendWr::new(0, SendOp::Send, Payload::Sges(&[])); BATCH];
            let next = self.queue.range(self.given..self.given + count);
            for (at, (request, posted)) in requests.iter_mut().zip(next).enumerate() {
                *request = posted.request(at + 1 == count);
            }
            if qp.post_send(&requests[..count]).is_err() {
                return true;
            }
            self.given += count;
        }
    }

    /// Notes that the device is done with a chunk, and with those before it.
    fn complete(&mut self, wr_id: u64, done: &mut Vec<u64>) {
        let mut given = self.queue.iter().take(self.given);
        let Some(at) = given.position(|posted| posted.wr_id == wr_id) else { return };
        self.given -= at + 1;
        // What was given up is known to its connection as failed; another one may have its number.
        let known = self.queue.drain(..=at).filter(|posted| !posted.is_given_up);
        done.extend(known.map(|posted| posted.wr_id));
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
}

impl SharedQps {
    /// Begins without any; the completion queue is that of all of them. With `has_groups` each has a lock, and each
    /// connection always uses the same one (SHARE).
    #[must_use]
    pub fn new(cq: Option<Arc<dyn Cq>>, has_groups: bool) -> Self {
        Self { cq, all: Vec::new(), has_groups, unknown: Vec::new() }
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

    /// Gives the device what waits at a place; returns host and number of one that failed.
    pub fn give(&mut self, at: usize) -> Option<(u32, u32)> {
        let shared_qp = self.all.get_mut(at)?;
        shared_qp.give().then(|| fail(shared_qp, &mut self.unknown))
    }

    /// Uses one more of a host; first, in the place of one that is gone. Returns the place.
    pub fn add(&mut self, host: u32, number: u32, qp: Box<dyn Qp>) -> usize {
        let lacks = |shared_qp: &SharedQp| shared_qp.host == host && shared_qp.qp.is_none();
        let at = self.all.iter().position(lacks).unwrap_or(self.all.len());
        if at == self.all.len() {
            let lock = self.has_groups.then(Mutex::default);
            let queue = VecDeque::new();
            self.all.push(SharedQp { host, number, qp: None, queue, given: 0, lock });
        }
        (self.all[at].number, self.all[at].qp) = (number, Some(qp));
        at
    }

    /// Takes the atomics of which it is not known whether the peer did them.
    pub(super) fn take_unknown(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.unknown)
    }

    /// Ends one, whose chunks wait for the next.
    pub(super) fn lose(&mut self, host: u32, number: u32) {
        let mut known = self.all.iter_mut().filter(|shared_qp| shared_qp.qp.is_some());
        if let Some(shared_qp) =
            known.find(|shared_qp| (shared_qp.host, shared_qp.number) == (host, number))
        {
            fail(shared_qp, &mut self.unknown);
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
        }
    }

    /// Ends all of a host, with what they had. Places stay: their numbers are known.
    pub(super) fn forget(&mut self, host: u32) {
        for shared_qp in self.all.iter_mut().filter(|shared_qp| shared_qp.host == host) {
            // All of their connections end.
            fail(shared_qp, &mut Vec::new());
            shared_qp.queue.clear();
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
        let then = Arc::new(Then(Some(Box::new(what))));
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
        let Some(cq) = &self.cq else { return false };
        if self.all.iter().all(|shared_qp| shared_qp.given == 0) {
            return false;
        }
        let mut out = [Completion::EMPTY; BATCH];
        let count = cq.poll(&mut out).unwrap_or(0);
        for completion in &out[..count] {
            let is_it = |shared_qp: &SharedQp| {
                shared_qp.qp.as_ref().is_some_and(|qp| qp.qpn() == completion.qpn)
            };
            let Some(at) = self.all.iter().position(is_it) else { continue };
            let shared_qp = &mut self.all[at];
            if completion.result.is_err() {
                failed.push(fail(shared_qp, &mut self.unknown));
                continue;
            }
            shared_qp.complete(completion.wr_id, done);
            if shared_qp.give() {
                failed.push(fail(shared_qp, &mut self.unknown));
            }
        }
        count > 0
    }
}

/// Ends a queue pair. What it was not done with waits; the atomics among that are noted.
fn fail(shared_qp: &mut SharedQp, unknown: &mut Vec<u64>) -> (u32, u32) {
    let given = shared_qp.queue.iter().take(shared_qp.given);
    unknown.extend(given.filter(|posted| is_atomic(&posted.op)).map(|posted| posted.wr_id));
    (shared_qp.qp, shared_qp.given) = (None, 0);
    shared_qp.queue.retain(|posted| !posted.is_given_up);
    (shared_qp.host, shared_qp.number)
}

/// Returns whether an operation must not be done twice.
pub(super) fn is_atomic(op: &SendOp) -> bool {
    matches!(op, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use catchment_verbs::RemoteAddr;

    fn chunk(wr_id: u64) -> Posted {
        let remote = RemoteAddr { addr: 0, rkey: 0 };
        Posted::new(wr_id, SendOp::Write(remote), Data::Inline(0))
    }

    #[test]
    fn chunks_of_a_failed_connection_are_not_done_again_and_those_of_others_are() {
        let mut shared_qps = SharedQps::new(None, false);
        let queue = (0..6).map(chunk).collect();
        let shared_qp = SharedQp { host: 1, number: 2, qp: None, queue, given: 3, lock: None };
        shared_qps.all.push(shared_qp);
        let left = |shared_qps: &SharedQps| {
            shared_qps.all[0].queue.iter().map(|posted| posted.wr_id).collect::<Vec<_>>()
        };
        shared_qps.give_up(|wr_id| wr_id.is_multiple_of(2));
        assert_eq!(left(&shared_qps), [0, 1, 2, 3, 5], "the device has the first three");
        let mut done = Vec::new();
        shared_qps.all[0].complete(1, &mut done);
        assert_eq!((done, left(&shared_qps)), (vec![1], vec![2, 3, 5]), "nobody knows of 0");
        fail(&mut shared_qps.all[0], &mut Vec::new());
        assert_eq!(left(&shared_qps), [3, 5]);
    }
}
