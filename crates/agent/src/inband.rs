//! What the agents of two hosts say over a shared queue pair, in order with what goes over it: which receives their
//! applications have posted, and which messages are there. `docs/spec/agent.md` describes it.
//!
//! A message is a SEND of at most [`MESSAGE_BYTES`] whose immediate is the number of a queue pair of the receiver.
use crate::entry::{MAX_INLINE_BYTES, MAX_SGES};
use crate::matching::{Piece, Receive};

/// The most bytes of a message.
pub const MESSAGE_BYTES: usize = MAX_INLINE_BYTES;
/// Of every message: kind, flags, 2 for a stamp, the sender's queue pair, a number.
const HEAD: usize = 12;
/// Where the stamp is.
const STAMP: usize = 2;
/// Of a message that is there: its length and immediate, too.
const DONE_BYTES: usize = HEAD + 12;
/// Of a receive, before its pieces.
const RECEIVE_HEAD: usize = 4;
const PIECE: usize = 16;
/// Pieces of a receive that cannot be written to.
const UNFIT: u8 = 0xff;
/// The most receives of a message.
pub const RECEIVES: usize = (MESSAGE_BYTES - HEAD) / (RECEIVE_HEAD + PIECE);

const OPEN: u8 = 1;
const POSTED: u8 = 2;
const DONE: u8 = 3;
const ASK: u8 = 4;
const TAKEN: u8 = 5;
const CREDIT: u8 = 6;

/// What an agent says about a connection. `from` is its number of the queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// The application has connected it. An answer follows all receives that there are.
    Open {
        /// Whose.
        from: u32,
        /// Whether the receives that there are were said before.
        answer: bool,
    },
    /// Receives.
    Posted {
        /// Whose.
        from: u32,
        /// Number of the first of them.
        first: u32,
        /// In order.
        receives: Receives<'a>,
    },
    /// A message of the application is there.
    Done {
        /// Whose.
        from: u32,
        /// Which.
        told: Told,
        /// What its header carries.
        numbers: Option<Numbers>,
    },
    /// How many messages have you taken?
    Ask {
        /// Of whose.
        from: u32,
    },
    /// The answer.
    Taken {
        /// By whom.
        from: u32,
        /// So many; none of a connection that does not share any more.
        count: Option<u32>,
    },
    /// So many in-band messages of this queue pair were taken.
    Credit {
        /// Modulo 2^32.
        count: u32,
    },
}

/// What a round says of the edge that data belong to, in eight bytes, and a stamp ([`catchment_control::drum::Carried`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// When the round was.
    pub stamp: u16,
    /// What it says.
    pub bytes: [u8; 8],
}

/// A message of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// Of the messages of its connection, from 0.
    pub number: u32,
    /// A SEND; else a WRITE with immediate.
    pub is_send: bool,
    /// Its length.
    pub bytes: u64,
    /// Its immediate.
    pub imm: Option<u32>,
}

/// Receives, to be sent or as they were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receives<'a> {
    /// To be sent.
    Given(&'a [Receive]),
    /// So many, encoded.
    Sent(u8, &'a [u8]),
}

fn get<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn put<const N: usize>(out: &mut [u8; MESSAGE_BYTES], at: usize, bytes: [u8; N]) {
    out[at..at + N].copy_from_slice(&bytes);
}

fn get_numbers(bytes: &[u8]) -> Option<Numbers> {
    let stamp = u16::from_be_bytes(get(bytes, STAMP)?);
    Some(Numbers { stamp, bytes: get(bytes, DONE_BYTES)? })
}

fn put_receives(out: &mut [u8; MESSAGE_BYTES], receives: &[Receive]) -> usize {
    let mut at = HEAD;
    for receive in receives {
        let pieces = receive.pieces();
        out[at] = pieces.map_or(UNFIT, |pieces| pieces.len() as u8);
        at += RECEIVE_HEAD;
        for piece in pieces.unwrap_or_default() {
            put(out, at, piece.addr.to_be_bytes());
            put(out, at + 8, piece.bytes.to_be_bytes());
            put(out, at + 12, piece.rkey.to_be_bytes());
            at += PIECE;
        }
    }
    at
}

/// Returns how many of these receives fit into one message.
#[must_use]
pub fn fitting(receives: &[Receive]) -> usize {
    let mut bytes = HEAD;
    let fits = |receive: &&Receive| {
        bytes += RECEIVE_HEAD + receive.pieces().unwrap_or_default().len() * PIECE;
        bytes <= MESSAGE_BYTES
    };
    receives.iter().take_while(fits).count()
}

fn get_receive(bytes: &mut &[u8]) -> Option<Receive> {
    let (head, rest) = bytes.split_first_chunk::<RECEIVE_HEAD>()?;
    *bytes = rest;
    if head[0] == UNFIT {
        return Some(Receive::unfit());
    }
    let (mut pieces, count) = ([Piece::default(); MAX_SGES], usize::from(head[0]));
    for piece in pieces.get_mut(..count)? {
        let (one, rest) = bytes.split_first_chunk::<PIECE>()?;
        *bytes = rest;
        piece.addr = u64::from_be_bytes(get(one, 0)?);
        piece.bytes = u32::from_be_bytes(get(one, 8)?);
        piece.rkey = u32::from_be_bytes(get(one, 12)?);
    }
    Receive::new(&pieces[..count])
}

impl Receives<'_> {
    /// Calls for each; stops at bytes that are none.
    pub fn each(&self, mut what: impl FnMut(Receive)) {
        match self {
            Receives::Given(all) => all.iter().copied().for_each(what),
            Receives::Sent(count, bytes) => {
                let mut bytes = *bytes;
                for _ in 0..*count {
                    let Some(receive) = get_receive(&mut bytes) else { return };
                    what(receive);
                }
            }
        }
    }
}

impl<'a> Message<'a> {
    /// Writes it; returns its length. Of receives, as many as are [`fitting`].
    pub fn encode(&self, out: &mut [u8; MESSAGE_BYTES]) -> usize {
        let (kind, flags, from, number) = match *self {
            Self::Open { from, answer } => (OPEN, u8::from(answer), from, 0),
            Self::Posted { from, first, receives } => {
                let count = match receives {
                    Receives::Given(all) => all.len() as u8,
                    Receives::Sent(count, _) => count,
                };
                (POSTED, count, from, first)
            }
            Self::Done { from, told, numbers } => {
                let flags = [told.is_send, told.imm.is_some(), numbers.is_some()].map(u8::from);
                (DONE, flags[0] | flags[1] << 1 | flags[2] << 2, from, told.number)
            }
            Self::Ask { from } => (ASK, 0, from, 0),
            Self::Taken { from, count } => {
                (TAKEN, u8::from(count.is_some()), from, count.unwrap_or(0))
            }
            Self::Credit { count } => (CREDIT, 0, 0, count),
        };
        out[..4].copy_from_slice(&[kind, flags, 0, 0]);
        put(out, 4, from.to_be_bytes());
        put(out, 8, number.to_be_bytes());
        match self {
            Self::Posted { receives: Receives::Given(all), .. } => put_receives(out, all),
            Self::Done { told, numbers, .. } => {
                put(out, HEAD, told.bytes.to_be_bytes());
                put(out, HEAD + 8, told.imm.unwrap_or(0).to_be_bytes());
                let Some(numbers) = numbers else { return DONE_BYTES };
                put(out, STAMP, numbers.stamp.to_be_bytes());
                put(out, DONE_BYTES, numbers.bytes);
                DONE_BYTES + numbers.bytes.len()
            }
            Self::Open { .. }
            | Self::Posted { .. }
            | Self::Ask { .. }
            | Self::Taken { .. }
            | Self::Credit { .. } => HEAD,
        }
    }

    /// Reads one; `None` if it is none.
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let [kind, flags, _, _] = get(bytes, 0)?;
        let from = u32::from_be_bytes(get(bytes, 4)?);
        let number = u32::from_be_bytes(get(bytes, 8)?);
        Some(match kind {
            OPEN => Self::Open { from, answer: flags & 1 != 0 },
            POSTED => {
                let receives = Receives::Sent(flags, &bytes[HEAD..]);
                Self::Posted { from, first: number, receives }
            }
            DONE => {
                let imm = u32::from_be_bytes(get(bytes, HEAD + 8)?);
                let imm = (flags & 2 != 0).then_some(imm);
                // No request has more.
                let all = bytes;
                let bytes = u64::from_be_bytes(get(bytes, HEAD)?);
                let bytes = u32::try_from(bytes).ok()?.into();
                let told = Told { number, is_send: flags & 1 != 0, bytes, imm };
                let numbers = if flags & 4 == 0 { None } else { Some(get_numbers(all)?) };
                Self::Done { from, told, numbers }
            }
            ASK => Self::Ask { from },
            TAKEN => Self::Taken { from, count: (flags & 1 != 0).then_some(number) },
            CREDIT => Self::Credit { count: number },
            _ => return None,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;

    fn receives() -> Vec<Receive> {
        let piece = Piece { addr: u64::MAX - 9, bytes: 7, rkey: 0xdead_beef };
        let mut all = vec![Receive::unfit(), Receive::new(&[]).unwrap()];
        all.resize(9, Receive::new(&[piece; MAX_SGES]).unwrap());
        let count = fitting(&all);
        assert_eq!(count, 5);
        all.truncate(count);
        all
    }

    /// S5.8.
    #[test]
    fn messages_read_back_and_other_bytes_do_not() {
        let given = receives();
        let told = Told { number: 7, is_send: true, bytes: (1 << 32) - 1, imm: Some(u32::MAX) };
        let numbers = Some(Numbers { stamp: 0xfedc, bytes: *b"carried!" });
        let all = [
            Message::Open { from: 1, answer: true },
            Message::Done { from: 9, told, numbers: None },
            Message::Done { from: 9, told, numbers },
            Message::Done {
                from: 9,
                told: Told { is_send: false, imm: None, ..told },
                numbers: None,
            },
            Message::Ask { from: u32::MAX },
            Message::Taken { from: 3, count: Some(u32::MAX) },
            Message::Taken { from: 3, count: None },
            Message::Credit { count: 77 },
        ];
        let mut buffer = [0xee; MESSAGE_BYTES];
        for message in all {
            let count = message.encode(&mut buffer);
            assert_eq!(Message::decode(&buffer[..count]), Some(message));
            assert_eq!(Message::decode(&buffer[..HEAD - 1]), None);
        }
        let posted = Message::Posted { from: 5, first: 6, receives: Receives::Given(&given) };
        let count = posted.encode(&mut buffer);
        let Some(Message::Posted { from: 5, first: 6, receives }) =
            Message::decode(&buffer[..count])
        else {
            panic!("{:?}", &buffer[..count]);
        };
        let mut seen = Vec::new();
        receives.each(|receive| seen.push(receive));
        assert_eq!(seen, given);
        // A peer that says more than it sends is believed what it sent.
        let Receives::Sent(_, bytes) = receives else { panic!() };
        let mut seen = Vec::new();
        Receives::Sent(200, bytes).each(|receive| seen.push(receive));
        assert_eq!(seen, given);
        assert_eq!(Message::decode(&[7; 12]), None);
    }
}
