//! Does the kernel number the packets of a train as the ICRC expects?
//!
//! Over IPv4 the ICRC covers the identification, and the kernel chooses it: 0 for a packet alone,
//! 0, 1, 2 ... for the segments of a GSO send. A UDP socket does not see the identification, and
//! our receiver takes any. A socket filter does see it: the observer's lets only those packets pass
//! whose identification is the number that they carry.
use catchment_provider_roce::io::{RecvRing, Route, SendBatch, SocketOptions, UdpSocket};
use catchment_roce::Psn;
use catchment_roce::wire::{Bth, Headers, MAX_HEADER_BYTES, Opcode};
use catchment_verbs::event;
use socket2::{SockFilter, SockRef};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

const PROBE_BYTES: usize = 64;
/// Where a filter finds the lower half of the PSN: behind UDP header and 10 bytes of BTH.
const PSN_AT: u32 = 18;
/// Where a filter finds the identification of the IPv4 header.
const IPV4_ID_AT: u32 = (libc::SKF_NET_OFF + 4) as u32;

/// A socket that probes are sent to.
pub(crate) struct Observer {
    socket: UdpSocket,
    ring: RecvRing,
}

impl Observer {
    /// At this address, on a port of the kernel's choice.
    pub(crate) fn bind(address: IpAddr) -> Self {
        let options = SocketOptions {
            // The filter must see packets one by one.
            gro: false,
            ..SocketOptions::default()
        };
        let socket = crate::support::bind(address, &options);
        if address.is_ipv4() {
            SockRef::from(&socket).attach_filter(&id_is_psn()).unwrap();
        }
        Self { socket, ring: RecvRing::with_buffer_bytes(16, 4096) }
    }

    /// Sends as many probes, numbered 0, 1, 2 ..., in one flush.
    pub(crate) fn probe(&self, batch: &mut SendBatch, from: &UdpSocket, packets: usize) {
        let route = Route { local: from.local(), remote: self.address(), traffic_class: 0 };
        for psn in 0..packets {
            batch.push(&route, &probe(psn as u32), &[]).unwrap();
        }
        assert_eq!(batch.flush(from).packets, packets);
    }

    /// How many of `sent` probes come with their number as identification; waits for a missing one
    /// until the time is over.
    pub(crate) fn rightly_numbered(&mut self, sent: usize, timeout: Duration) -> usize {
        let deadline = event::deadline(timeout);
        let mut right = 0;
        while right < sent {
            let new = self.ring.receive(&self.socket).unwrap();
            right += new;
            if new == 0 && !event::wait_readable(self.socket.as_fd(), deadline).unwrap() {
                break;
            }
        }
        right
    }

    /// Where to send probes.
    pub(crate) fn address(&self) -> SocketAddr {
        self.socket.local()
    }
}

/// Accept if the identification is the lower half of the PSN, else drop.
fn id_is_psn() -> [SockFilter; 6] {
    let op = |code: u32, jt, jf, k| SockFilter::new(code as u16, jt, jf, k);
    [
        op(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, IPV4_ID_AT),
        op(libc::BPF_MISC | libc::BPF_TAX, 0, 0, 0),
        op(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, PSN_AT),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_X, 0, 1, 0),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ]
}

/// Headers and payload.
fn probe(psn: u32) -> Vec<u8> {
    let headers = Headers::new(Bth::new(Opcode::RcSendOnly, 17, Psn::new(psn)));
    let mut encoded = [0; MAX_HEADER_BYTES];
    let bytes = headers.encode(&mut encoded);
    let mut all = encoded[..bytes].to_vec();
    all.resize(bytes + PROBE_BYTES, 0);
    all
}
