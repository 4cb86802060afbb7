//! Received packets: fetched, checked, passed to their queue pair.
use super::Engine;
use super::entry::QpEntry;
use crate::device_core::DeviceCore;
use crate::io;
use crate::keys::KeyTable;
use crate::region::MrCore;
use catchment_roce::wire::{self, DropReason};
use catchment_roce::{Arrival, Input, QpState, Service};
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
        let Self { ring, check, qps, drops, touched, written, .. } = self;
        for train in ring.trains() {
            let mut check = check.train(&train);
            let from = train.from.ip();
            let ecn_marked = train.ecn == CONGESTION_EXPERIENCED;
            for bytes in train.packets() {
                let taken = open(&mut check, bytes).and_then(|packet| {
                    let index =
                        qps.find(packet.headers.bth.dest_qpn).ok_or(DropReason::UnknownQp)?;
                    let entry = qps.get(index).ok_or(DropReason::UnknownQp)?;
                    let arrival =
                        Arrival { ecn_marked, ..Arrival::new(&packet.headers, packet.payload) };
                    match &entry.peer {
                        Some(peer) if peer.address == from => {
                            entry.handle(now_ns, Input::Packet(arrival), keys, written);
                        }
                        Some(_) => return Err(DropReason::WrongPeer),
                        None => {
                            let net = io::net_header(train.from, train.to);
                            let grh = net.map(|net| net.grh(bytes.len()));
                            let grh = grh.as_ref();
                            datagram(entry, Arrival { grh, ..arrival }, (now_ns, keys), written)?;
                        }
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

/// Checks the ICRC and reads the headers.
#[inline]
fn open<'a>(
    check: &mut io::TrainCheck<'_>,
    bytes: &'a [u8],
) -> Result<wire::Packet<'a>, DropReason> {
    let transport = check.check(bytes).map_err(|error| match error {
        io::IcrcError::TooShort(_) => DropReason::TooShort,
        io::IcrcError::Mismatch(_) => DropReason::Icrc,
    })?;
    wire::Packet::decode(transport).map_err(|error| error.reason())
}
