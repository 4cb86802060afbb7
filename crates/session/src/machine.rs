//! What both state machines share: inputs and outputs, ends, the lease clock.
use crate::lease::Lease;
use crate::message::{Message, MessageKind, Revoke};
use crate::refusal::{Refusal, RefusalCode};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What happened outside.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "made and taken at once, never stored")]
pub enum Input {
    /// The peer sent a message.
    Message(Message),
    /// The instant of [`Output::Timeout`] has come; an early call does no harm.
    Timeout,
    /// The control connection is gone.
    Disconnected,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output<E> {
    /// Send this to the peer.
    Transmit(Message),
    /// An event for the handler.
    Event(E),
    /// The session is over; only [`Output::Timeout`] follows.
    Ended(Ended),
    /// Nothing until this instant (`None`: nothing at all) or the next input.
    Timeout(Option<Instant>),
}

/// Why a session is over. The machine does nothing more; close the connection.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub enum Ended {
    /// Goodbye and its answer were exchanged.
    #[display("finished")]
    Finished,
    /// The peer refused the session before it began.
    #[display("refused by the peer: {_0}")]
    Refused(Refusal),
    /// The peer ended the running session.
    #[display("ended by the peer: {_0}")]
    Revoked(Refusal),
    /// The peer broke the protocol; this refusal was sent to it.
    #[display("the peer broke the protocol: {_0}")]
    Misbehaved(Refusal),
    /// This side refused or revoked the session; this refusal was sent to the peer.
    #[display("ended by this side: {_0}")]
    Withdrawn(Refusal),
    /// The peer did not take the next step of the handshake in time.
    #[display("no {waiting_for} from the peer within {limit:?}")]
    HandshakeTimeout {
        /// The message that did not come.
        waiting_for: MessageKind,
        /// The time it had.
        limit: Duration,
    },
    /// Nothing was received for a whole lease.
    #[display("nothing received for {silent:?}, the lease is {lease:?}")]
    LeaseExpired {
        /// Since the last message.
        silent: Duration,
        /// The lease.
        lease: Duration,
    },
    /// The control connection broke, and in which state.
    #[display("the connection broke while {_0}")]
    Disconnected(&'static str),
}

/// Whether and when a source should open a new session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Not until the configuration changes.
    Never,
    /// After this time; [`crate::backoff::Backoff`] adds its own wait.
    After(Duration),
}

impl Ended {
    /// Returns the refusal of the peer, if it refused or ended the session.
    pub fn peer_refusal(&self) -> Option<&Refusal> {
        let (Self::Refused(refusal) | Self::Revoked(refusal)) = self else { return None };
        Some(refusal)
    }

    /// Returns whether the peer left or fell silent, rather than that a side found a fault.
    pub fn peer_is_gone(&self) -> bool {
        match self {
            Self::Refused(_)
            | Self::HandshakeTimeout { .. }
            | Self::LeaseExpired { .. }
            | Self::Disconnected(_) => true,
            Self::Finished | Self::Revoked(_) | Self::Misbehaved(_) | Self::Withdrawn(_) => false,
        }
    }

    /// Returns whether and when a source should try again.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Refused(refusal) | Self::Revoked(refusal) => match refusal.retry_after_ms {
                Some(wait_ms) => Retry::After(Duration::from_millis(wait_ms.into())),
                None => Retry::Never,
            },
            Self::Finished | Self::Misbehaved(_) | Self::Withdrawn(_) => Retry::Never,
            Self::HandshakeTimeout { .. } | Self::LeaseExpired { .. } | Self::Disconnected(_) => {
                Retry::After(Duration::ZERO)
            }
        }
    }
}

/// A function was called in a state that does not allow it: a bug of this program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call} called while {state}")]
pub struct Misuse {
    /// The function.
    pub call: &'static str,
    /// The state of the session.
    pub state: &'static str,
}

/// The state machine of one side.
pub trait Side: Send {
    /// Its events for the handler.
    type Event: Send;

    /// Takes one input. Drain [`Side::poll`] before and after.
    fn handle(&mut self, now: Instant, input: Input);

    /// Returns the next thing to do; [`Output::Timeout`] when there is nothing more at once.
    fn poll(&mut self) -> Output<Self::Event>;

    /// Ends the session and sends the peer the reason: as Refused before Ready, as Revoke after it.
    fn refuse(&mut self, refusal: Refusal);
}

/// Phase of a session: decides which timer runs and how the session ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stage {
    /// Before Ready: the peer must send this in time.
    Awaits(MessageKind),
    /// Before Ready: it is this side's turn.
    Prepares,
    /// From Ready on: the lease counts.
    Runs,
    Over,
}

/// A state of one side.
pub(crate) trait State: Copy + Eq {
    /// The last one.
    const OVER: Self;

    /// Returns a description of what the session does in it, and the stage it belongs to.
    fn facts(self) -> (&'static str, Stage);
}

/// What both sides share: the state, pending outputs, when the peer was last heard.
#[derive(Debug)]
pub(crate) struct Core<S, E> {
    pub(crate) state: S,
    outputs: VecDeque<Output<E>>,
    /// Of the session, 0 before Welcome.
    pub(crate) epoch: u32,
    pub(crate) lease: Lease,
    pub(crate) handshake: Duration,
    /// Until when the next step of the handshake must come.
    pub(crate) handshake_until: Instant,
}

impl<S: State, E> Core<S, E> {
    pub(crate) fn new(now: Instant, handshake: Duration, state: S) -> Self {
        Self {
            state,
            outputs: VecDeque::new(),
            epoch: 0,
            lease: Lease::new(now, Duration::from_secs(86_400)),
            handshake,
            handshake_until: now + handshake,
        }
    }

    pub(crate) fn transmit(&mut self, message: Message) {
        self.outputs.push_back(Output::Transmit(message));
    }

    pub(crate) fn event(&mut self, event: E) {
        self.outputs.push_back(Output::Event(event));
    }

    /// Returns the next output; without one, when to call again: at `wake` or before.
    pub(crate) fn poll(&mut self, wake: Option<Instant>) -> Output<E> {
        self.outputs.pop_front().unwrap_or_else(|| {
            let deadline = match self.state.facts().1 {
                Stage::Awaits(_) => Some(self.handshake_until),
                Stage::Runs => Some(self.lease.until()).into_iter().chain(wake).min(),
                Stage::Prepares | Stage::Over => None,
            };
            Output::Timeout(deadline)
        })
    }

    /// Handles what both sides handle alike; returns a message of this session.
    pub(crate) fn handle(&mut self, now: Instant, input: Input) -> Option<Message> {
        debug_assert!(self.outputs.is_empty(), "poll until Timeout before handle");
        match input {
            _ if self.state == S::OVER => {}
            Input::Message(message) => {
                self.lease.hear(now);
                match self.check_epoch(&message) {
                    Ok(()) => return Some(message),
                    Err(refusal) => self.refuse(refusal, Ended::Misbehaved),
                }
            }
            Input::Timeout => self.expire(now),
            Input::Disconnected => self.end(Ended::Disconnected(self.state.facts().0)),
        }
        None
    }

    /// Returns whether a call allowed in `states` takes effect, which it does not after the end.
    pub(crate) fn may(&self, call: &'static str, states: &[S]) -> Result<bool, Misuse> {
        let fits = states.contains(&self.state);
        if fits || self.state == S::OVER {
            return Ok(fits);
        }
        Err(Misuse { call, state: self.state.facts().0 })
    }

    pub(crate) fn heard(&mut self, now: Instant) {
        self.lease.hear(now);
    }

    /// Ends the session if the peer was silent for too long.
    fn expire(&mut self, now: Instant) {
        let ended = match self.state.facts().1 {
            Stage::Awaits(waiting_for) if now >= self.handshake_until => {
                Ended::HandshakeTimeout { waiting_for, limit: self.handshake }
            }
            Stage::Runs if now >= self.lease.until() => {
                Ended::LeaseExpired { silent: self.lease.silent(now), lease: self.lease.time() }
            }
            Stage::Awaits(_) | Stage::Runs | Stage::Prepares | Stage::Over => return,
        };
        let refusal = Refusal::new(RefusalCode::Timeout, ended.to_string(), "connect again");
        self.refuse(refusal, |_| ended);
    }

    /// Sends the peer `refusal` in the form of the state, and ends.
    pub(crate) fn refuse(&mut self, refusal: Refusal, ended: impl FnOnce(Refusal) -> Ended) {
        let message = match self.state.facts().1 {
            Stage::Awaits(_) | Stage::Prepares => Message::Refused(refusal.clone()),
            Stage::Runs => Message::Revoke(Revoke::new(self.epoch, refusal.clone())),
            Stage::Over => return,
        };
        self.transmit(message);
        self.end(ended(refusal));
    }

    pub(crate) fn end(&mut self, ended: Ended) {
        self.state = S::OVER;
        self.outputs.push_back(Output::Ended(ended));
    }

    /// Refuses a message that names another epoch than this session's, once it has one.
    fn check_epoch(&self, message: &Message) -> Result<(), Refusal> {
        let (kind, Some(epoch)) = (message.kind(), message.epoch()) else { return Ok(()) };
        if epoch == self.epoch || self.epoch == 0 {
            return Ok(());
        }
        let reason = format!("{kind} names epoch {epoch}, this session is {}", self.epoch);
        let remedy = "drop what belongs to the old session and begin with Hello";
        Err(Refusal::new(RefusalCode::WrongEpoch, reason, remedy))
    }

    /// Returns the refusal of a well-formed message that the state does not allow.
    pub(crate) fn unexpected(&self, kind: MessageKind) -> Refusal {
        let reason = format!("{kind} came while {}", self.state.facts().0);
        let remedy = "follow the states of docs/spec/session.md";
        Refusal::new(RefusalCode::UnexpectedMessage, reason, remedy)
    }
}

pub(crate) fn unknown_stream(kind: MessageKind, problem: std::fmt::Arguments<'_>) -> Refusal {
    let reason = format!("{kind}: {problem}");
    let remedy = "name every stream of Welcome exactly once";
    Refusal::new(RefusalCode::UnknownStream, reason, remedy)
}
