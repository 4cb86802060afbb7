//! The state of a queue pair, and checks of what it is changed with.
use crate::{ModifyError, QpState, RtrAttr, RtsAttr};
use std::sync::atomic::{AtomicU8, Ordering};

/// The largest queue pair number and the largest packet sequence number.
pub const MAX_24_BITS: u32 = 0xff_ffff;

/// The state of a queue pair, for several threads. A fresh one is [`QpState::Reset`].
#[derive(Debug, Default)]
pub struct StateCell(AtomicU8);

impl StateCell {
    /// The state. What was written before it was set is visible.
    #[inline]
    pub fn get(&self) -> QpState {
        let at = usize::from(self.0.load(Ordering::Acquire));
        QpState::ALL[at.min(QpState::ALL.len() - 1)]
    }

    /// Changes the state.
    pub fn set(&self, state: QpState) {
        self.0.store(state as u8, Ordering::Release);
    }
}

/// Whether an application may ask queue pair `qpn` for this transition.
///
/// # Errors
/// [`ModifyError::Illegal`] if not.
pub fn check_transition(qpn: u32, from: QpState, to: QpState) -> Result<(), ModifyError> {
    if from.may_become(to) {
        return Ok(());
    }
    Err(ModifyError::Illegal { qpn, from, to })
}

/// Whether the attributes of queue pair `qpn` for RTR are in the ranges of the standard.
///
/// # Errors
/// [`ModifyError::Attribute`] names the first that is not.
pub fn check_rtr(qpn: u32, attr: &RtrAttr) -> Result<(), ModifyError> {
    BITS_24.check(qpn, "remote qpn", attr.remote.qpn)?;
    BITS_24.check(qpn, "remote psn", attr.remote.psn)?;
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

const BITS_3: Range = Range {
    most: 7,
    says: "0..=7",
};
const BITS_8: Range = Range {
    most: 255,
    says: "0..=255",
};
const BITS_24: Range = Range {
    most: MAX_24_BITS,
    says: "24 bits",
};

impl Range {
    fn check(&self, qpn: u32, what: &'static str, value: u32) -> Result<(), ModifyError> {
        if value <= self.most {
            return Ok(());
        }
        Err(ModifyError::Attribute {
            qpn,
            what,
            value: value.into(),
            range: self.says,
        })
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
        assert!(check_transition(17, QpState::Reset, QpState::Init).is_ok());
        let error = check_transition(17, QpState::Reset, QpState::Rts).unwrap_err();
        assert_eq!(
            error.to_string(),
            "queue pair 17: no transition from Reset to Rts"
        );
    }

    fn rtr(qpn: u32, psn: u32, max_dest_rd_atomic: u32) -> RtrAttr {
        let remote = Endpoint {
            gid: Gid::default(),
            qpn,
            psn,
            net: None,
        };
        RtrAttr {
            max_dest_rd_atomic,
            ..RtrAttr::new(remote)
        }
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
                RtsAttr {
                    retry_cnt: 8,
                    ..usual
                },
                "queue pair 1: retry_cnt = 8 is out of range (0..=7)",
            ),
            (
                RtsAttr {
                    rnr_retry: 255,
                    ..usual
                },
                "queue pair 1: rnr_retry = 255 is out of range (0..=7)",
            ),
            (
                RtsAttr {
                    max_rd_atomic: 256,
                    ..usual
                },
                "queue pair 1: max_rd_atomic = 256 is out of range (0..=255)",
            ),
        ] {
            assert_eq!(check_rts(1, &attr).unwrap_err().to_string(), text);
        }
    }
}
