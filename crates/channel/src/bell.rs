//! Who wakes whom where no device tells of a WRITE ([`crate::Mode::Write`]). `docs/spec/tunnel.md` describes it.
//!
//! An end says that it sleeps, and what it has seen. Whoever has written more, then or later, rings. Both are notices,
//! which the device of the other end tells of; so no WRITE stays unseen, and an end that is awake costs nothing.
use crate::PeerFault;

/// The immediate of a ring, and what that of a sleep has beside its number.
const RING: u32 = 0;
const SLEEP: u32 = 1 << 31;

/// What an end knows of who sleeps.
#[derive(Debug)]
pub(crate) struct Bell {
    /// WRITEs that a notice may leave out: messages and releases of them, a window of each that was under way, and one of each
    /// that went to a peer which did not sleep in the end, before this end took its notice.
    most_unseen: u32,
    /// This end said that it sleeps, and was not rung since.
    told: bool,
    /// The peer sleeps, and has seen everything.
    peer_sleeps: bool,
    /// The peer is to be rung.
    is_ring_due: bool,
}

impl Bell {
    /// Begins with both awake. `blocks`: slots of each end.
    pub(crate) const fn new(blocks: u32) -> Self {
        Self { most_unseen: 4 * blocks, told: false, peer_sleeps: false, is_ring_due: false }
    }

    /// Takes a notice of the peer. `written`: messages sent, plus the last count of releases.
    ///
    /// # Errors
    /// [`PeerFault::Immediate`] for a notice that cannot be now.
    pub(crate) fn hear(&mut self, imm: u32, written: u64) -> Result<(), PeerFault> {
        if imm == RING {
            let told = std::mem::take(&mut self.told);
            return if told { Ok(()) } else { Err(PeerFault::Immediate(imm)) };
        }
        let unseen = (written as u32).wrapping_sub(imm) & !SLEEP;
        let is_first = !self.peer_sleeps && !self.is_ring_due;
        if imm & SLEEP == 0 || !is_first || unseen > self.most_unseen {
            return Err(PeerFault::Immediate(imm));
        }
        self.peer_sleeps = unseen == 0;
        self.is_ring_due = unseen > 0;
        Ok(())
    }

    /// Notes a WRITE of this end.
    #[inline]
    pub(crate) fn note_write(&mut self) {
        self.is_ring_due |= std::mem::take(&mut self.peer_sleeps);
    }

    /// Returns the notice that is to be posted now, if there is one.
    #[inline]
    pub(crate) fn ring(&self) -> Option<u32> {
        self.is_ring_due.then_some(RING)
    }

    /// Notes that the ring was posted.
    pub(crate) fn note_ring(&mut self) {
        self.is_ring_due = false;
    }

    /// Returns the notice that is to be posted before this end sleeps, if it has not been. `seen`: messages taken,
    /// plus the count of releases that the peer has written last.
    pub(crate) fn sleep(&self, seen: u64) -> Option<u32> {
        (!self.told).then_some(SLEEP | seen as u32)
    }

    /// Notes that it was posted.
    pub(crate) fn note_sleep(&mut self) {
        self.told = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// What is under way to an end, in order.
    #[derive(Debug, Clone, Copy)]
    enum Sent {
        Write,
        Notice(u32),
    }

    struct End {
        bell: Bell,
        written: u64,
        /// WRITEs that are in its memory, and those that it has looked at.
        landed: u64,
        seen: u64,
        is_asleep: bool,
        coming: VecDeque<Sent>,
    }

    impl End {
        fn new() -> Self {
            let (bell, coming) = (Bell::new(4), VecDeque::new());
            Self { bell, written: 0, landed: 0, seen: 0, is_asleep: false, coming }
        }
    }

    fn ring_if_due(ends: &mut [End; 2], at: usize) {
        if let Some(ring) = ends[at].bell.ring() {
            ends[at].bell.note_ring();
            ends[1 - at].coming.push_back(Sent::Notice(ring));
        }
    }

    /// The next thing that is under way to an end arrives. Only a notice wakes.
    fn arrive(ends: &mut [End; 2], at: usize) -> bool {
        let end = &mut ends[at];
        match end.coming.pop_front() {
            None => return false,
            Some(Sent::Write) => end.landed += 1,
            Some(Sent::Notice(imm)) => {
                end.bell.hear(imm, end.written).unwrap();
                end.is_asleep = false;
                end.seen = end.landed;
                ring_if_due(ends, at);
            }
        }
        true
    }

    fn write(ends: &mut [End; 2], at: usize) {
        if ends[at].is_asleep || ends[at].written - ends[1 - at].seen >= 8 {
            return;
        }
        ends[at].written += 1;
        ends[at].bell.note_write();
        ends[1 - at].coming.push_back(Sent::Write);
        ring_if_due(ends, at);
    }

    fn sleep(ends: &mut [End; 2], at: usize) {
        let end = &mut ends[at];
        if let Some(notice) = end.bell.sleep(end.seen) {
            end.bell.note_sleep();
            ends[1 - at].coming.push_back(Sent::Notice(notice));
        }
        ends[at].is_asleep = true;
    }

    proptest! {
        /// However ends write, look, sleep and what is under way arrives: when both sleep and nothing is under
        /// way, each has seen everything. No more than a sleep and a ring are under way to one end.
        #[test]
        fn nobody_sleeps_over_a_write(steps in prop::collection::vec((0..4, 0..2_usize), 0..300)) {
            let mut ends = [End::new(), End::new()];
            for (step, at) in steps {
                match step {
                    0 => write(&mut ends, at),
                    1 => drop(arrive(&mut ends, at)),
                    2 if !ends[at].is_asleep => ends[at].seen = ends[at].landed,
                    3 if !ends[at].is_asleep => sleep(&mut ends, at),
                    _ => {}
                }
                for end in &ends {
                    let notices = end.coming.iter().filter(|one| matches!(one, Sent::Notice(_)));
                    prop_assert!(notices.count() <= 2);
                }
            }
            for at in [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1] {
                while arrive(&mut ends, at) {}
                if !ends[at].is_asleep {
                    sleep(&mut ends, at);
                }
            }
            let [a, b] = &ends;
            prop_assert!(a.is_asleep && b.is_asleep && a.coming.is_empty() && b.coming.is_empty());
            prop_assert_eq!((a.seen, b.seen), (b.written, a.written));
        }
    }

    #[test]
    fn notices_that_cannot_be_now_are_the_peers_fault() {
        let mut bell = Bell::new(4);
        assert!(bell.hear(RING, 0).is_err(), "nobody sleeps here");
        assert!(bell.hear(5, 5).is_err(), "neither ring nor sleep");
        assert!(bell.hear(SLEEP | 6, 5).is_err(), "more than was written");
        assert!(bell.hear(SLEEP | 1, 18).is_err(), "more unseen than can be");
        assert_eq!(
            bell.hear(SLEEP | 1, 17),
            Ok(()),
            "it said so, went on, and took two windows since"
        );
        assert_eq!(bell.ring(), Some(RING));
        bell.note_ring();
        bell.hear(SLEEP | 10, 10).unwrap();
        assert!(bell.hear(SLEEP | 10, 10).is_err(), "it was not rung since");
        bell.note_write();
        assert!(bell.hear(SLEEP | 10, 11).is_err(), "nor was the ring posted");
        // The number wraps at 2^31.
        let mut bell = Bell::new(4);
        bell.hear(SLEEP | 0x7fff_ffff, (7 << 31) + 2).unwrap();
        assert_eq!(bell.ring(), Some(RING));
    }
}
