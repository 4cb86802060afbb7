//! Two sockets, packets with known bytes between them.
use catchment_provider_roce::io::{
    IcrcCheck, Piece, RecvRing, Route, SendBatch, SocketOptions, UdpSocket, Waiter,
};
use catchment_roce::Psn;
use catchment_roce::wire::{Bth, Headers, MAX_HEADER_BYTES, Opcode, Packet, Reth, pad_bytes};
use catchment_verbs::mem::{Region, RegionOptions};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longer than any packet takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
const REGION_BYTES: usize = 1 << 20;

/// Sleeps until packets have come to a socket, or the time is over.
pub(crate) fn sleep_on(socket: &UdpSocket, timeout: Duration) {
    Waiter::new().unwrap().sleep(socket.as_fd(), None, timeout).unwrap();
}

/// A sender, a receiver, and the memory that is sent from.
pub(crate) struct Link {
    pub(crate) tx: UdpSocket,
    pub(crate) rx: UdpSocket,
    pub(crate) batch: SendBatch,
    pub(crate) ring: RecvRing,
    pub(crate) route: Route,
    check: IcrcCheck,
    region: Arc<Region>,
}

impl Link {
    pub(crate) fn new(tx: UdpSocket, rx: UdpSocket) -> Self {
        Self {
            batch: SendBatch::new(&tx, 512),
            ring: RecvRing::new(8),
            check: IcrcCheck::new(),
            region: patterned(),
            route: Route { local: tx.local(), remote: rx.local(), traffic_class: 0 },
            tx,
            rx,
        }
    }

    /// Both ends on this host, on ports of the kernel's choice.
    pub(crate) fn at(address: &str, options: &SocketOptions) -> Self {
        let address = SocketAddr::new(address.parse().unwrap(), 0);
        let bind = || UdpSocket::bind(address, options).unwrap();
        Self::new(bind(), bind())
    }

    /// Adds WRITEs of these lengths, numbered from `psn`, from all over the memory.
    pub(crate) fn push(&mut self, psn: u32, lengths: &[usize]) {
        for (i, bytes) in lengths.iter().enumerate() {
            let psn = psn + i as u32;
            let (head, head_bytes) = head(psn, *bytes);
            let (first, second) = (*bytes / 3, *bytes - *bytes / 3);
            let offset = offset(psn, *bytes);
            let piece = |offset, bytes| Piece { region: &self.region, offset, bytes };
            let pieces = [piece(offset, first), piece(offset + first, second)];
            self.batch.push(&self.route, &head[..head_bytes], &pieces).unwrap();
        }
    }

    /// Sends WRITEs of these lengths in one flush, which must take all.
    pub(crate) fn send(&mut self, psn: u32, lengths: &[usize]) {
        self.push(psn, lengths);
        let done = self.batch.flush(&self.tx);
        assert_eq!(done.blocked, None);
        assert_eq!(done.packets, lengths.len(), "{:?}", self.batch.take_faults());
    }

    /// Receives as many packets, checks each byte, and returns PSN and payload length of each.
    pub(crate) fn receive(&mut self, count: usize) -> Vec<(u32, usize)> {
        let mut seen = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while seen.len() < count {
            let (ring, rx) = (&mut self.ring, &self.rx);
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{} of {count} packets came", seen.len());
            sleep_on(rx, left);
            ring.receive(rx).unwrap();
            for packet in self.ring.packets() {
                assert_eq!((packet.from, packet.to), (self.tx.local(), self.route.remote));
                let packet = Packet::decode(self.check.check(&packet).unwrap()).unwrap();
                let psn = packet.headers.bth.psn.value();
                let bytes = packet.payload.len();
                let mut expected = vec![0; bytes];
                self.region.whole().read_at(offset(psn, bytes), &mut expected).unwrap();
                assert!(packet.payload == expected, "packet {psn} has wrong bytes");
                seen.push((psn, bytes));
            }
        }
        seen
    }

    /// Sends and receives, and compares.
    pub(crate) fn exchange(&mut self, psn: u32, lengths: &[usize]) {
        self.send(psn, lengths);
        let expected: Vec<_> = (psn..).zip(lengths.iter().copied()).collect();
        assert_eq!(self.receive(lengths.len()), expected);
    }
}

/// Bytes that differ everywhere.
fn patterned() -> Arc<Region> {
    let region = Region::alloc(REGION_BYTES, RegionOptions::default()).unwrap();
    let bytes: Vec<u8> =
        (0..REGION_BYTES as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    region.whole().write_at(0, &bytes).unwrap();
    region
}

/// Where the payload of a packet is.
fn offset(psn: u32, bytes: usize) -> usize {
    (psn as usize * 7919) % (REGION_BYTES - bytes)
}

/// The headers of a WRITE.
pub(crate) fn head(psn: u32, payload_bytes: usize) -> ([u8; MAX_HEADER_BYTES], usize) {
    let mut headers = Headers::new(Bth::new(Opcode::RcWriteOnly, 17, Psn::new(psn)));
    headers.bth.pad = pad_bytes(payload_bytes);
    headers.reth = Some(Reth { va: 0x1000, rkey: 42, dma_bytes: payload_bytes as u32 });
    let mut out = [0; MAX_HEADER_BYTES];
    let bytes = headers.encode(&mut out);
    (out, bytes)
}

/// Sockets at two addresses, on ports of the kernel's choice.
pub(crate) fn bind(address: IpAddr, options: &SocketOptions) -> UdpSocket {
    UdpSocket::bind(SocketAddr::new(address, 0), options).unwrap()
}
