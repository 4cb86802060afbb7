//! The state of a queue pair, and checks of its transitions.
use crate::{Endpoint, MAX_24_BITS, MAX_QKEY, ModifyError, QpState, QpTransition, Service};
use std::sync::atomic::{AtomicU8, Ordering};

/// The state of a queue pair, for several threads. A fresh one is [`QpState::Reset`].
#[derive(Debug, Default)]
pub struct StateCell(AtomicU8);

impl StateCell {
    /// Returns the state. Writes made before it was set are visible.
    #[inline]
    pub fn get(&self) -> QpState {
        QpState::ALL[usize::from(self.0.load(Ordering::Acquire)).min(QpState::ALL.len() - 1)]
    }

    /// Changes the state.
    pub fn set(&self, state: QpState) {
        self.0.store(state as u8, Ordering::Release);
    }
}

/// Checks that queue pair `qpn` of this service, in state `from`, may make this transition, and
/// that the attributes are in the ranges of the standard.
///
/// # Errors
/// [`ModifyError::Service`] for a transition of another service, [`ModifyError::Illegal`] for one
/// that does not exist from there, [`ModifyError::Attribute`] for the first attribute out of range.
pub fn check_transition(
    (qpn, service): (u32, Service),
    from: QpState,
    transition: &QpTransition,
) -> Result<(), ModifyError> {
    let to = transition.target();
    if !transition.exists_on(service) {
        return Err(ModifyError::Service { qpn, service, to });
    }
    if !from.may_become(to) {
        return Err(ModifyError::Illegal { qpn, from, to });
    }
    match transition {
        QpTransition::ToInitUd { qkey } => QKEY.check(qpn, "qkey", *qkey),
        QpTransition::ToRtr(attr) => {
            check_remote(qpn, &attr.remote)?;
            BITS_8.check(qpn, "max_dest_rd_atomic", attr.max_dest_rd_atomic)
        }
        QpTransition::ToRtrUc(remote) => check_remote(qpn, remote),
        QpTransition::ToRts(attr) => {
            BITS_3.check(qpn, "retry_cnt", attr.retry_cnt.into())?;
            BITS_3.check(qpn, "rnr_retry", attr.rnr_retry.into())?;
            BITS_8.check(qpn, "max_rd_atomic", attr.max_rd_atomic)
        }
        QpTransition::ToReset
        | QpTransition::ToInit { .. }
        | QpTransition::ToRtrUd
        | QpTransition::ToRtsUnreliable
        | QpTransition::ToSqd
        | QpTransition::ToErr => Ok(()),
    }
}

fn check_remote(qpn: u32, remote: &Endpoint) -> Result<(), ModifyError> {
    BITS_24.check(qpn, "remote qpn", remote.qpn)?;
    BITS_24.check(qpn, "remote psn", remote.psn)
}

/// The range of an attribute: 0 to `most`.
struct Range {
    most: u32,
    text: &'static str,
}

const BITS_3: Range = Range { most: 7, text: "0..=7" };
const BITS_8: Range = Range { most: 255, text: "0..=255" };
const QKEY: Range =
    Range { most: MAX_QKEY, text: "31 bits: values with the highest bit belong to the system" };
const BITS_24: Range = Range { most: MAX_24_BITS, text: "24 bits" };

impl Range {
    fn check(&self, qpn: u32, what: &'static str, value: u32) -> Result<(), ModifyError> {
        if value <= self.most {
            return Ok(());
        }
        Err(ModifyError::Attribute { qpn, what, value: value.into(), range: self.text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gid, RtrAttr, RtsAttr};

    #[test]
    fn a_state_is_got_as_it_was_set() {
        let cell = StateCell::default();
        assert_eq!(cell.get(), QpState::Reset);
        for state in QpState::ALL {
            cell.set(state);
            assert_eq!(cell.get(), state);
        }
    }

    #[test]
    fn a_transition_that_does_not_exist_is_named() {
        let init = QpTransition::ToInit { access: crate::Access::REMOTE };
        let rts = QpTransition::ToRts(RtsAttr::default());
        let check = |service, transition| {
            check_transition((17, service), QpState::Reset, transition).map_err(|e| e.to_string())
        };
        assert_eq!(check(Service::Rc, &init), Ok(()));
        for (service, transition, text) in [
            (Service::Rc, &rts, "no transition from Reset to Rts"),
            (Service::Ud, &init, "its service is UD, which has another transition to Init"),
            (Service::Uc, &rts, "its service is UC, which has another transition to Rts"),
        ] {
            assert_eq!(check(service, transition), Err(format!("queue pair 17: {text}")));
        }
    }

    /// Checks the attributes of a transition that queue pair 1 of this service may make.
    fn attributes(service: Service, transition: QpTransition) -> Result<(), String> {
        let to = transition.target();
        let from = QpState::ALL.into_iter().find(|from| from.may_become(to)).unwrap();
        check_transition((1, service), from, &transition).map_err(|error| error.to_string())
    }

    #[test]
    fn qkeys_of_the_system_are_refused() {
        let check = |qkey| attributes(Service::Ud, QpTransition::ToInitUd { qkey });
        assert_eq!(check(MAX_QKEY), Ok(()));
        assert!(check(MAX_QKEY + 1).unwrap_err().contains("qkey = 2147483648 is out of range"));
    }

    #[test]
    fn attributes_out_of_range_are_named() {
        let remote = |qpn, psn| Endpoint { gid: Gid::default(), qpn, psn, net: None };
        let rtr = |qpn, psn, max_dest_rd_atomic| {
            let attr = RtrAttr { max_dest_rd_atomic, ..RtrAttr::new(remote(qpn, psn)) };
            attributes(Service::Rc, QpTransition::ToRtr(attr))
        };
        let uc = |qpn, psn| attributes(Service::Uc, QpTransition::ToRtrUc(remote(qpn, psn)));
        let rts = |attr| attributes(Service::Rc, QpTransition::ToRts(attr));
        let (most, usual) = (MAX_24_BITS, RtsAttr::default());
        assert_eq!([rtr(most, most, 255), uc(most, most), rts(usual)], [const { Ok(()) }; 3]);
        for (refused, text) in [
            (rtr(most + 1, 0, 0), "remote qpn = 16777216 is out of range (24 bits)"),
            (rtr(0, most + 1, 0), "remote psn = 16777216 is out of range (24 bits)"),
            (uc(0, most + 1), "remote psn = 16777216 is out of range (24 bits)"),
            (rtr(0, 0, 256), "max_dest_rd_atomic = 256 is out of range (0..=255)"),
            (rts(RtsAttr { retry_cnt: 8, ..usual }), "retry_cnt = 8 is out of range (0..=7)"),
            (rts(RtsAttr { rnr_retry: 255, ..usual }), "rnr_retry = 255 is out of range (0..=7)"),
            (
                rts(RtsAttr { max_rd_atomic: 256, ..usual }),
                "max_rd_atomic = 256 is out of range (0..=255)",
            ),
        ] {
            assert_eq!(refused, Err(format!("queue pair 1: {text}")));
        }
    }
}
