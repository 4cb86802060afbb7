//! The sending end.
use super::watch::SocketWatch;
use super::{Blocks, INSIDE, Socket, StreamError, ended};
use crate::{ClaimError, Counts, EndError, FirstError, SendEnd, Shape};
use catchment_transfer::header::{FLAG_CRC, HEADER_BYTES, encode_trailer};
use catchment_transfer::layout::padded;
use catchment_transfer::{BlockHeader, HeaderError, crc32c_of};
use catchment_verbs::Watch;
use catchment_verbs::mem::{Region, RegionOptions, VolatileSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Sends blocks through a socket. One thread at a time uses it.
pub struct StreamSender {
    socket: Arc<OwnedFd>,
    /// Told to the receiving end of the same socket.
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
    claims: u64,
    counts: Counts,
    checksums: bool,
    broken: FirstError,
}

/// Blocks given to the kernel with one call.
const BATCH: usize = 16;

#[derive(Debug)]
#[must_use = "a block that is claimed and not committed is not sent"]
pub struct StreamClaim {
    number: u64,
    stream: u32,
    bytes: u32,
}

impl StreamSender {
    /// Over a connected socket.
    pub fn new(socket: Socket, shape: Shape) -> Result<StreamSender, StreamError> {
        let blocks = Blocks::new(shape)?;
        let Socket { fd, has_unsent } = socket;
        let socket = Arc::new(fd);
        Ok(StreamSender {
            watch: SocketWatch::writable(Arc::clone(&socket))?,
            socket,
            has_unsent,
            memory: Region::alloc(blocks.total_bytes(), RegionOptions::default())?,
            lengths: vec![0; shape.blocks as usize].into(),
            blocks,
            first: 0,
            written: 0,
            waiting: 0,
            claims: 0,
            counts: Counts::default(),
            checksums: false,
            broken: FirstError::default(),
        })
    }

    /// With a CRC32C in every block, which the receiver checks.
    #[must_use]
    pub fn with_checksums(self) -> StreamSender {
        StreamSender { checksums: true, ..self }
    }

    /// The block that is filled next.
    fn next(&self) -> u32 {
        (self.first + self.waiting) % self.blocks.layout.blocks()
    }

    /// Gives the kernel what waits, as far as it takes it.
    fn flush(&mut self) -> Result<(), EndError> {
        self.broken.check()?;
        let result = self.write_waiting();
        self.has_unsent.store(self.waiting > 0, Ordering::Relaxed);
        result.map_err(|error| self.broken.set(error))
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
            let Some(n) = ended(written)? else {
                return Ok(());
            };
            self.take_off(n);
        }
        Ok(())
    }

    /// What the kernel has not taken of the block at this place of those that wait.
    fn rest_of(&self, place: u32) -> VolatileSlice<'_> {
        let block = (self.first + place) % self.blocks.layout.blocks();
        let written = if place == 0 { self.written } else { 0 };
        let offset = self.blocks.header_offset(block) + written;
        self.memory.slice(offset, self.lengths[block as usize] - written).expect(INSIDE)
    }

    /// The kernel took so many bytes of what waits.
    fn take_off(&mut self, bytes: usize) {
        self.written += bytes;
        while self.waiting > 0 && self.written >= self.lengths[self.first as usize] {
            self.written -= self.lengths[self.first as usize];
            self.waiting -= 1;
            self.first = (self.first + 1) % self.blocks.layout.blocks();
        }
    }

    fn header(&self, claim: &StreamClaim, packet: u64) -> BlockHeader {
        let mut header = BlockHeader {
            stream: claim.stream,
            payload_bytes: claim.bytes,
            packet_number: packet,
            frame_bytes: claim.bytes.into(),
            room_bytes: padded(claim.bytes),
            ..BlockHeader::default()
        };
        if self.checksums {
            header.crc32c = crc32c_of(&self.memory(claim));
            header.flags |= FLAG_CRC;
        }
        header
    }
}

impl SendEnd for StreamSender {
    type Claim = StreamClaim;

    fn claim(&mut self, stream: u32, bytes: u32) -> Result<StreamClaim, ClaimError> {
        let limit = self.blocks.payload_bytes;
        if bytes > limit {
            return Err(ClaimError::Length { asked: bytes, limit, exactly: false });
        }
        if self.waiting == self.blocks.layout.blocks() {
            self.flush()?;
        }
        self.broken.check()?;
        if self.waiting == self.blocks.layout.blocks() {
            self.counts.would_blocks += 1;
            return Err(ClaimError::WouldBlock);
        }
        self.claims += 1;
        Ok(StreamClaim { number: self.claims, stream, bytes })
    }

    fn memory<'a>(&'a self, claim: &'a StreamClaim) -> VolatileSlice<'a> {
        let offset = self.blocks.payload_offset(self.next());
        self.memory.slice(offset, claim.bytes as usize).expect(INSIDE)
    }

    fn commit(&mut self, claim: StreamClaim, packet: u64) -> Result<(), EndError> {
        if claim.number != self.claims {
            return Err(EndError::StaleClaim);
        }
        if packet == u64::MAX {
            return Err(EndError::Packet(HeaderError::PacketNumber(packet)));
        }
        // No second commit of it.
        self.claims += 1;
        let header = self.header(&claim, packet);
        let block = self.next();
        let header = &encode_trailer(&header.to_words(), 0)[..HEADER_BYTES];
        self.memory.whole().write_at(self.blocks.header_offset(block), header).expect(INSIDE);
        self.lengths[block as usize] = HEADER_BYTES + claim.bytes as usize;
        self.waiting += 1;
        self.counts.blocks += 1;
        self.counts.payload_bytes += u64::from(claim.bytes);
        self.flush()
    }

    fn progress(&mut self) -> Result<(), EndError> {
        self.flush()
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        Some(Arc::clone(&self.watch) as Arc<dyn Watch>)
    }

    /// One interaction a block.
    fn counts(&self) -> Counts {
        Counts { interactions: self.counts.blocks, ..self.counts }
    }
}
