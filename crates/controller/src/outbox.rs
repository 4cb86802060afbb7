//! Datagrams on their way out: several in one system call.
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, sendmmsg, sendto};
use std::array;
use std::io::IoSlice;
use std::net::{SocketAddr, UdpSocket};

/// Datagrams of one system call.
const BATCH: usize = 32;

/// Collects datagrams, and sends them when there are enough or nothing more comes.
pub(crate) struct Outbox {
    datagrams: [Vec<u8>; BATCH],
    to: Vec<SocketAddrAny>,
}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self { datagrams: array::from_fn(|_| Vec::new()), to: Vec::with_capacity(BATCH) }
    }

    /// Takes a datagram, and sends all if these are enough. What is not sent counts as lost, and is repeated.
    pub(crate) fn push(&mut self, socket: &UdpSocket, to: SocketAddr, bytes: &[u8]) {
        let datagram = &mut self.datagrams[self.to.len()];
        datagram.clear();
        datagram.extend_from_slice(bytes);
        self.to.push(to.into());
        if self.to.len() == BATCH {
            self.flush(socket);
        }
    }

    pub(crate) fn flush(&mut self, socket: &UdpSocket) {
        match &self.to[..] {
            [] => return,
            [to] => {
                let _ = sendto(socket, &self.datagrams[0], SendFlags::DONTWAIT, to);
            }
            _ => self.send_all(socket),
        }
        self.to.clear();
    }

    fn send_all(&self, socket: &UdpSocket) {
        let count = self.to.len();
        let slices: [_; BATCH] = array::from_fn(|at| [IoSlice::new(&self.datagrams[at])]);
        let mut controls: [_; BATCH] = array::from_fn(|_| SendAncillaryBuffer::default());
        let parts = self.to.iter().zip(&slices).zip(&mut controls);
        let mut messages: Vec<MMsgHdr<'_>> = parts
            .map(|((to, slice), control)| MMsgHdr::new_with_addr(to, slice, control))
            .collect();
        let mut sent = 0;
        while sent < count {
            // An error is about the first: those behind it go all the same.
            let result = sendmmsg(socket, &mut messages[sent..], SendFlags::DONTWAIT);
            sent += result.unwrap_or(1).max(1);
        }
    }
}
