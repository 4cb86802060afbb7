//! Hosts that send here: who is expected, who left, and what they offer.
use super::receiving::Heard;
use super::{Header, Host, MOST_MISSES, Offer, QUARTERS_TO_ANSWER, Round};

/// A host that sends here.
#[derive(Clone, Debug, Default)]
pub(super) struct Source {
    pub(super) incarnation: u32,
    /// Sequence of its newest offers, with entries or as before; 0 before the first with entries.
    taken: u64,
    change: u32,
    heard_at: u64,
    /// Whether it sent offers since the last answer, for which round, and how often in a row it did not.
    arrived: bool,
    round: Round,
    misses: u32,
    still: bool,
    /// Whether its rates are those of a host alone.
    alone: bool,
    /// Sequence of the last answers to it, and its offers since that did not know them.
    answered: u64,
    behind: u32,
}

impl Source {
    fn is_expected(&self) -> bool {
        self.arrived || (!self.still && self.misses <= MOST_MISSES)
    }

    /// Sequence of its newest offers, if what it offers is for steps.
    pub(super) fn steps_from(&self) -> Option<u64> {
        (self.taken > 0 && !self.alone).then_some(self.taken)
    }

    /// Whether an answer waits for it: who was still may be about to wake.
    fn is_awaited(&self, collecting: Round) -> bool {
        (!self.arrived || collecting.is_after(self.round)) && self.misses <= MOST_MISSES
    }
}

/// A host that sent here and left: what it sent before may still arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    incarnation: u32,
    /// Sequence of the offers by which it left.
    sequence: u64,
    at: u64,
}

/// Offers in a row that do not know the last answers, and are taken as lost.
const MOST_BEHIND: u32 = 2;
impl Host {
    pub(super) fn take_offers(&mut self, now: u64, from: u32, header: Header, offers: &[Offer]) {
        let known = self.sources.get(&from).map_or(0, |source| source.incarnation);
        if header.incarnation < known {
            self.counts.refused += 1;
            return;
        }
        if known == 0 && self.is_over(now, from, header, offers.is_empty() && !header.same) {
            return;
        }
        if header.incarnation > known {
            // Nothing that its former life sent can still be in force.
            self.forget_source(from);
            let new = Source { incarnation: header.incarnation, ..Source::default() };
            self.sources.insert(from, new);
        }
        let Some(source) = self.sources.get_mut(&from) else { return };
        if !header.same && header.sequence <= source.taken {
            return;
        }
        source.heard_at = now;
        if header.same && source.taken > 0 {
            // They say of what was taken that it holds: answers are to these, too.
            source.taken = source.taken.max(header.sequence);
        }
        if header.heard == self.config.incarnation {
            self.confirm(from, header.seen);
        }
        if header.same {
            self.answer_renewal(now, from, (header.sequence, header.seen));
            return;
        }
        let Some(source) = self.sources.get_mut(&from) else { return };
        let changes = source.taken == 0 || source.change != header.change;
        (source.taken, source.change) = (header.sequence, header.change);
        (source.arrived, source.still, source.alone) = (true, header.still, header.alone);
        // Who is a round ahead waits for the answers of its own; who is further was not here before.
        if header.round.is_after(self.collecting.next()) {
            self.collecting = header.round;
        }
        let knows = header.seen >= source.answered;
        // Who answers what was told last is in this round, and who tells of a change is not waited for once more.
        let least = if knows || changes { self.collecting } else { header.round };
        source.round = header.round.or_later(least);
        let is_late = self.collecting.is_after(source.round);
        // Offers that do not know the last answers would move prices twice for one cause.
        let knows = knows || source.behind >= MOST_BEHIND;
        source.behind = if knows { 0 } else { source.behind + 1 };
        let heard = Heard { knows, alone: header.alone, changes };
        self.incoming_take(now, from, heard, offers);
        if changes {
            self.begin_receiving();
        }
        self.awake |= !header.still;
        self.answer_at.get_or_insert_with(|| {
            let round = self.config.round_ns;
            let last =
                self.answered.map_or(0, |answered| answered + round * QUARTERS_TO_ANSWER / 4);
            (now + round).max(last)
        });
        if is_late {
            // Its round was answered without it; it goes on from these answers, and is waited for in this one.
            self.answer_without_entries(now, from, header.sequence, true);
        }
    }

    /// Whether offers of a host that is not known say nothing: it left after it sent them, or left and
    /// did not hear that this is known.
    fn is_over(&mut self, now: u64, from: u32, header: Header, leaves: bool) -> bool {
        let left = self.left.get(&from).is_some_and(|left| {
            (header.incarnation, header.sequence) <= (left.incarnation, left.sequence)
        });
        if !left && leaves {
            let incarnation = header.incarnation;
            let new = Left { incarnation, sequence: header.sequence, at: now };
            self.left.insert(from, new);
            let heard = self.answers_header(now, from, header.sequence);
            self.deliver(now, from, Header { heard: incarnation, ..heard }, Vec::new());
        }
        left || leaves
    }

    pub(super) fn confirm(&mut self, from: u32, sequence: u64) {
        for (_, edge) in self.incoming.range_mut((from, 0, 0)..=(from, u32::MAX, u32::MAX)) {
            edge.ledger.confirm(sequence);
        }
    }

    /// Answers a host whose offers are as they were: its lease goes on. If the last answers did not reach it, it gets
    /// them again: its grants may have been lowered, and must not go on.
    fn answer_renewal(&mut self, now: u64, to: u32, (seen, taken): (u64, u64)) {
        let source = self.sources.get(&to).filter(|source| source.taken > 0);
        // Who knows of no edge of it says so, instead.
        let known = source.is_some();
        if source.is_some_and(|source| source.answered > taken) {
            return self.reply_to(now, to, seen);
        }
        self.answer_without_entries(now, to, seen, known);
    }

    /// Answers offers with nothing new: `same` says that the last answers hold.
    fn answer_without_entries(&mut self, now: u64, to: u32, seen: u64, same: bool) {
        let header = Header { same, ..self.answers_header(now, to, seen) };
        self.deliver(now, to, header, Vec::new());
    }

    /// Notes that what goes to a host now are its last answers.
    pub(super) fn note_answered(&mut self, host: u32, sequence: u64) {
        if let Some(source) = self.sources.get_mut(&host) {
            source.answered = sequence;
        }
    }

    pub(super) fn answer_is_due(&self, now: u64) -> bool {
        let mut sources = self.sources.values();
        self.answer_at.is_some_and(|due| {
            let is_awaited = |source: &Source| source.is_awaited(self.collecting);
            let all = self.answered.is_some() && !sources.any(is_awaited);
            due <= now || all
        })
    }

    /// Counts who offered in time and who did not.
    pub(super) fn close_window(&mut self, now: u64) {
        let others = self.sources.iter().filter(|(host, _)| **host != self.config.host);
        let expected = others.filter(|(_, source)| source.is_expected());
        let arrived: Vec<bool> = expected.map(|(_, source)| source.arrived).collect();
        if arrived.contains(&true) {
            self.answered = Some(now);
        }
        let lost = arrived.iter().filter(|arrived| !**arrived).count();
        self.count_losses(arrived.len(), lost);
    }

    /// Expects the next offers of a host, to which the answers of `sequence` go; returns the sequence of
    /// the last.
    pub(super) fn open_window(&mut self, host: u32, sequence: u64) -> Option<u64> {
        let source = self.sources.get_mut(&host)?;
        source.misses = if source.arrived { 0 } else { source.misses + 1 };
        // Who was ahead has offered for this round, too.
        source.arrived &= !self.collecting.is_after(source.round);
        source.answered = sequence;
        Some(source.taken)
    }

    /// Notes that a host does not send here any more.
    pub(super) fn note_left(&mut self, now: u64, host: u32) {
        if let Some(Source { incarnation, taken: sequence, .. }) = self.sources.remove(&host) {
            self.left.insert(host, Left { incarnation, sequence, at: now });
        }
    }

    /// Forgets a host and what it was granted.
    pub(super) fn forget_source(&mut self, host: u32) {
        if self.sources.remove(&host).is_some() {
            self.incoming.retain(|key, _| key.0 != host);
            self.change += 1;
            self.begin_receiving();
        }
    }

    pub(super) fn source_expiries(&self) -> impl Iterator<Item = u64> + '_ {
        let two = 2 * self.config.lease_ns;
        self.sources.values().map(move |source| source.heard_at + two)
    }

    /// Forgets hosts that were not heard of for two leases: they take nothing any more.
    pub(super) fn expire_sources(&mut self, now: u64) {
        let two = 2 * self.config.lease_ns;
        let silent = self.sources.iter().filter(|(_, source)| now >= source.heard_at + two);
        let silent: Vec<u32> = silent.map(|(host, _)| *host).collect();
        silent.into_iter().for_each(|host| self.forget_source(host));
        self.left.retain(|_, left| now < left.at + two);
    }
}
