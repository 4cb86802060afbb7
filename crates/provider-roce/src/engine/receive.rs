//! What comes in: fetched, checked, given to its queue pair.
use super::Engine;
use crate::{device::Device, io, keys::KeyTable};
use catchment_roce::{
    Arrival, Input,
    wire::{self, DropReason},
};

/// The ECN bits of a packet that met congestion.
const CONGESTION_EXPERIENCED: u8 = 3;

impl Engine {
    /// Fetches what has come; how many packets.
    pub(super) fn fetch(&mut self, device: &Device) -> usize {
        self.ring.receive(&device.socket).unwrap_or_else(|error| {
            self.receive_errors += 1;
            tracing::debug!(%error, local = %device.local, "receiving failed");
            0
        })
    }

    /// Gives each fetched packet to its queue pair.
    pub(super) fn dispatch(&mut self, now_ns: u64, keys: &KeyTable) {
        let Engine {
            ring,
            check,
            qps,
            drops,
            touched,
            written,
            ..
        } = self;
        for train in ring.trains() {
            let mut check = check.train(&train);
            let from = train.from.ip();
            let ecn_marked = train.ecn == CONGESTION_EXPERIENCED;
            for bytes in train.packets() {
                let taken = open(&mut check, bytes).and_then(|packet| {
                    let index = qps.find(packet.headers.bth.dest_qpn);
                    let index = index.ok_or(DropReason::UnknownQp)?;
                    let entry = qps.get(index).ok_or(DropReason::UnknownQp)?;
                    let peer = entry.peer.as_ref().ok_or(DropReason::UnknownQp)?;
                    if peer.address != from {
                        return Err(DropReason::WrongPeer);
                    }
                    let arrival = Arrival {
                        ecn_marked,
                        ..Arrival::new(&packet.headers, packet.payload)
                    };
                    entry.handle(now_ns, Input::Packet(arrival), keys, written);
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

/// Checks the ICRC and reads the headers.
#[inline]
fn open<'a>(
    check: &mut io::TrainCheck<'_>,
    bytes: &'a [u8],
) -> Result<wire::Packet<'a>, DropReason> {
    let transport = check.check(bytes).map_err(|error| match error {
        io::IcrcError::TooShort { .. } => DropReason::TooShort,
        io::IcrcError::Mismatch(_) => DropReason::Icrc,
    })?;
    wire::Packet::decode(transport).map_err(|error| error.reason())
}
