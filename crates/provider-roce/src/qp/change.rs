//! Transitions between states.
use super::{RoceQp, draw_key};
use crate::address_vector::AddressVector;
use crate::engine::{Engine, Peer};
use crate::io::{Opener, Sealer};
use catchment_roce::wire::{PathMtu, aeth};
use catchment_roce::{self as roce, Psn, Recovery};
use catchment_verbs::provider::{MAX_24_BITS, random};
use catchment_verbs::{
    Access, Endpoint, ModifyError, NetEnd, QpState, QpTransition, RtrAttr, RtsAttr, VerbsError,
};

impl RoceQp {
    fn illegal(&self, to: QpState) -> ModifyError {
        ModifyError::Illegal { qpn: self.qpn, from: self.shared.state(), to }
    }

    /// Makes the engine apply a change; it refuses one only after a failure.
    fn change(
        &self,
        to: QpState,
        change: impl FnOnce(&mut Engine) -> Result<(), ModifyError>,
    ) -> Result<(), ModifyError> {
        let done = change(&mut self.device().engine());
        self.device().kick_after_change();
        done.map_err(|_| self.illegal(to))
    }

    fn enter_reset(&mut self) -> Result<(), ModifyError> {
        // A different start, so that late packets of the previous connection do not fit.
        self.psn = self.draw("a new PSN")? & MAX_24_BITS;
        self.key = draw_key(self.device()).map_err(|error| self.lacks("a new key", &error))?;
        self.device().engine().reset(self.index);
        self.shared.sq.free_before(self.posted);
        self.shared.rq.free_before(self.recv_posted);
        Ok(())
    }

    fn draw(&self, what: &'static str) -> Result<u32, ModifyError> {
        random().map_err(|error| self.lacks(what, &error))
    }

    fn lacks(&self, what: &'static str, error: &VerbsError) -> ModifyError {
        ModifyError::Resources { qpn: self.qpn, what, reason: error.to_string() }
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

    fn enter_init_ud(&self, qkey: u32) -> Result<(), ModifyError> {
        let attr = roce::InitAttr { qkey, ..roce::InitAttr::default() };
        self.change(QpState::Init, |engine| engine.init(self.index, attr))
    }

    fn enter_rtr(&self, attr: &RtrAttr) -> Result<(), ModifyError> {
        let (peer, wire) = self.connection(&attr.remote)?;
        let wire = roce::RtrAttr {
            max_dest_rd_atomic: attr.max_dest_rd_atomic as u8,
            min_rnr_timer: aeth::rnr_timer_code(attr.min_rnr_timer),
            recovery: self.recovery(&attr.remote),
            window_packets: self.window_packets(&attr.remote, wire.path_mtu),
            challenges: self.challenges(&attr.remote)?,
            ..wire
        };
        let keys = self.keys(&attr.remote)?;
        self.connect(Some(peer), keys, wire)
    }

    fn enter_rtr_uc(&self, remote: &Endpoint) -> Result<(), ModifyError> {
        let (peer, wire) = self.connection(remote)?;
        self.connect(Some(peer), self.keys(remote)?, wire)
    }

    fn enter_rtr_ud(&self) -> Result<(), ModifyError> {
        self.connect(None, None, roce::RtrAttr::new(0, self.device().path_mtu, Psn::default()))
    }

    fn connect(
        &self,
        peer: Option<Peer>,
        keys: Option<(Sealer, Opener)>,
        wire: roce::RtrAttr,
    ) -> Result<(), ModifyError> {
        self.change(QpState::Rtr, |engine| engine.connect(self.index, peer, keys, wire))
    }

    /// Returns who seals and opens the packets of a connection, if both sides authenticate them.
    fn keys(&self, remote: &Endpoint) -> Result<Option<(Sealer, Opener)>, ModifyError> {
        let reason = match (self.key, remote.net.and_then(|net| net.key)) {
            (None, None) => return Ok(None),
            (Some(ours), Some(theirs)) => {
                let keys = Sealer::new(ours).zip(Opener::new(theirs));
                return keys.map(Some).ok_or_else(|| self.illegal(QpState::Rtr));
            }
            (Some(_), None) => {
                "this side takes authenticated packets only: start both with --authenticate"
            }
            (None, Some(_)) => {
                "it takes authenticated packets only: start this side with --authenticate too"
            }
        };
        let (qpn, peer) = (self.qpn, remote.gid.ip().to_string());
        Err(ModifyError::Peer { qpn, peer, reason: reason.to_owned() })
    }

    /// Returns the peer of a connection, and the attributes that it needs.
    fn connection(&self, remote: &Endpoint) -> Result<(Peer, roce::RtrAttr), ModifyError> {
        let vector = AddressVector::to(self.device(), &remote.into());
        let vector = vector.map_err(|reason| ModifyError::Peer {
            qpn: self.qpn,
            peer: remote.gid.ip().to_string(),
            reason,
        })?;
        let mut route = vector.route;
        route.local.set_port(self.source_port);
        let peer = Peer {
            address: route.remote.ip(),
            source_port: remote.net.and_then(|net| net.source_port()),
            route,
            end: *remote,
        };
        Ok((peer, roce::RtrAttr::new(remote.qpn, vector.path_mtu, Psn::new(remote.psn))))
    }

    fn recovery(&self, remote: &Endpoint) -> Recovery {
        let theirs = remote.net.map_or(0, |net| net.extensions);
        let both = self.device().options.selective_repeat && theirs & NetEnd::SELECTIVE_REPEAT != 0;
        if both { Recovery::SelectiveRepeat } else { Recovery::GoBackN }
    }

    /// Returns the packets that may be in flight, as both ends compute it.
    fn window_packets(&self, remote: &Endpoint, path_mtu: PathMtu) -> u32 {
        let ends =
            self.device().net().window_bytes().zip(remote.net.and_then(|net| net.window_bytes()));
        ends.map_or(roce::Config::MAX_WINDOW_PACKETS, |(ours, theirs)| {
            roce::RtrAttr::window_packets_of(ours.min(theirs), path_mtu)
        })
    }

    /// Draws the secret of challenges for a peer that answers them.
    fn challenges(&self, remote: &Endpoint) -> Result<Option<u64>, ModifyError> {
        let theirs = remote.net.map_or(0, |net| net.extensions);
        if theirs & NetEnd::CHALLENGES == 0 {
            return Ok(None);
        }
        let half = || self.draw("a secret for challenges").map(u64::from);
        Ok(Some(half()? << 32 | half()?))
    }

    fn enter_rts(&self, attr: &RtsAttr) -> Result<(), ModifyError> {
        let wire = roce::RtsAttr {
            sq_psn: Psn::new(self.psn),
            max_rd_atomic: attr.max_rd_atomic as u8,
            timeout: (!attr.timeout.is_zero()).then_some(attr.timeout),
            retry_cnt: attr.retry_cnt,
            rnr_retry: attr.rnr_retry,
        };
        self.change(QpState::Rts, |engine| engine.start(self.index, wire))
    }

    fn enter_rts_unreliable(&self) -> Result<(), ModifyError> {
        let wire = roce::RtsAttr::new(Psn::new(self.psn));
        self.change(QpState::Rts, |engine| engine.start(self.index, wire))
    }

    /// Makes a transition that the state and the service allow.
    pub(super) fn enter(&mut self, transition: QpTransition) -> Result<(), ModifyError> {
        let to = transition.target();
        match transition {
            QpTransition::ToReset => self.enter_reset(),
            QpTransition::ToInit { access } => self.enter_init(access),
            QpTransition::ToInitUd { qkey } => self.enter_init_ud(qkey),
            QpTransition::ToRtr(attr) => self.enter_rtr(&attr),
            QpTransition::ToRtrUc(remote) => self.enter_rtr_uc(&remote),
            QpTransition::ToRtrUd => self.enter_rtr_ud(),
            QpTransition::ToRts(attr) => self.enter_rts(&attr),
            QpTransition::ToRtsUnreliable => self.enter_rts_unreliable(),
            QpTransition::ToSqd => self.change(to, |engine| engine.hold(self.index)),
            QpTransition::ToErr => self.change(to, |engine| {
                engine.fail(self.index);
                Ok(())
            }),
        }
    }
}
