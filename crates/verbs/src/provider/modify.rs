//! The state of a queue pair, and checks of what it is changed with.
use crate::{
    Endpoint, MAX_24_BITS, MAX_QKEY, ModifyError, QpState, QpTransition, RtrAttr, RtsAttr, Service,
};
use std::sync::atomic::{AtomicU8, Ordering};

/// The state of a queue pair, for several threads. A fresh one is [`QpState::Reset`].
#[derive(Debug, Default)]
pub struct StateCell(AtomicU8);

impl StateCell {
    /// The state. What was written before it was set is visible.
    #[inline]
    pub fn get(&self) -> QpState {
        QpState::ALL[usize::from(self.0.load(Ordering::Acquire)).min(QpState::ALL.len() - 1)]
    }

    /// Changes the state.
    pub fn set(&self, state: QpState) {
        self.0.store(state as u8, Ordering::Release);
    }
}

/// Whether an application may ask queue pair `qpn` of this service, in state `from`, for this
/// transition.
///
/// # Errors
/// [`ModifyError::Service`] for one of another service, [`ModifyError::Illegal`] for one that does
/// not exist from there.
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
    Ok(())
}

/// Whether the peer of queue pair `qpn` is in the ranges of the standard.
///
/// # Errors
/// [`ModifyError::Attribute`] names the first number that is not.
pub fn check_remote(qpn: u32, remote: &Endpoint) -> Result<(), ModifyError> {
    BITS_24.check(qpn, "remote qpn", remote.qpn)?;
    BITS_24.check(qpn, "remote psn", remote.psn)
}

/// Whether queue pair `qpn` may have this Q_Key.
///
/// # Errors
/// [`ModifyError::Attribute`] if it is one of the system's.
pub fn check_qkey(qpn: u32, qkey: u32) -> Result<(), ModifyError> {
    QKEY.check(qpn, "qkey", qkey)
}

/// Whether the attributes of queue pair `qpn` for RTR are in the ranges of the standard.
///
/// # Errors
/// [`ModifyError::Attribute`] names the first that is not.
pub fn check_rtr(qpn: u32, attr: &RtrAttr) -> Result<(), ModifyError> {
    check_remote(qpn, &attr.remote)?;
    BITS_8.check(qpn, "max_dest_rd_atomic", attr.max_dest_rd_atomic)
}

/// Whether the attributes of queue pair `qpn` for RTS are in the ranges of the standard.
///
/// # Errors
/// [`ModifyError::Attribute`] names the first that is not.
pub fn check_rts(qpn: u32, attr: &RtsAttr) -> Result<(), ModifyError> {
    BITS_3.check(qpn, "retry_cnt", attr.retry_cnt.into())?;
    BITS_3.check(qpn, "rnr_retry", attr.rnr_retry.into())?;
    BITS_8.check(qpn, "max_rd_atomic", attr.max_rd_atomic)
}

/// What an attribute may be: 0 to `most`.
struct Range {
    most: u32,
    says: &'static str,
}

const BITS_3: Range = Range { most: 7, says: "0..=7" };
const BITS_8: Range = Range { most: 255, says: "0..=255" };
const QKEY: Range =
    Range { most: MAX_QKEY, says: "31 bits: those with the highest bit are the system's" };
const BITS_24: Range = Range { most: MAX_24_BITS, says: "24 bits" };

impl Range {
    fn check(&self, qpn: u32, what: &'static str, value: u32) -> Result<(), ModifyError> {
        if value <= self.most {
            return Ok(());
        }
        Err(ModifyError::Attribute { qpn, what, value: value.into(), range: self.says })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endpoint, Gid};

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

    #[test]
    fn qkeys_of_the_system_are_refused() {
        assert!(check_qkey(1, MAX_QKEY).is_ok());
        assert!(check_qkey(1, MAX_QKEY + 1).is_err());
    }

    fn rtr(qpn: u32, psn: u32, max_dest_rd_atomic: u32) -> RtrAttr {
        let remote = Endpoint { gid: Gid::default(), qpn, psn, net: None };
        RtrAttr { max_dest_rd_atomic, ..RtrAttr::new(remote) }
    }

    #[test]
    fn attributes_out_of_range_are_named() {
        assert!(check_rtr(1, &rtr(MAX_24_BITS, MAX_24_BITS, 255)).is_ok());
        for (attr, name) in [
            (rtr(MAX_24_BITS + 1, 0, 0), "remote qpn"),
            (rtr(0, MAX_24_BITS + 1, 0), "remote psn"),
            (rtr(0, 0, 256), "max_dest_rd_atomic"),
        ] {
            let error = check_rtr(1, &attr).unwrap_err();
            assert!(
                matches!(error, ModifyError::Attribute { what, .. } if what == name),
                "{error}"
            );
        }
        let usual = RtsAttr::default();
        assert!(check_rts(1, &usual).is_ok());
        for (attr, text) in [
            (
                RtsAttr { retry_cnt: 8, ..usual },
                "queue pair 1: retry_cnt = 8 is out of range (0..=7)",
            ),
            (
                RtsAttr { rnr_retry: 255, ..usual },
                "queue pair 1: rnr_retry = 255 is out of range (0..=7)",
            ),
            (
                RtsAttr { max_rd_atomic: 256, ..usual },
                "queue pair 1: max_rd_atomic = 256 is out of range (0..=255)",
            ),
        ] {
            assert_eq!(check_rts(1, &attr).unwrap_err().to_string(), text);
        }
    }
}
