//! A queue pair, as its owner holds it: posting, and the states.
use crate::{
    context::IbPd,
    cq::CqCore,
    device::{Device, mtu_code},
    path,
    slots::{Control, RequestId, Slot},
    sys::{
        QueuePair, Refused,
        types::{IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE},
    },
    timer,
};
use catchment_verbs::{
    Access, Endpoint, ModifyError, NetEnd, PostError, PostFailure, Qp, QpState, QpTransition,
    RecvWr, RemoteMapError, RemoteWindow, RtrAttr, RtsAttr, SendOp, SendWr, VerbsError, Watch,
    provider::{Limits, MAX_24_BITS, check_rtr, check_rts, check_transition},
};
use std::{
    io,
    sync::{
        Arc, MutexGuard,
        atomic::{Ordering, fence},
    },
};

/// The UDP port of RoCE v2, the only one that RNICs know.
const ROCE_PORT: u16 = 4791;
/// The kernel is asked for the state of a queue pair this often at most.
const ASK_NS: u64 = 10_000_000;

/// See the module.
pub(crate) struct IbQp {
    qp: Arc<QueuePair>,
    slot: Arc<Slot>,
    pd: Arc<IbPd>,
    cqs: (Arc<CqCore>, Arc<CqCore>),
    limits: Limits,
    psn: u32,
    /// The attributes of RTS that are in force.
    sending: Option<RtsAttr>,
}

impl IbQp {
    pub(crate) fn new(
        qp: Arc<QueuePair>,
        slot: Arc<Slot>,
        (pd, cqs): (Arc<IbPd>, (Arc<CqCore>, Arc<CqCore>)),
        limits: Limits,
    ) -> Result<IbQp, VerbsError> {
        slot.occupy(&qp, [cqs.0.tag(), cqs.1.tag()]);
        cqs.0.add_user(slot.index());
        cqs.1.add_user(slot.index());
        // From here on dropping undoes all.
        let mut qp = IbQp {
            qp,
            slot,
            pd,
            cqs,
            limits,
            psn: 0,
            sending: None,
        };
        qp.psn = random_psn().map_err(|error| VerbsError::os("getrandom", error))?;
        Ok(qp)
    }

    fn device(&self) -> &Arc<Device> {
        self.pd.device()
    }

    /// Asks the kernel, if it may know more than we do and was not asked just now.
    fn ask_for_state(&self) {
        let device = self.device();
        let sends = &self.slot.sends;
        let waits = sends.outstanding(sends.posted()) > 0;
        if !waits && !device.quirks.is_rxe {
            // What peers do wrong comes as an event.
            return;
        }
        let (now, asked) = (device.now_ns(), self.slot.asked_ns.load(Ordering::Relaxed));
        if now < asked.saturating_add(ASK_NS) {
            return;
        }
        self.slot.asked_ns.store(now, Ordering::Relaxed);
        match self.qp.query_state() {
            Ok(IBV_QPS_ERR | IBV_QPS_SQE) => device.fail(
                &self.slot,
                "the device moved it to the error state: a request of this side or of the peer \
                 failed, and its completion says why",
            ),
            Ok(_) => {}
            Err(error) => device.lose(&format!("it does not answer ({error})")),
        }
    }

    /// Why the device refused a request.
    fn refused(&self, refused: &Refused, capacity: u32) -> PostFailure {
        match refused.errno {
            libc::ENOMEM => PostFailure::QueueFull { capacity },
            errno => PostFailure::Device { errno },
        }
    }

    /// Whether the device has to be asked at all: once it is gone, requests only wait to be flushed.
    fn reaches_device(&self) -> bool {
        !self.device().is_gone()
    }

    fn give_sends(&self, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        let first = self.slot.sends.posted();
        for (seq, wr) in (first..).zip(requests) {
            self.slot.sends.keep(seq, wr.wr_id, wr.payload.bytes());
        }
        let mut posted = requests.len();
        let mut result = Ok(());
        if self.reaches_device() {
            let RequestId(id) = self.slot.request_id(false, first);
            if let Err(refused) = self.qp.post_send(requests, (id, RequestId::STEP)) {
                (posted, result) = self.after_refusal(refused, posted, self.limits.max_send_wr);
            }
        }
        self.slot.sends.set_posted(first + posted as u64);
        result
    }

    fn give_recvs(&self, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        let first = self.slot.recvs.posted();
        for (seq, wr) in (first..).zip(requests) {
            self.slot.recvs.keep(seq, wr.wr_id, 0);
        }
        let mut posted = requests.len();
        let mut result = Ok(());
        if self.reaches_device() {
            let RequestId(id) = self.slot.request_id(true, first);
            if let Err(refused) = self.qp.post_recv(requests, (id, RequestId::STEP)) {
                (posted, result) = self.after_refusal(refused, posted, self.limits.max_recv_wr);
            }
        }
        self.slot.recvs.set_posted(first + posted as u64);
        self.flush_late_receives();
        result
    }

    /// What becomes of requests that the device refused: how many are posted, and the error.
    #[cold]
    fn after_refusal(
        &self,
        refused: Refused,
        asked: usize,
        capacity: u32,
    ) -> (usize, Result<(), PostError>) {
        if matches!(refused.errno, libc::EIO | libc::ENODEV) {
            let error = io::Error::from_raw_os_error(refused.errno);
            self.device()
                .lose(&format!("it takes no requests ({error})"));
            // They are flushed with the others.
            return (asked, Ok(()));
        }
        let error = PostError {
            index: refused.index,
            reason: self.refused(&refused, capacity),
        };
        (refused.index, Err(error))
    }

    /// Soft-RoCE flushes the receives that are there when it is told to go to the error state, and
    /// none that come later. Whoever notices the error tells it once; so do we, if it was noticed
    /// before our receives were there.
    fn flush_late_receives(&self) {
        if !self.device().quirks.is_rxe {
            return;
        }
        // Either the other thread's change of state is seen here, or it sees our receives.
        fence(Ordering::SeqCst);
        if self.slot.state.get() == QpState::Err
            && self.reaches_device()
            && let Err(error) = self.qp.set_state(IBV_QPS_ERR)
        {
            tracing::debug!(%error, "flushing late receives");
        }
    }

    fn resources(&self, what: &'static str, error: &io::Error) -> ModifyError {
        ModifyError::Resources {
            qpn: self.qpn(),
            what,
            reason: error.to_string(),
        }
    }

    /// A change of state that needs no attributes.
    fn set_state(&self, state: u32, what: &'static str) -> Result<(), ModifyError> {
        let result = self.qp.set_state(state);
        result.map_err(|error| self.resources(what, &error))
    }

    fn enter_reset(&mut self, control: &mut Control) -> Result<(), ModifyError> {
        // Another start, so that late packets of before do not fit.
        self.psn = random_psn().map_err(|error| self.resources("a new PSN", &error))?;
        if self.reaches_device() {
            self.set_state(IBV_QPS_RESET, "going to RESET")?;
        }
        self.slot.clear();
        self.sending = None;
        control.peer = None;
        Ok(())
    }

    fn enter_init(&self, access: Access) -> Result<(), ModifyError> {
        let result = path::init(&self.qp, self.device().place.port, access);
        result.map_err(|error| self.resources("going to INIT", &error))
    }

    fn enter_error(&self) -> Result<(), ModifyError> {
        let state = self.slot.state.get();
        if state == QpState::Err || !self.reaches_device() {
            return Ok(());
        }
        if state == QpState::Reset {
            // Linux has no way from RESET to the error state but this.
            self.enter_init(Access::empty())?;
        }
        self.set_state(IBV_QPS_ERR, "going to the error state")
    }

    fn enter_rtr(&self, control: &mut Control, attr: &RtrAttr) -> Result<(), ModifyError> {
        check_rtr(self.qpn(), attr)?;
        let most = self.device().caps.max_rd_atomic;
        self.check_rd_atomic("max_dest_rd_atomic", attr.max_dest_rd_atomic, most)?;
        let mtu = self.check_peer(&attr.remote)?;
        let connection = path::Connection {
            qpn: attr.remote.qpn,
            psn: attr.remote.psn,
            mtu,
            max_dest_rd_atomic: attr.max_dest_rd_atomic as u8,
            rnr_timer: timer::rnr_code(attr.min_rnr_timer),
        };
        let device = self.device();
        let route = path::Route {
            port: device.place.port,
            index: self.gid_index(&attr.remote)?,
            remote: attr.remote.gid,
            traffic_class: device.options.traffic_class,
            service_level: device.options.service_level,
        };
        path::ready_to_receive(&self.qp, &route, &connection)
            .map_err(|error| self.unreachable(&attr.remote, &error))?;
        control.peer = Some(attr.remote);
        Ok(())
    }

    fn peer_error(&self, remote: &Endpoint, reason: String) -> ModifyError {
        ModifyError::Peer {
            qpn: self.qpn(),
            peer: remote.gid.ip().to_string(),
            reason,
        }
    }

    /// Whether an RNIC can talk to this peer; the code of the path MTU.
    fn check_peer(&self, remote: &Endpoint) -> Result<u32, ModifyError> {
        let device = self.device();
        let (ours, theirs) = (device.place.gid.ip(), remote.gid.ip());
        if ours.is_ipv4() != theirs.is_ipv4() {
            let reason = format!(
                "this device has the address {ours}: open it by a GID of the same family as the peer"
            );
            return Err(self.peer_error(remote, reason));
        }
        let Some(net) = remote.net else {
            return mtu_code(device.path_mtu)
                .ok_or_else(|| self.peer_error(remote, "no path MTU".to_owned()));
        };
        if net.udp_port != ROCE_PORT {
            let reason = format!(
                "it listens on UDP port {}, and RNICs send to {ROCE_PORT} only: free that port there",
                net.udp_port
            );
            return Err(self.peer_error(remote, reason));
        }
        mtu_code(net.path_mtu)
            .and_then(|_| mtu_code(net.path_mtu.min(device.path_mtu)))
            .ok_or_else(|| {
                let reason = format!(
                    "its path MTU is {}: 256, 512, 1024, 2048 or 4096 is needed",
                    net.path_mtu
                );
                self.peer_error(remote, reason)
            })
    }

    /// Where our GID is in the table now: addresses that come and go move it.
    fn gid_index(&self, remote: &Endpoint) -> Result<u32, ModifyError> {
        let place = &self.device().place;
        self.device().gid_index().ok_or_else(|| {
            let reason = format!(
                "our own GID {} ({}) is not in the table of {} port {} any more: its address was \
                 removed, or the interface is down; open the device again",
                place.gid,
                place.gid.ip(),
                place.device,
                place.port
            );
            self.peer_error(remote, reason)
        })
    }

    fn unreachable(&self, remote: &Endpoint, error: &io::Error) -> ModifyError {
        let place = &self.device().place;
        let advice = match error.raw_os_error() {
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => {
                "no route leads there from this device's interface (`ip route get`)"
            }
            Some(libc::ETIMEDOUT | libc::ENODATA | libc::EAGAIN) => {
                "nobody answers for that address on the link (`ip neighbour`): the peer is down, or \
                 in another network"
            }
            Some(libc::EINVAL) => {
                "the kernel or the driver takes the GID, the path MTU or a limit for wrong"
            }
            _ => "see the kernel's log (dmesg)",
        };
        let reason = format!(
            "{error}, from {} port {} with GID {}: {advice}",
            place.device, place.port, place.gid
        );
        self.peer_error(remote, reason)
    }

    fn check_rd_atomic(
        &self,
        what: &'static str,
        value: u32,
        most: u32,
    ) -> Result<(), ModifyError> {
        if value <= most {
            return Ok(());
        }
        Err(ModifyError::Attribute {
            qpn: self.qpn(),
            what,
            value: value.into(),
            range: "0 to the device's max_rd_atomic",
        })
    }

    fn enter_rts(&mut self, attr: &RtsAttr) -> Result<(), ModifyError> {
        check_rts(self.qpn(), attr)?;
        let most = self.device().caps.max_rd_atomic;
        self.check_rd_atomic("max_rd_atomic", attr.max_rd_atomic, most)?;
        let mut wire = *attr;
        if self.device().quirks.is_rxe && wire.retry_cnt == 7 {
            wire.retry_cnt = 6;
        }
        let from = self.slot.state.get();
        let result = match from {
            QpState::Rtr => path::ready_to_send(&self.qp, self.psn, &wire),
            QpState::Sqd => self.resume(&wire),
            QpState::Rts if self.sending == Some(*attr) => self.qp.set_state(IBV_QPS_RTS),
            QpState::Rts | QpState::Reset | QpState::Init | QpState::Err => {
                return Err(ModifyError::Attribute {
                    qpn: self.qpn(),
                    what: "an attribute of RTS",
                    value: 0,
                    range: "unchanged while in RTS: go through SQD",
                });
            }
        };
        result.map_err(|error| self.resources("going to RTS", &error))?;
        self.sending = Some(*attr);
        Ok(())
    }

    /// From SQD to RTS.
    fn resume(&self, attr: &RtsAttr) -> io::Result<()> {
        if self.sending.is_some_and(|sending| sending != *attr) {
            path::change_sending(&self.qp, attr)?;
        }
        self.qp.set_state(IBV_QPS_RTS)?;
        if self.device().quirks.is_rxe {
            self.qp.ring_soft_doorbell()?;
        }
        Ok(())
    }

    fn change(
        &mut self,
        control: &mut Control,
        transition: &QpTransition,
    ) -> Result<(), ModifyError> {
        let to = transition.target();
        check_transition(self.qpn(), self.slot.state.get(), to)?;
        match transition {
            QpTransition::ToReset => self.enter_reset(control)?,
            QpTransition::ToErr => self.enter_error()?,
            _ if !self.reaches_device() => {
                return Err(ModifyError::Resources {
                    qpn: self.qpn(),
                    what: "its device",
                    reason: "the device is lost".to_owned(),
                });
            }
            QpTransition::ToInit { access } => self.enter_init(*access)?,
            QpTransition::ToRtr(attr) => self.enter_rtr(control, attr)?,
            QpTransition::ToRts(attr) => self.enter_rts(attr)?,
            QpTransition::ToSqd => self.set_state(IBV_QPS_SQD, "going to SQD")?,
        }
        self.slot.state.set(to);
        Ok(())
    }
}

/// A first packet number.
fn random_psn() -> io::Result<u32> {
    let mut bytes = [0u8; 4];
    rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    Ok(u32::from_ne_bytes(bytes) & MAX_24_BITS)
}

/// The address of an atomic must be a multiple of eight (IBTA 9.4.5.1). Some drivers refuse it with
/// a bare error number, others let the peer break the connection.
#[inline]
fn check_alignment(op: &SendOp) -> Result<(), PostFailure> {
    let (SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. }) = op else {
        return Ok(());
    };
    if remote.addr.is_multiple_of(8) {
        return Ok(());
    }
    Err(PostFailure::Payload(
        "the remote address of an atomic is not a multiple of eight",
    ))
}

/// How many of these requests are right, and what is wrong with the next.
fn split<T>(
    requests: &[T],
    check: impl Fn(u64, &T) -> Result<(), PostFailure>,
) -> (usize, Result<(), PostError>) {
    for (index, request) in requests.iter().enumerate() {
        if let Err(reason) = check(index as u64, request) {
            return (index, Err(PostError { index, reason }));
        }
    }
    (requests.len(), Ok(()))
}

impl Qp for IbQp {
    fn qpn(&self) -> u32 {
        self.qp.qpn()
    }

    fn state(&self) -> QpState {
        if matches!(
            self.slot.state.get(),
            QpState::Rtr | QpState::Rts | QpState::Sqd
        ) && !self.device().is_gone()
        {
            self.ask_for_state();
        }
        self.slot.state.get()
    }

    fn endpoint(&self) -> Endpoint {
        let device = self.device();
        Endpoint {
            gid: device.place.gid,
            qpn: self.qp.qpn(),
            psn: self.psn,
            net: Some(NetEnd {
                udp_port: ROCE_PORT,
                path_mtu: device.path_mtu,
                extensions: 0,
            }),
        }
    }

    fn modify(&mut self, transition: QpTransition) -> Result<(), ModifyError> {
        let slot = Arc::clone(&self.slot);
        let mut control: MutexGuard<'_, Control> = slot.control();
        self.change(&mut control, &transition)
    }

    fn post_send(&mut self, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        let (state, posted) = (self.slot.state.get(), self.slot.sends.posted());
        let outstanding = self.slot.sends.outstanding(posted);
        let (right, wrong) = split(requests, |n, wr| {
            check_alignment(&wr.op)?;
            self.limits.check_send(state, outstanding + n, wr)
        });
        self.give_sends(&requests[..right]).and(wrong)
    }

    fn post_recv(&mut self, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        let (state, posted) = (self.slot.state.get(), self.slot.recvs.posted());
        let outstanding = self.slot.recvs.outstanding(posted);
        let (right, wrong) = split(requests, |n, wr| {
            self.limits.check_recv(state, outstanding + n, wr)
        });
        self.give_recvs(&requests[..right]).and(wrong)
    }

    fn map_remote(&self, _: u64, _: u64, _: u32) -> Result<RemoteWindow, RemoteMapError> {
        Err(RemoteMapError::Unsupported)
    }

    fn watch_remote(&self, _: u32) -> Result<Arc<dyn Watch>, RemoteMapError> {
        Err(RemoteMapError::Unsupported)
    }
}

impl Drop for IbQp {
    fn drop(&mut self) {
        // Events and pollers reach the queue pair through its slot: first it leaves that.
        self.slot.control().qp = None;
        self.cqs.0.remove_user(self.slot.index());
        self.cqs.1.remove_user(self.slot.index());
        self.device().slots.give_back(&self.slot);
    }
}
