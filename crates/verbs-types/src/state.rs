//! Queue pair states, the transitions between them, and their attributes.
use crate::{Access, Endpoint, Service};
use std::time::Duration;

/// States of a queue pair (IBTA 10.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QpState {
    /// Fresh; accepts no requests.
    Reset,
    /// Accepts receives, processes nothing.
    Init,
    /// Ready to receive: processes what the peer sends.
    Rtr,
    /// Ready to send: processes everything.
    Rts,
    /// Send queue drained: sends posted before complete, later ones wait.
    Sqd,
    /// Send queue error (UC and UD): a send failed, those behind it are flushed, and receives go on.
    Sqe,
    /// Everything outstanding is flushed with an error.
    Err,
}

impl QpState {
    /// All states; each at the index of its number.
    pub const ALL: [Self; 7] =
        [Self::Reset, Self::Init, Self::Rtr, Self::Rts, Self::Sqd, Self::Sqe, Self::Err];

    /// Returns whether an application may ask for this transition (IBTA figure 124, without the
    /// transitions that only an error causes).
    pub fn may_become(self, to: Self) -> bool {
        use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
        matches!(
            (self, to),
            (_, Reset | Err)
                | (Reset | Init, Init)
                | (Init, Rtr)
                | (Rtr | Rts | Sqd | Sqe, Rts)
                | (Rts, Sqd)
        )
    }

    /// Returns whether packets of the peer are processed.
    #[inline]
    pub fn receives(self) -> bool {
        matches!(self, Self::Rtr | Self::Rts | Self::Sqd | Self::Sqe)
    }

    /// Returns whether receives may be posted.
    pub fn takes_recv(self) -> bool {
        self != Self::Reset
    }

    /// Returns whether sends may be posted. In the error states they are accepted and flushed.
    pub fn takes_send(self) -> bool {
        matches!(self, Self::Rts | Self::Sqd | Self::Sqe | Self::Err)
    }
}

/// A state change for `Qp::modify`, with the attributes that the transition needs.
///
/// The enum replaces the attribute masks of `ibv_modify_qp(3)`: a required attribute
/// cannot be omitted and a forbidden one cannot be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QpTransition {
    /// Back to the beginning. Outstanding requests vanish without completions.
    ToReset,
    /// To INIT (RC, UC), with what peers may do through this queue pair.
    ToInit {
        /// Rights of the peer; a region's own rights must allow the request too.
        access: Access,
    },
    /// To INIT (UD).
    ToInitUd {
        /// The Q_Key that datagrams must carry; at most [`crate::MAX_QKEY`].
        qkey: u32,
    },
    /// To RTR (RC): the peer is known now.
    ToRtr(RtrAttr),
    /// To RTR (UC): the peer is known now.
    ToRtrUc(Endpoint),
    /// To RTR (UD).
    ToRtrUd,
    /// To RTS (RC, from RTR), or on from SQD.
    ToRts(RtsAttr),
    /// To RTS (UC and UD, from RTR), or on from SQD and SQE: nothing is acknowledged or retried, so
    /// there are no attributes.
    ToRtsUnreliable,
    /// Drain the send queue.
    ToSqd,
    /// To the error state: everything outstanding is flushed.
    ToErr,
}

impl QpTransition {
    /// Returns the state that the transition leads to.
    pub fn target(&self) -> QpState {
        match self {
            Self::ToReset => QpState::Reset,
            Self::ToInit { .. } | Self::ToInitUd { .. } => QpState::Init,
            Self::ToRtr(_) | Self::ToRtrUc(_) | Self::ToRtrUd => QpState::Rtr,
            Self::ToRts(_) | Self::ToRtsUnreliable => QpState::Rts,
            Self::ToSqd => QpState::Sqd,
            Self::ToErr => QpState::Err,
        }
    }

    /// Returns whether queue pairs of this service have this transition.
    pub fn exists_on(&self, service: Service) -> bool {
        match self {
            Self::ToReset | Self::ToSqd | Self::ToErr => true,
            Self::ToInit { .. } => service != Service::Ud,
            Self::ToRtr(_) | Self::ToRts(_) => service == Service::Rc,
            Self::ToRtrUc(_) => service == Service::Uc,
            Self::ToInitUd { .. } | Self::ToRtrUd => service == Service::Ud,
            Self::ToRtsUnreliable => service != Service::Rc,
        }
    }
}

/// Attributes of INIT → RTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtrAttr {
    /// The peer's queue pair; its `psn` is the first that it will send.
    pub remote: Endpoint,
    /// READs and atomics of the peer to serve at once.
    pub max_dest_rd_atomic: u32,
    /// How long a sender waits before it retries when no receive was posted.
    pub min_rnr_timer: Duration,
}

impl RtrAttr {
    /// Returns the usual attributes for this peer.
    pub fn new(remote: Endpoint) -> Self {
        Self { remote, max_dest_rd_atomic: 16, min_rnr_timer: Duration::from_micros(640) }
    }
}

/// Attributes of RTR → RTS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtsAttr {
    /// READs and atomics outstanding at once.
    pub max_rd_atomic: u32,
    /// Silence of the peer before a request is sent again.
    pub timeout: Duration,
    /// How often a request is sent again, 0..=7.
    pub retry_cnt: u8,
    /// How often a request is sent again that found no receive, 0..=7; 7 means forever.
    pub rnr_retry: u8,
}

impl Default for RtsAttr {
    fn default() -> Self {
        Self { max_rd_atomic: 16, timeout: Duration::from_millis(67), retry_cnt: 7, rnr_retry: 7 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};

    #[test]
    fn the_way_up_is_legal_and_shortcuts_are_not() {
        for (from, to) in [(Reset, Init), (Init, Rtr), (Rtr, Rts), (Rts, Sqd), (Sqd, Rts)] {
            assert!(from.may_become(to), "{from:?} to {to:?}");
        }
        for (from, to) in
            [(Reset, Rtr), (Reset, Rts), (Init, Rts), (Rts, Rtr), (Err, Rts), (Rtr, Sqd)]
        {
            assert!(!from.may_become(to), "{from:?} to {to:?}");
        }
    }

    #[test]
    fn every_state_can_fail_and_start_again() {
        for from in QpState::ALL {
            assert!(from.may_become(Err) && from.may_become(Reset));
        }
    }

    #[test]
    fn only_the_transitions_of_the_standard_are_allowed() {
        let allowed = [
            (Reset, Init),
            (Init, Init),
            (Init, Rtr),
            (Rtr, Rts),
            (Rts, Rts),
            (Rts, Sqd),
            (Sqd, Rts),
            (Sqe, Rts),
        ];
        for from in QpState::ALL {
            for to in QpState::ALL {
                let want = matches!(to, Reset | Err) || allowed.contains(&(from, to));
                assert_eq!(from.may_become(to), want, "{from:?} to {to:?}");
            }
        }
    }
}
