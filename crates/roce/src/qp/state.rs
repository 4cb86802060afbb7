//! States of a queue pair and their transitions (IBTA volume 1, 10.3.1).

use crate::work::SendOp;

/// States of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpState {
    /// Fresh; takes no requests.
    Reset,
    /// Takes receives, processes nothing.
    Init,
    /// Ready to receive: processes what the peer sends.
    Rtr,
    /// Ready to send: processes everything.
    Rts,
    /// Send queue drained: requests begun before complete, later ones wait.
    Sqd,
    /// Everything outstanding was flushed with an error.
    Err,
}

impl QpState {
    /// Whether a program may ask for this transition.
    #[must_use]
    pub fn may_become(self, to: QpState) -> bool {
        use QpState::{Err, Init, Reset, Rtr, Rts, Sqd};
        matches!(
            (self, to),
            (_, Reset | Err)
                | (Reset | Init, Init)
                | (Init, Rtr)
                | (Rtr | Rts | Sqd, Rts)
                | (Rts, Sqd)
        )
    }

    /// Whether packets are processed.
    #[must_use]
    pub fn receives(self) -> bool {
        matches!(self, QpState::Rtr | QpState::Rts | QpState::Sqd)
    }
}

/// Why a transition was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModifyError {
    /// The states do not follow each other.
    #[error("a queue pair in state {from:?} cannot become {to:?}: go RESET, INIT, RTR, RTS")]
    Transition {
        /// The state it is in.
        from: QpState,
        /// The state that was asked for.
        to: QpState,
    },
    /// An attribute is out of range.
    #[error("{attribute} is {value}; the most is {most}")]
    Range {
        /// Its name.
        attribute: &'static str,
        /// The value seen.
        value: u32,
        /// The largest value.
        most: u32,
    },
}

/// Why a request was not taken. The queue pair is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The queue is full: take completions first, then post again.
    #[error("the queue holds {limit} requests already: wait for completions")]
    QueueFull {
        /// The limit in the configuration.
        limit: usize,
    },
    /// Not in this state.
    #[error("a queue pair in state {0:?} takes no such request: bring it to RTS (receives: INIT)")]
    State(QpState),
    /// Too many scatter-gather elements.
    #[error("{count} scatter-gather elements; the most is {limit}")]
    TooManySges {
        /// The number seen.
        count: usize,
        /// The limit in the configuration.
        limit: usize,
    },
    /// An inline payload that is too long.
    #[error("{bytes} inline bytes; the most is {limit}: use registered memory")]
    InlineTooLong {
        /// The length seen.
        bytes: usize,
        /// The limit in the configuration.
        limit: usize,
    },
    /// A message longer than the service type allows.
    #[error("a message of {bytes} bytes; the most is {limit}: split it")]
    MessageTooLong {
        /// The length seen.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// An operation that the service type does not have, or that takes no inline payload.
    #[error(
        "{0:?} is not possible here: READ and atomics need RC and registered memory, WRITE RC or UC"
    )]
    Unsupported(SendOp),
    /// An atomic operation not on eight bytes that lie at a multiple of eight.
    #[error(
        "an atomic operation needs 8 local bytes and a remote address divisible by 8; got {bytes} bytes, address {addr:#x}"
    )]
    Atomic {
        /// Length of the local memory.
        bytes: u64,
        /// The remote address.
        addr: u64,
    },
    /// A datagram without a destination.
    #[error("a UD request needs a destination: set SendWr::destination")]
    NoDestination,
}

#[cfg(test)]
mod tests {
    use super::QpState::{Err, Init, Reset, Rtr, Rts, Sqd};

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
        ];
        let all = [Reset, Init, Rtr, Rts, Sqd, Err];
        for from in all {
            for to in all {
                let want = matches!(to, Reset | Err) || allowed.contains(&(from, to));
                assert_eq!(from.may_become(to), want, "{from:?} to {to:?}");
            }
        }
    }
}
