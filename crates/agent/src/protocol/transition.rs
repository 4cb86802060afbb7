//! Transitions of queue pairs, as messages have them.
use catchment_verbs::{Access, QpTransition, RtrAttr, RtsAttr};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A transition of a queue pair ([`QpTransition`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Transition {
    /// To RESET.
    Reset,
    /// To INIT, with the bits of [`Access`].
    Init(u32),
    /// To RTR.
    Rtr {
        /// The peer, as [`Endpoint`](catchment_verbs::Endpoint) prints it.
        remote: String,
        /// READs and atomics of the peer served at once.
        max_dest_rd_atomic: u32,
        /// Nanoseconds.
        min_rnr_timer_ns: u64,
    },
    /// To RTS.
    Rts {
        /// READs and atomics outstanding at once.
        max_rd_atomic: u32,
        /// Nanoseconds.
        timeout_ns: u64,
        /// Times.
        retry_cnt: u8,
        /// Times; 7 is for ever.
        rnr_retry: u8,
    },
    /// To INIT, of UD, with the Q_Key.
    InitUd(u32),
    /// To RTR, of UD.
    RtrUd,
    /// To RTS, of UD.
    RtsUd,
    /// To SQD.
    Sqd,
    /// To the error state.
    Err,
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Transition {
    /// Returns the transition as a message; `None` for one of a service that agents do not offer.
    #[must_use]
    pub fn of(transition: &QpTransition) -> Option<Self> {
        Some(match transition {
            QpTransition::ToReset => Self::Reset,
            QpTransition::ToInit { access } => Self::Init(access.bits()),
            QpTransition::ToRtr(attr) => Self::Rtr {
                remote: attr.remote.to_string(),
                max_dest_rd_atomic: attr.max_dest_rd_atomic,
                min_rnr_timer_ns: ns(attr.min_rnr_timer),
            },
            QpTransition::ToRts(attr) => Self::Rts {
                max_rd_atomic: attr.max_rd_atomic,
                timeout_ns: ns(attr.timeout),
                retry_cnt: attr.retry_cnt,
                rnr_retry: attr.rnr_retry,
            },
            QpTransition::ToSqd => Self::Sqd,
            QpTransition::ToErr => Self::Err,
            QpTransition::ToInitUd { qkey } => Self::InitUd(*qkey),
            QpTransition::ToRtrUd => Self::RtrUd,
            QpTransition::ToRtsUnreliable => Self::RtsUd,
            QpTransition::ToRtrUc(_) => return None,
        })
    }

    /// Returns the transition of a message; `None` if the peer in it is none.
    #[must_use]
    pub fn transition(&self) -> Option<QpTransition> {
        Some(match self {
            Self::Reset => QpTransition::ToReset,
            Self::Init(access) => {
                QpTransition::ToInit { access: Access::from_bits_truncate(*access) }
            }
            Self::Rtr { remote, max_dest_rd_atomic, min_rnr_timer_ns } => {
                QpTransition::ToRtr(RtrAttr {
                    remote: remote.parse().ok()?,
                    max_dest_rd_atomic: *max_dest_rd_atomic,
                    min_rnr_timer: Duration::from_nanos(*min_rnr_timer_ns),
                })
            }
            Self::Rts { max_rd_atomic, timeout_ns, retry_cnt, rnr_retry } => {
                QpTransition::ToRts(RtsAttr {
                    max_rd_atomic: *max_rd_atomic,
                    timeout: Duration::from_nanos(*timeout_ns),
                    retry_cnt: *retry_cnt,
                    rnr_retry: *rnr_retry,
                })
            }
            Self::InitUd(qkey) => QpTransition::ToInitUd { qkey: *qkey },
            Self::RtrUd => QpTransition::ToRtrUd,
            Self::RtsUd => QpTransition::ToRtsUnreliable,
            Self::Sqd => QpTransition::ToSqd,
            Self::Err => QpTransition::ToErr,
        })
    }
}
