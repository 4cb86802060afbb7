//! From one state to another.
use super::{IbQp, ROCE_PORT};
use crate::{
    device::mtu_code,
    path,
    slots::Control,
    sys::types::{IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPS_RTS, IBV_QPS_SQD},
    timer,
};
use catchment_verbs::{
    Access, Endpoint, ModifyError, Qp as _, QpState, QpTransition, RtrAttr, RtsAttr,
    provider::{MAX_24_BITS, check_rtr, check_rts, check_transition},
};
use std::io;

impl IbQp {
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

    /// Makes a change, whose turn it is.
    pub(super) fn change(
        &mut self,
        control: &mut Control,
        transition: &QpTransition,
    ) -> Result<(), ModifyError> {
        let to = transition.target();
        let service = self.limits.service;
        check_transition((self.qpn(), service), self.slot.state.get(), transition)?;
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
            QpTransition::ToInitUd { .. }
            | QpTransition::ToRtrUc(_)
            | QpTransition::ToRtrUd
            | QpTransition::ToRtsUnreliable => {}
            QpTransition::ToSqd => self.set_state(IBV_QPS_SQD, "going to SQD")?,
        }
        self.slot.state.set(to);
        Ok(())
    }
}

/// A first packet number.
pub(super) fn random_psn() -> io::Result<u32> {
    let mut bytes = [0u8; 4];
    rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    Ok(u32::from_ne_bytes(bytes) & MAX_24_BITS)
}
