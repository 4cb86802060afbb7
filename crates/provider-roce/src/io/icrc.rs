//! The ICRC of what comes in.
use super::{
    fold::InPlace,
    recv::{Packet, Train},
};
pub(super) use catchment_roce::wire::ICRC_BYTES;
use catchment_roce::wire::{
    CrcWay, Icrc, NetHeader,
    icrc::{self, IcrcMismatch},
    ip_id::Solver,
    net::Ipv4Id,
};
use std::{
    hint::black_box,
    net::{IpAddr, SocketAddr},
    sync::OnceLock,
    time::{Duration, Instant},
};

/// A packet is not what its sender sent, or no RoCE packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IcrcError {
    /// No room for an ICRC.
    #[error("a datagram of {bytes} bytes holds no ICRC")]
    TooShort {
        /// Its length.
        bytes: usize,
    },
    /// Damaged, or sent by something else.
    #[error(transparent)]
    Mismatch(#[from] IcrcMismatch),
}

/// Checks packets. Keeps a table for each length, so use one for many packets.
///
/// Over IPv4 a UDP socket does not see the identification, which the ICRC covers: the check
/// solves for it, and refuses what no identification explains.
#[derive(Debug, Default)]
pub struct IcrcCheck {
    crc: CrcWay,
    solver: Solver,
}

impl IcrcCheck {
    /// A check that has seen no packet.
    pub fn new() -> IcrcCheck {
        IcrcCheck::default()
    }

    /// The same with CRCs computed in this way.
    #[must_use]
    pub fn with_crc(self, crc: CrcWay) -> IcrcCheck {
        IcrcCheck { crc, ..self }
    }

    /// The transport bytes (from the BTH to the pad) of a whole packet.
    ///
    /// # Errors
    /// [`IcrcError`]: drop the packet and count it.
    #[inline]
    pub fn check<'a>(&mut self, packet: &Packet<'a>) -> Result<&'a [u8], IcrcError> {
        self.packets_between(packet.from, packet.to)
            .check(packet.bytes)
    }

    /// Checks the packets of a train, which have most of what the ICRC covers in common.
    #[inline]
    pub fn train(&mut self, train: &Train<'_>) -> TrainCheck<'_> {
        self.packets_between(train.from, train.to)
    }

    fn packets_between(&mut self, from: SocketAddr, to: SocketAddr) -> TrainCheck<'_> {
        let net = header(from, to).map(|net| net.with_ipv4_id(Ipv4Id::UNFRAGMENTED));
        TrainCheck {
            crc: self.crc,
            in_place: InPlace::new(self.crc),
            solver: &mut self.solver,
            net,
            begun: None,
        }
    }
}

/// Checks packets from one address to one address.
#[derive(Debug)]
pub struct TrainCheck<'c> {
    crc: CrcWay,
    in_place: InPlace,
    solver: &'c mut Solver,
    /// None when the addresses are of two families, which no socket gives.
    net: Option<NetHeader>,
    /// What the ICRC covers before the transport, for packets of this length.
    begun: Option<(usize, Icrc)>,
}

impl TrainCheck<'_> {
    /// The transport bytes (from the BTH to the pad) of a whole packet: all that UDP carried.
    ///
    /// # Errors
    /// [`IcrcError`]: drop the packet and count it.
    #[inline]
    pub fn check<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], IcrcError> {
        let short = IcrcError::TooShort { bytes: bytes.len() };
        let (transport, received) = icrc::split(bytes).ok_or(short)?;
        let net = self.net.as_ref().ok_or(short)?;
        let mut icrc = match &self.begun {
            Some((bytes, begun)) if *bytes == transport.len() => *begun,
            _ => {
                let begun = Icrc::begin_by(self.crc, net, transport.len());
                self.begun = Some((transport.len(), begun));
                begun
            }
        };
        self.add(&mut icrc, transport);
        let computed = icrc.finish();
        self.solver
            .judge(net, transport.len(), received, computed)?;
        Ok(transport)
    }

    /// Adds the transport bytes, of which those lead that are left over.
    #[inline]
    fn add(&self, icrc: &mut Icrc, transport: &[u8]) {
        let bytes = self.in_place.takes(transport.len());
        let (head, rest) = transport.split_at(transport.len() - bytes);
        // SAFETY: all the bytes of a slice.
        let led = unsafe { self.in_place.headers(icrc, head, rest.as_ptr(), rest.len()) };
        if !led {
            icrc.headers(transport);
        }
    }
}

/// Bytes of which the CRC is computed to compare the ways: the payload of a large packet.
const TRIED_BYTES: usize = 4096;
/// How often: the least time counts, which nothing interrupted. With the instructions of a processor
/// all of it takes some tens of microseconds.
const TRIES: u32 = 8;

/// The faster way to a CRC on this machine, by the clock: what a processor can do does not say how
/// long it takes where the processor is emulated. Measured once, however many devices are opened.
pub(crate) fn faster_crc() -> CrcWay {
    static FASTER: OnceLock<CrcWay> = OnceLock::new();
    *FASTER.get_or_init(measure_crc)
}

fn measure_crc() -> CrcWay {
    let bytes = vec![0x5a; TRIED_BYTES];
    let least = |way: &CrcWay| {
        let tries = (0..TRIES).map(|_| {
            let begin = Instant::now();
            black_box(way.compute(black_box(&bytes)));
            begin.elapsed()
        });
        tries.min().unwrap_or(Duration::MAX)
    };
    let fastest = CrcWay::ALL.into_iter().min_by_key(least);
    fastest.unwrap_or_default()
}

/// What the ICRC covers before the transport; none when the addresses are of two families.
#[inline]
pub(super) fn header(from: SocketAddr, to: SocketAddr) -> Option<NetHeader> {
    let mut net = match (from.ip(), to.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => NetHeader::v4(src, dst, from.port()),
        (IpAddr::V6(src), IpAddr::V6(dst)) => NetHeader::v6(src, dst, from.port()),
        _ => return None,
    };
    net.dst_port = to.port();
    Some(net)
}
