//! One shared queue pair: the chunks of several connections in order, and what of them the device has.
use super::inbox::{INBOX, Inbox};
use super::share::Buffer;
use crate::entry::{Data, MAX_INLINE_BYTES};
use crate::inband::{Message, Told};
use catchment_verbs::sync::Mutex;
use catchment_verbs::{Payload, Qp, RemoteAddr, SendOp, SendWr};
use std::collections::VecDeque;
use std::sync::Arc;

/// Chunks of one in the device's hands.
pub(super) const CHUNKS: u32 = 512;
/// Chunks that are given to the device in one go.
const BATCH: usize = 16;
/// Receives of the other agent that are kept for credits: without them, neither might go on.
const RESERVE: u32 = 16;

/// What is done when the device is done with everything that it was given before.
pub(super) struct Then(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Then {
    pub(super) fn new(what: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(what)))
    }
}

impl Drop for Then {
    fn drop(&mut self) {
        if let Some(what) = self.0.take() {
            what();
        }
    }
}

/// A chunk, or a part of one, as shared queue pairs do it; or an in-band message.
pub struct Posted {
    /// Names the connection and the chunk.
    pub(super) wr_id: u64,
    /// A WRITE or a READ may be done again, an atomic may not.
    pub(super) op: SendOp,
    pub(super) data: Data,
    pub(super) inline: Option<Buffer>,
    pub(super) fence: bool,
    /// Nobody is told when it is done.
    pub(super) is_silent: bool,
    /// It goes before what waits to know how far the peer got.
    pub(super) is_urgent: bool,
    /// The application's message that the peer takes with it, and the connection's queue pair.
    pub(super) message: Option<(u32, Told)>,
    /// A queue pair that failed had it in its hands.
    pub(super) maybe_done: bool,
    /// Its connection has failed: it is not done again.
    pub(super) is_given_up: bool,
    /// What follows it.
    pub(super) then: Vec<Arc<Then>>,
}

impl Posted {
    /// Names it, a WRITE, a READ or an atomic, in memory that is registered with the device of the shared queue pairs.
    #[must_use]
    pub fn new(wr_id: u64, op: SendOp, data: Data) -> Self {
        Self {
            wr_id,
            op,
            data,
            inline: None,
            fence: false,
            is_silent: false,
            is_urgent: false,
            message: None,
            maybe_done: false,
            is_given_up: false,
            then: Vec::new(),
        }
    }

    /// Takes it out, and leaves one that does nothing.
    fn take(&mut self) -> Self {
        let nothing = Self::new(0, SendOp::Write(RemoteAddr::default()), Data::Inline(0));
        std::mem::replace(self, nothing)
    }

    /// An in-band message about a connection, to the one that has this number at the peer.
    pub(super) fn message(base: u64, to: u32, message: &Message<'_>, mut buffer: Buffer) -> Self {
        let bytes = message.encode(&mut buffer);
        let data = Data::Inline(bytes as u16);
        let inline = Some(buffer);
        Self { inline, is_silent: true, ..Self::new(base, SendOp::SendImm(to), data) }
    }

    fn request(&self, wr_id: u64, signaled: bool) -> SendWr<'_> {
        let payload = match (&self.data, &self.inline) {
            (Data::Inline(count), Some(bytes)) => Payload::Inline(&bytes[..usize::from(*count)]),
            (Data::Inline(_), None) => Payload::Inline(&[]),
            (Data::Elements(..), _) => Payload::Sges(self.data.elements()),
        };
        let (op, fence) = (self.op, self.fence);
        SendWr { wr_id, op, payload, signaled, fence, solicited: false }
    }

    /// Returns whether it takes one of the receives of the other agent.
    fn takes_receive(&self) -> bool {
        matches!(self.op, SendOp::SendImm(_) | SendOp::WriteImm(..))
    }

    /// Makes it tell of a message that is where it belongs: the device is done with it, but the other agent may not
    /// know.
    fn tell_again(mut self) -> Self {
        if let (SendOp::WriteImm(_, to), Some((from, told))) = (self.op, self.message) {
            let buffer = self.inline.take().unwrap_or_else(|| Box::new([0; MAX_INLINE_BYTES]));
            let again =
                Self::message(self.wr_id, to, &Message::Done { from, told, numbers: None }, buffer);
            self = Self { message: self.message, ..again };
        }
        (self.is_silent, self.maybe_done) = (true, true);
        self
    }

    /// Makes it do nothing, in its turn: the peer has it.
    fn make_nothing(&mut self) {
        self.op = SendOp::Write(RemoteAddr::default());
        (self.data, self.fence, self.message) = (Data::Inline(0), false, None);
    }
}

/// Returns whether an operation must not be done twice.
pub(super) fn is_atomic(op: &SendOp) -> bool {
    matches!(op, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. })
}

/// In-band messages since the queue pair began, both ways.
#[derive(Default)]
struct Counts {
    sent: u32,
    /// Of these, the device is done with.
    done: u32,
    /// Of these, known to be taken by the other agent.
    credited: u32,
    taken: u32,
    /// Of these, known to the other agent.
    told: u32,
}

/// A shared queue pair, or the place of one that is to come.
pub(super) struct SharedQp {
    pub(super) host: u32,
    pub(super) number: u32,
    pub(super) qp: Option<Box<dyn Qp>>,
    /// It had none yet, or both ends of the last one are gone: nothing of that arrives any more.
    pub(super) is_free: bool,
    /// The first of them are in the device's hands.
    pub(super) queue: VecDeque<Posted>,
    pub(super) given: usize,
    /// Of SHARE, where threads post on it. One thread does here, so it costs what a lock costs that is free.
    lock: Option<Mutex<()>>,
    /// What the device was done with before the first of the queue.
    done: u64,
    pub(super) inbox: Option<Inbox>,
    counts: Counts,
    /// In-band messages that the device is done with, and of which it is not known that the other agent took them.
    unsure: VecDeque<Option<Posted>>,
    /// Connections that wait to know how far the peer got.
    asked: Vec<u64>,
}

impl SharedQp {
    pub(super) fn new(host: u32, number: u32, has_lock: bool) -> Self {
        Self {
            host,
            number,
            qp: None,
            is_free: true,
            queue: VecDeque::new(),
            given: 0,
            lock: has_lock.then(Mutex::default),
            done: 0,
            inbox: None,
            counts: Counts::default(),
            unsure: VecDeque::new(),
            asked: Vec::new(),
        }
    }

    /// Returns whether the next one can be given to the device, after `more` in-band messages.
    fn may_give(&self, posted: &Posted, more: u32) -> bool {
        if !posted.is_urgent && !self.asked.is_empty() {
            return false;
        }
        let reserve = if posted.is_urgent { 0 } else { RESERVE };
        let under_way = self.counts.sent.wrapping_sub(self.counts.credited) + more;
        !posted.takes_receive() || under_way < INBOX - reserve
    }

    /// Gives what it has to the device; returns whether that failed.
    pub(super) fn give(&mut self) -> bool {
        let Some(mut qp) = self.qp.take() else { return false };
        let failed = self.give_to(&mut *qp);
        self.qp = Some(qp);
        failed
    }

    fn give_to(&mut self, qp: &mut dyn Qp) -> bool {
        let _held = self.lock.as_ref().map(Mutex::lock);
        loop {
            let most = (CHUNKS as usize - self.given).min(BATCH);
            let mut requests = [SendWr::new(0, SendOp::Send, Payload::Sges(&[])); BATCH];
            let (mut count, mut messages) = (0, 0);
            for posted in self.queue.range(self.given..).take(most) {
                if !self.may_give(posted, messages) {
                    break;
                }
                messages += u32::from(posted.takes_receive());
                let wr_id = self.done + (self.given + count) as u64;
                requests[count] = posted.request(wr_id, false);
                count += 1;
            }
            let Some(last) = count.checked_sub(1) else { return false };
            requests[last].signaled = true;
            if let Err(error) = qp.post_send(&requests[..count]) {
                // The peer may have taken those before the one that was refused.
                self.given += error.index;
                return true;
            }
            self.counts.sent = self.counts.sent.wrapping_add(messages);
            self.given += count;
        }
    }

    /// Notes that the device is done with a chunk, and with those before it: these leave the queue.
    pub(super) fn complete(&mut self, wr_id: u64, mut each: impl FnMut(&mut Posted)) {
        let count = wr_id.wrapping_sub(self.done) + 1;
        if count > self.given as u64 {
            return;
        }
        (self.given, self.done) = (self.given - count as usize, self.done + count);
        // In place: an entry is long, and few of them stay.
        for posted in self.queue.range_mut(..count as usize) {
            each(posted);
            if posted.takes_receive() {
                self.counts.done = self.counts.done.wrapping_add(1);
                if self.counts.credited.wrapping_sub(self.counts.done) >= 1 << 31 {
                    let stays = !posted.is_urgent && !posted.is_given_up;
                    posted.then = Vec::new();
                    self.unsure.push_back(stays.then(|| posted.take()));
                }
            }
        }
        // What follows them is done now.
        self.queue.drain(..count as usize);
    }

    /// Puts an in-band message before everything that the device does not have.
    pub(super) fn push_urgent(&mut self, posted: Posted) {
        self.queue.insert(self.given, Posted { is_urgent: true, ..posted });
    }

    /// Begins with a queue pair. What another one was not done with comes first, as soon as it is known of which
    /// messages the peer has taken. Returns the connections to ask about.
    pub(super) fn begin(&mut self, number: u32, qp: Box<dyn Qp>, inbox: Option<Inbox>) -> &[u64] {
        (self.number, self.qp, self.inbox, self.is_free) = (number, Some(qp), inbox, false);
        self.counts = Counts::default();
        self.unsure.clear();
        self.asked.clear();
        for posted in &self.queue {
            let base = posted.wr_id >> 32 << 32;
            let is_asked = posted.maybe_done && posted.message.is_some();
            if is_asked && !self.asked.contains(&base) {
                self.asked.push(base);
            }
        }
        &self.asked
    }

    /// The peer has taken the messages of a connection up to this one, and with them everything that goes before in
    /// its memory: it is not done again, since the peer's application may use that memory otherwise now.
    pub(super) fn taken(&mut self, base: u64, count: u32) {
        self.asked.retain(|asked| *asked != base);
        let is_one = |posted: &Posted| posted.wr_id >> 32 << 32 == base;
        let has_it = |number: u32| count.wrapping_sub(number).wrapping_sub(1) < 1 << 31;
        let taken = |posted: &Posted| {
            is_one(posted) && posted.message.is_some_and(|(_, told)| has_it(told.number))
        };
        let Some(last) = self.queue.iter().rposition(taken) else { return };
        for posted in self.queue.range_mut(..=last).filter(|posted| is_one(posted)) {
            if !posted.op.is_read() && !is_atomic(&posted.op) && !is_news(posted) {
                posted.make_nothing();
            }
        }
    }

    /// Nobody waits to know how far the peer got with a connection that ended, nor is its peer told of anything again.
    pub(super) fn forget(&mut self, of: impl Fn(u64) -> bool) {
        self.asked.retain(|base| !of(*base));
        for posted in &mut self.unsure {
            *posted = posted.take().filter(|posted| !of(posted.wr_id));
        }
    }

    pub(super) fn forget_asked(&mut self, base: u64) {
        self.asked.retain(|one| *one != base);
    }

    /// Notes an in-band message of the other agent; returns how many were taken when it is time to tell.
    pub(super) fn note_taken(&mut self) -> Option<u32> {
        let counts = &mut self.counts;
        counts.taken = counts.taken.wrapping_add(1);
        if counts.taken.wrapping_sub(counts.told) < INBOX / 4 {
            return None;
        }
        counts.told = counts.taken;
        Some(counts.taken)
    }

    /// The other agent has taken so many in-band messages.
    pub(super) fn credit(&mut self, taken: u32, spare: impl FnMut(Buffer)) {
        let counts = &mut self.counts;
        if counts.sent.wrapping_sub(taken) > counts.sent.wrapping_sub(counts.credited) {
            return;
        }
        counts.credited = taken;
        // Those that the device is not known to be done with are not among them.
        let stay = counts.done.wrapping_sub(taken);
        let stay = if stay >= 1 << 31 { 0 } else { stay as usize };
        let gone = self.unsure.len().saturating_sub(stay);
        self.unsure.drain(..gone).flatten().filter_map(|posted| posted.inline).for_each(spare);
    }

    /// Ends the queue pair. What it was not done with waits; the atomics among that are noted.
    pub(super) fn fail(&mut self, unknown: &mut Vec<u64>) {
        for posted in self.queue.iter_mut().take(self.given) {
            posted.maybe_done = true;
            if is_atomic(&posted.op) {
                unknown.push(posted.wr_id);
            }
        }
        (self.qp, self.inbox, self.given) = (None, None, 0);
        self.asked.clear();
        while let Some(posted) = self.unsure.pop_back() {
            if let Some(posted) = posted {
                self.queue.push_front(posted.tell_again());
            }
        }
        let mut then = Vec::new();
        self.queue.retain_mut(|posted| {
            let stays = !posted.is_given_up && !posted.is_urgent;
            if !stays {
                then.append(&mut posted.then);
            }
            stays
        });
        // Later than it must be, not earlier.
        if let Some(last) = self.queue.back_mut() {
            last.then.append(&mut then);
        }
    }
}

/// Returns whether it tells the other agent of something else than a message of the application.
fn is_news(posted: &Posted) -> bool {
    posted.is_silent && posted.message.is_none() && matches!(posted.op, SendOp::SendImm(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(connection: u64, number: u64) -> Posted {
        let op = SendOp::Write(RemoteAddr { addr: 9, rkey: 9 });
        Posted::new(connection << 32 | number, op, Data::Inline(0))
    }

    fn message(connection: u64, number: u64, message: u32) -> Posted {
        let op = SendOp::WriteImm(RemoteAddr { addr: 9, rkey: 9 }, 0);
        let told = Told { number: message, is_send: true, bytes: 0, imm: None };
        let message = Some((1, told));
        Posted { message, ..Posted::new(connection << 32 | number, op, Data::Inline(0)) }
    }

    fn failed_with(queue: Vec<Posted>, given: usize) -> SharedQp {
        let mut shared_qp = SharedQp::new(1, 2, false);
        (shared_qp.queue, shared_qp.given) = (queue.into(), given);
        shared_qp.fail(&mut Vec::new());
        shared_qp
    }

    fn asked(shared_qp: &SharedQp) -> Vec<u64> {
        let all = shared_qp.queue.iter().filter(|posted| posted.maybe_done);
        all.filter(|posted| posted.message.is_some()).map(|posted| posted.wr_id >> 32).collect()
    }

    /// What goes before a message that the peer has taken is not written again: the peer's application may have
    /// given that memory another use. READs are, which have brought nothing.
    #[test]
    fn nothing_that_a_peer_has_taken_is_written_again() {
        let read = SendOp::Read(RemoteAddr { addr: 9, rkey: 9 });
        let mut queue = vec![chunk(1, 0), chunk(2, 0), message(1, 1, u32::MAX), message(2, 1, 4)];
        queue.push(Posted::new(1 << 32 | 2, read, Data::Inline(0)));
        queue.extend([message(1, 3, 0), chunk(1, 4), message(1, 5, 1)]);
        let mut shared_qp = failed_with(queue, 7);
        assert_eq!(asked(&shared_qp), [1, 2, 1]);
        shared_qp.taken(1 << 32, 1);
        let again = |posted: &&Posted| posted.op != SendOp::Write(RemoteAddr::default());
        let again: Vec<u64> = shared_qp.queue.iter().filter(again).map(|one| one.wr_id).collect();
        let of = |connection: u64, number: u64| connection << 32 | number;
        assert_eq!(again, [of(2, 0), of(2, 1), of(1, 2), of(1, 4), of(1, 5)]);
        assert_eq!(shared_qp.queue.len(), 8, "each has its turn");
        shared_qp.taken(2 << 32, 4);
        assert_eq!(asked(&shared_qp), [2], "the peer has not taken it");
    }
}
