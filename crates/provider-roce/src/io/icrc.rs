//! The ICRC of what comes in.
use super::fold::Fold;
use super::recv::{Packet, Train};
pub(super) use catchment_roce::wire::ICRC_BYTES;
use catchment_roce::wire::icrc::{self, IcrcMismatch};
use catchment_roce::wire::ip_id::Solver;
use catchment_roce::wire::net::Ipv4Id;
use catchment_roce::wire::{Icrc, NetHeader};
use std::net::{IpAddr, SocketAddr};

/// A packet is corrupt, or not a RoCE packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IcrcError {
    /// No room for an ICRC.
    #[error("a datagram of {0} bytes is too short for an ICRC")]
    TooShort(usize),
    /// Corrupt, or sent by something else.
    #[error(transparent)]
    Mismatch(#[from] IcrcMismatch),
}

/// Checks packets. Keeps a table for each length, so use one for many packets.
///
/// Over IPv4 a UDP socket does not see the identification, which the ICRC covers: the check
/// solves for it, and refuses what no identification explains.
#[derive(Debug, Default)]
pub struct IcrcCheck {
    solver: Solver,
}

impl IcrcCheck {
    /// Creates a check that has seen no packet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the transport bytes (from the BTH to the pad) of a whole packet.
    ///
    /// # Errors
    /// [`IcrcError`]: drop the packet and count it.
    #[inline]
    pub fn check<'a>(&mut self, packet: &Packet<'a>) -> Result<&'a [u8], IcrcError> {
        self.packets_between(packet.from, packet.to).check(packet.bytes)
    }

    /// Checks the packets of a train, which have most of what the ICRC covers in common.
    #[inline]
    pub fn train(&mut self, train: &Train<'_>) -> TrainCheck<'_> {
        self.packets_between(train.from, train.to)
    }

    fn packets_between(&mut self, from: SocketAddr, to: SocketAddr) -> TrainCheck<'_> {
        let net = net_header(from, to).map(|net| net.with_ipv4_id(Ipv4Id::UNFRAGMENTED));
        TrainCheck { fold: Fold::of_slices(), solver: &mut self.solver, net, begun: None }
    }
}

/// Checks packets from one address to one address.
#[derive(Debug)]
pub struct TrainCheck<'c> {
    fold: Fold,
    solver: &'c mut Solver,
    /// Returns `None` when the addresses are of two families, which no socket reports.
    net: Option<NetHeader>,
    /// What the ICRC covers before the transport, for packets of this length.
    begun: Option<(usize, Icrc)>,
}

impl TrainCheck<'_> {
    /// Returns the transport bytes (from the BTH to the pad) of a whole packet: all that UDP
    /// carried.
    ///
    /// # Errors
    /// [`IcrcError`]: drop the packet and count it.
    #[inline]
    pub fn check<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], IcrcError> {
        let short = IcrcError::TooShort(bytes.len());
        let (transport, received) = icrc::split(bytes).ok_or(short)?;
        let net = self.net.as_ref().ok_or(short)?;
        let mut icrc = match &self.begun {
            Some((bytes, begun)) if *bytes == transport.len() => *begun,
            _ => {
                let begun = Icrc::begin(net, transport.len());
                self.begun = Some((transport.len(), begun));
                begun
            }
        };
        self.add(&mut icrc, transport);
        self.solver.judge(net, transport.len(), received, icrc.finish())?;
        Ok(transport)
    }

    /// Adds the transport bytes, of which those lead that are no whole step of a fold.
    #[inline]
    fn add(&self, icrc: &mut Icrc, transport: &[u8]) {
        let bytes = self.fold.takes(transport.len());
        let (head, rest) = transport.split_at(transport.len() - bytes);
        // SAFETY: all the bytes of a slice.
        let led = unsafe { self.fold.headers(icrc, head, rest.as_ptr(), rest.len()) };
        if !led {
            icrc.headers(transport);
        }
    }
}

/// Returns the network header of a datagram, as far as a UDP socket shows it; none when the
/// addresses are of two families.
#[inline]
pub(crate) fn net_header(from: SocketAddr, to: SocketAddr) -> Option<NetHeader> {
    let mut net = match (from.ip(), to.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => NetHeader::v4(src, dst, from.port()),
        (IpAddr::V6(src), IpAddr::V6(dst)) => NetHeader::v6(src, dst, from.port()),
        _ => return None,
    };
    net.dst_port = to.port();
    Some(net)
}
