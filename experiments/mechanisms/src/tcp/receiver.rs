//! The receiving end.
use super::watch::SocketWatch;
use super::{Blocks, INSIDE, Socket, StreamError, progress};
use crate::shared::all_slots;
use crate::{Counts, EndError, FirstError, PeerFault, ReceiveEnd, Shape, Tag, TakenBlock};
use catchment_transfer::header::{HEADER_BYTES, decode_trailer};
use catchment_transfer::{BlockHeader, crc32c_of};
use catchment_verbs::Watch;
use catchment_verbs::mem::{Region, RegionOptions, VolatileSlice};
use crossbeam_queue::ArrayQueue;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Receives blocks from a socket. One thread at a time takes blocks; any thread releases them, in any
/// order.
pub struct StreamReceiver {
    socket: Arc<OwnedFd>,
    watch: Arc<SocketWatch>,
    pool: Arc<Pool>,
    /// The block that is being read.
    current: Option<Reading>,
    /// Length of the last block, header included: the next one probably has the same.
    expected: usize,
    /// Bytes read beyond the end of a block.
    beyond: Vec<u8>,
    counts: Counts,
    broken: FirstError,
}

struct Pool {
    blocks: Blocks,
    memory: Arc<Region>,
    free: ArrayQueue<u32>,
}

struct Reading {
    block: u32,
    /// Bytes read so far, header included.
    filled: usize,
    /// Set once it was read.
    header: Option<Header>,
}

#[derive(Clone, Copy)]
struct Header {
    tag: Tag,
    bytes: u32,
    crc: Option<u32>,
}

impl Header {
    fn total(&self) -> usize {
        HEADER_BYTES + self.bytes as usize
    }
}

impl StreamReceiver {
    /// Makes a receiver over a connected socket.
    pub fn new(socket: Socket, shape: Shape) -> Result<Self, StreamError> {
        let blocks = Blocks::new(shape)?;
        let Socket { fd, has_unsent } = socket;
        let socket = Arc::new(fd);
        Ok(Self {
            watch: SocketWatch::readable(Arc::clone(&socket), has_unsent)?,
            socket,
            pool: Arc::new(Pool {
                memory: Region::alloc(blocks.total_bytes(), RegionOptions::default())?,
                blocks,
                free: all_slots(shape.blocks),
            }),
            current: None,
            expected: HEADER_BYTES,
            beyond: Vec::with_capacity(blocks.stride),
            counts: Counts::default(),
            broken: FirstError::default(),
        })
    }

    fn poll(&mut self) -> Result<Option<StreamBlock>, EndError> {
        let Some(mut reading) = self.current.take().or_else(|| self.begin()) else {
            return Ok(None);
        };
        let block = loop {
            if let Some(header) = self.complete(&mut reading)? {
                self.pool.verify(reading.block, &header)?;
                break Some(self.deliver(&reading, header));
            }
            if !self.read(&mut reading)? {
                break None;
            }
        };
        if block.is_none() {
            self.current = Some(reading);
        }
        Ok(block)
    }

    /// Takes a free block to read into.
    fn begin(&self) -> Option<Reading> {
        Some(Reading { block: self.pool.free.pop()?, filled: 0, header: None })
    }

    /// Returns the header, once the block is complete.
    fn complete(&self, reading: &mut Reading) -> Result<Option<Header>, EndError> {
        if reading.header.is_none() && reading.filled >= HEADER_BYTES {
            reading.header = Some(self.pool.header(reading.block)?);
        }
        Ok(reading.header.filter(|header: &Header| reading.filled >= header.total()))
    }

    /// Reads more of the block; false if nothing was readable.
    fn read(&mut self, reading: &mut Reading) -> Result<bool, EndError> {
        let blocks = &self.pool.blocks;
        let most = HEADER_BYTES + blocks.payload_bytes as usize;
        let wanted = match &reading.header {
            Some(header) => header.total(),
            None if !self.beyond.is_empty() => HEADER_BYTES,
            None => self.expected.clamp(HEADER_BYTES, most),
        };
        let offset = blocks.header_offset(reading.block) + reading.filled;
        let room = self.pool.memory.slice(offset, wanted - reading.filled).expect(INSIDE);
        if !self.beyond.is_empty() {
            let n = self.beyond.len().min(room.bytes());
            room.write_at(0, &self.beyond[..n]).expect(INSIDE);
            self.beyond.drain(..n);
            reading.filled += n;
            return Ok(true);
        }
        let Some(n) = progress(room.read_from_fd(self.socket.as_fd()))? else { return Ok(false) };
        reading.filled += n;
        Ok(true)
    }

    fn deliver(&mut self, reading: &Reading, header: Header) -> StreamBlock {
        let total = header.total();
        if reading.filled > total {
            self.keep_beyond(reading, total);
        }
        self.expected = total;
        self.counts.add_block(header.bytes.into());
        StreamBlock { pool: Arc::clone(&self.pool), block: reading.block, header }
    }

    /// Keeps what was read of the blocks after this one. The buffer is empty: it is used up before
    /// anything is read.
    fn keep_beyond(&mut self, reading: &Reading, total: usize) {
        let offset = self.pool.blocks.header_offset(reading.block) + total;
        let bytes = self.pool.memory.slice(offset, reading.filled - total).expect(INSIDE);
        self.beyond.resize(bytes.bytes(), 0);
        bytes.read_at(0, &mut self.beyond).expect(INSIDE);
    }
}

impl Pool {
    /// Checks a complete block against its checksum, if it has one.
    fn verify(&self, block: u32, header: &Header) -> Result<(), PeerFault> {
        let Some(announced) = header.crc else { return Ok(()) };
        let computed = crc32c_of(&self.payload(block, header));
        if computed == announced {
            return Ok(());
        }
        Err(PeerFault::Checksum { position: block, announced, computed })
    }

    fn payload(&self, block: u32, header: &Header) -> VolatileSlice<'_> {
        self.memory.slice(self.blocks.payload_offset(block), header.bytes as usize).expect(INSIDE)
    }

    fn header(&self, block: u32) -> Result<Header, PeerFault> {
        let mut trailer = [0; 64];
        let offset = self.blocks.header_offset(block);
        self.memory.whole().read_at(offset, &mut trailer[..HEADER_BYTES]).expect(INSIDE);
        let (words, _) = decode_trailer(&trailer);
        let wrong = |reason| PeerFault::Header { position: block, reason };
        let header = BlockHeader::from_words(&words, &self.blocks.layout).map_err(wrong)?;
        if header.payload_bytes > self.blocks.payload_bytes {
            return Err(PeerFault::Message(u64::from(header.payload_bytes)));
        }
        Ok(Header {
            tag: Tag { stream: header.stream, packet: header.packet_number },
            bytes: header.payload_bytes,
            crc: header.crc(),
        })
    }
}

impl ReceiveEnd for StreamReceiver {
    type Block = StreamBlock;

    fn take(&mut self) -> Result<Option<StreamBlock>, EndError> {
        self.broken.check()?;
        self.poll().map_err(|error| self.broken.set(error))
    }

    /// `None` while the program holds all blocks: nothing can be read before one is released, which no
    /// socket signals.
    fn watch(&self) -> Option<Arc<dyn Watch>> {
        let can_read = self.current.is_some() || !self.pool.free.is_empty();
        can_read.then(|| Arc::clone(&self.watch) as Arc<dyn Watch>)
    }

    /// Counts no interactions: the kernel acknowledges.
    fn counts(&self) -> Counts {
        self.counts
    }
}

pub struct StreamBlock {
    pool: Arc<Pool>,
    block: u32,
    header: Header,
}

impl TakenBlock for StreamBlock {
    fn tag(&self) -> Tag {
        self.header.tag
    }

    fn payload(&self) -> VolatileSlice<'_> {
        self.pool.payload(self.block, &self.header)
    }
}

impl Drop for StreamBlock {
    fn drop(&mut self) {
        // There is room for all.
        let _ = self.pool.free.push(self.block);
    }
}
