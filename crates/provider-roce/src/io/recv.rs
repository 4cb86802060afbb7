//! Received packets: whole trains in one buffer where the kernel merged them, each packet
//! shown in place.
use super::control::{CONTROL_BYTES, Control, Received};
use super::name::{NAME_BYTES, Name};
use super::sys::{self, MAX_MESSAGES, Message};
use super::{Datagrams, Incoming};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// Bytes of a buffer: what a datagram, or a merged train, can have at most.
const BUFFER_BYTES: usize = 65_536;

/// One packet, in its receive buffer.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// The sender.
    pub from: SocketAddr,
    /// The destination: an address of ours.
    pub to: SocketAddr,
    /// The two ECN bits; 3: congestion experienced (CE).
    pub ecn: u8,
    /// The UDP payload: transport bytes and ICRC.
    pub bytes: &'a [u8],
}

/// Packets received in one message: one after the other, all of one length but the last.
#[derive(Debug, Clone, Copy)]
pub struct Train<'a> {
    /// The sender.
    pub from: SocketAddr,
    /// The destination: an address of ours.
    pub to: SocketAddr,
    /// The two ECN bits; 3: congestion experienced (CE).
    pub ecn: u8,
    segment_bytes: usize,
    bytes: &'a [u8],
}

impl<'a> Train<'a> {
    /// Returns the UDP payload, packet by packet: transport bytes and ICRC.
    #[inline]
    pub fn packets(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks(self.segment_bytes)
    }
}

/// What a ring has received since it was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecvCounters {
    /// Packets.
    pub packets: u64,
    /// Their bytes, ICRC included.
    pub bytes: u64,
    /// Messages that carried them: fewer than packets where the kernel merges.
    pub messages: u64,
    /// System calls that returned something.
    pub calls: u64,
    /// Messages that did not fit their buffer; what did not fit is lost.
    pub truncated: u64,
    /// Messages without a usable address, dropped.
    pub unusable: u64,
}

/// A message as it was received.
#[derive(Debug, Clone, Copy)]
struct Got {
    from: SocketAddr,
    to: SocketAddr,
    ecn: u8,
    segment_bytes: usize,
    bytes: usize,
    /// Index of its buffer.
    buffer: usize,
}

/// Buffers for what was received. One ring may serve many sockets, one after the other.
pub struct RecvRing {
    memory: Box<[u8]>,
    buffer_bytes: usize,
    names: Box<[Name]>,
    controls: Box<[Control]>,
    vectors: Box<[libc::iovec]>,
    messages: Box<[Message]>,
    got: Vec<Got>,
    /// The last call on a socket found nothing.
    was_empty: bool,
    counters: RecvCounters,
}

// SAFETY: the pointers in `vectors` and `messages` lead into the ring's own heap memory, are
// written anew before each use, and are bound to no thread.
unsafe impl Send for RecvRing {}

impl RecvRing {
    /// Creates a ring of `buffers` buffers of 64 KiB each, 1 to 64 of them. Eight keep the
    /// second-level cache warm.
    pub fn new(buffers: usize) -> Self {
        Self::with_buffer_bytes(buffers, BUFFER_BYTES)
    }

    /// Like [`RecvRing::new`] with smaller buffers: for sockets without GRO, where a buffer holds
    /// one packet. What does not fit is lost and counted.
    pub fn with_buffer_bytes(buffers: usize, buffer_bytes: usize) -> Self {
        let buffers = buffers.clamp(1, MAX_MESSAGES);
        let buffer_bytes = buffer_bytes.clamp(1, BUFFER_BYTES);
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Self {
            memory: vec![0; buffers * buffer_bytes].into(),
            buffer_bytes,
            names: vec![Name::none(); buffers].into(),
            controls: vec![Control::empty(); buffers].into(),
            vectors: vec![nothing; buffers].into(),
            messages: vec![Message::empty(); buffers].into(),
            got: Vec::new(),
            was_empty: false,
            counters: RecvCounters::default(),
        }
    }

    /// Replaces the contents of the ring by what has arrived, as far as it fits. Never blocks.
    /// Returns the number of packets: 0 when nothing has arrived.
    ///
    /// # Errors
    /// As [`Datagrams::receive`].
    pub fn receive(&mut self, datagrams: &dyn Datagrams) -> io::Result<usize> {
        self.got.clear();
        datagrams.receive(&mut Incoming { ring: self })
    }

    /// Receives from a socket with one call; returns the number of packets.
    ///
    /// After a call that found nothing, this one asks for one message: what comes alone is then not
    /// followed by a second look for more, and a look that finds nothing prepares one message.
    pub(super) fn receive_from_socket(
        &mut self,
        fd: BorrowedFd<'_>,
        local: SocketAddr,
    ) -> io::Result<usize> {
        let most = if self.was_empty { 1 } else { self.messages.len() };
        self.prepare(most);
        // SAFETY: names, controls and buffers are the ring's own, and live until after the call.
        let received = unsafe { sys::recv(fd, &mut self.messages[..most]) };
        self.was_empty = received.is_err();
        let count = match received {
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(e) => return Err(e),
        };
        self.counters.calls += 1;
        let mut packets = 0;
        for i in 0..count {
            packets += self.take(i, local);
        }
        Ok(packets)
    }

    /// Copies a train into the next buffer; returns false if there is none, or it is too short.
    pub(super) fn add(
        &mut self,
        (from, to): (SocketAddr, SocketAddr),
        ecn: u8,
        segment_bytes: usize,
        bytes: &[u8],
    ) -> bool {
        let buffer = self.got.len();
        if buffer == self.messages.len() || bytes.len() > self.buffer_bytes {
            return false;
        }
        let start = buffer * self.buffer_bytes;
        self.memory[start..start + bytes.len()].copy_from_slice(bytes);
        let segment_bytes = segment_bytes.max(1);
        self.got.push(Got { from, to, ecn, segment_bytes, bytes: bytes.len(), buffer });
        self.counters.messages += 1;
        self.counters.packets += bytes.len().div_ceil(segment_bytes) as u64;
        self.counters.bytes += bytes.len() as u64;
        true
    }

    /// Prepares the first messages for a call.
    fn prepare(&mut self, count: usize) {
        let buffers = self.memory.chunks_exact_mut(self.buffer_bytes);
        for (i, buffer) in buffers.take(count).enumerate() {
            self.vectors[i] =
                libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            // SAFETY: all of it is heap memory of the ring, which is borrowed until after the call.
            self.messages[i] = unsafe {
                Message::new(
                    ((&raw mut self.names[i]).cast(), NAME_BYTES),
                    (&raw mut self.vectors[i], 1),
                    ((&raw mut self.controls[i]).cast(), CONTROL_BYTES),
                )
            };
        }
    }

    /// Reads the kernel's description of message `i`; returns how many packets it has.
    fn take(&mut self, i: usize, local: SocketAddr) -> usize {
        let message = &self.messages[i];
        let control = self.controls[i].received(message.control_bytes());
        let lost_control = message.flags() & libc::MSG_CTRUNC != 0;
        let truncated = message.flags() & libc::MSG_TRUNC != 0;
        self.counters.messages += 1;
        self.counters.truncated += u64::from(truncated);
        let Some(from) = self.names[i].address().filter(|_| !lost_control) else {
            self.counters.unusable += 1;
            return 0;
        };
        let bytes = message.bytes().min(self.buffer_bytes);
        let segment_bytes = segment(control, bytes);
        let whole = if truncated {
            // The packet at the end was cut.
            bytes
                - bytes % segment_bytes
                - if bytes.is_multiple_of(segment_bytes) { segment_bytes } else { 0 }
        } else {
            bytes
        };
        self.got.push(Got {
            from,
            to: local,
            ecn: control.ecn,
            segment_bytes,
            bytes: whole,
            buffer: i,
        });
        let packets = whole.div_ceil(segment_bytes);
        self.counters.packets += packets as u64;
        self.counters.bytes += whole as u64;
        packets
    }

    /// Returns the packets of the last [`RecvRing::receive`], in the order of arrival.
    pub fn packets(&self) -> impl Iterator<Item = Packet<'_>> {
        self.trains().flat_map(|train| {
            train.packets().map(move |bytes| Packet {
                from: train.from,
                to: train.to,
                ecn: train.ecn,
                bytes,
            })
        })
    }

    /// Like [`RecvRing::packets`], but as they were merged: what is the same for all packets of a
    /// train need not be done for each.
    pub fn trains(&self) -> impl Iterator<Item = Train<'_>> {
        self.got.iter().map(|got| {
            let start = got.buffer * self.buffer_bytes;
            Train {
                from: got.from,
                to: got.to,
                ecn: got.ecn,
                segment_bytes: got.segment_bytes,
                bytes: &self.memory[start..start + got.bytes],
            }
        })
    }

    /// Returns what the ring has received since it was created.
    pub fn counters(&self) -> RecvCounters {
        self.counters
    }
}

/// Returns the length of the packets in a message: the kernel's segment size, or all of it.
fn segment(control: Received, bytes: usize) -> usize {
    control.segment_bytes.filter(|segment| *segment > 0).unwrap_or(bytes).max(1)
}

impl std::fmt::Debug for RecvRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecvRing")
            .field("buffers", &self.messages.len())
            .field("buffer_bytes", &self.buffer_bytes)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
