//! Queue pairs, as the application holds them.
use super::caps::CAPS;
use super::work::{Data, Receive, Request, time_of};
use super::world::World;
use super::{Fabric, OpTime};
use catchment_verbs::provider::{Limits, check_rate, check_transition, local_rights, post_each};
use catchment_verbs::{
    Access, Endpoint, Flow, Gid, ModifyError, Payload, PostError, PostFailure, Qp, QpState,
    QpTransition, RateError, RateLimit, RecvWr, SendWr, TokenBucket, WcStatus,
};

pub(super) struct SimQp {
    fabric: Fabric,
    qpn: u32,
    gid: Gid,
    limits: Limits,
}

impl SimQp {
    pub(super) fn new(fabric: Fabric, qpn: u32, gid: Gid, limits: Limits) -> Self {
        Self { fabric, qpn, gid, limits }
    }

    fn post_one(
        &self,
        world: &mut World,
        wr: &SendWr<'_>,
        behind: &mut Option<OpTime>,
    ) -> Result<(), PostFailure> {
        let times = world.times;
        let qp = world.qp(self.qpn);
        self.limits.check_send(qp.state, qp.posted.outstanding(), wr)?;
        let (pd, seq) = (qp.pd, qp.posted.take());
        if qp.state == QpState::Err {
            let place = (wr.wr_id, seq, true);
            world.complete_send(self.qpn, place, Err(WcStatus::Flushed));
            return Ok(());
        }
        let data = match wr.payload {
            Payload::Inline(data) => Data::Inline(data.to_vec()),
            Payload::Sges(sges) => {
                world.pieces(sges, pd, local_rights(&wr.op)).map_or(Data::Forbidden, Data::Pieces)
            }
        };
        let inline = matches!(data, Data::Inline(_));
        let qp = world.qp(self.qpn);
        if let Some((_, bucket)) = qp.pace.as_mut().filter(|_| qp.sends.is_empty()) {
            bucket.resume();
        }
        qp.sends.push_back(Request {
            seq,
            wr_id: wr.wr_id,
            op: wr.op,
            data,
            bytes: wr.payload.bytes(),
            signaled: wr.signaled,
            solicited: wr.solicited,
            behind: *behind,
        });
        behind.get_or_insert(time_of(&times, wr.op, inline));
        Ok(())
    }

    fn post_one_recv(&self, world: &mut World, wr: &RecvWr<'_>) -> Result<(), PostFailure> {
        let qp = world.qp(self.qpn);
        self.limits.check_recv(qp.state, qp.recv_posted.outstanding(), wr)?;
        let (pd, seq) = (qp.pd, qp.recv_posted.take());
        if qp.state == QpState::Err {
            let place = (wr.wr_id, seq);
            world.complete_recv(self.qpn, place, Err(WcStatus::Flushed), false);
            return Ok(());
        }
        let pieces = world.pieces(wr.sges, pd, Access::LOCAL_WRITE);
        world.qp(self.qpn).recvs.push_back(Receive { seq, wr_id: wr.wr_id, pieces });
        Ok(())
    }
}

impl Qp for SimQp {
    fn qpn(&self) -> u32 {
        self.qpn
    }

    fn state(&self) -> QpState {
        self.fabric.idle();
        self.fabric.world().qp(self.qpn).state
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint { gid: self.gid, qpn: self.qpn, psn: 0, net: None }
    }

    fn modify(&mut self, transition: QpTransition) -> Result<(), ModifyError> {
        let mut world = self.fabric.world();
        let qp = world.qp(self.qpn);
        let (from, to) = (qp.state, transition.target());
        check_transition((self.qpn, self.limits.service), from, &transition)?;
        match transition {
            QpTransition::ToReset => qp.reset(),
            QpTransition::ToErr => world.enter_error(self.qpn),
            QpTransition::ToInit { access } => (qp.access, qp.state) = (access, to),
            QpTransition::ToRtr(attr) => (qp.peer, qp.state) = (Some(attr), to),
            QpTransition::ToInitUd { .. }
            | QpTransition::ToRtrUc(_)
            | QpTransition::ToRtrUd
            | QpTransition::ToRtsUnreliable => {
                // Of services that are not offered: refused above.
            }
            QpTransition::ToSqd => (qp.hold_from, qp.state) = (qp.posted.posted, to),
            QpTransition::ToRts(attr) => {
                (qp.rts, qp.state) = (attr, to);
                world.pump(self.qpn);
            }
        }
        Ok(())
    }

    fn post_send(&mut self, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        let mut world = self.fabric.world();
        let mut behind = None;
        let result = post_each(requests, |wr| self.post_one(&mut world, wr, &mut behind));
        world.pump(self.qpn);
        result
    }

    fn post_recv(&mut self, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        let mut world = self.fabric.world();
        post_each(requests, |wr| self.post_one_recv(&mut world, wr))
    }

    fn set_rate(&mut self, limit: Option<RateLimit>) -> Result<(), RateError> {
        check_rate(&CAPS, "this device", limit)?;
        let mut world = self.fabric.world();
        let pace = &mut world.qp(self.qpn).pace;
        let mut bucket = pace.take().map_or_else(TokenBucket::default, |(_, bucket)| bucket);
        bucket.restart();
        *pace = limit.map(|limit| (Flow::new(limit), bucket));
        Ok(())
    }
}

impl Drop for SimQp {
    fn drop(&mut self) {
        self.fabric.world().qps.remove(&self.qpn);
    }
}
