//! Received packets: fetched, checked, passed to their queue pair.
use super::Engine;
use super::entry::QpEntry;
use super::table::QpTable;
use crate::device_core::DeviceCore;
use crate::io;
use crate::keys::KeyTable;
use crate::region::MrCore;
use catchment_roce::wire::{self, DropReason};
use catchment_roce::{Arrival, Input, QpState, Service};
use std::net::SocketAddr;
use std::sync::Arc;

/// The ECN bits of a packet that experienced congestion (CE).
const CONGESTION_EXPERIENCED: u8 = 3;

impl Engine {
    /// Fetches what has arrived; returns how many packets.
    pub(super) fn fetch(&mut self, device: &DeviceCore) -> usize {
        self.ring.receive(&*device.datagrams).unwrap_or_else(|error| {
            self.receive_errors += 1;
            tracing::debug!(%error, local = %device.local, "receiving failed");
            0
        })
    }

    /// Passes each fetched packet to its queue pair.
    pub(super) fn dispatch(&mut self, now_ns: u64, keys: &KeyTable) {
        let Self { ring, check, qps, drops, touched, written, held, batch, .. } = self;
        let authenticates = self.authenticates;
        for train in ring.trains() {
            let mut check = check.train(&train);
            let ecn_marked = train.ecn == CONGESTION_EXPERIENCED;
            // The queue pair of the last packet, which may take packets from this sender.
            let mut known = None;
            for bytes in train.packets() {
                let taken = checked(&mut check, bytes).and_then(|sealed| {
                    let transport = match authenticates {
                        true => opened(qps, sealed, train.from)?,
                        false => sealed,
                    };
                    let packet = wire::Packet::decode(transport).map_err(|error| error.reason())?;
                    let qpn = packet.headers.bth.dest_qpn;
                    let index = match known {
                        Some((number, index)) if number == qpn => index,
                        _ => find(qps, qpn, train.from)?,
                    };
                    known = Some((qpn, index));
                    let entry = qps.get(index).ok_or(DropReason::UnknownQp)?;
                    let held_from = held.first_psn(index, batch);
                    let plain = Arrival::new(&packet.headers, packet.payload);
                    let arrival = Arrival { ecn_marked, held_from, ..plain };
                    if entry.peer.is_some() {
                        entry.handle(now_ns, Input::Packet(arrival), keys, written);
                    } else {
                        let net = io::net_header(train.from, train.to);
                        let grh = net.map(|net| net.grh(bytes.len()));
                        let grh = grh.as_ref();
                        datagram(entry, Arrival { grh, ..arrival }, (now_ns, keys), written)?;
                    }
                    if !entry.is_touched {
                        entry.is_touched = true;
                        touched.push(index);
                    }
                    Ok(())
                });
                if let Err(reason) = taken {
                    drops[reason as usize] += 1;
                }
            }
        }
    }
}

/// Returns the index of the queue pair with this number, if it may take packets from this sender.
#[inline]
fn find(qps: &mut QpTable, qpn: u32, from: SocketAddr) -> Result<usize, DropReason> {
    let index = qps.find(qpn).ok_or(DropReason::UnknownQp)?;
    match qps.get(index).and_then(|entry| entry.peer.as_ref()) {
        Some(peer) if peer.address != from.ip() => Err(DropReason::WrongPeer),
        Some(peer) if peer.source_port.is_some_and(|port| port != from.port()) => {
            Err(DropReason::WrongPort)
        }
        _ => Ok(index),
    }
}

/// Passes a packet to a queue pair without a peer, which accepts only datagrams.
#[cold]
fn datagram(
    entry: &mut QpEntry,
    arrival: Arrival<'_>,
    (now_ns, keys): (u64, &KeyTable),
    written: &mut Vec<Arc<MrCore>>,
) -> Result<(), DropReason> {
    let receives = !matches!(entry.qp.state(), QpState::Reset | QpState::Init);
    if entry.qp.config().service != Service::Ud || !receives {
        return Err(DropReason::UnknownQp);
    }
    if arrival.headers.deth.ok_or(DropReason::WrongTransport)?.qkey != entry.qkey {
        return Err(DropReason::QueueKey);
    }
    entry.handle(now_ns, Input::Packet(arrival), keys, written);
    Ok(())
}

/// Checks the ICRC; returns all before it.
#[inline]
fn checked<'a>(check: &mut io::TrainCheck<'_>, bytes: &'a [u8]) -> Result<&'a [u8], DropReason> {
    check.check(bytes).map_err(|error| match error {
        io::IcrcError::TooShort(_) => DropReason::TooShort,
        io::IcrcError::Mismatch(_) => DropReason::Icrc,
    })
}

/// Returns the bytes that the peer of a queue pair has sealed; all, if its packets are not authenticated.
#[cold]
fn opened<'a>(
    qps: &mut QpTable,
    sealed: &'a [u8],
    from: SocketAddr,
) -> Result<&'a [u8], DropReason> {
    let index = find(qps, wire::dest_qpn(sealed).ok_or(DropReason::TooShort)?, from)?;
    match qps.get(index).and_then(|entry| entry.opener.as_mut()) {
        Some(opener) => opener.open(sealed),
        None => Ok(sealed),
    }
}
