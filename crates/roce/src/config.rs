//! The configuration of a queue pair, and the attributes of its state changes.
use crate::Psn;
use crate::pacing::PacingConfig;
use crate::wire::PathMtu;
use catchment_verbs_types::{MAX_24_BITS, Service};
use std::time::Duration;

/// How lost packets are recovered. Both ends must use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// Standard: the responder takes packets in order only, and the requester retransmits
    /// everything from the lost packet on. For NICs and the kernel.
    GoBackN,
    /// Our extension: the responder keeps packets that arrive out of order and reports them in
    /// SACKs. Only for peers that agreed to it out of band (`docs/spec/roce-profile.md`).
    SelectiveRepeat,
}

/// How a WRITE longer than the path MTU is segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteLayout {
    /// A train of WRITE ONLY packets, each with address and key: equal sizes, good for GSO. A WRITE
    /// with immediate data is always classic: its receive completes with the whole length.
    Train,
    /// One message of FIRST, MIDDLE, LAST packets.
    Classic,
}

/// Configuration of a queue pair: what is known before its peer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Number of the queue pair, 24 bits, unique in its device.
    pub qpn: u32,
    /// Service type.
    pub service: Service,
    /// Send requests posted and not yet completed.
    pub max_send_wr: u32,
    /// Receive requests posted and not yet completed.
    pub max_recv_wr: u32,
    /// Scatter-gather elements in one request.
    pub max_sge: u32,
    /// Bytes of an inline payload.
    pub max_inline_bytes: u32,
    /// How long WRITEs are segmented.
    pub write_layout: WriteLayout,
    /// Packets sent and not yet acknowledged in order; at most [`Config::MAX_WINDOW_PACKETS`].
    /// With selective repeat also the packets that the responder keeps out of order.
    pub window_packets: u32,
    /// Payload bytes sent and not yet acknowledged in order, or asked for by READ.
    pub window_bytes: u64,
    /// What [`Config::window_bytes`] may grow to on a path with a round trip of 2 ms or longer, with
    /// selective repeat; no more than that: never. What is in flight then lies on the path, and not in the
    /// peer's receive buffer.
    pub long_window_bytes: u64,
    /// Most packets sent without an acknowledgement request (AckReq), 1 to 256.
    pub ack_interval: u32,
    /// Most payload bytes of whole packets sent without AckReq: each acknowledgement costs the peer
    /// a system call.
    pub ack_bytes: u32,
    /// Long READs are split into requests of this many bytes, so that the window limits them too.
    /// Rounded to whole packets, at most 64 packets with selective repeat.
    pub read_chunk_bytes: u32,
    /// Retransmission timeout from measured round trips, never above the timeout of
    /// [`RtsAttr`]. Off: always the timeout of [`RtsAttr`], as NICs do.
    pub adaptive_timeout: bool,
    /// Minimum of the adaptive retransmission timeout.
    pub rto_min: Duration,
    /// Rate limit and reaction to congestion.
    pub pacing: PacingConfig,
}

impl Config {
    /// The largest window, in packets.
    pub const MAX_WINDOW_PACKETS: u32 = 1 << 17;

    /// Returns the default limits for a queue pair with this number.
    pub fn new(qpn: u32, service: Service) -> Self {
        Self {
            qpn,
            service,
            max_send_wr: 1024,
            max_recv_wr: 1024,
            max_sge: 16,
            max_inline_bytes: 256,
            write_layout: WriteLayout::Train,
            window_packets: Self::MAX_WINDOW_PACKETS,
            window_bytes: 4 << 20,
            long_window_bytes: 32 << 20,
            ack_interval: 256,
            ack_bytes: 256 << 10,
            read_chunk_bytes: 256 << 10,
            adaptive_timeout: true,
            rto_min: Duration::from_millis(1),
            pacing: PacingConfig::default(),
        }
    }

    /// Returns the configuration with all values clamped to their ranges.
    pub(crate) fn clamped(self) -> Self {
        Self {
            qpn: self.qpn & MAX_24_BITS,
            window_packets: self.window_packets.clamp(1, Self::MAX_WINDOW_PACKETS),
            ack_interval: self.ack_interval.clamp(1, 256),
            ..self
        }
    }
}

/// What the peer may do through this queue pair; a region's own rights must allow it too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InitAttr {
    /// RDMA WRITE.
    pub remote_write: bool,
    /// RDMA READ.
    pub remote_read: bool,
    /// Atomics.
    pub remote_atomic: bool,
    /// Q_Key that datagrams must carry (UD).
    pub qkey: u32,
}

/// Attributes of INIT to RTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtrAttr {
    /// Number of the peer's queue pair. Not read on UD.
    pub dest_qpn: u32,
    /// Largest payload of a packet, the same at both ends.
    pub path_mtu: PathMtu,
    /// The first PSN that the peer will send.
    pub rq_psn: Psn,
    /// READs and atomics of the peer to serve at once, 0 to 255.
    pub max_dest_rd_atomic: u8,
    /// How long a sender waits when no receive is posted: an RNR timer code, 0 to 31
    /// ([`crate::wire::aeth::rnr_timer`]).
    pub min_rnr_timer: u8,
    /// How losses are recovered.
    pub recovery: Recovery,
    /// Packets from the oldest that is not acknowledged to the latest, both ways, if both ends agreed to
    /// fewer than [`Config::window_packets`].
    pub window_packets: u32,
    /// A secret of this connection, drawn by chance, if the peer answers challenges: a NAK then ends the
    /// connection only when the peer repeats it with a number made from the secret. `None` for RNICs,
    /// whose NAKs are believed.
    pub challenges: Option<u64>,
}

impl RtrAttr {
    /// Returns the default attributes: 16 READs and atomics, RNR timer 640 microseconds, go-back-N.
    pub fn new(dest_qpn: u32, path_mtu: PathMtu, rq_psn: Psn) -> Self {
        Self {
            dest_qpn,
            path_mtu,
            rq_psn,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 12,
            recovery: Recovery::GoBackN,
            window_packets: Config::MAX_WINDOW_PACKETS,
            challenges: None,
        }
    }

    /// Returns the packets that may be in flight between two ends that agreed to a window of so many
    /// bytes: as many as fill it four times, because what the peer keeps behind a gap does not count
    /// as in flight for its sender.
    pub fn window_packets_of(window_bytes: u64, path_mtu: PathMtu) -> u32 {
        let packets = 4 * window_bytes / path_mtu.bytes() as u64;
        u32::try_from(packets).unwrap_or(u32::MAX).clamp(64, Config::MAX_WINDOW_PACKETS)
    }
}

/// Attributes of RTR to RTS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtsAttr {
    /// The first PSN to send.
    pub sq_psn: Psn,
    /// READs and atomics outstanding at once: no more than the peer serves.
    pub max_rd_atomic: u8,
    /// Silence of the peer before a retransmission; `None` waits without a limit
    /// ([`crate::ack_timeout`]).
    pub timeout: Option<Duration>,
    /// Retries after a timeout, 0 to 7. Seven means seven.
    pub retry_cnt: u8,
    /// Retries of a request that found no receive, 0 to 7; 7 is unlimited.
    pub rnr_retry: u8,
}

impl RtsAttr {
    /// Returns the default attributes: 16 READs and atomics, timeout code 12 (17 ms), 7 retries,
    /// unlimited RNR retries.
    pub fn new(sq_psn: Psn) -> Self {
        Self {
            sq_psn,
            max_rd_atomic: 16,
            timeout: crate::ack_timeout(12),
            retry_cnt: 7,
            rnr_retry: 7,
        }
    }
}
