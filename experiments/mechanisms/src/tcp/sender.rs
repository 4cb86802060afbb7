//! The sending end.
use super::watch::SocketWatch;
use super::{Blocks, INSIDE, Socket, StreamError, progress};
use crate::{ClaimError, EndError, Shape, SlotSender, Slots};
use catchment_channel::geometry::Arrived;
use catchment_transfer::header::{FLAG_CRC, HEADER_BYTES, encode_trailer};
use catchment_transfer::{BlockHeader, crc32c_of};
use catchment_verbs::Watch;
use catchment_verbs::mem::{Region, RegionOptions, VolatileSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Sends blocks through a socket.
pub type StreamSender = SlotSender<StreamSlots>;

/// Blocks that wait until the kernel takes them.
pub struct StreamSlots {
    socket: Arc<OwnedFd>,
    /// Shared with the receiving end of the same socket.
    has_unsent: Arc<AtomicBool>,
    watch: Arc<SocketWatch>,
    blocks: Blocks,
    memory: Arc<Region>,
    /// Bytes of each block that waits, header included.
    lengths: Box<[usize]>,
    /// The block that the kernel takes next, and what it took of it.
    first: u32,
    written: usize,
    /// Blocks that wait.
    waiting: u32,
    checksums: bool,
}

/// Blocks given to the kernel with one call.
const BATCH: usize = 16;

impl StreamSender {
    /// Makes a sender over a connected socket.
    pub fn new(socket: Socket, shape: Shape) -> Result<Self, StreamError> {
        let blocks = Blocks::new(shape)?;
        let Socket { fd, has_unsent } = socket;
        let socket = Arc::new(fd);
        let slots = StreamSlots {
            watch: SocketWatch::writable(Arc::clone(&socket))?,
            socket,
            has_unsent,
            memory: Region::alloc(blocks.total_bytes(), RegionOptions::default())?,
            lengths: vec![0; shape.blocks as usize].into(),
            blocks,
            first: 0,
            written: 0,
            waiting: 0,
            checksums: false,
        };
        Ok(Self::over(slots, shape.payload_bytes))
    }

    /// Adds a CRC32C to every block, which the receiver checks.
    #[must_use]
    pub fn with_checksums(mut self) -> Self {
        self.slots.checksums = true;
        self
    }
}

impl StreamSlots {
    fn is_full(&self) -> bool {
        self.waiting == self.blocks.layout.blocks()
    }

    /// Returns the block that is filled next.
    fn next(&self) -> u32 {
        (self.first + self.waiting) % self.blocks.layout.blocks()
    }

    /// Writes what waits, as far as the kernel takes it.
    fn flush(&mut self) -> Result<(), EndError> {
        let result = self.write_waiting();
        self.has_unsent.store(self.waiting > 0, Ordering::Relaxed);
        result
    }

    fn write_waiting(&mut self) -> Result<(), EndError> {
        while self.waiting > 0 {
            let count = BATCH.min(self.waiting as usize);
            // The first one may have been taken in part.
            let mut pieces = [self.rest_of(0); BATCH];
            for (place, piece) in (0..).zip(&mut pieces[..count]).skip(1) {
                *piece = self.rest_of(place);
            }
            let written = VolatileSlice::write_all_to_fd(&pieces[..count], self.socket.as_fd());
            let Some(n) = progress(written)? else { return Ok(()) };
            self.take_off(n);
        }
        Ok(())
    }

    /// Returns the unwritten rest of the block at this place in the queue.
    fn rest_of(&self, place: u32) -> VolatileSlice<'_> {
        let block = (self.first + place) % self.blocks.layout.blocks();
        let written = if place == 0 { self.written } else { 0 };
        let offset = self.blocks.header_offset(block) + written;
        self.memory.slice(offset, self.lengths[block as usize] - written).expect(INSIDE)
    }

    /// Removes so many written bytes from the queue.
    fn take_off(&mut self, bytes: usize) {
        self.written += bytes;
        while self.waiting > 0 && self.written >= self.lengths[self.first as usize] {
            self.written -= self.lengths[self.first as usize];
            self.waiting -= 1;
            self.first = (self.first + 1) % self.blocks.layout.blocks();
        }
    }

    fn header(&self, block: &Arrived) -> BlockHeader {
        let mut header = BlockHeader {
            stream: block.stream,
            payload_bytes: block.bytes,
            packet_number: block.packet,
            frame_bytes: block.bytes.into(),
            room_bytes: block.room_bytes,
            ..BlockHeader::default()
        };
        if self.checksums {
            header.crc32c = crc32c_of(&self.memory((), block.bytes));
            header.flags |= FLAG_CRC;
        }
        header
    }
}

impl Slots for StreamSlots {
    /// Always the next.
    type Slot = ();
    const INTERACTIONS: u64 = 1;

    fn find(&mut self, _: u32) -> Result<Option<()>, ClaimError> {
        if self.is_full() {
            self.flush()?;
        }
        Ok((!self.is_full()).then_some(()))
    }

    fn memory(&self, (): (), bytes: u32) -> VolatileSlice<'_> {
        self.memory.slice(self.blocks.payload_offset(self.next()), bytes as usize).expect(INSIDE)
    }

    fn send(&mut self, (): (), block: &Arrived) -> Result<(), EndError> {
        let header = &encode_trailer(&self.header(block).to_words(), 0)[..HEADER_BYTES];
        let next = self.next();
        self.memory.whole().write_at(self.blocks.header_offset(next), header).expect(INSIDE);
        self.lengths[next as usize] = HEADER_BYTES + block.bytes as usize;
        self.waiting += 1;
        self.flush()
    }

    fn progress(&mut self) -> Result<(), EndError> {
        self.flush()
    }

    fn check(&self) -> Result<(), EndError> {
        Ok(())
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        Some(Arc::clone(&self.watch) as Arc<dyn Watch>)
    }
}
