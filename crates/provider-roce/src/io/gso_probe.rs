//! Does the kernel number the packets of a train as the ICRC expects?
//!
//! Over IPv4 the ICRC covers the identification, and the kernel chooses it: 0 for a packet alone, 0,
//! 1, 2 ... for the segments of a GSO send. Our own receiver takes any identification, so between
//! two of our stacks nothing depends on this; an RNIC or the kernel's rxe drops what is numbered
//! otherwise. A UDP socket does not see the identification, but a socket filter does: the observer's
//! filter lets only those probes pass whose identification is the number that they carry.
use super::{BindError, Blocked, Flush, RecvRing, Route, SendBatch, SocketOptions, UdpSocket, sys};
use catchment_roce::{
    Psn,
    wire::{Bth, Deth, Headers, MAX_HEADER_BYTES, Opcode},
};
use rustix::event::{PollFd, PollFlags, poll};
use std::{
    io,
    net::SocketAddr,
    os::fd::AsFd,
    time::{Duration, Instant},
};

/// Payload bytes of a probe.
const PROBE_BYTES: usize = 64;
/// Where a filter finds the lower half of the PSN: behind UDP header and 10 bytes of BTH.
const PSN_AT: u32 = 18;
/// Where a filter finds the identification of the IPv4 header.
const IPV4_ID_AT: u32 = (libc::SKF_NET_OFF + 4) as u32;

/// What an observer saw of a train of probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GsoVerdict {
    /// All packets came, numbered as the ICRC expects: trains may go by GSO to any peer.
    InOrder,
    /// Not all packets came, or some with another number. Over IPv4, use GSO to own peers only.
    Wrong {
        /// Packets that came numbered rightly.
        right: usize,
        /// Packets that were sent.
        sent: usize,
    },
    /// The kernel does not cut trains on this way.
    Refused,
}

/// A socket that probes are sent to, on this host or in another namespace of it.
#[derive(Debug)]
pub struct GsoObserver {
    socket: UdpSocket,
    ring: RecvRing,
}

impl GsoObserver {
    /// Opens an observer at `address`; port 0 lets the kernel choose.
    ///
    /// # Errors
    /// As [`UdpSocket::bind`]; also where socket filters are forbidden.
    pub fn bind(address: SocketAddr) -> Result<GsoObserver, BindError> {
        let options = SocketOptions {
            // The filter must see packets one by one.
            gro: false,
            ..SocketOptions::default()
        };
        let socket = UdpSocket::bind(address, &options)?;
        if address.is_ipv4() {
            sys::attach_filter(socket.as_fd(), &id_is_psn()).map_err(|source| BindError::Os {
                address,
                call: "setsockopt(SO_ATTACH_FILTER)",
                source,
            })?;
        }
        Ok(GsoObserver {
            socket,
            ring: RecvRing::with_buffer_bytes(16, 4096),
        })
    }

    /// Where to send probes.
    pub fn address(&self) -> SocketAddr {
        self.socket.local()
    }

    /// Waits until `sent` probes have come, or the time is over.
    ///
    /// # Errors
    /// What the system says when receiving.
    pub fn observe(&mut self, sent: usize, timeout: Duration) -> io::Result<GsoVerdict> {
        let deadline = Instant::now() + timeout;
        let mut right = 0;
        while right < sent {
            let new = self.ring.receive(&self.socket)?;
            right += new;
            let left = deadline.saturating_duration_since(Instant::now());
            if new == 0 && left.is_zero() {
                return Ok(GsoVerdict::Wrong { right, sent });
            }
            if new == 0 {
                wait_readable(&self.socket, left)?;
            }
        }
        Ok(GsoVerdict::InOrder)
    }
}

/// Accept if the identification is the lower half of the PSN, else drop.
fn id_is_psn() -> [libc::sock_filter; 6] {
    let op = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    [
        op(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, IPV4_ID_AT),
        op(libc::BPF_MISC | libc::BPF_TAX, 0, 0, 0),
        op(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, PSN_AT),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_X, 0, 1, 0),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ]
}

/// Sends probes numbered 0, 1, 2 ... as one train if the batch may, and says what became of them.
pub fn send_gso_probe(
    batch: &mut SendBatch,
    socket: &UdpSocket,
    route: &Route,
    packets: usize,
) -> Flush {
    for psn in 0..packets {
        let mut head = [0; MAX_HEADER_BYTES + PROBE_BYTES];
        let bytes = probe_head(psn as u32, &mut head);
        if batch
            .push(route, &head[..bytes + PROBE_BYTES], &[])
            .is_err()
        {
            break;
        }
    }
    batch.flush(socket)
}

/// A datagram to queue pair 0, which RoCE does not use: who gets it by mistake drops it.
fn probe_head(psn: u32, out: &mut [u8; MAX_HEADER_BYTES + PROBE_BYTES]) -> usize {
    let mut headers = Headers::new(Bth::new(Opcode::UdSendOnly, 0, Psn::new(psn)));
    headers.deth = Some(Deth {
        qkey: 0,
        src_qpn: 0,
    });
    let mut encoded = [0; MAX_HEADER_BYTES];
    let bytes = headers.encode(&mut encoded);
    out[..bytes].copy_from_slice(&encoded[..bytes]);
    bytes
}

/// Sends a train from `socket` to an observer and says how it came.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if the socket is full, else what the system says.
pub fn gso_self_test(
    socket: &UdpSocket,
    observer: &mut GsoObserver,
    timeout: Duration,
) -> io::Result<GsoVerdict> {
    /// More than one page of a socket buffer, fewer than a train.
    const PACKETS: usize = 16;
    let mut batch = SendBatch::new(socket, PACKETS);
    let route = Route {
        local: super::path::source(socket, observer.address())?,
        remote: observer.address(),
        ecn: 0,
    };
    let sent = send_gso_probe(&mut batch, socket, &route, PACKETS);
    match sent.blocked {
        Some(Blocked::SocketFull | Blocked::NoBuffers) => Err(io::ErrorKind::WouldBlock.into()),
        None if batch.counters().gso_fallbacks > 0 || !socket.has_gso() => Ok(GsoVerdict::Refused),
        None => observer.observe(PACKETS, timeout),
    }
}

fn wait_readable(socket: &UdpSocket, timeout: Duration) -> io::Result<()> {
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    match poll(&mut fds, Some(&catchment_verbs::event::timespec(timeout))) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
