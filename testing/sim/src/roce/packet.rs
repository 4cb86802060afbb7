//! From a queue pair's packet to a frame on a link, and back.
use crate::Frame;
use catchment_roce::wire::net::{Ip, MAX_NET_BYTES};
use catchment_roce::wire::{DropReason, ICRC_BYTES, Icrc, NetHeader, Packet, ROCE_PORT, icrc};
use std::net::Ipv6Addr;

/// Assembles an IP packet: network headers, transport headers, payload, pad, ICRC.
pub(crate) fn seal<'a>(
    net: &NetHeader,
    headers: &[u8],
    payload: impl Iterator<Item = &'a [u8]>,
    payload_bytes: usize,
    pad: usize,
) -> Frame {
    let transport_bytes = headers.len() + payload_bytes + pad;
    let mut net_bytes = [0; MAX_NET_BYTES];
    let net_length = net.encode(transport_bytes + ICRC_BYTES, &mut net_bytes);
    let mut bytes = Vec::with_capacity(net_length + transport_bytes + ICRC_BYTES);
    bytes.extend_from_slice(&net_bytes[..net_length]);
    bytes.extend_from_slice(headers);
    payload.for_each(|piece| bytes.extend_from_slice(piece));
    bytes.resize(net_length + transport_bytes, 0);
    let mut icrc = Icrc::begin(net, transport_bytes);
    icrc.headers(&bytes[net_length..]);
    bytes.extend_from_slice(&icrc.finish().to_le_bytes());
    Frame::new(bytes)
}

/// Returns the packet that a frame carries for the host with this address.
///
/// # Errors
/// Why the host drops it; `None` when it is not for the host's RoCE port at all.
pub(crate) fn open(
    frame: &Frame,
    own: Ipv6Addr,
) -> Result<(NetHeader, Packet<'_>), Option<DropReason>> {
    let (net, datagram) = NetHeader::decode(frame.bytes()).map_err(|_| None)?;
    let Ip::V6 { dst, .. } = net.ip else { return Err(None) };
    if dst != own || net.dst_port != ROCE_PORT {
        return Err(None);
    }
    let (transport, received) = icrc::split(datagram).ok_or(DropReason::TooShort)?;
    icrc::verify(&net, transport, received).map_err(|_| DropReason::Icrc)?;
    let packet = Packet::decode(transport).map_err(|error| error.reason())?;
    Ok((net, packet))
}
