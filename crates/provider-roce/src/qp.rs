//! A queue pair, as its owner holds it: posting, and the states.
use crate::{
    context::RocePd,
    device::{Device, random},
    engine::{Engine, Peer, QpShared},
    io::Route,
    mr::MrCore,
    request::{Held, PostedRecv, PostedSend, Stored},
};
use catchment_roce::{
    self as roce, Psn, Recovery,
    wire::{PathMtu, ROCE_PORT, aeth},
};
use catchment_verbs::{
    Access, Endpoint, ModifyError, Payload, PostError, PostFailure, Qp, QpState, QpTransition,
    RecvWr, RemoteMapError, RemoteWindow, RtrAttr, RtsAttr, SendOp, SendWr, Sge, Watch,
    provider::{MAX_24_BITS, check_rtr, check_rts, check_transition, local_rights},
};
use std::{net::SocketAddr, sync::Arc};

/// [`NetEnd::extensions`](catchment_verbs::NetEnd::extensions): selective repeat.
pub const EXTENSION_SELECTIVE_REPEAT: u32 = 1;
/// A single request up to this many bytes is sent by its poster.
const SHORT_BYTES: u64 = 4096;
/// Regions that a queue pair remembers.
const RECENT: usize = 4;

/// See the module.
pub(crate) struct RoceQp {
    shared: Arc<QpShared>,
    pd: Arc<RocePd>,
    index: usize,
    qpn: u32,
    psn: u32,
    /// Requests ever posted.
    posted: u64,
    recv_posted: u64,
    /// Regions of the last requests.
    recent: [Option<Arc<MrCore>>; RECENT],
    next_recent: usize,
}

impl RoceQp {
    pub(crate) fn new(
        shared: Arc<QpShared>,
        pd: Arc<RocePd>,
        (index, qpn): (usize, u32),
        psn: u32,
    ) -> RoceQp {
        RoceQp {
            shared,
            pd,
            index,
            qpn,
            psn: psn & MAX_24_BITS,
            posted: 0,
            recv_posted: 0,
            recent: Default::default(),
            next_recent: 0,
        }
    }

    fn device(&self) -> &Arc<Device> {
        self.pd.device()
    }

    fn check_send(&self, wr: &SendWr<'_>) -> Result<(), PostFailure> {
        let shared = &self.shared;
        let outstanding = shared.sq.outstanding(self.posted);
        shared.limits.check_send(shared.state(), outstanding, wr)
    }

    fn post_one_send(&mut self, wr: &SendWr<'_>) {
        self.posted += 1;
        let (stored, held) = match wr.payload {
            Payload::Inline(data) => (Stored::inline(data), Held::None),
            Payload::Sges(sges) => match self.hold(sges, local_rights(&wr.op)) {
                Some(_) if is_misaligned(&wr.op) => {
                    let status = roce::WcStatus::RemoteInvalidRequest;
                    (Stored::Wrong(status), Held::None)
                }
                Some(held) => (Stored::elements(sges), held),
                None => {
                    let status = roce::WcStatus::LocalProtection;
                    (Stored::Wrong(status), Held::None)
                }
            },
        };
        let send = PostedSend {
            wr_id: wr.wr_id,
            op: operation(&wr.op),
            stored,
            held,
            signaled: wr.signaled,
            fence: wr.fence,
            solicited: wr.solicited,
        };
        if let Err(send) = self.shared.sends.push(send) {
            self.device().engine().post_send_slowly(self.index, send);
        }
    }

    fn post_one_recv(&mut self, wr: &RecvWr<'_>) -> Result<(), PostFailure> {
        let shared = &self.shared;
        let outstanding = shared.rq.outstanding(self.recv_posted);
        shared.limits.check_recv(shared.state(), outstanding, wr)?;
        self.recv_posted += 1;
        // A wrong key shows when a message comes for it.
        let held = self.hold(wr.sges, Access::LOCAL_WRITE);
        let recv = PostedRecv {
            wr_id: wr.wr_id,
            stored: Stored::elements(wr.sges),
            held: held.unwrap_or_default(),
        };
        if let Err(recv) = self.shared.recvs.push(recv) {
            self.device().engine().post_recv_slowly(self.index, recv);
        }
        Ok(())
    }

    /// Looks up the regions of these elements; `None` if one is wrong.
    fn hold(&mut self, sges: &[Sge], rights: Access) -> Option<Held> {
        match sges {
            [] => Some(Held::None),
            [one] => Some(Held::One(self.region(one, rights)?)),
            many => {
                let regions = many.iter().map(|sge| self.region(sge, rights));
                Some(Held::Many(regions.collect::<Option<_>>()?))
            }
        }
    }

    #[inline]
    fn region(&mut self, sge: &Sge, rights: Access) -> Option<Arc<MrCore>> {
        let known = self.recent.iter().flatten();
        let known = known
            .into_iter()
            .find(|mr| mr.key() == sge.lkey && mr.is_valid());
        let mr = match known {
            Some(mr) => Arc::clone(mr),
            None => self.remember(sge.lkey)?,
        };
        mr.range(self.pd.id(), rights, sge.addr, sge.bytes.into())?;
        Some(mr)
    }

    fn remember(&mut self, lkey: u32) -> Option<Arc<MrCore>> {
        let mr = Arc::clone(self.device().keys().lookup(lkey)?);
        self.recent[self.next_recent] = Some(Arc::clone(&mr));
        self.next_recent = (self.next_recent + 1) % RECENT;
        Some(mr)
    }

    fn illegal(&self, to: QpState) -> ModifyError {
        ModifyError::Illegal {
            qpn: self.qpn,
            from: self.shared.state(),
            to,
        }
    }

    /// Has the engine make a change; one that it refuses was overtaken by a failure.
    fn change(
        &self,
        to: QpState,
        change: impl FnOnce(&mut Engine) -> Result<(), roce::ModifyError>,
    ) -> Result<(), ModifyError> {
        let done = change(&mut self.device().engine());
        self.device().kick_after_change();
        done.map_err(|_| self.illegal(to))
    }

    fn enter_reset(&mut self) -> Result<(), ModifyError> {
        // Another start, so that late packets of before do not fit.
        self.psn = random().map_err(|error| ModifyError::Resources {
            qpn: self.qpn,
            what: "a new PSN",
            reason: error.to_string(),
        })? & MAX_24_BITS;
        self.device().engine().reset(self.index);
        self.shared.sq.free_before(self.posted);
        self.shared.rq.free_before(self.recv_posted);
        Ok(())
    }

    fn enter_init(&self, access: Access) -> Result<(), ModifyError> {
        let attr = roce::InitAttr {
            remote_write: access.contains(Access::REMOTE_WRITE),
            remote_read: access.contains(Access::REMOTE_READ),
            remote_atomic: access.contains(Access::REMOTE_ATOMIC),
            qkey: 0,
        };
        self.change(QpState::Init, |engine| engine.init(self.index, attr))
    }

    fn enter_rtr(&self, attr: &RtrAttr) -> Result<(), ModifyError> {
        check_rtr(self.qpn, attr)?;
        let (peer, path_mtu) = self.reach(&attr.remote)?;
        let wire = roce::RtrAttr {
            dest_qpn: attr.remote.qpn,
            path_mtu,
            rq_psn: Psn::new(attr.remote.psn),
            max_dest_rd_atomic: attr.max_dest_rd_atomic as u8,
            min_rnr_timer: aeth::rnr_timer_code(attr.min_rnr_timer),
            recovery: self.recovery(&attr.remote),
        };
        self.change(QpState::Rtr, |engine| {
            engine.connect(self.index, peer, wire)
        })
    }

    fn recovery(&self, remote: &Endpoint) -> Recovery {
        let theirs = remote.net.map_or(0, |net| net.extensions);
        let both =
            self.device().options.selective_repeat && theirs & EXTENSION_SELECTIVE_REPEAT != 0;
        if both {
            Recovery::SelectiveRepeat
        } else {
            Recovery::GoBackN
        }
    }

    /// The way to a peer, and the largest packets for it: what both ends and the route take.
    fn reach(&self, remote: &Endpoint) -> Result<(Peer, PathMtu), ModifyError> {
        let device = self.device();
        let address = remote.gid.ip();
        let refused = |reason: String| ModifyError::Peer {
            qpn: self.qpn,
            peer: address.to_string(),
            reason,
        };
        if address.is_ipv4() != device.local.is_ipv4() {
            return Err(refused(format!(
                "this device has the address {}: open one of the same family as the peer",
                device.local.ip()
            )));
        }
        let port = remote.net.map_or(ROCE_PORT, |net| net.udp_port);
        let mut to = SocketAddr::new(address, port);
        if let (SocketAddr::V6(to), SocketAddr::V6(from)) = (&mut to, device.local) {
            to.set_scope_id(from.scope_id());
        }
        let local = device.local.ip();
        let path = device.path_to(to);
        let path = path.map_err(|error| refused(error.to_string()))?;
        let route = Route {
            local,
            remote: to,
            ecn: if device.options.ecn { 2 } else { 0 },
        };
        let theirs = match remote.net {
            None => PathMtu::Mtu4096,
            Some(net) => PathMtu::from_bytes(net.path_mtu as usize).ok_or_else(|| {
                refused(format!(
                    "its path MTU is {}: 256, 512, 1024, 2048 or 4096 is needed",
                    net.path_mtu
                ))
            })?,
        };
        let path_mtu = theirs.min(device.path_mtu).min(path.path_mtu);
        tracing::info!(qpn = self.qpn, %path, agreed = path_mtu.bytes(), "way to the peer");
        let end = *remote;
        Ok((
            Peer {
                address,
                route,
                end,
            },
            path_mtu,
        ))
    }

    fn enter_rts(&self, attr: &RtsAttr) -> Result<(), ModifyError> {
        check_rts(self.qpn, attr)?;
        let wire = roce::RtsAttr {
            sq_psn: Psn::new(self.psn),
            max_rd_atomic: attr.max_rd_atomic as u8,
            timeout: (!attr.timeout.is_zero()).then_some(attr.timeout),
            retry_cnt: attr.retry_cnt,
            rnr_retry: attr.rnr_retry,
        };
        self.change(QpState::Rts, |engine| engine.start(self.index, wire))
    }
}

/// The address of an atomic must be a multiple of eight (IBTA 9.4.5.1).
fn is_misaligned(op: &SendOp) -> bool {
    match op {
        SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. } => {
            !remote.addr.is_multiple_of(8)
        }
        SendOp::Write(_)
        | SendOp::WriteImm(..)
        | SendOp::Read(_)
        | SendOp::Send
        | SendOp::SendImm(_) => false,
    }
}

fn operation(op: &SendOp) -> roce::SendOp {
    let place = |remote: catchment_verbs::RemoteAddr| roce::RemoteAddr {
        addr: remote.addr,
        rkey: remote.rkey,
    };
    match *op {
        SendOp::Write(remote) => roce::SendOp::Write(place(remote)),
        SendOp::WriteImm(remote, imm) => roce::SendOp::WriteImm(place(remote), imm),
        SendOp::Read(remote) => roce::SendOp::Read(place(remote)),
        SendOp::Send => roce::SendOp::Send,
        SendOp::SendImm(imm) => roce::SendOp::SendImm(imm),
        SendOp::CompareSwap {
            remote,
            compare,
            swap,
        } => roce::SendOp::CompareSwap {
            remote: place(remote),
            compare,
            swap,
        },
        SendOp::FetchAdd { remote, add } => roce::SendOp::FetchAdd {
            remote: place(remote),
            add,
        },
    }
}

impl Qp for RoceQp {
    fn qpn(&self) -> u32 {
        self.qpn
    }

    fn state(&self) -> QpState {
        self.shared.state()
    }

    fn endpoint(&self) -> Endpoint {
        let device = self.device();
        Endpoint {
            gid: device.gid,
            qpn: self.qpn,
            psn: self.psn,
            net: Some(device.net()),
        }
    }

    fn modify(&mut self, transition: QpTransition) -> Result<(), ModifyError> {
        let to = transition.target();
        check_transition(self.qpn, self.shared.state(), to)?;
        match transition {
            QpTransition::ToReset => self.enter_reset(),
            QpTransition::ToInit { access } => self.enter_init(access),
            QpTransition::ToRtr(attr) => self.enter_rtr(&attr),
            QpTransition::ToRts(attr) => self.enter_rts(&attr),
            QpTransition::ToSqd => self.change(to, |engine| engine.hold(self.index)),
            QpTransition::ToErr => self.change(to, |engine| {
                engine.fail(self.index);
                Ok(())
            }),
        }
    }

    fn post_send(&mut self, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        let mut result = Ok(());
        for (index, wr) in requests.iter().enumerate() {
            if let Err(reason) = self.check_send(wr) {
                result = Err(PostError { index, reason });
                break;
            }
            self.post_one_send(wr);
        }
        let short = matches!(requests, [one] if one.payload.bytes() <= SHORT_BYTES);
        self.device().posted(self.index, short);
        result
    }

    fn post_recv(&mut self, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        let mut result = Ok(());
        for (index, wr) in requests.iter().enumerate() {
            if let Err(reason) = self.post_one_recv(wr) {
                result = Err(PostError { index, reason });
                break;
            }
        }
        self.device().posted(self.index, false);
        result
    }

    fn map_remote(&self, _: u64, _: u64, _: u32) -> Result<RemoteWindow, RemoteMapError> {
        Err(RemoteMapError::Unsupported)
    }

    fn watch_remote(&self, _: u32) -> Result<Arc<dyn Watch>, RemoteMapError> {
        Err(RemoteMapError::Unsupported)
    }
}

impl Drop for RoceQp {
    fn drop(&mut self) {
        self.device().engine().remove(self.index);
    }
}
