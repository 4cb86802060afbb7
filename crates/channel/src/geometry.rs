//! Where the blocks of one or several windows lie, at both ends.
use crate::{ClaimError, PeerFault, Tag};
use catchment_transfer::header::{decode_trailer, encode_trailer};
use catchment_transfer::layout::{LINE_BYTES, TRAILER_BYTES};
use catchment_transfer::protocol::HEADER_WORDS;
use catchment_transfer::{BlockHeader, LayoutError, RingLayout};
use catchment_verbs::mem::VolatileSlice;

/// Indexes of an end's memory regions: exposed to the peer, send blocks, target of READs.
pub(crate) const EXPOSED: usize = 0;
pub(crate) const OUTGOING: usize = 1;
pub(crate) const SCRATCH: usize = 2;

/// All accesses stay within memory whose size was checked when the end was made.
pub const INSIDE: &str = "a block inside of the checked memory";

/// The slots of all windows, one behind the other. A slot is as in the product's format: the block
/// ends where the slot ends, `[payload, padded to 64][header 56 B][8 B]`.
///
/// A *place* is a slot's number among the slots of all windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    layout: RingLayout,
    windows: u32,
}

/// The part of a block's header that both ends keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// Stream that the sender named.
    pub stream: u32,
    /// Number that the sender gave it.
    pub packet: u64,
    /// Payload bytes.
    pub bytes: u32,
    /// Payload bytes, padded to whole lines.
    pub room_bytes: u32,
}

impl Arrived {
    /// Returns what the block says about itself.
    #[inline]
    pub fn tag(&self) -> Tag {
        Tag { stream: self.stream, packet: self.packet }
    }
}

impl Geometry {
    /// Lays out `windows` windows of `blocks` slots that hold `payload_bytes` each.
    ///
    /// # Errors
    /// [`LayoutError`] with the limit that is exceeded.
    pub fn new(blocks: u32, payload_bytes: u32, windows: u32) -> Result<Self, LayoutError> {
        let block_bytes = RingLayout::block_bytes_for(payload_bytes)?;
        let layout = RingLayout::new(blocks, block_bytes)?;
        let error = LayoutError::TooLarge { blocks, block_bytes };
        let places = u64::from(blocks) * u64::from(windows.max(1));
        let bytes = places.checked_mul(u64::from(block_bytes));
        if u32::try_from(places).is_err() || bytes.is_none_or(|bytes| bytes > isize::MAX as u64) {
            return Err(error);
        }
        Ok(Self { layout, windows: windows.max(1) })
    }

    /// Returns the number of windows.
    #[inline]
    pub fn windows(&self) -> u32 {
        self.windows
    }

    /// Returns the number of slots of a window.
    #[inline]
    pub fn blocks(&self) -> u32 {
        self.layout.blocks()
    }

    /// Returns the number of slots of all windows.
    #[inline]
    pub fn places(&self) -> u32 {
        self.layout.blocks() * self.windows
    }

    /// Returns the place of a slot of a window.
    #[inline]
    pub fn place(&self, window: u32, slot: u32) -> u32 {
        window * self.layout.blocks() + slot
    }

    /// Returns the number of bytes of a slot.
    #[inline]
    pub fn block_bytes(&self) -> u32 {
        self.layout.block_bytes()
    }

    /// Checks that a block of `asked` bytes fits a slot and the mechanism's limit `most`.
    ///
    /// # Errors
    /// [`ClaimError::Length`].
    #[inline]
    pub fn check_length(&self, asked: u32, most: u32) -> Result<(), ClaimError> {
        let limit = most.min(self.layout.max_payload_bytes());
        if asked <= limit {
            return Ok(());
        }
        Err(ClaimError::Length { asked, limit, exactly: false })
    }

    /// Returns the number of bytes of all slots.
    pub fn total_bytes(&self) -> usize {
        self.places() as usize * self.layout.block_bytes() as usize
    }

    /// Returns where a slot begins.
    #[inline]
    pub fn slot_offset(&self, place: u32) -> usize {
        place as usize * self.layout.block_bytes() as usize
    }

    /// Returns where a slot's trailer begins.
    #[inline]
    pub fn trailer_offset(&self, place: u32) -> usize {
        self.slot_offset(place) + self.layout.max_payload_bytes() as usize
    }

    /// Returns the same with so many windows.
    #[must_use]
    pub(crate) fn with_windows(self, windows: u32) -> Self {
        Self { windows, ..self }
    }

    /// Returns where a slot's last eight bytes begin.
    #[inline]
    pub fn tail_offset(&self, place: u32) -> usize {
        self.trailer_offset(place) + (TRAILER_BYTES - 8) as usize
    }

    /// Returns the payload that begins `room_bytes` before the trailer.
    #[inline]
    pub fn payload<'a>(
        &self,
        memory: VolatileSlice<'a>,
        place: u32,
        room_bytes: u32,
        bytes: u32,
    ) -> VolatileSlice<'a> {
        let offset = self.trailer_offset(place) - room_bytes as usize;
        memory.subslice(offset, bytes as usize).expect(INSIDE)
    }

    /// Returns the payload of a block that arrived.
    #[inline]
    pub fn arrived<'a>(
        &self,
        memory: VolatileSlice<'a>,
        place: u32,
        arrived: &Arrived,
    ) -> VolatileSlice<'a> {
        self.payload(memory, place, arrived.room_bytes, arrived.bytes)
    }

    /// Asks the processor for the line before the trailer: with small blocks it has the payload.
    #[inline]
    pub fn prefetch_payload(&self, memory: &VolatileSlice<'_>, place: u32) {
        memory.prefetch(self.trailer_offset(place) - LINE_BYTES as usize);
    }

    /// Writes the trailer of a block that is a whole frame, with `tail` as its last eight bytes.
    #[inline]
    pub fn seal(&self, memory: &VolatileSlice<'_>, place: u32, block: &Arrived, tail: u64) {
        let trailer = encode_trailer(&header_words(block), tail);
        memory.write_at(self.trailer_offset(place), &trailer).expect(INSIDE);
    }

    /// Reads and checks the header of a block that has arrived.
    ///
    /// # Errors
    /// [`PeerFault::Header`].
    #[inline]
    pub fn header(&self, memory: &VolatileSlice<'_>, place: u32) -> Result<Arrived, PeerFault> {
        self.check(place, &read_header(memory, self.trailer_offset(place)))
    }

    /// Checks the copy of a header.
    ///
    /// # Errors
    /// [`PeerFault::Header`].
    #[inline]
    pub(crate) fn check(
        &self,
        place: u32,
        words: &[u64; HEADER_WORDS],
    ) -> Result<Arrived, PeerFault> {
        let header = BlockHeader::from_words(words, &self.layout)
            .map_err(|reason| PeerFault::Header { position: place, reason })?;
        Ok(Arrived {
            stream: header.stream,
            packet: header.packet_number,
            bytes: header.payload_bytes,
            room_bytes: header.room_bytes,
        })
    }
}

/// Copies the header of the block whose trailer begins at this offset.
#[inline]
pub(crate) fn read_header(memory: &VolatileSlice<'_>, offset: usize) -> [u64; HEADER_WORDS] {
    let mut trailer = [0; TRAILER_BYTES as usize];
    memory.read_at(offset, &mut trailer).expect(INSIDE);
    decode_trailer(&trailer).0
}

/// Returns the header of a block that is a whole frame.
#[inline]
pub fn header_words(arrived: &Arrived) -> [u64; HEADER_WORDS] {
    let header = BlockHeader {
        stream: arrived.stream,
        payload_bytes: arrived.bytes,
        packet_number: arrived.packet,
        frame_bytes: u64::from(arrived.bytes),
        room_bytes: arrived.room_bytes,
        ..BlockHeader::default()
    };
    header.to_words()
}

#[cfg(test)]
mod tests {
    use super::*;
    use catchment_transfer::HeaderError;
    use catchment_verbs::mem::{Region, RegionOptions};

    #[test]
    fn windows_lie_one_behind_the_other() {
        let geometry = Geometry::new(3, 100, 12).unwrap();
        assert_eq!(geometry.places(), 36);
        assert_eq!(geometry.place(2, 1), 7);
        assert_eq!(geometry.trailer_offset(7), 7 * 192 + 128);
        assert_eq!(geometry.tail_offset(35) + 8, geometry.total_bytes());
        assert!(Geometry::new(65_536, 64, 65_536).is_err());
        assert!(Geometry::new(0, 64, 1).is_err());
    }

    #[test]
    fn a_header_reads_back_and_a_wrong_one_is_refused() {
        let geometry = Geometry::new(2, 100, 1).unwrap();
        let region = Region::alloc(geometry.total_bytes(), RegionOptions::default()).unwrap();
        let memory = region.whole();
        assert!(geometry.header(&memory, 0).is_err(), "zeros are no header");
        let arrived = Arrived { stream: 7, packet: 9, bytes: 100, room_bytes: 128 };
        geometry.seal(&memory, 1, &arrived, 0);
        assert_eq!(geometry.header(&memory, 1), Ok(arrived));
        geometry.seal(&memory, 1, &Arrived { room_bytes: 192, ..arrived }, 0);
        let reason = HeaderError::Room { payload_bytes: 100, room_bytes: 192, limit: 128 };
        assert_eq!(geometry.header(&memory, 1), Err(PeerFault::Header { position: 1, reason }));
    }
}
