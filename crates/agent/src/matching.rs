//! Which message goes into which receive, where the agent of the sender knows the receives of the peer: without I/O.
//!
//! Receives and messages of a connection are counted from 0, each: message `n` goes into receive `n`. What is said of
//! receives may come twice and out of order.
use crate::entry::MAX_SGES;
use std::collections::VecDeque;

/// Most receives of a connection that are known ahead.
const MOST: u32 = 1 << 13;

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
        if ahead >= MOST {
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
