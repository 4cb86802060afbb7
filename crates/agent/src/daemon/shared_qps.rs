//! Shared queue pairs of the device, in the engine: each has the chunks of several connections in its hands, and is
//! done with them in order. What one that fails was not done with, the next one of its host does again.
use super::share::Buffer;
use crate::entry::Data;
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
    /// A WRITE or a READ: it may be done again.
    pub(super) op: SendOp,
    pub(super) data: Data,
    pub(super) inline: Option<Buffer>,
    pub(super) fence: bool,
    /// What follows it.
    then: Vec<Arc<Then>>,
}

impl Posted {
    /// Names it, a WRITE or a READ, in memory that is registered with the device of the shared queue pairs.
    #[must_use]
    pub fn new(wr_id: u64, op: SendOp, data: Data) -> Self {
        Self { wr_id, op, data, inline: None, fence: false, then: Vec::new() }
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
}

impl SharedQp {
    /// Gives what it has to the device; returns whether that failed.
    fn give(&mut self) -> bool {
        let Some(qp) = &mut self.qp else { return false };
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
        done.extend(self.queue.drain(..=at).map(|posted| posted.wr_id));
    }
}

/// The shared queue pairs of a device, by host: each has the chunks of several connections in its hands.
pub struct SharedQps {
    /// Of all of them; none where nothing is shared.
    cq: Option<Arc<dyn Cq>>,
    all: Vec<SharedQp>,
}

impl SharedQps {
    /// Begins without any; the completion queue is that of all of them.
    #[must_use]
    pub fn new(cq: Option<Arc<dyn Cq>>) -> Self {
        Self { cq, all: Vec::new() }
    }

    /// Asks for a notification of the next completion.
    pub(super) fn arm(&self) {
        if let Some(cq) = &self.cq {
            cq.req_notify(false);
        }
    }

    /// Returns the place of the least busy one of a host; `None` before there is any.
    pub fn place(&self, host: u32) -> Option<usize> {
        let works = |shared_qp: &SharedQp| shared_qp.host == host && shared_qp.qp.is_some();
        let places = self.all.iter().enumerate().filter(|(_, shared_qp)| works(shared_qp));
        places.min_by_key(|(_, shared_qp)| shared_qp.queue.len()).map(|(at, _)| at)
    }

    /// Puts a chunk behind those of its place. [`SharedQps::give`] follows.
    pub fn push(&mut self, at: usize, posted: Posted) {
        self.all[at].queue.push_back(posted);
    }

    /// Gives the device what waits at a place; returns host and number of one that failed.
    pub fn give(&mut self, at: usize) -> Option<(u32, u32)> {
        let shared_qp = self.all.get_mut(at)?;
        shared_qp.give().then(|| fail(shared_qp))
    }

    /// Uses one more of a host; first, in the place of one that is gone. Returns the place.
    pub fn add(&mut self, host: u32, number: u32, qp: Box<dyn Qp>) -> usize {
        let lacks = |shared_qp: &SharedQp| shared_qp.host == host && shared_qp.qp.is_none();
        let at = self.all.iter().position(lacks).unwrap_or(self.all.len());
        if at == self.all.len() {
            self.all.push(SharedQp { host, number, qp: None, queue: VecDeque::new(), given: 0 });
        }
        (self.all[at].number, self.all[at].qp) = (number, Some(qp));
        at
    }

    /// Ends one, whose chunks wait for the next.
    pub(super) fn lose(&mut self, host: u32, number: u32) {
        let mut known = self.all.iter_mut().filter(|shared_qp| shared_qp.qp.is_some());
        if let Some(shared_qp) =
            known.find(|shared_qp| (shared_qp.host, shared_qp.number) == (host, number))
        {
            fail(shared_qp);
        }
    }

    /// Returns host and number of the one that has this number at the device.
    pub(super) fn find(&self, qpn: u32) -> Option<(u32, u32)> {
        let is_it = |shared_qp: &&SharedQp| shared_qp.qp.as_ref().is_some_and(|qp| qp.qpn() == qpn);
        self.all.iter().find(is_it).map(|shared_qp| (shared_qp.host, shared_qp.number))
    }

    /// Ends all of a host, with what they had. Places stay: their numbers are known.
    pub(super) fn forget(&mut self, host: u32) {
        for shared_qp in self.all.iter_mut().filter(|shared_qp| shared_qp.host == host) {
            fail(shared_qp);
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
                failed.push(fail(shared_qp));
                continue;
            }
            shared_qp.complete(completion.wr_id, done);
            if shared_qp.give() {
                failed.push(fail(shared_qp));
            }
        }
        count > 0
    }
}

/// Ends a queue pair. What it was not done with waits.
fn fail(shared_qp: &mut SharedQp) -> (u32, u32) {
    (shared_qp.qp, shared_qp.given) = (None, 0);
    (shared_qp.host, shared_qp.number)
}
