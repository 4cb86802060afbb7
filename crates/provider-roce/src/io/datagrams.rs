//! What carries a device's packets: batches out, a ring in, and a descriptor to wait on.
//!
//! A [`UdpSocket`](super::UdpSocket) is the first that does. Another one carries the same datagrams
//! by other means, such as frames of a wireless adapter whose rate it chooses for each packet.
use super::batch::{Route, SendBatch, Train};
use super::path::{Path, PathError};
use super::recv::RecvRing;
use super::seal;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// A carrier of datagrams for one device, called once for each batch: by dynamic dispatch, at no
/// cost for a packet. All methods are called by one thread at a time, mostly by the engine's.
///
/// A datagram is what UDP would carry: transport headers, payload, pad and ICRC, which covers both
/// addresses and ports. Over IPv4 it also covers the identification of the packet: 0 for a train of
/// one packet, and counted from 0 in a train of several. What arrives damaged, twice, late or not
/// at all is recovered by the protocol.
pub trait Datagrams: Send + Sync {
    /// Returns the address and port that peers send to.
    fn local(&self) -> SocketAddr;

    /// Returns the port that the packets of a queue pair with this number come from: [`Route::local`] of all
    /// of them, which the peer is told. Queue pairs spread over as many ports as there are.
    fn source_port(&self, qpn: u32) -> u16 {
        let _one_for_all = qpn;
        self.local().port()
    }

    /// Returns what it can do; does not change.
    fn capabilities(&self) -> Capabilities;

    /// Returns the length in bytes of the longest IP packet that leaves `local`, whatever the peer.
    ///
    /// # Errors
    /// What the system reports.
    fn ip_mtu(&self) -> io::Result<u32>;

    /// Returns the path to a peer.
    ///
    /// # Errors
    /// [`PathError`].
    fn path_to(&self, remote: SocketAddr) -> Result<Path, PathError>;

    /// Sends trains in order without blocking, and returns how many of them were taken, at least
    /// one.
    ///
    /// # Errors
    /// The first train was not taken: `EAGAIN` to wait until [`Datagrams::full_fd`] is writable,
    /// `ENOBUFS` to retry a little later, `EOPNOTSUPP` to get the packets of a train one by one from
    /// now on, `EMSGSIZE` for a packet that is too long. Any other drops the train.
    fn send(&self, trains: &mut Outgoing<'_>) -> io::Result<usize>;

    /// Sends one datagram from a source port of its own without blocking: for faults that are injected.
    ///
    /// # Errors
    /// The datagram was not sent and is not retried.
    fn send_one(&self, from: SocketAddr, remote: SocketAddr, bytes: &[u8]) -> io::Result<()>;

    /// Fills the ring with what has arrived, without blocking, and returns the number of packets; 0
    /// if nothing has arrived.
    ///
    /// # Errors
    /// What the system reports.
    fn receive(&self, ring: &mut Incoming<'_>) -> io::Result<usize>;

    /// Returns a descriptor that poll(2) reports as readable when packets have arrived.
    fn wait_fd(&self) -> BorrowedFd<'_>;

    /// Returns a descriptor that poll(2) reports as writable when the train can be sent that was refused last.
    fn full_fd(&self) -> BorrowedFd<'_> {
        self.wait_fd()
    }
}

/// What a carrier of datagrams can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// It takes trains of several packets, which it cuts itself (GSO).
    pub segmentation: bool,
    /// It merges packets that arrive in a row into trains (GRO).
    pub coalescing: bool,
    /// Bytes that wait for the engine before arriving packets are dropped. The window of a queue
    /// pair is at most a quarter of it.
    pub receive_buffer_bytes: usize,
}

/// Trains that are sent in one call, with their ICRCs.
pub struct Outgoing<'b> {
    pub(super) batch: &'b mut SendBatch,
    pub(super) range: Range<usize>,
}

impl Outgoing<'_> {
    /// Returns the trains in the order in which they must be sent.
    pub fn trains(&self) -> impl ExactSizeIterator<Item = OutgoingTrain<'_>> {
        let batch = &*self.batch;
        let trains = &batch.trains[self.range.clone()];
        trains.iter().map(|train| OutgoingTrain { batch, train })
    }
}

/// Packets to one peer, all of one length but the last, gathered from several places.
pub struct OutgoingTrain<'b> {
    batch: &'b SendBatch,
    train: &'b Train,
}

impl OutgoingTrain<'_> {
    /// Returns its destination.
    pub fn route(&self) -> Route {
        self.train.route
    }

    /// Returns the length in bytes of all packets but the last.
    pub fn segment_bytes(&self) -> usize {
        self.train.segment_bytes
    }

    /// Returns the length in bytes of all packets together.
    pub fn bytes(&self) -> usize {
        self.train.bytes
    }

    /// Calls `see` with the bytes of all packets, in pieces and in order. The pieces are copies,
    /// because the memory of a payload may change at any time.
    pub fn for_each_piece(&self, mut see: impl FnMut(&[u8])) {
        for entry in &self.batch.vectors[self.train.vectors.clone()] {
            seal::for_each_chunk(entry, &mut see);
        }
    }
}

/// The buffers for what arrives in one call, empty before it.
pub struct Incoming<'r> {
    pub(super) ring: &'r mut RecvRing,
}

impl Incoming<'_> {
    /// Adds a train: packets from one peer, all of `segment_bytes` but the last, which may be
    /// shorter. `ecn` are the two ECN bits. Returns false, and adds nothing, when the ring has no
    /// buffer left, or none that is long enough.
    pub fn push(
        &mut self,
        (from, to): (SocketAddr, SocketAddr),
        ecn: u8,
        segment_bytes: usize,
        bytes: &[u8],
    ) -> bool {
        self.ring.add((from, to), ecn, segment_bytes, bytes)
    }
}
