//! Packets to send: headers inline, payload by reference.
//!
//! The driver owns a [`TransmitBatch`] and uses it for all queue pairs in turn. A packet has its
//! encoded headers, and refers to its payload: in local memory of a send request, in memory that
//! the peer reads, or in the batch itself. The driver gathers headers, payload, pad and ICRC into
//! one datagram; nothing is copied before.
use crate::wire::{Headers, ICRC_BYTES, MAX_HEADER_BYTES};
use std::ops::Range;

/// A reference to a piece of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// In local memory of a send request, which stays posted.
    Local {
        /// Key of the region.
        lkey: u32,
        /// First byte.
        addr: u64,
        /// Bytes.
        bytes: u32,
    },
    /// In memory that the peer reads, just checked with [`crate::Memory::check_remote`].
    Remote {
        /// Key of the region.
        rkey: u32,
        /// First byte.
        va: u64,
        /// Bytes.
        bytes: u32,
    },
    /// In the batch: see [`TransmitBatch::bytes`].
    Batch {
        /// First byte.
        start: u32,
        /// Bytes.
        bytes: u32,
    },
}

impl Piece {
    /// Returns the length in bytes.
    pub fn bytes(&self) -> u32 {
        match *self {
            Self::Local { bytes, .. } | Self::Remote { bytes, .. } | Self::Batch { bytes, .. } => {
                bytes
            }
        }
    }
}

/// One packet to send.
#[derive(Clone, Debug)]
pub struct OutPacket {
    header: [u8; MAX_HEADER_BYTES],
    header_bytes: u8,
    pad: u8,
    payload_bytes: u16,
    pieces: Range<u32>,
}

impl OutPacket {
    /// Returns the encoded headers, from the BTH to the last extension header.
    pub fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_bytes)]
    }

    /// Returns the number of bytes of payload, without pad.
    pub fn payload_bytes(&self) -> usize {
        usize::from(self.payload_bytes)
    }

    /// Returns the number of zero bytes after the payload, 0 to 3.
    pub fn pad_bytes(&self) -> usize {
        usize::from(self.pad)
    }

    /// Returns the length of the UDP payload: headers, payload, pad and ICRC.
    pub fn udp_bytes(&self) -> usize {
        self.header().len() + self.payload_bytes() + self.pad_bytes() + ICRC_BYTES
    }
}

/// Packets to one peer, owned and reused by the driver.
#[derive(Debug, Default)]
pub struct TransmitBatch {
    packets: Vec<OutPacket>,
    pieces: Vec<Piece>,
    bytes: Vec<u8>,
    max_packets: usize,
    pub(crate) destination: Option<u32>,
}

impl TransmitBatch {
    /// Creates an empty batch for at most this many packets.
    pub fn new(max_packets: usize) -> Self {
        Self {
            packets: Vec::with_capacity(max_packets),
            pieces: Vec::with_capacity(max_packets),
            bytes: Vec::new(),
            max_packets,
            destination: None,
        }
    }

    /// Empties the batch and keeps its memory.
    pub fn clear(&mut self) {
        self.packets.clear();
        self.pieces.clear();
        self.bytes.clear();
        self.destination = None;
    }

    /// Returns the packets, in the order in which they must leave.
    pub fn packets(&self) -> &[OutPacket] {
        &self.packets
    }

    /// Returns the pieces of the payload of a packet of this batch, in order.
    pub fn pieces(&self, packet: &OutPacket) -> &[Piece] {
        &self.pieces[packet.pieces.start as usize..packet.pieces.end as usize]
    }

    /// Returns the bytes of a [`Piece::Batch`].
    pub fn bytes(&self, start: u32, bytes: u32) -> &[u8] {
        &self.bytes[start as usize..(start + bytes) as usize]
    }

    /// Returns the address handle ([`crate::Destination::ah`]) of these datagrams; `None` on RC and
    /// UC, which have one peer.
    pub fn destination(&self) -> Option<u32> {
        self.destination
    }

    /// Returns the number of packets that fit together.
    pub fn max_packets(&self) -> usize {
        self.max_packets
    }

    /// Returns whether no further packet fits.
    pub fn is_full(&self) -> bool {
        self.packets.len() >= self.max_packets
    }

    /// Adds a packet whose payload `pieces` writes.
    pub(crate) fn push(
        &mut self,
        headers: &Headers,
        pieces: impl FnOnce(&mut PieceWriter<'_>),
    ) -> usize {
        let first = self.pieces.len();
        pieces(&mut PieceWriter { batch: self });
        let payload: u32 = self.pieces[first..].iter().map(Piece::bytes).sum();
        self.finish(headers, first, payload)
    }

    fn finish(&mut self, headers: &Headers, first_piece: usize, payload: u32) -> usize {
        let mut header = [0; MAX_HEADER_BYTES];
        let header_bytes = headers.encode(&mut header);
        let packet = OutPacket {
            header,
            header_bytes: header_bytes as u8,
            pad: headers.bth.pad,
            payload_bytes: payload as u16,
            pieces: first_piece as u32..self.pieces.len() as u32,
        };
        let udp_bytes = packet.udp_bytes();
        self.packets.push(packet);
        udp_bytes
    }
}

/// Adds the payload of one packet to a batch.
pub(crate) struct PieceWriter<'a> {
    batch: &'a mut TransmitBatch,
}

impl PieceWriter<'_> {
    pub(crate) fn piece(&mut self, piece: Piece) {
        if piece.bytes() > 0 {
            self.batch.pieces.push(piece);
        }
    }

    pub(crate) fn copy(&mut self, data: &[u8]) {
        let start = self.batch.bytes.len() as u32;
        self.batch.bytes.extend_from_slice(data);
        self.piece(Piece::Batch { start, bytes: data.len() as u32 });
    }
}
