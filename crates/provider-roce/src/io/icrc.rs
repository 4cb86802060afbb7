//! The ICRC of what comes in.
use super::recv::Packet;
pub(super) use catchment_roce::wire::ICRC_BYTES;
use catchment_roce::wire::{
    NetHeader,
    icrc::{self, IcrcMismatch},
    ip_id::Solver,
};
use std::net::{IpAddr, SocketAddr};

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
    solver: Solver,
}

impl IcrcCheck {
    /// A check that has seen no packet.
    pub fn new() -> IcrcCheck {
        IcrcCheck::default()
    }

    /// The transport bytes (from the BTH to the pad) of a whole packet.
    ///
    /// # Errors
    /// [`IcrcError`]: drop the packet and count it.
    #[inline]
    pub fn check<'a>(&mut self, packet: &Packet<'a>) -> Result<&'a [u8], IcrcError> {
        let short = IcrcError::TooShort {
            bytes: packet.bytes.len(),
        };
        let (transport, received) = icrc::split(packet.bytes).ok_or(short)?;
        let net = header(packet.from, packet.to).ok_or(short)?;
        self.solver.verify(&net, transport, received)?;
        Ok(transport)
    }
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
