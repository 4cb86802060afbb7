//! The UDP ports that packets leave from: a socket for each.
//!
//! Routers and network cards choose among equal paths and queues by the source port, and between two of our
//! stacks the receiver drops packets from another port than it was told. So the ports are drawn by chance.
//! Nothing is received here: the sockets have the smallest receive buffer there is.
use super::options::{self, SocketOptions};
use catchment_roce::wire::net::dynamic_port;
use catchment_verbs::provider::random;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Ports that are tried until one is free.
const TRIES: usize = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct SourcePorts {
    sockets: Vec<(u16, OwnedFd)>,
    /// The one that was full last; the number of all for the receiving one.
    full: AtomicUsize,
}

impl SourcePorts {
    /// Opens the sockets that send from this address. There are fewer where ports or descriptors are short,
    /// even none: then packets leave from the bound port.
    pub(super) fn open(local: SocketAddr, wanted: &SocketOptions) -> Self {
        let sockets = (0..wanted.source_ports).map_while(|_| {
            bind(local, wanted)
                .inspect_err(|error| tracing::debug!(%error, "no further source port"))
                .ok()
        });
        Self { sockets: sockets.collect(), full: AtomicUsize::new(0) }
    }

    /// Returns the port for a queue pair with this number.
    pub(super) fn of(&self, qpn: u32) -> Option<u16> {
        let at = qpn as usize % self.sockets.len().max(1);
        self.sockets.get(at).map(|(port, _)| *port)
    }

    /// Returns the socket that sends from this port, and its place; `None` for the bound port.
    pub(super) fn socket(&self, port: u16) -> Option<(usize, BorrowedFd<'_>)> {
        let at = self.sockets.iter().position(|(own, _)| *own == port)?;
        Some((at, self.sockets[at].1.as_fd()))
    }

    /// Notes that the socket in this place is full.
    pub(super) fn note_full(&self, at: Option<usize>) {
        self.full.store(at.unwrap_or(self.sockets.len()), Ordering::Relaxed);
    }

    /// Returns the socket that was full last; `None` for the receiving one.
    pub(super) fn full(&self) -> Option<BorrowedFd<'_>> {
        self.sockets.get(self.full.load(Ordering::Relaxed)).map(|(_, fd)| fd.as_fd())
    }
}

fn bind(mut local: SocketAddr, wanted: &SocketOptions) -> io::Result<(u16, OwnedFd)> {
    let ipv6 = local.is_ipv6();
    let fd = options::open(ipv6)?;
    options::demand(fd.as_fd(), ipv6)?;
    if !wanted.checksum {
        options::drop_checksum(fd.as_fd(), ipv6)?;
    }
    options::receive_buffer(fd.as_fd(), 0)?;
    options::send_buffer(fd.as_fd(), wanted.send_buffer_bytes)?;
    let mut tries = 0;
    loop {
        local.set_port(dynamic_port(random().map_err(io::Error::other)?));
        match rustix::net::bind(&fd, &local) {
            Ok(()) => return Ok((options::local_address(&fd)?.port(), fd)),
            Err(error) if tries == TRIES => return Err(error.into()),
            Err(_) => tries += 1,
        }
    }
}
