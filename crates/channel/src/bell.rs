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
    /// This end sleeps, or is about to: it says so again if it is rung before it does.
    rests: bool,
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
        let most_unseen = 4 * blocks;
        Self { most_unseen, rests: false, told: false, peer_sleeps: false, is_ring_due: false }
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

    /// Notes that this end is about to sleep.
    pub(crate) fn rest(&mut self) {
        self.rests = true;
    }

    /// Notes that this end has found something, and does not sleep.
    pub(crate) fn rise(&mut self) {
        self.rests = false;
    }

    /// Returns the notice that is to be posted before this end sleeps, if it is about to and has not said so. A ring
    /// may be taken by the last look before a sleep, after what it tells of was seen: then it has to be said again.
    /// `seen`: messages taken, plus the count of releases that the peer has written last.
    pub(crate) fn sleep(&self, seen: u64) -> Option<u32> {
        (self.rests && !self.told).then_some(SLEEP | seen as u32)
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

    const BLOCKS: u32 = 4;

    /// What is under way to an end, in order.
    #[derive(Debug, Clone, Copy)]
    enum Sent {
        Message,
        /// The credit word.
        Credit(u64),
        Notice(u32),
    }

    /// Messages, and how many of the other end's were released.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    struct Written {
        messages: u64,
        credit: u64,
    }

    impl Written {
        fn sum(self) -> u64 {
            self.messages + self.credit
        }
    }

    /// How near an end is to its sleep, of which the next notice rings.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Sleep {
        Awake,
        /// The next notice rings.
        Armed,
        /// It has.
        Rung,
        Asleep,
    }

    struct End {
        bell: Bell,
        /// What it has written, what is in its memory, and what of that it has looked at.
        written: Written,
        landed: Written,
        seen: Written,
        sleep: Sleep,
        coming: VecDeque<Sent>,
        /// Notices that are in its completion queue.
        completed: VecDeque<u32>,
    }

    impl End {
        fn new() -> Self {
            let (coming, completed) = (VecDeque::new(), VecDeque::new());
            let [written, landed, seen] = [Written::default(); 3];
            let (bell, sleep) = (Bell::new(BLOCKS), Sleep::Awake);
            Self { bell, written, landed, seen, sleep, coming, completed }
        }

        fn notices(&self) -> usize {
            let coming = self.coming.iter().filter(|one| matches!(one, Sent::Notice(_)));
            coming.count() + self.completed.len()
        }
    }

    fn ring_if_due(ends: &mut [End; 2], at: usize) {
        if let Some(ring) = ends[at].bell.ring() {
            ends[at].bell.note_ring();
            ends[1 - at].coming.push_back(Sent::Notice(ring));
        }
    }

    fn say_sleep(ends: &mut [End; 2], at: usize) {
        let end = &mut ends[at];
        if let Some(notice) = end.bell.sleep(end.seen.sum()) {
            end.bell.note_sleep();
            ends[1 - at].coming.push_back(Sent::Notice(notice));
        }
    }

    /// The next thing that is under way to an end arrives. Only a notice wakes.
    fn arrive(ends: &mut [End; 2], at: usize) -> bool {
        let end = &mut ends[at];
        match end.coming.pop_front() {
            None => return false,
            Some(Sent::Message) => end.landed.messages += 1,
            Some(Sent::Credit(count)) => end.landed.credit = count,
            Some(Sent::Notice(imm)) => {
                end.completed.push_back(imm);
                end.sleep = match end.sleep {
                    Sleep::Armed | Sleep::Rung => Sleep::Rung,
                    Sleep::Awake | Sleep::Asleep => Sleep::Awake,
                };
            }
        }
        true
    }

    fn write(ends: &mut [End; 2], at: usize, sent: Sent) {
        ends[at].bell.note_write();
        ends[1 - at].coming.push_back(sent);
        ring_if_due(ends, at);
    }

    /// Sends a message, if the peer is known to have room.
    fn send(ends: &mut [End; 2], at: usize) {
        let end = &mut ends[at];
        if end.sleep != Sleep::Asleep && end.written.messages - end.seen.credit < BLOCKS.into() {
            end.written.messages += 1;
            write(ends, at, Sent::Message);
        }
    }

    /// Releases what was taken.
    fn release(ends: &mut [End; 2], at: usize) {
        let end = &mut ends[at];
        if end.sleep != Sleep::Asleep && end.written.credit < end.seen.messages {
            end.written.credit = end.seen.messages;
            write(ends, at, Sent::Credit(ends[at].seen.messages));
        }
    }

    /// Takes notices, then what is in memory, where more may arrive between the two. Returns whether anything was.
    fn look(ends: &mut [End; 2], at: usize, arrives: u32) -> bool {
        let end = &mut ends[at];
        if end.sleep == Sleep::Asleep {
            return false;
        }
        while let Some(imm) = end.completed.pop_front() {
            end.bell.hear(imm, end.written.sum()).unwrap();
        }
        ring_if_due(ends, at);
        for _ in 0..arrives {
            arrive(ends, at);
        }
        let end = &mut ends[at];
        let found = end.landed != end.seen;
        end.seen = end.landed;
        if found {
            end.bell.rise();
            end.sleep = Sleep::Awake;
        } else {
            say_sleep(ends, at);
        }
        found
    }

    fn rest(ends: &mut [End; 2], at: usize) {
        if ends[at].sleep == Sleep::Awake {
            ends[at].bell.rest();
            say_sleep(ends, at);
        }
    }

    fn arm(ends: &mut [End; 2], at: usize) {
        if ends[at].sleep == Sleep::Awake && ends[at].bell.rests {
            ends[at].sleep = Sleep::Armed;
        }
    }

    /// The last look, then the sleep.
    fn sleep(ends: &mut [End; 2], at: usize) {
        if !matches!(ends[at].sleep, Sleep::Armed | Sleep::Rung) || look(ends, at, 0) {
            return;
        }
        let is_rung = ends[at].sleep == Sleep::Rung;
        ends[at].sleep = if is_rung { Sleep::Awake } else { Sleep::Asleep };
    }

    proptest! {
        /// However ends write, look, sleep and what is under way arrives: when both sleep and nothing is under
        /// way, each has seen everything. No more than a sleep and a ring are under way to one end.
        #[test]
        fn nobody_sleeps_over_a_write(steps in prop::collection::vec((0..9_u32, 0..2_usize), 0..300)) {
            let mut ends = [End::new(), End::new()];
            for (step, at) in steps {
                match step {
                    0 => send(&mut ends, at),
                    1 => release(&mut ends, at),
                    2 => drop(arrive(&mut ends, at)),
                    3 => rest(&mut ends, at),
                    4 => arm(&mut ends, at),
                    5 => sleep(&mut ends, at),
                    more => drop(look(&mut ends, at, 3 * (more - 6))),
                }
                prop_assert!(ends.iter().all(|end| end.notices() <= 2));
            }
            for at in [0, 1].repeat(8) {
                while arrive(&mut ends, at) {}
                look(&mut ends, at, 0);
                rest(&mut ends, at);
                arm(&mut ends, at);
                sleep(&mut ends, at);
            }
            let [a, b] = &ends;
            prop_assert!(ends.iter().all(|end| end.sleep == Sleep::Asleep && end.coming.is_empty()));
            prop_assert_eq!((a.seen, b.seen), (b.written, a.written));
        }
    }

    /// The last look before a sleep takes a ring whose WRITE was found before.
    #[test]
    fn an_end_that_is_rung_for_what_it_has_seen_says_again_that_it_sleeps() {
        let mut bell = Bell::new(4);
        bell.rest();
        assert_eq!(bell.sleep(0), Some(SLEEP));
        bell.note_sleep();
        // Something else woke it, and it found the WRITE itself.
        bell.rise();
        bell.rest();
        assert_eq!(bell.sleep(1), None, "it was not rung since");
        bell.hear(RING, 0).unwrap();
        assert_eq!(bell.sleep(1), Some(SLEEP | 1));
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
