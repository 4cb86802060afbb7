//! Options of a device.
use crate::Faults;
use crate::io::{AUTH_BYTES, SocketOptions};
use catchment_roce::wire::{PathMtu, ROCE_PORT};
use std::time::Duration;

/// Options of the devices of a [`crate::RoceProvider`].
#[derive(Debug, Clone)]
pub struct RoceOptions {
    /// UDP port where a device name has none. RNICs and the kernel's stack use only 4791, the
    /// default; another, or 0 for any free one, reaches only peers that learn it from the endpoint.
    pub port: u16,
    /// If that port is taken, any free one is used instead of an error. Peers of our own learn it
    /// from the endpoint; RNICs use only 4791 and cannot follow.
    pub other_port: bool,
    /// Largest path MTU; `None`: what the interface allows.
    pub path_mtu: Option<PathMtu>,
    /// Selective repeat with peers that support it; off: go-back-N with all.
    pub selective_repeat: bool,
    /// Peers' WRITEs ring the doorbell of a watched region ([`catchment_verbs::Mr::watch`]). Off:
    /// as with an RNIC, which reports none, watchers must poll.
    pub doorbell: bool,
    /// Threads that poll a completion queue, make progress
    /// ([`catchment_verbs::Context::progress`]), or post, move packets themselves instead of waiting
    /// for the engine thread: lower latency where the application polls all the time. The engine
    /// thread works whenever no application thread does.
    pub inline_polling: bool,
    /// Longest time that the engine polls for packets before it sleeps. It polls for less, down to
    /// not at all, while that does not pay.
    pub spin: Duration,
    /// Most unacknowledged bytes in flight to one peer; less where the socket got a
    /// small receive buffer, because then the peer's most likely is small too.
    pub window_bytes: u64,
    /// What that may grow to towards a peer behind a path with a round trip of 2 ms or longer, which holds
    /// the bytes itself; no more than `window_bytes`: never. A peer keeps up to four times as much while a packet
    /// is missing.
    pub long_window_bytes: u64,
    /// Buffers of 64 KiB that one receive call may fill.
    pub receive_buffers: usize,
    /// Traffic class of packets: the DSCP in the upper six bits. The lower two are those of `ecn`, whatever is
    /// given here. Networks with queues for classes serve some first.
    pub traffic_class: u8,
    /// Packets are sent as "ECN capable". RNICs answer marked ones with congestion notifications.
    pub ecn: bool,
    /// Packets of connections carry a counter and a tag, and others are dropped: the peer must do so too, and
    /// must have got the key in the endpoint over an encrypted session. Costs 24 bytes and the time of
    /// AES-GCM for each packet.
    pub authenticate: bool,
    /// The sockets.
    pub socket: SocketOptions,
    /// Faults to inject into what the device sends.
    pub fault: Option<Faults>,
}

impl RoceOptions {
    /// Returns the bytes of a packet between pad and ICRC.
    pub(crate) fn trailer_bytes(&self) -> usize {
        if self.authenticate { AUTH_BYTES } else { 0 }
    }

    /// Returns the traffic class with the ECN bits.
    pub(crate) const fn sent_traffic_class(&self) -> u8 {
        self.traffic_class & !3 | if self.ecn { 2 } else { 0 }
    }
}

impl Default for RoceOptions {
    fn default() -> Self {
        Self {
            port: ROCE_PORT,
            other_port: false,
            path_mtu: None,
            selective_repeat: true,
            doorbell: true,
            inline_polling: false,
            spin: Duration::from_micros(50),
            window_bytes: 4 << 20,
            long_window_bytes: 32 << 20,
            receive_buffers: 8,
            traffic_class: 0,
            ecn: false,
            authenticate: false,
            socket: SocketOptions::default(),
            fault: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ecn_bits_of_a_traffic_class_are_those_of_ecn() {
        let class = |traffic_class, ecn| {
            RoceOptions { traffic_class, ecn, ..RoceOptions::default() }.sent_traffic_class()
        };
        assert_eq!((class(0xb8, false), class(0xb8, true)), (0xb8, 0xba));
        assert_eq!((class(0xbb, false), class(3, true)), (0xb8, 2));
    }
}
