//! The baseline over a byte stream: blocks through a TCP connection or a unix socket.
//!
//! RDMA is to be compared with a byte stream that is used well:
//!
//! | | |
//! |---|---|
//! | framing | the block header of the product's format, 56 bytes, then the payload; nothing else |
//! | checksum | CRC32C of the payload, as in the product's format, if the sender is asked for it; computed where the block was filled, checked before the program gets it |
//! | sending | each block at once, straight from where it was filled; when the kernel takes no more, blocks wait and go up to 16 with one call |
//! | receiving | one read a block as long as blocks keep their length, straight into the block that the program gets |
//! | socket | `TCP_NODELAY`, buffers as the system sizes them, non-blocking |
//! | program | the interface of all mechanisms ([`crate`]), with as many blocks and the same wait policies |
//!
//! Blocks arrive in order; the kernel decides how many more it buffers.
mod receiver;
mod sender;
mod watch;

pub use receiver::{StreamBlock, StreamReceiver};
pub use sender::{StreamSender, StreamSlots};

use crate::slots::FEATURES;
use crate::{EndError, Features, Shape};
use catchment_transfer::header::HEADER_BYTES;
use catchment_transfer::layout::padded;
use catchment_transfer::{LayoutError, RingLayout};
use catchment_verbs::mem::MemError;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A connection cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    #[error("{0}")]
    Layout(#[from] LayoutError),
    #[error("the socket: {0}")]
    Socket(#[from] io::Error),
    #[error("memory for the blocks: {0}")]
    Memory(#[from] MemError),
}

#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    /// Whether the sending end has bytes that the kernel has not taken yet.
    has_unsent: Arc<AtomicBool>,
}

impl Socket {
    /// Wraps a TCP connection; makes it non-blocking, with `TCP_NODELAY`.
    pub fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self::new(stream.into()))
    }

    /// Wraps a unix stream socket; makes it non-blocking.
    pub fn unix(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self::new(stream.into()))
    }

    fn new(fd: OwnedFd) -> Self {
        Self { fd, has_unsent: Arc::default() }
    }

    /// Returns another handle to the same connection, so that one end sends and the other receives. A
    /// program that sleeps until something arrives also wakes when there is room for what is unsent.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()?, has_unsent: Arc::clone(&self.has_unsent) })
    }
}

/// Returns what users of either end may rely on.
pub fn features() -> Features {
    FEATURES
}

/// Bytes before a payload in memory, so that it begins on a cache line.
const LEAD_BYTES: usize = 64;
/// Offset of the header in them: it ends where the payload begins.
const HEADER_OFFSET: usize = LEAD_BYTES - HEADER_BYTES;

/// The layout of blocks in memory: lead and payload of each, one behind the other.
#[derive(Debug, Clone, Copy)]
struct Blocks {
    layout: RingLayout,
    payload_bytes: u32,
    stride: usize,
}

impl Blocks {
    fn new(shape: Shape) -> Result<Self, LayoutError> {
        let block_bytes = RingLayout::block_bytes_for(shape.payload_bytes)?;
        Ok(Self {
            layout: RingLayout::new(shape.blocks, block_bytes)?,
            payload_bytes: shape.payload_bytes,
            stride: LEAD_BYTES + padded(shape.payload_bytes) as usize,
        })
    }

    fn total_bytes(&self) -> usize {
        self.layout.blocks() as usize * self.stride
    }

    /// Returns the offset of a block's header. Its payload follows directly.
    fn header_offset(&self, block: u32) -> usize {
        block as usize * self.stride + HEADER_OFFSET
    }

    fn payload_offset(&self, block: u32) -> usize {
        block as usize * self.stride + LEAD_BYTES
    }
}

/// Interprets the result of a read or write; `None` if it would block.
fn progress(result: io::Result<usize>) -> Result<Option<usize>, EndError> {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    match result {
        Ok(0) => Err(EndError::PeerGone),
        Ok(n) => Ok(Some(n)),
        Err(error) => {
            let kind = error.kind();
            if matches!(kind, WouldBlock | Interrupted) {
                return Ok(None);
            }
            let is_gone = matches!(kind, BrokenPipe | ConnectionAborted | ConnectionReset);
            Err(match is_gone {
                true => EndError::PeerGone,
                false => EndError::Socket(kind),
            })
        }
    }
}

const INSIDE: &str = "a block inside of its memory";
