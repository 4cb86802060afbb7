//! The transitions from RESET to RTS: the attributes of each (`ibv_modify_qp(3)`).
use crate::sys::QueuePair;
use crate::sys::types::*;
use catchment_verbs::{Access, Gid, RtsAttr, Service, timer};
use std::ffi::c_uint;
use std::io;

/// Most routers that a packet may cross.
const HOP_LIMIT: u8 = 64;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Route {
    pub(crate) port: u8,
    /// Index of the port's GID that they come from.
    pub(crate) index: u32,
    pub(crate) remote: Gid,
    pub(crate) traffic_class: u8,
    pub(crate) service_level: u8,
}

/// What both sides must agree on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connection {
    pub(crate) qpn: u32,
    /// The first packet number of the peer.
    pub(crate) psn: u32,
    /// An `ibv_mtu`.
    pub(crate) mtu: c_uint,
    pub(crate) max_dest_rd_atomic: u8,
    /// As encoded by the standard.
    pub(crate) rnr_timer: u8,
}

// Rights of the vocabulary are those of the library.
const _: () = {
    assert!(Access::LOCAL_WRITE.bits() == IBV_ACCESS_LOCAL_WRITE);
    assert!(Access::REMOTE_WRITE.bits() == IBV_ACCESS_REMOTE_WRITE);
    assert!(Access::REMOTE_READ.bits() == IBV_ACCESS_REMOTE_READ);
    assert!(Access::REMOTE_ATOMIC.bits() == IBV_ACCESS_REMOTE_ATOMIC);
};

/// The bits of `ibv_access_flags`, without optional ones.
pub(crate) fn access_bits(access: Access) -> c_uint {
    (access - Access::RELAXED_ORDERING - Access::REMOTE_INVALIDATE).bits()
}

pub(crate) fn address(route: &Route) -> io::Result<ibv_ah_attr> {
    Ok(ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: route.remote.0 },
            flow_label: 0,
            sgid_index: u8::try_from(route.index).map_err(|_| io::ErrorKind::InvalidInput)?,
            hop_limit: HOP_LIMIT,
            traffic_class: route.traffic_class,
        },
        sl: route.service_level,
        is_global: 1,
        port_num: route.port,
        ..QueuePair::no_attributes().ah_attr
    })
}

/// RESET or INIT to INIT (UD).
pub(crate) fn init_ud(qp: &QueuePair, port: u8, qkey: u32) -> io::Result<()> {
    let attr =
        ibv_qp_attr { qp_state: IBV_QPS_INIT, port_num: port, qkey, ..QueuePair::no_attributes() };
    qp.modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)
}

/// RESET or INIT to INIT (RC, UC).
pub(crate) fn init(qp: &QueuePair, port: u8, access: Access) -> io::Result<()> {
    let attr = ibv_qp_attr {
        qp_state: IBV_QPS_INIT,
        port_num: port,
        qp_access_flags: access_bits(access),
        ..QueuePair::no_attributes()
    };
    qp.modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
}

/// INIT to RTR (RC, UC).
pub(crate) fn ready_to_receive(
    (qp, service): (&QueuePair, Service),
    route: &Route,
    connection: &Connection,
) -> io::Result<()> {
    let attr = ibv_qp_attr {
        qp_state: IBV_QPS_RTR,
        path_mtu: connection.mtu,
        rq_psn: connection.psn,
        dest_qp_num: connection.qpn,
        max_dest_rd_atomic: connection.max_dest_rd_atomic,
        min_rnr_timer: connection.rnr_timer,
        ah_attr: address(route)?,
        ..QueuePair::no_attributes()
    };
    let only_rc = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    let mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    match service {
        Service::Rc => qp.modify(attr, mask | only_rc),
        Service::Uc | Service::Ud => qp.modify(attr, mask),
    }
}

/// Returns the attributes of RTS, and their mask without the state.
fn sending(attr: &RtsAttr) -> (ibv_qp_attr, c_uint) {
    let attr = ibv_qp_attr {
        max_rd_atomic: attr.max_rd_atomic as u8,
        timeout: timer::ack_timeout_code(attr.timeout),
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        ..QueuePair::no_attributes()
    };
    (attr, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)
}

/// RTR to RTS (UC, UD).
pub(crate) fn ready_to_send_unreliably(qp: &QueuePair, psn: u32) -> io::Result<()> {
    let attr = ibv_qp_attr { qp_state: IBV_QPS_RTS, sq_psn: psn, ..QueuePair::no_attributes() };
    qp.modify(attr, IBV_QP_STATE | IBV_QP_SQ_PSN)
}

/// RTR to RTS (RC).
pub(crate) fn ready_to_send(qp: &QueuePair, psn: u32, attr: &RtsAttr) -> io::Result<()> {
    let (attr, mask) = sending(attr);
    let attr = ibv_qp_attr { qp_state: IBV_QPS_RTS, sq_psn: psn, ..attr };
    qp.modify(attr, mask | IBV_QP_STATE | IBV_QP_SQ_PSN)
}

/// Other attributes of RTS, in SQD.
pub(crate) fn change_sending(qp: &QueuePair, attr: &RtsAttr) -> io::Result<()> {
    let (attr, mask) = sending(attr);
    qp.modify(ibv_qp_attr { qp_state: IBV_QPS_SQD, ..attr }, mask | IBV_QP_STATE)
}
