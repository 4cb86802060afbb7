//! A one-way link: a queue, a transmitter, and a wire with faults.
//!
//! An offered frame is first checked against the MTU and the room in the queue. The transmitter
//! sends frames one by one at the link's rate. Faults happen on the wire, after transmission, so a
//! lost frame still takes its transmission time.
mod config;
#[cfg(test)]
mod tests;

pub(crate) use config::{BurstLength, Corruption, Delay, LinkConfig, Loss};

use crate::{Frame, Random};
use config::Losses;
use std::collections::VecDeque;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Link {
    config: LinkConfig,
    losses: Losses,
    random: Random,
    /// When each frame that is queued or being sent has left, and its length.
    queue: VecDeque<(Duration, usize)>,
    queue_bytes: usize,
    /// When the transmitter becomes idle.
    busy_until: Duration,
    /// By how much earlier it is idle in truth, in nanoseconds times the rate.
    rounded: u128,
    pub(crate) counters: LinkCounters,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) at: Duration,
    pub(crate) frame: Frame,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Carried {
        /// It arrives late.
        held_back: bool,
        doubled: bool,
        corrupted: bool,
        /// It is marked as CE.
        marked: bool,
    },
    /// Lost on the wire.
    Lost,
    /// The queue was full.
    QueueFull,
    /// Longer than the MTU.
    TooLong,
}

/// What a link has done so far, in frames unless stated otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LinkCounters {
    /// Put on the wire.
    pub(crate) sent: u64,
    /// Bytes put on the wire.
    pub(crate) sent_bytes: u64,
    pub(crate) lost: u64,
    pub(crate) held_back: u64,
    pub(crate) doubled: u64,
    pub(crate) corrupted: u64,
    /// Marked as CE.
    pub(crate) marked: u64,
    pub(crate) queue_full: u64,
    /// Of these, urgent ones.
    pub(crate) queue_full_urgent: u64,
    pub(crate) too_long: u64,
}

impl Link {
    pub(crate) fn new(config: LinkConfig, random: Random) -> Self {
        Self {
            losses: Losses::new(config.loss.clone()),
            config,
            random,
            queue: VecDeque::new(),
            queue_bytes: 0,
            busy_until: Duration::ZERO,
            rounded: 0,
            counters: LinkCounters::default(),
        }
    }

    /// Changes the configuration; frames offered before are not affected.
    pub(crate) fn reconfigure(&mut self, config: LinkConfig) {
        self.losses = Losses::new(config.loss.clone());
        self.config = config;
        self.rounded = 0;
    }

    /// Takes a frame at `now`, which never goes back, and adds the resulting arrivals.
    pub(crate) fn offer(
        &mut self,
        now: Duration,
        mut frame: Frame,
        arrivals: &mut Vec<Arrival>,
    ) -> Fate {
        let bytes = frame.len();
        if self.config.mtu.is_some_and(|mtu| bytes > mtu) {
            self.counters.too_long += 1;
            return Fate::TooLong;
        }
        let queued = self.backlog_bytes(now);
        if self.config.queue_bytes.is_some_and(|most| queued + bytes > most) {
            self.counters.queue_full += 1;
            self.counters.queue_full_urgent += u64::from(frame.is_urgent());
            return Fate::QueueFull;
        }
        let marks = self.config.mark_above.is_some_and(|most| queued > most);
        let marked = marks && frame.mark();
        self.counters.marked += u64::from(marked);
        let sent = self.transmit(now, bytes);
        self.carry(sent + self.config.delay, (frame, marked), arrivals)
    }

    /// Returns the bytes queued or being sent; the frame being sent counts whole.
    pub(crate) fn backlog_bytes(&mut self, now: Duration) -> usize {
        while let Some(&(leaves, bytes)) = self.queue.front() {
            if leaves > now {
                break;
            }
            self.queue_bytes -= bytes;
            self.queue.pop_front();
        }
        self.queue_bytes
    }

    /// Returns when at most `bytes` are queued or being sent, if nothing else is offered.
    pub(crate) fn drained_to(&self, bytes: usize) -> Duration {
        let mut left = self.queue_bytes;
        for &(leaves, frame_bytes) in &self.queue {
            left -= frame_bytes;
            if left <= bytes {
                return leaves;
            }
        }
        Duration::ZERO
    }

    /// Queues `bytes` and returns when the last of them has left.
    fn transmit(&mut self, now: Duration, bytes: usize) -> Duration {
        // Frames that follow each other take what they take in all, rounded up once.
        let before = if now <= self.busy_until { self.rounded } else { 0 };
        let (took, rounded) = self.config.transmit_time_after(bytes, before);
        (self.busy_until, self.rounded) = (self.busy_until.max(now) + took, rounded);
        self.queue.push_back((self.busy_until, bytes));
        self.queue_bytes += bytes;
        self.counters.sent += 1;
        self.counters.sent_bytes += bytes as u64;
        self.busy_until
    }

    /// Applies the wire's faults to a frame that would arrive `at` this time.
    fn carry(
        &mut self,
        at: Duration,
        (mut frame, marked): (Frame, bool),
        arrivals: &mut Vec<Arrival>,
    ) -> Fate {
        if self.losses.next(&mut self.random) {
            self.counters.lost += 1;
            return Fate::Lost;
        }
        let twin = self.delay(self.config.duplicate);
        let held_back = self.delay(self.config.reorder);
        let at = at + held_back.unwrap_or_default();
        if let Some(later) = twin {
            self.counters.doubled += 1;
            arrivals.push(Arrival { at: at + later, frame: frame.clone() });
        }
        let corrupted = self.corrupt(&mut frame);
        self.counters.held_back += u64::from(held_back.is_some());
        self.counters.corrupted += u64::from(corrupted);
        arrivals.push(Arrival { at, frame });
        Fate::Carried { held_back: held_back.is_some(), doubled: twin.is_some(), corrupted, marked }
    }

    fn delay(&mut self, delay: Delay) -> Option<Duration> {
        let drawn = self.random.happens(delay.chance);
        drawn.then(|| self.random.time_up_to(delay.most))
    }

    /// Inverts distinct bits, by chance; returns whether it did.
    fn corrupt(&mut self, frame: &mut Frame) -> bool {
        let Corruption { chance, bits_most } = self.config.corrupt;
        let bits = frame.len() * 8;
        if bits == 0 || !self.random.happens(chance) {
            return false;
        }
        let count = self.random.between(1, u64::from(bits_most)).min(bits as u64);
        let first = self.random.index(bits);
        frame.flip(first);
        let mut flipped = vec![first];
        while (flipped.len() as u64) < count {
            let bit = self.random.index(bits);
            if !flipped.contains(&bit) {
                frame.flip(bit);
                flipped.push(bit);
            }
        }
        true
    }
}
