//! Drives the state machine of one side over its connection: the loop that every session runs.
//!
//! - In: messages of the peer, the machine's deadlines, and the wake-ups of a [`Handler`].
//! - Out: the machine's messages go to the peer, its events to the handler.
//! - Promises: outputs are drained before the next input; a wake-up takes precedence over a message,
//!   and a message over a deadline, since this process may have been stopped; a stream of messages
//!   does not delay [`Handler::check`].
use super::connection::{Connection, RecvError, SendError};
use crate::machine::{Ended, Input, Output, Side};
use crate::refusal::Refusal;
use std::future::Future;
use std::ops::Range;
use std::time::Instant;

/// Why the control connection can carry no more.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// A message was not sent.
    #[error(transparent)]
    Send(SendError),
    /// No message was received.
    #[error(transparent)]
    Recv(RecvError),
}

impl Lost {
    /// Returns whether another connection would fail too, until a setting or a file changes.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Send(SendError::Tls(_)) | Self::Recv(RecvError::Tls(_)))
    }
}

/// Handles the events of a session's machine, and waits for events other than messages.
pub trait Handler: Send {
    /// The machine that it works with.
    type Side: Side;
    /// What [`Handler::woken`] returns.
    type Wake: Send;

    /// Handles an event.
    ///
    /// # Errors
    /// The session ends for this reason.
    fn on_event(
        &mut self,
        side: &mut Self::Side,
        event: <Self::Side as Side>::Event,
    ) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// Waits for something other than a message.
    ///
    /// # Cancellation
    /// Must be cancel safe: it is cancelled and called again.
    fn woken(&mut self) -> impl Future<Output = Self::Wake> + Send;

    /// Handles what [`Handler::woken`] returned.
    fn on_wake(&mut self, side: &mut Self::Side, wake: Self::Wake);

    /// Returns when to call [`Handler::check`] next: not before the start, by the end at the latest, and
    /// in between if the session is awake for another reason.
    fn check_between(&self) -> Option<Range<Instant>> {
        None
    }

    /// Checks conditions that send no notification.
    fn check(&mut self, _side: &mut Self::Side) {}

    /// Called after a message of the peer was handled.
    fn heard(&mut self, _side: &mut Self::Side) {}

    /// Notes why the connection is gone, before the machine reports that it is.
    fn lost(&mut self, _lost: Lost) {}
}

/// Runs a session to its end.
pub async fn drive<H: Handler>(
    side: &mut H::Side,
    connection: &mut Connection,
    handler: &mut H,
) -> Ended {
    loop {
        let mut lost = None;
        let deadline = loop {
            match side.poll() {
                Output::Transmit(message) => {
                    lost = connection.send(&message).await.err().or(lost);
                }
                Output::Event(event) => {
                    if let Err(refusal) = handler.on_event(side, event).await {
                        side.refuse(refusal);
                    }
                }
                Output::Ended(ended) => return ended,
                Output::Timeout(deadline) => break deadline,
            }
        };
        match lost {
            Some(error) => disconnect(side, handler, Lost::Send(error)),
            None => wait(side, connection, handler, deadline).await,
        }
    }
}

/// Waits for the next input, and passes it to the machine or the handler.
async fn wait<H: Handler>(
    side: &mut H::Side,
    connection: &mut Connection,
    handler: &mut H,
    deadline: Option<Instant>,
) {
    let check = handler.check_between();
    if check.as_ref().is_some_and(|check| check.start <= Instant::now()) {
        return handler.check(side);
    }
    let check_at = check.map(|check| check.end);
    tokio::select! {
        biased;
        wake = handler.woken() => handler.on_wake(side, wake),
        message = connection.recv() => match message {
            Ok(message) => {
                side.handle(Instant::now(), Input::Message(message));
                handler.heard(side);
            }
            Err(RecvError::Decode(error)) => side.refuse(error.refusal()),
            Err(error) => disconnect(side, handler, Lost::Recv(error)),
        },
        () = passed(deadline.into_iter().chain(check_at).min()) => {
            side.handle(Instant::now(), Input::Timeout);
        }
    }
}

fn disconnect<H: Handler>(side: &mut H::Side, handler: &mut H, lost: Lost) {
    tracing::debug!(error = %lost, "control connection lost");
    handler.lost(lost);
    side.handle(Instant::now(), Input::Disconnected);
}

/// Returns once this time has passed; never without one.
async fn passed(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until.into()).await,
        None => std::future::pending().await,
    }
}
