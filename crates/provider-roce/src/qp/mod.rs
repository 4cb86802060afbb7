//! The application's queue pair: posting, and the states.
mod change;

use crate::address_vector::AhCore;
use crate::device::Device;
use crate::engine::QpShared;
use crate::engine::tuning::SHORT_BYTES;
use crate::handles::RocePd;
use crate::region::MrCore;
use crate::request::{Held, PostedRecv, PostedSend};
use catchment_roce::{RecvWqe, SendWqe};
use catchment_verbs::provider::{
    Handle, MAX_24_BITS, RecentHandle, check_rate, check_transition, local_rights, post_each,
    random_bytes,
};
use catchment_verbs::{
    Access, Delivery, Destination, Endpoint, ModifyError, NetEnd, PacketKey, Payload, PostError,
    PostFailure, Qp, QpState, QpTransition, RateError, RateLimit, RecvWr, SendWr, Service, Sge,
    VerbsError, WcStatus,
};
use std::sync::{Arc, Weak};

/// Regions that a queue pair remembers.
const RECENT: usize = 4;

/// See the module documentation.
pub(crate) struct RoceQp {
    shared: Arc<QpShared>,
    pd: RocePd,
    index: usize,
    qpn: u32,
    psn: u32,
    /// The UDP port that its packets come from.
    source_port: u16,
    /// The key of its packets, if they are authenticated.
    key: Option<PacketKey>,
    /// Requests ever posted.
    posted: u64,
    recv_posted: u64,
    /// Local keys and regions of the last requests, which do not keep them.
    recent: [(u32, Weak<MrCore>); RECENT],
    next_recent: usize,
    /// The address handle of the last datagram.
    recent_ah: RecentHandle<AhCore>,
}

/// Draws a key for the packets of a connection of a device that authenticates them.
pub(crate) fn draw_key(device: &Device) -> Result<Option<PacketKey>, VerbsError> {
    device.options.authenticate.then(|| random_bytes().map(PacketKey)).transpose()
}

impl RoceQp {
    pub(crate) fn new(
        shared: Arc<QpShared>,
        pd: RocePd,
        (index, qpn): (usize, u32),
        (psn, key): (u32, Option<PacketKey>),
    ) -> Self {
        let source_port = pd.device().datagrams.source_port(qpn);
        Self {
            source_port,
            key,
            shared,
            pd,
            index,
            qpn,
            psn: psn & MAX_24_BITS,
            posted: 0,
            recv_posted: 0,
            recent: Default::default(),
            next_recent: 0,
            recent_ah: RecentHandle::default(),
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
        let held = match wr.payload {
            Payload::Inline(_) => Held::None,
            Payload::Sges(sges) => match self.hold(sges, local_rights(&wr.op)) {
                Some(_) if wr.op.is_misaligned_atomic() => {
                    Held::Wrong(WcStatus::RemoteInvalidRequest)
                }
                Some(held) => held,
                None => Held::Wrong(WcStatus::LocalProtection),
            },
        };
        self.hand_over(PostedSend { wqe: SendWqe::new(wr), held });
    }

    #[inline]
    fn hand_over(&self, send: PostedSend) {
        if let Err(send) = self.shared.sends.push(send) {
            self.device().engine().post_send_slowly(self.index, send);
        }
    }

    fn post_datagram(&mut self, wr: &SendWr<'_>) -> Result<(), PostFailure> {
        let to = *wr.op.destination().ok_or(PostFailure::Service(Service::Ud))?;
        let ah = self.address_handle(&to)?;
        let (asked, limit) = (wr.payload.bytes(), ah.object.vector.path_mtu.bytes() as u64);
        if asked > limit {
            return Err(PostFailure::MessageTooLong { asked, limit });
        }
        self.posted += 1;
        let held = match wr.payload {
            Payload::Inline(_) => Held::None,
            Payload::Sges(sges) => match self.hold(sges, Access::empty()) {
                Some(held) => held,
                None => Held::Wrong(WcStatus::LocalProtection),
            },
        };
        let (wqe, held) = (SendWqe::new(wr), held.with_address_handle(ah));
        self.hand_over(PostedSend { wqe, held });
        Ok(())
    }

    fn address_handle(&mut self, to: &Destination) -> Result<Arc<Handle<AhCore>>, PostFailure> {
        let (ahs, pd) = (&self.pd.device().ahs, self.pd.id);
        let found = self.recent_ah.find(ahs, to.ah, |ah| ah.pd == pd);
        found.map(Arc::clone).ok_or(PostFailure::UNKNOWN_AH)
    }

    fn post_one_recv(&mut self, wr: &RecvWr<'_>) -> Result<(), PostFailure> {
        let shared = &self.shared;
        let outstanding = shared.rq.outstanding(self.recv_posted);
        shared.limits.check_recv(shared.state(), outstanding, wr)?;
        self.recv_posted += 1;
        // A wrong key is found when a message arrives for it.
        let held = self.hold(wr.sges, Access::LOCAL_WRITE);
        let recv = PostedRecv { wqe: RecvWqe::new(wr), held: held.unwrap_or_default() };
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
        let known = self.recent.iter().filter(|(lkey, _)| *lkey == sge.lkey);
        let known = known.filter_map(|(_, mr)| mr.upgrade()).find(|mr| mr.is_valid());
        let mr = match known {
            Some(mr) => mr,
            None => self.remember(sge.lkey)?,
        };
        mr.range(self.pd.id, rights, sge.addr, sge.bytes.into())?;
        Some(mr)
    }

    fn remember(&mut self, lkey: u32) -> Option<Arc<MrCore>> {
        let mr = Arc::clone(self.device().keys().lookup(lkey)?);
        self.recent[self.next_recent] = (lkey, Arc::downgrade(&mr));
        self.next_recent = (self.next_recent + 1) % RECENT;
        Some(mr)
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
        // Who passes our packets on sends them from a port of its own.
        let via = device.options.fault.and_then(|faults| faults.via);
        let source_port = via.map_or(self.source_port, |via| via.port());
        let net = NetEnd { key: self.key, ..device.net().with_source_port(source_port) };
        Endpoint { gid: device.gid, qpn: self.qpn, psn: self.psn, net: Some(net) }
    }

    fn modify(&mut self, transition: QpTransition) -> Result<(), ModifyError> {
        let (service, state) = (self.shared.limits.service, self.shared.state());
        check_transition((self.qpn, service), state, &transition)?;
        self.enter(transition)
    }

    fn post_send(&mut self, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        let result = if self.shared.limits.service == Service::Ud {
            post_each(requests, |wr| self.check_send(wr).and_then(|()| self.post_datagram(wr)))
        } else {
            post_each(requests, |wr| self.check_send(wr).map(|()| self.post_one_send(wr)))
        };
        let short = matches!(requests, [one] if one.payload.bytes() <= SHORT_BYTES);
        self.device().posted(self.index, short);
        result
    }

    fn post_recv(&mut self, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        let result = post_each(requests, |wr| self.post_one_recv(wr));
        self.device().posted(self.index, false);
        result
    }

    fn set_rate(&mut self, limit: Option<RateLimit>) -> Result<(), RateError> {
        let device = self.device();
        check_rate(&device.caps, "this device", limit)?;
        device.engine().set_rate(self.index, limit);
        device.kick_after_change();
        Ok(())
    }

    fn delivery(&self) -> Option<Delivery> {
        self.device().engine().delivery(self.index)
    }
}

impl Drop for RoceQp {
    fn drop(&mut self) {
        self.device().engine().remove(self.index);
    }
}
