//! Queued answers, in the order of the requests.
//!
//! The queue is bounded: an acknowledgement replaces one right before it, which it covers; READs
//! and atomics are limited by the queue pair, their duplicates by [`MOST_REPEATED`].
use crate::Psn;
use crate::wire::Syndrome;
use std::collections::VecDeque;

/// Most repeated answers in the queue.
const MOST_REPEATED: usize = 256;

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Acknowledge { psn: Psn, syndrome: Syndrome, msn: u32 },
    Atomic { psn: Psn, before: u64, msn: u32, repeated: bool },
    Read { job: ReadJob, repeated: bool },
}

/// What is left of a READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadJob {
    /// PSN of the next response.
    pub(crate) psn: Psn,
    pub(crate) va: u64,
    pub(crate) rkey: u32,
    pub(crate) left: u32,
    /// A response was sent.
    pub(crate) begun: bool,
    pub(crate) msn: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    queue: VecDeque<Reply>,
    /// READs and atomics in the queue, without repeated ones.
    pub(crate) answers: usize,
    repeated: usize,
}

impl Replies {
    pub(crate) fn acknowledge(&mut self, psn: Psn, syndrome: Syndrome, msn: u32) {
        if let Some(Reply::Acknowledge { .. }) = self.queue.back() {
            self.queue.pop_back();
        }
        self.queue.push_back(Reply::Acknowledge { psn, syndrome, msn });
    }

    pub(crate) fn atomic(&mut self, psn: Psn, before: u64, msn: u32) {
        self.answers += 1;
        self.queue.push_back(Reply::Atomic { psn, before, msn, repeated: false });
    }

    pub(crate) fn read(&mut self, job: ReadJob) {
        self.answers += 1;
        self.queue.push_back(Reply::Read { job, repeated: false });
    }

    pub(crate) fn atomic_again(&mut self, psn: Psn, before: u64, msn: u32) {
        let waits = self
            .queue
            .iter()
            .any(|reply| matches!(reply, Reply::Atomic { psn: waiting, .. } if *waiting == psn));
        if waits || self.repeated >= MOST_REPEATED {
            return;
        }
        self.repeated += 1;
        self.queue.push_back(Reply::Atomic { psn, before, msn, repeated: true });
    }

    /// Answers a READ or a part of it again, unless a queued job covers it.
    pub(crate) fn read_again(&mut self, again: ReadJob) {
        let waits = self.queue.iter().any(|reply| match reply {
            Reply::Read { job, .. } => job.covers(&again),
            Reply::Acknowledge { .. } | Reply::Atomic { .. } => false,
        });
        if waits || self.repeated >= MOST_REPEATED {
            return;
        }
        self.repeated += 1;
        self.queue.push_back(Reply::Read { job: again, repeated: true });
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut Reply> {
        self.queue.front_mut()
    }

    pub(crate) fn pop(&mut self) {
        match self.queue.pop_front() {
            Some(Reply::Atomic { repeated, .. } | Reply::Read { repeated, .. }) => {
                self.answers -= usize::from(!repeated);
                self.repeated -= usize::from(repeated);
            }
            Some(Reply::Acknowledge { .. }) | None => {}
        }
    }

    /// Drops answers with data; NAKs still go out.
    pub(crate) fn keep_acknowledgements(&mut self) {
        self.queue.retain(|reply| matches!(reply, Reply::Acknowledge { .. }));
        self.answers = 0;
        self.repeated = 0;
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.queue.capacity() * size_of::<Reply>()
    }
}

impl ReadJob {
    /// Returns whether this job covers the other one.
    fn covers(&self, other: &Self) -> bool {
        let skipped = other.va.wrapping_sub(self.va);
        other.psn.distance_from(self.psn) >= 0
            && self.rkey == other.rkey
            && skipped
                .checked_add(u64::from(other.left))
                .is_some_and(|end| end <= u64::from(self.left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(psn: u32, va: u64, left: u32) -> ReadJob {
        ReadJob { psn: Psn::new(psn), va, rkey: 1, left, begun: false, msn: 0 }
    }

    #[test]
    fn an_acknowledgement_takes_the_place_of_the_one_before() {
        let mut replies = Replies::default();
        for psn in 0..1000 {
            replies.acknowledge(Psn::new(psn), Syndrome::ACK, 0);
        }
        assert_eq!(replies.queue.len(), 1);
        replies.read(job(1000, 0, 10));
        replies.acknowledge(Psn::new(1001), Syndrome::ACK, 0);
        assert_eq!(replies.queue.len(), 3);
    }

    #[test]
    fn a_duplicate_of_what_waits_is_not_answered_twice() {
        let mut replies = Replies::default();
        replies.read(job(10, 4096, 4096));
        replies.read_again(job(12, 4096 + 2048, 1024));
        assert_eq!(replies.queue.len(), 1);
        replies.read_again(job(9, 3072, 5120));
        assert_eq!(replies.queue.len(), 2);
    }

    #[test]
    fn duplicates_are_bounded() {
        let mut replies = Replies::default();
        for psn in 0..10_000 {
            replies.read_again(job(psn, 0, 10_000 - psn));
            replies.atomic_again(Psn::new(psn), 0, 0);
        }
        assert_eq!(replies.queue.len(), MOST_REPEATED);
        assert_eq!(replies.answers, 0);
        (0..MOST_REPEATED).for_each(|_| replies.pop());
        assert_eq!(replies.repeated, 0);
    }
}
