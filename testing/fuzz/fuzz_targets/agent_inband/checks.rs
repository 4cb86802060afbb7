//! What must hold for any in-band messages of a peer, one after the other: each has its length before it, in one byte.
//! The fuzz target and the ordinary test that replays its corpus share this file.
use catchment_agent::inband::{MESSAGE_BYTES, Message, RECEIVES, Receives, Told, fitting};
use catchment_agent::matching::{AHEAD, PeerReceives, Receive};
use std::collections::BTreeMap;

/// Panics when something does not hold.
pub(crate) fn check(mut bytes: &[u8]) {
    let mut known = Known::default();
    while let Some((length, rest)) = bytes.split_first() {
        let (one, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        bytes = rest;
        if let Some(message) = Message::decode(one) {
            check_message(message, one, &mut known);
        }
    }
}

fn written(message: &Message<'_>) -> Vec<u8> {
    let mut out = [0xee; MESSAGE_BYTES];
    let count = message.encode(&mut out);
    out[..count].to_vec()
}

fn check_message(message: Message<'_>, bytes: &[u8], known: &mut Known) {
    match message {
        Message::Posted { from, first, receives } => {
            let all = list(receives);
            assert!(all.len() <= usize::from(bytes[1]), "more than it says");
            check_receives(from, first, &all);
            known.learn(first, &all);
        }
        Message::Done { told: Told { number, bytes, .. }, .. } => {
            assert_eq!(Message::decode(&written(&message)), Some(message));
            known.send(number, bytes);
        }
        Message::Open { .. }
        | Message::Ask { .. }
        | Message::Taken { .. }
        | Message::Credit { .. } => {
            assert_eq!(Message::decode(&written(&message)), Some(message));
        }
    }
}

fn list(receives: Receives<'_>) -> Vec<Receive> {
    let mut all = Vec::new();
    receives.each(|receive| all.push(receive));
    all
}

/// Receives that were read are written as messages and read as the same, and messages fit into them as they say.
fn check_receives(from: u32, first: u32, all: &[Receive]) {
    let mut rest = all;
    while !rest.is_empty() {
        let count = fitting(rest).min(RECEIVES);
        assert!(count > 0, "one fits into a message");
        let given = Message::Posted { from, first, receives: Receives::Given(&rest[..count]) };
        let bytes = written(&given);
        let Some(Message::Posted { receives, .. }) = Message::decode(&bytes) else {
            panic!("{bytes:?}");
        };
        assert_eq!(list(receives), rest[..count]);
        rest = &rest[count..];
    }
    for receive in all {
        let Some(pieces) = receive.pieces() else {
            assert!(receive.fill(0).is_none(), "nothing fits");
            continue;
        };
        let whole: u64 = pieces.iter().map(|piece| u64::from(piece.bytes)).sum();
        for bytes in [0, 1, whole / 2, whole] {
            let filled = receive.fill(bytes).filter(|_| bytes <= whole);
            assert_eq!(filled.is_some(), bytes <= whole);
            let Some((filled, count)) = filled else { continue };
            let sum: u64 = filled[..count].iter().map(|piece| u64::from(piece.bytes)).sum();
            assert_eq!(sum, bytes, "each byte has its place");
        }
        assert!(receive.fill(whole + 1).is_none(), "it is too long");
    }
}

/// What a peer told of receives, beside a plain list of it.
#[derive(Default)]
struct Known {
    peer: PeerReceives,
    list: BTreeMap<u32, Receive>,
}

impl Known {
    fn learn(&mut self, first: u32, all: &[Receive]) {
        let mut number = first;
        for receive in all {
            self.peer.learn(number, *receive);
            if number.wrapping_sub(self.peer.next()) < AHEAD {
                self.list.entry(number).or_insert(*receive);
            }
            number = number.wrapping_add(1);
        }
        assert_eq!(self.peer.first(), self.list.get(&self.peer.next()));
    }

    /// Sends messages as far as receives are known, at most as many as `most` says.
    fn send(&mut self, most: u32, bytes: u64) {
        for _ in 0..most % 64 {
            let Some(receive) = self.peer.first() else { return };
            let _ = receive.fill(bytes);
            let number = self.peer.next();
            assert_eq!(self.peer.advance(), number);
            assert!(self.list.remove(&number).is_some(), "it was told of");
            assert_eq!(self.peer.next(), number.wrapping_add(1));
        }
    }
}
