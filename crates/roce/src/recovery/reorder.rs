//! The reorder buffer: packets that arrived before an earlier one, kept until the gap is filled.
//!
//! It exists only while there is a gap. Its places are PSNs from the expected one on; payloads are
//! in slots of one path MTU each, so a packet costs one copy and rarely an allocation.
use super::bits::Bits;
use super::sack::PREFIX_BYTES;
#[cfg(test)]
use crate::Psn;
use crate::wire::Headers;
use std::collections::VecDeque;

/// Payloads in one allocation.
const CHUNK: usize = 32;

/// A place without a packet.
const EMPTY: u32 = u32::MAX;

/// A packet that was taken out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) headers: Headers,
    slot: u32,
    bytes: u32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Reorder {
    /// `places[d]` is the slot of the packet with the expected PSN plus `d`, or [`EMPTY`]. Entries are
    /// small: one packet far ahead creates all places up to its own.
    places: VecDeque<u32>,
    /// Which places have a packet.
    filled: Bits,
    kept: usize,
    /// Headers and payload lengths of the slots.
    packets: Vec<Kept>,
    /// Payloads of the slots, [`CHUNK`] of them in each.
    chunks: Vec<Box<[u8]>>,
    free: Vec<u32>,
    mtu: usize,
}

impl Reorder {
    pub(crate) fn new(mtu: usize) -> Self {
        Self {
            places: VecDeque::new(),
            filled: Bits::default(),
            kept: 0,
            packets: Vec::new(),
            chunks: Vec::new(),
            free: Vec::new(),
            mtu,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept == 0
    }

    /// Returns how far the packets that are kept reach beyond the expected one.
    pub(crate) fn reach(&self) -> u32 {
        self.places.len() as u32
    }

    /// Keeps a packet that is `distance` after the expected one. Returns false if it is kept
    /// already, or longer than the path MTU.
    pub(crate) fn keep(&mut self, distance: u32, headers: &Headers, payload: &[u8]) -> bool {
        let index = distance as usize;
        let is_kept = self.places.get(index).is_some_and(|&slot| slot != EMPTY);
        if payload.len() > self.mtu || is_kept {
            return false;
        }
        if self.places.len() <= index {
            self.places.resize(index + 1, EMPTY);
        }
        self.places[index] = self.store(headers, payload);
        self.filled.set(index, true);
        self.kept += 1;
        true
    }

    fn store(&mut self, headers: &Headers, payload: &[u8]) -> u32 {
        let slot = self.free.pop().unwrap_or(self.packets.len() as u32);
        let kept = Kept { headers: *headers, slot, bytes: payload.len() as u32 };
        if slot as usize == self.packets.len() {
            self.packets.push(kept);
        } else {
            self.packets[slot as usize] = kept;
        }
        if slot as usize / CHUNK == self.chunks.len() {
            self.chunks.push(vec![0; CHUNK * self.mtu].into());
        }
        let start = slot as usize % CHUNK * self.mtu;
        self.chunks[slot as usize / CHUNK][start..start + payload.len()].copy_from_slice(payload);
        slot
    }

    /// Advances the expected PSN by `count`, and drops what was kept for the PSNs in between.
    pub(crate) fn advance(&mut self, count: u32) {
        self.filled.advance(count as usize);
        for _ in 0..count {
            match self.places.pop_front() {
                Some(EMPTY) => {}
                Some(slot) => self.release_slot(slot),
                None => return,
            }
        }
    }

    /// Takes out the packet with the expected PSN. Its payload is valid until [`Reorder::release`].
    pub(crate) fn take_expected(&mut self) -> Option<Kept> {
        let place = self.places.front_mut().filter(|slot| **slot != EMPTY)?;
        let slot = std::mem::replace(place, EMPTY);
        self.filled.set(0, false);
        self.packets.get(slot as usize).copied()
    }

    pub(crate) fn payload(&self, kept: &Kept) -> &[u8] {
        let start = kept.slot as usize % CHUNK * self.mtu;
        &self.chunks[kept.slot as usize / CHUNK][start..start + kept.bytes as usize]
    }

    pub(crate) fn release(&mut self, kept: &Kept) {
        self.release_slot(kept.slot);
    }

    fn release_slot(&mut self, slot: u32) {
        self.free.push(slot);
        self.kept -= 1;
    }

    /// Calls `each` with the payload of each SACK for what is kept, none longer than `most_bytes`.
    pub(crate) fn sacks(&self, most_bytes: usize, mut each: impl FnMut(&[u8])) {
        let bits_each = (most_bytes - PREFIX_BYTES) / 8 * 64;
        // Neither the expected PSN nor the cumulative one before it has a bit.
        let bits = self.places.len().saturating_sub(1);
        let mut payload = [0; 4096];
        for first in (0..bits.max(1)).step_by(bits_each) {
            let count = bits.saturating_sub(first).min(bits_each);
            let bytes = PREFIX_BYTES + count.div_ceil(32) * 4;
            payload[..PREFIX_BYTES].copy_from_slice(&(first as u32).to_be_bytes());
            for (bytes, index) in payload[PREFIX_BYTES..bytes].chunks_mut(8).zip(0..) {
                let word = self.filled.word_at(1 + first + 64 * index).to_le_bytes();
                bytes.copy_from_slice(&word[..bytes.len()]);
            }
            each(&payload[..bytes]);
        }
    }

    /// Returns the PSNs of what is kept, for tests of SACKs.
    #[cfg(test)]
    fn kept_psns(&self, expected: Psn) -> Vec<u32> {
        let places = self.places.iter().zip(0u32..);
        places
            .filter(|(slot, _)| **slot != EMPTY)
            .map(|(_, distance)| expected.add(distance).value())
            .collect()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Self>()
            + self.places.capacity() * 4
            + self.filled.heap_bytes()
            + self.packets.capacity() * size_of::<Kept>()
            + self.chunks.len() * CHUNK * self.mtu
            + self.free.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::super::sack::Sack;
    use super::*;
    use crate::wire::{Bth, Opcode};

    fn keep(reorder: &mut Reorder, distance: u32, payload: &[u8]) -> bool {
        let bth = Bth::new(Opcode::RcWriteOnly, 1, Psn::new(100 + distance));
        reorder.keep(distance, &Headers::new(bth), payload)
    }

    #[test]
    fn packets_come_out_with_their_bytes_when_their_turn_comes() {
        let mut reorder = Reorder::new(256);
        for distance in (1..100).rev() {
            assert!(keep(&mut reorder, distance, &[distance as u8; 200]));
            assert!(!keep(&mut reorder, distance, &[0; 200]), "a duplicate");
        }
        assert!(reorder.take_expected().is_none());
        for distance in 1..100u32 {
            reorder.advance(1);
            let kept = reorder.take_expected().unwrap();
            assert_eq!(kept.headers.bth.psn, Psn::new(100 + distance));
            assert_eq!(reorder.payload(&kept), [distance as u8; 200]);
            reorder.release(&kept);
        }
        assert!(reorder.is_empty());
        assert_eq!(reorder.chunks.len(), 99usize.div_ceil(CHUNK));
    }

    #[test]
    fn places_are_used_again() {
        let mut reorder = Reorder::new(256);
        for _ in 0..1000 {
            assert!(keep(&mut reorder, 1, &[7; 256]));
            reorder.advance(1);
            let kept = reorder.take_expected().unwrap();
            reorder.release(&kept);
            reorder.advance(1);
        }
        assert_eq!(reorder.chunks.len(), 1);
    }

    #[test]
    fn a_packet_longer_than_the_path_mtu_is_not_kept() {
        assert!(!keep(&mut Reorder::new(256), 1, &[0; 257]));
    }

    #[test]
    fn what_a_message_of_many_psns_jumps_over_goes() {
        let mut reorder = Reorder::new(256);
        (1..10).for_each(|distance| assert!(keep(&mut reorder, distance, &[1])));
        reorder.advance(7);
        assert_eq!(reorder.kept_psns(Psn::new(107)), [107, 108, 109]);
    }

    #[test]
    fn sacks_say_what_is_kept_in_packets_that_are_short_enough() {
        let mut reorder = Reorder::new(256);
        let distances: Vec<u32> = (1..6000).filter(|d| d % 7 < 3).collect();
        for &distance in &distances {
            assert!(keep(&mut reorder, distance, &[]));
        }
        let mut said = Vec::new();
        let mut packets = 0;
        reorder.sacks(256, |payload| {
            assert!(payload.len() <= 256 && payload.len().is_multiple_of(4));
            let sack = Sack::decode(Psn::new(99), payload).unwrap();
            said.extend(sack.kept().map(|distance| distance - 1));
            packets += 1;
        });
        assert_eq!(said, distances);
        assert_eq!(packets, 4);
    }
}
