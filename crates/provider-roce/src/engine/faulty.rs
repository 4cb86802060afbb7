//! Sending with injected faults: packet by packet, each assembled in memory of its own.
use super::Engine;
use super::transmit::resolve;
use crate::device_core::DeviceCore;
use crate::fault::{Datagram, FaultInjector, Kind};
use crate::io::{Route, Sealer, SendBatch, net_header};
use crate::keys::KeyTable;
use catchment_roce::wire::{Opcode, icrc};
use catchment_roce::{OutPacket, Piece, TransmitBatch};
use std::net::SocketAddr;

/// Turns of queue pairs before packets are received again.
const TURNS: usize = 4;
const SYNDROME_AT: usize = 12;
/// NAK: PSN sequence error.
const NAK_PSN_SEQUENCE: u8 = 0x60;

/// The route of a packet, and who seals it.
type Way<'a> = (&'a Route, Option<&'a Sealer>);

impl Engine {
    /// Sends what may be sent, with faults; returns whether anything was.
    pub(super) fn transmit_with_faults(&mut self, device: &DeviceCore, keys: &KeyTable) -> bool {
        let Self { faults, batch, .. } = self;
        if let Some(faults) = faults {
            faults.due(device.now_ns(), |datagram| send(device, batch, datagram));
        }
        let mut packets = 0;
        for _ in 0..TURNS {
            packets += self.transmit_next(device.now_ns(), keys, |engine, index| {
                engine.send_faulty(index, device, keys);
            });
        }
        packets > 0
    }

    fn send_faulty(&mut self, index: usize, device: &DeviceCore, keys: &KeyTable) {
        let Self { qps, faults: Some(faults), packets, batch, .. } = self else { return };
        let Some(entry) = qps.get(index) else { return };
        let Some(route) = entry.route(packets) else { return };
        for packet in packets.packets() {
            let gathered = gather(packets, packet, |piece, out| {
                let Some(found) = resolve(entry, keys, piece) else { return };
                if let Ok(memory) = found.region.slice(found.offset, found.bytes) {
                    out.extend_from_slice(&memory.to_vec());
                }
            });
            let way = (&route, entry.sealer.as_deref());
            pass(faults, (device, batch), way, gathered);
        }
    }
}

/// Headers, payload and pad of a packet.
fn gather(
    packets: &TransmitBatch,
    packet: &OutPacket,
    mut fetch: impl FnMut(&Piece, &mut Vec<u8>),
) -> Vec<u8> {
    let mut bytes = packet.header().to_vec();
    for piece in packets.pieces(packet) {
        match *piece {
            Piece::Batch { start, bytes: len } => {
                bytes.extend_from_slice(packets.bytes(start, len))
            }
            Piece::Local { .. } | Piece::Remote { .. } => fetch(piece, &mut bytes),
        }
    }
    bytes.resize(bytes.len() + packet.pad_bytes(), 0);
    bytes
}

fn pass(
    faults: &mut FaultInjector,
    (device, batch): (&DeviceCore, &mut SendBatch),
    way: Way<'_>,
    transport: Vec<u8>,
) {
    let opcode = transport.first().and_then(|byte| Opcode::from_u8(*byte));
    let kind = match opcode {
        Some(Opcode::RcAcknowledge | Opcode::Sack) => Kind::Ack,
        _ => Kind::Other,
    };
    if opcode == Some(Opcode::RcAcknowledge) && faults.storms() {
        let mut nak = transport.clone();
        nak[SYNDROME_AT] = NAK_PSN_SEQUENCE;
        send(device, batch, &sealed(way, faults.via(), nak));
    }
    let datagram = sealed(way, faults.via(), transport);
    faults.pass(device.now_ns(), kind, datagram, |datagram| {
        send(device, batch, datagram);
    });
}

/// Adds counter and tag, and the ICRC, which is that of the packet as the peer receives it. Alone in its datagram, an IPv4
/// packet has identification 0.
fn sealed((route, sealer): Way<'_>, via: Option<SocketAddr>, mut transport: Vec<u8>) -> Datagram {
    let (from, to) = (route.local, route.remote);
    if let Some(sealer) = sealer {
        let sealed = sealer.seal(&mut transport.clone());
        transport.extend_from_slice(&sealed);
    }
    // Connecting excludes addresses of two families; such a packet counts as lost.
    let seen_from = via.unwrap_or(from);
    let icrc = net_header(seen_from, to).map_or(0, |net| icrc::compute(&net, &transport));
    transport.extend_from_slice(&icrc.to_le_bytes());
    Datagram { from, to: via.unwrap_or(to), bytes: transport }
}

fn send(device: &DeviceCore, batch: &mut SendBatch, datagram: &Datagram) {
    let sent = device.datagrams.send_one(datagram.from, datagram.to, &datagram.bytes);
    batch.note_single(datagram.bytes.len(), sent.is_ok());
    if let Err(error) = sent {
        tracing::debug!(%error, to = %datagram.to, "packet not sent");
    }
}
