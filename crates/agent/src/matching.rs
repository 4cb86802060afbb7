//! Which message goes into which receive, where the agent of the sender knows the receives of the peer: without I/O.
//!
//! Receives and messages of a connection are counted from 0, each: message `n` goes into receive `n`. What is said of
//! receives may come twice and out of order.
use crate::entry::MAX_SGES;
use std::collections::VecDeque;

/// Receives of a connection that are kept ahead of its messages: more than a queue pair holds.
pub const AHEAD: u32 = 1 << 13;

/// A piece of an application's memory, with the key that it gave or would give its peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Piece {
    /// Of the first byte.
    pub addr: u64,
    /// Length.
    pub bytes: u32,
    /// Key.
    pub rkey: u32,
}

/// A receive that an application has posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receive {
    pieces: [Piece; MAX_SGES],
    /// `None`: what a message does there can only be found out on a queue pair of its own.
    count: Option<u8>,
}

impl Receive {
    /// Names where its bytes go, in order; `None` if there are too many pieces.
    #[must_use]
    pub fn new(pieces: &[Piece]) -> Option<Self> {
        let mut all = [Piece::default(); MAX_SGES];
        all.get_mut(..pieces.len())?.copy_from_slice(pieces);
        Some(Self { pieces: all, count: Some(pieces.len() as u8) })
    }

    /// One that has a wrong key, or leads beyond its region.
    #[must_use]
    pub const fn unfit() -> Self {
        Self { pieces: [Piece { addr: 0, bytes: 0, rkey: 0 }; MAX_SGES], count: None }
    }

    /// Returns where its bytes go.
    #[must_use]
    pub fn pieces(&self) -> Option<&[Piece]> {
        self.count.map(|count| &self.pieces[..usize::from(count)])
    }

    /// Returns the pieces that a message of so many bytes fills; `None` if it does not fit.
    #[must_use]
    pub fn fill(&self, bytes: u64) -> Option<([Piece; MAX_SGES], usize)> {
        let (mut filled, mut count, mut left) = (self.pieces, 0, bytes);
        for (piece, known) in filled.iter_mut().zip(self.pieces()?) {
            if left == 0 {
                break;
            }
            piece.bytes = u64::from(known.bytes).min(left) as u32;
            left -= u64::from(piece.bytes);
            count += 1;
        }
        (left == 0).then_some((filled, count))
    }
}

/// The receives of a peer, as its agent tells.
#[derive(Debug, Default)]
pub struct PeerReceives {
    /// The number of the next message.
    next: u32,
    known: VecDeque<Option<Receive>>,
}

impl PeerReceives {
    /// Notes a receive by its number. What was heard before, or is too far ahead to be one, changes nothing.
    pub fn learn(&mut self, number: u32, receive: Receive) {
        let ahead = number.wrapping_sub(self.next);
        if ahead >= AHEAD {
            return;
        }
        let at = ahead as usize;
        if self.known.len() <= at {
            self.known.resize(at + 1, None);
        }
        self.known[at].get_or_insert(receive);
    }

    /// Returns the number of the next message.
    #[must_use]
    pub const fn next(&self) -> u32 {
        self.next
    }

    /// Returns the receive of the next message, if it is known.
    #[must_use]
    pub fn first(&self) -> Option<&Receive> {
        self.known.front()?.as_ref()
    }

    /// Uses it; returns the number of the message.
    pub fn advance(&mut self) -> u32 {
        let number = self.next;
        self.known.pop_front();
        self.next = number.wrapping_add(1);
        number
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn receive(number: u32) -> Receive {
        let piece = Piece { addr: number.into(), bytes: 9, rkey: !number };
        Receive::new(&[piece]).unwrap()
    }

    /// What is said of receives, in pieces as it was said first; and how many messages were sent and taken.
    struct World {
        peer: PeerReceives,
        said: Vec<(u32, u32)>,
        told: u32,
        posted: u32,
        sent: u32,
    }

    impl World {
        /// Numbers go round while it runs.
        const FIRST: u32 = u32::MAX - 40;

        fn hear(&mut self, at: usize) {
            let (first, count) = self.said[at];
            for number in first..first + count {
                let number = Self::FIRST.wrapping_add(number);
                self.peer.learn(number, receive(number));
            }
        }

        /// Says what was not said yet, as messages hold it.
        fn say(&mut self, most: u32) {
            let count = most.min(self.posted - self.told);
            self.said.push((self.told, count));
            self.told += count;
        }

        fn send_all(&mut self) {
            while let Some(known) = self.peer.first().copied() {
                let number = Self::FIRST.wrapping_add(self.sent);
                assert!(self.sent < self.told, "a receive that nobody told of");
                assert_eq!((self.peer.next(), known), (number, receive(number)));
                assert_eq!(self.peer.advance(), number);
                self.sent += 1;
            }
        }
    }

    proptest! {
        /// What is told of receives comes in any order, twice, and long after messages took them, as when shared queue
        /// pairs fail and others take their place: each message goes into its own receive, and none waits for ever.
        #[test]
        fn whatever_order_receives_are_told_in_each_message_has_its_own(
            steps in prop::collection::vec((0..4_u8, any::<prop::sample::Index>(), 0..7_u32), 0..200),
        ) {
            let peer = PeerReceives { next: World::FIRST, known: VecDeque::new() };
            let mut world = World { peer, said: Vec::new(), told: 0, posted: 0, sent: 0 };
            for (step, which, amount) in steps {
                match step {
                    0 => world.posted += amount,
                    1 => world.say(amount),
                    2 if !world.said.is_empty() => world.hear(which.index(world.said.len())),
                    _ => world.send_all(),
                }
            }
            for at in 0..world.said.len() {
                world.hear(at);
                world.send_all();
            }
            prop_assert_eq!(world.sent, world.told, "each that was told of has its message");
            prop_assert_eq!(world.peer.first(), None);
        }
    }

    #[test]
    fn what_is_too_far_ahead_takes_no_memory() {
        let mut peer = PeerReceives::default();
        peer.learn(AHEAD, receive(AHEAD));
        peer.learn(u32::MAX, receive(u32::MAX));
        assert!(peer.known.is_empty());
        peer.learn(AHEAD - 1, receive(7));
        assert_eq!((peer.known.len(), peer.first()), (AHEAD as usize, None));
    }
}
