//! Capabilities of every device of a fabric.
use catchment_verbs::{Caps, RateRange, Services};

pub(super) const CAPS: Caps = Caps {
    services: Services::RC,
    max_send_wr: 1 << 16,
    max_recv_wr: 1 << 16,
    max_sge: 16,
    max_inline_bytes: 512,
    max_cqe: 1 << 20,
    max_message_bytes: 1 << 31,
    max_rd_atomic: 255,
    path_mtu: None,
    atomics: true,
    send_invalidate: true,
    remote_invalidate: true,
    data_in_order: true,
    writes_in_order: true,
    direct: false,
    doorbell: false,
    rate: Some(RateRange {
        min_bps: 1000,
        max_bps: 1_000_000_000_000,
        step_bps: 1,
        packet_overhead_bytes: 0,
    }),
    strict_capacity: true,
};
