//! Capabilities that no query reports: found by a queue pair that is connected to itself.
use crate::mtu::mtu_code;
use crate::name::Place;
use crate::path;
use crate::sys::types::{IBV_WR_RDMA_WRITE, ibv_qp_cap};
use crate::sys::{CompletionQueue, Device, Domain, QueuePair, QueuePairInit};
use catchment_verbs::{Access, RtsAttr, Service, Services};
use std::io;
use std::sync::Arc;

/// Lengths of inline data to try. Beyond that, copying into the request costs more than it saves.
const INLINE_BYTES: [u32; 5] = [512, 256, 128, 64, 0];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Probed {
    pub(crate) max_inline_bytes: u32,
    pub(crate) data_in_order: bool,
    pub(crate) services: Services,
}

/// Creates a queue pair, with as much inline data as possible, and connects it to itself.
pub(crate) fn probe(device: &Arc<Device>, place: &Place, path_mtu: u32) -> io::Result<Probed> {
    let domain = Arc::new(Domain::new(Arc::clone(device))?);
    let cq = Arc::new(CompletionQueue::new(Arc::clone(device), None, (1, 0, usize::MAX))?);
    let mut refused = None;
    for max_inline_bytes in INLINE_BYTES {
        let init = QueuePairInit {
            send_cq: Arc::clone(&cq),
            recv_cq: Arc::clone(&cq),
            cap: least(max_inline_bytes),
            service: Service::Rc,
            tag: usize::MAX,
        };
        match QueuePair::new(Arc::clone(&domain), init) {
            Ok(qp) => {
                return Ok(Probed {
                    max_inline_bytes,
                    data_in_order: data_in_order(&qp, place, path_mtu),
                    services: services(&domain, &cq, place.port),
                });
            }
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| io::ErrorKind::Unsupported.into()))
}

fn least(max_inline_data: u32) -> ibv_qp_cap {
    ibv_qp_cap { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data }
}

fn services(domain: &Arc<Domain>, cq: &Arc<CompletionQueue>, port: u8) -> Services {
    let works = |service| {
        let init = QueuePairInit {
            send_cq: Arc::clone(cq),
            recv_cq: Arc::clone(cq),
            cap: least(0),
            service,
            tag: usize::MAX,
        };
        let made = QueuePair::new(Arc::clone(domain), init).and_then(|qp| match service {
            Service::Ud => path::init_ud(&qp, port, 1),
            Service::Rc | Service::Uc => path::init(&qp, port, Access::REMOTE_WRITE),
        });
        if let Err(error) = &made {
            tracing::debug!(%service, %error, "not offered by the device");
        }
        made.is_ok()
    };
    let others = [Service::Uc, Service::Ud].into_iter();
    others.filter(|service| works(*service)).map(Services::from).fold(Services::RC, Services::union)
}

/// Drivers answer only for a queue pair that is ready to send.
fn data_in_order(qp: &QueuePair, place: &Place, path_mtu: u32) -> bool {
    let connected = connect_to_itself(qp, place, path_mtu);
    if let Err(error) = connected {
        tracing::debug!(%error, %place, "a queue pair cannot be connected to itself");
        return false;
    }
    qp.data_in_order(IBV_WR_RDMA_WRITE)
}

fn connect_to_itself(qp: &QueuePair, place: &Place, path_mtu: u32) -> io::Result<()> {
    let route = path::Route {
        port: place.port,
        index: place.index,
        remote: place.gid,
        traffic_class: 0,
        service_level: 0,
    };
    let mtu = mtu_code(path_mtu).ok_or(io::ErrorKind::InvalidInput)?;
    path::init(qp, place.port, Access::REMOTE_WRITE)?;
    let connection =
        path::Connection { qpn: qp.qpn, psn: 0, mtu, max_dest_rd_atomic: 1, rnr_timer: 1 };
    path::ready_to_receive((qp, Service::Rc), &route, &connection)?;
    path::ready_to_send(qp, 0, &RtsAttr { max_rd_atomic: 1, ..RtsAttr::default() })
}
